"""What records say about the kernels of a question: which are near, how far off the rule was."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import geometric_mean

from gemm_lab.core.dtypes import LAYOUTS
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.errors import GemmLabError
from gemm_lab.lab.choice import ChoiceQuestion
from gemm_lab.lab.choice_cards import card_named
from gemm_lab.lab.choice_prospects import Prospects, Rung
from gemm_lab.lab.choice_questions import packed_arrangement
from gemm_lab.lab.choice_records import Record, Records
from gemm_lab.lab.choice_rule import estimate
from gemm_lab.variants import config_of

__all__ = ["History"]

_TYPICAL = 3


@dataclass
class History:
    """Records, and the factor of each: recorded time over estimate, None where there is none."""

    records: Records
    prospects: Prospects
    _factors: dict[int, float | None] = field(default_factory=dict)

    def near(
        self, question: ChoiceQuestion, rung: Rung, layout: str | None = None
    ) -> list[tuple[float, Record]]:
        """Records of a rung in the question's arithmetic with their distance, nearest first.

        In the rung's own layout unless another is named.
        """
        q, s = question, question.shape
        if q.device is None:
            return []
        found = self.records.near(
            device=q.device,
            arch=q.arch,
            dtype=q.dtype.name,
            out_dtype=q.out.name,
            layout=layout or rung.lie.layout,
            shape=(s.m, s.n, s.k, s.batch),
        )
        return [(distance, r) for distance, r in found if r.variant == rung.variant.name]

    def typical_factor(self, question: ChoiceQuestion, rung: Rung) -> float | None:
        """That of a rung's nearest records, however far, of other layouts where its has none."""
        found = self.near(question, rung)
        if not found:
            found = [x for layout in LAYOUTS for x in self.near(question, rung, layout)]
        nearest = sorted(found, key=lambda x: x[0])[:_TYPICAL]
        known = [f for _, r in nearest if (f := self.factor(question, rung, r)) is not None]
        return geometric_mean(known) if known else None

    def factor(self, question: ChoiceQuestion, rung: Rung, record: Record) -> float | None:
        """How many times its estimate a recorded run took."""
        key = id(record)
        if key not in self._factors:
            self._factors[key] = self._measured(question, rung, record)
        return self._factors[key]

    def _measured(self, question: ChoiceQuestion, rung: Rung, record: Record) -> float | None:
        then = GemmProblem(
            shape=Shape(
                m=max(record.m, 1),
                n=max(record.n, 1),
                k=max(record.k, 1),
                batch=max(record.batch, 1),
            ),
            dtype=dtype_named(record.dtype),
            out=question.out,
            layout=next(x for x in LAYOUTS if x == record.layout),
        )
        plain = replace(question, epilogue=None, bias=False, arch=record.arch)
        lie = packed_arrangement(then, then.layout)
        try:
            config = config_of(rung.variant, record.dtype, record.config)
            prospect = self.prospects.make(plain, rung.variant, config, lie)
        except GemmLabError:
            return None
        card = card_named(record.device, record.dtype)
        if (card is None) != (card_named(question.device, record.dtype) is None):
            return None  # one estimate in milliseconds, one without a unit
        sm_count = question.sm_count if card is None else card.sm_count
        cost = estimate(prospect, then, card=card, sm_count=sm_count).cost
        return record.median_ms / cost if isfinite(cost) and cost > 0 else None
