// vectorized: fp32 -> fp32, layout nn
using in_t = float;
using acc_t = float;
using out_t = float;
using compute_t = float;
constexpr int BLOCK_SIZE = 128;
constexpr int TILE = 8;
constexpr int BK = 16;
constexpr int MIN_BLOCKS = 1;
constexpr int SIDE = 16;
constexpr int THREADS = 256;
constexpr int PITCH = 132;
constexpr int LOAD_A = 4;
constexpr int LOAD_B = 4;
constexpr int GROUP = 4;
constexpr int STORE_C = 4;
constexpr int VEC_A = 4;
constexpr int VEC_B = 4;
constexpr int VEC_C = 4;

// ---- lib/tile_load: tiles from global to k-major shared memory, fragments from there to registers ----
// WIDTH neighbours in memory, moved by one instruction.
template <typename T, int WIDTH>
struct alignas(WIDTH * sizeof(T)) Vec {
    T at[WIDTH];
};

// One thread's share of a tile of OUTER x INNER elements, in registers; INNER is contiguous in memory.
template <int OUTER, int INNER, int WIDTH>
struct TileShare {
    static constexpr int PER_OUTER = INNER / WIDTH;                 // vectors
    static constexpr int VECTORS = OUTER * PER_OUTER;               // of the tile
    static constexpr int EACH = (VECTORS + THREADS - 1) / THREADS;  // of a thread
    Vec<in_t, WIDTH> held[EACH];

    static __device__ __forceinline__ int index(int i) { return threadIdx.x + i * THREADS; }
    static __device__ __forceinline__ bool mine(int i) { return VECTORS % THREADS == 0 || index(i) < VECTORS; }

    // The tile whose corner is (outer_0, inner_0) in a matrix of outers x inners; zeros outside.
    // A vector lies whole inside a row or whole outside: that is what VEC_A and VEC_B promise.
    __device__ __forceinline__ void read(const in_t* matrix, long long ld, int outer_0, int outers, int inner_0,
                                         int inners) {
        const in_t* from = matrix + (outer_0 + index(0) / PER_OUTER) * ld + inner_0 + index(0) % PER_OUTER * WIDTH;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int outer = outer_0 + index(i) / PER_OUTER;
            const int inner = inner_0 + index(i) % PER_OUTER * WIDTH;
            if (THREADS % PER_OUTER != 0) from = matrix + outer * ld + inner;
            held[i] = {};
            if (mine(i) && outer < outers && inner < inners) held[i] = *reinterpret_cast<const Vec<in_t, WIDTH>*>(from);
            from += THREADS / PER_OUTER * ld;  // where the threads take whole rows, the next one lies straight below
        }
    }

    // smem[outer][inner], rows of PITCH elements.
    template <int PITCH>
    __device__ __forceinline__ void write(in_t* smem) const {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            in_t* to = smem + index(i) / PER_OUTER * PITCH + index(i) % PER_OUTER * WIDTH;
            if (!mine(i)) continue;
            if constexpr (PITCH % WIDTH == 0) {
                *reinterpret_cast<Vec<in_t, WIDTH>*>(to) = held[i];
            } else {
#pragma unroll
                for (int w = 0; w < WIDTH; ++w) to[w] = held[i].at[w];
            }
        }
    }

    // smem[inner][outer], rows of PITCH elements: one scattered store an element.
    template <int PITCH>
    __device__ __forceinline__ void write_transposed(in_t* smem) const {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            in_t* to = smem + index(i) % PER_OUTER * WIDTH * PITCH + index(i) / PER_OUTER;
            if (!mine(i)) continue;
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) to[w * PITCH] = held[i].at[w];
        }
    }
};

// A tile of ROWS x BK of A, bound for shared memory [BK][PITCH], k-major.
template <int ROWS, int WIDTH, int PITCH>
struct TileOfA {
    TileShare<ROWS, BK, WIDTH> share;
    __device__ __forceinline__ void read(const in_t* A, long long lda, int block_row, int M, int k_tile, int K) {
        share.read(A, lda, block_row, M, k_tile, K);
    }
    __device__ __forceinline__ void write(in_t* smem_a) const {
        share.template write_transposed<PITCH>(smem_a);
    }
};

// A tile of BK x COLS of B, bound for shared memory [BK][PITCH].
template <int COLS, int WIDTH, int PITCH>
struct TileOfB {
    TileShare<BK, COLS, WIDTH> share;
    __device__ __forceinline__ void read(const in_t* B, long long ldb, int block_col, int N, int k_tile, int K) {
        share.read(B, ldb, k_tile, K, block_col, N);
    }
    __device__ __forceinline__ void write(in_t* smem_b) const {
        share.template write<PITCH>(smem_b);
    }
};
// ---- lib/fragment: what one thread reads of a row of shared memory ----
// COUNT elements in groups of GROUP neighbours, the groups STEP apart: one load a group.
template <int GROUP, int STEP, int COUNT>
__device__ __forceinline__ void load_fragment(in_t (&frag)[COUNT], const in_t* smem) {
    struct alignas(GROUP * sizeof(in_t)) Group {
        in_t at[GROUP];
    };
#pragma unroll
    for (int g = 0; g < COUNT / GROUP; ++g) {
        const Group group = *reinterpret_cast<const Group*>(smem + g * STEP);
#pragma unroll
        for (int i = 0; i < GROUP; ++i) frag[g * GROUP + i] = group.at[i];
    }
}

// Where element i of such a fragment lies, from its first.
template <int GROUP, int STEP>
__device__ __forceinline__ int fragment_offset(int i) {
    return i / GROUP * STEP + i % GROUP;
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
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) vectorized(int M, int N, int K, int batch, compute_t alpha, const in_t* __restrict__ A, long long lda, long long stride_a, const in_t* __restrict__ B, long long ldb, long long stride_b, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c) {
    __shared__ alignas(16) in_t smem_a[BK][PITCH];  // [k][row], k-major: transposed on the way
    __shared__ alignas(16) in_t smem_b[BK][PITCH];  // [k][col]

    // ---- 1. which elements: groups of GROUP neighbours, the groups STEP apart ----
    constexpr int STEP = SIDE * GROUP;
    const int blocks_n = (N + BLOCK_SIZE - 1) / BLOCK_SIZE;
    const int block_row = blockIdx.x / blocks_n * BLOCK_SIZE;
    const int block_col = blockIdx.x % blocks_n * BLOCK_SIZE;
    const int thread_row = threadIdx.x / SIDE * GROUP;  // [0, STEP)
    const int thread_col = threadIdx.x % SIDE * GROUP;  // [0, STEP)
    A += blockIdx.z * stride_a;
    B += blockIdx.z * stride_b;
    C += blockIdx.z * stride_c;

    acc_t acc[TILE][TILE] = {};
    for (int k_tile = 0; k_tile < K; k_tile += BK) {
        // ---- 2. global -> registers -> shared, LOAD_A and LOAD_B elements at a time ----
        TileOfA<BLOCK_SIZE, LOAD_A, PITCH> tile_a;
        TileOfB<BLOCK_SIZE, LOAD_B, PITCH> tile_b;
        tile_a.read(A, lda, block_row, M, k_tile, K);
        tile_b.read(B, ldb, block_col, N, k_tile, K);
        tile_a.write(smem_a[0]);
        tile_b.write(smem_b[0]);
        __syncthreads();  // the tiles are whole

        // ---- 3. multiply: a column of A by a row of B ----
#pragma unroll 16
        for (int k_inner = 0; k_inner < BK; ++k_inner) {
            in_t frag_a[TILE], frag_b[TILE];
            load_fragment<GROUP, STEP>(frag_a, &smem_a[k_inner][thread_row]);
            load_fragment<GROUP, STEP>(frag_b, &smem_b[k_inner][thread_col]);
#pragma unroll
            for (int i = 0; i < TILE; ++i) {
#pragma unroll
                for (int j = 0; j < TILE; ++j) acc[i][j] += acc_t(frag_a[i]) * acc_t(frag_b[j]);
            }
        }
        __syncthreads();  // nobody reads them any more
    }

    // ---- 4. store, STORE_C elements at a time ----
#pragma unroll
    for (int i = 0; i < TILE; ++i) {
        const int row = block_row + thread_row + fragment_offset<GROUP, STEP>(i);
        if (row >= M) continue;
#pragma unroll
        for (int j = 0; j < TILE; j += GROUP) {
            const int col = block_col + thread_col + fragment_offset<GROUP, STEP>(j);
            store_c_group<GROUP, STORE_C>(C, ldc, row, col, N, alpha, &acc[i][j], beta, nullptr);
        }
    }
}
