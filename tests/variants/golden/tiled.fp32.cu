// tiled: fp32 -> fp32, layout nn
using in_t = float;
using acc_t = float;
using out_t = float;
using compute_t = float;
constexpr int BLOCK_SIZE = 128;
constexpr int TILE = 8;
constexpr int BK = 16;
constexpr int MIN_BLOCKS = 2;
constexpr int SIDE = 16;
constexpr int THREADS = 256;
constexpr int PASSES = 8;
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
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) tiled(int M, int N, int K, int batch, compute_t alpha, const in_t* __restrict__ A, long long lda, long long stride_a, const in_t* __restrict__ B, long long ldb, long long stride_b, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c) {
    __shared__ in_t smem_a[BLOCK_SIZE][BK];  // [row][k]
    __shared__ in_t smem_b[BK][BLOCK_SIZE];  // [k][col]

    // ---- 1. which elements: row and col, and every SIDE-th one after them ----
    const int blocks_n = (N + BLOCK_SIZE - 1) / BLOCK_SIZE;
    const int block_row = blockIdx.x / blocks_n * BLOCK_SIZE;
    const int block_col = blockIdx.x % blocks_n * BLOCK_SIZE;
    const int thread_row = threadIdx.x / SIDE;  // [0, SIDE)
    const int thread_col = threadIdx.x % SIDE;  // [0, SIDE), neighbours in a warp: next column
    A += blockIdx.z * stride_a + a_index(block_row, 0, lda);  // the corner of the block's next tile
    B += blockIdx.z * stride_b + b_index(0, block_col, ldb);
    C += blockIdx.z * stride_c;

    acc_t acc[TILE][TILE] = {};
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
        // ---- 2. global -> shared; neighbours in a warp read neighbours in memory; zeros outside ----
#pragma unroll 8
        for (int pass = 0; pass < PASSES; ++pass) {
            const unsigned i = threadIdx.x + pass * THREADS;  // [0, BLOCK_SIZE * BK), or past it in the last pass
            const int row = i / BK;
            const int k_a = i % BK;
            const int k_b = i / BLOCK_SIZE;
            const int col = i % BLOCK_SIZE;
            if (i >= BLOCK_SIZE * BK) break;
            const bool inside_a = row < M - block_row && k_a < K - k_tile;
            const bool inside_b = k_b < K - k_tile && col < N - block_col;
            smem_a[row][k_a] = inside_a ? A[a_index(row, k_a, lda)] : in_t(0);
            smem_b[k_b][col] = inside_b ? B[b_index(k_b, col, ldb)] : in_t(0);
        }
        A += a_index(0, BK, lda);
        B += b_index(BK, 0, ldb);
        __syncthreads();  // the tiles are whole

        // ---- 3. multiply ----
#pragma unroll 2
        for (int k_inner = 0; k_inner < BK; ++k_inner) {
#pragma unroll
            for (int i = 0; i < TILE; ++i) {
#pragma unroll
                for (int j = 0; j < TILE; ++j) {
                    acc[i][j] += acc_t(smem_a[thread_row + i * SIDE][k_inner]) *
                                 acc_t(smem_b[k_inner][thread_col + j * SIDE]);
                }
            }
        }
        __syncthreads();  // nobody reads them any more
    }

    // ---- 4. store ----
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
        const int row = block_row + thread_row + i * SIDE;
        if (row >= M) continue;
#pragma unroll
        for (int j = 0; j < TILE; ++j) {
            const int col = block_col + thread_col + j * SIDE;
            if (col < N) store_c(C, ldc, row, col, alpha, acc[i][j], beta, nullptr);
        }
    }
}
