// A whole program as tutorials print them: naive and tiled SGEMM, host checks, main.
#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#define CUDA_CHECK(call)                                                      \
    do {                                                                      \
        cudaError_t err = (call);                                             \
        if (err != cudaSuccess) {                                             \
            std::cerr << "CUDA error: " << cudaGetErrorString(err) << "\n";   \
            std::exit(1);                                                     \
        }                                                                     \
    } while (0)
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))

using namespace std;

const int DEFAULT_SIZE = 1024;
constexpr int WIDTH = 32;
static vector<float> host_data(DEFAULT_SIZE);

struct Timer {
    cudaEvent_t start, stop;
    Timer() { cudaEventCreate(&start); cudaEventCreate(&stop); }
    float elapsed() { float ms = 0; cudaEventElapsedTime(&ms, start, stop); return ms; }
};

struct Scale {
    float alpha, beta;
    Scale(float a, float b) : alpha(a), beta(b) {}
    float apply(float acc, float c) const { return alpha * acc + beta * c; }
};

constexpr uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return a * b + c; }

__global__ void sgemm_naive(int M, int N, int K, float alpha, const float *A,
                            const float *B, float beta, float *C) {
    const uint x = blockIdx.x * blockDim.x + threadIdx.x;
    const uint y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < M && y < N) {
        float tmp = 0.0f;
        for (int i = 0; i < K; ++i) {
            tmp = multiply_add(A[x * K + i], B[i * N + y], tmp);
        }
        C[x * N + y] = Scale(alpha, beta).apply(tmp, C[x * N + y]);
    }
}

template <const int BLOCKSIZE>
__global__ void __launch_bounds__(BLOCKSIZE * BLOCKSIZE)
    sgemm_shared(int M, int N, int K, const float *A, const float *B, float *C) {
    __shared__ float As[BLOCKSIZE][BLOCKSIZE];
    __shared__ float Bs[BLOCKSIZE][BLOCKSIZE];
    int row = blockIdx.y * BLOCKSIZE + threadIdx.y, col = blockIdx.x * BLOCKSIZE + threadIdx.x;
    float acc = 0;
    for (uint32_t t = 0; t < ceil_div(K, BLOCKSIZE); ++t) {
        uint32_t k_a = t * BLOCKSIZE + threadIdx.x, k_b = t * BLOCKSIZE + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < M && k_a < K ? A[row * K + k_a] : 0.f;
        Bs[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[k_b * N + col] : 0.f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BLOCKSIZE; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}

__global__ void report(const int *values, int count) {
    if (threadIdx.x == 0) printf("first of %d: %d\n", count, values[0]);
    assert(values[threadIdx.x] >= 0);
}

void run_naive(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C) {
    dim3 gridDim(CEIL_DIV(M, WIDTH), CEIL_DIV(N, WIDTH));
    dim3 blockDim(WIDTH, WIDTH);
#pragma unroll
    for (int i = 0; i < 1; ++i) sgemm_naive<<<gridDim, blockDim>>>(M, N, K, alpha, A, B, beta, C);
    CUDA_CHECK(cudaGetLastError());
}

void randomize(vector<float> &m) {
    for (auto &x : m) x = rand() / (float)RAND_MAX;  // "uniform" {0, 1}
}

int main(int argc, char **argv) {
    int M = argc > 1 ? atoi(argv[1]) : DEFAULT_SIZE;
    const char *text = "} __global__ void fake() {";
    Timer timer;
    run_naive(M, M, M, 1.f, nullptr, nullptr, 0.f, nullptr);
    sgemm_shared<32><<<dim3(1, 1), dim3(32, 32)>>>(M, M, M, nullptr, nullptr, nullptr);
    printf("%s %f\n", text, timer.elapsed());
    return 0;
}
