"""Each family of instructions against NumPy, through CUDA or through PTX by hand."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import math

import numpy as np
import pytest
from emulator_helpers import HALF_HEADERS, ptx_kernel, run, wrap

from gemm_lab.emulator import load_ptx

I32 = np.array(
    [0, 1, -1, 2, -2, 7, -7, 31, 32, 33, 12345, -54321, 2**31 - 1, -(2**31), 0x5A5A5A5A, -99],
    dtype=np.int32,
)
F32 = np.array(
    [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 1e-3, 1e30, -1e30, np.inf, -np.inf, np.nan, 3.7, -3.7],
    dtype=np.float32,
)


def grid(values):
    """All pairs of a list of values."""
    a, b = np.meshgrid(values, values, indexing="ij")
    return a.ravel().copy(), b.ravel().copy()


def binary(c_type: str, expression: str, values, out_type: str | None = None, out=None):
    a, b = grid(values)
    result = np.zeros(len(a), dtype=out or values.dtype)
    source = wrap(
        f"int i = threadIdx.x; {c_type} x = a[i], y = b[i]; o[i] = {expression};",
        f"const {c_type} *a, const {c_type} *b, {out_type or c_type} *o",
        HALF_HEADERS if "half" in c_type or "bfloat" in c_type else "",
    )
    run(source, a, b, result, block=(len(a),))
    return a, b, result


INT_CASES = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x & y": lambda x, y: x & y,
    "x | ~y": lambda x, y: x | ~y,
    "x ^ y": lambda x, y: x ^ y,
    "x << (y & 31)": lambda x, y: x << (y & 31),
    "x >> (y & 31)": lambda x, y: x >> (y & 31),
    "(int)((unsigned)x >> (y & 31))": lambda x, y: (
        x.view(np.uint32) >> (y & 31).astype(np.uint32)
    ).view(np.int32),
    "min(x, y)": np.minimum,
    "max(x, y)": np.maximum,
    "(int)min((unsigned)x, (unsigned)y)": lambda x, y: np.minimum(
        x.view(np.uint32), y.view(np.uint32)
    ).view(np.int32),
    "x < y ? x : y + 1": lambda x, y: np.where(x < y, x, y + 1),
    "((unsigned)x < (unsigned)y) ? 1 : 0": lambda x, y: (
        x.view(np.uint32) < y.view(np.uint32)
    ).astype(np.int32),
    "__mulhi(x, y)": lambda x, y: ((x.astype(np.int64) * y) >> 32).astype(np.int32),
    "(int)__umulhi(x, y)": lambda x, y: (
        (x.view(np.uint32).astype(np.uint64) * y.view(np.uint32)) >> np.uint64(32)
    ).astype(np.uint32).view(np.int32),
    "abs(x) + y": lambda x, y: np.abs(x) + y,
    "__popc(x) + __clz(y)": lambda x, y: np.array(
        [bin(int(p) & 0xFFFFFFFF).count("1") + 32 - (int(q) & 0xFFFFFFFF).bit_length()
         for p, q in zip(x, y, strict=True)], dtype=np.int32),
    "__ffs(x) + (int)__brev(y)": lambda x, y: np.array(
        [((int(p) & -int(p)) & 0xFFFFFFFF).bit_length()
         + int(np.array(int(f"{int(q) & 0xFFFFFFFF:032b}"[::-1], 2), np.uint32).view(np.int32))
         for p, q in zip(x, y, strict=True)], dtype=np.int64).astype(np.int32),
    "__byte_perm(x, y, 0x3715)": lambda x, y: np.array(
        [int.from_bytes(bytes(
            ((int(p) & 0xFFFFFFFF) | (int(q) & 0xFFFFFFFF) << 32).to_bytes(8, "little")[n]
            for n in (5, 1, 7, 3)), "little") for p, q in zip(x, y, strict=True)],
        dtype=np.uint32).view(np.int32),
    "(int)__funnelshift_l(x, y, 9)": lambda x, y: (
        (((y.view(np.uint32).astype(np.uint64) << np.uint64(32)) | x.view(np.uint32))
         << np.uint64(9)) >> np.uint64(32)).astype(np.uint32).view(np.int32),
    "__dp4a(x, y, 5)": lambda x, y: 5 + (
        x[:, None].view(np.int8).astype(np.int32) * y[:, None].view(np.int8)
    ).sum(axis=1, dtype=np.int32),
}  # fmt: skip


@pytest.mark.parametrize("expression", INT_CASES)
def test_integers(expression):
    a, b, result = binary("int", expression, I32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, INT_CASES[expression](a, b).astype(np.int32))


@pytest.mark.parametrize("c_type", ["int", "unsigned", "long long", "unsigned long long"])
def test_division_truncates(c_type):
    kind = {"int": np.int32, "unsigned": np.uint32, "long long": np.int64}.get(c_type, np.uint64)
    values = I32[I32 != 0].astype(np.int64).astype(kind)
    a, b, quotient = binary(c_type, "x / y", values)
    _, _, remainder = binary(c_type, "x % y", values)
    for x, y, q, r in zip(
        a.tolist(), b.tolist(), quotient.tolist(), remainder.tolist(), strict=True
    ):
        want = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        if kind == np.int32 and (x, y) == (-(2**31), -1):
            continue
        assert (q, r) == (want, x - want * y)


FLOAT_CASES = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "x * y": lambda x, y: x * y,
    "x / y": lambda x, y: x / y,
    "fminf(x, y)": np.fmin,
    "fmaxf(x, y)": np.fmax,
    "x < y ? 1.f : x == y ? 2.f : 3.f": lambda x, y: np.where(x < y, 1, np.where(x == y, 2, 3)),
    "x != y ? 1.f : 0.f": lambda x, y: (x != y).astype(np.float32),
    "!(x >= y) ? 1.f : 0.f": lambda x, y: (~(x >= y)).astype(np.float32),
    "fabsf(x) - y": lambda x, y: np.abs(x) - y,
    "sqrtf(x) + y": lambda x, y: np.sqrt(x) + y,
    "copysignf(x, y)": np.copysign,
    "rintf(x) + y": lambda x, y: np.rint(x) + y,
    "floorf(x) + ceilf(y)": lambda x, y: np.floor(x) + np.ceil(y),
    "__saturatef(x) + y": lambda x, y: np.where(np.isnan(x), 0, np.clip(x, 0, 1)) + y,
    "isnan(x) ? 1.f : isinf(y) ? 2.f : 0.f": lambda x, y: np.where(
        np.isnan(x), 1, np.where(np.isinf(y), 2, 0)
    ),
}


@pytest.mark.parametrize("expression", FLOAT_CASES)
def test_float32(expression):
    a, b, result = binary("float", expression, F32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, FLOAT_CASES[expression](a, b).astype(np.float32))


@pytest.mark.parametrize("expression", ["x + y", "x * y", "x / y", "fmin(x, y)", "sqrt(x) - y"])
def test_float64(expression):
    a, b, result = binary("double", expression, F32.astype(np.float64))
    table = {"fmin(x, y)": np.fmin, "sqrt(x) - y": lambda x, y: np.sqrt(x) - y}
    with np.errstate(all="ignore"):
        want = table.get(expression, FLOAT_CASES.get(expression))(a, b)
    np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize(
    ("expression", "function", "tolerance"),
    [
        ("expf(x)", np.exp, 3e-7),
        ("logf(fabsf(x) + 1.f)", lambda x: np.log(np.abs(x) + 1), 3e-7),
        ("tanhf(x)", np.tanh, 5e-7),
        ("erff(x)", np.vectorize(math.erf), 5e-7),
        ("sinf(x)", np.sin, 5e-7),
        ("__expf(x)", np.exp, 2e-6),
        ("rsqrtf(x * x + 1.f)", lambda x: 1 / np.sqrt(x * x + 1), 3e-7),
        ("__fdividef(x, 3.f)", lambda x: x / 3, 3e-7),
        ("powf(fabsf(x) + 0.5f, 1.5f)", lambda x: (np.abs(x) + 0.5) ** 1.5, 3e-6),
        ("(float)exp((double)x)", np.exp, 1e-7),
    ],
)
def test_functions(expression, function, tolerance):
    x = np.linspace(-4, 4, 64).astype(np.float32)
    o = np.zeros_like(x)
    run(
        wrap(f"int i = threadIdx.x; float x = a[i]; o[i] = {expression};", "float *a, float *o"),
        x,
        o,
        block=(64,),
    )
    want = function(x.astype(np.float64))
    np.testing.assert_allclose(o, want, rtol=tolerance, atol=tolerance * 0.3)


def exact(a, b, c, kind):
    """a * b + c rounded once, by whole numbers."""
    from fractions import Fraction

    out = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        total = Fraction(x) * Fraction(y) + Fraction(z)
        near = kind(float(total))
        candidates = [near, np.nextafter(near, kind(np.inf)), np.nextafter(near, kind(-np.inf))]
        best = min(
            candidates,
            key=lambda v: (abs(Fraction(float(v)) - total), int(v.view(f"i{v.nbytes}")) & 1),
        )
        out.append(best)
    return np.array(out, dtype=kind)


@pytest.mark.parametrize(("c_type", "kind"), [("float", np.float32), ("double", np.float64)])
def test_exact_fma_rounds_once(c_type, kind):
    rng = np.random.default_rng(5)
    a, b, c = rng.uniform(-2, 2, (3, 1024)).astype(kind)
    # Sums that lie close to half-way, and subnormal ones.
    b[:256] = kind(1) + np.finfo(kind).eps * rng.integers(0, 4, 256)
    a[:256] = kind(1) + np.finfo(kind).eps * rng.integers(0, 4, 256)
    c[:256] = np.finfo(kind).eps / 2 * rng.choice([1, -1, 1.0000001], 256)
    if kind is np.float32:
        a[256:512] *= kind(1e-22)
        b[256:512] *= kind(1e-20)
        c[256:512] *= kind(1e-41)
    o = np.zeros_like(a)
    source = wrap(
        "int i = threadIdx.x; o[i] = fma(a[i], b[i], c[i]);",
        f"{c_type} *a, {c_type} *b, {c_type} *c, {c_type} *o",
    )
    run(source, a, b, c, o, block=(1024,), exact_fma=True)
    np.testing.assert_array_equal(o, exact(a, b, c, kind))


CONVERSIONS = [
    ("float", "(float)x", I32, np.float32, lambda x: x.astype(np.float32)),
    ("int", "(int)x", F32, np.int32, None),
    ("long long", "(long long)x", I32, np.int64, lambda x: x.astype(np.int64)),
    ("unsigned char", "(unsigned char)x", I32, np.uint8, lambda x: x.astype(np.uint8)),
    ("short", "(short)x", I32, np.int16, lambda x: x.astype(np.int16)),
    ("double", "(double)x", F32, np.float64, lambda x: x.astype(np.float64)),
    ("int", "__float2int_rn(x)", F32, np.int32, None),
    ("unsigned", "(unsigned)x", F32, np.uint32, None),
]


@pytest.mark.parametrize(("to", "expression", "values", "kind", "want"), CONVERSIONS)
def test_conversions(to, expression, values, kind, want):
    of = {"int32": "int", "float32": "float"}[values.dtype.name]
    o = np.zeros(len(values), dtype=kind)
    run(
        wrap(f"int i = threadIdx.x; {of} x = a[i]; o[i] = {expression};", f"{of} *a, {to} *o"),
        values.copy(),
        o,
        block=(len(values),),
    )
    if want is None:
        info = np.iinfo(kind)
        rounding = np.rint if "rn" in expression else np.trunc
        clipped = np.nan_to_num(
            rounding(values.astype(np.float64)), nan=0.0, posinf=1e300, neginf=-1e300
        )
        expected = np.array([int(min(max(v, info.min), info.max)) for v in clipped], dtype=kind)
    else:
        expected = want(values)
    np.testing.assert_array_equal(o, expected)


@pytest.mark.parametrize("kind", ["__half", "__nv_bfloat16"])
def test_half_arithmetic_rounds_to_the_type(kind):
    import ml_dtypes

    dtype = np.float16 if kind == "__half" else ml_dtypes.bfloat16
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-8, 8, (2, 128)).astype(np.float32).astype(dtype)
    o = np.zeros((4, 128), dtype=dtype)
    pair = "__half2" if kind == "__half" else "__nv_bfloat162"
    source = wrap(
        f"""int i = threadIdx.x;
        o[i] = __hadd(a[i], b[i]); o[128 + i] = __hmul(a[i], b[i]);
        o[256 + i] = __hfma(a[i], b[i], a[i]);
        if (i < 64) (({pair} *)o)[192 + i] = __hfma2((({pair} *)a)[i], (({pair} *)b)[i], (({pair} *)b)[i]);""",
        f"{kind} *a, {kind} *b, {kind} *o",
        HALF_HEADERS,
    )
    bits_a, bits_b, bits_o = a.view(np.int16), b.view(np.int16), o.view(np.int16)
    run(source, bits_a, bits_b, bits_o, block=(128,))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    for row, want in enumerate(
        [wide_a + wide_b, wide_a * wide_b, wide_a * wide_b + wide_a, wide_a * wide_b + wide_b]
    ):
        got = bits_o[row].view(dtype).astype(np.float64)
        step = np.abs(want) * (2.0**-11 if kind == "__half" else 2.0**-8)
        assert (np.abs(got - want) <= step * 1.0001).all(), row


def test_float_to_half_and_back():
    import ml_dtypes

    x = np.random.default_rng(2).uniform(-70000, 70000, 128).astype(np.float32)
    x[:8] = [0, -0.0, 1e-7, 65504, 65520, np.inf, 2049, 2051]
    h = np.zeros(128, np.int16)
    b = np.zeros(128, np.int16)
    back = np.zeros(128, np.float32)
    source = wrap(
        "int i = threadIdx.x; h[i] = __float2half(x[i]); b[i] = __float2bfloat16(x[i]);"
        "o[i] = __half2float(h[i]);",
        "float *x, __half *h, __nv_bfloat16 *b, float *o",
        HALF_HEADERS,
    )
    run(source, x, h, b, back, block=(128,))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(h.view(np.float16), x.astype(np.float16))
    np.testing.assert_array_equal(b, x.astype(ml_dtypes.bfloat16).view(np.int16))
    np.testing.assert_array_equal(back, h.view(np.float16).astype(np.float32))


PTX_CASES = [
    ("shl.b32 %r2, %r1, 40;", lambda t: 0 * t),
    ("shr.s32 %r2, -8, 99;", lambda t: 0 * t - 1),
    ("shl.b32 %r2, 1, %r1;", lambda t: np.where(t < 32, 1 << np.minimum(t, 31), 0)),
    ("bfe.u32 %r2, 0xABCD, %r1, 4;", lambda t: (0xABCD >> t) & 15),
    ("bfe.s32 %r2, 0x8, 0, 4;", lambda t: 0 * t - 8),
    ("bfi.b32 %r2, 0xF, 0, %r1, 2;", lambda t: (3 << t)),
    ("lop3.b32 %r2, %r1, 0xF0, 0xCC, 0x96;", lambda t: t ^ 0xF0 ^ 0xCC),
    ("mul24.lo.s32 %r2, %r1, -3;", lambda t: t * -3),
    ("sad.s32 %r2, %r1, 10, 5;", lambda t: np.abs(t - 10) + 5),
    ("mad.lo.s32 %r2, %r1, 3, 4;", lambda t: 3 * t + 4),
    ("slct.s32.s32 %r2, 1, 2, %r1;", lambda t: 0 * t + 1),
    ("set.gt.u32.s32 %r2, %r1, 3;", lambda t: np.where(t > 3, -1, 0)),
    ("{ .reg .pred q; setp.gt.s32 q, %r1, 3; selp.b32 %r2, 1, 0, q; }", lambda t: (t > 3) * 1),
    ("setp.gt.s32 %p1|%p2, %r1, 3; selp.b32 %r2, 1, 0, %p2;", lambda t: (t <= 3) * 1),
    ("mov.u32 %r2, 5; setp.gt.s32 %p1, %r1, 3; @%p1 mov.u32 %r2, 9;", lambda t: np.where(t > 3, 9, 5)),
    ("mov.u32 %r2, 5; setp.gt.s32 %p1, %r1, 3; @!%p1 add.s32 %r2, %r2, %r1;", lambda t: np.where(t > 3, 5, 5 + t)),
    ("mov.b64 %rd5, {%r1, 7}; mov.b64 {_, %r2}, %rd5;", lambda t: 0 * t + 7),
    ("cvt.u16.u32 %rs1, %r1; mov.b32 %r2, {%rs1, 1};", lambda t: t + 65536),
    ("cvt.sat.u8.s32 %r2, -5;", lambda t: 0 * t),
    ("mov.u32 %r2, %laneid;", lambda t: t),
    ("st.global.u32 [%rd3], 0x8180; membar.gl; ld.global.b8 %r2, [%rd3];", lambda t: 0 * t + 0x80),
    ("st.global.u32 [%rd3], 0x8180; ld.global.b16 %r2, [%rd3];", lambda t: 0 * t + 0x8180),
    ("st.global.u32 [%rd3], 0x8180; ld.global.s8 %r2, [%rd3];", lambda t: 0 * t - 128),
    ("popc.b32 %r2, %r1;", lambda t: np.array([bin(v).count("1") for v in t])),
    ("cvt.rn.f32.s32 %f1, %r1; fma.rz.f32 %f2, %f1, 0f3F000000, 0f3E800000; cvt.rzi.s32.f32 %r2, %f2;", lambda t: np.trunc(t / 2 + 0.25)),
    ("cvt.rn.f32.s32 %f1, %r1; add.rp.f32 %f2, %f1, 0f30000000; mov.b32 %r3, %f2; mov.b32 %r4, %f1; sub.s32 %r2, %r3, %r4; min.s32 %r2, %r2, 1;", lambda t: 0 * t + 1),
    ("bra L1; mov.u32 %r2, 1; L1: mov.u32 %r2, 2;", lambda t: 0 * t + 2),
    ("and.b32 %r3, %r1, 1; brx.idx %r3, TS; TS: .branchtargets LA, LB; LA: mov.u32 %r2, 10; bra LC; LB: mov.u32 %r2, 11; LC:", lambda t: 10 + t % 2),
]  # fmt: skip


@pytest.mark.parametrize(("body", "want"), PTX_CASES, ids=[body[:30] for body, _ in PTX_CASES])
def test_ptx(body, want):
    text = ptx_kernel(
        "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n"
        f"add.s64 %rd3, %rd1, %rd2;\n{body}\nst.global.u32 [%rd3], %r2;"
    )
    o = np.zeros(32, dtype=np.int32)
    run(load_ptx(text), o)
    np.testing.assert_array_equal(o, want(np.arange(32)).astype(np.int32))


@pytest.mark.parametrize("form", ["e4m3x2", "e5m2x2"])
def test_fp8_conversions(form):
    import ml_dtypes

    dtype = ml_dtypes.float8_e4m3fn if form == "e4m3x2" else ml_dtypes.float8_e5m2
    x = np.random.default_rng(3).uniform(-20, 20, 32).astype(np.float32)
    o = np.zeros(32, np.int32)
    text = ptx_kernel(
        "ld.param.u64 %rd1, [out];\nld.param.u64 %rd4, [x];\nmov.u32 %r1, %tid.x;\n"
        "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nadd.s64 %rd5, %rd4, %rd2;\n"
        f"ld.global.f32 %f1, [%rd5];\ncvt.rn.satfinite.{form}.f32 %rs1, 0f3F800000, %f1;\n"
        "cvt.u32.u16 %r2, %rs1;\nst.global.u32 [%rd3], %r2;",
        ".param .u64 out, .param .u64 x",
    )
    run(load_ptx(text), o, x)
    np.testing.assert_array_equal(o & 0xFF, x.astype(dtype).view(np.uint8))
    assert ((o >> 8) == np.array(1, dtype).view(np.uint8)).all()
