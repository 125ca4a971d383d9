"""Kernels for tensor cores and asynchronous copies, small enough to read."""

# ruff: noqa: E501 - CUDA one-liners read better whole

HOPPER = r"""
typedef unsigned u32; typedef unsigned long long u64;
__device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count)); }
__device__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ void expect(u32 bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory"); }
__device__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory"); }
__device__ void arrive_at(u32 bar, u32 rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" :: "r"(bar), "r"(rank) : "memory"); }
__device__ void wait(u32 bar, u32 parity) {
  asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra L; D: }" :: "r"(bar), "r"(parity) : "memory"); }
__device__ void tma2(u32 dst, const void *map, int x, int y, u32 bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
    :: "r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory"); }
__device__ void tma2_multicast(u32 dst, const void *map, int x, int y, u32 bar, unsigned short mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
    :: "r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar), "h"(mask) : "memory"); }
__device__ void tma2_store(const void *map, int x, int y, u32 src) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" :: "l"(map), "r"(x), "r"(y), "r"(src) : "memory"); }
__device__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
__device__ void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ u32 cluster_rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
// K-major or MN-major tile with a 128-byte swizzle: rows of 128 bytes, 8 of them an atom.
__device__ u64 descriptor(u32 at, u32 leading, u32 stride) {
  return (u64)(at >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | 1ull << 62; }
struct alignas(64) Map { char bytes[128]; };
"""


def wgmma_call(columns: int, kinds: str, tail: str = "p, 1, 1, 0, 0") -> str:
    """Device function `multiply(d, a, b, add)` around one wgmma of m64n{columns}."""
    count = columns // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    depth = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32}[kinds.split(".")[0]]
    return f"""
__device__ void multiply(float *d, u64 a, u64 b, int add) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0; "
    "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{kinds} {{{registers}}}, %{count}, %{count + 1}, {tail}; }}"
    : {outs} : "l"(a), "l"(b), "r"(add)); }}
"""


# 64 x N product by one warpgroup, one stage a K tile of 64 halves (32 tf32, 128 fp8), TMA, mbarriers.
WGMMA_GEMM = """
extern "C" __global__ void k(int K, const __grid_constant__ Map ma, const __grid_constant__ Map mb, float *c) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) u64 bars[2];
  u32 a = shared_address(smem), b = a + 64 * 128, full = shared_address(bars), empty = full + 8;
  if (threadIdx.x == 0) { init(full, 1); init(empty, 128); fence_init(); }
  __syncthreads();
  float d[N / 2];
  int tiles = K / TILE;
  for (int t = 0; t < tiles; t++) {
    if (threadIdx.x == 0) {
      wait(empty, t & 1 ^ 1);
      expect(full, (64 + N) * 128);
      tma2(a, &ma, t * TILE, 0, full);
      tma2(b, &mb, t * TILE, 0, full);
    }
    __syncwarp();
    wait(full, t & 1);
    wg_fence();
    for (int s = 0; s < 4; s++)
      multiply(d, descriptor(a + 32 * s, 16, 1024), descriptor(b + 32 * s, 16, 1024), t > 0 || s > 0);
    wg_commit();
    wg_wait();
    arrive(empty);
  }
  int w = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  for (int j = 0; j < N / 8; j++)
    for (int h = 0; h < 2; h++)
      for (int i = 0; i < 2; i++) c[(16 * w + 8 * h + g) * N + 8 * j + 2 * q + i] = d[4 * j + 2 * h + i];
}
"""

# C = A @ B^T in bfloat16. A producer warpgroup and two consumers, 4 stages, a cluster of 2 that shares
# each tile of B by multicast, a persistent loop, stmatrix and TMA stores.
WARP_SPECIALIZED = """
#include <cuda_bf16.h>
constexpr u32 BM = 128, BN = 128, BK = 64, STAGES = 4, A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
constexpr u32 STAGE_BYTES = A_BYTES + B_BYTES, STAGING = STAGES * STAGE_BYTES;
constexpr u32 SMEM = STAGING + 2 * 64 * BN * 2 + 128;
__device__ void group_sync(int id) { asm volatile("bar.sync %0, 128;" :: "r"(id) : "memory"); }
__device__ u32 pack(float low, float high) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
k(int M, int N, int K, const __grid_constant__ Map ma, const __grid_constant__ Map mb, const __grid_constant__ Map mc) {
  extern __shared__ __align__(1024) unsigned char smem[];
  u32 base = shared_address(smem), full = base + STAGING + 2 * 64 * BN * 2, empty = full + 8 * STAGES;
  u32 rank = cluster_rank(), group = threadIdx.x / 128, t = threadIdx.x % 128;
  if (threadIdx.x == 0) {
    for (u32 s = 0; s < STAGES; s++) { init(full + 8 * s, 1); init(empty + 8 * s, 4); }
    fence_init();
  }
  cluster_sync();
  int tiles_m = (M + 2 * BM - 1) / (2 * BM), tiles_n = (N + BN - 1) / BN, k_tiles = (K + BK - 1) / BK;
  u32 stage = 0, phase = 0;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (t == 0) {
      for (int tile = blockIdx.x / 2; tile < tiles_m * tiles_n; tile += gridDim.x / 2) {
        int row = (tile % tiles_m * 2 + rank) * BM, col = tile / tiles_m * BN;
        for (int i = 0; i < k_tiles; i++) {
          u32 at = base + stage * STAGE_BYTES, bar = full + 8 * stage;
          wait(empty + 8 * stage, phase ^ 1);
          expect(bar, STAGE_BYTES);
          tma2(at, &ma, i * BK, row, bar);
          tma2_multicast(at + A_BYTES + rank * (B_BYTES / 2), &mb, i * BK, col + rank * (BN / 2), bar, 3);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    u32 wg = group - 1, lane = t % 32, staging = base + STAGING + wg * 64 * BN * 2;
    for (int tile = blockIdx.x / 2; tile < tiles_m * tiles_n; tile += gridDim.x / 2) {
      int row = (tile % tiles_m * 2 + rank) * BM + wg * 64, col = tile / tiles_m * BN;
      float d[BN / 2];
      for (int i = 0; i < BN / 2; i++) d[i] = 0;
      for (int i = 0; i < k_tiles; i++) {
        u32 a = base + stage * STAGE_BYTES + wg * 64 * 128, b = base + stage * STAGE_BYTES + A_BYTES;
        wait(full + 8 * stage, phase);
        wg_fence();
        for (int s = 0; s < 4; s++) multiply(d, descriptor(a + 32 * s, 16, 1024), descriptor(b + 32 * s, 16, 1024), 1);
        wg_commit();
        wg_wait();
        if (t < 2) arrive_at(empty + 8 * stage, t);
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
      if (t == 0) bulk_wait_read();
      group_sync(1 + wg);  // the last tile has left the staging buffer
      u32 at = staging + ((t / 32 * 16 + lane / 8 % 2 * 8 + lane % 8) * BN + lane / 16 * 8) * 2;
      for (int j = 0; j < BN / 8; j += 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
          :: "r"(at + j * 16), "r"(pack(d[4 * j], d[4 * j + 1])), "r"(pack(d[4 * j + 2], d[4 * j + 3])),
             "r"(pack(d[4 * j + 4], d[4 * j + 5])), "r"(pack(d[4 * j + 6], d[4 * j + 7])) : "memory");
      proxy_fence();
      group_sync(1 + wg);  // the tile is complete
      if (t == 0) { tma2_store(&mc, col, row, staging); bulk_commit(); }
    }
    if (t == 0) bulk_wait_read();
  }
  cluster_sync();  // no block leaves while another may still send to it
}
"""
