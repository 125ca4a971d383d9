// fp32x3: fp32x3 -> fp32, layout nt
using in_t = float;
using acc_t = float;
using out_t = float;
using compute_t = float;
struct alignas(64) TensorMap { unsigned char opaque[128]; };  // CUtensorMap
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int BK = 32;
constexpr int PROMOTE = 32;
constexpr int CONVERTERS = 2;
constexpr int CLUSTER_M = 1;
constexpr int GROUP_M = 8;
constexpr bool K_MAJOR_LEFT = true;
constexpr int CONSUMERS = 2;
constexpr int THREADS = 384;
constexpr int INTERVAL = 1;
constexpr int UNROLL_K = 2;
constexpr int PRODUCER_REGS = 40;
constexpr int CONSUMER_REGS = 232;
constexpr int WGMMA_N = 128;
constexpr int SWIZZLE_BYTES = 128;
constexpr int SWIZZLE_MODE = 1;
constexpr int LEFT_BYTES = 16384;
constexpr int RIGHT_BYTES = 16384;
constexpr int STAGE_BYTES = 49152;
constexpr bool STORE_BULK = true;
constexpr int STORE_COLS = 32;
constexpr int ROW_BYTES = 160;
constexpr int STAGING_BYTES = 2560;
constexpr int DEPTH = 4;
constexpr int STAGING_AT = 196608;
constexpr int BARRIERS_AT = 217088;
constexpr int VEC_C = 4;
// RASTER = grouped
// EPILOGUE_STORE = tma

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
// ---- lib/hopper: mbarriers, proxies, register budgets, clusters (sm_90a). ISA = PTX ISA 8.x, section ----
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// Address in the shared window of this block, as the asynchronous instructions want it.
__device__ __forceinline__ u32 smem_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }

// True in exactly one lane of a converged warp. ISA 9.7.13 elect.sync
__device__ __forceinline__ bool elect_one() {
    u32 chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen != 0;
}

// ---- mbarrier: a phase ends when `count` arrivals and all announced bytes are in. ISA 9.7.13.15 ----
__device__ __forceinline__ void mbarrier_init(u32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Makes the initialised barriers visible to the other blocks of the cluster and to the copy engine.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
// Arrives, and announces bytes that the copy engine will deliver before the phase ends.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}
// Arrives on the barrier at the same place in block `rank` of the cluster. ISA mapa, 9.7.9.22
// The default scope, the block, is meant: it publishes no ordinary writes, and a cluster's release would cost a
// fence to memory in every step.
__device__ __forceinline__ void mbarrier_arrive_remote(u32 barrier, u32 rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}
// Waits until the phase of that parity (0, 1, 0, ...) has ended. On a fresh barrier, parity 1 passes at once.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra READY;\nbra WAIT;\nREADY:\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// Ordinary writes to shared memory before it are seen by the copy engine and wgmma after it. ISA membar/fence
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- registers: the whole warpgroup gives back or asks for. ISA 9.7.19.5 setmaxnreg ----
template <int COUNT>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- clusters: blocks on one GPC that reach each other's shared memory. ISA 9.7.13.4 barrier.cluster ----
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// Every thread of every block of the cluster; what was written before is seen after.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// ---- lib/hopper_tma: the tensor memory accelerator. Reads BM BN BK SWIZZLE_BYTES ----
// A tensor map is three-dimensional: contiguous extent, rows, batch; what lies outside reads as zero.

__device__ __forceinline__ void tma_prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the map's box at (inner, outer, batch) to shared memory and counts its bytes on `full`.
// ISA 9.7.9.27 cp.async.bulk.tensor
__device__ __forceinline__ void tma_load(u32 smem, const TensorMap& map, u32 full, int inner, int outer, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            smem),
        "l"(&map), "r"(full), "r"(inner), "r"(outer), "r"(batch)
        : "memory");
}
// The same to the same place in every block of `mask`; each counts the bytes on its own barrier.
__device__ __forceinline__ void tma_load_multicast(u32 smem, const TensorMap& map, u32 full, int inner, int outer,
                                                   int batch, u16 mask) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem),
        "l"(&map), "r"(full), "r"(inner), "r"(outer), "r"(batch), "h"(mask)
        : "memory");
}

// Loads a tile of ROWS rows (of A, or columns of B) by BK, as chunks of SWIZZLE_BYTES in the contiguous axis:
//   K-major:  [BK / chunk][ROWS][chunk of k]     MN-major: [ROWS / chunk][BK][chunk of rows]
// With SHARE > 1 blocks this one loads part `slice` of it and sends it to all of `mask`.
template <bool K_MAJOR, int ROWS, int SHARE>
__device__ __forceinline__ void tma_load_tile(u32 smem, const TensorMap& map, u32 full, int row, int k, int batch,
                                              int slice, u16 mask) {
    constexpr int CHUNK = SWIZZLE_BYTES / int(sizeof(in_t));
    constexpr int BOX_ROWS = ROWS / SHARE;
    if constexpr (SHARE == 1) slice = 0;
    constexpr int COPIES = K_MAJOR ? BK / CHUNK : ROWS / CHUNK / SHARE;
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        const int chunk = K_MAJOR ? i : slice * COPIES + i;
        const int first = K_MAJOR ? slice * BOX_ROWS : 0;
        const u32 to = smem + (chunk * (K_MAJOR ? ROWS : BK) + first) * SWIZZLE_BYTES;
        const int inner = (K_MAJOR ? k : row) + chunk * CHUNK;
        const int outer = K_MAJOR ? row + first : k;
        if constexpr (SHARE > 1) tma_load_multicast(to, map, full, inner, outer, batch, mask);
        else tma_load(to, map, full, inner, outer, batch);
    }
}

// ---- stores: bytes of shared memory to global memory, both 16-byte aligned. ISA 9.7.9.25 cp.async.bulk ----
__device__ __forceinline__ void bulk_store(void* global, u32 smem, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
                 "r"(smem), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// At most PENDING groups of this thread still read shared memory.
template <int PENDING>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
// All groups of this thread are written.
__device__ __forceinline__ void bulk_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// ---- lib/hopper_wgmma: warpgroup matrix multiply. ISA 9.7.15. Reads WGMMA_N BK SWIZZLE_BYTES SWIZZLE_MODE ----
// One instruction multiplies 64 rows of A by WGMMA_N columns of B over 32 bytes of K, both in shared memory.
// D is fp32 in registers: thread t of the warpgroup holds, in d[4 * j + 0..3], rows 16 * (t / 32) + t % 32 / 4
// and that + 8, columns 8 * j + 2 * (t % 4) + 0..1.

// A matrix descriptor (ISA 9.7.15.5.1): bits 0-13 address, 16-29 leading offset, 32-45 stride offset, all in units
// of 16 bytes; 62-63 swizzle (1: 128B, 2: 64B, 3: 32B, 0: none). Atoms are 8 rows of SWIZZLE_BYTES.
//   K-major,  swizzled: stride = from 8 rows to the next 8;              leading is not read
//   K-major,  none:     stride = likewise, leading = from 16 bytes of K to the next 16
//   MN-major, swizzled: stride = from 8 k to the next 8, leading = from one chunk of rows to the next
//   MN-major, none:     the two exchanged
template <bool K_MAJOR, int ROWS>
struct Descriptor {
    static constexpr bool NONE = SWIZZLE_MODE == 0;
    static constexpr u32 ATOM = 8 * SWIZZLE_BYTES;
    static constexpr u32 CHUNK = (K_MAJOR ? ROWS : BK) * SWIZZLE_BYTES;  // from one chunk to the next
    static constexpr u32 LEADING = !K_MAJOR && NONE ? ATOM : CHUNK;
    static constexpr u32 STRIDE = !K_MAJOR && NONE ? CHUNK : ATOM;
    static constexpr u64 UPPER = u64(SWIZZLE_MODE) << 62 | u64(STRIDE / 16) << 32;

    // The operand of step `k_step` (32 bytes of K), from `row` on, of the tile at `smem`. Above bit 17 an address
    // holds the block's rank in its cluster, which a descriptor must not: the bits of the leading offset lie there.
    static __device__ __forceinline__ u64 at(u32 smem, int row, int k_step) {
        const u32 offset = K_MAJOR
            ? row * SWIZZLE_BYTES + k_step * 32 / SWIZZLE_BYTES * CHUNK + k_step * 32 % SWIZZLE_BYTES
            : row * int(sizeof(in_t)) * BK + k_step * 8 * SWIZZLE_BYTES;
        return UPPER | ((smem & 0x3ffff) / 16 + (LEADING / 16 << 16) + offset / 16);
    }
};

// Orders this warpgroup's accesses to registers before the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// At most PENDING groups are still running; their accumulators and operands must not be touched.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// No code that reads d moves above it: to the compiler d is ready once wgmma is issued, in truth after the wait.
template <int COUNT>
__device__ __forceinline__ void wgmma_results(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d = a * b + (accumulate ? d : 0)
__device__ __forceinline__ void wgmma(float (&d)[64], u64 a, u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(accumulate));
}
// ---- lib/hopper_store: 64 rows of wgmma accumulators to C. Reads BN STORE_COLS STORE_BULK ROW_BYTES ----
// Every warp stores its own 16 rows: thread t holds in acc[4 * j + 0..3] rows t / 4 and t / 4 + 8 of them, columns
// 8 * j + 2 * (t % 4) + 0..1.

struct alignas(2 * sizeof(out_t)) OutPair {
    out_t lo, hi;
};

// Two neighbours of a row, through lib/epilogue. READS_C is false when beta is 0: then C is never read.
template <bool READS_C>
__device__ __forceinline__ OutPair out_pair(float acc0, float acc1, const out_t* C, long long ldc, int row, int col,
                                            int M, int N, float alpha, float beta, const out_t* bias_ptr) {
    if constexpr (!READS_C) {
        return {alpha * acc0, alpha * acc1};
    }
    OutPair y = {out_t(0.0f), out_t(0.0f)};
    const out_t* c_ptr = C + (long long)row * ldc + col;
    const float factor = READS_C ? beta : 0.0f;
    if (row < M && col < N) y.lo = epilogue(acc0, c_ptr, row, col, alpha, factor, bias_ptr);
    if (row < M && col + 1 < N) y.hi = epilogue(acc1, c_ptr + 1, row, col + 1, alpha, factor, bias_ptr);
    return y;
}

__device__ __forceinline__ u32 bits(OutPair pair) { return *reinterpret_cast<const u32*>(&pair); }

// Four 8x8 matrices of 16-bit elements; lanes 8 * i .. 8 * i + 7 point at the rows of matrix i. ISA 9.7.14.5.16
__device__ __forceinline__ void stmatrix_x4(u32 smem, u32 r0, u32 r1, u32 r2, u32 r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(r0), "r"(r1),
                 "r"(r2), "r"(r3)
                 : "memory");
}

// Registers -> this warp's `staging`, [16][ROW_BYTES] with STORE_COLS columns a row -> one bulk copy a row. A row is
// padded by 8 elements, so that 8 rows fall into different banks. `issuer` is true in one lane, always the same.
template <bool READS_C>
__device__ __forceinline__ void store_rows(float (&acc)[BN / 2], u32 staging, bool issuer, out_t* C, long long ldc, int row, int col,
                                           int M, int N, float alpha, float beta, const out_t* bias_ptr) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int part = 0; part < BN / STORE_COLS; ++part) {
        if (issuer) bulk_wait_read<0>();  // the copies before have read `staging`
        __syncwarp();
#pragma unroll
        for (int j = 0; j < STORE_COLS / 8; j += 2) {
            u32 r[4];
            OutPair y[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // columns j, j + 1; rows 0-7, 8-15
                const int at = 4 * (part * STORE_COLS / 8 + j) + 2 * i;
                y[i] = out_pair<READS_C>(acc[at], acc[at + 1], C, ldc, row + lane / 4 + i % 2 * 8,
                                         col + part * STORE_COLS + 8 * (j + i / 2) + lane % 4 * 2, M, N, alpha, beta, bias_ptr);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u32 to = staging + (lane / 4 + i % 2 * 8) * ROW_BYTES + (8 * (j + i / 2) + lane % 4 * 2) * 4;
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(y[i].lo), "f"(y[i].hi) : "memory");
            }
            (void)r;
        }
        fence_proxy_async();  // each lane's writes, for the copy engine
        __syncwarp();
        const int first_col = col + part * STORE_COLS;
        if (issuer) {
            // N and ldc are multiples of 16 bytes, so the end of a row is one too.
            const int bytes = min(STORE_COLS, N - first_col) * int(sizeof(out_t));
            const int rows = bytes > 0 ? min(16, M - row) : 0;
            out_t* to = C + (long long)row * ldc + first_col;
#pragma unroll 4
            for (int r = 0; r < rows; ++r, to += ldc) bulk_store(to, staging + r * ROW_BYTES, bytes);
            bulk_commit();
        }
    }
}
// Registers -> sums, [M][N, up to a multiple of 4], to be added up later.
__device__ __forceinline__ void store_sums(float (&acc)[BN / 2], float* sums, int row, int col, int M, int N) {
    const int lane = threadIdx.x % 32;
    const long long pitch = (N + 3) / 4 * 4;
#pragma unroll
    for (int i = 0; i < BN / 4; ++i) {
        const int r = row + lane / 4 + i % 2 * 8;
        const int c = col + 8 * (i / 2) + lane % 4 * 2;
        if (r < M && c < N) *reinterpret_cast<float2*>(sums + r * pitch + c) = make_float2(acc[2 * i], acc[2 * i + 1]);
    }
}
// ---- lib/tile_order: which tile of C comes when. RASTER is grouped ----
struct Tile {
    int row, col, batch;  // in units of a cluster's tile
};

// Tile `index` of [batch][tiles_m * tiles_n].
__device__ __forceinline__ Tile tile_at(int index, int tiles_m, int tiles_n) {
    const int batch = index / (tiles_m * tiles_n);
    const int place = index % (tiles_m * tiles_n);
    // Bands of GROUP_M tile rows, walked column by column: tiles in flight form a square, so that the L2 cache
    // serves each row of A and column of B to several of them.
    const int first_row = place / (GROUP_M * tiles_n) * GROUP_M;
    const int rows = min(GROUP_M, tiles_m - first_row);
    const int in_band = place % (GROUP_M * tiles_n);
    return {first_row + in_band % rows, in_band / rows, batch};
}
// ---- lib/hopper_split: x = hi + lo in tf32, for wgmma. Reads BM BN BK DEPTH K_MAJOR_LEFT CONSUMERS CONVERTERS ----
// hi is x itself: the tensor core cuts the low 13 bits of its operands off. Only lo must be made.
// The left operand (BM x BK) goes through registers, so any layout will do. The right one (BN x BK) must lie along K in
// shared memory: CONVERTERS warps write its lo, element by element, to a tile of the same swizzled shape.
// The left tile is K-major, [BK / 32][BM][32], or not, [BM / 32][BK][32]; 16-byte pieces of a 128-byte line are
// permuted by the XOR of their number with that of the line, mod 8.
constexpr int K_STEPS = BK / 8;

// A place in the ring: the stage, and the parity of its barriers' phase.
struct Ring {
    int stage = 0;
    u32 phase = 0;
    __device__ __forceinline__ void step() {
        if (++stage == DEPTH) stage = 0, phase ^= 1;
    }
};

__device__ __forceinline__ void init_barriers(u32 full, u32 ready, u32 empty, u32 turn) {
    for (int i = 0; i < DEPTH; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(ready + 8 * i, CONVERTERS);
        mbarrier_init(empty + 8 * i, 4 * CONSUMERS * CLUSTER_M);
    }
    mbarrier_init(turn, 128);
    mbarrier_init(turn + 8, 128);
    fence_mbarrier_init();
}

// A warp tells every block that sent into a stage that it has read it.
__device__ __forceinline__ void release(u32 empty, int lane_id) {
    if (lane_id == 0) mbarrier_arrive(empty);
}

// The part of x that tf32 cuts off, exact in fp32, and half a unit of tf32 more: cut off in its turn it is rounded.
__device__ __forceinline__ u32 low_part(u32 x) {
    const float lo = __uint_as_float(x) - __uint_as_float(x & 0xffffe000u);
    return __float_as_uint(lo) + 0x1000u;
}

struct Piece {
    u32 at[4];
};
__device__ __forceinline__ Piece load_piece(u32 smem) {
    Piece x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "r"(smem) : "memory");
    return x;
}
__device__ __forceinline__ void store_piece(u32 smem, const Piece& x) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(x.at[0]), "r"(x.at[1]), "r"(x.at[2]),
                 "r"(x.at[3])
                 : "memory");
}
__device__ __forceinline__ Piece low_parts(const Piece& x) {
    return {low_part(x.at[0]), low_part(x.at[1]), low_part(x.at[2]), low_part(x.at[3])};
}

// ---- the right operand, by thread `id` of the converters ----
__device__ __forceinline__ void convert(u32 raw, u32 lo, int id) {
    constexpr int BATCH = 4;  // loads in flight
    constexpr int STEP = 16 * 32 * CONVERTERS;
#pragma unroll 1
    for (u32 at = 16 * id; at < BN * BK * 4; at += BATCH * STEP) {
        Piece x[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) x[i] = load_piece(raw + at + i * STEP);
#pragma unroll
        for (int i = 0; i < BATCH; ++i) store_piece(lo + at + i * STEP, low_parts(x[i]));
    }
}

// ---- the left operand: a warp's 16 rows of a stage. ISA 9.7.15.5.1.2, fragment of A for .k8 ----
// Thread t holds, for every step of 8 of K: (row t / 4, k t % 4), row + 8, then both at k + 4.
struct Fragments {
    u32 hi[K_STEPS][4];
    u32 lo[K_STEPS][4];
};

__device__ __forceinline__ void load_fragments(Fragments& to, u32 tile, int row, int lane) {
#pragma unroll
    for (int k_step = 0; k_step < K_STEPS; ++k_step) {
        u32(&x)[4] = to.hi[k_step];
        // ldmatrix, 8 rows of 16 bytes a matrix: lanes 0-15 give the rows at k, lanes 16-31 at k + 4. ISA 9.7.14.5.15
        const u32 line = tile + k_step / 4 * BM * 128 + (row + lane % 16) * 128;
        const u32 from = line + (((k_step % 4 * 2 + lane / 16) ^ lane % 8) * 16);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from) : "memory");
    }
#pragma unroll
    for (int k_step = 0; k_step < K_STEPS; ++k_step)
#pragma unroll
        for (int i = 0; i < 4; ++i) to.lo[k_step][i] = low_part(to.hi[k_step][i]);
}

// d = a * b + (accumulate ? d : 0), 64 rows of a in registers, b in shared memory. ISA 9.7.15.5 wgmma.mma_async
__device__ __forceinline__ void wgmma_registers(float (&d)[64], const u32 (&a)[4], u64 b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

// acc = (fresh ? 0 : acc) + the three products of a stage, as two groups. The small ones come first: what is added to
// a small sum loses little to the tensor core, which truncates.
__device__ __forceinline__ void multiply_split(float (&acc)[BN / 2], const Fragments& left, u32 hi, u32 lo, bool fresh) {
    using Right = Descriptor<true, BN>;
    wgmma_fence();
#pragma unroll
    for (int k_step = 0; k_step < K_STEPS; ++k_step) {
        wgmma_registers(acc, left.hi[k_step], Right::at(lo, 0, k_step), k_step > 0 || !fresh);
        wgmma_registers(acc, left.lo[k_step], Right::at(hi, 0, k_step), 1);
    }
    wgmma_commit();
#pragma unroll
    for (int k_step = 0; k_step < K_STEPS; ++k_step) wgmma_registers(acc, left.hi[k_step], Right::at(hi, 0, k_step), 1);
    wgmma_commit();
}

// C = the transpose of 64 rows by BN columns of accumulators: a warp writes 8 neighbours of a row at a time.
__device__ __forceinline__ void store_transposed(const float (&acc)[BN / 2], out_t* C, long long ldc, int row, int col, int M, int N,
                                                 float alpha, float beta, const out_t* bias_ptr) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) {
        const int c_row = row + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int c_col = col + lane / 4 + i / 2 % 2 * 8;
        if (c_row < M && c_col < N) store_c(C, ldc, c_row, c_col, alpha, acc[i], beta, bias_ptr);
    }
}

// ---- before the products, only in tn: B [K][N] -> [N][K], every matrix, on z. One that all share is copied once ----
extern "C" __global__ void __launch_bounds__(256) fp32x3_transpose(int K, int N, const in_t* __restrict__ B, long long ldb, long long stride_b, unsigned char* __restrict__ workspace) {
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) fp32x3(int M, int N, int K, int batch, compute_t alpha, const __grid_constant__ TensorMap tma_a, long long stride_a, const __grid_constant__ TensorMap tma_b, long long stride_b, compute_t beta, out_t* __restrict__ C, long long ldc, long long stride_c) {
    // [DEPTH][left: BM x BK | right: BN x BK | its lo], then [warp of the consumers][16][ROW_BYTES] of C, then the barriers
    extern __shared__ __align__(1024) unsigned char smem[];

    // ---- 1. roles and barriers ----
    const int warp_id = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    const int lane_id = threadIdx.x % 32;
    const u32 stages = smem_address(smem);
    const u32 full = stages + BARRIERS_AT;  // [DEPTH]: the bytes of a stage have come -> consumers, converters
    const u32 ready = full + 8 * DEPTH;     // [DEPTH]: the low parts are written -> consumers
    const u32 empty = ready + 8 * DEPTH;    // [DEPTH]: every reader of a stage is done -> its senders
    const u32 turn = empty + 8 * DEPTH;     // [2]: consumer 0 or 1 may go on
    const int rank = 0;  // [0, CLUSTER_M)

    if (threadIdx.x == 0) {
        tma_prefetch_map(tma_a);
        tma_prefetch_map(tma_b);
        init_barriers(full, ready, empty, turn);
    }
    __syncthreads();  // the barriers are ready, everywhere

    // ---- 2. the tiles of this block: the same number for all blocks of a cluster, past the edge too ----
    const int tiles_m = (M + BM * CLUSTER_M - 1) / (BM * CLUSTER_M);
    const int tiles_n = (N + BN - 1) / BN;
    const int tile_count = batch * tiles_m * tiles_n;
    const int first_tile = blockIdx.x / CLUSTER_M;
    const int tile_step = gridDim.x / CLUSTER_M;
    const int k_tiles = (K + BK - 1) / BK;
    Ring ring;

    if (warp_id < 4) {
        setmaxnreg_dec<PRODUCER_REGS>();
        if (warp_id == 0 && elect_one()) {
            // ---- 3. global -> shared: one thread asks, the copy engine does ----
            for (int index = first_tile; index < tile_count; index += tile_step) {
                const Tile tile = tile_at(index, tiles_m, tiles_n);
                const int row = (tile.row * CLUSTER_M + rank) * BM;
                const int left_batch = stride_a == 0 ? 0 : tile.batch;
                const int right_batch = stride_b == 0 ? 0 : tile.batch;
#pragma unroll 1
                for (int k_tile = 0; k_tile < k_tiles; ++k_tile, ring.step()) {
                    const u32 to = stages + ring.stage * STAGE_BYTES;
                    const u32 arrived = full + 8 * ring.stage;
                    mbarrier_wait(empty + 8 * ring.stage, ring.phase ^ 1);
                    mbarrier_arrive_expect_tx(arrived, LEFT_BYTES + RIGHT_BYTES);
                    tma_load_tile<K_MAJOR_LEFT, BM, 1>(to, tma_a, arrived, row, k_tile * BK, left_batch, 0, 0);
                    tma_load_tile<true, BN, CLUSTER_M>(to + LEFT_BYTES, tma_b, arrived, tile.col * BN,
                                                                k_tile * BK, right_batch, rank, (1 << CLUSTER_M) - 1);
                }
            }
        } else if (warp_id > 0 && warp_id <= CONVERTERS) {
            // ---- 4. the low parts of the right operand ----
            for (int index = first_tile; index < tile_count; index += tile_step)
#pragma unroll 1
                for (int k_tile = 0; k_tile < k_tiles; ++k_tile, ring.step()) {
                    const u32 raw = stages + ring.stage * STAGE_BYTES + LEFT_BYTES;
                    mbarrier_wait(full + 8 * ring.stage, ring.phase);
                    convert(raw, raw + RIGHT_BYTES, threadIdx.x - 32);
                    fence_proxy_async();  // each lane's writes, for the tensor cores
                    __syncwarp();
                    if (lane_id == 0) mbarrier_arrive(ready + 8 * ring.stage);
                }
        }
    } else {
        setmaxnreg_inc<CONSUMER_REGS>();
        const int consumer = warp_id / 4 - 1;  // [0, CONSUMERS)
        const int warp_row = consumer * 64 + warp_id % 4 * 16;
        const u32 staging = stages + STAGING_AT + (warp_id - 4) * STAGING_BYTES;
        const bool issuer = elect_one();
        
        for (int index = first_tile; index < tile_count; index += tile_step) {
            const Tile tile = tile_at(index, tiles_m, tiles_n);
            float acc[BN / 2];  // the tensor cores' sums over PROMOTE of K
            float sum[BN / 2];
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) sum[i] = 0.0f;

            // ---- 5. multiply ----
            const auto load_left = [&](Fragments& left) {
                mbarrier_wait(full + 8 * ring.stage, ring.phase);
                load_fragments(left, stages + ring.stage * STAGE_BYTES, warp_row, lane_id);
            };
            // One stage; the fragments of the next are loaded meanwhile. `fresh` begins a sum, `add` ends it.
            const auto step = [&](const Fragments& left, Fragments& next, int k_tile, bool fresh, bool add) {
                const int stage = ring.stage;
                const u32 right = stages + stage * STAGE_BYTES + LEFT_BYTES;
                mbarrier_wait(ready + 8 * stage, ring.phase);
                multiply_split(acc, left, right, right + RIGHT_BYTES, fresh);
                if (!fresh) {
                    wgmma_wait<2>();  // the stage before is done, and with it the fragments `next`
                    release(empty + 8 * ((stage + DEPTH - 1) % DEPTH), lane_id);
                }
                ring.step();
                if (k_tile + 1 < k_tiles) load_left(next);
                if (add) {
                    wgmma_wait<0>();
                    release(empty + 8 * stage, lane_id);
                    wgmma_results(acc);
#pragma unroll
                    for (int i = 0; i < BN / 2; ++i) sum[i] += acc[i];
                }
            };
            Fragments frag[2];
            if (k_tiles > 0) load_left(frag[0]);
            int k_tile = 0;
#pragma unroll 1
            for (; k_tile + UNROLL_K <= k_tiles; k_tile += UNROLL_K)
#pragma unroll
                for (int i = 0; i < UNROLL_K; ++i)  // which set is which stays constant
                    step(frag[i % 2], frag[(i + 1) % 2], k_tile + i, i % INTERVAL == 0, (i + 1) % INTERVAL == 0);
#pragma unroll
            for (int i = 0; i < UNROLL_K - 1; ++i)  // what is left
                if (k_tile + i < k_tiles) step(frag[i % 2], frag[(i + 1) % 2], k_tile + i, true, true);

            // ---- 6. store ----
            const int row = (tile.row * CLUSTER_M + rank) * BM + warp_row;
            const int col = tile.col * BN;
            out_t* c = C + tile.batch * stride_c;
            if (beta == 0.0f) store_rows<false>(sum, staging, issuer, c, ldc, row, col, M, N, alpha, beta, nullptr);
            else store_rows<true>(sum, staging, issuer, c, ldc, row, col, M, N, alpha, beta, nullptr);
        }
        if (issuer) bulk_wait_all();  // shared memory must live until the copies have read it
    }
}
