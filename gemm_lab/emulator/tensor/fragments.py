"""mma.sync: registers of a warp to matrices and back.

Layout (PTX ISA, "Matrix Fragments for mma.m16n8k*"), with lane = 4 g + t and `per` elements in a
32-bit register: A's register rh + 2 kc holds row g + 8 rh, columns 4 per kc + per t + [0, per);
B's register kc holds the same k, column g; C's register 2 rh + i holds row g + 8 rh, column
2 t + i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.blame import Blame
from gemm_lab.emulator.runtime.fp8 import fp8_values
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask

__all__ = ["PER_REGISTER", "Fragments", "MmaGrid", "widen"]

PER_REGISTER = {"tf32": 1, "f16": 2, "bf16": 2, "s8": 4, "u8": 4, "e4m3": 4, "e5m2": 4}
TF32_MASK = np.int32(-0x2000)


def widen(words: Array, kind: str) -> Array:
    """32-bit words to float32 elements along the last axis, `per` times as many."""
    if kind == "f16":
        return words.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "tf32":
        return (words & TF32_MASK).view(np.float32)
    if kind in ("s8", "u8"):
        return words.view(np.int8 if kind == "s8" else np.uint8).astype(np.float32)
    return fp8_values(kind)[words.view(np.uint8)]


@dataclass(frozen=True, kw_only=True)
class MmaGrid:
    """A run of mma instructions that share operands: `pairs` gives, in order, (A, B) of each.

    `kind_a`, `kind_b` are element types; `chunks` is K over the elements of four registers.
    """

    kind_a: str
    kind_b: str
    chunks: int
    count_a: int
    count_b: int
    pairs: tuple[tuple[int, int], ...]
    integer: bool = False
    saturate: bool = False


class Fragments(Blame):
    """mma.sync for all warps of the batch at once."""

    def mma(
        self,
        grid: MmaGrid,
        a: Sequence[Array],
        b: Sequence[Array],
        m: Mask | None,
        site: Site,
    ) -> list[Array]:
        """Products in C's layout, four arrays [Ty, Tx, B] an instruction, each free to change.

        `a` holds 2 * chunks registers of each A in order, `b` chunks registers of each B.
        """
        if self.threads % 32:
            raise self.warp_fault(site)
        self.whole(m, site)
        left = self._operand(a, grid.count_a, grid.chunks, 2, grid.kind_a)
        right = self._operand(b, grid.count_b, grid.chunks, 1, grid.kind_b)
        return self._outer(grid, left, right)

    def _operand(
        self, registers: Sequence[Array], count: int, chunks: int, halves: int, kind: str
    ) -> Array:
        """[warps * B, count * halves * 8, K] float32."""
        words = np.empty((count * chunks * halves, *self.shape), dtype=np.int32)
        for at, register in enumerate(registers):
            words[at] = register if register.dtype == np.int32 else register.view(np.int32)
        shape = (count, chunks, halves, self.warps, 8, 4, self.B)
        moved = words.reshape(shape).transpose(3, 6, 0, 2, 4, 1, 5)
        flat = np.ascontiguousarray(moved).reshape(
            self.warps * self.B, count * halves * 8, chunks * 4
        )
        return widen(flat, kind)

    def _outer(self, grid: MmaGrid, left: Array, right: Array) -> list[Array]:
        warps, blocks = self.warps, self.B
        full = len(grid.pairs) == grid.count_a * grid.count_b
        if not full:
            return self._single(grid, left, right)
        product = np.matmul(left, right.transpose(0, 2, 1))
        shape = (warps, blocks, grid.count_a, 2, 8, grid.count_b, 4, 2)
        moved = product.reshape(shape).transpose(2, 5, 3, 7, 0, 4, 6, 1)
        if grid.integer:
            moved = moved.astype(np.int32)
        tiles = np.ascontiguousarray(moved).reshape(grid.count_a, grid.count_b, 4, *self.shape)
        out: list[Array] = []
        for i, j in grid.pairs:
            out.extend(tiles[i, j])
        return out

    def _single(self, grid: MmaGrid, left: Array, right: Array) -> list[Array]:
        """Pairs that fill no rectangle: one product each."""
        out: list[Array] = []
        for i, j in grid.pairs:
            a = left[:, 16 * i : 16 * i + 16]
            b = right[:, 8 * j : 8 * j + 8]
            product = np.matmul(a, b.transpose(0, 2, 1)).reshape(self.warps, self.B, 2, 8, 4, 2)
            moved = product.transpose(2, 5, 0, 3, 4, 1)
            if grid.integer:
                moved = moved.astype(np.int32)
            out.extend(np.ascontiguousarray(moved).reshape(4, *self.shape))
        return out

    def mma_half(self, products: Sequence[Array], c: Sequence[Array]) -> list[Array]:
        """float16 accumulators: two registers of two, the sum rounded to float16."""
        out = []
        for half in range(2):
            parts = []
            for i in range(2):
                old = (c[half] >> (16 * i)).astype(np.int16).view(np.float16)
                total = (products[2 * half + i] + old.astype(np.float32)).astype(np.float16)
                parts.append(total.view(np.uint16).astype(np.uint32))
            out.append((parts[0] | parts[1] << np.uint32(16)).view(np.int32))
        return out

    def mma_f64(self, a: Array, b: Array, m: Mask | None, site: Site) -> list[Array]:
        """m8n8k4 on float64: A row g, column t; B row t, column g; C row g, columns 2 t + i."""
        self.whole(m, site)
        shape = (self.warps, 8, 4, self.B)
        left = np.broadcast_to(a, self.shape).reshape(shape).transpose(0, 3, 1, 2)
        right = np.broadcast_to(b, self.shape).reshape(shape).transpose(0, 3, 2, 1)
        product = np.matmul(left, right).reshape(self.warps, self.B, 8, 4, 2)
        moved = product.transpose(4, 0, 2, 3, 1)
        return list(np.ascontiguousarray(moved).reshape(2, *self.shape))
