"""Tensor cores: fragment layouts, ldmatrix, stmatrix, wmma, wgmma."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulator_helpers import HALF_HEADERS, run, wrap
from tensor_kernels import HOPPER, WGMMA_GEMM, wgmma_call

from gemm_lab.emulator import BarrierFault, Memory, MemoryFault
from gemm_lab.emulator.tensor.maps import encode_tensor_map

LANE = np.arange(32)
G, T = LANE // 4, LANE % 4

KINDS = {
    "f16": (np.float16, 2),
    "bf16": (ml_dtypes.bfloat16, 2),
    "tf32": (np.float32, 1),
    "s8": (np.int8, 4),
    "e4m3": (ml_dtypes.float8_e4m3fn, 4),
}


def fragment_a(a: np.ndarray, per: int) -> np.ndarray:
    """Registers of A [16, K] by lane, [registers, 32] uint32: the layout of the PTX manual."""
    out = []
    for chunk in range(a.shape[1] // (4 * per)):
        for half in range(2):
            rows = G + 8 * half
            columns = 4 * per * chunk + per * T[:, None] + np.arange(per)
            out.append(np.ascontiguousarray(a[rows[:, None], columns]).view(np.uint32)[:, 0])
    return np.stack(out)


def fragment_b(b: np.ndarray, per: int) -> np.ndarray:
    """Registers of B [K, 8] by lane."""
    out = []
    for chunk in range(b.shape[0] // (4 * per)):
        rows = 4 * per * chunk + per * T[:, None] + np.arange(per)
        out.append(np.ascontiguousarray(b[rows, G[:, None]]).view(np.uint32)[:, 0])
    return np.stack(out)


def values(kind: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "s8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    data = rng.uniform(-2, 2, shape).astype(np.float32).astype(KINDS[kind][0])
    if kind == "tf32":
        data = (data.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return data


SHAPES = [("f16", 8), ("f16", 16), ("bf16", 8), ("bf16", 16), ("tf32", 4), ("tf32", 8), ("s8", 16), ("s8", 32), ("e4m3", 32)]  # fmt: skip


@pytest.mark.parametrize(("kind", "depth"), SHAPES)
def test_mma_layouts(kind, depth):
    per = KINDS[kind][1]
    a, b = values(kind, (16, depth), 1), values(kind, (depth, 8), 2)
    left, right = fragment_a(a, per), fragment_b(b, per)
    integer = kind == "s8"
    c_type, out_kind = ("int", "s32") if integer else ("float", "f32")
    letter = "r" if integer else "f"
    lists = [
        ", ".join(f"%{start + i}" for i in range(count))
        for start, count in ((0, 4), (4, len(left)), (4 + len(left), len(right)))
    ]
    source = wrap(
        f"""int l = threadIdx.x; {c_type} d[4] = {{{c_type}(l), 0, 0, 0}};
        asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.{out_kind}.{kind}.{kind}.{out_kind} {{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}}, {{{lists[0]}}};"
          : {", ".join(f'"+{letter}"(d[{i}])' for i in range(4))}
          : {", ".join(f'"r"(a[{i} * 32 + l])' for i in range(len(left)))}, {", ".join(f'"r"(b[{i} * 32 + l])' for i in range(len(right)))});
        for (int i = 0; i < 4; i++) o[i * 32 + l] = d[i];""",
        f"const unsigned *a, const unsigned *b, {c_type} *o",
    )
    o = np.zeros((4, 32), np.int32 if integer else np.float32)
    run(source, left, right, o, arch="sm_89" if kind == "e4m3" else "sm_80")
    want = a.astype(np.float64) @ b.astype(np.float64)
    for i in range(4):
        expected = want[G + 8 * (i // 2), 2 * T + i % 2] + (LANE if i == 0 else 0)
        np.testing.assert_allclose(o[i], expected, rtol=1e-5, atol=1e-4)


def test_mma_with_half_accumulators():
    a, b = values("f16", (16, 16), 1), values("f16", (16, 8), 2)
    left, right = fragment_a(a, 2), fragment_b(b, 2)
    o = np.zeros((2, 32), np.uint32)
    source = wrap(
        """int l = threadIdx.x; unsigned d[2] = {0x3c003c00, 0};
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
          : "+r"(d[0]), "+r"(d[1]) : "r"(a[l]), "r"(a[32 + l]), "r"(a[64 + l]), "r"(a[96 + l]), "r"(b[l]), "r"(b[32 + l]));
        o[l] = d[0]; o[32 + l] = d[1];""",
        "const unsigned *a, const unsigned *b, unsigned *o",
    )
    run(source, left, right, o)
    want = a.astype(np.float64) @ b.astype(np.float64)
    got = o.view(np.float16).reshape(2, 32, 2)
    np.testing.assert_allclose(got[0, :, 0], want[G, 2 * T] + 1, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(got[1, :, 1], want[G + 8, 2 * T + 1], rtol=2e-3, atol=2e-3)


def test_mma_on_doubles():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (8, 4)), rng.uniform(-1, 1, (4, 8))
    o = np.zeros((2, 32))
    source = wrap(
        """int l = threadIdx.x; double d[2] = {0, 0};
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+d"(d[0]), "+d"(d[1]) : "d"(a[l / 4 * 4 + l % 4]), "d"(b[l % 4 * 8 + l / 4]));
        o[l] = d[0]; o[32 + l] = d[1];""",
        "const double *a, const double *b, double *o",
    )
    run(source, a, b, o)
    np.testing.assert_allclose(o, np.stack([(a @ b)[G, 2 * T], (a @ b)[G, 2 * T + 1]]), rtol=1e-14)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(trans, count):
    suffix = ".trans" if trans else ""
    registers = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    ins = ", ".join(f'"r"(r[{i}])' for i in range(count))
    # The store's register list follows its address.
    stored = ", ".join(f"%{i + 1}" for i in range(count))
    source = wrap(
        f"""__shared__ __align__(16) unsigned short s[4][8][8], z[4][8][8];
        int l = threadIdx.x; for (int i = l; i < 256; i += 32) {{ s[0][0][i] = i; z[0][0][i] = 0; }}
        __syncwarp(); unsigned r[4] = {{}};
        unsigned at = (unsigned)__cvta_generic_to_shared(&s[l / 8][l % 8][0]), to = (unsigned)__cvta_generic_to_shared(&z[l / 8][l % 8][0]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{registers}}}, [%{count}];" : {outs} : "r"(at));
        asm volatile("stmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 [%0], {{{stored}}};" :: "r"(to), {ins} : "memory");
        __syncwarp(); for (int i = 0; i < {count}; i++) o[i * 32 + l] = r[i];
        for (int i = l; i < 256; i += 32) o[128 + i] = z[0][0][i];""",
        "unsigned *o",
    )
    o = np.zeros(384, np.uint32)
    report = run(source, o, arch="sm_90", races="all", counters="all")
    assert not report.races
    matrices = np.arange(256).reshape(4, 8, 8)
    for j in range(count):
        matrix = matrices[j].T if trans else matrices[j]
        want = matrix[G, 2 * T] | matrix[G, 2 * T + 1] << 16
        np.testing.assert_array_equal(o[j * 32 : j * 32 + 32], want)
    np.testing.assert_array_equal(o[128 : 128 + 64 * count], np.arange(64 * count))
    t = report.counters.total
    # One conflict-free wavefront a matrix and ldmatrix.
    assert t.shared_load_wavefronts - t.shared_load_conflicts >= count


def test_ldmatrix_conflicts():
    """Rows 128 bytes apart meet in the same banks; padded by 16 bytes they don't."""
    for pad, conflicts in ((0, 28), (8, 0)):
        source = wrap(
            f"""__shared__ __align__(16) unsigned short s[32][64 + {pad}]; int l = threadIdx.x;
            for (int i = 0; i < 64 + {pad}; i++) s[l][i] = i; __syncwarp(); unsigned r[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(&s[l][0])));
            o[l] = r[0] + r[1] + r[2] + r[3];""",
            "unsigned *o",
        )
        report = run(source, np.zeros(32, np.uint32), counters="all")
        assert report.counters.total.shared_load_conflicts == conflicts


WMMA = [
    ("__half", "__half", 16, 16, 16),
    ("__half", "__half", 32, 8, 16),
    ("__half", "__half", 8, 32, 16),
    ("signed char", "signed char", 8, 32, 16),
    ("__nv_bfloat16", "__nv_bfloat16", 16, 16, 16),
    ("float", "wmma::precision::tf32", 16, 16, 8),
    ("signed char", "signed char", 16, 16, 16),
]


@pytest.mark.parametrize("layouts", ["row row", "row col", "col row", "col col"])
@pytest.mark.parametrize(
    "case", WMMA, ids=lambda case: f"{case[1].split('::')[-1]} {case[2]}x{case[3]}"
)
def test_wmma(case, layouts):
    storage, kind, m, n, k = case
    layout_a, layout_b = layouts.split()
    acc = "int" if storage == "signed char" else "float"
    source = wrap(
        f"""wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {kind}, wmma::{layout_a}_major> fa;
        wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {kind}, wmma::{layout_b}_major> fb;
        wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {acc}> fc;
        wmma::fill_fragment(fc, 0); wmma::load_matrix_sync(fa, a, {k if layout_a == "row" else m} + 16);
        wmma::load_matrix_sync(fb, b, {n if layout_b == "row" else k} + 16);
        wmma::mma_sync(fc, fa, fb, fc);
        for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] * 2;
        wmma::store_matrix_sync(c, fc, {n}, wmma::mem_row_major);""",
        f"const {storage} *a, const {storage} *b, {acc} *c",
        HALF_HEADERS + "#include <mma.h>\nusing namespace nvcuda;",
    )
    name = {"__half": "f16", "__nv_bfloat16": "bf16", "float": "tf32", "signed char": "s8"}[storage]
    a, b = values(name, (m, k), 1), values(name, (k, n), 2)
    stored = []
    for matrix, layout in ((a, layout_a), (b, layout_b)):
        lines = matrix if layout == "row" else matrix.T
        padded = np.zeros((lines.shape[0], lines.shape[1] + 16), lines.dtype)
        padded[:, : lines.shape[1]] = lines
        stored.append(padded.view(np.uint8))
    c = np.zeros((m, n), np.int32 if acc == "int" else np.float32)
    run(source, *stored, c)
    np.testing.assert_allclose(c, 2 * (a.astype(float) @ b.astype(float)), rtol=1e-5, atol=1e-3)


def test_wmma_wants_aligned_pointers():
    source = wrap(
        """wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
        wmma::load_matrix_sync(fa, a + 8, 16); o[threadIdx.x] = (float)fa.x[0];""",
        "const __half *a, float *o",
        HALF_HEADERS + "#include <mma.h>\nusing namespace nvcuda;",
    )
    with pytest.raises(MemoryFault, match="misaligned"):
        run(source, np.zeros(512, np.int16), np.zeros(32, np.float32))


def test_a_divergent_warp_cannot_multiply():
    source = wrap(
        """unsigned r = threadIdx.x; float d[4] = {};
        if (threadIdx.x < 16) asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4}, {%4}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r));
        o[threadIdx.x] = d[0];""",
        "float *o",
    )
    with pytest.raises(BarrierFault, match="all lanes of its warp"):
        run(source, np.zeros(32, np.float32))


# ---- wgmma ----
WGMMA = {
    "f16.f16": (np.float16, 64),
    "bf16.bf16": (ml_dtypes.bfloat16, 64),
    "tf32.tf32": (np.float32, 32),
    "e4m3.e4m3": (ml_dtypes.float8_e4m3fn, 128),
}


def tensor_map(memory: Memory, array: np.ndarray, box: tuple[int, int], swizzle: str = "128B"):
    """A buffer and the bytes of a map over a 2-D array; box is (columns, rows)."""
    buffer = memory.upload(array.view(np.uint8))
    encoded = encode_tensor_map(
        address=buffer.address,
        element=array.dtype.name,
        element_bytes=array.itemsize,
        dims=(array.shape[1], array.shape[0]),
        strides_bytes=(array.shape[1] * array.itemsize,),
        box=box,
        swizzle=swizzle,
    )
    return buffer, encoded


@pytest.mark.parametrize("kinds", WGMMA)
@pytest.mark.parametrize("columns", [8, 64, 128])
def test_wgmma_with_tma(kinds, columns):
    _dtype, tile = WGMMA[kinds]
    depth = 3 * tile
    name = kinds.split(".")[0]
    a, b = values(name, (64, depth), 1), values(name, (columns, depth), 2)
    tail = "p, 1, 1, 0, 0" if tile == 64 else "p, 1, 1"
    source = (
        HOPPER
        + wgmma_call(columns, kinds, tail)
        + f"#define N {columns}\n#define TILE {tile}\n"
        + WGMMA_GEMM
    )
    memory = Memory(64 << 20)
    _, map_a = tensor_map(memory, a, (tile, 64))
    _, map_b = tensor_map(memory, b, (tile, columns))
    c = np.zeros((64, columns), np.float32)
    report = run(
        source, depth, map_a, map_b, c, block=(128,), arch="sm_90a", memory=memory,
        smem_bytes=(64 + columns) * 128, races="all", counters="all",
    )  # fmt: skip
    assert report.races == ()
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float).T, rtol=1e-4, atol=1e-2)
    assert report.counters.total.tensor_flop == 2 * 64 * columns * depth
    assert report.counters.total.tma_bytes == (64 + columns) * 128 * 3


WGMMA_MUTANTS = {
    "no wait for the products": ("wg_wait();", "", BarrierFault, "in flight"),
    "no fence": ("wg_fence();", "", BarrierFault, "wgmma.fence"),
    "too few bytes": ("expect(full, (64 + N) * 128);", "expect(full, 64 * 128);", None, ""),
    "too many bytes": ("expect(full, (64 + N) * 128);", "expect(full, (65 + N) * 128);", BarrierFault, "deadlock"),
    "wrong phase of full": ("wait(full, t & 1);", "wait(full, t & 1 ^ 1);", None, ""),
    "no arrival": ("arrive(empty);", "", BarrierFault, "deadlock"),
    "wrong stride": ("descriptor(b + 32 * s, 16, 1024)", "descriptor(b + 32 * s, 16, 512)", None, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WGMMA_MUTANTS)
def test_wgmma_mutants_are_caught(name):
    old, new, fault, text = WGMMA_MUTANTS[name]
    columns, tile, depth = 64, 64, 256
    a, b = values("bf16", (64, depth), 1), values("bf16", (columns, depth), 2)
    body = WGMMA_GEMM.replace(old, new)
    assert body != WGMMA_GEMM
    source = (
        HOPPER
        + wgmma_call(columns, "bf16.bf16")
        + f"#define N {columns}\n#define TILE {tile}\n"
        + body
    )
    memory = Memory(64 << 20)
    _, map_a = tensor_map(memory, a, (tile, 64))
    _, map_b = tensor_map(memory, b, (tile, columns))
    c = np.zeros((64, columns), np.float32)

    def attempt():
        return run(
            source, depth, map_a, map_b, c, block=(128,), arch="sm_90a", memory=memory,
            smem_bytes=(64 + columns) * 128, races="all", max_instructions=200_000,
        )  # fmt: skip

    if fault is not None:
        with pytest.raises(fault, match=text):
            attempt()
        return
    try:
        report = attempt()
    except (BarrierFault, MemoryFault):
        return
    wrong = not np.allclose(c, a.astype(float) @ b.astype(float).T, rtol=1e-3, atol=1e-1)
    assert wrong or report.races
