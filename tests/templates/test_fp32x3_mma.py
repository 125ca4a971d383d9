"""fp32 from three tf32 products with mma.sync: no spills, rules, its error, and who takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gemm_lab
from gemm_lab.core.dtypes import DTYPES, LAYOUTS, Layout
from gemm_lab.core.kernel import CompiledKernel, KernelSpec
from gemm_lab.core.problem import Alignment
from gemm_lab.errors import RuleError, UsageError
from gemm_lab.jit import compile_many
from gemm_lab.model import load_devices
from gemm_lab.variants import Facts, Variant, config_of, load_variant, make_spec, render
from gemm_lab.variants.paths import template_root

Float = NDArray[np.float32]
NAME = "fp32x3_mma"
SMALL = {"BM": 32, "BN": 32, "WM": 16, "WN": 16}

# Name -> layout, architecture, elements that are aligned, tunables, and other facts.
KERNELS: dict[str, tuple[Layout, str, int, dict[str, Any], dict[str, Any]]] = {
    **{
        f"default-{layout}-{arch}-{vec}": (layout, arch, vec, {}, {})
        for layout in LAYOUTS
        for arch, vec in (("sm_80", 4), ("sm_80", 1), ("sm_90", 4), ("sm_90", 1))
    },
    "default-nn-sm_86-2": ("nn", "sm_86", 2, {}, {}),
    "default-tt-sm_89-1": ("tt", "sm_89", 1, {}, {}),
    "shallow": ("nt", "sm_80", 4, {"BK": 16, "PROMOTE": 16, "STAGES": 4}, {}),
    "wide warps": ("tn", "sm_90", 4, {"WM": 32, "WN": 64}, {}),
    "two blocks": ("nn", "sm_90", 4, {"BN": 64, "MIN_BLOCKS": 2}, {}),
    "large warps": (
        "nt", "sm_90", 4, {"BK": 8, "PROMOTE": 8, "WN": 64, "REG_DOUBLE_BUFFER": False}, {},
    ),
    "split": ("tn", "sm_80", 4, {"SPLIT_K": 4}, {}),
    "epilogue": ("tt", "sm_80", 4, {}, {"epilogue": "gelu", "bias": True}),
}  # fmt: skip


@pytest.fixture(scope="module")
def variant() -> Variant:
    return load_variant(template_root() / f"{NAME}.cu.j2")


def spec_of(
    variant: Variant,
    layout: Layout,
    tunables: dict[str, Any],
    *,
    arch: str = "sm_80",
    vec: int = 4,
    epilogue: str | None = None,
    bias: bool = False,
) -> KernelSpec:
    kind = DTYPES["fp32x3"]
    tma = vec == 4
    alignment = Alignment(vec_a=vec, vec_b=vec, vec_c=vec, tma_a=tma, tma_b=tma, tma_c=tma)
    facts = Facts(
        dtype=kind, out=kind.default_out, layout=layout, alignment=alignment, arch=arch,
        epilogue=epilogue, bias=bias,
    )  # fmt: skip
    return make_spec(variant, facts, config_of(variant, "fp32x3", tunables))


def test_no_spills_and_every_product_three_times(variant: Variant) -> None:
    rendered = {
        name: render(variant, spec_of(variant, layout, tunables, arch=arch, vec=vec, **more))
        for name, (layout, arch, vec, tunables, more) in KERNELS.items()
    }
    for name, kernel in zip(rendered, compile_many(rendered.values(), workers=2), strict=True):
        assert isinstance(kernel, CompiledKernel), f"{name}: {kernel}"
        for found in kernel.resources.values():
            spills = (found.spill_store_bytes, found.spill_load_bytes, found.stack_bytes)
            assert spills == (0, 0, 0), name
        tile = {"WM": 64, "WN": 32, "BK": 32, **KERNELS[name][3]}
        fragments = tile["WM"] // 16 * tile["WN"] // 8 * tile["BK"] // 8
        assert kernel.ptx.count("mma.sync.aligned.m16n8k8") == 3 * fragments, name


@pytest.mark.parametrize(
    ("tunables", "word"),
    [
        ({"WM": 48}, "must divide the block tile"),
        ({"BN": 40, "WN": 40}, "16 x 16 fragments"),
        ({"BK": 24, "PROMOTE": 8}, "32 or 64 bytes"),
        ({"PROMOTE": 12}, "goes evenly into BK"),
        ({"PROMOTE": 64}, "goes evenly into BK"),
        ({"WN": 64}, "the sums of a warp tile"),
        ({"MIN_BLOCKS": 2}, "the sums of a warp tile"),
        ({"STAGES": 6}, "fit into shared memory"),
        ({"BM": 256, "BN": 512, "STAGES": 1}, "limit of threads"),
    ],
)
def test_rules_refuse(variant: Variant, tunables: dict[str, Any], word: str) -> None:
    with pytest.raises(RuleError, match=word):
        spec_of(variant, "nt", tunables)


def test_older_chips_are_refused(variant: Variant) -> None:
    with pytest.raises(UsageError, match="sm_80 or above"):
        spec_of(variant, "nt", {}, arch="sm_75")


def operands(kind: str, m: int, n: int, k: int) -> list[Float]:
    """A and B: uniform in [-1, 1], all positive, or of magnitudes from 2^-10 to 2^10."""
    rng = np.random.default_rng(3)
    pair = [rng.uniform(-1, 1, shape) for shape in ((m, k), (k, n))]
    if kind == "positive":
        pair = [np.abs(x) for x in pair]
    if kind == "mixed":
        pair = [x * np.exp2(rng.integers(-10, 11, x.shape)) for x in pair]
    return [x.astype(np.float32) for x in pair]


@pytest.mark.parametrize(
    ("kind", "m", "n", "k", "promote"),
    [
        ("uniform", 32, 32, 2048, 32),
        ("uniform", 32, 32, 2048, 8),
        ("positive", 32, 32, 2048, 32),
        ("mixed", 32, 32, 2048, 32),
        ("mixed", 32, 32, 96, 32),
        ("uniform", 3, 8, 65536, 32),
    ],
)
def test_its_error_is_no_worse_than_that_of_fp32(
    kind: str, m: int, n: int, k: int, promote: int
) -> None:
    a, b = operands(kind, m, n, k)
    truth = a.astype(np.float64) @ b
    chain = np.zeros((m, n), np.float32)
    for i in range(k):
        chain += a[:, i : i + 1] * b[i : i + 1]
    c = gemm_lab.matmul(
        a, b, variant=NAME, dtype="fp32x3", backend="emulator", PROMOTE=promote, **SMALL
    )

    def error(c: Float) -> float:
        return float(np.linalg.norm(c - truth) / np.linalg.norm(truth))

    assert error(c) <= error(chain)
    assert (np.abs(c - truth) <= 1e-6 * (np.abs(a).astype(np.float64) @ np.abs(b))).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_both_ways_to_round_beat_a_plain_rung(arch: str) -> None:
    same: dict[str, Any] = {"shape": (16, 16, 1000), "backend": "emulator"}
    plain = gemm_lab.run("naive", dtype="fp32", **same)
    found = gemm_lab.run(NAME, dtype="fp32x3", arch=arch, config=SMALL, **same)
    assert found.verified
    assert found.relative_rmse is not None
    assert plain.relative_rmse is not None
    assert found.relative_rmse <= plain.relative_rmse


BELOW_HOPPER = {
    key: card
    for key, card in load_devices().items()
    if card.arch in ("sm_80", "sm_86", "sm_87", "sm_89")
}


@pytest.mark.parametrize("key", BELOW_HOPPER)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_choice_takes_it_below_hopper(key: str, layout: Layout) -> None:
    choice = gemm_lab.explain_choice(
        dtype="fp32x3", gpu=BELOW_HOPPER[key], layout=layout, shape=(1000, 1001, 1002)
    )
    assert choice.variant == NAME


def test_choice_takes_it_on_the_emulator() -> None:
    choice = gemm_lab.explain_choice(dtype="fp32x3", arch="sm_80", backend="emulator")
    assert choice.variant == NAME
