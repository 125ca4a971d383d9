"""A bench on the fake card, for test_bench to kill: says "done N" when N measurements are shown."""

from __future__ import annotations

import sys
from pathlib import Path

from fakes import STUB, fake_plan

from gemm_lab.jit import Cache
from gemm_lab.lab.bench import bench
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.progress import Quiet
from gemm_lab.lab.workbench import Workbench

SIZES = [8, 16]
SPEEDS = [90, 95, 100, 105, 110]
SHAPES = [16, 24, 40, 48]
TOTAL = len(SIZES) * len(SPEEDS) * len(SHAPES)


class Told(Quiet):
    """Tells every step of the measuring on stdout."""

    def __init__(self) -> None:
        self.what = ""
        self.done = 0

    def start(self, what: str, total: int) -> None:
        self.what = what

    def advance(self, steps: int = 1) -> None:
        if self.what == "measuring":
            self.done += steps
            print(f"done {self.done}", flush=True)

    def say(self, line: str) -> None:
        print(line, flush=True)


def main(cache: str, output: str) -> None:
    """Measure everything that the journal lacks."""
    found = bench(
        [str(STUB)],
        shape=list(SHAPES),
        tunables={"SIZE": SIZES, "SPEED": SPEEDS},
        settings=RunSettings(min_rounds=5, max_rounds=10),
        output=output,
        interleave=2,
        progress=Told(),
        workbench=Workbench(cache=Cache(Path(cache))),
        station=fake_plan(Path(cache), pace_s=0.0005),
    )
    print(f"end {len(found)} {found.resumed}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
