"""The CUDA-core rungs: no spills at the defaults, rules that speak first, memory as declared."""

from __future__ import annotations

from typing import Any

import pytest

from gemm_lab.core.dtypes import DTYPES
from gemm_lab.core.kernel import KernelSpec, RenderedKernel
from gemm_lab.core.problem import Alignment, GemmProblem, Shape
from gemm_lab.errors import RuleError
from gemm_lab.jit import compile_kernel, supported_arches
from gemm_lab.variants import Catalogue, Facts, Variant, config_of, make_spec, plan, render

RUNGS = ("tiled", "vectorized", "warp_tiled", "simt_async")
LAYOUTS = ("nn", "nt", "tn", "tt")


def specified(
    name: str, *, arch: str = "sm_80", layout: Any = "nn", vec: int = 4, **tunables: Any
) -> tuple[Variant, KernelSpec]:
    variant = Catalogue().get(name)
    facts = Facts(
        dtype=DTYPES["fp32"],
        out=DTYPES["fp32"].default_out,
        layout=layout,
        alignment=Alignment(vec_a=vec, vec_b=vec, vec_c=vec),
        arch=arch,
    )
    return variant, make_spec(variant, facts, config_of(variant, "fp32", tunables))


def rendered(name: str, **facts: Any) -> RenderedKernel:
    return render(*specified(name, **facts))


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90"])
@pytest.mark.parametrize("name", RUNGS)
def test_the_defaults_do_not_spill(name: str, arch: str) -> None:
    if name == "simt_async" and arch == "sm_70":
        pytest.skip("cp.async begins with sm_80")
    if arch not in supported_arches():
        pytest.skip(f"this NVRTC does not know {arch}")
    for layout, vec in (("nn", 4), ("nn", 1), ("nt", 2), ("tt", 1)):
        compiled = compile_kernel(rendered(name, arch=arch, layout=layout, vec=vec))
        for entry, resources in compiled.resources.items():
            spilled = resources.spill_store_bytes + resources.spill_load_bytes
            assert spilled == 0, f"{entry} {layout}"


ODD = [
    ("tiled", {"BLOCK_SIZE": 32, "TILE": 4, "BK": 32}),
    ("tiled", {"BLOCK_SIZE": 48, "TILE": 3, "BK": 7}),
    ("tiled", {"BLOCK_SIZE": 1, "TILE": 1, "BK": 1}),
    ("vectorized", {"BLOCK_SIZE": 16, "TILE": 1, "BK": 16}),
    ("vectorized", {"BLOCK_SIZE": 48, "TILE": 6, "BK": 7, "PAD": 1}),
    ("warp_tiled", {"BM": 48, "BN": 64, "WM": 24, "WN": 32, "TM": 3, "BK": 7, "PAD": 0}),
    ("warp_tiled", {"STAGES": 3, "BK": 32}),
    ("simt_async", {"BM": 128, "BK": 7, "PAD": 1, "LANES": "rows", "STAGES": 5}),
    ("simt_async", {"SPLIT_K": 3, "PREFETCH": 0, "SPREAD": 1, "ORDER": "columns"}),
]


@pytest.mark.parametrize(("name", "tunables"), ODD)
def test_odd_values_that_keep_the_rules_compile(name: str, tunables: dict[str, Any]) -> None:
    for layout in ("nn", "tt"):
        compiled = compile_kernel(rendered(name, layout=layout, **tunables))
        declared = specified(name, **tunables)[0].launches[0]
        assert declared.entry in compiled.resources


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", RUNGS)
def test_declared_static_memory_is_what_the_compiler_takes(name: str, layout: str) -> None:
    variant, spec = specified(name, layout=layout)
    compiled = compile_kernel(render(variant, spec))
    declared = {"tiled": 2 * 128 * 16 * 4, "vectorized": 2 * 132 * 16 * 4}.get(name, 0)
    assert compiled.resources[name].static_smem_bytes == declared


BROKEN = [
    ("tiled", {"TILE": 7}, "must divide"),
    ("tiled", {"TILE": 2}, "limit of threads"),
    ("tiled", {"BK": 64}, "static shared memory"),
    ("tiled", {"MIN_BLOCKS": 9}, "MIN_BLOCKS"),
    ("vectorized", {"VEC": 3}, "1, 2 or 4"),
    ("vectorized", {"PAD": 1000}, "static shared memory"),
    ("warp_tiled", {"WM": 48}, "must divide the block tile"),
    ("warp_tiled", {"TM": 4}, "32 lanes"),
    ("warp_tiled", {"STAGES": 4}, "1 to 3 stages"),
    ("warp_tiled", {"BK": 160, "STAGES": 1, "PAD": 0}, "elements of the next tiles"),
    ("simt_async", {"WM": 96}, "must divide the block tile"),
    ("simt_async", {"PREFETCH": 5}, "at most 4 steps"),
    ("simt_async", {"STAGES": 40}, "shared memory"),
    ("simt_async", {"WM": 16, "WN": 256, "BN": 256}, "zigzag"),
]


@pytest.mark.parametrize(("name", "tunables", "words"), BROKEN)
def test_a_rule_speaks_before_a_compile(name: str, tunables: dict[str, Any], words: str) -> None:
    with pytest.raises(RuleError, match=words):
        specified(name, **tunables)


@pytest.mark.parametrize("name", RUNGS)
def test_every_search_value_alone_keeps_the_limits_or_breaks_a_rule(name: str) -> None:
    variant = Catalogue().get(name)
    shape = Shape(m=4096, n=4096, k=4096)
    problem = GemmProblem(shape=shape, dtype=DTYPES["fp32"], out=DTYPES["fp32"].default_out)
    for knob, tunable in variant.tunables.items():
        for value in tunable.candidates:
            try:
                _, spec = specified(name, **{knob: value})
            except RuleError:
                continue
            assert plan(variant, spec, shape, problem.packed_strides(), 132).launches


def test_a_long_row_of_tiles_lies_along_x() -> None:
    for name in RUNGS:
        variant, spec = specified(name)
        for m, n in ((1, 9_000_000), (9_000_000, 1)):
            shape = Shape(m=m, n=n, k=8)
            problem = GemmProblem(shape=shape, dtype=DTYPES["fp32"], out=DTYPES["fp32"].default_out)
            launch = plan(variant, spec, shape, problem.packed_strides(), 132).launches[0]
            assert launch.grid[1:] == (1, 1)


def test_split_k_adds_a_reduction_and_its_workspace() -> None:
    variant, spec = specified("simt_async", SPLIT_K=4)
    shape = Shape(m=33, n=35, k=1000, batch=2)
    problem = GemmProblem(shape=shape, dtype=DTYPES["fp32"], out=DTYPES["fp32"].default_out)
    made = plan(variant, spec, shape, problem.packed_strides(), 132)
    assert [step.entry for step in made.launches] == ["simt_async", "simt_async_reduce"]
    assert made.workspace_bytes == 4 * 2 * 33 * 36 * 4
    variant, spec = specified("simt_async")
    made = plan(variant, spec, shape, problem.packed_strides(), 132)
    assert len(made.launches) == 1
    assert made.workspace_bytes == 0


def test_switches_change_the_source() -> None:
    plain = rendered("simt_async").source
    for knob in ({"RASTER": "rows"}, {"ORDER": "columns"}, {"LANES": "rows"}, {"SNAKE": False}):
        assert rendered("simt_async", **knob).source != plain


def test_narrow_alignment_renders_narrow_loads() -> None:
    for name in ("vectorized", "warp_tiled", "simt_async"):
        source = rendered(name, vec=1).source
        assert "constexpr int LOAD_B = 1;" in source
        assert "constexpr int STORE_C = 1;" in source
        assert "constexpr int LOAD_B = 4;" in rendered(name).source
