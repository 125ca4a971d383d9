"""One Measurement, told whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gemm_lab.core.kernel import format_config
from gemm_lab.core.measurement import Measurement
from gemm_lab.core.statistics import summarize
from gemm_lab.report.document import Document, Fact, Facts, Paragraph, Style, Table
from gemm_lab.report.numbers import bytes_text, milliseconds, number, percent, significant

__all__ = ["counters_blocks", "problem_text", "resources_text", "run_document", "verdict_word"]

MAX_COUNTERS = 40


def run_document(measured: Measurement, *, reason: str = "") -> Document:
    """What ran where and why, the verdict, the times, the resources, the command.

    `reason` says why the backend was taken.
    """
    facts = [
        Fact(name="kernel", text=_kernel_text(measured), style="strong"),
        Fact(name="problem", text=problem_text(measured)),
        Fact(name="ran on", text=_where(measured, reason)),
        *_verdict(measured),
        *_times(measured),
        *_resources(measured),
    ]
    document: Document = (Facts(facts=tuple(facts)),)
    if measured.counters:
        title = "counters"
        if not _of_all_blocks(measured.counters):
            title += " of one block; --counters: of all, by source line"
        document = (*document, *counters_blocks(measured.counters, title=title))
    if measured.warnings:
        warnings = tuple(Fact(name="warning", text=w, style="warning") for w in measured.warnings)
        document = (*document, Facts(facts=warnings))
    return (*document, Paragraph(text=f"repeat with: {measured.command}", style="quiet"))


def verdict_word(verified: bool | None) -> str:
    """RIGHT, WRONG, or that nobody looked."""
    return {True: "RIGHT", False: "WRONG", None: "not verified"}[verified]


def problem_text(measured: Measurement) -> str:
    """Shape, types, layout, and what differs from a plain product."""
    p = measured.problem
    shape = f"{p.m} x {p.n} x {p.k}" + (f", {p.batch} of them" if p.batch != 1 else "")
    types = p.dtype if p.out_dtype == p.dtype else f"{p.dtype} to {p.out_dtype}"
    words = [f"M x N x K = {shape}", types, f"layout {p.layout}"]
    if p.alpha != 1:
        words.append(f"alpha {p.alpha:g}")
    if p.beta != 0:
        words.append(f"beta {p.beta:g}")
    if p.epilogue:
        words.append(f"epilogue {p.epilogue}")
    return ", ".join(words)


def resources_text(measured: Measurement) -> str:
    """Registers, shared memory, spills, occupancy; "" when they are not known."""
    r = measured.resources
    if r is None:
        return ""
    words = [f"{r.registers_per_thread} registers a thread"]
    words.append(f"{bytes_text(r.static_smem_bytes)} static shared memory")
    if r.dynamic_smem_bytes:
        words.append(f"{bytes_text(r.dynamic_smem_bytes)} dynamic")
    if r.spill_store_bytes or r.spill_load_bytes:
        words.append(
            f"spills {r.spill_store_bytes} bytes stored, {r.spill_load_bytes} loaded a thread"
        )
    else:
        words.append("no spills")
    if r.occupancy is not None:
        words.append(f"occupancy {percent(r.occupancy)}")
    return ", ".join(words)


def _kernel_text(measured: Measurement) -> str:
    config = format_config(measured.config)
    return f"{measured.variant} {config}".rstrip()


def _where(measured: Measurement, reason: str) -> str:
    because = f" ({reason})" if reason else ""
    if measured.backend == "gpu":
        return f"{measured.device}, GPU, {measured.arch}{because}"
    if measured.backend == "emulator":
        return (
            f"the emulator: NumPy executes the PTX for {measured.arch}; it has no kernel time"
            f"{because}"
        )
    return f"nothing was executed: compiled for {measured.arch} only{because}"


def _verdict(measured: Measurement) -> Iterator[Fact]:
    if measured.backend == "none":
        return
    style: Style = {True: "good", False: "bad", None: "warning"}[measured.verified]  # type: ignore[assignment]
    text = verdict_word(measured.verified)
    if measured.relative_rmse is not None:
        text += f", relative RMSE {measured.relative_rmse:.3g}"
    yield Fact(name="verdict", text=text, style=style)
    worst = measured.max_error
    if worst is not None:
        place = ", ".join(map(str, worst.index))
        yield Fact(
            name="worst element",
            text=f"C[{place}] = {number(worst.got)}, expected {number(worst.expected)}, "
            f"allowed error {number(worst.bound)}",
        )
    if measured.tolerance is not None:
        yield Fact(
            name="tolerance",
            text=f"{measured.tolerance.value:.3g} at most: {measured.tolerance.reason}",
        )


def _times(measured: Measurement) -> Iterator[Fact]:
    summary = summarize(measured.samples_ms)
    if summary is not None:
        text = (
            f"median {milliseconds(summary.median_ms)} (IQR {milliseconds(summary.iqr_ms)}, "
            f"min {milliseconds(summary.min_ms)}, {summary.count} samples)"
        )
        if measured.launch_bound:
            text += "; bound by the launch, not by the kernel"
        yield Fact(name="time", text=text)
    if measured.warm_median_ms is not None:
        yield Fact(name="warm in L2", text=f"median {milliseconds(measured.warm_median_ms)}")
    if measured.tflops is not None:
        yield Fact(name="rate", text=f"{significant(measured.tflops)} TFLOP/s", style="strong")
    baseline = measured.baseline
    if baseline is not None:
        text = f"compute type {baseline.compute_type}"
        if baseline.median_ms is not None:
            text = f"median {milliseconds(baseline.median_ms)}, {text}"
        if baseline.tflops is not None:
            text = f"{significant(baseline.tflops)} TFLOP/s, {text}"
        yield Fact(name=baseline.name, text=text)
    ratio = measured.ratio_to_baseline
    if ratio is not None and baseline is not None:
        yield Fact(
            name="ratio",
            text=f"{percent(ratio.median)} of {baseline.name}'s rate "
            f"(95% interval {percent(ratio.low)} to {percent(ratio.high)})",
            style="strong",
        )


def _resources(measured: Measurement) -> Iterator[Fact]:
    text = resources_text(measured)
    if text:
        yield Fact(name="resources", text=text)
    if measured.cache_hit is not None:
        compiler = measured.versions.get("nvrtc")
        by = f" by NVRTC {compiler}" if compiler else ""
        came = "taken from the cache" if measured.cache_hit else "made now"
        yield Fact(name="compiled", text=f"{came}{by}")


def _of_all_blocks(counters: Mapping[str, Any]) -> bool:
    """Source lines are told when every block was counted; several launches are a group each."""
    groups = [counters, *(v for v in counters.values() if isinstance(v, Mapping))]
    return any("lines" in group for group in groups)


def counters_blocks(counters: Mapping[str, Any], *, title: str = "counters") -> Document:
    """Counters, groups spelt out, one a line (what is 0 is left out); a table of source lines.

    Each launch has its own where there are several.
    """
    if counters and all(name.startswith("launch_") for name in counters):
        return tuple(
            block
            for name, one in counters.items()
            for block in counters_blocks(one, title=f"{name.replace('_', ' ')}: {title}")
        )
    totals = {name: value for name, value in counters.items() if name != "lines"}
    lines = [line for line in _flat("", totals) if line[1] not in ("0", "None")]
    shown = lines[:MAX_COUNTERS]
    if len(lines) > len(shown):
        shown.append(("...", f"{len(lines) - len(shown)} more in --json"))
    facts = tuple(Fact(name=f"  {name}", text=text) for name, text in shown)
    found: Document = (Facts(title=title, facts=facts),)
    return (*found, _line_table(counters["lines"])) if counters.get("lines") else found


_LINE_COLUMNS = {
    "global_load_requests": "loads",
    "global_load_sectors": "sectors",
    "global_store_requests": "stores",
    "global_store_sectors": "sectors of stores",
    "shared_load_instructions": "shared loads",
    "shared_load_conflicts": "conflicts",
    "shared_store_instructions": "shared stores",
    "shared_store_conflicts": "conflicts of stores",
    "fma": "fma",
    "tensor_flop": "tensor flop",
}


def _line_table(lines: Mapping[str, Mapping[str, int]]) -> Table:
    used = [name for name in _LINE_COLUMNS if any(one.get(name) for one in lines.values())]
    rows = [
        (line, *(f"{one[name]:,}" if one.get(name) else "" for name in used))
        for line, one in lines.items()
    ]
    rows = [row for row in rows if any(row[1:])]
    columns = ("line", *(_LINE_COLUMNS[name] for name in used))
    shown = tuple(rows[:MAX_COUNTERS])
    return Table(columns=columns, rows=shown, right=frozenset(columns[1:]))


def _flat(prefix: str, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        name = f"{prefix}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _flat(f"{name}: ", value)
        elif isinstance(value, bool) or value is None or isinstance(value, str):
            yield name, str(value)
        elif isinstance(value, int):
            yield name, f"{value:,}"
        elif isinstance(value, float):
            yield name, significant(value)
