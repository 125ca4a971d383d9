// mma: fp16 -> fp16, layout nn
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
constexpr int STAGES = 2;
constexpr int L2_FETCH = 256;
constexpr int GROUP_M = 8;
constexpr int MIN_BLOCKS = 1;
constexpr int THREADS = 256;
constexpr int WORKERS = 256;
constexpr int PARTS = 1;
constexpr int VEC_A = 8;
constexpr int VEC_B = 8;
constexpr int VEC_C = 8;
// RASTER = grouped

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
// ---- lib/mma: warp-level matrix instructions of sm_80; 32 lanes act as one ----
// Lane l has group = l / 4 in [0, 8) and quad = l % 4. Whatever the type, one step takes 32 bytes of K:
//   A 16 x 32 B, 4 registers: (row group, chunk 0), (row group + 8, chunk 0), then both of chunk 1;
//   B 32 B x 8,  2 registers: (column group, chunk 0), (column group, chunk 1);
//   a register holds bytes [4 * quad, 4 * quad + 4) of a 16-byte chunk along K;
//   C 16 x 8, 4 registers: (row group, columns 2 * quad and 2 * quad + 1), then row group + 8.

// ldmatrix.sync.aligned.m8n8.x4.shared.b16 (PTX ISA, "Warp-level matrix load instruction: ldmatrix"):
// four 8 x 16-byte matrices; lanes 8i..8i+7 give the rows of matrix i, register i receives it.
__device__ __forceinline__ void ldmatrix_x4(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(address) : "memory");
}

// The same with each matrix transposed in units of 16 bits.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3,
                                                  unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(address) : "memory");
}

// PTX ISA, "Matrix multiply-accumulate: mma": D = A * B + C in place, A row-major, B column-major.
__device__ __forceinline__ void mma_sync(acc_t (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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
constexpr int PAD_BYTES = 0;
template <int LINE_BYTES, Swizzle KIND = Swizzle::LINES>
__device__ __forceinline__ unsigned swizzled_offset(unsigned line, unsigned chunk) {
    constexpr unsigned CHUNKS = LINE_BYTES < 128 ? LINE_BYTES / 16 : 8;  // that take part in the XOR
    const unsigned mask = KIND == Swizzle::QUARTET                 ? line % 4 * 2
                          : KIND == Swizzle::LINES                 ? line / (8 / CHUNKS) % CHUNKS
                          : CHUNKS == 8                            ? line % 2 + line / 4 % 4 * 2
                                                                   : line / 4 % CHUNKS;
    return line * LINE_BYTES + (chunk ^ mask) * 16;
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
    asm("ld.global.L2::256B.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}
__device__ __forceinline__ void load_global(unsigned (&to)[2], const in_t* from) {
    asm("ld.global.L2::256B.v2.b32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
}
__device__ __forceinline__ void load_global(unsigned (&to)[1], const in_t* from) {
    asm("ld.global.L2::256B.b32 %0, [%1];" : "=r"(to[0]) : "l"(from));
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
// ---- lib/warp_fragments: from swizzled shared memory to registers, and the products of one step of K ----
// Needs BM BN BK WM WN of the template. A tile in shared memory is [lines][LINE_BYTES]:
//   A is [BM][BK], k along the line;
//   B is [BK][BN], n along the line.
constexpr int LINE_BYTES_A = (BK) * sizeof(in_t);
constexpr int LINE_BYTES_B = (BN) * sizeof(in_t);
// Where k does not lie along the line, a lane gets neighbours of a line that belong to several fragments. They
// keep them: fragments j to j + GROUP_B - 1 share 8 * GROUP_B columns, column c of number e being GROUP_B * c + e
// of these; and in A row r is 2 * r of 16, row r + 8 is 2 * r + 1 (SPREAD_A). fragments_to_strip sets it right.
constexpr int K_STEP = 32 / sizeof(in_t);  // elements of K in one mma
constexpr int K_STEPS = BK / K_STEP;
constexpr int FRAGS_M = WM / 16;
constexpr int FRAGS_N = WN / 8;
constexpr bool FREE_A = (WM & (WM - 1)) == 0;  // a warp's rows (columns) begin where those bits of the index are 0
constexpr bool FREE_B = (WN & (WN - 1)) == 0;
constexpr bool SPREAD_A = false;
constexpr int GROUP_B = 1;

struct Fragments {
    unsigned a[FRAGS_M][4];
    unsigned b[FRAGS_N][2];
};

// Where in a tile a lane of the warp tile at (row, col) of the block tile reads: the offsets of its chunks of the first
// fragments, that is all ldmatrix needs, and the parts they are made of.
struct Lane {
    int row, col, lane_id;
    unsigned a, b;
};
__device__ __forceinline__ Lane lane_of(int row, int col, int lane_id) {
    Lane at = {row, col, lane_id, 0, 0};
    at.a = swizzled_offset<LINE_BYTES_A>(row + lane_id % 16, lane_id / 16);
    at.b = swizzled_offset<LINE_BYTES_B>(lane_id % 16, col / 8 + lane_id / 16);
    asm volatile("" : "+r"(at.a), "+r"(at.b));  // two registers, not the parts of the sums, live through the loop
    return at;
}

// From the address of a 16-byte chunk to that of the chunk `chunks` further on in its line, where the bits of `chunks`
// are free in its index: swizzled or not, an XOR within 128 bytes and a sum beyond. So a lane keeps one address.
__device__ __forceinline__ unsigned chunks_on(unsigned at, int chunks) {
    return (at ^ chunks % 8 * 16) + chunks / 8 * 128;
}

// Row i of A's fragments of step k_step in [0, K_STEPS); smem_a is the shared-memory address of the tile.
__device__ __forceinline__ void load_fragment_a(unsigned (&a)[4], unsigned smem_a, const Lane& lane, int i,
                                                int k_step) {
    [[maybe_unused]] const int row = lane.row + i * 16, lane_id = lane.lane_id;
    // matrices: rows 0-7 and 8-15 of chunk 0, then of chunk 1
    ldmatrix_x4(a[0], a[1], a[2], a[3], chunks_on(smem_a + lane.a, k_step * 2) + i * 16 * LINE_BYTES_A);
}

// LOAD_B of B's fragments at once, from j on, a multiple of LOAD_B in [0, FRAGS_N).
constexpr int LOAD_B = 2;
__device__ __forceinline__ void load_fragments_b(Fragments& frag, unsigned smem_b, const Lane& lane, int j,
                                                 int k_step) {
    [[maybe_unused]] const int col = lane.col + j * 8, lane_id = lane.lane_id;
    // matrices as stored, 8 k x 8 n: k 0-7 and 8-15 of the first n chunk, then of the second; transposed
    const unsigned at = FREE_B ? chunks_on(smem_b + lane.b, j)
                               : smem_b + swizzled_offset<LINE_BYTES_B>(lane_id % 16, col / 8 + lane_id / 16);
    ldmatrix_x4_trans(frag.b[j][0], frag.b[j][1], frag.b[j + 1][0], frag.b[j + 1][1],
                      at + k_step * K_STEP * LINE_BYTES_B);
}

// All fragments of a step; smem_a and smem_b are the shared-memory addresses of a stage's tiles.
__device__ __forceinline__ void load_fragments(Fragments& frag, unsigned smem_a, unsigned smem_b, const Lane& lane,
                                               int k_step) {
#pragma unroll
    for (int i = 0; i < FRAGS_M; ++i) load_fragment_a(frag.a[i], smem_a, lane, i, k_step);
#pragma unroll
    for (int j = 0; j < FRAGS_N; j += LOAD_B) load_fragments_b(frag, smem_b, lane, j, k_step);
}

// acc += A * B for one step. Every second row of fragments goes backwards: its first product reuses the last B.
__device__ __forceinline__ void multiply(acc_t (&acc)[FRAGS_M][FRAGS_N][4], const Fragments& frag) {
#pragma unroll
    for (int i = 0; i < FRAGS_M; ++i) {
#pragma unroll
        for (int step = 0; step < FRAGS_N; ++step) {
            const int j = i % 2 ? FRAGS_N - 1 - step : step;
            mma_sync(acc[i][j], frag.a[i], frag.b[j]);
        }
    }
}

// The same, and each fragment makes room for its successor of step `next` as soon as its last product is under way:
// first the upper half of the rows, then the lower half column by column. `next_stage` comes between the halves and
// gives the address of the stage to load from. So loads run behind products, and no register is taken twice.
template <class NextStage>
__device__ __forceinline__ void multiply_in_turn(acc_t (&acc)[FRAGS_M][FRAGS_N][4], Fragments& frag, const Lane& lane,
                                                 int next, NextStage next_stage) {
    constexpr int HALF = FRAGS_M / 2;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
#pragma unroll
        for (int j = 0; j < FRAGS_N; ++j) mma_sync(acc[i][j], frag.a[i], frag.b[j]);
    }
    const unsigned smem_a = next_stage();
#pragma unroll
    for (int j = 0; j < FRAGS_N; j += LOAD_B) {
#pragma unroll
        for (int e = 0; e < LOAD_B; ++e) {
#pragma unroll
            for (int i = HALF; i < FRAGS_M; ++i) mma_sync(acc[i][j + e], frag.a[i], frag.b[j + e]);
        }
        load_fragments_b(frag, smem_a + TILE_BYTES_A, lane, j, next);
#pragma unroll
        for (int i = 0; j == 0 && i < HALF; ++i) load_fragment_a(frag.a[i], smem_a, lane, i, next);
    }
#pragma unroll
    for (int i = HALF; i < FRAGS_M; ++i) load_fragment_a(frag.a[i], smem_a, lane, i, next);
}

// Writes a row of fragments, 16 x WN, into the warp's strip [16][STRIP_LD] of lib/strip_store.
__device__ __forceinline__ void fragments_to_strip(acc_t* strip, const acc_t (&acc)[FRAGS_N][4], int lane_id) {
    struct alignas(GROUP_B == 1 ? 8 : 16) Run { acc_t v[2 * GROUP_B]; };  // neighbours in a row
    acc_t* at = strip + lane_id / 4 * (SPREAD_A ? 2 : 1) * STRIP_LD + lane_id % 4 * 2 * GROUP_B;
#pragma unroll
    for (int j = 0; j < FRAGS_N; j += GROUP_B) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            Run run;
#pragma unroll
            for (int e = 0; e < 2 * GROUP_B; ++e) run.v[e] = acc[j + e % GROUP_B][2 * h + e / GROUP_B];
            *reinterpret_cast<Run*>(at + h * (SPREAD_A ? 1 : 8) * STRIP_LD + j * 8) = run;
        }
    }
}
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
mma(int M, int N, int K, int batch, compute_t alpha, const in_t* __restrict__ A, long long lda, long long stride_a, const in_t* __restrict__ B, long long ldb, long long stride_b, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c) {
    extern __shared__ __align__(128) unsigned char smem[];  // [STAGES][STAGE_BYTES]; at the end a strip a warp

    // ---- 1. which tile ----
    const int lane_id = threadIdx.x % 32;
    const int warp_id = threadIdx.x / 32;                // [0, THREADS / 32)
    const int warp_row = warp_id / (BN / WN) * WM;       // in the block's tile
    const int warp_col = warp_id % (BN / WN) * WN;
    const Lane lane = lane_of(warp_row, warp_col, lane_id);
    const BlockTile tile = block_in_groups((M + BM - 1) / BM, (N + BN - 1) / BN, GROUP_M);
    __shared__ BlockTile kept;  // for the store: the loop has no register left for it
    if (threadIdx.x == 0) kept = tile;
    OperandTiles operands(A + blockIdx.z * stride_a, lda, B + blockIdx.z * stride_b, ldb, tile.row * BM, tile.col * BN,
                          0, M, N, K, threadIdx.x);

    // ---- 2. the first tile: global -> registers -> shared; the second sets out ----
    operands.load(threadIdx.x);  // past K it reads nothing and gives zeros
    operands.store(smem, threadIdx.x);
    operands.load(threadIdx.x);
    __syncthreads();  // the first tile is whole

    acc_t acc[FRAGS_M][FRAGS_N][4] = {};
    Fragments frag;
    constexpr unsigned OTHER = (STAGES - 1) * STAGE_BYTES;
    unsigned stage = 0;  // where the one that is read begins: 0 or OTHER
    const unsigned smem_base = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    load_fragments(frag, smem_base, smem_base + TILE_BYTES_A, lane, 0);
    for (int k_tiles = (K + BK - 1) / BK; k_tiles > 0; --k_tiles) {  // that are left
        // ---- 3. the next tile: registers -> shared; behind it the one after it: global -> registers ----
        // The registers are never idle: a fetch has the time of a whole tile until it is stored.
        auto advance = [&](int part, int parts) {
            operands.store(smem + (OTHER - stage), threadIdx.x, part, parts);
            operands.load(threadIdx.x, part, parts);
        };
        auto next_stage = [&]() {
            if constexpr (STAGES == 1) {
                __syncthreads();  // nobody reads the only stage any more
                advance(0, 1);
            }
            stage = OTHER - stage;
            __syncthreads();  // the next tile is whole; and nobody reads the stage before it
        };

        // ---- 4. multiply ----
#pragma unroll
        for (int k_step = 0; k_step < K_STEPS; ++k_step) {
            if (STAGES > 1 && k_step < PARTS) advance(k_step, PARTS);
            const int next = (k_step + 1) % K_STEPS;
            multiply_in_turn(acc, frag, lane, next, [&]() {
                if (next == 0) next_stage();
                return smem_base + stage;
            });
        }
    }

    // ---- 5. store: 16 rows of the warp at a time, through its own strip of shared memory ----
    __syncthreads();  // nobody reads a stage any more
    acc_t* strip = reinterpret_cast<acc_t*>(smem) + warp_id * 16 * STRIP_LD;
#pragma unroll
    for (int i = 0; i < FRAGS_M; ++i) {
        fragments_to_strip(strip, acc[i], lane_id);
        __syncwarp();  // the strip is whole
        const int row = kept.row * BM + warp_row + i * 16, col = kept.col * BN + warp_col;
        store_strip(strip, lane_id, row, col, M, N, C + blockIdx.z * stride_c, ldc, alpha, beta, nullptr);
        __syncwarp();  // and free again
    }
}
