"""Rungs of the tensor cores on the emulator: every dtype and layout, all detectors on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from small_tunables import tensor_request

import gemm_lab
from gemm_lab.core.dtypes import Layout
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.errors import ResourceError, RuleError
from gemm_lab.lab.check import CheckCase, check_cases
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.variants import Catalogue, Variant

TENSOR = [v for v in Catalogue().ladder() if "fp32" not in v.dtypes]
CASES = [(v, d, lay) for v in TENSOR for d, support in v.dtypes.items() for lay in support.layouts]
IDS = [f"{v.name}-{d}-{lay}" for v, d, lay in CASES]


def problem_of(variant: Variant, dtype: str, layout: Layout, shape: Shape, **more: Any) -> Any:
    arithmetic = variant.support(dtype).dtype
    return GemmProblem(
        shape=shape, dtype=arithmetic, out=arithmetic.default_out, layout=layout, **more
    )


def backend_of(variant: Variant, dtype: str) -> EmulatorBackend:
    """With two multiprocessors, so that a persistent block walks over several tiles."""
    return EmulatorBackend(arch=choose_arch(variant.support(dtype).arch, None, None), sm_count=2)


def sides(layout: Layout, bk: int, *, a_wide: bool, b_wide: bool) -> Shape:
    """Beyond a small tile, and two of K; rows of whole 16-byte vectors for an operand, or not."""
    wide = {"m": 48, "n": 80, "k": 2 * bk + 16}
    ragged = {"m": 37, "n": 71, "k": 2 * bk + 13}
    found = dict(wide if a_wide and b_wide else ragged)
    for side, is_wide in (
        ("k" if layout[0] == "n" else "m", a_wide),
        ("n" if layout[1] == "n" else "k", b_wide),
    ):
        found[side] = (wide if is_wide else ragged)[side]
    return Shape(**found)


@pytest.mark.parametrize(("variant", "dtype", "layout"), CASES, ids=IDS)
def test_right_and_silent(variant: Variant, dtype: str, layout: Layout) -> None:
    bench, backend = Workbench(), backend_of(variant, dtype)
    request = tensor_request(bench, variant, dtype, layout, backend)
    bk = int(request.config.get("BK", 32))
    first = dtype == next(iter(variant.dtypes))  # the others: one operand wide, the other not
    pairs = [(True, False), (False, True), *([(True, True), (False, False)] if first else [])]
    shapes = dict.fromkeys(sides(layout, bk, a_wide=a, b_wide=b) for a, b in pairs)
    cases = [CheckCase(problem=problem_of(variant, dtype, layout, s), why="") for s in shapes]
    ends: dict[str, Any] = {"alpha": -0.75, "beta": 0.5}
    if variant.support(dtype).dtype.default_out.unit_roundoff:
        ends |= {"epilogue": "relu(x + bias)", "bias": True}
    batch = Shape(m=5, n=67, k=bk + 3, batch=3)
    cases.append(CheckCase(problem=problem_of(variant, dtype, layout, batch, **ends), why=""))
    report = check_cases(bench, backend, request, cases)
    assert report.findings == ()
    assert report.skipped == ()


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("shape", [(1, 512, 5), (512, 5, 8), (5, 1, 512)])
@pytest.mark.parametrize("name", ["async_copy", "warp_specialized"])
def test_an_operand_too_narrow_for_cp_async(
    name: str, shape: tuple[int, int, int], layout: Layout
) -> None:
    """Elements of 2 bytes pass registers; the other operand's copies were then not waited for."""
    variant, bench = Catalogue().get(name), Workbench()
    backend = backend_of(variant, "fp16")
    m, n, k = shape
    case = CheckCase(problem=problem_of(variant, "fp16", layout, Shape(m=m, n=n, k=k)), why="")
    for request in (
        Request.of(variant, "fp16", {}),
        tensor_request(bench, variant, "fp16", layout, backend),
    ):
        assert check_cases(bench, backend, request, [case]).findings == ()


# What the small sets leave out, by what it is called.
SHAPE = Shape(m=150, n=401, k=211)
IDEAS: dict[str, tuple[str, str, Layout, dict[str, Any]]] = {
    "split sums": ("async_copy", "bf16", "nn", {"BM": 32, "BN": 64, "WM": 16, "SPLIT_K": 3}),
    "one stage": ("async_copy", "int8", "tt", {"BM": 32, "BN": 64, "WM": 16, "STAGES": 1}),
    "one stage of two roles": ("warp_specialized", "tf32", "tn", {"STAGES": 1}),
    "ping-pong in clusters": ("wgmma", "bf16", "nt", {}),
    "cooperative, along N": (
        "wgmma", "fp16", "nn", {"SCHEDULE": "cooperative", "CLUSTER_M": 1, "CLUSTER_N": 2},
    ),
    "a head start": ("wgmma", "bf16", "tn", {"SCHEDULE": "cooperative", "SKEW": 2}),
    "no producer": (
        "wgmma", "fp16", "nt", {"SCHEDULE": "cooperative", "SPECIALIZED": False, "STAGES": 3},
    ),
    "full sums of fp8": ("wgmma", "fp8_e4m3", "nn", {"SPLIT_K": 2}),
    "a narrow swizzle": ("wgmma", "fp16", "nt", {"SWIZZLE": "64B", "EPILOGUE_STORE": "direct"}),
    "three products in clusters": ("fp32x3", "fp32x3", "tn", {"CLUSTER_M": 2, "TURNS": True}),
}  # fmt: skip


@pytest.mark.parametrize("idea", IDEAS)
def test_ideas_of_larger_tiles(idea: str) -> None:
    name, dtype, layout, tunables = IDEAS[idea]
    variant = Catalogue().get(name)
    case = CheckCase(problem=problem_of(variant, dtype, layout, SHAPE), why=idea)
    request = Request.of(variant, dtype, tunables)
    report = check_cases(Workbench(), backend_of(variant, dtype), request, [case])
    assert report.findings == ()


@pytest.mark.parametrize("variant", TENSOR, ids=lambda v: v.name)
def test_random_tunables(variant: Variant) -> None:
    """As drawn by the variant's name; every rule kept, everything right."""
    generator = random.Random(variant.name)
    right = 0
    for _ in range(300):
        dtype = generator.choice(list(variant.dtypes))
        layout = generator.choice(variant.support(dtype).layouts)
        config = {t.name: generator.choice(t.candidates) for t in variant.tunables.values()}
        try:
            found = gemm_lab.run(
                variant, dtype=dtype, layout=layout, shape=(67, 73, 41), backend="emulator",
                config=config,
            )  # fmt: skip
        except (RuleError, ResourceError):
            continue
        assert found.verified, found
        right += 1
        if right == 3:
            break
    assert right > 0
