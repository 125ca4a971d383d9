"""Small Hopper kernels, each with one omission that hardware would not forgive.

Every one is right without its omission; lock-step execution alone would hide most of them.
"""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import numpy as np
import pytest
from emulator_helpers import run, wrap
from tensor_kernels import HOPPER, wgmma_call
from test_emu_tensor import tensor_map

from gemm_lab.emulator import BarrierFault, EmulatorFault, LaunchReport, Memory, load_ptx

HEAD = """extern __shared__ __align__(1024) unsigned char s[]; __shared__ u64 bar; u32 b = shared_address(&bar), at = shared_address(s); int t = threadIdx.x;
float *f = (float *)s;
"""
LOAD = (
    HEAD
    + """
if (t == 0) { init(b, 1); fence_init(); }
__syncthreads(); /* after init */
f[t] = 1; proxy_fence(); __syncthreads();
if (t == 0) { expect(b, 2048); tma2(at, &m, 0, 0, b); }
wait(b, 0); o[t] = f[t];
__syncthreads(); /* read */
if (t == 0) { expect(b, 2048); tma2(at, &m, 0, 16, b); }
wait(b, 1); o[64 + t] = f[t];
"""
)
CLUSTER = (
    HEAD
    + """
if (t == 0) { init(b, 1); fence_init(); }
cluster_sync(); /* begun */
if (t == 0) { expect(b, 2048); }
cluster_sync(); /* expecting */
if (cluster_rank() == 0 && t == 0) tma2_multicast(at, &m, 0, 0, b, 3);
wait(b, 0); o[blockIdx.x * 64 + t] = f[t];
cluster_sync(); /* end */
"""
)
REMOTE = (
    HEAD
    + """
f[t] = t + 100 * cluster_rank(); cluster_sync(); /* begun */
u32 there; float v; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at + 4 * t), "r"(cluster_rank() ^ 1));
asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there));
o[blockIdx.x * 64 + t] = v + (blockIdx.y ? m.bytes[0] : 0); cluster_sync(); /* end */
"""
)
STORE = (
    HEAD
    + """
for (int i = t; i < 512; i += 64) f[i] = i;
proxy_fence(); __syncthreads();
if (t == 0) { tma2_store(&m, 0, 0, at); bulk_commit(); bulk_wait_read(); }
"""
)


def attempt(body: str, *, cluster: bool = False) -> LaunchReport:
    memory = Memory(16 << 20)
    _, encoded = tensor_map(
        memory, np.arange(4096, dtype=np.float32).reshape(64, 64), (32, 16), "none"
    )
    source = HOPPER + wrap(body, "const __grid_constant__ Map m, float *o")
    if cluster:
        source = source.replace("__global__", "__global__ __cluster_dims__(2, 1, 1)")
    return run(
        source, encoded, np.zeros(4096, np.float32), memory=memory, grid=(2 if cluster else 1,),
        block=(64,), smem_bytes=8192, arch="sm_90a", races="all", max_instructions=200_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "cluster"), [(LOAD, False), (CLUSTER, True), (REMOTE, True), (STORE, False)]
)
def test_nothing_is_said_of_a_right_kernel(body: str, cluster: bool) -> None:
    assert attempt(body, cluster=cluster).races == ()


LOAD_MUTANTS = {
    "no barrier behind mbarrier.init": ("__syncthreads(); /* after init */\nf[t] = 1; proxy_fence(); __syncthreads();", "", "write-read"),
    "ordinary writes are not fenced": ("proxy_fence(); __syncthreads();", "__syncthreads();", "missing proxy fence"),
    "half of them are": ("proxy_fence(); __syncthreads();", "if (t < 32) proxy_fence(); __syncthreads();", "missing proxy fence"),
    "no expect_tx": ("expect(b, 2048); tma2(at, &m, 0, 0, b)", "arrive(b); tma2(at, &m, 0, 0, b)", "write-read"),
    "the data is not waited for": ("wait(b, 0);", "", "write-read"),
    "some do not wait": ("wait(b, 0);", "if (t < 32) wait(b, 0);", "write-read"),
    "the next copy overtakes readers": ("__syncthreads(); /* read */", "", "read-write"),
    "copies overlap": ("expect(b, 2048); tma2(at, &m, 0, 0, b)", "expect(b, 4096); tma2(at, &m, 0, 0, b); tma2(at + 1024, &m, 0, 0, b)", "write-write"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOAD_MUTANTS)
def test_races_with_the_copy_engine(name: str) -> None:
    old, new, kind = LOAD_MUTANTS[name]
    assert old in LOAD
    report = attempt(LOAD.replace(old, new, 1))
    assert kind in {race.kind for race in report.races}


FAULTS = {
    "too few bytes": (LOAD, "expect(b, 2048)", "expect(b, 2040)", "8 bytes more than expect_tx announced"),
    "too many bytes": (LOAD, "expect(b, 2048)", "expect(b, 2064)", "16 bytes missing"),
    "the phase after": (LOAD, "wait(b, 0)", "wait(b, 1)", "deadlock"),
    "a barrier without init": (LOAD, "tma2(at, &m, 0, 0, b)", "tma2(at, &m, 0, 0, b + 8)", "before mbarrier.init"),
    "every thread expects": (LOAD, "if (t == 0) { expect(b, 2048); tma2(at, &m, 0, 0, b); }", "expect(b, 2048); if (t == 0) tma2(at, &m, 0, 0, b);", "more arrivals"),
    "an address within 128 bytes": (LOAD, "tma2(at, &m, 0, 0, b)", "tma2(at + 64, &m, 0, 0, b)", "multiple of 128"),
    "past shared memory": (LOAD, "tma2(at, &m, 0, 0, b)", "tma2(at + 8192 - 1024, &m, 0, 0, b)", "out of bounds"),
    "multicast without a cluster": (LOAD, "tma2(at, &m, 0, 0, b)", "tma2_multicast(at, &m, 0, 0, b, 3)", "outside the cluster"),
    "multicast past the cluster": (CLUSTER, "b, 3)", "b, 7)", "outside the cluster"),
    "multicast to one": (CLUSTER, "b, 3)", "b, 1)", "deadlock"),
    "a cluster that has not begun": (CLUSTER, "cluster_sync(); /* begun */\nif (t == 0) { expect(b, 2048); }\ncluster_sync();", "__syncthreads(); if (t == 0) { expect(b, 2048); }\n__syncthreads();", "may not have begun"),
    "a block that does not wait": (CLUSTER, "wait(b, 0); o[blockIdx.x * 64 + t] = f[t];\ncluster_sync();", "if (cluster_rank() == 0) wait(b, 0);", r"block \(1, 0, 0\) leaves"),
    "memory of one not begun": (REMOTE, "cluster_sync(); /* begun */", "__syncthreads();", "may not have begun"),
    "memory of one that leaves": (REMOTE, "cluster_sync(); /* end */", "", "leaves with no barrier"),
    "a rank past the cluster": (REMOTE, "cluster_rank() ^ 1)", "2)", "out of bounds"),
    "a store at the end": (STORE, "bulk_wait_read();", "", "may still read its shared memory"),
    "a store in no group": (STORE, "bulk_commit();", "", "may still read its shared memory"),
    "another thread waits": (STORE, "bulk_wait_read(); }", "} if (t == 1) bulk_wait_read();", "may still read its shared memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_name_what_is_missing(name: str) -> None:
    body, old, new, text = FAULTS[name]
    assert old in body
    with pytest.raises(EmulatorFault, match=text) as told:
        attempt(body.replace(old, new, 1), cluster=body in (CLUSTER, REMOTE))
    assert told.value.where is not None
    assert told.value.block is not None


# ---- wgmma ----
COLUMNS = 64
PRODUCT = f"""
extern __shared__ __align__(1024) unsigned char s[]; int t = threadIdx.x; u32 at = shared_address(s); float d[{COLUMNS // 2}];
for (int i = t; i < 8192; i += 128) ((u32 *)s)[i] = 0x3f803f80;
u64 da = descriptor(at, 16, 1024), db = descriptor(at + 8192, 16, 1024);
for (int i = 0; i < {COLUMNS // 2}; i++) d[i] = t;
proxy_fence(); __syncthreads();
wg_fence(); multiply(d, da, db, 1); wg_commit(); multiply(d, da, db, 1); wg_commit();
wait_groups<0>();
for (int i = 0; i < {COLUMNS // 2}; i++) o[i * 128 + t] = d[i];
"""
GROUPS = """
template <int N> __device__ void wait_groups() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
"""


def multiply(body: str) -> LaunchReport:
    source = HOPPER + wgmma_call(COLUMNS, "bf16.bf16") + GROUPS + wrap(body, "float *o")
    out = np.zeros(128 * COLUMNS // 2, np.float32)
    return run(source, out, block=(128,), arch="sm_90a", smem_bytes=32768, races="all")


PRODUCT_MUTANTS = {
    "one group too few": ("wait_groups<0>", "wait_groups<1>", "registers in flight"),
    "no commit": ("wg_commit();\nwait", "wait", "registers in flight"),
    "no fence": ("wg_fence();", "", "wgmma.fence"),
    "three warps": ("multiply(d, da, db, 1); wg_commit();\n", "if (t < 96) multiply(d, da, db, 1); wg_commit();\n", "divergent warpgroup"),
    "a descriptor past the end": ("at + 8192, 16, 1024", "at + 8192, 16, 8192", "a descriptor reaches"),
    "nothing is written": ("for (int i = t; i < 8192; i += 128) ((u32 *)s)[i] = 0x3f803f80;", "", "nothing was written"),
    "no proxy fence": ("proxy_fence();", "", "missing proxy fence"),
    "operands change in flight": ("wait_groups<0>", "((u32 *)s)[t] = 0; wait_groups<0>", "read-write"),
}  # fmt: skip


def test_a_right_product() -> None:
    assert multiply(PRODUCT).races == ()


@pytest.mark.parametrize("name", PRODUCT_MUTANTS)
def test_products(name: str) -> None:
    old, new, text = PRODUCT_MUTANTS[name]
    assert old in PRODUCT
    try:
        report = multiply(PRODUCT.replace(old, new, 1))
    except EmulatorFault as fault:
        assert text in str(fault)  # noqa: PT017 - a fault or a race, as the mutant has it
        return
    assert text in {race.kind for race in report.races}


FRAGMENTS = r"""
.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .pred p; .reg .b32 a0, a1, a2, a3, t; .reg .f32 d0, d1, d2, d3; .reg .b64 b, o, x;
.shared .align 1024 .b8 s[8192];
ld.param.u64 o, [out]; cvta.to.global.u64 o, o;
mov.u32 t, %tid.x; mov.u64 x, s; mul.wide.u32 b, t, 64; add.u64 x, x, b;
st.shared.v4.b32 [x], {t, t, t, t}; st.shared.v4.b32 [x+16], {t, t, t, t};
st.shared.v4.b32 [x+32], {t, t, t, t}; st.shared.v4.b32 [x+48], {t, t, t, t};
fence.proxy.async.shared::cta; bar.sync 0;
mov.u32 a0, 0; mov.u32 a1, 0; mov.u32 a2, 0; mov.u32 a3, 0;
mov.f32 d0, 0f00000000; mov.f32 d1, 0f00000000; mov.f32 d2, 0f00000000; mov.f32 d3, 0f00000000;
mov.u64 x, s; shr.u64 x, x, 4; and.b64 x, x, 16383; mov.u64 b, 0x4000004000010000; or.b64 b, b, x;
setp.eq.u32 p, a0, a0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {d0, d1, d2, d3}, {a0, a1, a2, a3}, b, p, 1, 1, 0;
wgmma.commit_group.sync.aligned;
IN FLIGHT
wgmma.wait_group.sync.aligned 0;
AFTER
mul.wide.u32 b, t, 4; add.u64 o, o, b; st.global.f32 [o], d0;
ret;
}
"""


@pytest.mark.parametrize(
    ("in_flight", "after", "text"),
    [
        ("", "add.u32 a0, a0, 7;", ""),
        ("add.u32 t, t, 0;", "", ""),
        ("add.u32 a0, a0, 7;", "", "a register of A is overwritten"),
        ("ld.shared.u32 a3, [s];", "", "a register of A is overwritten"),
        ("add.f32 d1, d0, d1;", "", "an accumulator is touched"),
    ],
)
def test_registers_in_flight(in_flight: str, after: str, text: str) -> None:
    """A from registers is read as long as its product runs."""
    module = load_ptx(FRAGMENTS.replace("IN FLIGHT", in_flight).replace("AFTER", after))
    out = np.zeros(128, np.float32)
    if not text:
        run(module, out, block=(128,))
        return
    with pytest.raises(BarrierFault, match=text) as told:
        run(module, out, block=(128,))
    assert told.value.kind == "registers in flight"
