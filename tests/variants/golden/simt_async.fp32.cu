// simt_async: fp32 -> fp32, layout nn
using in_t = float;
using acc_t = float;
using out_t = float;
using compute_t = float;
constexpr int BM = 128;
constexpr int BN = 256;
constexpr int BK = 16;
constexpr int WM = 64;
constexpr int WN = 64;
constexpr int TM = 16;
constexpr int TN = 8;
constexpr int STAGES = 3;
constexpr int PREFETCH = 1;
constexpr bool SNAKE = true;
constexpr int PAD = 4;
constexpr int GROUP_M = 8;
constexpr int MIN_BLOCKS = 1;
constexpr int BURSTS = 2;
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 4;
constexpr int LANES_M = 4;
constexpr int LANES_N = 8;
constexpr int THREADS = 256;
constexpr int PITCH_A = 132;
constexpr int PITCH_B = 260;
constexpr int STAGE_BYTES = 25088;
constexpr int K_LANES = 8;
constexpr int LOAD_B = 4;
constexpr int GROUP_A = 4;
constexpr int GROUP_B = 4;
constexpr int STORE_C = 4;
constexpr int REDUCE_THREADS = 256;
constexpr int VEC_C = 4;
// ORDER = rows
// LANES = zigzag
// RASTER = grouped

// ---- lib/block_order: which tile of C is blockIdx.x; the grid is one row of tiles_m * tiles_n blocks ----
struct BlockTile {
    int row;  // [0, tiles_m)
    int col;  // [0, tiles_n)
};

// Row by row: neighbours share a row of A, and B passes through L2 once for every row of tiles.
__device__ __forceinline__ BlockTile block_in_rows(int tiles_n) {
    return {int(blockIdx.x) / tiles_n, int(blockIdx.x) % tiles_n};
}

// Down columns of `group_m` tiles, then to the next column: blocks that run together form a patch
// that is nearly square, and share rows of A and columns of B. The last group may be lower.
__device__ __forceinline__ BlockTile block_in_groups(int tiles_m, int tiles_n, int group_m) {
    const int group = blockIdx.x / ((long long)group_m * tiles_n);
    const int first = group * group_m;
    const int height = tiles_m - first < group_m ? tiles_m - first : group_m;
    const int within = blockIdx.x - (long long)first * tiles_n;
    return {first + within % height, within / height};
}
// ---- lib/cp_async: copies from global to shared memory that pass no register (PTX ISA 9.7.9.25.3) ----
// Address of a shared variable as the instructions want it.
__device__ __forceinline__ unsigned smem_address(const void* smem) {
    return static_cast<unsigned>(__cvta_generic_to_shared(smem));
}

// cp.async of 4, 8 or 16 bytes, both addresses aligned to them; does nothing unless `doit`. 16 bytes
// go past L1 (.cg); the branch is a predicate inside the asm, so that a loop stays one basic block.
template <int BYTES>
__device__ __forceinline__ void cp_async(unsigned smem, const void* global, bool doit) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }"
                     :: "r"(smem), "l"(global), "r"(int(doit)) : "memory");
    } else {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], %3; }"
                     :: "r"(smem), "l"(global), "r"(int(doit)), "n"(BYTES) : "memory");
    }
}

// The same, but writes zeros where it is not `inside`, and then reads nothing.
template <int BYTES>
__device__ __forceinline__ void cp_async_or_zero(unsigned smem, const void* global, bool inside) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(smem), "l"(global), "r"(inside ? 16 : 0) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :: "r"(smem), "l"(global), "n"(BYTES), "r"(inside ? BYTES : 0) : "memory");
    }
}

// Closes the group of this thread's copies since the last one (PTX ISA 9.7.9.25.3.2).
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's groups are still in flight, the youngest ones; other
// threads' copies need a barrier after it (PTX ISA 9.7.9.25.3.3).
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}
// ---- lib/async_tile: one thread's cp.async copies of a BK x EXTENT tile to k-major shared memory ----
// All addresses are made once; a tile costs one addition a pointer. Rows and columns past the edge
// are clamped to the last one: they only feed elements of C that nobody stores. The first tile may
// be short, and is filled up with zeros; every later one is full.

// Memory is contiguous along the extent (A stored [K][M], B stored [K][N]): WIDTH elements a copy.
template <int EXTENT, int WIDTH, int PITCH>
struct AsyncTileStraight {
    static constexpr int PER_K = EXTENT / WIDTH;
    static constexpr int VECTORS = BK * PER_K;
    static constexpr int COPIES = (VECTORS + THREADS - 1) / THREADS;
    // Where the threads take whole rows, in whole passes, one pointer walks down all of them.
    static constexpr bool WALKS = THREADS % PER_K == 0 && VECTORS % THREADS == 0;
    const in_t* from[WALKS ? 1 : COPIES];
    unsigned to[WALKS ? 1 : COPIES];  // in stage 0
    long long step;                   // elements that a pointer moves on after a copy

    static __device__ __forceinline__ int index(int i) { return threadIdx.x + i * THREADS; }
    static __device__ __forceinline__ bool mine(int i) { return VECTORS % THREADS == 0 || index(i) < VECTORS; }

    __device__ __forceinline__ AsyncTileStraight(const in_t* matrix, long long ld, unsigned smem, int corner,
                                                 int extent, int k_begin)
        : step((WALKS ? THREADS / PER_K : BK) * ld) {
#pragma unroll
        for (int i = 0; i < (WALKS ? 1 : COPIES); ++i) {
            const int x = corner + index(i) % PER_K * WIDTH;
            const int k = index(i) / PER_K;
            from[i] = matrix + (k_begin + k) * ld + (x < extent ? x : extent - WIDTH);
            to[i] = smem + (k * PITCH + index(i) % PER_K * WIDTH) * sizeof(in_t);
        }
    }
    __device__ __forceinline__ unsigned target(int i) const {
        return WALKS ? to[0] + i * (THREADS / PER_K) * PITCH * sizeof(in_t) : to[i];
    }
    // The first tile: k_count of its BK slices, zeros behind; moves on by k_count.
    __device__ __forceinline__ void copy_first(int k_count, long long ld) {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            const int k = index(i) / PER_K;
            const in_t* row_0 = from[WALKS ? 0 : i] - index(WALKS ? 0 : i) / PER_K * ld;  // an address that is there
            const in_t* source = k < k_count ? row_0 + k * ld : row_0;
            if (mine(i)) cp_async_or_zero<WIDTH * sizeof(in_t)>(target(i), source, k < k_count);
        }
#pragma unroll
        for (int i = 0; i < (WALKS ? 1 : COPIES); ++i) from[i] += k_count * ld;
    }
    // Copies first to last - 1 of a full tile; moves their pointers on.
    __device__ __forceinline__ void copy(int first, int last, unsigned stage_bytes, bool doit) {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (i < first || i >= last) continue;
            cp_async<WIDTH * sizeof(in_t)>(target(i) + stage_bytes, from[WALKS ? 0 : i], doit && mine(i));
            from[WALKS ? 0 : i] += step;
        }
    }
};

// Memory is contiguous along k (A stored [M][K], B stored [N][K]): K_LANES lanes side by side along k,
// one element a copy, which transposes on the way; copies along k share a pointer.
template <int EXTENT, int PITCH>
struct AsyncTileTransposing {
    static constexpr int PER_PASS = THREADS / K_LANES;  // rows of the extent that one pass takes
    static constexpr int ROWS = (EXTENT + PER_PASS - 1) / PER_PASS;
    static constexpr int EACH = BK / K_LANES;
    static constexpr int COPIES = ROWS * EACH;
    const in_t* from[ROWS];
    unsigned to;          // in stage 0
    long long ahead = 0;  // elements along k since the first tile

    static __device__ __forceinline__ int lane_k() { return threadIdx.x % K_LANES; }
    static __device__ __forceinline__ int row(int r) { return threadIdx.x / K_LANES + r * PER_PASS; }
    static __device__ __forceinline__ bool mine(int r) { return EXTENT % PER_PASS == 0 || row(r) < EXTENT; }

    __device__ __forceinline__ AsyncTileTransposing(const in_t* matrix, long long ld, unsigned smem, int corner,
                                                    int extent, int k_begin)
        : to(smem + (lane_k() * PITCH + row(0)) * sizeof(in_t)) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int x = corner + row(r);
            from[r] = matrix + (x < extent ? x : extent - 1) * ld + k_begin + lane_k();
        }
    }
    static __device__ __forceinline__ unsigned offset(int r, int e) {
        return (e * K_LANES * PITCH + r * PER_PASS) * sizeof(in_t);
    }
    __device__ __forceinline__ void copy_first(int k_count, long long) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                const bool inside = lane_k() + e * K_LANES < k_count;
                const in_t* source = inside ? from[r] + e * K_LANES : from[r] - lane_k();
                if (mine(r)) cp_async_or_zero<sizeof(in_t)>(to + offset(r, e), source, inside);
            }
            from[r] += k_count;
        }
    }
    __device__ __forceinline__ void copy(int first, int last, unsigned stage_bytes, bool doit) {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (i < first || i >= last) continue;
            const int r = i / EACH, e = i % EACH;
            cp_async<sizeof(in_t)>(to + stage_bytes + offset(r, e), from[r] + ahead + e * K_LANES, doit && mine(r));
            if (i == COPIES - 1) ahead += BK;
        }
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
// ---- lib/outer_product: acc += a column of A times a row of B, in registers ----
// A multiply-add reads three registers, of two banks that give one each a cycle: it runs at full speed
// only if one operand is still there from the last. Along a line one operand stays; a SNAKE walks
// every second line backwards, so that the other one stays where the line turns.
__device__ __forceinline__ void outer_product(acc_t (&acc)[TM][TN], const in_t (&frag_a)[TM], const in_t (&frag_b)[TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int step = 0; step < TN; ++step) {
            const int j = SNAKE && i % 2 ? TN - 1 - step : step;
            acc[i][j] += frag_a[i] * frag_b[j];
        }
    }
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
using TileA = AsyncTileTransposing<BM, PITCH_A>;
using TileB = AsyncTileStraight<BN, LOAD_B, PITCH_B>;
constexpr int STEP_A = LANES_M * GROUP_A;  // groups of GROUP_A rows of a thread lie this far apart
constexpr int STEP_B = LANES_N * GROUP_B;

extern __shared__ __align__(16) in_t smem[];  // [STAGES] of A [BK][BM + PAD], then B [BK][BN + PAD], k-major

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) simt_async(int M, int N, int K, int batch, compute_t alpha, const in_t* __restrict__ A, long long lda, long long stride_a, const in_t* __restrict__ B, long long ldb, long long stride_b, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c, unsigned char* __restrict__ workspace) {
    // ---- 1. which elements: block, warp, lane, piece of K ----
    const int tiles_n = (N + BN - 1) / BN;
    const BlockTile block = block_in_groups((M + BM - 1) / BM, tiles_n, GROUP_M);
    const int block_row = block.row * BM;
    const int block_col = block.col * BN;
    const int warp_id = threadIdx.x / 32;  // [0, WARPS_M * WARPS_N)
    const int lane_id = threadIdx.x % 32;  // [0, 32)
    const int lane_row = lane_id / (2 * LANES_N) * 2 + lane_id % 2;  // [0, LANES_M)
    const int lane_col = lane_id / 2 % LANES_N;                      // [0, LANES_N)
    const int tile_row = warp_id / WARPS_N * WM + lane_row * GROUP_A;  // in the block's tile
    const int tile_col = warp_id % WARPS_N * WN + lane_col * GROUP_B;
    const int k_begin = 0;
    const int k_end = K;
    const int tiles_k = (k_end - k_begin + BK - 1) / BK;
    A += blockIdx.z * stride_a;
    B += blockIdx.z * stride_b;
    C += blockIdx.z * stride_c;

    acc_t acc[TM][TN] = {};
    if (tiles_k > 0) {
        // ---- 2. global -> shared: STAGES - 1 tiles set off, the first one with what BK leaves over of K ----
        const unsigned smem_0 = smem_address(smem);
        TileA tile_a(A, lda, smem_0, block_row, M, k_begin);
        TileB tile_b(B, ldb, smem_0 + BK * PITCH_A * sizeof(in_t), block_col, N, k_begin);
        const int k_first = k_end - k_begin - (tiles_k - 1) * BK;  // [1, BK]
        tile_a.copy_first(k_first, lda);
        tile_b.copy_first(k_first, ldb);
        cp_async_commit();
#pragma unroll
        for (int stage = 1; stage < STAGES - 1; ++stage) {
            tile_a.copy(0, TileA::COPIES, stage * STAGE_BYTES, stage < tiles_k);
            tile_b.copy(0, TileB::COPIES, stage * STAGE_BYTES, stage < tiles_k);
            cp_async_commit();
        }
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // the first tile is whole

        int stage_read = 0;
        int stage_written = STAGES - 1;
        const in_t* smem_a = smem + tile_row;                 // [BK][BM + PAD] of stage_read
        const in_t* smem_b = smem + BK * PITCH_A + tile_col;  // [BK][BN + PAD] of stage_read
        in_t frag_a[BK][TM], frag_b[BK][TN];                  // no more than PREFETCH + 1 live at a time
#pragma unroll
        for (int k = 0; k < PREFETCH; ++k) {
            load_fragment<GROUP_A, STEP_A>(frag_a[k], smem_a + k * PITCH_A);
            load_fragment<GROUP_B, STEP_B>(frag_b[k], smem_b + k * PITCH_B);
        }

#pragma unroll 1
        for (int tile = 0; tile < tiles_k; ++tile) {
            constexpr int STEPS = BK - PREFETCH;  // of k_inner, before one looks into the next stage
            const bool more = tile + STAGES - 1 < tiles_k;
            const unsigned to = stage_written * STAGE_BYTES;
#pragma unroll
            for (int k_inner = 0; k_inner <= BK; ++k_inner) {
                // ---- 3. the next stage becomes the one that is read ----
                if (k_inner == STEPS) {
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();  // the next tile is whole, and nobody reads this one any more
                    stage_written = stage_read;
                    // Behind the last tile there is none: what is read again is not used.
                    if (tile + 1 < tiles_k) stage_read = stage_read + 1 == STAGES ? 0 : stage_read + 1;
                    smem_a = smem + stage_read * (STAGE_BYTES / 4) + tile_row;
                    smem_b = smem + stage_read * (STAGE_BYTES / 4) + BK * PITCH_A + tile_col;
                }
                if (k_inner == BK) break;

                // ---- 4. shared -> registers, PREFETCH steps ahead ----
                const int k_read = (k_inner + PREFETCH) % BK;
                load_fragment<GROUP_A, STEP_A>(frag_a[k_read], smem_a + k_read * PITCH_A);
                load_fragment<GROUP_B, STEP_B>(frag_b[k_read], smem_b + k_read * PITCH_B);

                // ---- 5. global -> shared: the tile STAGES - 1 ahead, to the stage read one turn ago ----
                if (k_inner < STEPS) {
                    const int first = (k_inner * BURSTS + STEPS - 1) / STEPS;  // bursts before this step
                    const int last = ((k_inner + 1) * BURSTS + STEPS - 1) / STEPS;
                    tile_a.copy(TileA::COPIES * first / BURSTS, TileA::COPIES * last / BURSTS, to, more);
                    tile_b.copy(TileB::COPIES * first / BURSTS, TileB::COPIES * last / BURSTS, to, more);
                    if (first < BURSTS && last == BURSTS) cp_async_commit();
                }

                // ---- 6. multiply ----
                outer_product(acc, frag_a[k_inner], frag_b[k_inner]);
            }
        }
    }

    // ---- 7. store, STORE_C elements at a time ----
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = block_row + tile_row + fragment_offset<GROUP_A, STEP_A>(i);
        if (row >= M) continue;
#pragma unroll
        for (int j = 0; j < TN; j += GROUP_B) {
            const int col = block_col + tile_col + fragment_offset<GROUP_B, STEP_B>(j);
            store_c_group<GROUP_B, STORE_C>(C, ldc, row, col, N, alpha, &acc[i][j], beta, nullptr);
        }
    }
}

// Adds the pieces of K up, when there are several.
extern "C" __global__ void __launch_bounds__(REDUCE_THREADS) simt_async_reduce(int M, int N, int batch, compute_t alpha, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c, unsigned char* __restrict__ workspace) {
}
