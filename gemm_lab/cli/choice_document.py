"""An automatic choice as a document."""

from __future__ import annotations

from gemm_lab.lab.choice import Alternative, Choice
from gemm_lab.report.document import Document, Fact, Facts, Table
from gemm_lab.report.numbers import milliseconds

__all__ = ["choice_document"]


def choice_document(choice: Choice) -> Document:
    """What is taken and why, what else could be, and what could not."""
    q = choice.question
    where = q.device or ("the emulator" if q.emulated else "no device")
    facts = [
        Fact(name="product", text=f"{q.shape}, {q.dtype.name} to {q.out.name}, {choice.layout}"),
        Fact(name="for", text=f"{where}, {choice.chosen.arch}"),
        Fact(name="takes", text=choice.variant, style="strong"),
        Fact(name="with", text=str(choice.config) or "no tunables"),
        Fact(name="because", text=choice.reason, style="strong"),
    ]
    if choice.chosen.estimated_ms:
        rate = q.shape.flop_count / choice.chosen.estimated_ms / 1e9
        facts.append(Fact(name="that is", text=f"{rate:.4g} TFLOP/s"))
    considered = Table(
        title="in the order in which they would be tried",
        columns=("variant", "expected", "from", "differs in", "why"),
        right=frozenset({"expected"}),
        rows=tuple(_row(a, choice) for a in choice.alternatives),
    )
    document: Document = (Facts(facts=tuple(facts)), considered)
    if not choice.passed_over:
        return document
    fell = Table(
        title="passed over",
        columns=("variant", "why"),
        rows=tuple((p.variant, p.reason) for p in choice.passed_over),
    )
    return (*document, fell)


def _row(a: Alternative, choice: Choice) -> tuple[str, str, str, str, str]:
    expected = "" if a.estimated_ms is None else milliseconds(a.estimated_ms)
    why = "; ".join(text for text in (a.why, a.copies_text) if text)
    return (a.variant, expected, a.basis.value, _difference(a, choice), why)


def _difference(a: Alternative, choice: Choice) -> str:
    """Tunables unlike those of the first alternative of the same variant; all for that one."""
    first = next(x for x in choice.alternatives if x.variant == a.variant)
    if first is a:
        return ""
    words = str(a.config).split()
    return " ".join(word for word in words if word not in str(first.config).split())
