// Kernels with the defects of printed ones; the tests hold that the emulator sees each.
#include <cuda_runtime.h>

#define BLOCK_SIZE 32

// The tile loads and the barrier stand behind row < M && col < N: threads at the ragged edge load
// nothing, and their neighbours multiply what was there before.
__global__ void guarded_shared(int M, int N, int K, const float* A, const float* B, float* C) {
    __shared__ float smem_a[BLOCK_SIZE][BLOCK_SIZE];
    __shared__ float smem_b[BLOCK_SIZE][BLOCK_SIZE];
    const int row = blockIdx.y * BLOCK_SIZE + threadIdx.y;
    const int col = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (row < M && col < N) {
        float acc = 0.0f;
        for (int k_tile = 0; k_tile < K; k_tile += BLOCK_SIZE) {
            const int k_a = k_tile + threadIdx.x;
            const int k_b = k_tile + threadIdx.y;
            smem_a[threadIdx.y][threadIdx.x] = k_a < K ? A[row * K + k_a] : 0.0f;
            smem_b[threadIdx.y][threadIdx.x] = k_b < K ? B[k_b * N + col] : 0.0f;
            __syncthreads();
            for (int k_inner = 0; k_inner < BLOCK_SIZE; ++k_inner) {
                acc += smem_a[threadIdx.y][k_inner] * smem_b[k_inner][threadIdx.x];
            }
            __syncthreads();
        }
        C[row * N + col] = acc;
    }
}

// The same without its second barrier.
__global__ void unfenced_shared(int M, int N, int K, const float* A, const float* B, float* C) {
    __shared__ float smem_a[BLOCK_SIZE][BLOCK_SIZE];
    __shared__ float smem_b[BLOCK_SIZE][BLOCK_SIZE];
    const int row = blockIdx.y * BLOCK_SIZE + threadIdx.y;
    const int col = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    float acc = 0.0f;
    for (int k_tile = 0; k_tile < K; k_tile += BLOCK_SIZE) {
        const int k_a = k_tile + threadIdx.x;
        const int k_b = k_tile + threadIdx.y;
        smem_a[threadIdx.y][threadIdx.x] = row < M && k_a < K ? A[row * K + k_a] : 0.0f;
        smem_b[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k_inner = 0; k_inner < BLOCK_SIZE; ++k_inner) {
            acc += smem_a[threadIdx.y][k_inner] * smem_b[k_inner][threadIdx.x];
        }
    }
    if (row < M && col < N) C[row * N + col] = acc;
}

// 16 bytes at a time, whatever K and N are: misaligned from the second row on, and past the row.
template <int TILE>
__global__ void wide_loads(int M, int N, int K, const float* A, const float* B, float* C) {
    __shared__ float smem_a[TILE][TILE];
    __shared__ float smem_b[TILE][TILE];
    const int row = threadIdx.x / (TILE / 4);
    const int four = threadIdx.x % (TILE / 4) * 4;
    const int block_row = blockIdx.y * TILE, block_col = blockIdx.x * TILE;
    float acc[4] = {};
    for (int k_tile = 0; k_tile < K; k_tile += TILE) {
        *reinterpret_cast<float4*>(&smem_a[row][four]) =
            *reinterpret_cast<const float4*>(&A[(block_row + row) * K + k_tile + four]);
        *reinterpret_cast<float4*>(&smem_b[row][four]) =
            *reinterpret_cast<const float4*>(&B[(k_tile + row) * N + block_col + four]);
        __syncthreads();
        for (int k_inner = 0; k_inner < TILE; ++k_inner) {
            for (int j = 0; j < 4; ++j) acc[j] += smem_a[row][k_inner] * smem_b[k_inner][four + j];
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; ++j) C[(block_row + row) * N + block_col + four + j] = acc[j];
}

// One output a thread, tiles of 16: threads 0 to 3 of each row load a float4, but B's by the wrong
// index, so that only a part of its tile is ever filled.
__global__ void sixteen_wide(int M, int N, int K, const float* A, const float* B, float* C) {
    constexpr int TILE = 16;
    __shared__ float smem_a[TILE][TILE];
    __shared__ float smem_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0.0f;
    for (int k_tile = 0; k_tile < K; k_tile += TILE) {
        if (threadIdx.x < TILE / 4) {
            const float4 a = *reinterpret_cast<const float4*>(&A[row * K + k_tile + threadIdx.x * 4]);
            *reinterpret_cast<float4*>(&smem_a[threadIdx.y][threadIdx.x * 4]) = a;
        }
        if (threadIdx.y < TILE / 4) {
            const float4 b = *reinterpret_cast<const float4*>(
                &B[(k_tile + threadIdx.y) * N + blockIdx.x * TILE + threadIdx.x / 4 * 4]);
            *reinterpret_cast<float4*>(&smem_b[threadIdx.y][threadIdx.x / 4 * 4]) = b;
        }
        __syncthreads();
        for (int k_inner = 0; k_inner < TILE; ++k_inner) {
            acc += smem_a[threadIdx.y][k_inner] * smem_b[k_inner][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}
