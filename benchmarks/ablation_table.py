"""What each technique was worth in the recorded development runs, as Markdown.

    python benchmarks/ablation_table.py

Reads benchmarks/results/development_h200.json; docs/ablation.md holds what it prints.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "results" / "development_h200.json"
STUDIES = (
    ("wgmma", "bf16", "nt"),
    ("wgmma, first version, cooperative 128x256", "bf16", "nt"),
    ("wgmma", "fp8_e4m3", "nt"),
    ("wgmma", "tf32", "nn"),
    ("fp32x3", "fp32x3", "nt"),
    ("async_copy", "bf16", "nt"),
    ("mma", "bf16", "nt"),
    ("wmma", "fp16", "nt"),
    ("simt_async", "fp32", "nn"),
    ("warp_tiled", "fp32", "nn"),
)


def study(rows: list[dict[str, Any]], kernel: str, dtype: str, layout: str) -> str:
    """One table: a line a setting, the share of the library at 4096 and 8192 cubed."""
    chosen: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        square = row["m"] == row["n"] == row["k"]
        if (row["kernel"], row["dtype"], row["layout"]) == (kernel, dtype, layout) and square:
            accumulate = row.get("accumulate") if dtype.startswith("fp8") else None
            name = f"{row['config'] or 'defaults'}{f' ({accumulate})' if accumulate else ''}"
            chosen.setdefault(name, {}).setdefault(row["m"], row)

    def cell(row: dict[str, Any] | None) -> str:
        return "" if row is None else f"{row['tflops']:.1f} ({row['ratio']:.1%})"

    ordered = sorted(chosen.items(), key=lambda x: -x[1].get(4096, {"ratio": 0})["ratio"])
    lines = [
        f"## {kernel}, {dtype}, {layout}",
        "",
        "| setting | 4096, TFLOP/s | 8192, TFLOP/s |",
        "|---|---:|---:|",
        *(f"| {name} | {cell(r.get(4096))} | {cell(r.get(8192))} |" for name, r in ordered),
    ]
    return "\n".join(lines)


def document() -> str:
    """All studies."""
    rows = json.loads(RECORDED.read_text(encoding="utf-8"))["rows"]
    return "\n\n".join(study(rows, *which) for which in STUDIES)


if __name__ == "__main__":
    print(document())
