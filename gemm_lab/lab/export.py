"""Measurements as rows: CSV for programs, Markdown for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from gemm_lab.core.kernel import format_config
from gemm_lab.core.measurement import Measurement
from gemm_lab.core.statistics import summarize
from gemm_lab.report.markdown import markdown_table

__all__ = ["row", "shape_text", "to_csv", "to_markdown", "verdict_text"]


def row(m: Measurement) -> dict[str, Any]:
    """All facts of a measurement, flat; tunables keep their capitals."""
    p, r, spread = m.problem, m.resources, summarize(m.samples_ms)
    base, ratio = m.baseline, m.ratio_to_baseline
    flat = {
        "variant": m.variant,
        **m.config,
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "batch": p.batch,
        "dtype": p.dtype,
        "out_dtype": p.out_dtype,
        "layout": p.layout,
        "alpha": p.alpha,
        "beta": p.beta,
        "epilogue": p.epilogue,
        "backend": m.backend,
        "device": m.device,
        "arch": m.arch,
        "verified": m.verified,
        "relative_rmse": m.relative_rmse,
        "median_ms": m.median_ms,
        "iqr_ms": None if spread is None else spread.iqr_ms,
        "min_ms": None if spread is None else spread.min_ms,
        "sample_count": len(m.samples_ms),
        "tflops": m.tflops,
        "launch_bound": m.launch_bound,
        "warm_median_ms": m.warm_median_ms,
        "baseline": None if base is None else base.name,
        "baseline_compute_type": None if base is None else base.compute_type,
        "baseline_median_ms": None if base is None else base.median_ms,
        "baseline_tflops": None if base is None else base.tflops,
        "ratio": None if ratio is None else ratio.median,
        "ratio_low": None if ratio is None else ratio.low,
        "ratio_high": None if ratio is None else ratio.high,
        "registers_per_thread": None if r is None else r.registers_per_thread,
        "static_smem_bytes": None if r is None else r.static_smem_bytes,
        "dynamic_smem_bytes": None if r is None else r.dynamic_smem_bytes,
        "spill_store_bytes": None if r is None else r.spill_store_bytes,
        "spill_load_bytes": None if r is None else r.spill_load_bytes,
        "occupancy": None if r is None else r.occupancy,
        "seed": m.seed,
        "source_sha256": m.source_sha256,
        "started": m.started,
        "error": m.error,
        "warnings": "; ".join(m.warnings) or None,
        "command": m.command,
    }
    return {name: None if _unknown(value) else value for name, value in flat.items()}


def to_csv(measurements: Iterable[Measurement]) -> str:
    """CSV with the union of all columns; a tunable that a variant lacks is empty."""
    rows = [row(m) for m in measurements]
    columns = _columns(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_markdown(measurements: Sequence[Measurement]) -> str:
    """A table of what matters: kernel, problem, right or wrong, time, rate, ratio."""
    header = (
        "variant", "tunables", "shape", "dtype", "layout", "result", "median ms", "TFLOP/s",
        "of the baseline",
    )  # fmt: skip
    lines = []
    for m in measurements:
        ratio = m.ratio_to_baseline
        lines.append(
            (
                m.variant,
                format_config(m.config),
                shape_text(m),
                m.problem.dtype,
                m.problem.layout,
                verdict_text(m),
                "" if m.median_ms is None else f"{m.median_ms:.4g}",
                "" if m.tflops is None else f"{m.tflops:.2f}",
                ""
                if ratio is None
                else f"{ratio.median:.1%} ({ratio.low:.1%} to {ratio.high:.1%})",
            )
        )
    return markdown_table(header, lines)


def shape_text(m: Measurement) -> str:
    """4096x4096x4096, with the batch before it where there is one."""
    p = m.problem
    text = f"{p.m}x{p.n}x{p.k}"
    return text if p.batch == 1 else f"{p.batch}x[{text}]"


def verdict_text(m: Measurement) -> str:
    """right, wrong, unverified, or failed."""
    if m.error is not None:
        return f"failed: {m.error.splitlines()[0]}"
    return {True: "right", False: "wrong", None: "unverified"}[m.verified]


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Every column, each tunable where the variant's own stand: before m."""
    if not rows:
        return []
    tunables = list(dict.fromkeys(name for r in rows for name in r if name.isupper()))
    rest = [name for name in rows[0] if not name.isupper()]
    return [rest[0], *tunables, *rest[1:]]


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
