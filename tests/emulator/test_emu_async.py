"""cp.async, mbarriers, TMA, bulk copies, clusters."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import numpy as np
import pytest
from emulator_helpers import run, wrap
from tensor_kernels import HOPPER
from test_emu_tensor import tensor_map

from gemm_lab.emulator import BarrierFault, EmulatorFault, LaunchFault, Memory, MemoryFault
from gemm_lab.emulator.tensor.bulk import swizzled
from gemm_lab.emulator.tensor.maps import encode_tensor_map

CP = """
__device__ void copy(void *dst, const void *src, int size = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((unsigned)__cvta_generic_to_shared(dst)), "l"(src), "r"(size) : "memory"); }
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
"""

PIPELINE = """
__shared__ __align__(16) float s[3][128]; int t = threadIdx.x; float sum = 0;
for (int i = 0; i < 2; i++) { copy(&s[i][t * 4], a + i * 128 + t * 4); commit(); }
for (int i = 0; i < n; i++) {
  wait<1>(); __syncthreads();
  if (i + 2 < n) copy(&s[(i + 2) % 3][t * 4], a + (i + 2) * 128 + t * 4);
  commit();
  for (int j = 0; j < 4; j++) sum += s[i % 3][(t * 4 + j + 17) % 128];
}
o[t] = sum;
"""


def pipeline(body: str):
    n = 6
    a = np.random.default_rng(0).integers(0, 100, n * 128).astype(np.float32)
    o = np.zeros(32, np.float32)
    report = run(
        wrap(body, "const float *a, float *o, int n", CP), a, o, n, races="all", counters="all"
    )
    rows = a.reshape(n, 32, 4)
    index = (np.arange(32)[:, None] * 4 + np.arange(4) + 17) % 128
    want = a.reshape(n, 128)[:, index].sum(axis=(0, 2))
    del rows
    return np.array_equal(o, want), report


def test_a_ring_of_groups():
    right, report = pipeline(PIPELINE)
    assert right
    assert not report.races
    assert report.counters.total.async_copy_bytes == 6 * 512
    assert report.counters.total.global_load_requests == 0
    # A warp's 512 bytes a copy.
    assert report.counters.total.async_copy_requests == 6
    assert report.counters.total.async_copy_sectors == 6 * 16
    assert report.counters.sectors_per_async_copy == 16


def test_copies_of_no_byte_ask_for_no_sector():
    """Lanes past the edge fill in zeros; scattered words take a sector each."""
    source = wrap(
        """__shared__ __align__(16) float s[128]; int t = threadIdx.x;
        copy(&s[t * 4], a + t * 16, t < 10 ? 16 : 0); copy(&s[t * 4], a, 0); commit(); wait<0>(); __syncwarp(); o[t] = s[t * 4];""",
        "const float *a, float *o",
        CP,
    )
    report = run(source, np.ones(512, np.float32), np.zeros(32, np.float32), counters="all")
    total = report.counters.total
    assert (total.async_copy_requests, total.async_copy_sectors) == (1, 10)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("wait<1>()", "wait<2>()"),
        ("wait<1>(); __syncthreads();", "wait<1>();"),
        ("wait<1>(); __syncthreads();", "__syncthreads(); wait<1>();"),
        ("(i + 2) % 3][t", "(i + 3) % 3][t"),
        ("commit(); }", "}"),
    ],
)
def test_a_ring_with_a_fault_is_caught(old, new):
    body = PIPELINE.replace(old, new)
    assert body != PIPELINE
    try:
        right, report = pipeline(body)
    except EmulatorFault:
        return
    assert report.races or not right


def test_bytes_beyond_the_source_are_zero():
    source = wrap(
        """__shared__ __align__(16) float s[128]; int t = threadIdx.x;
        copy(&s[t * 4], t < 20 ? a + t * 4 : a, t < 20 ? 16 : t == 20 ? 8 : 0); commit(); wait<0>(); __syncthreads();
        for (int i = 0; i < 4; i++) o[t * 4 + i] = s[t * 4 + i];""",
        "const float *a, float *o",
        CP,
    )
    a = np.arange(1, 81, dtype=np.float32)
    o = np.full(128, np.nan, np.float32)
    run(source, a, o)
    want = np.zeros(128, np.float32)
    want[:80] = a
    want[80:82] = a[:2]
    np.testing.assert_array_equal(o, want)


def test_copies_announce_themselves_to_an_mbarrier():
    source = HOPPER + wrap(
        """__shared__ __align__(16) float s[128]; __shared__ u64 bar; int t = threadIdx.x; u32 b = shared_address(&bar);
        if (t == 0) init(b, 32); __syncthreads();
        if (t < 32) {
          copy(&s[t * 4], a + t * 4);
          asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(b) : "memory");
        } else { wait(b, 0); o[t - 32] = s[(t - 32) * 4 + 1]; }""",
        "const float *a, float *o",
        CP,
    )
    a = np.arange(128, dtype=np.float32)
    o = np.zeros(32, np.float32)
    report = run(source, a, o, block=(64,), arch="sm_90", races="all")
    np.testing.assert_array_equal(o, a[1::4])
    assert not report.races
    assert run(
        source.replace("wait(b, 0);", ""),
        a,
        o,
        block=(64,),
        arch="sm_90",
        races="all",
        uninitialised=False,
    ).races


RING = """
__shared__ int s[4][32]; __shared__ u64 bars[8]; int t = threadIdx.x; u32 full = shared_address(bars), empty = full + 32;
if (t < 4) { init(full + 8 * t, 32); init(empty + 8 * t, 32); } __syncthreads();
if (t < 32) for (int i = 0; i < 11; i++) {
  wait(empty + 8 * (i % 4), (i / 4 & 1) ^ 1); s[i % 4][t] = i * 100 + t; arrive(full + 8 * (i % 4)); }
else { int sum = 0; for (int i = 0; i < 11; i++) {
  wait(full + 8 * (i % 4), i / 4 & 1); sum += s[i % 4][63 - t]; arrive(empty + 8 * (i % 4)); } o[t - 32] = sum; }
"""


def test_a_ring_of_mbarriers():
    o = np.zeros(32, np.int32)
    report = run(
        HOPPER + wrap(RING, "int *o"), o, block=(64,), arch="sm_90", races="all", grid=(1,)
    )
    np.testing.assert_array_equal(o, 5500 + 11 * (31 - np.arange(32)))
    assert not report.races


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(i / 4 & 1) ^ 1", "i / 4 & 1"),
        ("i / 4 & 1); sum", "(i / 4 & 1) ^ 1); sum"),
        ("init(empty + 8 * t, 32)", "init(empty + 8 * t, 31)"),
        ("init(full + 8 * t, 32)", "init(full + 8 * t, 33)"),
        ("arrive(empty + 8 * (i % 4)); }", "}"),
        ("wait(empty + 8 * (i % 4), (i / 4 & 1) ^ 1);", ""),
        ("arrive(full + 8 * (i % 4)); }", "arrive(full + 8 * ((i + 1) % 4)); }"),
    ],
)
def test_a_ring_of_mbarriers_with_a_fault_is_caught(old, new):
    body = RING.replace(old, new)
    assert body != RING
    o = np.zeros(32, np.int32)
    try:
        report = run(HOPPER + wrap(body, "int *o"), o, block=(64,), arch="sm_90", races="all")
    except BarrierFault:
        return
    assert report.races or not np.array_equal(o, 5500 + 11 * (31 - np.arange(32)))


def test_mbarrier_faults():
    for body, text in {
        "__shared__ u64 b; arrive(shared_address(&b));": "before mbarrier.init",
        "__shared__ u64 b; u32 a = shared_address(&b); if (threadIdx.x == 0) init(a, 1); __syncwarp(); if (threadIdx.x < 2) expect(a, 16);": "more arrivals",
        "__shared__ u64 b[2]; init(shared_address(b) + 4, 1);": "misaligned",
        "__shared__ u64 b; u32 a = shared_address(&b); if (threadIdx.x == 0) init(a, 1); __syncwarp(); wait(a, 0);": "1 arrivals and 0 bytes missing",
    }.items():
        with pytest.raises(EmulatorFault, match=text):
            run(HOPPER + wrap(body + " o[0] = 1;", "int *o"), np.zeros(4, np.int32), arch="sm_90")


@pytest.mark.parametrize(
    ("swizzle", "columns"), [("none", 32), ("32B", 8), ("64B", 16), ("128B", 32)]
)
@pytest.mark.parametrize("start", [(0, 0), (16, -3), (-4, 40)])
def test_tma_loads_boxes(swizzle, columns, start):
    rows = 16
    source = HOPPER + wrap(
        f"""extern __shared__ __align__(1024) float s[]; __shared__ u64 bar; u32 b = shared_address(&bar); int t = threadIdx.x;
        if (t == 0) {{ init(b, 1); expect(b, {rows * columns * 4}); tma2(shared_address(s), &m, x, y, b); }}
        __syncthreads(); wait(b, 0); for (int i = t; i < {rows * columns}; i += 32) o[i] = s[i];""",
        "const __grid_constant__ Map m, int x, int y, float *o",
    )
    memory = Memory(16 << 20)
    a = np.arange(1, 45 * 36 + 1, dtype=np.float32).reshape(45, 36)
    _, encoded = tensor_map(memory, a, (columns, rows), swizzle)
    o = np.zeros(rows * columns, np.float32)
    x, y = start
    report = run(
        source,
        encoded,
        x,
        y,
        o,
        arch="sm_90a",
        memory=memory,
        smem_bytes=rows * columns * 4,
        races="all",
    )
    assert not report.races
    padded = np.zeros((45 + 128, 36 + 128), np.float32)
    padded[64 : 64 + 45, 64 : 64 + 36] = a
    box = padded[64 + y : 64 + y + rows, 64 + x : 64 + x + columns]
    span = {"none": 0, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    place = swizzled(np.arange(rows * columns) * 4, span) // 4
    want = np.zeros(rows * columns, np.float32)
    want[place] = box.ravel()
    np.testing.assert_array_equal(o, want)


LOAD = """
extern __shared__ __align__(1024) float s[]; __shared__ u64 bar; u32 b = shared_address(&bar); int t = threadIdx.x;
for (int i = t; i < room; i += 32) s[i] = -1;
proxy_fence(); __syncthreads();
if (t == 0) { init(b, 1); expect(b, 1024); tma2(shared_address(s), &m, x, 8, b); }
__syncthreads(); wait(b, 0); for (int i = t; i < 512; i += 32) o[i] = s[i];
"""


def load_narrow(x: int, smem_bytes: int):
    """16 rows of 64 bytes under a swizzle of 128."""
    memory = Memory(16 << 20)
    a = np.arange(1, 45 * 36 + 1, dtype=np.float32).reshape(45, 36)
    _, encoded = tensor_map(memory, a, (16, 16), "128B")
    o = np.zeros(512, np.float32)
    source = HOPPER + wrap(LOAD, "const __grid_constant__ Map m, int x, int room, float *o")
    run(source, encoded, x, smem_bytes // 4, o, arch="sm_90a", memory=memory, smem_bytes=smem_bytes)
    return a, o


def test_rows_shorter_than_their_swizzle_lie_a_whole_one_apart():
    a, o = load_narrow(8, 2048)
    rows = np.full((16, 32), -1, np.float32)
    rows[:, :16] = a[8:24, 8:24]
    want = np.zeros(512, np.float32)
    want[swizzled(np.arange(512) * 4, 128) // 4] = rows.ravel()
    np.testing.assert_array_equal(o, want)


def test_a_box_that_its_swizzle_makes_too_large():
    with pytest.raises(MemoryFault, match="copy of 2048 bytes"):
        load_narrow(8, 1920)


def test_a_box_starts_at_a_multiple_of_16_bytes():
    with pytest.raises(MemoryFault, match="element 9 of its rows, at byte 36"):
        load_narrow(9, 2048)
    with pytest.raises(MemoryFault, match="element 2 of its rows, at byte 8"):
        store(STORE, 2, 0)


STORE = """
extern __shared__ __align__(1024) float s[]; int t = threadIdx.x;
for (int i = t; i < 512; i += 64) s[i] = i;
proxy_fence(); __syncthreads();
if (t == 0) { tma2_store(&m, x, y, shared_address(s)); bulk_commit(); bulk_wait_read(); }
__syncthreads(); s[t] = -1;
"""


def store(body: str, x: int, y: int):
    memory = Memory(16 << 20)
    c = np.full((40, 36), -5, np.float32)
    buffer, encoded = tensor_map(memory, c, (32, 16), "none")
    source = HOPPER + wrap(body, "const __grid_constant__ Map m, int x, int y")
    report = run(
        source,
        encoded,
        x,
        y,
        block=(64,),
        arch="sm_90a",
        memory=memory,
        smem_bytes=2048,
        races="all",
    )
    return memory.download(buffer, np.float32, (40, 36)), report


def test_tma_stores_inside_the_tensor_only():
    got, report = store(STORE, 16, 30)
    want = np.full((40, 36), -5, np.float32)
    want[30:40, 16:36] = np.arange(512, dtype=np.float32).reshape(16, 32)[:10, :20]
    np.testing.assert_array_equal(got, want)
    assert not report.races


@pytest.mark.parametrize(("start", "axis"), [((-4, 0), 0), ((0, -1), 1)])
def test_no_store_starts_before_the_tensor(start, axis):
    with pytest.raises(MemoryFault, match=f"coordinate {axis} is -"):
        store(STORE, *start)


@pytest.mark.parametrize(
    ("old", "kind"),
    [
        ("proxy_fence();", "missing proxy fence"),
        ("bulk_wait_read();", "read-write"),
        ("proxy_fence(); __syncthreads();", "write-read"),
    ],
)
def test_tma_store_mutants(old, kind):
    _, report = store(STORE.replace(old, "", 1), 0, 0)
    assert kind in {race.kind for race in report.races}


def test_bulk_copies():
    source = HOPPER + wrap(
        """__shared__ __align__(128) float s[256]; __shared__ u64 bar; u32 b = shared_address(&bar), at = shared_address(s); int t = threadIdx.x;
        if (t == 0) { init(b, 1); expect(b, 1024);
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" :: "r"(at), "l"(a), "r"(b) : "memory"); }
        __syncthreads(); wait(b, 0); s[t] *= 2; proxy_fence(); __syncthreads();
        if (t == 0) { asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" :: "l"(o), "r"(at) : "memory");
          asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;" :: "l"(o), "r"(at + 512) : "memory"); bulk_commit(); bulk_wait_read(); }""",
        "const float *a, float *o",
    )
    a = np.arange(256, dtype=np.float32)
    o = np.zeros(128, np.float32)
    report = run(source, a, o, block=(64,), arch="sm_90a", races="all")
    assert not report.races
    doubled = a.copy()
    doubled[:64] *= 2
    np.testing.assert_array_equal(o, doubled[:128] + doubled[128:])


CLUSTER = """
__shared__ __align__(128) float s[64]; __shared__ u64 bar; int t = threadIdx.x; u32 b = shared_address(&bar), rank = cluster_rank();
if (t == 0) { init(b, 1); fence_init(); } cluster_sync();
if (t == 0) expect(b, 256); cluster_sync();
if (rank == 0 && t == 0) tma2_multicast(shared_address(s), &m, 0, blockIdx.x / 2, b, 3);
wait(b, 0);
o[blockIdx.x * 64 + t] = s[t] + 100 * rank; cluster_sync();
"""


def test_multicast_reaches_every_block_of_the_cluster():
    memory = Memory(16 << 20)
    a = np.arange(256, dtype=np.float32).reshape(4, 64)
    _, encoded = tensor_map(memory, a, (64, 1), "none")
    o = np.zeros((8, 64), np.float32)
    head = HOPPER.replace(
        "struct alignas", "struct __align__(64) Unused { int x; };\nstruct alignas"
    )
    source = head + wrap(CLUSTER, "const __grid_constant__ Map m, float *o").replace(
        "__global__", "__global__ __cluster_dims__(2, 1, 1)"
    )
    report = run(
        source,
        encoded,
        o,
        grid=(8,),
        block=(64,),
        arch="sm_90a",
        memory=memory,
        races="all",
        counters="all",
    )
    want = np.repeat(a, 2, axis=0) + 100 * (np.arange(8) % 2)[:, None]
    np.testing.assert_array_equal(o, want)
    assert not report.races
    assert report.counters.total.multicast_saved_bytes == 4 * 256


def test_remote_arrivals_and_distributed_shared_memory():
    source = HOPPER + wrap(
        """__shared__ int s[32]; __shared__ u64 bar; int t = threadIdx.x; u32 b = shared_address(&bar), rank = cluster_rank();
        if (t == 0) { init(b, 32); fence_init(); } s[t] = t + 1000 * rank; cluster_sync();
        u32 there; int v; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(&s[31 - t])), "r"(rank ^ 1));
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(there));
        arrive_at(b, rank ^ 1); wait(b, 0); o[blockIdx.x * 32 + t] = v; cluster_sync();""",
        "int *o",
    ).replace("__global__", "__global__ __cluster_dims__(2, 1, 1)")
    o = np.zeros((4, 32), np.int32)
    run(source, o, grid=(4,), arch="sm_90a")
    want = 31 - np.arange(32) + 1000 * (1 - np.arange(4) % 2)[:, None]
    np.testing.assert_array_equal(o, want)


def test_registers_have_a_budget():
    body = 'asm volatile("setmaxnreg.{}.sync.aligned.u32 {};"); o[0] = 1;'
    run(wrap(body.format("dec", 40), "int *o"), np.zeros(4, np.int32), block=(128,), arch="sm_90a")
    many = 'if (threadIdx.x < 128) { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); } else { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); } o[0] = 1;'
    with pytest.raises(LaunchFault, match="setmaxnreg"):
        run(wrap(many, "int *o"), np.zeros(4, np.int32), block=(384,), arch="sm_90a")


def test_tensor_maps_are_checked():
    good = {
        "address": 0x1000,
        "element": "fp32",
        "element_bytes": 4,
        "dims": (64, 8),
        "strides_bytes": (256,),
        "box": (32, 8),
    }
    encode_tensor_map(**good, swizzle="128B")
    for change in (
        {"address": 0x1004}, {"strides_bytes": (260,)}, {"box": (33, 8)}, {"box": (32, 257)},
        {"box": (64, 8), "swizzle": "128B"}, {"dims": (0, 8)}, {"swizzle": "96B"},
    ):  # fmt: skip
        with pytest.raises(LaunchFault, match="tensor map"):
            encode_tensor_map(**{**good, **change})


def test_a_foreign_tensor_map_is_refused():
    source = HOPPER + wrap(
        "__shared__ __align__(128) float s[64]; __shared__ u64 bar; u32 b = shared_address(&bar); if (threadIdx.x == 0) { init(b, 1); expect(b, 256); tma2(shared_address(s), &m, 0, 0, b); } __syncwarp(); wait(b, 0);",
        "const __grid_constant__ Map m",
    )
    with pytest.raises(MemoryFault, match="no tensor map"):
        run(source, b"\1" * 128, arch="sm_90a")
