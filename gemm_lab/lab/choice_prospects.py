"""Kernels worth trying for a product: a variant with tunables that keep its rules.

What a [model] table says of a kernel depends on no shape, so a prospect is made once for each
layout and alignment and kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gemm_lab.core.kernel import Config, KernelSpec, TunableValue
from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import GemmLabError, RuleError, UsageError
from gemm_lab.lab.choice import Arrangement, ChoiceQuestion
from gemm_lab.lab.modelling import model_facts
from gemm_lab.lab.workbench import choose_arch
from gemm_lab.model import KernelShape
from gemm_lab.variants import Variant, config_of, spec_scope
from gemm_lab.variants.expressions import Expression, ExpressionError
from gemm_lab.variants.resolve import check_arch
from gemm_lab.variants.variant import Rule

__all__ = ["Prospect", "Prospects", "Rung", "shared_out", "split_tunable", "tile_configs"]

# Beside its sums a thread keeps addresses and fragments; what is not known before a compile.
_OTHER_REGISTERS = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Rung:
    """A variant that can do the arithmetic, its place on the ladder, and a layout it can take."""

    variant: Variant
    depth: int
    lie: Arrangement


@dataclass(frozen=True, kw_only=True, eq=False)
class Prospect:
    """A kernel that keeps its rules; `kernel` is None when its file has no [model] table.

    `copies` are the operands that have to be copied for it.
    """

    variant: Variant
    config: Config
    spec: KernelSpec
    scope: Mapping[str, TunableValue]
    kernel: KernelShape | None
    copies: frozenset[str]

    def workspace_bytes(self, problem: GemmProblem, sm_count: int) -> int:
        """Scratch memory of a call, written and read once."""
        space = self.variant.workspace
        return 0 if space is None else self._whole(space.size_bytes, problem, sm_count)

    def launch_count(self, problem: GemmProblem, sm_count: int) -> int:
        """Launches of one call."""
        return sum(bool(self._whole(x.when, problem, sm_count)) for x in self.variant.launches)

    def _whole(self, expression: Expression, problem: GemmProblem, sm_count: int) -> int:
        s = problem.shape
        sizes = {"M": s.m, "N": s.n, "K": s.k, "batch": s.batch, "SMS": max(sm_count, 1)}
        try:
            return int(expression({**self.scope, **sizes}))
        except ExpressionError:
            return 0


@dataclass
class Prospects:
    """Makes prospects and remembers them, refusals too."""

    most: int = 4096
    _known: dict[Any, Prospect | GemmLabError] = field(default_factory=dict)

    def make(
        self, question: ChoiceQuestion, variant: Variant, config: Config, lie: Arrangement
    ) -> Prospect:
        """A checked prospect; UsageError, RuleError, ... say why there is none.

        Where a rule asks for alignment that the operands lack, padded copies are assumed.
        """
        key = (
            variant, config, question.dtype.name, question.out.name, lie, question.arch,
            question.epilogue, question.bias,
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            try:
                found = self._make(question, variant, config, lie)
            except GemmLabError as error:
                found = error
            if len(self._known) >= self.most:
                self._known.clear()
            self._known[key] = found
        if isinstance(found, GemmLabError):
            raise found
        return found

    def _make(
        self, question: ChoiceQuestion, variant: Variant, config: Config, lie: Arrangement
    ) -> Prospect:
        support = variant.support(question.dtype.name)
        if question.out.name not in support.outs:
            raise UsageError(f"it does not write {question.out.name}")
        arch = choose_arch(support.arch, None, question.arch)
        check_arch(variant, support.arch, arch)
        padded: frozenset[str] = frozenset()
        while True:
            spec = KernelSpec(
                variant=variant.name,
                config=config,
                dtype=question.dtype,
                out=question.out,
                layout=lie.layout,
                alignment=lie.alignment_with(padded),
                arch=arch,
                epilogue=question.epilogue,
                bias=question.bias,
            )
            scope = spec_scope(variant, spec)
            broken = _broken_rule(variant, scope)
            if broken is None:
                break
            # make_spec would look for the nearest values that fit, which takes its time.
            wanted = variant.operands_behind(broken)
            if not wanted - padded:
                raise RuleError(broken.say)
            padded |= wanted
        return Prospect(
            variant=variant,
            config=config,
            spec=spec,
            scope=scope,
            kernel=_declared(variant, spec, scope) if variant.model else None,
            copies=lie.copied | (padded & lie.padding_copies),
        )


def _broken_rule(variant: Variant, scope: Mapping[str, TunableValue]) -> Rule | None:
    try:
        return next((rule for rule in variant.rules if not rule.check(scope)), None)
    except ExpressionError as error:
        raise UsageError(str(error)) from None


def _declared(
    variant: Variant, spec: KernelSpec, scope: Mapping[str, TunableValue]
) -> KernelShape | None:
    """The kernel as its file declares it, without a compiler; None when sizes decide."""
    try:
        facts = model_facts(variant, spec)
        # Steps before and after the product stage little.
        smem = [(int(x.smem(scope)), int(x.static_smem(scope)), x) for x in variant.launches]
        dynamic, static, launch = max(smem, key=lambda s: s[0] + s[1])
        if "threads" not in facts:
            x, y, z = (int(e(scope)) for e in launch.block)
            facts["threads"] = x * y * z
        sums = facts["block_m"] * facts["block_n"] // max(facts["threads"], 1)
        return KernelShape.from_facts(
            {
                **facts,
                "dynamic_smem_bytes": dynamic,
                "static_smem_bytes": static,
                "registers_per_thread": min(255, sums + _OTHER_REGISTERS),
            }
        )
    except (ExpressionError, UsageError, KeyError):
        return None


# ---- tunables by what they do, not by name: those behind the facts of the [model] table ----


def tile_configs(variant: Variant, dtype: str, fixed: Mapping[str, TunableValue]) -> list[Config]:
    """Defaults first, then every block tile that the file lists to search."""
    names = [n for n in _tunables_behind(variant, "block_m", "block_n") if n not in fixed]
    found = [config_of(variant, dtype, fixed)]
    for values in itertools.product(*(variant.tunables[n].candidates for n in names)):
        found.append(Config({**found[0], **dict(zip(names, values, strict=True))}))
    return list(dict.fromkeys(found))


def split_tunable(variant: Variant, fixed: Mapping[str, TunableValue]) -> str | None:
    """The tunable that splits the sum among blocks, if there is one that is free."""
    names = _integers_behind(variant, fixed, "split_k")
    return names[0] if len(names) == 1 else None


def shared_out(
    variant: Variant, config: Config, fixed: Mapping[str, TunableValue]
) -> Iterator[Config]:
    """The same tile among more or fewer warps, then fewer blocks to a cluster."""
    block = _tunables_behind(variant, "block_m", "block_n")
    warps = [n for n in _integers_behind(variant, fixed, "warp_m", "warp_n") if n not in block]
    clusters = _integers_behind(variant, fixed, "cluster_m", "cluster_n")
    for values in itertools.product(*(variant.tunables[n].candidates for n in warps)):
        yield Config({**config, **dict(zip(warps, values, strict=True))})
    for count in range(1, len(clusters) + 1):
        for chosen in itertools.combinations(clusters, count):
            yield Config({**config, **dict.fromkeys(chosen, 1)})


def _integers_behind(variant: Variant, fixed: Mapping[str, TunableValue], *keys: str) -> list[str]:
    found = _tunables_behind(variant, *keys)
    return [n for n in found if n not in fixed and variant.tunables[n].kind == "integer"]


def _tunables_behind(variant: Variant, *keys: str) -> list[str]:
    """Tunables behind keys of the [model] table, in the file's order."""
    read = frozenset(n for key in keys if key in variant.model for n in variant.model[key].names)
    behind = variant.names_behind(read)
    return [name for name in variant.tunables if name in behind]
