"""How automatic choice stands against the library over many problems, and what holds it back.

Of every problem two kernels count: the one that choice took, and the fastest right one that was
measured. Where a kernel needs operands copied (`gemm_lab.matmul` would do that first), what the
model says of the copies is added to its time: a measurement of packed operands leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemm_lab.core.dtypes import LAYOUTS
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.measurement import MeasuredProblem, Measurement
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.errors import GemmLabError
from gemm_lab.lab.choice_cards import card_named
from gemm_lab.lab.choice_prospects import Prospects
from gemm_lab.lab.choice_questions import packed_arrangement, question_of_problem
from gemm_lab.lab.choice_rule import copies_ms, estimate
from gemm_lab.lab.suite import Suite
from gemm_lab.lab.workbench import Workbench
from gemm_lab.report.standing import Standing, StandingGroup
from gemm_lab.variants import config_of

__all__ = ["standings"]

# A second cause is named when it takes this share of the first.
_NOTABLE = 0.5


def standings(
    measurements: Iterable[Measurement],
    suites: Sequence[Suite] = (),
    bench: Workbench | None = None,
) -> list[StandingGroup]:
    """A group for each suite, card, arithmetic and layout that was measured.

    Without suites all problems of one card, arithmetic and layout are one group. Nothing is
    compiled or run.
    """
    judge = _Judge(bench or Workbench())
    tables: dict[tuple[str, str, str, str], dict[MeasuredProblem, list[Measurement]]] = {}
    for m in measurements:
        p = m.problem
        shape = Shape(m=p.m, n=p.n, k=p.k, batch=p.batch)
        inside = [s.name for s in suites if any(x.shape == shape for x in s.shapes)]
        for name in inside if suites else [""]:
            key = (name, m.device, p.dtype, p.layout)
            tables.setdefault(key, {}).setdefault(p, []).append(m)
    order = {s.name: i for i, s in enumerate(suites)}
    found = []
    for name, device, dtype, layout in sorted(tables, key=lambda k: order.get(k[0], 0)):
        each = [judge.standing(some) for some in tables[name, device, dtype, layout].values()]
        known = sorted((s for s in each if s is not None), key=lambda s: s.ratio)
        if known:
            found.append(
                StandingGroup(
                    suite=name, device=device, dtype=dtype, layout=layout,
                    standings=tuple(known), without=len(each) - len(known),
                )
            )  # fmt: skip
    return found


class _Judge:
    """Knows the kernels behind measurements, as far as their files are still there."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._prospects = Prospects()

    def standing(self, some: Sequence[Measurement]) -> Standing | None:
        """Of the measurements of one problem; None when none is right and beside the library."""
        right = [m for m in some if m.error is None and m.verified is not False]
        timed = [m for m in right if m.ratio_to_baseline is not None and m.median_ms]
        if not timed:
            return None
        facts = {id(m): self._facts(m) for m in timed}

        def ratio(m: Measurement) -> float:
            assert m.ratio_to_baseline is not None
            assert m.median_ms is not None
            return m.ratio_to_baseline.median / (1 + facts[id(m)][0] / m.median_ms)

        best = max(timed, key=ratio)
        taken = _taken(timed) or best
        copies, bound = facts[id(taken)]
        return Standing(
            taken=taken,
            ratio=ratio(taken),
            best=best,
            best_ratio=ratio(best),
            copies_ms=copies,
            bound=bound,
        )

    def _facts(self, m: Measurement) -> tuple[float, str]:
        """Milliseconds of copies, and what the kernel waits for, by the model."""
        p, card = m.problem, card_named(m.device, m.problem.dtype)
        if card is None:
            return 0.0, ""
        arithmetic = dtype_named(p.dtype)
        problem = GemmProblem(
            shape=Shape(m=p.m, n=p.n, k=max(p.k, 1), batch=p.batch),
            dtype=arithmetic,
            out=arithmetic.out(p.out_dtype),
            layout=next(x for x in LAYOUTS if x == p.layout),
        )
        try:
            variant = self._bench.variant(m.variant)
            question = question_of_problem(
                problem, layouts=[problem.layout], arch=m.arch, device=m.device,
                sm_count=card.sm_count,
            )  # fmt: skip
            prospect = self._prospects.make(
                question,
                variant,
                config_of(variant, p.dtype, m.config),
                packed_arrangement(problem, problem.layout),
            )
        except GemmLabError:
            return 0.0, ""
        copies = copies_ms(problem, prospect.copies, card)
        known = estimate(prospect, problem, card=card, sm_count=card.sm_count).parts
        return copies, _bound({**known, "copies": copies} if known else {})


def _taken(timed: Sequence[Measurement]) -> Measurement | None:
    """What choice took last; None where nobody wrote down an order."""
    ranked = [m for m in timed if m.choice_rank is not None]
    if not ranked:
        return None
    first = min(m.choice_rank or 0 for m in ranked)
    return max((m for m in ranked if m.choice_rank == first), key=lambda m: m.started or "")


def _bound(parts: dict[str, float]) -> str:
    """The part that takes longest, and the next where it is nearly as long."""
    longest = sorted(parts.items(), key=lambda x: -x[1])[:2]
    return ", ".join(n for n, t in longest if t >= _NOTABLE * longest[0][1] and t > 0)
