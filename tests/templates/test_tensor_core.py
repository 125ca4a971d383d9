"""The warp-level tensor-core rungs: the instructions that they promise, no spills, rules first."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gemm_lab.core.dtypes import DTYPES
from gemm_lab.core.kernel import CompiledKernel, KernelSpec, RenderedKernel
from gemm_lab.core.problem import Alignment, Shape, Strides
from gemm_lab.errors import RuleError
from gemm_lab.jit import compile_many, supported_arches
from gemm_lab.variants import Catalogue, Facts, Variant, config_of, make_spec, plan, render

RUNGS = ("wmma", "mma", "async_copy", "warp_specialized")
MMA_RUNGS = RUNGS[1:]
MMA = {
    "fp16": "m16n8k16.row.col.f32.f16.f16.f32",
    "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "int8": "m16n8k32.row.col.s32.s8.s8.s32",
}


def specified(
    name: str,
    dtype: str,
    layout: Any,
    *,
    arch: str = "sm_80",
    out: str | None = None,
    vec_bytes: int = 16,
    **tunables: Any,
) -> tuple[Variant, KernelSpec]:
    variant, kind = Catalogue().get(name), DTYPES[dtype]
    target = kind.out(out)
    vec = max(1, vec_bytes // kind.storage.size_bytes)
    facts = Facts(
        dtype=kind,
        out=target,
        layout=layout,
        alignment=Alignment(vec_a=vec, vec_b=vec, vec_c=max(1, vec_bytes // target.size_bytes)),
        arch=arch,
    )
    return variant, make_spec(variant, facts, config_of(variant, dtype, tunables))


def compiled(kernels: list[RenderedKernel]) -> list[CompiledKernel]:
    found = []
    for kernel in compile_many(kernels):
        assert isinstance(kernel, CompiledKernel), f"{kernel}"
        found.append(kernel)
    return found


def cases(name: str) -> list[tuple[str, str, str]]:
    """dtype, layout, arch: every layout for the lowest arch or for sm_90, two for both."""
    found = []
    for dtype, support in Catalogue().get(name).dtypes.items():
        for number, layout in enumerate(support.layouts):
            lowest = support.arch if support.arch in supported_arches() else "sm_80"
            arches = (lowest, "sm_90") if layout == "nn" else ((lowest, "sm_90")[number % 2],)
            found += [(dtype, layout, arch) for arch in arches]
    return found


@pytest.mark.parametrize("name", RUNGS)
def test_the_defaults_compile_for_every_dtype_and_layout_and_do_not_spill(name: str) -> None:
    what = cases(name)
    kernels = compiled([render(*specified(name, d, lay, arch=a)) for d, lay, a in what])
    for case, kernel in zip(what, kernels, strict=True):
        for entry, resources in kernel.resources.items():
            spilled = resources.spill_store_bytes + resources.spill_load_bytes
            assert spilled == 0, f"{entry} {case}"
        assert not re.search(r": warning #", kernel.log), f"{case}: {kernel.log}"


@pytest.mark.parametrize("name", RUNGS)
def test_operands_aligned_to_one_element_do_not_spill_either(name: str) -> None:
    what = [(dtype, layout) for dtype in Catalogue().get(name).dtypes for layout in ("nn", "tn")]
    kernels = [
        render(*specified(name, d, lay, arch="sm_90", out="fp32", vec_bytes=1)) for d, lay in what
    ]
    for case, kernel in zip(what, compiled(kernels), strict=True):
        for entry, resources in kernel.resources.items():
            assert resources.spill_store_bytes == 0, f"{entry} {case}"
        assert not re.search(r": warning #", kernel.log), f"{case}: {kernel.log}"


@pytest.mark.parametrize(("dtype", "instruction"), MMA.items())
def test_each_dtype_uses_its_instruction_and_its_way_to_transpose(
    dtype: str, instruction: str
) -> None:
    variant, spec = specified("async_copy", dtype, "nn")
    (kernel,) = compiled([render(variant, spec)])
    steps = int(spec.config["BK"]) * spec.dtype.storage.size_bytes // 32
    fragments = 4 * 8 * steps
    assert kernel.ptx.count(f"mma.sync.aligned.{instruction}") == fragments
    assert ("ldmatrix.sync.aligned.m8n8.x4.trans" in kernel.ptx) == (dtype != "tf32")
    assert ("ld.shared.v4.b32" in kernel.ptx) == (dtype == "tf32")
    assert ("cvt.rna.tf32.f32" in kernel.ptx) == (dtype == "tf32")
    assert ("prmt.b32" in kernel.ptx) == (dtype == "int8")
    assert "cp.async.cg.shared.global" in kernel.ptx


@pytest.mark.parametrize(("arch", "rounding"), [("sm_80", "rna"), ("sm_90", "rn")])
def test_tf32_is_rounded_once_where_a_register_lies_on_the_way(arch: str, rounding: str) -> None:
    for name in ("mma", "wmma"):
        variant, spec = specified(name, "tf32", "nt", arch=arch)
        (kernel,) = compiled([render(variant, spec)])
        c = {key: int(spec.config[key]) for key in ("BM", "BN", "BK", "WM", "WN")}
        threads = c["BM"] // c["WM"] * (c["BN"] // c["WN"]) * 32
        staged = (c["BM"] + c["BN"]) * c["BK"] // threads  # words of a tile in a thread
        assert kernel.ptx.count(f"cvt.{rounding}.tf32.f32") == 2 * staged, name  # first tile, loop


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32"])
def test_wmma_says_that_its_operands_lie_in_shared_memory(dtype: str) -> None:
    kernels = [render(*specified("wmma", dtype, layout)) for layout in ("nt", "tn")]
    for kernel in compiled(kernels):
        loads = re.findall(r"wmma\.load\.\S+", kernel.ptx)
        assert loads
        assert all(".shared." in load for load in loads)


@pytest.mark.parametrize("vec_bytes", [8, 4, 2])
def test_no_load_is_wider_than_the_alignment(vec_bytes: int) -> None:
    (kernel,) = compiled(
        [render(*specified("async_copy", "bf16", "nn", vec_bytes=vec_bytes, SPLIT_K=2))]
    )
    copies = set(
        re.findall(r"cp\.async\.\w+\.shared\.global \[[^]]*\], \[[^]]*\], (\d+)", kernel.ptx)
    )
    assert copies == ({str(vec_bytes)} if vec_bytes >= 4 else set())
    for load in re.findall(r"ld\.global\S*", kernel.ptx):
        # partial sums in the workspace are fp32: twice as wide as C's elements
        width = int(found[1]) if (found := re.search(r"v(\d)", load)) else 1
        size = int(re.search(r"(\d+)$", load)[1]) // 8  # type: ignore[index]
        assert width * size <= 2 * vec_bytes, load


@pytest.mark.parametrize(
    ("name", "tunables", "says"),
    [
        ("mma", {"WM": 48}, "must divide the block tile"),
        ("mma", {"WM": 8}, "16 x 16 fragments"),
        ("mma", {"BK": 48}, "32 or 64 bytes"),
        ("mma", {"STAGES": 3}, "async_copy"),
        ("mma", {"WM": 128}, "accumulators"),
        ("mma", {"MIN_BLOCKS": 2}, "accumulators"),
        ("async_copy", {"STAGES": 40}, "shared memory"),
        ("async_copy", {"SPLIT_K": 70000}, "65535"),
        ("async_copy", {"BM": 2048, "WM": 16, "WN": 16}, "limit of threads"),
        ("warp_specialized", {"PRODUCER_WARPS": 32}, "limit of threads"),
        ("warp_specialized", {"STAGES": 40}, "shared memory"),
        ("wmma", {"PAD": 4}, "multiples of 16 bytes"),
        ("wmma", {"BK": 24}, "16 elements of K"),
    ],
)
def test_rules_speak_before_anything_is_compiled(
    name: str, tunables: dict[str, Any], says: str
) -> None:
    with pytest.raises(RuleError, match=says):
        specified(name, "bf16", "nt", **tunables)


def test_a_line_that_the_swizzle_would_leave_is_refused_only_where_it_is_one() -> None:
    specified("mma", "bf16", "nt", BM=96, WM=48, WN=32)
    with pytest.raises(RuleError, match="multiple of 128"):
        specified("mma", "bf16", "tt", BM=96, WM=48, WN=32)


def test_split_k_adds_a_reduction_and_its_workspace() -> None:
    shape = Shape(m=48, n=272, k=4096, batch=2)
    strides = Strides(lda=4096, ldb=4096, ldc=272, stride_a=48 * 4096, stride_c=48 * 272)
    variant, spec = specified("async_copy", "bf16", "nt")
    whole = plan(variant, spec, shape, strides, 132)
    assert [step.entry for step in whole.launches] == ["async_copy"]
    assert whole.workspace_bytes == 0
    variant, spec = specified("async_copy", "bf16", "nt", SPLIT_K=5)
    parts = plan(variant, spec, shape, strides, 132)
    assert [step.entry for step in parts.launches] == ["async_copy", "async_copy_reduce"]
    assert parts.launches[0].grid == (3, 5, 2)
    assert parts.launches[1].grid == (7, 1, 2)  # a thread for 8 neighbours in C
    assert parts.workspace_bytes == 5 * 2 * 48 * 272 * 4
    variant, spec = specified("async_copy", "bf16", "nt", SPLIT_K=64)
    assert plan(variant, spec, shape, strides, 132).launches[1].grid == (51, 1, 2)  # 8 threads


@pytest.mark.parametrize("name", RUNGS)
def test_a_long_axis_lies_on_the_x_axis_of_the_grid(name: str) -> None:
    variant, spec = specified(name, "bf16", "nt", vec_bytes=2)
    for m, n in ((9_000_000, 1), (1, 9_000_000)):
        strides = Strides(lda=1, ldb=1, ldc=n)
        (step,) = plan(variant, spec, Shape(m=m, n=n, k=1), strides, 132).launches
        assert step.grid[0] >= 9_000_000 // 256
        assert step.grid[1:] == (1, 1)


@pytest.mark.parametrize("name", MMA_RUNGS)
def test_switches_change_what_they_name(name: str) -> None:
    on, off = (
        render(*specified(name, "bf16", "nt", SWIZZLE=switch)).source for switch in (True, False)
    )
    assert "chunk ^ mask" in on
    assert "chunk ^ mask" not in off
    plain = render(*specified(name, "bf16", "nt", RASTER="rows")).source
    assert "block_in_groups((" not in plain
