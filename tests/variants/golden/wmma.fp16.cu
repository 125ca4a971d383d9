// wmma: fp16 -> fp16, layout nn
#include <cuda_fp16.h>
using in_t = __half;
using acc_t = float;
using out_t = __half;
using compute_t = float;
constexpr int BM = 128;
constexpr int BN = 256;
constexpr int BK = 64;
constexpr int WM = 64;
constexpr int WN = 64;
constexpr int PAD = 8;
constexpr int L2_FETCH = 256;
constexpr int GROUP_M = 16;
constexpr int MIN_BLOCKS = 1;
constexpr int THREADS = 256;
constexpr int WORKERS = 256;
constexpr int MMA_K = 16;
constexpr int DEPTH = 1;
constexpr int VEC_A = 8;
constexpr int VEC_B = 8;
constexpr int VEC_C = 8;
// RASTER = grouped

#include <mma.h>
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
// ---- lib/swizzle: where a 16-byte chunk of a line lies in shared memory ----
// A tile is LINES lines of LINE_BYTES; 128 bytes are one pass over the 32 banks. ldmatrix reads one chunk
// of each of 8 lines at once: unswizzled, lines of 128 bytes put all 8 on the same 4 banks. So
// the chunk's index is XORed with its line (with line / 2 for lines of 64 bytes, line / 4 for 32), and the 8
// chunks cover all banks. LINE_BYTES is a multiple of 128, or 64 or 32, so that the XOR stays in the line.
// How a tile is read decides which lines must differ:
enum class Swizzle {
    LINES,    // lines 8i to 8i + 7 at once
    QUARTET,  // lines 4i to 4i + 3 at once, 32 bytes of each: XORed with 0, 2, 4, 6
    PAIRS,    // lines 0 1, 4 5, 8 9, 12 13 at once, or 2 more of each; repeats after 16 lines
};
// Here (PAD) lines are padded instead: PAD elements more shift each line to other banks.
constexpr int PAD_BYTES = PAD * sizeof(in_t);
template <int LINE_BYTES, Swizzle KIND = Swizzle::LINES>
__device__ __forceinline__ unsigned swizzled_offset(unsigned line, unsigned chunk) {
    return line * (LINE_BYTES + PAD_BYTES) + chunk * 16;
}
// ---- lib/operand_tiles: tiles of A and B from global to swizzled shared memory ----
// Needs BM BN BK, WORKERS (the number of threads that copy; worker is in [0, WORKERS)), lib/swizzle, lib/index
// and, where the template allows cp.async, lib/cp_async. Tiles come in the order of K, each BK further on.
// Everything outside the matrix becomes zero. Without cp.async, load() fetches the next tile into registers and
// store() writes it to shared memory, so that arithmetic between them hides the fetch; both can go part by part.
// With it, load() is all there is:
// cp.async needs 4, 8 or 16 aligned bytes; what is narrower passes through a few registers, at once.
__device__ __forceinline__ unsigned bits_of(const in_t* from) {
    return *reinterpret_cast<const unsigned short*>(from);
}
// ld.global (PTX ISA, "Data movement: ld") of 4, 8 or 16 aligned bytes. A miss brings L2_FETCH bytes into L2: where K
// lies along the line that is the piece of a later tile, which all blocks want at the same time.
__device__ __forceinline__ void load_global(unsigned (&to)[4], const in_t* from) {
    asm("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}
__device__ __forceinline__ void load_global(unsigned (&to)[2], const in_t* from) {
    asm("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
}
__device__ __forceinline__ void load_global(unsigned (&to)[1], const in_t* from) {
    asm("ld.global.b32 %0, [%1];" : "=r"(to[0]) : "l"(from));
}

// LINES lines of COLS elements; COLS lie along memory. K goes down the lines, or (K_IN_LINE) along them.
// VEC elements are aligned, and lie whole inside the matrix or outside.
template <int LINES, int COLS, int VEC, bool K_IN_LINE, Swizzle KIND>
struct TileCopy {
    static constexpr int SIZE = sizeof(in_t);
    static constexpr int PIECE = VEC * SIZE < 4 ? 4 / SIZE : VEC;  // elements that move together, 4 to 16 bytes
    static constexpr bool ASYNC = false;
    static constexpr int PIECES = COLS / PIECE;                    // in a line
    static constexpr int COUNT = (LINES * PIECES + WORKERS - 1) / WORKERS;
    static constexpr bool WHOLE = COUNT * WORKERS == LINES * PIECES;
    static constexpr bool FIXED_COL = WORKERS % PIECES == 0;       // a worker stays in its column,
    static constexpr int STEP = WORKERS / PIECES;                  // and its pieces are STEP lines apart
    struct alignas(PIECE * SIZE) Piece { unsigned words[PIECE * SIZE / 4]; };

    const in_t* from;  // this worker's first piece of the next tile
    long long ld;
    int lines, cols;   // left in the matrix from there on
    Piece regs[COUNT];
    // src is the corner of the first tile, lines_left x cols_left is left from there.
    __device__ __forceinline__ void begin(const in_t* src, long long ld_, int lines_left, int cols_left, int worker) {
        from = src + line_of(worker, 0) * ld_ + col_of(worker, 0);
        ld = ld_;
        lines = lines_left - line_of(worker, 0);
        cols = cols_left - col_of(worker, 0);
    }
    static __device__ __forceinline__ int line_of(int worker, int i) {
        return FIXED_COL ? worker / PIECES + i * STEP : (worker + i * WORKERS) / PIECES;
    }
    static __device__ __forceinline__ int col_of(int worker, int i) {
        return (FIXED_COL ? worker % PIECES : (worker + i * WORKERS) % PIECES) * PIECE;
    }
    // Where piece i of a worker lies in the tile. Lines ALIKE apart are swizzled alike: where the steps come to that
    // after PERIOD pieces, i adds a constant.
    static __device__ __forceinline__ long long offset(int worker, int i) {
        constexpr int ALIKE = KIND == Swizzle::PAIRS ? 16 : 8;
        constexpr int PERIOD = !FIXED_COL ? 1 << 30 : STEP % ALIKE == 0 ? 1 : ALIKE % STEP == 0 ? ALIKE / STEP : 1 << 30;
        const int first = i % PERIOD;
        const int line = line_of(worker, first), col = col_of(worker, first);
        const long long at = swizzled_offset<COLS * SIZE, KIND>(line, col * SIZE / 16) + col * SIZE % 16;
        return at + (i - first) * STEP * (COLS * SIZE + PAD_BYTES);  // as wide as a pointer: folds into the instruction
    }

    // A piece with `left` elements to the end of its line; zeros if it is not inside.
    static __device__ __forceinline__ Piece fetch(const in_t* piece, bool inside, int left) {
        Piece got = {};
        if constexpr (PIECE == VEC) {
            if (inside) load_global(got.words, piece);
        } else {
#pragma unroll
            for (int e = 0; e < PIECE; ++e) {
                if (inside && e < left) got.words[0] |= bits_of(piece + e) << (8 * SIZE * e);
            }
        }
        return got;
    }

    // Part `part` of `parts` of the pieces; the last one moves on to the next tile.
    __device__ __forceinline__ void load(int worker, int part, int parts) {
        const in_t* piece = from + (FIXED_COL ? COUNT * part / parts * STEP * ld : 0);
#pragma unroll
        for (int i = COUNT * part / parts; i < COUNT * (part + 1) / parts; ++i) {
            const int line = FIXED_COL ? i * STEP : line_of(worker, i) - line_of(worker, 0);  // from the first piece's
            const int col = FIXED_COL ? 0 : col_of(worker, i) - col_of(worker, 0);
            if (!FIXED_COL) piece = from + line * ld + col;
            const bool mine = WHOLE || line_of(worker, i) < LINES;
            const bool inside = mine && line < lines && col < cols;
            regs[i] = fetch(piece, inside, cols - col);
            if (FIXED_COL) piece += STEP * ld;
        }
        if (part + 1 < parts) return;
        from += K_IN_LINE ? (long long)BK : BK * ld;
        (K_IN_LINE ? cols : lines) -= BK;
    }
    __device__ __forceinline__ void store(unsigned char* tile, int worker, int part, int parts) const {
#pragma unroll
        for (int i = COUNT * part / parts; i < COUNT * (part + 1) / parts; ++i) {
            Piece piece = regs[i];
            if (WHOLE || line_of(worker, i) < LINES) *reinterpret_cast<Piece*>(tile + offset(worker, i)) = piece;
        }
    }
};

using CopyA = TileCopy<BM, BK, VEC_A, true, Swizzle::LINES>;  // lines of BK
using CopyB = TileCopy<BK, BN, VEC_B, false, Swizzle::LINES>;  // lines of BN
// A stage is a tile of A, then one of B.
constexpr int TILE_BYTES_A = BM * BK * sizeof(in_t) + BM * PAD_BYTES;
constexpr int STAGE_BYTES = TILE_BYTES_A + BN * BK * sizeof(in_t) + BK * PAD_BYTES;

// The tiles of both operands for the block tile at (row, col), K elements k_begin to K.
struct OperandTiles {
    CopyA copy_a;
    CopyB copy_b;

    __device__ __forceinline__ OperandTiles(const in_t* A, long long lda, const in_t* B, long long ldb, int row,
                                            int col, int k_begin, int M, int N, int K, int worker) {
        const int rows = M - row, cols = N - col, depth = K - k_begin;  // that are left
        copy_a.begin(A + a_index(row, k_begin, lda), lda, rows, depth, worker);
        copy_b.begin(B + b_index(k_begin, col, ldb), ldb, depth, cols, worker);
    }
    __device__ __forceinline__ void load(int worker, int part = 0, int parts = 1) {
        copy_a.load(worker, part, parts);
        copy_b.load(worker, part, parts);
    }
    __device__ __forceinline__ void store(unsigned char* stage, int worker, int part = 0, int parts = 1) const {
        copy_a.store(stage, worker, part, parts);
        copy_b.store(stage + TILE_BYTES_A, worker, part, parts);
    }
};
// ---- lib/strip_store: a warp's strip of accumulators, 16 x WN, from shared memory to C ----
// Needs WN, and SPLIT_K where a template has it. Fragments scatter a row over lanes; read back line by line, a warp
// writes whole sectors, VEC_C elements a lane, and ragged edges and the epilogue meet plain rows and columns.
constexpr int STRIP_LD = WN + 8;  // words a row; 8 more, so that rows 0-3, written together, differ in their banks
struct alignas((VEC_C < 4 ? VEC_C : 4) * sizeof(acc_t)) AccVector { acc_t v[VEC_C]; };

// strip is [16][STRIP_LD], its corner is (row, col) of C.
__device__ __forceinline__ void store_strip(const acc_t* strip, int lane_id, int row, int col, int M, int N,
                                            out_t* C, long long ldc, compute_t alpha, compute_t beta,
                                            const out_t* __restrict__ bias_ptr) {
    constexpr int VECTORS = WN / VEC_C;  // in a row of the strip
#pragma unroll 2
    for (int i = lane_id; i < 16 * VECTORS; i += 32) {
        const int r = i / VECTORS, c = i % VECTORS * VEC_C;
        if (row + r >= M || col + c >= N) continue;
        const AccVector acc = *reinterpret_cast<const AccVector*>(strip + r * STRIP_LD + c);
        store_c_vec<VEC_C>(C, ldc, row + r, col + c, alpha, acc.v, beta, bias_ptr);
    }
}
// ---- lib/wmma_load: fragments of nvcuda::wmma from shared memory ----
// mma.h loads bf16 and tf32 through generic pointers, word by word: half the speed of fp16, whose loads the compiler
// turns into ldmatrix. Here the address says .shared (PTX ISA, "wmma.load"); the fragment's 4 registers are those that
// mma.h itself fills.
template <typename Fragment>
__device__ __forceinline__ void load_shared_a(Fragment& to, const in_t* from, unsigned ld) {
    nvcuda::wmma::load_matrix_sync(to, from, ld);
}
template <typename Fragment>
__device__ __forceinline__ void load_shared_b(Fragment& to, const in_t* from, unsigned ld) {
    nvcuda::wmma::load_matrix_sync(to, from, ld);
}
namespace wmma = nvcuda::wmma;
using OrderA = wmma::row_major;
using OrderB = wmma::row_major;
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, MMA_K, in_t, OrderA>;
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, MMA_K, in_t, OrderB>;
using FragmentC = wmma::fragment<wmma::accumulator, 16, 16, MMA_K, float>;
// A is [BM][BK + PAD], B is [BK][BN + PAD].
// Fragments begin at multiples of 16 lines (8 of k in tf32) and of 32 bytes in a line: wmma wants that alignment.
constexpr int LD_A = BK + PAD;
constexpr int LD_B = BN + PAD;
constexpr int FRAGS_M = WM / 16;
constexpr int FRAGS_N = WN / 16;

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
gemm_wmma(int M, int N, int K, int batch, compute_t alpha, const in_t* __restrict__ A, long long lda, long long stride_a, const in_t* __restrict__ B, long long ldb, long long stride_b, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c) {
    extern __shared__ __align__(128) unsigned char smem[];  // [DEPTH][STAGE_BYTES]; at the end a strip a warp

    // ---- 1. which tile ----
    const int lane_id = threadIdx.x % 32;
    const int warp_id = threadIdx.x / 32;                // [0, THREADS / 32)
    const int warp_row = warp_id / (BN / WN) * WM;       // in the block's tile
    const int warp_col = warp_id % (BN / WN) * WN;
    const BlockTile tile = block_in_groups((M + BM - 1) / BM, (N + BN - 1) / BN, GROUP_M);
    const int block_row = tile.row * BM;
    const int block_col = tile.col * BN;
    OperandTiles operands(A + blockIdx.z * stride_a, lda, B + blockIdx.z * stride_b, ldb, block_row, block_col, 0,
                          M, N, K, threadIdx.x);
    C += blockIdx.z * stride_c;

    // ---- 2. the first tile: global -> registers -> shared; the second sets out ----
    const int k_tiles = (K + BK - 1) / BK;
    operands.load(threadIdx.x);  // past K it reads nothing and gives zeros
    operands.store(smem, threadIdx.x);
    operands.load(threadIdx.x);
    __syncthreads();  // the first tile is whole

    FragmentC acc[FRAGS_M][FRAGS_N];
#pragma unroll
    for (int i = 0; i < FRAGS_M * FRAGS_N; ++i) wmma::fill_fragment(acc[i / FRAGS_N][i % FRAGS_N], 0.0f);

    unsigned stage = 0;  // the one that is read, [0, DEPTH)
    auto advance = [&]() {
        operands.store(smem + (stage + 1) % DEPTH * STAGE_BYTES, threadIdx.x);
        operands.load(threadIdx.x);
    };
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
        // ---- 3. the next tile: registers -> shared; at once the one after it: global -> registers ----
        // The registers are never idle: a fetch has the time of a whole tile until it is stored.
        if constexpr (DEPTH > 1) advance();

        // ---- 4. multiply ----
        const in_t* smem_a = reinterpret_cast<const in_t*>(smem + stage * STAGE_BYTES);
        const in_t* smem_b = reinterpret_cast<const in_t*>(smem + stage * STAGE_BYTES + TILE_BYTES_A);
#pragma unroll (DEPTH > 1 ? BK / MMA_K : 1)
        for (int k_inner = 0; k_inner < BK; k_inner += MMA_K) {
            FragmentA frag_a[FRAGS_M];
            FragmentB frag_b[FRAGS_N];
#pragma unroll
            for (int i = 0; i < FRAGS_M; ++i) {
                const int row = warp_row + i * 16;
                const int at = row * LD_A + k_inner;
                load_shared_a(frag_a[i], smem_a + at, LD_A);
            }
#pragma unroll
            for (int j = 0; j < FRAGS_N; ++j) {
                const int col = warp_col + j * 16;
                const int at = k_inner * LD_B + col;
                load_shared_b(frag_b[j], smem_b + at, LD_B);
            }
#pragma unroll
            for (int i = 0; i < FRAGS_M; ++i) {
#pragma unroll
                for (int j = 0; j < FRAGS_N; ++j) wmma::mma_sync(acc[i][j], frag_a[i], frag_b[j], acc[i][j]);
            }
        }

        // ---- 5. on to the next stage ----
        if constexpr (DEPTH == 1) {
            __syncthreads();  // nobody reads the only stage any more
            advance();
        }
        stage = (stage + 1) % DEPTH;
        __syncthreads();  // the next tile is whole; and nobody reads the stage before it
    }

    // ---- 6. store: wmma knows no ragged edge, so 16 rows of the warp at a time go through shared memory ----
    float* strip = reinterpret_cast<float*>(smem) + warp_id * 16 * STRIP_LD;
#pragma unroll
    for (int i = 0; i < FRAGS_M; ++i) {
#pragma unroll
        for (int j = 0; j < FRAGS_N; ++j) {
            wmma::store_matrix_sync(strip + j * 16, acc[i][j], STRIP_LD, wmma::mem_row_major);
        }
        __syncwarp();  // the strip is whole
        const int row = block_row + warp_row + i * 16, col = block_col + warp_col;
        store_strip(strip, lane_id, row, col, M, N, C, ldc, alpha, beta, nullptr);
        __syncwarp();  // and free again
    }
}
