"""Tunables: bounds before rules, rules before compiling, and the nearest values that fit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemm_lab.core.arch import arch_limits
from gemm_lab.core.dtypes import dtype
from gemm_lab.core.kernel import Config
from gemm_lab.core.problem import Alignment, GemmProblem, Shape, Strides
from gemm_lab.errors import ResourceError, RuleError, UsageError
from gemm_lab.variants import (
    Catalogue,
    Facts,
    Variant,
    config_of,
    make_spec,
    plan,
    spec_scope,
)

CATALOGUE = Catalogue()
VARIANTS = CATALOGUE.ladder()


def facts(variant: Variant, name: str, **changes: object) -> Facts:
    support = variant.support(name)
    found = dtype(name)
    values: dict[str, object] = {
        "dtype": found,
        "out": found.default_out,
        "layout": support.layouts[0],
        "arch": support.arch,
        "alignment": widest(name),
        **changes,
    }
    return Facts(**values)  # type: ignore[arg-type]


def widest(name: str) -> Alignment:
    found = dtype(name)
    wide = 16 // found.storage.size_bytes
    return Alignment(
        vec_a=wide, vec_b=wide, vec_c=16 // found.default_out.size_bytes,
        tma_a=True, tma_b=True, tma_c=True,
    )  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_defaults_keep_every_rule_for_every_dtype(variant: Variant) -> None:
    for name in variant.dtypes:
        spec = make_spec(variant, facts(variant, name), config_of(variant, name, {}))
        limits = arch_limits(spec.arch)
        made = plan(variant, spec, Shape(m=100, n=77, k=50), Strides(lda=50, ldb=77, ldc=77), 132)
        for step in made.launches:
            x, y, z = step.block
            assert x * y * z <= limits.max_threads_per_block
            assert step.smem_bytes <= limits.smem_per_block_optin_bytes


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_values_are_planned_or_refused_with_a_clear_error(
    variant: Variant, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(variant.dtypes)))
    values: dict[str, object] = {}
    for tunable in variant.tunables.values():
        if tunable.kind == "integer":
            values[tunable.name] = data.draw(st.sampled_from([1, 2, 3, 7, 8, 16, 32, 48, 64, 256]))
            if int(str(values[tunable.name])) < tunable.minimum:
                del values[tunable.name]
        else:
            values[tunable.name] = data.draw(st.sampled_from(tunable.candidates))
    m, n, k = (data.draw(st.integers(1, 5000)) for _ in range(3))
    config = config_of(variant, name, values)
    refused: UsageError | ResourceError | None = None
    try:
        spec = make_spec(variant, facts(variant, name), config)
        made = plan(variant, spec, Shape(m=m, n=n, k=k), Strides(lda=k, ldb=n, ldc=n), 132)
    except (RuleError, ResourceError) as error:
        refused = error
    assert made.launches if refused is None else refused.hint


def test_a_broken_rule_tells_numbers_and_the_nearest_that_fit() -> None:
    variant = CATALOGUE.get("shared")
    with pytest.raises(RuleError) as caught:
        make_spec(variant, facts(variant, "fp32"), config_of(variant, "fp32", {"BLOCK_SIZE": 48}))
    assert "THREADS = 2304" in caught.value.message
    assert "MAX_THREADS = 1024" in caught.value.message
    assert caught.value.hint is not None
    assert "BLOCK_SIZE=32" in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("value", [0, -1, "x", 2**31, 1.5, True, None, "1e3", ""])
def test_a_tunable_s_own_bounds_come_first(value: object) -> None:
    with pytest.raises(UsageError, match="BLOCK_SIZE"):
        config_of(CATALOGUE.get("shared"), "fp32", {"BLOCK_SIZE": value})


def test_unknown_tunables_name_the_known() -> None:
    with pytest.raises(UsageError, match="no tunable BLOCKSIZE") as caught:
        config_of(CATALOGUE.get("shared"), "fp32", {"BLOCKSIZE": 16})
    assert "BLOCK_SIZE" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "sm_60"}, "no limits are known"),
        ({"arch": "90"}, "no architecture"),
        ({"layout": "xx"}, "does not do layout"),
    ],
)
def test_facts_that_cannot_be(changes: dict[str, object], words: str) -> None:
    variant = CATALOGUE.get("shared")
    wrong = facts(variant, "fp32", **changes)
    with pytest.raises(UsageError, match=words):
        make_spec(variant, wrong, config_of(variant, "fp32", {}))


def test_grids_beyond_the_limit_are_refused_before_a_launch() -> None:
    variant = CATALOGUE.get("naive")
    spec = make_spec(variant, facts(variant, "fp32"), config_of(variant, "fp32", {"BLOCK_SIZE": 1}))
    with pytest.raises(ResourceError, match="grid"):
        plan(variant, spec, Shape(m=10**6, n=10**6, k=1), Strides(lda=1, ldb=1, ldc=1), 1)


def test_nine_million_rows_or_columns_are_planned() -> None:
    for variant in VARIANTS:
        for name in variant.dtypes:
            spec = make_spec(variant, facts(variant, name), config_of(variant, name, {}))
            for m, n in ((9_000_000, 1), (1, 9_000_000)):
                made = plan(variant, spec, Shape(m=m, n=n, k=8), Strides(lda=8, ldb=n, ldc=n), 132)
                assert all(max(step.grid[1:]) <= 65535 for step in made.launches)


@given(
    m=st.integers(1, 300), n=st.integers(1, 300), k=st.integers(1, 300),
    pad=st.integers(0, 9), address=st.integers(0, 64),
    name=st.sampled_from(["fp32", "fp16", "int8"]),
    layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
)  # fmt: skip
def test_alignment_promises_only_what_holds(
    m: int, n: int, k: int, pad: int, address: int, name: str, layout: str
) -> None:
    found = dtype(name)
    problem = GemmProblem(
        shape=Shape(m=m, n=n, k=k),
        dtype=found,
        out=found.default_out,
        layout=layout,  # type: ignore[arg-type]
    )
    packed = problem.packed_strides()
    size = found.storage.size_bytes
    lda = packed.lda + pad
    strides = Strides(lda=lda, ldb=packed.ldb, ldc=packed.ldc)
    got = problem.alignment(strides, (address * size, 0, 0))
    inner = k if layout[0] == "n" else m
    wide = got.vec_a * size
    assert (address * size) % wide == 0
    assert (lda * size) % wide == 0
    assert (inner * size) % wide == 0
    assert wide <= 16
    twice = 2 * wide
    assert wide == 16 or (address * size) % twice or (lda * size) % twice or (inner * size) % twice
    assert got.tma_a == ((address * size) % 16 == 0 and (lda * size) % 16 == 0)


def test_configs_compare_by_value() -> None:
    one, two = Config({"BM": 64, "FAST": True}), Config({"BM": 64, "FAST": True})
    assert one == two
    assert hash(one) == hash(two)
    assert str(one) == "BM=64 FAST=true"
    assert one != Config({"BM": 64, "FAST": False})


def test_fast_accumulation_is_a_fact_of_the_file() -> None:
    found = {}
    for variant in VARIANTS:
        for name, support in variant.dtypes.items():
            for knobs in (
                ({}, {"ACCUMULATE": "fast"}) if "ACCUMULATE" in variant.tunables else ({},)
            ):
                spec = make_spec(variant, facts(variant, name), config_of(variant, name, knobs))
                told = bool(support.fast_accumulation(spec_scope(variant, spec)))
                found.setdefault(name, set()).add(told)
    assert found["fp8_e4m3"] == {False, True}
    assert all(told == {False} for name, told in found.items() if name != "fp8_e4m3")
