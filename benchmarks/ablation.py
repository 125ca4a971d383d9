"""What each technique of a kernel is worth: the settings of a TOML file, one after another.

    python benchmarks/ablation.py -o benchmarks/results/ablation_h200.jsonl [STUDIES.toml]
    gemm-lab results benchmarks/results/ablation_h200.jsonl --md

Every setting is measured in the same rounds as the library and verified; the file is resumed.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from gemm_lab.errors import GemmLabError
from gemm_lab.lab.bench import bench
from gemm_lab.lab.measure import RunSettings

SETTINGS = RunSettings(max_seconds=0.5, min_rounds=20, max_rounds=100, target_error=0.003)


def main() -> int:
    """Measure every change of every study; exit code 3 when one is wrong or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="?", default=Path(__file__).with_suffix(".toml"))
    parser.add_argument("-o", "--output", required=True)
    asked = parser.parse_args()
    bad = 0
    for study in tomllib.loads(Path(asked.studies).read_text())["study"]:
        for change in study["changes"]:
            try:
                found = bench(
                    [study["variant"]], shape=study["squares"], dtypes=[study["dtype"]],
                    layouts=[study["layout"]], tunables=change, settings=SETTINGS,
                    output=asked.output, backend="gpu", isolate=False, progress=False,
                )  # fmt: skip
            except GemmLabError as error:
                print(f"{study['variant']} {change}: {error.message}")
                bad += 1
                continue
            for m in found:
                ratio = m.ratio_to_baseline
                shown = "-" if ratio is None else f"{ratio.median:.3f}"
                rate = "-" if m.tflops is None else f"{m.tflops:.1f}"
                state = m.error or ("right" if m.verified else "WRONG")
                print(f"{m.variant:12} {m.problem.m:5} {shown:>6} {rate:>7} {state} {change}")
                bad += not m.verified
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
