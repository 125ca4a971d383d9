"""Which kernels can answer a question, in the order in which they are tried.

Recorded times count most: a kernel recorded near the question is expected to be as much slower
than the model's estimate as it was there. A kernel that nobody recorded near it is ranked by the
estimate times what its rung was seen to need elsewhere; where nothing at all is recorded a rung
lower on the ladder must promise clearly more to be taken. Operands that have to be copied first
cost what the model says; where it does not know the card, such kernels come last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median

from gemm_lab.core.kernel import Config, TunableValue
from gemm_lab.errors import GemmLabError
from gemm_lab.lab.choice import Alternative, Arrangement, Basis, ChoiceQuestion, PassedOver
from gemm_lab.lab.choice_cards import card_named, device_key
from gemm_lab.lab.choice_history import History
from gemm_lab.lab.choice_prospects import (
    Prospect,
    Prospects,
    Rung,
    shared_out,
    split_tunable,
    tile_configs,
)
from gemm_lab.lab.choice_records import MOST_RECORDED, Record
from gemm_lab.lab.choice_rule import Estimate, copies_ms, estimate, wave_cost
from gemm_lab.variants import config_of

__all__ = ["Ranking"]

# A record counts as near within two doublings of one axis.
_NEAR = 2.0
_NEIGHBOURS = 24
# What a kernel without a record nearby has to promise to be taken before one that has.
_UNRECORDED = 1.3
# The same for each rung that a kernel stands lower than the highest that could do it.
_RUNG = 1.25
# The same for tunables that are not the defaults, which somebody has tried.
_CHANGED = 1.08
# Rungs from the highest down that are estimated; those below come last, unexamined.
_EXAMINED = 3
# Configurations of a rung that go to the model, beside its defaults.
_ESTIMATED = 5
_CONFIGS_OF_A_RUNG = 3


@dataclass(frozen=True, kw_only=True)
class _Seen:
    cost: float
    alternative: Alternative


@dataclass
class Ranking:
    """Ranks the kernels of one question; `passed_over` says what fell out, and why."""

    question: ChoiceQuestion
    rungs: list[Rung]
    prospects: Prospects
    history: History
    passed_over: list[PassedOver] = field(default_factory=list)

    def __post_init__(self) -> None:
        q = self.question
        self.fixed: Mapping[str, TunableValue] = dict(q.tunables)
        self.card = card_named(q.device, q.dtype.name) if q.device else None

    def ranked(self) -> list[Alternative]:
        """Every kernel, best first; those with copies that nobody can price come last."""
        if self.question.emulated:
            return list(self._by_ladder(sorted(self.rungs, key=lambda r: r.depth)))
        ladder = sorted(self.rungs, key=lambda r: -r.depth)
        whole = [r for r in ladder if not r.lie.copied] or ladder
        lowest = whole[:_EXAMINED][-1].depth if self.card else 0
        top = whole[:_EXAMINED] + [r for r in ladder if r not in whole and r.depth >= lowest]
        rest = [r for r in ladder if r not in top]
        seen = self._recorded()
        known = {(s.alternative.variant, s.alternative.config) for s in seen}
        seen += [
            s for s in self._by_rule(top)
            if (s.alternative.variant, s.alternative.config) not in known
        ]  # fmt: skip
        # With as many records of this very problem as are kept, what has none was slower, whatever
        # the rule promises.
        recorded = [s.alternative.basis is Basis.RECORDED for s in seen]
        trusted = sum(recorded) >= MOST_RECORDED
        seen.sort(key=lambda s: (trusted and s.alternative.basis is not Basis.RECORDED, s.cost))
        kept: list[Alternative] = []
        for s in seen:
            if sum(k.variant == s.alternative.variant for k in kept) < _CONFIGS_OF_A_RUNG:
                kept.append(s.alternative)
        last = list(self._by_ladder(rest))
        found = [*kept, *last]
        return sorted(found, key=lambda a: bool(a.copies) and a.copies_ms is None)

    # ---- from records ----
    def _recorded(self) -> list[_Seen]:
        found: dict[object, _Seen] = {}
        for rung in self.rungs:
            for distance, record in self.history.near(self.question, rung)[:_NEIGHBOURS]:
                if distance > _NEAR:
                    break
                key = (rung.variant.name, str(record.config))
                if key in found:
                    continue
                made = self._from_record(rung, distance, record)
                if made is not None:
                    found[key] = made
        return list(found.values())

    def _from_record(self, rung: Rung, distance: float, record: Record) -> _Seen | None:
        config, dtype = None, self.question.dtype.name
        try:
            config = config_of(rung.variant, dtype, record.config)
            if config != config_of(rung.variant, dtype, {**config, **self.fixed}):
                return None
            prospect = self.prospects.make(self.question, rung.variant, config, rung.lie)
        except GemmLabError as error:
            self._pass_over(rung.variant.name, config, f"recorded, but {error.message}")
            return None
        same = distance == 0 and device_key(record.device) == device_key(self.question.device)
        if same:
            cost, basis = record.median_ms, Basis.RECORDED
            why = f"recorded on {record.device}"
        else:
            factor = self.history.factor(self.question, rung, record)
            if factor is None:
                return None
            cost, basis = self._estimate(prospect, rung.lie).cost * factor, Basis.NEIGHBOUR
            why = f"scaled from {record.problem_text} recorded on {record.device}"
        if not isfinite(cost):
            return None
        seen = self._seen(rung, prospect, basis, why, cost, cost)
        return replace(
            seen,
            alternative=replace(
                seen.alternative,
                recorded_ms=record.median_ms,
                recorded_problem=record.problem_text,
            ),
        )

    # ---- by the rule ----
    def _by_rule(self, rungs: list[Rung]) -> Iterator[_Seen]:
        top = max((r.depth for r in rungs), default=0)
        factors = {id(r): self.history.typical_factor(self.question, r) for r in rungs}
        known = [f for f in factors.values() if f is not None]
        usual = median(known) if known else 1.0
        for rung in rungs:
            factor = factors[id(rung)]
            weight = usual * _RUNG ** (top - rung.depth) if factor is None else factor
            weight *= _UNRECORDED if known else 1.0
            usual_config = config_of(rung.variant, self.question.dtype.name, self.fixed)
            for prospect, found in self._configs(rung):
                time_ms = None if found.time_ms is None else found.time_ms * (factor or 1.0)
                if factor is not None and self.card is None:
                    time_ms = found.cost * factor
                changed = 1 if prospect.config == usual_config else _CHANGED
                cost = found.cost * weight * changed
                yield self._seen(rung, prospect, Basis.RULE, found.why, cost, time_ms)

    def _configs(self, rung: Rung) -> list[tuple[Prospect, Estimate]]:
        """The best few by the model, among the defaults and those that fill the card best."""
        variant = rung.variant
        try:
            tiles = tile_configs(variant, self.question.dtype.name, self.fixed)
            default = self.prospects.make(self.question, variant, tiles[0], rung.lie)
        except GemmLabError as error:
            self._pass_over(variant.name, None, error.message)
            return []
        quick = self._filling(rung, self._kept(rung, tiles))
        found = self._estimated(rung, [default, *self._kept(rung, quick)])
        for prospect, _ in found[:1]:
            other = shared_out(variant, prospect.config, self.fixed)
            found = self._estimated(rung, [p for p, _ in found] + self._kept(rung, other))
        return found[:_CONFIGS_OF_A_RUNG]

    def _filling(self, rung: Rung, tiles: list[Prospect]) -> list[Config]:
        """The few that fill the card best by wave quantisation, sums split where that helps."""
        problem, sms = self.question.problem(rung.lie.layout), self.question.sm_count
        name = split_tunable(rung.variant, self.fixed)
        costs: dict[Config, float] = {}
        for p in tiles:
            costs[p.config] = wave_cost(p.kernel, problem, sm_count=sms)
            if name is None or p.kernel is None:
                continue
            for parts in rung.variant.tunables[name].candidates:
                if isinstance(parts, int) and parts <= problem.shape.k:
                    kernel = replace(p.kernel, split_k=parts)
                    config = Config({**p.config, name: parts})
                    costs[config] = wave_cost(kernel, problem, sm_count=sms)
        return sorted(costs, key=lambda c: costs[c])[:_ESTIMATED]

    def _kept(self, rung: Rung, configs: Iterable[Config]) -> list[Prospect]:
        """Those that keep the rules."""
        kept = []
        for config in configs:
            with contextlib.suppress(GemmLabError):
                kept.append(self.prospects.make(self.question, rung.variant, config, rung.lie))
        return kept

    def _estimated(self, rung: Rung, some: list[Prospect]) -> list[tuple[Prospect, Estimate]]:
        """Best first, each once, without those that the model says cannot run."""
        each = {p.config: p for p in some}.values()
        found = [(p, self._estimate(p, rung.lie)) for p in each]
        able = [x for x in found if isfinite(x[1].cost)]
        return sorted(able, key=lambda x: x[1].cost + (self._copies_ms(x[0], rung.lie) or 0.0))

    def _estimate(self, prospect: Prospect, lie: Arrangement) -> Estimate:
        problem = self.question.problem(lie.layout)
        return estimate(prospect, problem, card=self.card, sm_count=self.question.sm_count)

    def _copies_ms(self, prospect: Prospect, lie: Arrangement) -> float | None:
        """Milliseconds of the copies that a kernel needs; None where nobody knows."""
        problem = self.question.problem(lie.layout)
        return copies_ms(problem, prospect.copies, self.card) if self.card else None

    def _seen(
        self,
        rung: Rung,
        prospect: Prospect,
        basis: Basis,
        why: str,
        cost: float,
        time_ms: float | None,
    ) -> _Seen:
        """With its copies on top of what the kernel alone costs."""
        copies = self._copies_ms(prospect, rung.lie) or 0.0
        total_ms = None if time_ms is None else time_ms + copies
        return _Seen(
            cost=cost + copies,
            alternative=self._alternative(rung, prospect, basis, why, total_ms),
        )

    # ---- by the ladder alone ----
    def _by_ladder(self, rungs: list[Rung]) -> Iterator[Alternative]:
        why = "the shortest programs are emulated fastest" if self.question.emulated else (
            "a lower rung, not examined"
        )  # fmt: skip
        for rung in rungs:
            try:
                config = config_of(rung.variant, self.question.dtype.name, self.fixed)
                prospect = self.prospects.make(self.question, rung.variant, config, rung.lie)
            except GemmLabError as error:
                self._pass_over(rung.variant.name, None, error.message)
                continue
            yield self._alternative(rung, prospect, Basis.LADDER, why, None)

    def _alternative(
        self, rung: Rung, prospect: Prospect, basis: Basis, why: str, time_ms: float | None
    ) -> Alternative:
        return Alternative(
            variant=rung.variant.name,
            config=prospect.config,
            layout=rung.lie.layout,
            arch=prospect.spec.arch,
            basis=basis,
            estimated_ms=time_ms,
            copies=tuple(sorted(prospect.copies)),
            copies_ms=self._copies_ms(prospect, rung.lie) if prospect.copies else None,
            why=why,
        )

    def _pass_over(self, variant: str, config: Config | None, reason: str) -> None:
        entry = PassedOver(variant=variant, config=config, reason=reason)
        if entry not in self.passed_over:
            self.passed_over.append(entry)
