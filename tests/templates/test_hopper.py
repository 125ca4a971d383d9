"""The Hopper rung compiles without spills or warnings; its rules refuse what cannot be."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gemm_lab.core.dtypes import DTYPES, LAYOUTS
from gemm_lab.core.kernel import CompiledKernel, KernelSpec, RenderedKernel
from gemm_lab.core.problem import Alignment, Shape, Strides
from gemm_lab.errors import RuleError, UsageError
from gemm_lab.jit import compile_many
from gemm_lab.variants import Facts, Variant, config_of, load_variant, make_spec, plan, render
from gemm_lab.variants.paths import template_root

COOPERATIVE = {"SCHEDULE": "cooperative", "BN": 256, "STAGES": 4, "STORE_BYTES": 256}
NARROW = {"SCHEDULE": "cooperative", "BN": 128, "STAGES": 6}
INTERLEAVED = {"SCHEDULE": "interleaved", "BN": 128, "STAGES": 3}

# Name -> dtype, layout, tunables, and facts that differ.
KERNELS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    **{f"{d}-{lay}": (d, lay, {}, {}) for d in ("fp16", "bf16") for lay in LAYOUTS},
    **{f"cooperative-{lay}": ("bf16", lay, COOPERATIVE, {}) for lay in LAYOUTS},
    "interleaved": ("bf16", "nt", INTERLEAVED, {}),
    "tf32": ("tf32", "nt", {}, {}),
    "fp8-full": ("fp8_e4m3", "nt", {}, {}),
    "fp8-full-fp32-out": ("fp8_e4m3", "nt", {}, {"out": "fp32"}),
    "fp8-turns": ("fp8_e4m3", "nt", {"TURNS": True}, {}),
    "fp8-two-sets": ("fp8_e4m3", "nt", {**NARROW, "PARTS": 2}, {}),
    "fp8-two-narrow-sets": ("fp8_e4m3", "nt", {"PARTS": 2, "PART_N": 64}, {}),
    "fp8-interleaved": ("fp8_e4m3", "nt", INTERLEAVED, {}),
    "fp8-fast": (
        "fp8_e4m3",
        "nt",
        {"ACCUMULATE": "fast", "SCHEDULE": "pingpong", "BN": 128, "STAGES": 6},
        {},
    ),
    "wide-pingpong": ("bf16", "nt", {"BM": 64, "BN": 256, "STAGES": 5}, {}),
    "tall-tile": ("bf16", "nt", {**COOPERATIVE, "BM": 256, "BN": 128}, {}),
    "three-consumers": ("bf16", "nt", {**NARROW, "BM": 192, "STAGES": 4, "CONSUMERS": 3}, {}),
    "one-consumer": ("bf16", "nt", {**NARROW, "BM": 64, "CONSUMERS": 1, "CLUSTER_M": 1}, {}),
    "no-cluster": ("bf16", "nt", {"CLUSTER_M": 1}, {}),
    "cluster-2x2": ("bf16", "nt", {"CLUSTER_N": 2}, {}),
    "no-multicast": ("bf16", "nt", {"MULTICAST": False}, {}),
    "not-specialized": ("bf16", "nt", {**COOPERATIVE, "SPECIALIZED": False}, {}),
    "no-setmaxnreg": ("bf16", "nt", {**NARROW, "SETMAXNREG": False}, {}),
    "swizzle-64B": ("bf16", "nn", {"SWIZZLE": "64B"}, {}),
    "swizzle-none": ("bf16", "tn", {"SWIZZLE": "none"}, {}),
    "direct": ("bf16", "nt", {"EPILOGUE_STORE": "direct"}, {}),
    "unaligned-c": ("bf16", "nt", {}, {"vec_c": 1}),
    "fp32-out": ("bf16", "nt", {}, {"out": "fp32"}),
    "epilogue": ("bf16", "nt", {}, {"epilogue": "gelu", "bias": True}),
}


@pytest.fixture(scope="module")
def wgmma() -> Variant:
    return load_variant(template_root() / "wgmma.cu.j2")


def spec_of(
    variant: Variant,
    dtype: str,
    layout: str,
    tunables: dict[str, Any],
    *,
    out: str | None = None,
    vec_c: int | None = None,
    tma_a: bool = True,
    arch: str = "sm_90a",
    epilogue: str | None = None,
    bias: bool = False,
) -> KernelSpec:
    kind = DTYPES[dtype]
    size, written = kind.storage.size_bytes, kind.out(out)
    facts = Facts(
        dtype=kind,
        out=written,
        layout=layout,  # type: ignore[arg-type]
        alignment=Alignment(
            vec_a=16 // size,
            vec_b=16 // size,
            vec_c=vec_c or 16 // written.size_bytes,
            tma_a=tma_a,
            tma_b=True,
            tma_c=vec_c is None,
        ),
        arch=arch,
        epilogue=epilogue,
        bias=bias,
    )
    return make_spec(variant, facts, config_of(variant, dtype, tunables))


@pytest.fixture(scope="module")
def compiled(wgmma: Variant) -> dict[str, CompiledKernel]:
    rendered: dict[str, RenderedKernel] = {
        name: render(wgmma, spec_of(wgmma, dtype, layout, tunables, **facts))
        for name, (dtype, layout, tunables, facts) in KERNELS.items()
    }
    done = compile_many(rendered.values(), workers=2)
    for name, result in zip(rendered, done, strict=True):
        assert isinstance(result, CompiledKernel), f"{name}: {result}"
    return dict(zip(rendered, done, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", KERNELS)
def test_no_spills_and_no_warnings_of_ptxas(compiled: dict[str, CompiledKernel], name: str) -> None:
    kernel = compiled[name]
    resources = kernel.resources["wgmma"]
    spills = (resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes)
    assert spills == (0, 0, 0)
    # C7508: setmaxnreg ignored; C7510 and its like: wgmma serialised.
    assert not re.search(r"C7\d{3}|serializ", kernel.log)
    assert "wgmma.mma_async" in kernel.ptx


@pytest.mark.parametrize(
    ("dtype", "tunables", "word"),
    [
        ("bf16", {"BM": 96}, "64 rows"),
        ("bf16", {**NARROW, "CONSUMERS": 4, "BM": 256}, "1 to 3 consumers"),
        ("bf16", {"CONSUMERS": 1}, "ping-pong"),
        ("bf16", {"SPECIALIZED": False}, "ping-pong"),
        ("bf16", {"BN": 264}, "columns"),
        ("bf16", {"BM": 256}, "no room"),
        ("bf16", {"BK": 32}, "swizzle chunks"),
        ("bf16", {"STAGES": 7}, "shared memory"),
        ("bf16", {"CLUSTER_M": 16}, "at most 8"),
        ("bf16", {"STORE_BYTES": 192}, "STORE_BYTES"),
        ("fp8_e4m3", {"BK": 64}, "swizzle chunks"),
        ("fp8_e4m3", {"TURNS": True, "PARTS": 2, "PART_N": 64}, "turns"),
        ("fp8_e4m3", {"PARTS": 2}, "no room"),
    ],
)
def test_rules_refuse(wgmma: Variant, dtype: str, tunables: dict[str, Any], word: str) -> None:
    with pytest.raises(RuleError, match=word):
        spec_of(wgmma, dtype, "nt", tunables)


def test_what_tma_cannot_read_is_refused(wgmma: Variant) -> None:
    with pytest.raises(RuleError, match="multiples of 16 bytes"):
        spec_of(wgmma, "bf16", "nt", {}, tma_a=False)


def test_other_chips_are_refused(wgmma: Variant) -> None:
    with pytest.raises(UsageError, match="sm_90a"):
        spec_of(wgmma, "bf16", "nt", {}, arch="sm_80")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_maps_and_grid(wgmma: Variant, layout: str) -> None:
    """A box is one swizzle chunk wide, and all boxes of a stage are its bytes."""
    spec = spec_of(wgmma, "bf16", layout, {})
    m, n, k = 1000, 520, 264
    strides = Strides(lda=k if layout[0] == "n" else m, ldb=n if layout[1] == "n" else k, ldc=n)
    launch_plan = plan(wgmma, spec, Shape(m=m, n=n, k=k), strides, 132)
    assert launch_plan.tensor_maps["a"].box == (64, 128 if layout[0] == "n" else 64, 1)
    assert launch_plan.tensor_maps["b"].box == (64, 64, 1)
    (launch,) = launch_plan.launches
    assert launch.grid == (2 * 4 * 5, 1, 1)  # 1000 / (2 * 128) and 520 / 128 rounded up, times 2
    assert launch.cluster == (2, 1, 1)


@pytest.mark.parametrize(
    ("cluster", "blocks"), [((1, 1), 132), ((2, 1), 132), ((2, 2), 128), ((4, 2), 128)]
)
def test_a_persistent_grid_runs_in_one_wave(
    wgmma: Variant, cluster: tuple[int, int], blocks: int
) -> None:
    """GPCs of 16 and 18 multiprocessors hold 32 clusters of four, not 33."""
    spec = spec_of(wgmma, "bf16", "nt", {"CLUSTER_M": cluster[0], "CLUSTER_N": cluster[1]})
    strides = Strides(lda=8192, ldb=8192, ldc=8192)
    (launch,) = plan(wgmma, spec, Shape(m=8192, n=8192, k=8192), strides, 132).launches
    assert launch.grid == (blocks, 1, 1)


@pytest.mark.parametrize("dtype", ["tf32", "bf16"])
def test_tf32_is_rounded_by_the_copy_engine(wgmma: Variant, dtype: str) -> None:
    spec = spec_of(wgmma, dtype, "nt", {})
    strides = Strides(lda=64, ldb=64, ldc=64)
    maps = plan(wgmma, spec, Shape(m=64, n=64, k=64), strides, 132).tensor_maps
    assert {m.round_tf32 for m in maps.values()} == {dtype == "tf32"}
