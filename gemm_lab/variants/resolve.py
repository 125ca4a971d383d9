"""From a variant and what is asked of it to checked values and a launch plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

from gemm_lab.core.arch import ArchLimits, arch_limits, arch_number
from gemm_lab.core.dtypes import DType, Layout, ScalarType
from gemm_lab.core.kernel import (
    Config,
    KernelLaunch,
    KernelSpec,
    LaunchPlan,
    TunableValue,
    format_value,
)
from gemm_lab.core.problem import Alignment, Shape, Strides
from gemm_lab.errors import ResourceError, RuleError, UsageError, VariantError
from gemm_lab.variants.expressions import Expression, ExpressionError
from gemm_lab.variants.tensor_maps import tensor_maps
from gemm_lab.variants.variant import Rule, Variant

__all__ = [
    "Facts",
    "check_arch",
    "config_of",
    "kernel_params",
    "make_spec",
    "plan",
    "spec_scope",
]

Scope = dict[str, TunableValue]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is asked of a variant, beside its tunables."""

    dtype: DType
    out: ScalarType
    layout: Layout
    alignment: Alignment
    arch: str
    epilogue: str | None = None
    bias: bool = False
    specialize: Shape | None = None


def config_of(variant: Variant, dtype: str, tunables: Mapping[str, Any]) -> Config:
    """Defaults of the variant for a dtype under the caller's values; each checked alone."""
    support = variant.support(dtype)
    for name in tunables:
        variant.tunable(name)
    values: dict[str, TunableValue] = {}
    for name, tunable in variant.tunables.items():
        asked = tunables.get(name, support.defaults.get(name, tunable.default))
        values[name] = tunable.parse(asked)
    return Config(values)


def make_spec(variant: Variant, facts: Facts, config: Config) -> KernelSpec:
    """A checked specification; UsageError, RuleError or ResourceError say what does not fit."""
    support = variant.support(facts.dtype.name)
    if facts.layout not in support.layouts:
        raise UsageError(
            f"{variant.name} does not do layout {facts.layout} in {facts.dtype.name}",
            hint=f"layouts: {', '.join(support.layouts)}",
        )
    if facts.out.name not in support.outs:
        raise UsageError(
            f"{variant.name} does not write {facts.out.name} from {facts.dtype.name}",
            hint=f"outputs: {', '.join(support.outs)}",
        )
    check_arch(variant, support.arch, facts.arch)
    spec = KernelSpec(
        variant=variant.name,
        config=config,
        dtype=facts.dtype,
        out=facts.out,
        layout=facts.layout,
        alignment=facts.alignment,
        arch=facts.arch,
        epilogue=facts.epilogue,
        bias=facts.bias,
        specialize=facts.specialize,
    )
    scope = spec_scope(variant, spec)
    for rule in variant.rules:
        if not _holds(variant, rule, scope):
            raise _broken(variant, spec, rule, scope)
    return spec


def check_arch(variant: Variant, lowest: str, arch: str) -> None:
    """UsageError when the architecture is too low, or not the one chip that is needed."""
    arch_limits(arch)
    if lowest[-1].isalpha():
        if arch != lowest:
            raise UsageError(
                f"{variant.name} needs {lowest} and nothing else, not {arch}",
                hint=f"its instructions exist on that chip only: --arch {lowest}; with no variant"
                f" named, one for {arch} is taken if there is any",
            )
    elif arch_number(arch) < arch_number(lowest):
        raise UsageError(
            f"{variant.name} needs {lowest} or above, not {arch}",
            hint=f"ask for --arch {lowest}, or take another variant",
        )


def spec_scope(variant: Variant, spec: KernelSpec) -> Scope:
    """Values of everything that is known before a shape: tunables, dtype facts, limits, derived."""
    limits: ArchLimits = arch_limits(spec.arch)
    storage = spec.dtype.storage.size_bytes
    scope: Scope = {
        **spec.config,
        "DTYPE": spec.dtype.name,
        "OUT": spec.out.name,
        "LAYOUT": spec.layout,
        "LAYOUT_A": spec.layout[0],
        "LAYOUT_B": spec.layout[1],
        "SIZE_A": storage,
        "SIZE_B": storage,
        "SIZE_C": spec.out.size_bytes,
        "VEC_A": spec.alignment.vec_a,
        "VEC_B": spec.alignment.vec_b,
        "VEC_C": spec.alignment.vec_c,
        "TMA_A": spec.alignment.tma_a,
        "TMA_B": spec.alignment.tma_b,
        "TMA_C": spec.alignment.tma_c,
        "ARCH": limits.number,
        "MAX_SMEM": limits.smem_per_block_optin_bytes,
        "MAX_STATIC_SMEM": limits.smem_per_block_bytes,
        "MAX_THREADS": limits.max_threads_per_block,
        "MAX_REGISTERS": limits.max_registers_per_thread,
        "REGISTERS_PER_SM": limits.registers_per_sm,
        "SMEM_PER_SM": limits.smem_per_sm_bytes,
    }
    for name, expression in variant.derived.items():
        scope[name] = _value(variant, expression, scope, f"derived.{name}")
    return scope


def plan(
    variant: Variant,
    spec: KernelSpec,
    shape: Shape,
    strides: Strides,
    sm_count: int,
    resident_clusters: Callable[[KernelLaunch], int] | None = None,
) -> LaunchPlan:
    """Every launch for a shape (none of its sizes 0); ResourceError when one cannot be.

    `resident_clusters` tells of a launch, whose grid does not count, how many of its clusters the
    device holds at once: CLUSTERS. Without it they are one for each cluster's worth of SMS.
    """
    limits = arch_limits(spec.arch)
    scope: Scope = {
        **spec_scope(variant, spec),
        "M": shape.m,
        "N": shape.n,
        "K": shape.k,
        "batch": shape.batch,
        "SMS": sm_count,
    }

    def whole(expression: Expression, key: str) -> int:
        value = _value(variant, expression, scope, key)
        if isinstance(value, str):
            raise variant.fault(key, f"{expression.text!r} gives {value!r}, no whole number")
        return int(value)

    launches = []
    for step in variant.launches:
        if not _value(variant, step.when, scope, "launch.when"):
            continue
        block = cast("tuple[int, int, int]", tuple(whole(e, "launch.block") for e in step.block))
        cluster = cast(
            "tuple[int, int, int]", tuple(whole(e, "launch.cluster") for e in step.cluster)
        )
        smem_bytes = whole(step.smem, "launch.smem")
        if any("CLUSTERS" in e.names for e in step.grid):
            scope["CLUSTERS"] = max(sm_count // prod(cluster), 1)
            if resident_clusters is not None:
                alone = KernelLaunch(
                    entry=step.entry,
                    grid=cluster,
                    block=block,
                    cluster=cluster,
                    smem_bytes=smem_bytes,
                    params=(),
                )
                scope["CLUSTERS"] = max(resident_clusters(alone), 1)
        grid = cast("tuple[int, int, int]", tuple(whole(e, "launch.grid") for e in step.grid))
        _check_limits(
            variant, limits, grid, block, smem_bytes, whole(step.static_smem, "launch.static_smem")
        )
        launches.append(
            KernelLaunch(
                entry=step.entry,
                grid=grid,
                block=block,
                cluster=cluster,
                smem_bytes=smem_bytes,
                params=kernel_params(spec, step.params),
            )
        )
    space = variant.workspace
    return LaunchPlan(
        launches=tuple(launches),
        workspace_bytes=0 if space is None else whole(space.size_bytes, "workspace.bytes"),
        workspace_zero=space is not None and space.zero,
        tensor_maps=tensor_maps(
            variant, spec, shape, strides, lambda e, key: _value(variant, e, scope, key)
        ),
    )


def kernel_params(spec: KernelSpec, declared: tuple[str, ...]) -> tuple[str, ...]:
    """Declared parameters; a bias travels behind those of every kernel that writes C."""
    adds = spec.bias and "bias" not in declared and bool({"C", "tma_c"} & set(declared))
    return (*declared, "bias") if adds else declared


def _check_limits(
    variant: Variant,
    limits: ArchLimits,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    smem_bytes: int,
    static_smem_bytes: int,
) -> None:
    threads = block[0] * block[1] * block[2]
    name = variant.name
    if not 1 <= threads <= limits.max_threads_per_block or min(block) < 1:
        raise ResourceError(
            f"{name} would launch {threads} threads a block {block}; {limits.arch} allows "
            f"{limits.max_threads_per_block}",
            hint="make the block tile smaller, or the tile of a thread larger",
        )
    if static_smem_bytes > limits.smem_per_block_bytes:
        raise ResourceError(
            f"{name} would need {static_smem_bytes} bytes of static shared memory; the limit is "
            f"{limits.smem_per_block_bytes}",
            hint="take a smaller BK, BM, BN or fewer stages",
        )
    if static_smem_bytes + smem_bytes > limits.smem_per_block_optin_bytes:
        raise ResourceError(
            f"{name} would need {static_smem_bytes + smem_bytes} bytes of shared memory a block; "
            f"{limits.arch} has {limits.smem_per_block_optin_bytes}",
            hint="take a smaller BK, BM, BN or fewer stages",
        )
    if min(grid) < 1 or grid[0] > limits.max_grid_x or max(grid[1:]) > limits.max_grid_yz:
        raise ResourceError(
            f"{name} would launch a grid of {grid}; at most {limits.max_grid_x} in x and "
            f"{limits.max_grid_yz} in y and z",
            hint="take larger block tiles, or put the long axis on x",
        )


def _value(variant: Variant, expression: Expression, scope: Scope, key: str) -> TunableValue:
    try:
        return expression(scope)
    except ExpressionError as error:
        raise variant.fault(key, str(error)) from None


def _holds(variant: Variant, rule: Rule, scope: Scope) -> bool:
    return bool(_value(variant, rule.check, scope, "rules"))


def _broken(variant: Variant, spec: KernelSpec, rule: Rule, scope: Scope) -> RuleError:
    names = sorted(rule.check.names)
    numbers = ", ".join(f"{name} = {scope[name]}" for name in names)
    fits = list(itertools.islice(_nearest(variant, spec, rule), 3))
    return RuleError(
        f"{variant.name}: {rule.say} ({rule.check.text}; here {numbers})",
        hint=f"nearest that fit: {'; '.join(fits)}" if fits else "no single change mends it",
        alignment_of=variant.operands_behind(rule),
    )


def _nearest(variant: Variant, spec: KernelSpec, rule: Rule) -> Iterator[str]:
    """Single changes of a tunable that the rule depends on, nearest first, that keep all rules."""
    for name in _roots(variant, rule.check):
        tunable = variant.tunables[name]
        now = spec.config[name]
        values: set[TunableValue] = set(tunable.candidates)
        if tunable.kind == "integer" and isinstance(now, int):
            values |= {v for e in range(12) if (v := 2**e) >= tunable.minimum}
            values |= {v for d in (-1, 1) if (v := now + d) >= tunable.minimum}
        values.discard(now)
        for value in sorted(values, key=lambda v: _distance(v, now)):
            if _keeps_rules(variant, spec, {name: value}):
                yield f"{name}={format_value(value)}"
                break


def _distance(value: TunableValue, now: TunableValue) -> tuple[float, str]:
    if isinstance(value, int) and isinstance(now, int):
        return (max(value, now) / max(min(value, now), 1), str(value))
    return (0.0, str(value))


def _keeps_rules(variant: Variant, spec: KernelSpec, change: Mapping[str, TunableValue]) -> bool:
    changed = replace(spec, config=Config({**spec.config, **change}))
    try:
        scope = spec_scope(variant, changed)
        return all(bool(rule.check(scope)) for rule in variant.rules)
    except (VariantError, ExpressionError):
        return False


def _roots(variant: Variant, expression: Expression) -> list[str]:
    """Tunables behind an expression, in the file's order."""
    behind = variant.names_behind(expression.names)
    return [name for name in variant.tunables if name in behind]
