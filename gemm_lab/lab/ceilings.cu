// Small kernels, each of which drives one part of a card to its limit; lab/ceilings.py and
// lab/experiment.py put word, UNROLL and COPY before this text.

__device__ __forceinline__ void mix(unsigned& sum, unsigned x) { sum ^= x; }
__device__ __forceinline__ void mix(uint2& sum, uint2 x) { sum.x ^= x.x; sum.y ^= x.y; }
__device__ __forceinline__ void mix(uint4& sum, uint4 x) {
    sum.x ^= x.x; sum.y ^= x.y; sum.z ^= x.z; sum.w ^= x.w;
}
__device__ __forceinline__ unsigned fold(unsigned x) { return x; }
__device__ __forceinline__ unsigned fold(uint2 x) { return x.x ^ x.y; }
__device__ __forceinline__ unsigned fold(uint4 x) { return x.x ^ x.y ^ x.z ^ x.w; }

// Reads (or copies) count words once; a thread has UNROLL of them on the way. The launch's dynamic
// shared memory only takes room, so that fewer blocks fit on a multiprocessor.
extern "C" __global__ void __launch_bounds__(256) stream(const word* src, word* dst, long long count) {
    const long long step = (long long)gridDim.x * blockDim.x;
    word sum = {};
#pragma unroll 1
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += UNROLL * step) {
        word held[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            held[u] = {};
            if (i + u * step < count) held[u] = src[i + u * step];
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (COPY) {
                if (i + u * step < count) dst[i + u * step] = held[u];
            } else {
                mix(sum, held[u]);
            }
        }
    }
    // A store that never happens on the data that the host writes keeps the loads alive.
    if (!COPY && fold(sum) == 0x5eed5eedu) dst[0] = sum;
}

// Every block reads the whole buffer, which fits in L2, repeats times; .cg passes L1 by.
extern "C" __global__ void __launch_bounds__(512) l2_read(const uint4* src, unsigned* dst, int count, int repeats) {
    const int step = gridDim.x * blockDim.x;
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 sum = {};
    for (int r = 0; r < repeats; ++r) {
        for (int i = 0; i < count; i += step) {
            int at = first + i;
            at = at < count ? at : at - count;
            uint4 x;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(src + at));
            mix(sum, x);
        }
    }
    if (fold(sum) == 0x5eed5eedu) dst[0] = 1;
}

// 16-byte loads without bank conflicts, volatile lest ptxas merge those of one address; 32 a round.
extern "C" __global__ void __launch_bounds__(256) smem_read(unsigned* dst, int repeats) {
    __shared__ uint4 tile[1024];
    for (int i = threadIdx.x; i < 1024; i += 256) tile[i] = make_uint4(i, i, i, i);
    __syncthreads();
    const unsigned base = (unsigned)__cvta_generic_to_shared(tile) + threadIdx.x * 16;
    uint4 sum = {};
    for (int r = 0; r < repeats; ++r) {
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            uint4 x;
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(base + j % 4 * 4096));
            mix(sum, x);
        }
    }
    if (fold(sum) == 0x5eed5eedu) dst[0] = 1;
}

// 16 chains of multiply-adds a thread, 128 multiply-adds a round; block 0 tells the clock.
extern "C" __global__ void __launch_bounds__(256) fma_rate(float* dst, long long* clocks, float x, float y, int repeats) {
    float acc[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) acc[i] = threadIdx.x + i;
    const long long cycles_0 = clock64();
    long long ns_0, ns_1;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns_0));
#pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
#pragma unroll
            for (int i = 0; i < 16; ++i) acc[i] = fmaf(acc[i], x, y);
        }
    }
    const long long cycles_1 = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns_1));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += acc[i];
    if (sum == 12345.678f) dst[0] = sum;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        clocks[0] = cycles_1 - cycles_0;
        clocks[1] = ns_1 - ns_0;
    }
}

// One thread follows addresses, each of which lies where the one before points.
extern "C" __global__ void chase(unsigned long long start, long long* clocks, int steps) {
    unsigned long long at = start;
    const long long begin = clock64();
    for (int i = 0; i < steps; ++i) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
    const long long end = clock64();
    clocks[0] = end - begin;
    clocks[1] = (long long)at;
}

extern "C" __global__ void smem_chase(long long* clocks, int steps) {
    __shared__ unsigned tile[1024];
    const unsigned base = (unsigned)__cvta_generic_to_shared(tile);
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = base + (i + 33) % 1024 * 4;
    __syncthreads();
    unsigned at = base;
    const long long begin = clock64();
    for (int i = 0; i < steps; ++i) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
    const long long end = clock64();
    if (threadIdx.x == 0) {
        clocks[0] = end - begin;
        clocks[1] = at;
    }
}
