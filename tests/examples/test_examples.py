"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gemm_lab.lab.api import run

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_kernel_of_the_examples_is_right() -> None:
    path = str(EXAMPLES / "rows_of_four.cu.j2")
    for tile in (1, 4):
        found = run(
            path, shape=(37, 53, 29), beta=0.5, epilogue="relu", backend="emulator", TILE=tile
        )
        assert found.verified


def test_the_experiment_prints_a_line_a_tile() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "tile_experiment.py"), "64"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(": right, " in line for line in lines)
