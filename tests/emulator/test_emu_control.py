"""Divergence, loops, calls, local arrays, atomics, warps, barriers, printf, special registers."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import numpy as np
import pytest
from emulator_helpers import run, wrap

from gemm_lab.emulator import Memory

T = np.arange(64)


def out(body: str, n: int = 64, head: str = "", grid=(1,), block=None, dtype=np.int32, **options):
    o = np.zeros(n, dtype=dtype)
    kind = {"int32": "int", "float32": "float", "float64": "double", "int64": "long long"}
    source = wrap(
        "int t = threadIdx.x + blockIdx.x * blockDim.x;\n" + body, f"{kind[o.dtype.name]} *o", head
    )
    report = run(source, o, grid=grid, block=block or (n // grid[0],), **options)
    return o, report


def collatz(n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


CASES = {
    "divergent loop": (
        "int n = t, s = 0; while (n > 1) { n = n % 2 ? 3 * n + 1 : n / 2; s++; } o[t] = s;",
        np.array([collatz(t) for t in T]),
    ),
    "nested branches": (
        "int r = 0; if (t & 1) { if (t & 2) r = 3; else r = 1; } else if (t & 4) r = 4; o[t] = r;",
        np.where(T & 1, np.where(T & 2, 3, 1), np.where(T & 4, 4, 0)),
    ),
    "break and continue": (
        "int s = 0; for (int i = 0; i < 20; i++) { if (i == t) break; if (i & 1) continue; s += i; } o[t] = s;",
        np.array([sum(i for i in range(min(t, 20)) if i % 2 == 0) for t in T]),
    ),
    "switch": (
        "int r; switch (t % 7) { case 0: r = 5; break; case 1: r = t * 3; break; case 2: r = t ^ 9; break;"
        " case 3: r = -t; break; case 4: r = 8; break; case 5: r = t + 1; break; default: r = 0; } o[t] = r;",
        np.select([n == T % 7 for n in range(6)], [5, T * 3, T ^ 9, -T, 8, T + 1], 0),
    ),
    "local array": (
        "int a[16]; for (int i = 0; i < 16; i++) a[i] = i * t; o[t] = a[(t * 5) & 15] + a[t & 3];",
        T * ((T * 5) & 15) + T * (T & 3),
    ),
    "local bytes": (
        "unsigned char a[40]; for (int i = 0; i < 40; i++) a[i] = i * 3 + t; o[t] = a[t % 40];",
        (T % 40 * 3 + T) & 255,
    ),
    "local 64-bit": (
        "double a[9]; for (int i = 0; i < 9; i++) a[i] = i * 0.5 + t; o[t] = (int)(2 * a[t % 9]);",
        T % 9 + 2 * T,
    ),
    "early exit": ("if (t > 40) return; o[t] = 7;", np.where(T > 40, 0, 7)),
    "ternary chain": ("o[t] = t < 10 ? t < 5 ? 1 : 2 : 3;", np.where(T < 10, np.where(T < 5, 1, 2), 3)),
    "lane registers": ("int l; asm(\"mov.u32 %0, %%laneid;\" : \"=r\"(l)); o[t] = l + 100 * (threadIdx.x / 32);", T % 32 + 100 * (T // 32)),
    "geometry": ("o[t] = blockDim.x * 1000 + gridDim.x * 10 + warpSize;", 0 * T + 64042),
    "lanemask": ("unsigned m; asm(\"mov.u32 %0, %%lanemask_lt;\" : \"=r\"(m)); o[t] = __popc(m);", T % 32),
    "shuffle down": ("o[t] = __shfl_down_sync(~0u, t, 3);", np.where(T % 32 < 29, T + 3, T)),
    "shuffle up": ("o[t] = __shfl_up_sync(~0u, t, 3);", np.where(T % 32 >= 3, T - 3, T)),
    "shuffle xor": ("o[t] = __shfl_xor_sync(~0u, t, 5);", T ^ 5),
    "shuffle index": ("o[t] = __shfl_sync(~0u, t, t * 7);", T // 32 * 32 + T * 7 % 32),
    "shuffle width": ("o[t] = __shfl_sync(~0u, t, 1, 8);", T // 8 * 8 + 1),
    "shuffle down in width": ("o[t] = __shfl_down_sync(~0u, t, 2, 8);", np.where(T % 8 < 6, T + 2, T)),
    "half-warp shuffle": (
        "if (t % 32 < 16) o[t] = __shfl_xor_sync(0xffff, t, 1); else o[t] = -1;",
        np.where(T % 32 < 16, T ^ 1, -1),
    ),
    "ballot": ("o[t] = __ballot_sync(~0u, t % 3 == 0);", np.array(
        [sum(1 << i for i in range(32) if (w * 32 + i) % 3 == 0) for w in T // 32], dtype=np.uint32).view(np.int32)),
    "any and all": ("o[t] = __any_sync(~0u, t == 40) * 2 + __all_sync(~0u, t < 40);", np.where(T < 32, 1, 2)),
    "match": ("o[t] = __popc(__match_any_sync(~0u, t % 5));", np.array([sum((t // 32 == T // 32) & (t % 5 == T % 5)) for t in T])),
    "reduce": ("o[t] = __reduce_add_sync(~0u, t);", np.where(T < 32, 496, 496 + 1024)),
    "reduce max": ("o[t] = __reduce_max_sync(~0u, t);", np.where(T < 32, 31, 63)),
    "barrier count": ("o[t] = __syncthreads_count(t % 3 == 0);", 0 * T + 22),
    "barrier and, or": ("o[t] = __syncthreads_and(t < 63) * 2 + __syncthreads_or(t == 63);", 0 * T + 1),
    "activemask": ("if (t & 1) o[t] = __activemask(); ", np.where(T & 1, -0x55555556, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_control(name):
    body, want = CASES[name]
    np.testing.assert_array_equal(out(body)[0], want.astype(np.int32))


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_control_elsewhere(arch):
    for name in ("divergent loop", "local array", "switch", "shuffle width", "barrier count"):
        body, want = CASES[name]
        np.testing.assert_array_equal(out(body, arch=arch)[0], want.astype(np.int32))


def test_device_functions_are_called():
    head = """
    struct Pair { float x; int y[3]; double d; };
    __device__ __noinline__ int add(int a, int b) { return a < 8 ? a + b : a * b; }
    __device__ __noinline__ Pair shift(Pair p) { p.x += 1; p.y[2] += p.y[0]; p.d *= 2; return p; }
    __device__ __noinline__ void fill(int *a, int n) { for (int i = 0; i < n; i++) a[i] = i; }
    """
    body = """
    int a[8]; fill(a, 8);
    Pair p{1.5f, {t, 2, 3}, 0.25};
    Pair q = shift(p);
    o[t] = add(t, 2) + a[t & 7] + (int)(q.x * 2) + q.y[2] + (int)(q.d * 4);
    """
    want = np.where(T < 8, T + 2, T * 2) + (T & 7) + 5 + (3 + T) + 2
    np.testing.assert_array_equal(out(body, head=head)[0], want)


def test_module_variables():
    head = "__constant__ int table[4] = {3, 1, 4, 1}; __device__ int counter = 10; __device__ float scratch[64];"
    memory = Memory(64 << 20)
    body = "scratch[t] = table[t & 3]; o[t] = (int)scratch[t]; if (t == 0) o[63] = counter++;"
    o, _ = out(body, head=head, memory=memory)
    np.testing.assert_array_equal(o[:63], np.array([3, 1, 4, 1])[T[:63] & 3])
    assert o[63] == 10
    assert out(body, head=head, memory=memory)[0][63] == 11


def test_shared_static_and_dynamic():
    head = "extern __shared__ __align__(16) float dyn[];"
    body = "__shared__ float s[64]; s[t] = t; dyn[t] = 2 * t; __syncthreads(); o[t] = s[63 - t] + dyn[(t + 1) % 64];"
    o, report = out(body, head=head, smem_bytes=256, races="all")
    np.testing.assert_array_equal(o, 63 - T + 2 * ((T + 1) % 64))
    assert not report.races


@pytest.mark.parametrize(
    ("kind", "bits"), [("unsigned char", 8), ("short", 16), ("long long", 64), ("double", 64)]
)
def test_shared_of_every_width(kind, bits):
    body = f"""__shared__ {kind} s[64]; int i = threadIdx.x; s[i] = t * 3 + 1; __syncthreads();
    o[t] = (int)s[(i + 5) % 64];"""
    o, report = out(body, grid=(3,), n=192, block=(64,), races="all")
    t = np.arange(192)
    want = (t // 64 * 64 + (t + 5) % 64) * 3 + 1
    np.testing.assert_array_equal(o, want & 255 if bits == 8 else want)
    assert not report.races


@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics(space):
    setup = "__shared__ int s[8]; if (t < 8) s[t] = t == 3; __syncthreads(); int *p = s;"
    if space == "global":
        setup = "int *p = o;"
    body = (
        setup
        + """
    atomicAdd(p, t); atomicMax(p + 1, t); atomicMin(p + 2, -t); int old = atomicCAS(p + 3, 1, 2);
    atomicOr(p + 4, 1 << (t & 31)); atomicInc((unsigned *)p + 5, 9); atomicExch(p + 6, 42);
    int turn = atomicAdd(p + 7, 1); __syncthreads();
    """
    )
    if space == "shared":
        body += "if (t < 8) o[t] = p[t]; o[64 + turn] = 1; if (old == 1) o[128] = t + 1;"
    else:
        body += "o[64 + turn] = 1; if (old == 1) o[128] = t + 1;"
    o = np.zeros(192, np.int32)
    o[3] = 1
    source = wrap("int t = threadIdx.x;" + body, "int *o")
    report = run(source, o, block=(64,), races="all")
    assert not report.races
    assert o[:8].tolist() == [2016, 63, -63, 2, -1, 64 % 10, 42, 64]
    assert (o[64:128] == 1).all()
    assert o[128] == 1


def test_float_atomics_and_64_bits():
    body = """
    atomicAdd((float *)o, 0.5f); atomicAdd((double *)(o + 2), 0.25);
    atomicAdd((unsigned long long *)(o + 4), 1ull << 33); __shared__ double s; if (t == 0) s = 0;
    __syncthreads(); double before = atomicAdd(&s, 1.0); __syncthreads(); if (t == 5) o[6] = (int)s; o[8 + t] = (int)before;
    """
    o, _ = out(body, n=128, block=(64,))
    assert o[:1].view(np.float32)[0] == 32
    assert o[2:4].view(np.float64)[0] == 16
    assert o[4:6].view(np.int64)[0] == 64 << 33
    assert o[6] == 64
    assert sorted(o[8:72]) == list(range(64))


def test_named_barriers_and_arrive():
    head = """
    __device__ void sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
    __device__ void arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory"); }
    """
    body = """
    __shared__ int s[32];
    if (t < 32) {              // producer
      for (int i = 0; i < 4; i++) { if (i) sync(2, 64); s[t] = t * 10 + i; arrive(1, 64); }
    } else {                   // consumer
      int total = 0;
      for (int i = 0; i < 4; i++) { sync(1, 64); total += s[63 - t]; if (i < 3) arrive(2, 64); }
      o[t] = total;
    }
    """
    o, report = out(body, head=head, races="all")
    np.testing.assert_array_equal(o[32:], 4 * 10 * (63 - T[32:]) + 6)
    assert not report.races


def test_printf():
    body = (
        'if (t == 3) printf("%d %5.2f|%s|%c %x %lld %%\\n", t, 1.5f, "text", 65, 255, 1ll << 40);'
    )
    _, report = out(body)
    assert report.printf_output == ("3  1.50|text|A ff 1099511627776 %\n",)


def test_printf_of_many_threads_comes_in_order():
    _, report = out('printf("%d,", t);', grid=(2,))
    assert "".join(report.printf_output) == "".join(f"{i}," for i in range(64))


def test_inline_ptx():
    body = """
    int r = t; asm volatile("{ .reg .pred p; setp.gt.s32 p, %0, 5; @p bra DONE; add.s32 %0, %0, 100; DONE: }" : "+r"(r));
    float f; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(3.0f)); o[t] = r + (int)f;
    """
    np.testing.assert_array_equal(out(body)[0], np.where(T > 5, T, T + 100) + 8)


def test_three_dimensional_blocks():
    o = np.zeros(4 * 3 * 2 * 2 * 3, np.int32)
    source = wrap(
        """int t = threadIdx.x + 4 * (threadIdx.y + 3 * threadIdx.z);
        int b = blockIdx.x + 2 * blockIdx.y;
        o[t + 24 * b] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * blockIdx.y;""",
        "int *o",
    )
    run(source, o, grid=(2, 3), block=(4, 3, 2))
    b, z, y, x = np.indices((6, 2, 3, 4))
    np.testing.assert_array_equal(
        o, (x + 10 * y + 100 * z + 1000 * (b % 2) + 10000 * (b // 2)).ravel()
    )


def test_blocks_may_wait_for_each_other():
    body = """
    volatile int *flag = o + 100;
    if (blockIdx.x == 0) { while (flag[0] == 0) ; o[t] = flag[1]; }
    else { o[101] = 7; __threadfence(); flag[0] = 1; }
    """
    o, _ = out(body, n=128, grid=(2,), block=(1,))
    assert o[0] == 7


def test_a_chain_of_many_blocks():
    """Each block waits for the one before: all must be in flight, however many there are."""
    body = """
    volatile int *flag = o; __shared__ int go;
    if (threadIdx.x == 0) { while (blockIdx.x && flag[blockIdx.x - 1] == 0) ; go = 1; }
    __syncthreads(); if (threadIdx.x == 0) { __threadfence(); flag[blockIdx.x] = go + blockIdx.x; }
    """
    o, _ = out(body, n=400, grid=(400,), block=(1024,))
    np.testing.assert_array_equal(o, np.arange(400) + 1)


def test_unsigned_comparison_and_wide_addresses():
    body = "long long big = (1ll << 40) + t; o[t] = (int)(big >> 36) + (int)(((unsigned long long)big * 3) & 0xff);"
    np.testing.assert_array_equal(out(body)[0], 16 + ((3 * T) & 255))
