"""Choosing: the answer to each question, kept, and what was found not to work.

From recorded results where there are some, by a short estimate elsewhere (choice_ranking). The
answer is kept for each question, so only the first call of a kind pays for it. A kernel that then
cannot be made (it does not compile, the emulator does not know an instruction) is rejected and the
next one is taken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from gemm_lab.core.arch import arch_number
from gemm_lab.core.dtypes import Layout
from gemm_lab.core.kernel import Config
from gemm_lab.errors import CompileError, GemmLabError, UsageError
from gemm_lab.lab.choice import Alternative, Basis, Choice, ChoiceQuestion, PassedOver
from gemm_lab.lab.choice_history import History
from gemm_lab.lab.choice_prospects import Prospects, Rung
from gemm_lab.lab.choice_ranking import Ranking
from gemm_lab.lab.choice_records import Records, load_records
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Variant

__all__ = ["Chooser", "RefusedError", "chooser_of"]

T = TypeVar("T")
_MOST_KEPT = 4096
_log = logging.getLogger("gemm_lab")


class RefusedError(Exception):
    """A kernel that could not be made ready; `error` says why. Nothing has been launched."""

    def __init__(self, error: GemmLabError) -> None:
        super().__init__(error.message)
        self.error = error


class Chooser:
    """Chooses for one workbench, and remembers.

    Args:
        records: recorded times; read from where they lie when first needed.
    """

    def __init__(self, bench: Workbench, records: Records | None = None) -> None:
        self._catalogue = bench.catalogue
        self._records = records
        self._prospects = Prospects()
        self._known: History | None = None
        self._kept: dict[ChoiceQuestion, Choice] = {}
        self._refused: dict[object, str] = {}
        self._ladder: list[tuple[int, Variant]] | None = None
        self._lock = threading.RLock()

    @property
    def records(self) -> Records:
        """What was recorded."""
        with self._lock:
            if self._records is None:
                self._records = load_records()
            return self._records

    def _history(self, question: ChoiceQuestion) -> History:
        if question.device is None:  # nothing can have been recorded: no file need be read
            return History(records=Records(), prospects=self._prospects)
        if self._known is None:
            self._known = History(records=self.records, prospects=self._prospects)
        return self._known

    def choose(self, question: ChoiceQuestion) -> Choice:
        """The kernel for a question; UsageError when no variant does it at all."""
        found = self._kept.get(question)
        if found is None:
            with self._lock:
                found = self._choose(question)
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[question] = found
        return found

    def first_that_works(self, question: ChoiceQuestion, attempt: Callable[[Alternative], T]) -> T:
        """The result of the first alternative whose attempt is not refused.

        `attempt` raises RefusedError for a kernel that cannot be made; anything else goes up. When
        all are refused, the error of the first is raised.
        """
        refused: list[tuple[Alternative, GemmLabError]] = []
        while True:
            try:
                chosen = self.choose(question).chosen
            except GemmLabError:
                if not refused:
                    raise
                # Perhaps it is not the kernels that are at fault: the next call tries anew.
                self._forgive(question, [a for a, _ in refused])
                raise refused[0][1] from None
            try:
                return attempt(chosen)
            except RefusedError as error:
                refused.append((chosen, error.error))
                self.reject(question, chosen, error.error)

    def reject(self, question: ChoiceQuestion, chosen: Alternative, error: GemmLabError) -> None:
        """Take an alternative out, for this question and for those like it."""
        level = logging.WARNING if isinstance(error, CompileError) else logging.INFO
        _log.log(level, "%s %s is passed over: %s", chosen.variant, chosen.config, error.message)
        with self._lock:
            self._refused[_refusal_key(question, chosen)] = error.message
            self._kept.pop(question, None)

    def _forgive(self, question: ChoiceQuestion, some: list[Alternative]) -> None:
        with self._lock:
            for alternative in some:
                self._refused.pop(_refusal_key(question, alternative), None)

    def _choose(self, question: ChoiceQuestion) -> Choice:
        rungs = self._rungs(question)
        ranking = Ranking(
            question=question,
            rungs=rungs,
            prospects=self._prospects,
            history=self._history(question),
        )
        left: list[Alternative] = []
        passed_over = ranking.passed_over
        for a in ranking.ranked():
            reason = self._refused.get(_refusal_key(question, a))
            if reason is None:
                left.append(a)
            else:
                passed_over.append(PassedOver(variant=a.variant, config=a.config, reason=reason))
        if not left:
            reasons = "; ".join(f"{p.variant}: {p.reason}" for p in passed_over[:3])
            raise UsageError(
                f"no variant can do this {question.dtype.name} product: {reasons}",
                hint="`gemm-lab list -v` shows what each can do",
            )
        return Choice(
            question=question,
            reason=_reason(left[0]),
            alternatives=tuple(left),
            passed_over=tuple(passed_over),
        )

    def layouts_for(self, dtype: str, arch: str | None) -> tuple[Layout, ...]:
        """For operands that may lie as is liked: nn, or the highest rung's first layout."""
        variants = [v for _, v in self._suited(dtype, arch)]
        plain: Layout = "nn"
        if any(plain in v.dtypes[dtype].layouts for v in variants):
            return (plain,)
        return variants[-1].dtypes[dtype].layouts[:1]

    def _suited(self, dtype: str, arch: str | None) -> list[tuple[int, Variant]]:
        """Variants for the arithmetic and architecture, with their depth on the ladder."""
        with self._lock:
            if self._ladder is None:
                depths: dict[str, int] = {}
                ladder = self._catalogue.ladder()
                for v in ladder:  # each stands after the rung that it improves on
                    depths[v.name] = 0 if v.after is None else depths[v.after] + 1
                self._ladder = [(depths[v.name], v) for v in ladder]
        able = [(d, v) for d, v in self._ladder if dtype in v.dtypes]
        suited = [(d, v) for d, v in able if _runs_on(v.dtypes[dtype].arch, arch)]
        if not suited:
            raise UsageError(
                f"no variant does {dtype} on {arch or 'any architecture'}",
                hint=f"variants for {dtype}: {', '.join(v.name for _, v in able) or 'none'}",
            )
        return suited

    def _rungs(self, question: ChoiceQuestion) -> list[Rung]:
        """Every variant that does the arithmetic on the architecture in a layout that may be."""
        name = question.dtype.name
        suited = self._suited(name, question.arch)
        fixed = [x for x, _ in question.tunables]
        tuned = [(d, v) for d, v in suited if all(x in v.tunables for x in fixed)]
        if not tuned:
            raise UsageError(
                f"no variant for {name} has the tunables {', '.join(fixed)}",
                hint="name a variant; `gemm-lab list -v` shows its tunables",
            )
        rungs = []
        for depth, variant in tuned:
            lies = [x for x in question.arrangements if x.layout in variant.dtypes[name].layouts]
            if lies:
                lie = min(lies, key=lambda x: len(x.copied))
                rungs.append(Rung(variant=variant, depth=depth, lie=lie))
        if not rungs:
            layouts = ", ".join(x.layout for x in question.arrangements)
            raise UsageError(
                f"no variant does {name} in layout {layouts} on {question.arch or 'any device'}",
                hint="`gemm-lab list -v` shows the layouts of each",
            )
        return rungs


def _runs_on(lowest: str, arch: str | None) -> bool:
    if arch is None:
        return True
    if lowest[-1].isalpha():
        return arch_number(lowest) == arch_number(arch)
    return arch_number(arch) >= arch_number(lowest)


def _refusal_key(question: ChoiceQuestion, a: Alternative) -> tuple[Any, ...]:
    """What will be refused again: on the emulator whatever the tunables."""
    config: Config | None = None if question.emulated else a.config
    return (a.variant, config, a.layout, a.arch, question.dtype.name, question.emulated)


def _reason(first: Alternative) -> str:
    about = "" if first.estimated_ms is None else f"{first.estimated_ms:.4g} ms"
    text = {
        Basis.RECORDED: f"this very product was {first.why}: {about}",
        Basis.NEIGHBOUR: f"{first.why}: about {about}",
        Basis.RULE: f"no recorded kernel promises more; by the rule {about and about + ', '}"
        f"{first.why}",
        Basis.LADDER: first.why,
    }[first.basis]
    return "; ".join(part for part in (text, first.copies_text) if part)


_choosers: WeakKeyDictionary[Workbench, Chooser] = WeakKeyDictionary()
_choosers_lock = threading.Lock()


def chooser_of(bench: Workbench) -> Chooser:
    """The chooser of a workbench, made when first asked for."""
    with _choosers_lock:
        found = _choosers.get(bench)
        if found is None:
            found = _choosers[bench] = Chooser(bench)
        return found
