"""What automatic choice is asked and what it answers: plain data.

A `ChoiceQuestion` holds everything that the answer depends on, so that it is also the key under
which the answer is kept. `Arrangement` says how the operands lie in one layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from gemm_lab.core.dtypes import DType, Layout, ScalarType
from gemm_lab.core.kernel import Config, TunableValue
from gemm_lab.core.problem import Alignment, GemmProblem, Shape
from gemm_lab.report.numbers import milliseconds

__all__ = ["Alternative", "Arrangement", "Basis", "Choice", "ChoiceQuestion", "PassedOver"]


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """The operands as a kernel for `layout` would meet them.

    Attributes:
        alignment, padded: as they lie, and with rows padded to whole 16 bytes.
        copied: operands that must be copied before they have this layout.
        padding_copies: operands whose padding would be a copy (arrays of a GPU).
    """

    layout: Layout
    alignment: Alignment
    padded: Alignment
    copied: frozenset[str] = frozenset()
    padding_copies: frozenset[str] = frozenset()

    def alignment_with(self, operands: frozenset[str]) -> Alignment:
        """With the rows of these operands ("a", "b", "c") padded."""
        changes: dict[str, Any] = {}
        for name in operands:
            for fact in (f"vec_{name}", f"tma_{name}"):
                changes[fact] = getattr(self.padded, fact)
        return replace(self.alignment, **changes)


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion:
    """A product on a device.

    Attributes:
        arrangements: one for each layout that may be taken.
        arch: to compile for; None lets each variant have its own.
        device: the card's name, None where there is none; then `sm_count` is None as well.
        emulated: whether NumPy will execute it: the cheapest to emulate is wanted, not the fastest.
        tunables: those that the caller has fixed, by name.
    """

    dtype: DType
    out: ScalarType
    shape: Shape
    arrangements: tuple[Arrangement, ...]
    arch: str | None
    device: str | None = None
    sm_count: int | None = None
    emulated: bool = False
    tunables: tuple[tuple[str, TunableValue], ...] = ()
    epilogue: str | None = None
    bias: bool = False

    def problem(self, layout: Layout) -> GemmProblem:
        """The product in a layout; sizes of 0 are taken as 1."""
        s = self.shape
        return GemmProblem(
            shape=Shape(m=max(s.m, 1), n=max(s.n, 1), k=max(s.k, 1), batch=max(s.batch, 1)),
            dtype=self.dtype,
            out=self.out,
            layout=layout,
            epilogue=self.epilogue,
            bias=self.bias,
        )


class Basis(StrEnum):
    """What an alternative's place rests on."""

    RECORDED = "recorded"
    NEIGHBOUR = "recorded nearby"
    RULE = "rule"
    LADDER = "ladder"


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A kernel that can answer, and what is known of its time.

    Attributes:
        arch: to compile for.
        estimated_ms: from the nearest record or the model, copies included; None where neither
            knows.
        recorded_ms: median of a recorded run of `recorded_problem`, which may be another shape.
        copies: operands that would have to be copied first.
        copies_ms: how long that takes by the model; None without copies or a card that it knows.
        why: one line.
    """

    variant: str
    config: Config
    layout: Layout
    arch: str
    basis: Basis
    estimated_ms: float | None = None
    recorded_ms: float | None = None
    recorded_problem: str | None = None
    copies: tuple[str, ...] = ()
    copies_ms: float | None = None
    why: str = ""

    @property
    def copies_text(self) -> str:
        """What must be copied first, and for how long; "" when nothing must."""
        if not self.copies:
            return ""
        time = "" if self.copies_ms is None else f", {milliseconds(self.copies_ms)} of it"
        return f"{', '.join(self.copies)} copied first{time}"


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """A kernel that was considered and cannot be taken."""

    variant: str
    config: Config | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The kernel that is taken for a product, and why.

    Attributes:
        reason: one sentence.
        alternatives: every kernel considered, the chosen one first, then in the order in which
            they would be tried.
        passed_over: what cannot be taken, and why.
    """

    question: ChoiceQuestion = field(repr=False)
    reason: str
    alternatives: tuple[Alternative, ...]
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def chosen(self) -> Alternative:
        """The first of the alternatives."""
        return self.alternatives[0]

    @property
    def variant(self) -> str:
        """Name of the variant that is taken."""
        return self.chosen.variant

    @property
    def config(self) -> Config:
        """All of its tunables."""
        return self.chosen.config

    @property
    def layout(self) -> Layout:
        """The layout in which it reads the operands."""
        return self.chosen.layout

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        q = self.question
        s = q.shape
        return {
            "problem": {
                "m": s.m, "n": s.n, "k": s.k, "batch": s.batch,
                "dtype": q.dtype.name, "out_dtype": q.out.name,
            },
            "device": q.device,
            "arch": q.arch,
            "emulated": q.emulated,
            "variant": self.variant,
            "config": dict(self.config),
            "layout": self.layout,
            "reason": self.reason,
            "alternatives": [_alternative(a) for a in self.alternatives],
            "passed_over": [
                {
                    "variant": p.variant,
                    "config": None if p.config is None else dict(p.config),
                    "reason": p.reason,
                }
                for p in self.passed_over
            ],
        }  # fmt: skip


def _alternative(a: Alternative) -> dict[str, Any]:
    return {
        "variant": a.variant,
        "config": dict(a.config),
        "layout": a.layout,
        "arch": a.arch,
        "basis": a.basis.value,
        "estimated_ms": a.estimated_ms,
        "recorded_ms": a.recorded_ms,
        "recorded_problem": a.recorded_problem,
        "copies": list(a.copies),
        "copies_ms": a.copies_ms,
        "why": a.why,
    }
