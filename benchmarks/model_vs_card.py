"""The model beside what Nsight Compute counted, as a Markdown table; runs anywhere.

    python benchmarks/model_vs_card.py

Reads benchmarks/results/counters_h200.json (see hardware.py) and asks the model about the same
kernels on the same card. docs/model_vs_card.md holds the table, tests/model that it is true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hardware import ARCH, cuda_core_rungs, problem_of

from gemm_lab.lab.modelling import variant_shape
from gemm_lab.lab.workbench import Workbench
from gemm_lab.model import find_device, load_devices, predict

RECORDED = Path(__file__).parent / "results" / "counters_h200.json"
SECTOR_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Row:
    """One rung at one size; L2 traffic between the L1s and the L2, in GB."""

    variant: str
    bound: str
    predicted_class: str
    highest_class: str
    highest_percent: float
    predicted_l2_gb: float
    counted_l2_gb: float
    predicted_ms: float
    measured_ms: float

    @property
    def l2_error(self) -> float:
        """Predicted over counted, less one."""
        return self.predicted_l2_gb / self.counted_l2_gb - 1


def rows(size: int = 4096) -> list[Row]:
    """Every rung that the file knows."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    device = find_device(recorded["device"], load_devices())
    bench, problem, found = Workbench(), problem_of(size), []
    for variant in cuda_core_rungs():
        counted = recorded["rungs"][variant.name]["counters"][str(size)]
        shape = variant_shape(bench, variant, problem=problem, tunables={}, arch=ARCH)
        said = predict(device, shape, problem)
        percent = {name: counted[f"{name}_percent"] for name in ("sm", "l1tex", "l2", "dram")}
        highest = max(percent, key=percent.__getitem__)
        traffic = said.traffic
        found.append(
            Row(
                variant=variant.name,
                bound=str(said.bound),
                predicted_class=said.busiest.unit_class or "",
                highest_class=highest,
                highest_percent=percent[highest],
                predicted_l2_gb=(traffic.l2_read_bytes + traffic.l2_write_bytes) / 1e9,
                counted_l2_gb=counted["l2_sectors_from_l1"] * SECTOR_BYTES / 1e9,
                predicted_ms=said.time_ms,
                measured_ms=counted["duration_ns"] / 1e6,
            )
        )
    return found


def table() -> str:
    """The rows in Markdown."""
    lines = [
        "| rung | bound by the model | busiest class, model | busiest class, card | L2 GB, model "
        "| L2 GB, card | off by | ms, model | ms, card |",
        "|---|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for r in rows():
        lines.append(
            f"| {r.variant} | {r.bound} | {r.predicted_class} "
            f"| {r.highest_class} ({r.highest_percent:.0f}%) | {r.predicted_l2_gb:.2f} "
            f"| {r.counted_l2_gb:.2f} | {r.l2_error:+.1%} | {r.predicted_ms:.2f} "
            f"| {r.measured_ms:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
