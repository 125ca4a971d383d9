"""The Hopper rung compiles without spills or warnings; its rules refuse what cannot be."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gemm_lab.core.dtypes import DTYPES, LAYOUTS
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch, KernelSpec, RenderedKernel
from gemm_lab.core.problem import Alignment, Shape, Strides
from gemm_lab.errors import RuleError, UsageError
from gemm_lab.jit import compile_many
from gemm_lab.variants import Facts, Variant, config_of, load_variant, make_spec, plan, render
from gemm_lab.variants.paths import template_root

COOPERATIVE = {"SCHEDULE": "cooperative", "BN": 256, "STAGES": 4, "STORE_BYTES": 256}
NARROW = {"SCHEDULE": "cooperative", "BN": 128, "STAGES": 6}

# Name -> dtype, layout, tunables, and facts that differ.
KERNELS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    **{f"{d}-{lay}": (d, lay, {}, {}) for d in ("fp16", "bf16") for lay in LAYOUTS},
    **{f"cooperative-{lay}": ("bf16", lay, COOPERATIVE, {}) for lay in LAYOUTS},
    **{f"tf32-{lay}": ("tf32", lay, {}, {}) for lay in LAYOUTS},
    **{f"fp8-full-{lay}": ("fp8_e4m3", lay, {}, {}) for lay in LAYOUTS},
    "fp8-full-fp32-out": ("fp8_e4m3", "nt", {}, {"out": "fp32"}),
    "fp8-one-set": ("fp8_e4m3", "nt", {"PARTS": 1, "BN": 256, "STAGES": 4}, {}),
    "fp8-narrow-sets": ("fp8_e4m3", "nt", {"PART_N": 64, "BN": 256, "STAGES": 4}, {}),
    "fp8-odd-parts": ("fp8_e4m3", "nt", {"PART_N": 64, "BN": 192, "STAGES": 4}, {}),
    "fp8-skewed": ("fp8_e4m3", "nt", {"SKEW": 3}, {}),
    "fp8-fast": ("fp8_e4m3", "nt", {"ACCUMULATE": "fast"}, {}),
    "split-k": ("bf16", "nn", {"SPLIT_K": 4}, {"epilogue": "relu", "bias": True}),
    "split-k-copies": ("tf32", "tn", {"SPLIT_K": 2}, {}),
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
    "hilbert": ("bf16", "nt", {"RASTER": "hilbert"}, {}),
    "hilbert-split-k": ("fp8_e4m3", "nt", {"RASTER": "hilbert", "SPLIT_K": 2}, {}),
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
        ("bf16", {"CONSUMERS": 1, "SCHEDULE": "pingpong"}, "ping-pong"),
        ("bf16", {"SPECIALIZED": False, "SCHEDULE": "pingpong"}, "ping-pong"),
        ("bf16", {"BN": 264}, "columns"),
        ("bf16", {"BM": 256}, "no room"),
        ("bf16", {"BK": 32}, "swizzle chunks"),
        ("bf16", {"STAGES": 7}, "shared memory"),
        ("bf16", {"CLUSTER_M": 16}, "at most 8"),
        ("bf16", {"STORE_BYTES": 192}, "STORE_BYTES"),
        ("fp8_e4m3", {"BK": 64}, "swizzle chunks"),
        ("fp8_e4m3", {"PARTS": 3}, "one or two sets"),
        ("fp8_e4m3", {"BN": 256, "STAGES": 4}, "no room"),
        ("fp8_e4m3", {"SKEW": 6}, "less than the ring"),
        ("bf16", {"SPLIT_K": 129}, "at most 128 pieces"),
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
    ("cluster", "at_once", "blocks"),
    [
        ((1, 1), 132, 132), ((2, 1), 66, 132), ((2, 2), 30, 120), ((4, 2), 14, 112),
        # Two blocks a multiprocessor would fit: one is enough.
        ((1, 1), 264, 132), ((2, 1), 132, 132), ((2, 2), 0, 4),
    ],
)  # fmt: skip
def test_a_persistent_grid_runs_in_one_wave(
    wgmma: Variant, cluster: tuple[int, int], at_once: int, blocks: int
) -> None:
    """Clusters of more than two may leave multiprocessors of a GPC over: the device says."""
    spec = spec_of(wgmma, "bf16", "nt", {"CLUSTER_M": cluster[0], "CLUSTER_N": cluster[1]})
    strides = Strides(lda=8192, ldb=8192, ldc=8192)
    asked: list[KernelLaunch] = []

    def resident(launch: KernelLaunch) -> int:
        asked.append(launch)
        return at_once

    shape = Shape(m=8192, n=8192, k=8192)
    (launch,) = plan(wgmma, spec, shape, strides, 132, resident).launches
    assert launch.grid == (blocks, 1, 1)
    (question,) = asked
    assert question.cluster == launch.cluster == (cluster[0] * cluster[1], 1, 1)
    assert (question.block, question.smem_bytes) == (launch.block, launch.smem_bytes)
    # Where nobody can tell, as many as there are multiprocessors for.
    (unasked,) = plan(wgmma, spec, shape, strides, 132).launches
    assert unasked.grid == (132 // (cluster[0] * cluster[1]) * cluster[0] * cluster[1], 1, 1)


@pytest.mark.parametrize("dtype", ["tf32", "bf16"])
def test_tf32_is_rounded_by_the_copy_engine(wgmma: Variant, dtype: str) -> None:
    spec = spec_of(wgmma, dtype, "nt", {})
    strides = Strides(lda=64, ldb=64, ldc=64)
    maps = plan(wgmma, spec, Shape(m=64, n=64, k=64), strides, 132).tensor_maps
    assert {m.round_tf32 for m in maps.values()} == {dtype == "tf32"}


@pytest.mark.parametrize(
    ("dtype", "layout", "copies"),
    [
        ("tf32", "nt", ""), ("tf32", "nn", "b"), ("tf32", "tn", "ab"), ("fp8_e4m3", "tt", "a"),
        ("bf16", "tn", ""),
    ],
)  # fmt: skip
def test_operands_that_do_not_lie_along_k_are_copied(
    wgmma: Variant, dtype: str, layout: str, copies: str
) -> None:
    """Maps over the copies: K contiguous, rows of whole 16 bytes, B behind A behind the sums."""
    spec = spec_of(wgmma, dtype, layout, {"SPLIT_K": 2})
    m, n, k, batch = 100, 72, 50, 3
    size = spec.dtype.storage.size_bytes
    lda, ldb = (112 if layout[0] == "t" else 64), (80 if layout[1] == "n" else 64)
    strides = Strides(lda=lda, ldb=ldb, ldc=n, stride_a=112 * 64, stride_b=80 * 64, stride_c=m * n)
    found = plan(wgmma, spec, Shape(m=m, n=n, k=k, batch=batch), strides, 132)
    entries = [f"wgmma_transpose_{c}" for c in copies]
    assert [s.entry for s in found.launches] == [*entries, "wgmma", "wgmma_reduce"]
    offset = 2 * batch * m * n * 4
    pitch = -(-k * size // 16) * 16
    for operand, rows in (("a", m), ("b", n)):
        map_ = found.tensor_maps[operand]
        if operand in copies:
            assert map_.dims == (k, rows, batch)
            assert map_.strides_bytes == (pitch, pitch * rows)
            assert map_.workspace_offset_bytes == offset
            offset += batch * rows * pitch
        else:
            assert map_.workspace_offset_bytes is None
    assert found.workspace_bytes == offset
