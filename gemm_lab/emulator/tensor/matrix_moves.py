"""ldmatrix, stmatrix, and the loads and stores of wmma.

ldmatrix: lane 8 j + i gives the address of row i of matrix j; register j of lane 4 g + t gets
columns 2 t and 2 t + 1 of row g (of the transposed matrix with .trans).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemm_lab.emulator.runtime.access import Base
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.groups import Access, AccessGroup, Site
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.watch import Watching
from gemm_lab.emulator.tensor.tiles import TileMap

__all__ = ["MatrixMoves"]

LOW = np.int32(0xFFFF)


class MatrixMoves(Watching):
    """Warp-wide moves between shared memory and fragments."""

    def row_mask(self, count: int, m: Mask | None) -> Mask | None:
        """Lanes whose addresses count: the first 8 of each matrix."""
        if count == 4:
            return m
        key = (count, id(m))
        found = self.row_masks.get(key)
        if found is None or found[0] is not m:
            lane = (np.arange(self.threads) % 32 < 8 * count).reshape(*self.shape[:2], 1)
            array = lane if m is None else lane & m.array
            found = self.row_masks[key] = (m, Mask(array, self.shape))
        return found[1]

    def matrix_base(self, a: Array, g: AccessGroup, count: int, m: Mask | None, site: Site) -> Base:
        """Check the row addresses of ldmatrix or stmatrix."""
        if self.threads % 32:
            raise self.warp_fault(site)
        self.whole(m, site)
        base = self.sb(a, g, self.row_mask(count, m))
        if self.races is not None or self.counters is not None:
            self.seen(base)
        base.mask = m
        rows = base.index.ndim == 2
        shape = (self.threads,) if rows else (self.threads, self.B)
        wide = np.broadcast_to(base.index, self.shape[:2] if rows else self.shape)
        base.index = wide.reshape(shape)
        return base

    def _word(self, base: Base, provider: Array, word: Array, rel: int) -> Array:
        """Words of rows: provider and word are [threads]."""
        index = base.index[provider]
        step = word * base.step
        index = index + (step if index.ndim == 1 else step[:, None])
        found: Array = base.views.i32[rel * base.step :].take(index, 0)
        return found

    def ldmatrix(self, base: Base, rel: int, count: int, trans: bool) -> list[Array]:
        """Registers of `count` matrices."""
        lanes = _lanes(self.threads)
        warp, lane = lanes // 32 * 32, lanes % 32
        out = []
        for j in range(count):
            if not trans:
                found = self._word(base, warp + 8 * j + lane // 4, lane % 4, rel)
            else:
                row = warp + 8 * j + lane % 4 * 2
                column = lane // 4
                shift = (column % 2 * 16).astype(np.int32)[:, None]
                low = self._word(base, row, column // 2, rel)
                high = self._word(base, row + 1, column // 2, rel)
                found = ((low >> shift) & LOW) | ((high >> shift) << 16)
            out.append(np.broadcast_to(found, (self.threads, self.B)).reshape(self.shape))
        return out

    def stmatrix(self, base: Base, rel: int, values: Sequence[Array], trans: bool) -> None:
        """Store registers as matrices."""
        lanes = _lanes(self.threads)
        warp, lane = lanes // 32 * 32, lanes % 32
        on: Any = slice(None)
        if base.mask is not None:
            on = base.mask.full().reshape(self.threads, self.B)
        for j, value in enumerate(values):
            words = np.broadcast_to(value, self.shape).reshape(self.threads, self.B)
            if not trans:
                at = self._flat(base, warp + 8 * j + lane // 4, lane % 4, rel)
                self.smem_flat.i32[at[on]] = words[on]
                continue
            for half in range(2):
                row = warp + 8 * j + lane % 4 * 2 + half
                column = lane // 4
                at = self._flat(base, row, column // 2, rel) * 2 + (column % 2)[:, None]
                self.smem_flat.i16[at[on]] = (words >> (16 * half)).astype(np.int16)[on]

    def _flat(self, base: Base, provider: Array, word: Array, rel: int) -> Array:
        """Indices into the flat words of shared memory, [lanes, B]."""
        index = base.index[provider]
        if index.ndim == 1:
            return (index + word + rel)[:, None] * self.B + np.arange(self.B)
        out: Array = index + ((word + rel) * base.step)[:, None]
        return out

    # ---- wmma ----
    def tile_base(
        self,
        a: Array,
        stride: Array,
        tile: TileMap,
        space: str,
        kind: str,
        m: Mask | None,
        site: Site,
    ) -> Base:
        """Check the accesses of wmma.load or wmma.store. `stride` is in elements."""
        if self.threads % 32:
            raise self.warp_fault(site)
        self.whole(m, site)
        active = (
            stride
            if m is None
            else stride[np.broadcast_to(m.array, stride.shape)]
            if (stride.size > 1 and m.array.shape == stride.shape)
            else stride
        )
        ld = int(active.reshape(-1)[0])
        key = (id(tile), site.number, ld, kind)
        group = self.setup.tile_groups.get(key)
        if group is None:
            unit = tile.access_bytes
            accesses = [Access(offset, unit, site) for offset in tile.offsets(ld)]
            group = AccessGroup(kind, space, unit, unit, accesses)
            group.finish()
            self.setup.tile_groups[key] = group
        lane = np.arange(self.threads) % 32
        part = tile.lane_offsets(ld)[lane].reshape(*self.shape[:2], 1)
        wide = a.astype(np.int64)
        aligned = wide & (tile.pointer_align - 1)
        if aligned.any():
            check = AccessGroup(kind, space, unit_of(tile), tile.pointer_align, group.accesses[:1])
            check.finish()
            self._misaligned(wide, check, m)
        address = wide + part
        check_of = {"shared": self.sb, "global": self.gb}.get(space, self.xb)
        return check_of(address, group, m)

    def tile_load(self, base: Base, tile: TileMap) -> list[Array]:
        """Registers of a fragment."""
        group = base.group
        parts = []
        rep = {1: "i8", 2: "i16", 4: "i32"}[group.unit]
        view = base.views.get(rep)
        for access in group.accesses:
            rel = (access.offset - group.lo) // max(group.unit, 4)
            parts.append(view[rel * base.step :].take(base.index, 0))
        if group.unit == 4:
            return parts
        per = 4 // group.unit
        out = []
        mask = np.int32((1 << 8 * group.unit) - 1)
        for at in range(0, len(parts), per):
            word = parts[at].astype(np.int32) & mask
            for h in range(1, per):
                word = word | ((parts[at + h].astype(np.int32) & mask) << (8 * group.unit * h))
            out.append(word)
        return out

    def tile_store(self, base: Base, tile: TileMap, values: Sequence[Array]) -> None:
        """Store a fragment's registers."""
        group = base.group
        per = 4 // group.unit
        rep = {1: "i8", 2: "i16", 4: "i32"}[group.unit]
        for at, access in enumerate(group.accesses):
            rel = (access.offset - group.lo) // max(group.unit, 4)
            value = values[at // per]
            value = value if value.dtype == np.int32 else value.view(np.int32)
            if per > 1:
                value = (value >> (8 * group.unit * (at % per))).astype(f"i{group.unit}")
            self._put(base, rel * base.step, rep, value)


def unit_of(tile: TileMap) -> int:
    """Bytes of a tile's element access."""
    return tile.access_bytes


@functools.lru_cache(maxsize=64)
def _lanes(threads: int) -> Array:
    return np.arange(threads)
