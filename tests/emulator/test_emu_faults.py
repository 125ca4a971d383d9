"""Each fault, told with its place, and the nearest kernel that is right."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import numpy as np
import pytest
from emulator_helpers import module_of, ptx_kernel, run, wrap

from gemm_lab.emulator import (
    BarrierFault,
    BudgetFault,
    EmulatorFault,
    KernelAssertFault,
    LaunchFault,
    Memory,
    MemoryFault,
    launch,
    load_ptx,
)


def fails(
    body: str, kind: type[EmulatorFault] = MemoryFault, block=(64,), head="", grid=(2,), **options
):
    source = wrap(body, "int *o, int n", head)
    o = np.zeros(256, np.int32)
    with pytest.raises(kind) as caught:
        run(source, o, 5, grid=grid, block=block, **options)
    return caught.value


def works(body: str, block=(64,), head="", grid=(2,), **options):
    o = np.zeros(256, np.int32)
    run(wrap(body, "int *o, int n", head), o, 5, grid=grid, block=block, **options)
    return o


GOOD_AND_BAD = {
    "global load past the end": ("o[threadIdx.x] = o[threadIdx.x + {0}];", 192, 193, "out of bounds"),
    "global store before the start": ("o[threadIdx.x + {0}] = 1;", 0, -1, "out of bounds"),
    "shared": ("__shared__ int s[64]; s[threadIdx.x + {0}] = 1; __syncthreads(); o[0] = s[n];", 0, 1, "out of bounds"),
    "shared load": (
        "__shared__ int s[64]; s[threadIdx.x] = 1; __syncthreads(); o[0] = s[threadIdx.x * {0} + n];",
        0, 1, "out of bounds",
    ),
    "local": ("int a[8]; for (int i = 0; i < 8; i++) a[i] = i; a[(n + {0}) * 1] = 5; o[0] = a[n & 3];", 0, 10, "out of bounds"),
    "null": ("int *p = (int *)((long long)o * (n - 5 + {0})); p[threadIdx.x] = 1;", 1, 0, "out of bounds"),
    "misaligned float4": ("*(float4 *)(o + n + {0}) = float4{{1, 2, 3, 4}};", 3, 0, "misaligned"),
    "misaligned shared": ("__shared__ __align__(16) int s[64]; *(int2 *)(s + n + {0}) = int2{{n, 2}}; __syncthreads(); o[0] = s[n + 1];", 1, 0, "misaligned"),
    "uninitialised shared": (
        "__shared__ int s[64]; if (threadIdx.x < {0}) s[threadIdx.x] = 1; __syncthreads(); o[threadIdx.x] = s[threadIdx.x];",
        64, 63, "uninitialised",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD_AND_BAD)
def test_memory(name):
    text, good, bad, kind = GOOD_AND_BAD[name]
    track = name.startswith("uninit")
    works(text.format(good), uninitialised=track)
    fault = fails(text.format(bad), uninitialised=track)
    assert fault.kind == kind
    assert fault.where.line == 2
    assert fault.where.file == "/gemm_lab/test.cu"
    assert fault.where.text
    assert fault.where.ptx_line
    assert fault.address is not None
    assert fault.block == (0, 0, 0)
    assert fault.thread is not None


def test_fault_names_the_first_thread_and_the_buffer():
    fault = fails("o[threadIdx.x * 8 + blockIdx.x * 64] = 1;")
    assert (fault.block, fault.thread) == ((0, 0, 0), (32, 0, 0))
    assert "0 bytes past the end of argument 0 (1024 bytes)" in fault.message


def test_freed_memory_and_gaps_between_buffers():
    memory = Memory(1 << 20)
    module = module_of(wrap("p[threadIdx.x] = 1;", "int *p"))
    a, b = memory.alloc(128, name="a"), memory.alloc(128, name="b")
    for address in (a, b):
        launch(module, "k", grid=(1,), block=(32,), args=[address], memory=memory)
    memory.free(a)
    with pytest.raises(MemoryFault):
        launch(module, "k", grid=(1,), block=(32,), args=[a.address], memory=memory)
    with pytest.raises(MemoryFault):
        launch(module, "k", grid=(1,), block=(32,), args=[b.address + 4], memory=memory)
    with pytest.raises(MemoryFault, match="misaligned"):
        launch(module, "k", grid=(1,), block=(1,), args=[b.address + 2], memory=memory)
    c = memory.upload(np.zeros(8, np.int32), misalign_bytes=4)
    assert c.address % 256 == 4


def test_several_buffers_in_one_instruction_are_legal():
    source = wrap(
        "int *p = threadIdx.x & 1 ? a : b; p[threadIdx.x] = threadIdx.x;", "int *a, int *b"
    )
    a, b = np.zeros(32, np.int32), np.zeros(32, np.int32)
    run(source, a, b)
    assert a[1::2].tolist() == list(range(1, 32, 2))
    assert b[::2].tolist() == list(range(0, 32, 2))


def test_inactive_lanes_may_hold_wild_addresses():
    works("if (threadIdx.x < 60) o[threadIdx.x + 196] = o[threadIdx.x + 196] + 1;")
    works("int *p = threadIdx.x < 3 ? o : (int *)12345; if (threadIdx.x < 3) p[threadIdx.x] = 1;")


def test_uninitialised_register():
    body = "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nsetp.lt.s32 %p1, %r1, {};\n@%p1 mov.u32 %r2, 5;\nst.global.u32 [%rd1], %r2;"
    run(load_ptx(ptx_kernel(body.format(32))), np.zeros(4, np.int32))
    with pytest.raises(MemoryFault, match="%r2 is read before it is written") as caught:
        run(load_ptx(ptx_kernel(body.format(31))), np.zeros(4, np.int32))
    assert caught.value.thread == (31, 0, 0)
    run(load_ptx(ptx_kernel(body.format(31))), np.zeros(4, np.int32), uninitialised=False)


def test_deadlock_says_who_waits_where():
    head = '__device__ void sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n)); }'
    works("sync(1, 64);", head=head)
    fault = fails("if (threadIdx.x < 32) sync(1, 64); else sync(2, 64);", BarrierFault, head=head)
    assert fault.kind == "deadlock"
    assert "32 threads at barrier 1 for 64 threads" in fault.message
    assert "32 threads at barrier 2 for 64 threads" in fault.message


def test_barrier_in_a_divergent_warp():
    works("if (threadIdx.x < 32) __syncthreads(); else __syncthreads();")
    fault = fails(
        "if (threadIdx.x & 1) { o[0] = 1; __syncthreads(); o[1] = 1; } else { o[2] = 1; __syncthreads(); o[3] = 3; }",
        BarrierFault,
    )
    assert fault.kind == "divergent barrier"


def test_barrier_not_reached_by_all():
    fault = fails(
        "if (threadIdx.x < 40) __syncthreads(); while (threadIdx.x >= 40 && o[200] == 0) ;",
        EmulatorFault,
        max_instructions=20000,
    )
    assert isinstance(fault, BarrierFault | BudgetFault)
    works("if (threadIdx.x >= 40) return; __syncthreads();")  # exited threads are not waited for


def test_barrier_numbers_and_counts():
    head = '__device__ void sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n)); }'
    works("sync(15, 64);", head=head)
    assert fails("sync(n + 11, 64);", BarrierFault, head=head).kind == "barrier number"
    assert fails("sync(1, n);", BarrierFault, head=head).kind == "barrier count"


def test_warp_operation_without_all_its_lanes():
    works("if (threadIdx.x % 32 < 16) o[threadIdx.x] = __shfl_xor_sync(0xffff, 1, 1);")
    fault = fails(
        "if (threadIdx.x % 32 < 16) o[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);", BarrierFault
    )
    assert fault.kind == "incomplete warp"
    fault = fails("o[threadIdx.x] = __shfl_xor_sync(0xffff, 1, 1);", BarrierFault)
    assert fault.kind == ".sync mask"


def test_assert_and_trap():
    works("assert(n == 5);")
    fault = fails("assert(n > (int)threadIdx.x + 2);", KernelAssertFault)
    assert "n > (int)threadIdx.x + 2" in fault.message
    assert fault.thread == (3, 0, 0)
    assert fails("if (n == 5) __trap();", KernelAssertFault).kind == "trap"


def test_budget_ends_endless_loops():
    fault = fails(
        "while (n == 5) { if (o[threadIdx.x] == 1) break; }", BudgetFault, max_instructions=10000
    )
    assert fault.where.line == 2
    fault = fails(
        "volatile int *p = o; while (p[threadIdx.x] == 0) ;", BudgetFault, max_instructions=10000
    )


LIMITS = {
    "threads": ({"block": (1025,)}, "1025 threads in a block; the limit is 1024"),
    "block z": ({"block": (1, 1, 65)}, "65 threads along z; the limit is 64"),
    "grid y": ({"grid": (1, 65536)}, "65536 blocks along y; the limit is 65535"),
    "grid z": ({"grid": (1, 1, 65536)}, "65536 blocks along z; the limit is 65535"),
    "grid x": ({"grid": (2**31,)}, "blocks along x"),
    "absurd": ({"grid": (2**31 - 1, 65535, 65535)}, "the emulator runs at most"),
    "zero": ({"grid": (0,)}, "of 1 and up"),
    "shared": ({"smem_bytes": 164 * 1024}, "bytes of shared memory"),
    "negative": ({"smem_bytes": -1}, "dynamic shared memory"),
    "selection": ({"blocks": [7]}, "blocks must lie in"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name):
    change, text = LIMITS[name]
    with pytest.raises(LaunchFault, match=text):
        run(wrap("o[0] = 1;", "int *o"), np.zeros(4, np.int32), **change)


def test_launch_bounds_and_arguments():
    source = (
        'extern "C" __global__ void __launch_bounds__(64) k(int *o, double x) { o[0] = (int)x; }'
    )
    o = np.zeros(4, np.int32)
    run(source, o, 2.5, block=(64,))
    assert o[0] == 2
    with pytest.raises(LaunchFault, match="bound to 64"):
        run(source, o, 2.5, block=(65,))
    with pytest.raises(LaunchFault, match="takes 2, 1 were given"):
        run(source, o)
    with pytest.raises(LaunchFault, match="4 bytes, the kernel wants 8"):
        run(source, o, b"1234")
    with pytest.raises(LaunchFault, match="the module has: k"):
        run(source, o, 1.0, entry="other")


def test_static_shared_memory_of_other_architectures():
    big = wrap(
        "extern __shared__ float d[]; d[threadIdx.x] = 1; o[threadIdx.x] = (int)d[threadIdx.x];",
        "int *o",
    )
    o = np.zeros(32, np.int32)
    run(big, o, smem_bytes=100 * 1024, arch="sm_90")
    with pytest.raises(LaunchFault, match="102400 bytes of shared memory"):
        run(big, o, smem_bytes=100 * 1024, arch="sm_86")


def test_unknown_instructions_are_told_before_anything_runs():
    text = ptx_kernel(
        "ld.param.u64 %rd1, [out];\n.loc 1 7 0\ntex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}];"
    )
    text += '\n.file 1 "/gemm_lab/x.cu"\n'
    with pytest.raises(EmulatorFault, match=r"tex.2d.v4.f32.f32") as caught:
        load_ptx(text)
    assert caught.value.where.line == 7
    assert caught.value.where.ptx_line
    for body in (
        "add.rn.f33 %f1, %f1, %f1;",
        "addx.s32 %r1, %r1, %r1;",
        "add.s32.foo %r1, %r1, %r1;",
        "mov.u32 %r1, %nosuch;",
        "bra NOWHERE;",
        "mov.u32 %r99, 1;",
    ):
        with pytest.raises(EmulatorFault):
            load_ptx(ptx_kernel(body))


def test_recursion_is_refused_with_a_hint():
    source = """
    __device__ __noinline__ int ack(int m, int n) {
      return m == 0 ? n + 1 : n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1)); }
    extern "C" __global__ void k(int *o) { o[0] = ack(o[1], o[2]); }"""
    with pytest.raises(EmulatorFault, match="recursion through"):
        run(source, np.zeros(4, np.int32))
