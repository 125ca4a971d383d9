// Reads one case a line and prints what NVIDIA's calculator answers.
// major minor threads registers static dynamic barriers  + limits of the device
#include <cstdio>
#include <climits>
#include "cuda_occupancy.h"

int main() {
    int major, minor, threads, registers, barriers, max_block, max_threads, regs_block, regs_sm;
    unsigned long fixed, dynamic, smem_block, smem_sm, optin, reserved;
    while (std::scanf("%d %d %d %d %lu %lu %d %d %d %d %d %lu %lu %lu %lu", &major, &minor,
                      &threads, &registers, &fixed, &dynamic, &barriers, &max_block, &max_threads,
                      &regs_block, &regs_sm, &smem_block, &smem_sm, &optin, &reserved) == 15) {
        cudaOccDeviceProp device;
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = max_block;
        device.maxThreadsPerMultiprocessor = max_threads;
        device.regsPerBlock = regs_block;
        device.regsPerMultiprocessor = regs_sm;
        device.warpSize = 32;
        device.sharedMemPerBlock = smem_block;
        device.sharedMemPerMultiprocessor = smem_sm;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = optin;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = INT_MAX;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = fixed;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = dynamic;
        kernel.numBlockBarriers = barriers;
        cudaOccDeviceState state;
        cudaOccResult result;
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state,
                                                            threads, dynamic);
        std::printf("%d %d %d %zu %d %d %d %d %d\n", error, result.activeBlocksPerMultiprocessor,
                    result.allocatedRegistersPerBlock, result.allocatedSharedMemPerBlock,
                    result.blockLimitWarps, result.blockLimitBlocks, result.blockLimitRegs,
                    result.blockLimitSharedMem, result.blockLimitBarriers);
    }
    return 0;
}
