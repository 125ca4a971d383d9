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

PING_PONG = {"SCHEDULE": "pingpong", "BN": 128, "STAGES": 6, "STORE_N": 64}
FOUR_STAGES = {"STAGES": 4, "STORE_N": 128}

# Name -> dtype, layout, tunables, and facts that differ.
KERNELS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    **{f"{d}-{lay}": (d, lay, {}, {}) for d in ("fp16", "bf16") for lay in LAYOUTS},
    **{f"pingpong-{lay}": ("bf16", lay, PING_PONG, {}) for lay in LAYOUTS},
    "tf32": ("tf32", "nt", {}, {}),
    "fp8-full": ("fp8_e4m3", "nt", {}, {}),
    "fp8-fast": ("fp8_e4m3", "nt", {"ACCUMULATE": "fast"}, {}),
    "fp8-pingpong": ("fp8_e4m3", "nt", PING_PONG, {}),
    "four-stages": ("bf16", "nt", FOUR_STAGES, {}),
    "tall-tile": ("bf16", "nt", {"BM": 256, "BN": 128, "STAGES": 4}, {}),
    "three-consumers": ("bf16", "nt", {"BM": 192, "BN": 128, "CONSUMERS": 3}, {}),
    "one-consumer": ("bf16", "nt", {"BM": 64, "BN": 128, "CONSUMERS": 1, "CLUSTER_M": 1}, {}),
    "no-cluster": ("bf16", "nt", {"CLUSTER_M": 1}, {}),
    "cluster-2x2": ("bf16", "nt", {"CLUSTER_N": 2}, {}),
    "no-multicast": ("bf16", "nt", {"MULTICAST": False}, {}),
    "not-specialized": ("bf16", "nt", {"SPECIALIZED": False}, {}),
    "no-setmaxnreg": ("bf16", "nt", {"SETMAXNREG": False, "BN": 128}, {}),
    "swizzle-64B": ("bf16", "nn", {"SWIZZLE": "64B"}, {}),
    "direct": ("bf16", "nt", {"EPILOGUE_STORE": "direct"}, {}),
    "unaligned-c": ("bf16", "nt", {}, {"vec_c": 1}),
    "fp32-out": ("bf16", "nt", {"STORE_N": 128}, {"out": "fp32"}),
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
    vec_a: int | None = None,
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
            vec_a=vec_a or 16 // size, vec_b=16 // size, vec_c=vec_c or 16 // written.size_bytes
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
        ("bf16", {"CONSUMERS": 4, "BM": 256}, "1 to 3 consumers"),
        ("bf16", {"SCHEDULE": "pingpong", "CONSUMERS": 1}, "ping-pong"),
        ("bf16", {"SCHEDULE": "pingpong", "SPECIALIZED": False}, "ping-pong"),
        ("bf16", {"BN": 264, "STORE_N": 264}, "columns"),
        ("bf16", {"BM": 256}, "no room"),
        ("bf16", {"BK": 32}, "swizzle chunks"),
        ("bf16", {"STAGES": 5}, "shared memory"),
        ("bf16", {"CLUSTER_M": 16}, "at most 8"),
        ("bf16", {"STORE_N": 96}, "STORE_N"),
        ("fp8_e4m3", {"BK": 64}, "swizzle chunks"),
    ],
)
def test_rules_refuse(wgmma: Variant, dtype: str, tunables: dict[str, Any], word: str) -> None:
    with pytest.raises(RuleError, match=word):
        spec_of(wgmma, dtype, "nt", tunables)


def test_what_tma_cannot_read_is_refused(wgmma: Variant) -> None:
    with pytest.raises(RuleError, match="multiples of 16 bytes"):
        spec_of(wgmma, "bf16", "nt", {}, vec_a=4)


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
    assert launch_plan.tensor_maps["b"].box == (64, 128 if layout[1] == "t" else 64, 1)
    (launch,) = launch_plan.launches
    assert launch.grid == (2 * 4 * 3, 1, 1)  # 1000 / (2 * 128) and 520 / 256 rounded up, times 2
    assert launch.cluster == (2, 1, 1)
