"""Kernels whose outputs on a card are recorded and compared with the emulator's.

Record them where there is a card: python tests/emulator/record_hardware.py
"""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from emulator_helpers import HALF_HEADERS, wrap
from tensor_kernels import HOPPER, WARP_SPECIALIZED, WGMMA_GEMM, wgmma_call

RECORDED = Path(__file__).parent / "recorded" / "hardware.npz"


@dataclass(frozen=True)
class TensorMapOver:
    """An argument: a map over the array of another argument; box is (columns, rows)."""

    argument: int
    box: tuple[int, int]
    swizzle: str = "128B"


@dataclass(frozen=True)
class Case:
    """One launch. `outputs` are numbers of array arguments; `tolerance` 0 asks for equal bits."""

    name: str
    source: str
    args: tuple[Any, ...]
    outputs: tuple[int, ...]
    arch: str = "sm_80"
    grid: int = 1
    block: int = 32
    smem_bytes: int = 0
    tolerance: float = 0.0
    exact_fma: bool = True


MMA_PER = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "e4m3": 4}
MMA_SHAPES = [
    ("f16", 8),
    ("f16", 16),
    ("bf16", 16),
    ("tf32", 4),
    ("tf32", 8),
    ("s8", 16),
    ("s8", 32),
    ("e4m3", 32),
]


def mma_source(kind: str, depth: int) -> str:
    """A kernel `k(a, b, o)` around one mma.sync.m16n8; registers come and go as the hardware has them."""
    per = MMA_PER[kind]
    left, right = 2 * depth // (4 * per), depth // (4 * per)
    integer = kind == "s8"
    c_type, out_kind, letter = ("int", "s32", "r") if integer else ("float", "f32", "f")
    lists = [
        ", ".join(f"%{start + i}" for i in range(count))
        for start, count in ((0, 4), (4, left), (4 + left, right))
    ]
    ins = [f'"r"(a[{i} * 32 + l])' for i in range(left)] + [
        f'"r"(b[{i} * 32 + l])' for i in range(right)
    ]
    return wrap(
        f"""int l = threadIdx.x; {c_type} d[4] = {{{c_type}(l), 0, 0, 0}};
        asm volatile("mma.sync.aligned.m16n8k{depth}.row.col.{out_kind}.{kind}.{kind}.{out_kind} {{{lists[0]}}}, {{{lists[1]}}}, {{{lists[2]}}}, {{{lists[0]}}};"
          : {", ".join(f'"+{letter}"(d[{i}])' for i in range(4))} : {", ".join(ins)});
        for (int i = 0; i < 4; i++) o[i * 32 + l] = d[i];""",
        f"const unsigned *a, const unsigned *b, {c_type} *o",
    )


def _words(kind: str, registers: int, seed: int) -> np.ndarray:
    """Random registers [registers, 32] whose elements are moderate numbers of a type."""
    rng = np.random.default_rng(seed)
    per = MMA_PER[kind]
    if kind == "s8":
        return rng.integers(0, 2**32, (registers, 32), dtype=np.uint32)
    dtype = {
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "tf32": np.float32,
        "e4m3": ml_dtypes.float8_e4m3fn,
    }[kind]
    return (
        rng.uniform(-2, 2, (registers, 32 * per)).astype(np.float32).astype(dtype).view(np.uint32)
    )


def _mma_cases() -> Iterator[Case]:
    for kind, depth in MMA_SHAPES:
        chunks = depth // (4 * MMA_PER[kind])
        integer = kind == "s8"
        yield Case(
            f"mma {kind} k{depth}",
            mma_source(kind, depth),
            (
                _words(kind, 2 * chunks, 1),
                _words(kind, chunks, 2),
                np.zeros((4, 32), np.int32 if integer else np.float32),
            ),
            (2,),
            arch="sm_89" if kind == "e4m3" else "sm_80",
            tolerance=0.0 if integer else 2e-3 if kind == "e4m3" else 1e-5,
        )


def _matrix_cases() -> Iterator[Case]:
    for trans in ("", ".trans"):
        yield Case(
            f"ldmatrix{trans}",
            wrap(
                f"""__shared__ __align__(16) unsigned short s[256], z[256]; int l = threadIdx.x; unsigned r[4];
                for (int i = l; i < 256; i += 32) {{ s[i] = i; z[i] = 0; }} __syncwarp();
                unsigned at = (unsigned)__cvta_generic_to_shared(&s[l * 8]), to = (unsigned)__cvta_generic_to_shared(&z[l * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%0, %1, %2, %3}}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {{%1, %2, %3, %4}};" :: "r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
                __syncwarp(); for (int i = 0; i < 4; i++) o[i * 32 + l] = r[i];
                for (int i = l; i < 256; i += 32) o[128 + i] = z[i];""",
                "unsigned *o",
            ),
            (np.zeros(384, np.uint32),),
            (0,),
            arch="sm_90",
        )


UNARY = {
    "ex2": ("ex2.approx.f32 %0, %1;", -20, 20, 4e-7),
    "lg2": ("lg2.approx.f32 %0, %1;", 0.01, 100, 2e-6),
    "rcp": ("rcp.approx.f32 %0, %1;", 0.01, 100, 2e-7),
    "rsqrt": ("rsqrt.approx.f32 %0, %1;", 0.01, 100, 3e-7),
    "sqrt approx": ("sqrt.approx.f32 %0, %1;", 0.01, 100, 3e-7),
    "sqrt": ("sqrt.rn.f32 %0, %1;", 0, 100, 0),
    "sin": ("sin.approx.f32 %0, %1;", -3, 3, 3e-6),
    "cos": ("cos.approx.f32 %0, %1;", -3, 3, 3e-6),
    "tanh": ("tanh.approx.f32 %0, %1;", -4, 4, 1e-3),
    "round": ("cvt.rni.f32.f32 %0, %1;", -9, 9, 0),
    "rcp rn": ("rcp.rn.f32 %0, %1;", 0.01, 100, 0),
    "tf32": ("{ .reg .b32 t; cvt.rna.tf32.f32 t, %1; mov.b32 %0, t; }", -9, 9, 0),
    "half": ("{ .reg .b16 t; cvt.rn.f16.f32 t, %1; cvt.f32.f16 %0, t; }", -70000, 70000, 0),
    "fma rz": ("fma.rz.f32 %0, %1, %1, 0f3F9E0652;", -9, 9, 0),
    "add rp": ("add.rp.f32 %0, %1, 0f3F9E0652;", -9, 9, 0),
}


def _unary_cases() -> Iterator[Case]:
    for name, (text, low, high, tolerance) in UNARY.items():
        x = np.random.default_rng(7).uniform(low, high, 1024).astype(np.float32)
        source = wrap(
            f'int i = threadIdx.x; float y; asm("{text}" : "=f"(y) : "f"(a[i])); o[i] = y;',
            "const float *a, float *o",
        )
        yield Case(name, source, (x, np.zeros_like(x)), (1,), block=1024, tolerance=tolerance)


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
    *_mma_cases(),
    *_matrix_cases(),
    *_unary_cases(),
    *_fma_cases(),
    *_wgmma_cases(),
    *_whole_cases(),
]
