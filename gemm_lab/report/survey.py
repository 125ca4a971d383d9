"""Many Measurements: one line each, and what became of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemm_lab.core.kernel import format_config, format_value
from gemm_lab.core.measurement import Measurement
from gemm_lab.report.document import Document, Fact, Facts, Style, Table
from gemm_lab.report.numbers import count_text, milliseconds, percent, significant

__all__ = ["COUNTED", "counted", "pruned_facts", "survey_document", "survey_table"]

MAX_REASONS = 8
# What the emulator has to tell kernels apart by, in place of a time.
COUNTED = {
    "sectors_per_load_request": "sectors/load",
    "flop_per_global_byte": "FLOP/global byte",
    "flop_per_shared_byte": "FLOP/shared byte",
}


def counted(m: Measurement) -> tuple[str, ...]:
    """The cells under COUNTED; empty where the emulator did not count."""
    values = [(m.counters or {}).get(name) for name in COUNTED]
    return tuple(significant(x) if isinstance(x, float) else "" for x in values)


def survey_table(measurements: Sequence[Measurement], *, title: str = "") -> Table:
    """Kernel, tunables that differ, problem, result, time, rate, ratio to the library.

    From the emulator, what it counted instead of times.
    """
    numbers = ("time", "TFLOP/s", "of the library", *COUNTED.values())
    shown = _varying(measurements)
    single = len({m.problem for m in measurements}) == 1
    rows: list[tuple[str, ...]] = []
    for m in measurements:
        p, ratio = m.problem, m.ratio_to_baseline
        batch = f"{p.batch}x" if p.batch != 1 else ""
        rows.append(
            (
                m.variant,
                " ".join(f"{k}={format_value(v)}" for k, v in m.config.items() if k in shown),
                f"{batch}{p.m}x{p.n}x{p.k}",
                f"{p.dtype} {p.layout}",
                _verdict(m),
                "" if m.median_ms is None else milliseconds(m.median_ms),
                "" if m.tflops is None else significant(m.tflops),
                "" if ratio is None else percent(ratio.median),
                *counted(m),
            )
        )
    columns = ("kernel", "tunables", "shape", "type", "result", *numbers)
    hidden = {2, 3} if single else set()
    if not any(row[1] for row in rows):
        hidden.add(1)
    if all(m.backend != "gpu" for m in measurements):
        hidden |= {5, 6, 7}
    hidden |= {i for i in range(8, len(columns)) if not any(row[i] for row in rows)}
    kept = [i for i in range(len(columns)) if i not in hidden]
    return Table(
        title=title or (_problem(measurements[0]) if single else ""),
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        right=frozenset(numbers),
        styles=tuple(_style(m) for m in measurements),
    )


def survey_document(measurements: Sequence[Measurement]) -> Document:
    """The table, and every failure with its reason."""
    failures = tuple(
        Fact(name=m.variant, text=_failure(m), style="bad")
        for m in measurements
        if m.error is not None or m.verified is False
    )
    table: Document = (survey_table(measurements),) if measurements else ()
    return (*table, Facts(title="failed", facts=failures)) if failures else table


def pruned_facts(reasons: Mapping[str, int], total: int) -> Document:
    """How many candidates rules ruled out, and which rules; nothing when there is none."""
    if not reasons:
        return ()
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    facts = [Fact(name=str(count), text=reason) for reason, count in ordered[:MAX_REASONS]]
    if len(ordered) > MAX_REASONS:
        rest = sum(count for _, count in ordered[MAX_REASONS:])
        facts.append(Fact(name=str(rest), text="for other reasons"))
    title = f"{count_text(total, 'candidate')} pruned before compiling"
    return (Facts(title=title, facts=tuple(facts)),)


def _varying(measurements: Sequence[Measurement]) -> set[str]:
    """Tunables whose values differ among the measurements of one variant."""
    values: dict[tuple[str, str], set[str]] = {}
    for m in measurements:
        for name, value in m.config.items():
            values.setdefault((m.variant, name), set()).add(repr(value))
    return {name for (_, name), seen in values.items() if len(seen) > 1}


def _problem(m: Measurement) -> str:
    p = m.problem
    batch = f"{p.batch} x " if p.batch != 1 else ""
    where = m.device
    return f"{batch}{p.m} x {p.n} x {p.k}, {p.dtype}, layout {p.layout}, {where}"


def _verdict(m: Measurement) -> str:
    if m.error is not None:
        return "failed"
    return {True: "right", False: "WRONG", None: "not verified"}[m.verified]


def _style(m: Measurement) -> Style:
    return "bad" if m.error is not None or m.verified is False else ""


def _failure(m: Measurement) -> str:
    config = format_config(m.config)
    p = m.problem
    why = m.error
    if why is None:
        worst = m.max_error
        why = (
            "wrong"
            if worst is None
            else (
                f"wrong: C[{', '.join(map(str, worst.index))}] = {worst.got}, expected "
                f"{worst.expected}, allowed error {worst.bound}"
            )
        )
    return f"{config} on {p.m}x{p.n}x{p.k}: {why}"
