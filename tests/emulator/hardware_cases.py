"""Kernels whose outputs on a card are recorded and compared with the emulator's.

Record them where there is a card: python tests/emulator/record_hardware.py
"""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
from emulator_helpers import HALF_HEADERS, wrap
from hardware_case import Case, TensorMapOver
from hardware_copy_cases import copy_cases
from hardware_matrix_cases import matrix_cases
from hardware_wgmma_cases import wgmma_cases
from tensor_kernels import HOPPER, WARP_SPECIALIZED, WGMMA_GEMM, wgmma_call

RECORDED = Path(__file__).parent / "recorded" / "hardware.npz"


UNARY = {
    "ex2": ("ex2.approx.f32 %0, %1;", -20, 20, 4e-7),
    "lg2": ("lg2.approx.f32 %0, %1;", 0.01, 100, 2e-6),
    "rcp": ("rcp.approx.f32 %0, %1;", 0.01, 100, 2e-7),
    "rsqrt": ("rsqrt.approx.f32 %0, %1;", 0.01, 100, 3e-7),
    "sqrt approx": ("sqrt.approx.f32 %0, %1;", 0.01, 100, 3e-7),
    "sqrt": ("sqrt.rn.f32 %0, %1;", 0, 100, 0),
    "sin": ("sin.approx.f32 %0, %1;", -3, 3, 0),
    "cos": ("cos.approx.f32 %0, %1;", -3, 3, 0),
    "tanh": ("tanh.approx.f32 %0, %1;", -4, 4, 1e-3),
    "round": ("cvt.rni.f32.f32 %0, %1;", -9, 9, 0),
    "rcp rn": ("rcp.rn.f32 %0, %1;", 0.01, 100, 0),
    "tf32": ("{ .reg .b32 t; cvt.rna.tf32.f32 t, %1; mov.b32 %0, t; }", -9, 9, 0),
    "half": ("{ .reg .b16 t; cvt.rn.f16.f32 t, %1; cvt.f32.f16 %0, t; }", -70000, 70000, 0),
    "fma rz": ("fma.rz.f32 %0, %1, %1, 0f3F9E0652;", -9, 9, 0),
    "add rp": ("add.rp.f32 %0, %1, 0f3F9E0652;", -9, 9, 0),
}


# PTX ISA: errors of sin.approx and cos.approx are absolute, in -2 pi to 2 pi.
ABSOLUTE = {"sin": 2**-20.5, "cos": 2**-20.5}


def _unary_cases() -> Iterator[Case]:
    for name, (text, low, high, tolerance) in UNARY.items():
        x = np.random.default_rng(7).uniform(low, high, 1024).astype(np.float32)
        source = wrap(
            f'int i = threadIdx.x; float y; asm("{text}" : "=f"(y) : "f"(a[i])); o[i] = y;',
            "const float *a, float *o",
        )
        yield Case(
            name, source, (x, np.zeros_like(x)), (1,), block=1024, tolerance=tolerance,
            absolute=ABSOLUTE.get(name, 0.0),
        )  # fmt: skip


def _fma_cases() -> Iterator[Case]:
    rng = np.random.default_rng(11)
    for c_type, dtype in (("float", np.float32), ("double", np.float64)):
        a, b, c = rng.uniform(-2, 2, (3, 1024)).astype(dtype)
        b[:256] = 1 + np.finfo(dtype).eps * rng.integers(0, 4, 256)
        a[:256] = 1 + np.finfo(dtype).eps * rng.integers(0, 4, 256)
        c[:256] = np.finfo(dtype).eps / 2 * rng.choice([1, -1, 1.0000001], 256)
        source = wrap(
            "int i = threadIdx.x; o[i] = fma(a[i], b[i], c[i]);",
            f"const {c_type} *a, const {c_type} *b, const {c_type} *c, {c_type} *o",
        )
        yield Case(f"fma {c_type}", source, (a, b, c, np.zeros_like(a)), (3,), block=1024)
    for kind, dtype in (("__half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16)):
        a, b, c = rng.uniform(-4, 4, (3, 256)).astype(np.float32).astype(dtype)
        source = wrap(
            "int i = threadIdx.x; o[i] = __hfma(a[i], b[i], c[i]); o[256 + i] = __hadd(a[i], b[i]); o[512 + i] = __hmul(a[i], c[i]);",
            f"const {kind} *a, const {kind} *b, const {kind} *c, {kind} *o", HALF_HEADERS,
        )  # fmt: skip
        args = tuple(v.view(np.uint16) for v in (a, b, c))
        yield Case(f"arithmetic {kind}", source, (*args, np.zeros(768, np.uint16)), (3,), block=256)


CONVERSIONS = {
    "e4m3x2": ("cvt.rn.satfinite.e4m3x2.f32 r, %1, %2;", 600.0),
    "e5m2x2": ("cvt.rn.satfinite.e5m2x2.f32 r, %1, %2;", 70000.0),
    "e4m3x2 relu": ("cvt.rn.satfinite.relu.e4m3x2.f32 r, %1, %2;", 3.0),
}
PACKED = {
    "bf16x2": ("cvt.rn.bf16x2.f32 %0, %1, %2;", 600.0),
    "f16x2": ("cvt.rn.f16x2.f32 %0, %1, %2;", 70000.0),
    "f16x2 rz": ("cvt.rz.f16x2.f32 %0, %1, %2;", 3.0),
}


def _conversion_cases() -> Iterator[Case]:
    texts = {
        name: ("{ .reg .b16 r; " + text + " cvt.u32.u16 %0, r; }", scale)
        for name, (text, scale) in CONVERSIONS.items()
    }
    for name, (text, scale) in {**PACKED, **texts}.items():
        rng = np.random.default_rng(13)
        a, b = rng.uniform(-scale, scale, (2, 1024)).astype(np.float32)
        a[:512] *= np.exp2(rng.uniform(-30, 0, 512)).astype(np.float32)
        source = wrap(
            f'int i = threadIdx.x; unsigned y; asm("{text}" : "=r"(y) : "f"(a[i]), "f"(b[i])); o[i] = y;',
            "const float *a, const float *b, unsigned *o",
        )
        out = np.zeros(1024, np.uint32)
        arch = "sm_89" if name in CONVERSIONS else "sm_80"
        yield Case(f"cvt {name}", source, (a, b, out), (2,), arch=arch, block=1024)
    for kind in ("e4m3", "e5m2"):
        source = wrap(
            f'int i = threadIdx.x; unsigned y; asm("{{ .reg .b16 r; cvt.u16.u32 r, %1; cvt.rn.f16x2.{kind}x2 %0, r; }}" : "=r"(y) : "r"(i | (255 - i) << 8)); o[i] = y;',
            "unsigned *o",
        )
        # Not a number has many patterns; 0x7f and 0xff of e4m3, 0x7d and up of e5m2 are left out.
        source = source.replace(
            "o[i] = y;", f"if (i % 128 < {127 if kind == 'e4m3' else 125} && i % 128 > 2) o[i] = y;"
        )
        yield Case(
            f"cvt {kind} f16", source, (np.zeros(256, np.uint32),), (0,), arch="sm_89", block=256
        )


def _wgmma_cases() -> Iterator[Case]:
    kinds = {
        "f16.f16": (np.float16, 64),
        "bf16.bf16": (ml_dtypes.bfloat16, 64),
        "tf32.tf32": (np.float32, 32),
        "e4m3.e4m3": (ml_dtypes.float8_e4m3fn, 128),
    }
    for name, (dtype, tile) in kinds.items():
        for columns in (8, 128):
            rng = np.random.default_rng(3)
            a = rng.uniform(-2, 2, (64, 3 * tile)).astype(np.float32).astype(dtype)
            b = rng.uniform(-2, 2, (columns, 3 * tile)).astype(np.float32).astype(dtype)
            source = HOPPER + wgmma_call(
                columns, name, "p, 1, 1, 0, 0" if tile == 64 else "p, 1, 1"
            )
            source += f"#define N {columns}\n#define TILE {tile}\n" + WGMMA_GEMM
            yield Case(
                f"wgmma {name} n{columns}",
                source,
                (
                    3 * tile,
                    TensorMapOver(4, (tile, 64)),
                    TensorMapOver(5, (tile, columns)),
                    np.zeros((64, columns), np.float32),
                    a,
                    b,
                ),
                (3,),
                arch="sm_90a",
                block=128,
                smem_bytes=(64 + columns) * 128,
                tolerance=3e-2 if tile == 128 else 1e-4,
            )


def _whole_cases() -> Iterator[Case]:
    source = HOPPER + wgmma_call(128, "bf16.bf16") + WARP_SPECIALIZED
    for m, n, k, blocks in ((256, 128, 64, 2), (200, 136, 200, 2), (520, 264, 328, 4)):
        rng = np.random.default_rng(m)
        a = rng.uniform(-1, 1, (m, k)).astype(ml_dtypes.bfloat16)
        b = rng.uniform(-1, 1, (n, k)).astype(ml_dtypes.bfloat16)
        c = np.zeros((m, n), ml_dtypes.bfloat16)
        yield Case(
            f"warp-specialised {m}x{n}x{k}",
            source,
            (
                m,
                n,
                k,
                TensorMapOver(6, (64, 128)),
                TensorMapOver(7, (64, 64)),
                TensorMapOver(8, (128, 64), "none"),
                a,
                b,
                c,
            ),
            (8,),
            arch="sm_90a",
            grid=blocks,
            block=384,
            smem_bytes=4 * 32768 + 32768 + 128,
            tolerance=2e-2,
        )


CASES = [
    *matrix_cases(),
    *_unary_cases(),
    *_fma_cases(),
    *_conversion_cases(),
    *copy_cases(),
    *wgmma_cases(),
    *_wgmma_cases(),
    *_whole_cases(),
]
