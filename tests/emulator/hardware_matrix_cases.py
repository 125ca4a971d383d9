"""Hardware cases of tensor cores that read registers: wmma, mma.sync, ldmatrix, stmatrix."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from emulator_helpers import HALF_HEADERS, wrap
from hardware_case import DTYPES, PER_REGISTER, Case, random_words

__all__ = ["matrix_cases"]

MMA_SHAPES = [
    ("f16", 8), ("f16", 16), ("bf16", 8), ("bf16", 16), ("tf32", 4), ("tf32", 8),
    ("s8", 16), ("s8", 32), ("u8", 16), ("u8", 32), ("e4m3", 32), ("e5m2", 32),
]  # fmt: skip


def mma_source(kind_a: str, kind_b: str, depth: int, out_kind: str) -> str:
    """A kernel `k(a, b, c, o)` around one mma.sync.m16n8; registers come and go as the hardware has them."""
    chunks = depth // (4 * PER_REGISTER[kind_a])
    letter, c_type = {"f32": ("f", "float"), "s32": ("r", "int"), "f16": ("r", "unsigned")}[
        out_kind
    ]
    outs = 2 if out_kind == "f16" else 4
    starts = ((0, outs), (outs, 2 * chunks), (outs + 2 * chunks, chunks))
    d, a, b = (", ".join(f"%{start + i}" for i in range(count)) for start, count in starts)
    ins = [f'"r"(a[{i} * 32 + l])' for i in range(2 * chunks)]
    ins += [f'"r"(b[{i} * 32 + l])' for i in range(chunks)]
    return wrap(
        f"""int l = threadIdx.x; {c_type} d[{outs}]; for (int i = 0; i < {outs}; i++) d[i] = c[i * 32 + l];
        asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.{out_kind}.{kind_a}.{kind_b}.{out_kind} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};"
          : {", ".join(f'"+{letter}"(d[{i}])' for i in range(outs))} : {", ".join(ins)});
        for (int i = 0; i < {outs}; i++) o[i * 32 + l] = d[i];""",
        f"const unsigned *a, const unsigned *b, const {c_type} *c, {c_type} *o",
    )


def _mma(kind_a: str, kind_b: str, depth: int, out_kind: str = "") -> Case:
    chunks = depth // (4 * PER_REGISTER[kind_a])
    fp8, integer = kind_a.startswith("e"), kind_a in ("s8", "u8")
    out_kind = out_kind or ("s32" if integer else "f32")
    rng = np.random.default_rng(5)
    if out_kind == "f16":
        c = random_words("f16", (2, 32), 3)
    elif integer:
        c = rng.integers(-(2**30), 2**30, (4, 32), dtype=np.int32)
    else:
        c = rng.uniform(-2, 2, (4, 32)).astype(np.float32)
    words_a, words_b = (
        random_words(kind_a, (2 * chunks, 32), 1),
        random_words(kind_b, (chunks, 32), 2),
    )
    o = np.zeros_like(c)
    # Halves are compared as numbers: two lie in each word.
    if out_kind == "f16":
        o = o.view(np.float16)
    tolerance = 4e-3 if out_kind == "f16" else 0.0 if integer else 2e-3 if fp8 else 1e-5
    kinds = kind_a if kind_a == kind_b else f"{kind_a} {kind_b}"
    return Case(
        f"mma {kinds} k{depth}" + (" to f16" if out_kind == "f16" else ""),
        mma_source(kind_a, kind_b, depth, out_kind),
        (words_a, words_b, c, o),
        (3,),
        arch="sm_89" if fp8 else "sm_80",
        tolerance=tolerance,
    )


def _mma_f64() -> Case:
    rng = np.random.default_rng(6)
    a, b, c = rng.uniform(-1, 1, 32), rng.uniform(-1, 1, 32), rng.uniform(-1, 1, (2, 32))
    source = wrap(
        """int l = threadIdx.x; double d[2] = {c[l], c[32 + l]};
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(d[0]), "+d"(d[1]) : "d"(a[l]), "d"(b[l]));
        o[l] = d[0]; o[32 + l] = d[1];""",
        "const double *a, const double *b, const double *c, double *o",
    )
    return Case("mma f64 k4", source, (a, b, c, np.zeros_like(c)), (3,), tolerance=1e-14)


# ---- ldmatrix and stmatrix ----
def _registers(count: int, first: int) -> str:
    return ", ".join(f"%{first + i}" for i in range(count))


def _ldmatrix(count: int, trans: str) -> Case:
    """Rows in an order of their own, 16 bytes apart from one another in a shuffled buffer."""
    source = wrap(
        f"""__shared__ __align__(16) unsigned short s[264]; int l = threadIdx.x; unsigned r[4] = {{}};
        for (int i = l; i < 264; i += 32) s[i] = a[i]; __syncwarp();
        unsigned at = (unsigned)__cvta_generic_to_shared(&s[(l * 5 + 3) % 33 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{_registers(count, 0)}}}, [%{count}];" : {", ".join(f'"=r"(r[{i}])' for i in range(count))} : "r"(at));
        for (int i = 0; i < {count}; i++) o[i * 32 + l] = r[i];""",
        "const unsigned short *a, unsigned *o",
    )
    a = np.random.default_rng(count).integers(0, 1 << 16, 264).astype(np.uint16)
    return Case(
        f"ldmatrix x{count}{trans}", source, (a, np.zeros(32 * count, np.uint32)), (1,), "sm_80"
    )


def _stmatrix(count: int, trans: str) -> Case:
    source = wrap(
        f"""__shared__ __align__(16) unsigned short s[264]; int l = threadIdx.x;
        for (int i = l; i < 264; i += 32) s[i] = 0; __syncwarp();
        unsigned at = (unsigned)__cvta_generic_to_shared(&s[(l * 5 + 3) % 33 * 8]);
        asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{_registers(count, 1)}}};" :: "r"(at), {", ".join(f'"r"(a[{i} * 32 + l])' for i in range(count))} : "memory");
        __syncwarp(); for (int i = l; i < 264; i += 32) o[i] = s[i];""",
        "const unsigned *a, unsigned short *o",
    )
    a = np.random.default_rng(count).integers(0, 2**32, (count, 32), dtype=np.uint32)
    return Case(f"stmatrix x{count}{trans}", source, (a, np.zeros(264, np.uint16)), (1,), "sm_90")


# ---- wmma ----
WMMA_HEADERS = HALF_HEADERS + "#include <mma.h>\nusing namespace nvcuda;"
# Name -> type in memory, type of the fragment, K.
WMMA_TYPES = {
    "f16": ("__half", "__half", 16),
    "bf16": ("__nv_bfloat16", "__nv_bfloat16", 16),
    "tf32": ("float", "wmma::precision::tf32", 8),
    "s8": ("signed char", "signed char", 16),
    "u8": ("unsigned char", "unsigned char", 16),
}


def _wmma(
    kind: str, m: int, n: int, layout_a: str, layout_b: str, store: str, acc: str, shared: bool
) -> Case:
    """D = A B + C through wmma.load, wmma.mma and wmma.store, by global or shared memory."""
    storage, fragment, k = WMMA_TYPES[kind]
    stride_a = (k if layout_a == "row" else m) + 16
    stride_b = (n if layout_b == "row" else k) + 16
    stride_c = (n if store == "row" else m) + 8
    lines_a, lines_b = (m if layout_a == "row" else k), (k if layout_b == "row" else n)
    lines_c = m if store == "row" else n
    count_a, count_b, count_c = lines_a * stride_a, lines_b * stride_b, lines_c * stride_c
    head = f"""__shared__ __align__(32) {storage} sa[{count_a}], sb[{count_b}]; __shared__ __align__(32) {acc} sc[{count_c}];
        for (int i = threadIdx.x; i < {count_a}; i += 32) sa[i] = a[i];
        for (int i = threadIdx.x; i < {count_b}; i += 32) sb[i] = b[i];
        for (int i = threadIdx.x; i < {count_c}; i += 32) sc[i] = c[i]; __syncwarp();"""
    pa, pb, pc = ("sa", "sb", "sc") if shared else ("a", "b", "c")
    tail = f"__syncwarp(); for (int i = threadIdx.x; i < {count_c}; i += 32) o[i] = sc[i];"
    round_ = "fa.x[i] = wmma::__float_to_tf32(fa.x[i]);" if kind == "tf32" else ""
    source = wrap(
        f"""{head if shared else ""}
        wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {fragment}, wmma::{layout_a}_major> fa;
        wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {fragment}, wmma::{layout_b}_major> fb;
        wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {acc}> fc;
        wmma::load_matrix_sync(fa, {pa}, {stride_a}); wmma::load_matrix_sync(fb, {pb}, {stride_b});
        wmma::load_matrix_sync(fc, {pc}, {stride_c}, wmma::mem_{store}_major);
        for (int i = 0; i < fa.num_elements; i++) {{ {round_} }}
        wmma::mma_sync(fc, fa, fb, fc);
        wmma::store_matrix_sync({"sc" if shared else "o"}, fc, {stride_c}, wmma::mem_{store}_major);
        {tail if shared else ""}""",
        f"const {storage} *a, const {storage} *b, const {acc} *c, {acc} *o",
        WMMA_HEADERS,
    )
    elements = DTYPES[kind]
    per = PER_REGISTER[kind]
    a = random_words(kind, (count_a // per,), 1).view(elements)
    b = random_words(kind, (count_b // per,), 2).view(elements)
    kind_c = {"float": np.float32, "int": np.int32, "__half": np.float16}[acc]
    c = np.random.default_rng(3).uniform(-8, 8, count_c).astype(kind_c)
    half = acc == "__half"
    return Case(
        f"wmma {kind} {m}x{n}x{k} {layout_a} {layout_b} {store}"
        + (" to f16" if half else "") + (" shared" if shared else ""),
        source, (a, b, c, np.zeros_like(c)), (3,),
        tolerance=0.0 if acc == "int" else 4e-3 if half else 1e-5,
    )  # fmt: skip


def _wmma_fragment(kind: str, acc: str) -> Case:
    """Which element each lane holds where; CUDA leaves it open, ptxas doesn't."""
    storage, fragment, k = WMMA_TYPES[kind]
    elements = DTYPES[kind]
    source = wrap(
        f"""wmma::fragment<wmma::matrix_a, 16, 16, {k}, {fragment}, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, {k}, {fragment}, wmma::row_major> fb;
        wmma::fragment<wmma::accumulator, 16, 16, {k}, {acc}> fc;
        wmma::load_matrix_sync(fa, a, {k}); wmma::load_matrix_sync(fb, b, 16); wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
        for (int i = 0; i < fa.num_elements; i++) oa[i * 32 + threadIdx.x] = fa.x[i];
        for (int i = 0; i < fb.num_elements; i++) ob[i * 32 + threadIdx.x] = fb.x[i];
        for (int i = 0; i < fc.num_elements; i++) oc[i * 32 + threadIdx.x] = fc.x[i];""",
        f"const {storage} *a, const {storage} *b, const {acc} *c, {storage} *oa, {storage} *ob, {acc} *oc",
        WMMA_HEADERS,
    )
    per = PER_REGISTER[kind]
    a, b = (random_words(kind, (16 * k // per,), seed).view(elements) for seed in (1, 2))
    c = np.random.default_rng(3).uniform(-8, 8, 256)
    c = c.astype({"float": np.float32, "int": np.int32, "__half": np.float16}[acc])
    out = np.zeros(32 * 16, elements)
    return Case(
        f"wmma fragments {kind} {acc}", source, (a, b, c, out, out.copy(), np.zeros_like(c)),
        (3, 4, 5),
    )  # fmt: skip


def matrix_cases() -> Iterator[Case]:
    """All of them."""
    for kind, depth in MMA_SHAPES:
        yield _mma(kind, kind, depth)
    yield _mma("s8", "u8", 32)
    yield _mma("e4m3", "e5m2", 32)
    yield _mma("f16", "f16", 8, "f16")
    yield _mma("f16", "f16", 16, "f16")
    yield _mma_f64()
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            yield _ldmatrix(count, trans)
            yield _stmatrix(count, trans)
    for kind in WMMA_TYPES:
        acc = "int" if kind in ("s8", "u8") else "float"
        for layouts in (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")):
            yield _wmma(kind, 16, 16, *layouts, "row", acc, shared=False)
        yield _wmma(kind, 16, 16, "row", "col", "col", acc, shared=True)
        yield _wmma_fragment(kind, acc)
    for m, n in ((32, 8), (8, 32)):
        for kind in ("f16", "bf16", "s8"):
            acc = "int" if kind == "s8" else "float"
            yield _wmma(kind, m, n, "row", "row", "row", acc, shared=False)
            yield _wmma(kind, m, n, "col", "col", "col", acc, shared=False)
    yield _wmma("f16", 16, 16, "row", "row", "row", "__half", shared=False)
    yield _wmma("f16", 16, 16, "col", "col", "col", "__half", shared=True)
    yield _wmma_fragment("f16", "__half")
