"""Hardware cases of asynchronous copies: cp.async, bulk copies, TMA, clusters."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from emulator_helpers import wrap
from hardware_case import Case, TensorMapOver
from tensor_kernels import HOPPER

__all__ = ["copy_cases"]

SWIZZLE_BYTES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


# ---- cp.async ----
def _cp_async(cache: str, size: int) -> Case:
    """Every count of source bytes from 0 to the whole, in two groups, lanes to places of their own."""
    words = 32 * size // 4
    source = wrap(
        f"""__shared__ __align__(16) unsigned s[{2 * words}]; int t = threadIdx.x;
        for (int i = t; i < {2 * words}; i += 32) s[i] = 0xabababab; __syncwarp();
        for (int g = 0; g < 2; g++) {{
          unsigned at = (unsigned)__cvta_generic_to_shared(s) + g * {32 * size} + (t * 5 + g) % 32 * {size};
          int valid = g ? {size} : t % ({size} + 1);
          asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}, %2;" :: "r"(at), "l"((const char *)a + (g * 32 + t) * {size}), "r"(valid) : "memory");
          asm volatile("cp.async.commit_group;" ::: "memory");
        }}
        asm volatile("cp.async.wait_group 1;" ::: "memory"); __syncwarp();
        for (int i = t; i < {words}; i += 32) o[i] = s[i];
        asm volatile("cp.async.wait_all;" ::: "memory"); __syncwarp();
        for (int i = t + {words}; i < {2 * words}; i += 32) o[i] = s[i];""",
        "const unsigned *a, unsigned *o",
    )
    a = np.random.default_rng(size).integers(0, 2**32, 2 * words, dtype=np.uint32)
    return Case(f"cp.async.{cache} {size}", source, (a, np.zeros_like(a)), (1,))


CP_MBARRIER = """
__shared__ __align__(16) float s[128]; __shared__ u64 bar; int t = threadIdx.x; u32 b = shared_address(&bar);
if (t == 0) init(b, 32); __syncthreads();
if (t < 32) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(shared_address(&s[t * 4])), "l"(a + t * 4) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(b) : "memory");
} else { wait(b, 0); for (int i = t - 32; i < 128; i += 32) o[i] = s[127 - i]; }
"""


# ---- TMA ----
def _coordinates(rank: int, first: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(rank)) + "}"


def _starts(rank: int) -> tuple[str, str]:
    """Parameters and asm operands of `rank` coordinates."""
    names = [f"x{i}" for i in range(rank)]
    return ", ".join(f"int {n}" for n in names), ", ".join(f'"r"({n})' for n in names)


def _numbers(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    count = int(np.prod(shape))
    if np.dtype(dtype).itemsize == 1:
        return np.random.default_rng(1).integers(1, 120, shape).astype(dtype)
    return (np.arange(1, count + 1) % 2039).reshape(shape).astype(dtype)


def _sizes(box: tuple[int, ...], swizzle: str, dtype: type) -> tuple[int, int]:
    """Bytes of a box, and of the shared memory that it takes: rows as long as the swizzle."""
    rows = int(np.prod(box[1:]))
    row = box[0] * np.dtype(dtype).itemsize
    return rows * row, rows * max(row, SWIZZLE_BYTES[swizzle])


def _tma_load(
    name: str, shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...],
    swizzle: str = "none", dtype: type = np.float32, **facts: object,
) -> Case:  # fmt: skip
    """A box into shared memory, and all of that memory out again; `shape` is outermost first."""
    rank = len(box)
    size, room = _sizes(box, swizzle, dtype)
    params, operands = _starts(rank)
    source = HOPPER + wrap(
        f"""extern __shared__ __align__(1024) unsigned s[]; __shared__ u64 bar; u32 b = shared_address(&bar); int t = threadIdx.x;
        for (int i = t; i < {room // 4}; i += 32) s[i] = 0xabababab;
        proxy_fence(); __syncthreads();
        if (t == 0) {{ init(b, 1); fence_init(); expect(b, {size});
          asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {_coordinates(rank, 3)}], [%2];"
            :: "r"(shared_address(s)), "l"(&m), "r"(b), {operands} : "memory"); }}
        __syncthreads(); wait(b, 0); for (int i = t; i < {room // 4}; i += 32) o[i] = s[i];""",
        f"const __grid_constant__ Map m, {params}, unsigned *o",
    )
    a = _numbers(shape, dtype)
    if facts.get("round_tf32"):
        a = np.random.default_rng(2).uniform(-2, 2, shape).astype(np.float32)
    map_ = TensorMapOver(2 + rank, box, swizzle, **facts)  # type: ignore[arg-type]
    return Case(
        f"tma load {name}", source, (map_, *start, np.zeros(room // 4, np.uint32), a),
        (1 + rank,), arch="sm_90", smem_bytes=room,
    )  # fmt: skip


def _tma_store(
    name: str, shape: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...],
    swizzle: str = "none", dtype: type = np.float32, reduce: str = "",
) -> Case:  # fmt: skip
    """A box of shared memory into a tensor, clipped at its borders; or its reduction there."""
    rank = len(box)
    _, room = _sizes(box, swizzle, dtype)
    params, operands = _starts(rank)
    name_of = "cp.reduce" if reduce else "cp"
    source = HOPPER + wrap(
        f"""extern __shared__ __align__(1024) unsigned s[]; int t = threadIdx.x;
        for (int i = t; i < {room // 4}; i += 32) s[i] = a[i];
        proxy_fence(); __syncthreads();
        if (t == 0) {{
          asm volatile("{name_of}.async.bulk.tensor.{rank}d.global.shared::cta{f".{reduce}" if reduce else ""}.bulk_group [%0, {_coordinates(rank, 2)}], [%1];"
            :: "l"(&m), "r"(shared_address(s)), {operands} : "memory");
          bulk_commit(); asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }}""",
        f"const __grid_constant__ Map m, {params}, const unsigned *a",
    )
    data = _numbers((room // np.dtype(dtype).itemsize,), dtype)
    tensor = _numbers(shape, dtype) if reduce else np.full(shape, 7, dtype)
    return Case(
        f"tma {reduce or 'store'} {name}", source,
        (TensorMapOver(2 + rank, box, swizzle), *start, data.view(np.uint32), tensor),
        (2 + rank,), arch="sm_90", smem_bytes=room,
    )  # fmt: skip


SPANS = {"none": 32, "32B": 8, "64B": 16, "128B": 32}


# Every box starts at a multiple of 16 bytes in its row, and none that is stored before the tensor:
# the card calls anything else an illegal instruction.
def _tma_cases() -> Iterator[Case]:
    tall = (45, 36)
    for swizzle, columns in SPANS.items():
        for place, start in {"inside": (0, 0), "corner": (16, 38), "before": (-4, -3)}.items():
            name = f"2d {swizzle} {place}"
            yield _tma_load(name, tall, (columns, 16), start, swizzle)
        yield _tma_store(f"2d {swizzle} corner", tall, (columns, 16), (16, 38), swizzle)
        yield _tma_store(f"2d {swizzle} inside", tall, (columns, 16), (4, 3), swizzle)
        yield _tma_load(f"3d {swizzle}", (5, 9, 36), (columns, 4, 3), (4, 7, -1), swizzle)
        yield _tma_store(f"3d {swizzle}", (5, 9, 36), (columns, 4, 3), (4, 7, 3), swizzle)
    for start in (0, 60, 188):
        yield _tma_load(f"1d {start}", (200,), (64,), (start,))
        yield _tma_store(f"1d {start}", (200,), (64,), (start,))
    yield _tma_load("1d before", (200,), (64,), (-8,))
    yield _tma_load("4d", (2, 3, 5, 36), (8, 2, 2, 2), (32, 4, -1, 1))
    yield _tma_load("5d", (2, 2, 3, 5, 36), (8, 2, 2, 2, 2), (32, 4, -1, 1, 1))
    yield _tma_load("all outside", tall, (32, 16), (64, 0), "128B")
    # A box narrower than its swizzle.
    yield _tma_load("2d 128B narrow", tall, (16, 16), (8, 8), "128B")
    yield _tma_load("2d 64B narrow", tall, (8, 16), (8, 8), "64B")
    yield _tma_store("2d 128B narrow", tall, (16, 16), (8, 8), "128B")
    # A tensor narrower than its rows.
    yield _tma_load("narrow tensor", (45, 64), (32, 16), (16, 0), "128B", dims=(35, 45))
    yield _tma_load("tf32", tall, (32, 16), (0, 0), "128B", round_tf32=True)
    halves = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
    for name, dtype in halves.items():
        yield _tma_load(f"{name} 128B", (45, 72), (64, 16), (32, 38), "128B", dtype)
        yield _tma_store(f"{name} 64B", (45, 72), (32, 16), (48, 38), "64B", dtype)
    yield _tma_load("bytes 128B", (45, 144), (128, 16), (80, 38), "128B", ml_dtypes.float8_e4m3fn)
    for name, dtype in {**halves, "fp32": np.float32, "int32": np.int32}.items():
        yield _tma_store(f"{name}", (45, 72), (16, 8), (64, 40), "none", dtype, reduce="add")
    yield _tma_store("int32", (45, 72), (16, 8), (64, 40), "none", np.int32, reduce="max")


# ---- bulk copies and clusters ----
BULK = """
__shared__ __align__(128) float s[256]; __shared__ u64 bar; u32 b = shared_address(&bar), at = shared_address(s); int t = threadIdx.x;
if (t == 0) { init(b, 1); fence_init(); expect(b, 1024);
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" :: "r"(at), "l"(a), "r"(b) : "memory"); }
__syncthreads(); wait(b, 0); s[t] *= 2; proxy_fence(); __syncthreads();
if (t == 0) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" :: "l"(o), "r"(at) : "memory");
  bulk_commit(); asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;" :: "l"(o), "r"(at + 512) : "memory");
  bulk_commit(); asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
"""

MULTICAST = """
__shared__ __align__(128) float s[64]; __shared__ u64 bar; int t = threadIdx.x; u32 b = shared_address(&bar), rank = cluster_rank();
if (t == 0) { init(b, 1); fence_init(); } cluster_sync();
if (t == 0) expect(b, 256); cluster_sync();
if (rank == 1 && t == 0) tma2_multicast(shared_address(s), &m, 0, blockIdx.x / 4, b, 15);
wait(b, 0);
o[blockIdx.x * 64 + t] = s[t] + 100 * rank; cluster_sync();
"""

REMOTE = """
__shared__ int s[32]; __shared__ u64 bar; int t = threadIdx.x; u32 b = shared_address(&bar), rank = cluster_rank();
if (t == 0) { init(b, 32); fence_init(); } s[t] = t + 1000 * rank; cluster_sync();
u32 there; int v; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(&s[31 - t])), "r"(rank ^ 1));
asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(there));
arrive_at(b, rank ^ 1); wait(b, 0); o[blockIdx.x * 32 + t] = v; cluster_sync();
"""


def _clustered(size: int, body: str, params: str) -> str:
    cluster = f"__global__ __cluster_dims__({size}, 1, 1)"
    return HOPPER + wrap(body, params).replace("__global__", cluster)


def copy_cases() -> Iterator[Case]:
    """All of them."""
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        yield _cp_async(cache, size)
    a = np.arange(256, dtype=np.float32)
    source = HOPPER + wrap(CP_MBARRIER, "const float *a, float *o")
    out = np.zeros(128, np.float32)
    yield Case("cp.async mbarrier", source, (a, out), (1,), arch="sm_90", block=64)
    source = HOPPER + wrap(BULK, "const float *a, float *o")
    yield Case("bulk copies", source, (a, out.copy()), (1,), arch="sm_90", block=64)
    yield from _tma_cases()
    source = _clustered(4, MULTICAST, "const __grid_constant__ Map m, float *o")
    yield Case(
        "tma multicast", source,
        (TensorMapOver(2, (64, 1), "none"), np.zeros((8, 64), np.float32), a.reshape(4, 64)),
        (1,), arch="sm_90", grid=8, block=64,
    )  # fmt: skip
    source = _clustered(2, REMOTE, "int *o")
    yield Case(
        "remote shared memory", source, (np.zeros((4, 32), np.int32),), (0,), arch="sm_90", grid=4
    )
