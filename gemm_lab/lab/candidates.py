"""What a sweep or a bench will measure: every combination, checked before anything is compiled."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.kernel import Config, KernelSpec, RenderedKernel
from gemm_lab.core.measurement import MeasuredProblem
from gemm_lab.core.problem import GemmProblem, Shape, Strides
from gemm_lab.errors import GemmLabError, RuleError, UsageError, VariantError
from gemm_lab.lab.describe import measured_problem
from gemm_lab.lab.keys import question_key
from gemm_lab.lab.prepare import Request, check_launches
from gemm_lab.lab.results import Pruned
from gemm_lab.lab.trial import aligned_strides
from gemm_lab.lab.workbench import choose_arch
from gemm_lab.variants import Facts, Variant, config_of, make_spec, render

__all__ = ["Candidate", "Planner", "Recipe", "Target", "checked_spec", "expand", "unique"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where candidates will run."""

    backend: str
    device: str
    arch: str
    sm_count: int


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A candidate in plain values, for another process: it makes the rest anew."""

    variant: str
    config: Mapping[str, Any]
    problem: MeasuredProblem
    bias: bool
    arch: str | None
    specialize: bool
    smem_pad_bytes: int

    def gemm_problem(self) -> GemmProblem:
        """The product."""
        p = self.problem
        arithmetic = dtype_named(p.dtype)
        return GemmProblem(
            shape=Shape(m=p.m, n=p.n, k=p.k, batch=p.batch),
            dtype=arithmetic,
            out=arithmetic.out(p.out_dtype),
            layout=_layout(p.layout),
            alpha=p.alpha,
            beta=p.beta,
            epilogue=p.epilogue,
            bias=self.bias,
        )

    def request(self, variant: Variant) -> Request:
        """The kernel that is asked for."""
        return Request(
            variant=variant,
            config=Config(self.config),
            arch=self.arch,
            specialize=self.specialize,
            smem_pad_bytes=self.smem_pad_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One kernel on one problem, checked and rendered; `key` says what a journal knows it by.

    `choice_rank` is its place in the order of automatic choice, where that proposed it.
    """

    request: Request
    problem: GemmProblem
    rendered: RenderedKernel
    key: str
    choice_rank: int | None = None

    @property
    def recipe(self) -> Recipe:
        """The same in plain values."""
        r = self.request
        return Recipe(
            variant=os.fspath(r.variant.path),
            config=dict(r.config),
            problem=measured_problem(self.problem),
            bias=self.problem.bias,
            arch=r.arch,
            specialize=r.specialize,
            smem_pad_bytes=r.smem_pad_bytes,
        )


def expand(variant: Variant, dtype: str, tunables: Mapping[str, Any]) -> list[Config]:
    """The product of values: a list is tried in turn, None means the tuner's own candidates.

    A tunable that is not named keeps its default. Equal configs appear once.
    """
    axes: dict[str, Sequence[Any]] = {}
    for name, values in tunables.items():
        tunable = variant.tunable(name)
        if values is None:
            axes[name] = tunable.candidates
        elif isinstance(values, (list, tuple, range, set, frozenset)):
            axes[name] = list(values)
        else:
            axes[name] = [values]
        if not axes[name]:
            raise UsageError(f"{name} has no value to try", hint=f"{name}=[...] or {name}=None")
    combinations = itertools.product(*axes.values())
    configs = (config_of(variant, dtype, dict(zip(axes, c, strict=True))) for c in combinations)
    return list(dict.fromkeys(configs))


@dataclass
class Planner:
    """Checks and renders; equal specifications are rendered once."""

    target: Target
    seed: int = 0
    # By variant too: two files may have one name.
    _rendered: dict[tuple[Variant, KernelSpec], RenderedKernel] = field(default_factory=dict)

    def candidate(self, request: Request, problem: GemmProblem) -> Candidate | Pruned:
        """The candidate, or why there is none: a rule, a limit, a layout, an architecture.

        VariantError: the variant's file itself is at fault.
        """
        try:
            rendered = self._render(request, problem)
        except VariantError:
            raise
        except GemmLabError as error:
            return Pruned(
                variant=request.variant.name,
                config=dict(request.config),
                problem=_problem_text(problem),
                reason=error.message,
            )
        return Candidate(
            request=request,
            problem=problem,
            rendered=rendered,
            key=question_key(
                variant=request.variant.name,
                source_sha256=rendered.source_sha256,
                config=dict(request.config),
                problem=measured_problem(problem),
                bias=problem.bias,
                backend=self.target.backend,
                device=self.target.device,
                arch=rendered.arch,
                seed=self.seed,
                smem_pad_bytes=request.smem_pad_bytes,
            ),
        )

    def _render(self, request: Request, problem: GemmProblem) -> RenderedKernel:
        spec, strides = checked_spec(request, problem, self.target.arch)
        check_launches(request, spec, problem, strides, self.target.sm_count)
        key = (request.variant, spec)
        if key not in self._rendered:
            self._rendered[key] = render(request.variant, spec)
        return self._rendered[key]


def checked_spec(
    request: Request, problem: GemmProblem, arch: str | None
) -> tuple[KernelSpec, Strides]:
    """What would be compiled for an architecture, and the strides: as lab.trial.make_executor.

    Rows are padded where a rule asks for alignment. UsageError, RuleError or ResourceError say
    what does not fit.
    """
    variant = request.variant
    lowest = variant.support(problem.dtype.name).arch
    padded: frozenset[str] = frozenset()
    while True:
        strides = aligned_strides(problem, padded)
        facts = Facts(
            dtype=problem.dtype,
            out=problem.out,
            layout=problem.layout,
            alignment=problem.alignment(strides, (0, 0, 0)),
            arch=choose_arch(lowest, request.arch, arch),
            epilogue=problem.epilogue,
            bias=problem.bias,
            specialize=problem.shape if request.specialize else None,
        )
        try:
            return make_spec(variant, facts, request.config), strides
        except RuleError as error:
            if not error.alignment_of - padded:
                raise
            padded |= error.alignment_of


def unique(candidates: Iterable[Candidate]) -> list[Candidate]:
    """One of each key, in order."""
    return list({c.key: c for c in candidates}.values())


def _problem_text(problem: GemmProblem) -> str:
    return f"{problem.shape} {problem.dtype.name} {problem.layout}"


def _layout(text: str) -> Layout:
    from gemm_lab.core.dtypes import LAYOUTS

    return next(layout for layout in LAYOUTS if layout == text)
