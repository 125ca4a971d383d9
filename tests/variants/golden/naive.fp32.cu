// naive: fp32 -> fp32, layout nn
using in_t = float;
using acc_t = float;
using out_t = float;
using compute_t = float;
constexpr int BLOCK_SIZE = 32;
constexpr int MIN_BLOCKS = 1;
constexpr int THREADS = 1024;
constexpr int VEC_C = 4;

// ---- lib/index: where an element of A or B lies, for layout nn; offsets are 64-bit ----
// A is stored [M][lda].
__device__ __forceinline__ long long a_index(int row, int k, long long lda) {
    return (long long)row * lda + k;
}
// B is stored [K][ldb].
__device__ __forceinline__ long long b_index(int k, int col, long long ldb) {
    return (long long)k * ldb + col;
}
// ---- lib/epilogue: y = alpha * acc + beta * c, then the user's expression; every rung stores here ----
// Rounds to the nearest value of the output type; integers saturate.
__device__ __forceinline__ out_t to_out(compute_t y) {
    return out_t(y);
}

// One element of C at (row, col), both inside C. beta == 0 never reads C.
__device__ __forceinline__ out_t epilogue(acc_t acc, const out_t* c_ptr, int row, int col, compute_t alpha,
                                          compute_t beta, const out_t* __restrict__ bias_ptr) {
    compute_t x = alpha * compute_t(acc);
    if (beta != compute_t(0)) x += beta * compute_t(*c_ptr);
    return to_out(x);
}

// Stores one element.
__device__ __forceinline__ void store_c(out_t* __restrict__ C, long long ldc, int row, int col, compute_t alpha,
                                        acc_t acc, compute_t beta, const out_t* __restrict__ bias_ptr) {
    out_t* c_ptr = C + (long long)row * ldc + col;
    *c_ptr = epilogue(acc, c_ptr, row, col, alpha, beta, bias_ptr);
}

// Stores WIDTH neighbours of a row, all inside C and aligned as VEC_C promises, by one instruction.
template <int WIDTH>
__device__ __forceinline__ void store_c_vec(out_t* __restrict__ C, long long ldc, int row, int col, compute_t alpha,
                                            const acc_t* acc, compute_t beta, const out_t* __restrict__ bias_ptr) {
    struct alignas(WIDTH * sizeof(out_t)) Group {
        out_t at[WIDTH];
    };
    Group* c_ptr = reinterpret_cast<Group*>(C + (long long)row * ldc + col);
    Group c = {};
    if (beta != compute_t(0)) c = *c_ptr;
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) c.at[j] = epilogue(acc[j], &c.at[j], row, col + j, alpha, beta, bias_ptr);
    *c_ptr = c;
}

// Stores GROUP neighbours of a row, as wide as WIDTH allows; col is a multiple of WIDTH, and what
// lies past column N is left out. WIDTH divides GROUP and, being at most VEC_C, N.
template <int GROUP, int WIDTH>
__device__ __forceinline__ void store_c_group(out_t* __restrict__ C, long long ldc, int row, int col, int N,
                                              compute_t alpha, const acc_t* acc, compute_t beta,
                                              const out_t* __restrict__ bias_ptr) {
#pragma unroll
    for (int j = 0; j < GROUP; j += WIDTH) {
        if (col + j < N) store_c_vec<WIDTH>(C, ldc, row, col + j, alpha, acc + j, beta, bias_ptr);
    }
}
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) naive(int M, int N, int K, int batch, compute_t alpha, const in_t* __restrict__ A, long long lda, long long stride_a, const in_t* __restrict__ B, long long ldb, long long stride_b, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c) {
    // ---- 1. which element ----
    const int blocks_n = (N + BLOCK_SIZE - 1) / BLOCK_SIZE;
    const int row = blockIdx.x / blocks_n * BLOCK_SIZE + threadIdx.x;  // neighbours in a warp: next row
    const int col = blockIdx.x % blocks_n * BLOCK_SIZE + threadIdx.y;
    if (row >= M || col >= N) return;
    A += blockIdx.z * stride_a;
    B += blockIdx.z * stride_b;
    C += blockIdx.z * stride_c;

    // ---- 2. multiply ----
    acc_t acc = 0;
    for (int k = 0; k < K; ++k) {
        acc += acc_t(A[a_index(row, k, lda)]) * acc_t(B[b_index(k, col, ldb)]);
    }

    // ---- 3. store ----
    store_c(C, ldc, row, col, alpha, acc, beta, nullptr);
}
