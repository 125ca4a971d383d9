"""A quick experiment: which tile of a kernel of one's own wins, and why.

    python examples/tile_experiment.py [SIZE]

With a GPU every tile is timed beside cuBLAS; without one the emulator verifies it, and the counters
of a block tell how much global traffic the tile saves.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gemm_lab

KERNEL = Path(__file__).with_name("rows_of_four.cu.j2")


def main(size: int = 96) -> None:
    """Run each TILE; print what is known of it."""
    for tile in (1, 2, 4, 8):
        m = gemm_lab.run(str(KERNEL), shape=size, TILE=tile)
        time = (
            "not timed" if m.median_ms is None else f"{m.median_ms:.3f} ms, {m.tflops:.2f} TFLOP/s"
        )
        traffic = m.counters and m.counters["flop_per_global_byte"]
        bytes_told = "" if not traffic else f", {traffic:.2f} flop per global byte"
        print(f"TILE={m.config['TILE']}: {'right' if m.verified else 'WRONG'}, {time}{bytes_told}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
