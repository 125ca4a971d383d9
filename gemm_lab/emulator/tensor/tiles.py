"""Where the elements of a wmma fragment lie: offsets that split into a lane's and a register's.

The layout is that of mma.sync on each 16 x 8 part, so a fragment's elements are those that the
hardware gives to the lane on sm_80 and up; CUDA leaves them open.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array

__all__ = ["TileMap", "tile_map"]


@dataclass(frozen=True, eq=False)
class TileMap:
    """One operand of a wmma shape in one memory layout.

    Attributes:
        rows, columns: for each register and element in it, the part of the coordinate that
            doesn't depend on the lane. lane_rows, lane_columns: the part that does.
        row_major, element_bytes: as stored in memory.
        pairs: neighbouring elements of a register are neighbours in memory: loaded as one word.
    """

    rows: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    lane_rows: Array
    lane_columns: Array
    row_major: bool
    element_bytes: int
    pairs: bool
    pointer_align: int = 32

    @property
    def access_bytes(self) -> int:
        """Bytes of each access: a word, or an element."""
        return 4 if self.pairs else self.element_bytes

    def offsets(self, ld: int) -> list[int]:
        """Byte offsets of the accesses, register by register."""
        out = []
        for rows, columns in zip(self.rows, self.columns, strict=True):
            for row, column in zip(rows, columns, strict=True):
                out.append(self._at(row, column, ld))
                if self.pairs:
                    break
        return out

    def _at(self, row: int, column: int, ld: int) -> int:
        outer, inner = (row, column) if self.row_major else (column, row)
        return (outer * ld + inner) * self.element_bytes

    def transposed(self) -> TileMap:
        """The same places in memory, with rows as columns."""
        return dataclasses.replace(
            self,
            rows=self.columns,
            columns=self.rows,
            lane_rows=self.lane_columns,
            lane_columns=self.lane_rows,
            row_major=not self.row_major,
        )

    def lane_offsets(self, ld: int) -> Array:
        """Byte offset of each lane, [32] int64."""
        outer, inner = (
            (self.lane_rows, self.lane_columns)
            if self.row_major
            else (self.lane_columns, self.lane_rows)
        )
        out: Array = (outer * ld + inner) * self.element_bytes
        return out


@functools.lru_cache(maxsize=256)
def tile_map(
    operand: str, m: int, n: int, k: int, kind: str, row_major: bool, registers: int
) -> TileMap | None:
    """The map of operand "a", "b", "c" or "d"; None where the shape is not known.

    f16 operands have two or four times the registers that they need; the rest repeat the first.
    A product of 8 rows is that of 32 with everything transposed.
    """
    if m == 8:
        mirrored = {"a": "b", "b": "a"}.get(operand, operand)
        tile = tile_map(mirrored, n, m, k, kind, not row_major, registers)
        return tile.transposed() if tile else None
    element_bytes = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "f32": 4, "s32": 4}.get(kind)
    if element_bytes is None:
        return None
    lane = np.arange(32, dtype=np.int64)
    g, t = lane // 4, lane % 4
    rows: list[tuple[int, ...]] = []
    columns: list[tuple[int, ...]] = []
    if operand in ("c", "d"):
        per = 2 if kind == "f16" else 1
        for i16 in range(max(1, m // 16)):
            for j in range(n // 8):
                for half in range(2 if m >= 16 else 1):
                    for i in range(0, 2, per):
                        rows.append((16 * i16 + 8 * half,) * per)
                        columns.append(tuple(8 * j + i + e for e in range(per)))
        lane_rows, lane_columns = g, 2 * t
        pairs = per > 1 and row_major
        if per == 1:
            pairs = False
    else:
        per = 4 // element_bytes
        chunks = k // (4 * per)
        outer = m if operand == "a" else n
        for block in range(max(1, outer // 16) if operand == "a" else outer // 8):
            for chunk in range(chunks):
                for half in range(2 if operand == "a" and m >= 16 else 1):
                    fixed = 16 * block + 8 * half if operand == "a" else 8 * block
                    along = tuple(4 * per * chunk + e for e in range(per))
                    rows.append((fixed,) * per if operand == "a" else along)
                    columns.append(along if operand == "a" else (fixed,) * per)
        if operand == "a":
            lane_rows, lane_columns = g, per * t
            pairs = per > 1 and row_major
        else:
            lane_rows, lane_columns = per * t, g
            pairs = per > 1 and not row_major
    if registers % len(rows) == 0:
        times = registers // len(rows)
        rows, columns = rows * times, columns * times
    if registers != len(rows):
        return None
    return TileMap(
        tuple(rows), tuple(columns), lane_rows, lane_columns, row_major, element_bytes, pairs
    )
