"""What each technique was worth in the recorded run of ablation.py, as Markdown.

    python benchmarks/ablation_table.py

Reads benchmarks/results/ablation_h200.jsonl and the studies of ablation.toml; docs/ablation.md
holds what it prints.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemm_lab.core.measurement import Measurement
from gemm_lab.lab.results import Results
from gemm_lab.variants import Catalogue, config_of

HERE = Path(__file__).parent
RECORDED = HERE / "results" / "ablation_h200.jsonl"


def cell(found: Measurement | None) -> str:
    """Rate and share of the library, or what is known instead of them."""
    if found is None:
        return ""
    if found.tflops is None or found.ratio_to_baseline is None:
        return found.error or "not timed"
    return f"{found.tflops:.1f} ({found.ratio_to_baseline.median:.1%})"


def table(study: dict[str, Any], recorded: list[Measurement]) -> Iterator[str]:
    """One study: a line a setting, the fastest first."""
    name, dtype, layout, squares = (study[k] for k in ("variant", "dtype", "layout", "squares"))
    yield f"## {name}, {dtype}, {layout}"
    yield ""
    yield f"| setting | {' | '.join(f'{n}, TFLOP/s' for n in squares)} |"
    yield f"|---|{'---:|' * len(squares)}"
    variant = Catalogue().get(name)
    rows: list[tuple[str, list[Measurement | None]]] = []
    for change in study["changes"]:
        config = dict(config_of(variant, dtype, change))
        alike = [
            m
            for m in recorded
            if (m.variant, m.problem.dtype, m.problem.layout) == (name, dtype, layout)
            and dict(m.config) == config
        ]
        setting = " ".join(f"{knob}={value}" for knob, value in change.items()) or "defaults"
        by_size = {m.problem.m: m for m in alike}
        rows.append((setting, [by_size.get(n) for n in squares]))

    def speed(row: tuple[str, list[Measurement | None]]) -> float:
        first = row[1][0]
        return (first.tflops if first else None) or 0.0

    for setting, found in sorted(rows, key=speed, reverse=True):
        yield f"| {setting} | {' | '.join(map(cell, found))} |"


def document() -> str:
    """All studies."""
    studies = tomllib.loads((HERE / "ablation.toml").read_text(encoding="utf-8"))["study"]
    recorded = list(Results.load(RECORDED))
    return "\n\n".join("\n".join(table(study, recorded)) for study in studies)


if __name__ == "__main__":
    print(document())
