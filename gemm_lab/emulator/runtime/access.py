"""Loads and stores: checked once a group, then plain takes and puts.

A checked group is a `Base`: views, an index and a step. An access `rel` units past the group's
lowest offset is `view[rel * step:].take(index, 0)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.runtime.arrays import DTYPES, Array
from gemm_lab.emulator.runtime.groups import AccessGroup
from gemm_lab.emulator.runtime.machine import LOCAL_BASE, REMOTE_MASK, REMOTE_SHIFT, SHARED_BASE
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.memory import Views
from gemm_lab.emulator.runtime.neighbours import Neighbours

__all__ = ["Accesses", "Base"]


@dataclass(slots=True)
class Base:
    """A checked group. `step` is how far the next element lies; `wide` tells 64-bit by halves."""

    views: Views
    index: Array
    step: int
    wide: bool
    mask: Mask | None
    group: AccessGroup
    bytes: Array
    remote: bool = False

    def quad(self, count: int) -> Array:
        """Indices of `count` neighbouring elements, along a new first axis."""
        offsets = np.array([self.element(at) for at in range(count)], dtype=np.int64)
        result: Array = self.index + offsets.reshape(count, *(1,) * self.index.ndim)
        return result

    def element(self, at: int) -> int:
        """Index distance of the element `at` units on."""
        unit = self.group.unit
        if unit >= 4:
            return at * self.step
        return at * unit // 4 * self.step + at * unit % 4 // unit


class Accesses(Neighbours):
    """Checks and indices for each state space."""

    # ---- global ----
    def gb(self, a: Array, g: AccessGroup, m: Mask | None) -> Base:
        """Check a group of global accesses; MemoryFault names the first that fails."""
        if a.dtype != np.int64:
            a = a.astype(np.int64)
        if m is not None:
            a = self._settle(a, m)
        d = a + (g.lo - self.heap_base)
        low = int(d.min())
        high = int(d.max()) if d.size > 1 else low
        setup = self.setup
        end = high + (g.hi - g.lo)
        known = setup.bound_lo <= low and end <= setup.bound_hi
        if not known and not self._one_buffer(low, end):
            if m is not None and not m.lanes:
                return self._nowhere(g, m)
            self._check_global(a, g, m)
        if g.align > 1 and int(np.bitwise_or.reduce(d, axis=None)) & (g.align - 1):
            self._misaligned(a, g, m)
        step = 1 if g.unit >= 4 else 4 // g.unit
        return Base(self.heap, d >> g.shift if g.shift else d, step, False, m, g, d)

    def _settle(self, a: Array, m: Mask) -> Array:
        """Addresses with those of inactive lanes replaced by an active lane's."""
        fit = m.fit(a.shape)
        if fit.all():
            return a
        if not m.lanes:
            return np.zeros((1, 1, 1), dtype=a.dtype)
        wide, fit = np.broadcast_arrays(a, fit)
        fill = wide.reshape(-1)[int(fit.argmax())]
        result: Array = np.where(fit, wide, fill)
        return result

    def _one_buffer(self, low: int, end: int) -> bool:
        """True when [low, end) lies in one buffer, which is then tried first next time."""
        buffer = self.memory.find(low + self.heap_base)
        if buffer is None or end + self.heap_base > buffer.end:
            return False
        self.setup.bound_lo = buffer.address - self.heap_base
        self.setup.bound_hi = buffer.end - self.heap_base
        return True

    def _check_global(self, a: Array, g: AccessGroup, m: Mask | None) -> None:
        """Lane by lane, access by access: several buffers are legal, gaps are not."""
        buffers = self.memory.buffers()
        starts = np.array([b.address for b in buffers] or [0], dtype=np.int64)
        ends = np.array([b.end for b in buffers] or [0], dtype=np.int64)
        for access in g.accesses:
            at = a + access.offset
            which = np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)
            bad = (at < starts[which]) | (at + access.size_bytes > ends[which])
            if m is not None:
                bad = bad & m.fit(bad.shape)
            if bad.any():
                raise self.memory_fault("out of bounds", bad, a, access, g, m)

    def _misaligned(self, a: Array, g: AccessGroup, m: Mask | None) -> None:
        for access in g.accesses:
            bad = ((a + access.offset) & (g.align - 1)) != 0
            if bad.any():
                raise self.memory_fault("misaligned", bad, a, access, g, m)

    # ---- shared ----
    def sb(self, a: Array, g: AccessGroup, m: Mask | None) -> Base:
        """Check a group of shared accesses."""
        if m is not None:
            if not m.lanes:
                return self._nowhere(g, m)
            a = self._settle(a, m)
        d = a.astype(np.int64)
        if g.lo:
            d += g.lo
        if d.size > 1:
            low, high = int(d.min()), int(d.max())
        else:
            low = high = int(d.reshape(-1)[0])
        extent = g.hi - g.lo
        if high > REMOTE_MASK and self.cluster_size > 1:
            return self._remote(d, a, g, m)
        if low < 0 or high + extent > self.smem_bytes:
            for access in g.accesses:
                at = d + (access.offset - g.lo)
                bad = (at < 0) | (at + access.size_bytes > self.smem_bytes)
                if bad.any():
                    raise self.memory_fault("out of bounds", bad, a, access, g, m)
        if g.align > 1 and int(np.bitwise_or.reduce(d, axis=None)) & (g.align - 1):
            self._misaligned(a, g, m)
        if self.track and g.kind not in ("none", "cp"):
            self._track_shared(d, low, high + extent, a, g, m)
        return self.shared_base(d, g, m)

    def _remote(self, d: Array, a: Array, g: AccessGroup, m: Mask | None) -> Base:
        """Shared memory of other blocks of the cluster."""
        size = self.cluster_size
        rank = d >> REMOTE_SHIFT
        offset = d & REMOTE_MASK
        bad = (
            (offset + (g.hi - g.lo) > self.smem_bytes)
            | (rank > size)
            | (offset & (g.align - 1) != 0)
        )
        if m is not None:
            bad = bad & m.fit(bad.shape)
        if bad.any() or g.unit < 4:
            raise self.memory_fault("out of bounds", bad, a, g.accesses[0], g, m)
        own = self.block_row
        block = np.where(rank > 0, own // size * size + rank - 1, own)
        lanes = self.lane_ids.reshape(-1) if m is None else self.lane_ids[m.full()]
        reached = np.broadcast_to(block, self.shape).reshape(-1)[lanes]
        self.remote_use(lanes, reached, g.accesses[0].site)
        index = (offset >> 2) * self.B + block
        return Base(self.smem_flat, index, self.B, True, m, g, offset, remote=True)

    def shared_base(self, d: Array, g: AccessGroup, m: Mask | None) -> Base:
        """Views and indices of checked shared byte addresses."""
        if g.unit >= 4:
            if d.shape[2] == 1 and not (m is not None and g.kind != "ld" and m.array.shape[2] > 1):
                index = (d >> 2)[:, :, 0]
                if self.expand and g.kind == "ld" and index.size > 1:
                    index = np.ascontiguousarray(np.broadcast_to(index, self.shape[:2]))
                return Base(self.smem_rows, index, 1, True, m, g, d)
            index = (d >> 2) * self.B + self.block_row
            return Base(self.smem_flat, index, self.B, True, m, g, d)
        per_word = 4 // g.unit
        index = (d >> 2) * (self.B * per_word) + ((d & 3) >> g.shift)
        index = index + self.block_row * per_word
        return Base(self.smem_flat, index, self.B * per_word, True, m, g, d)

    def _nowhere(self, g: AccessGroup, m: Mask) -> Base:
        """A base for a group that no lane executes."""
        zero = np.zeros((1, 1, 1), dtype=np.int64)
        return Base(self.heap, zero, 0, False, m, g, zero)

    # ---- local ----
    def lb(self, a: Array, g: AccessGroup, m: Mask | None) -> Base:
        """Check a group of local accesses: each lane has words of its own."""
        if m is not None:
            if not m.lanes:
                return self._nowhere(g, m)
            a = self._settle(a, m)
        d = a.astype(np.int64) + g.lo
        low, high = int(d.min()), int(d.max())
        if low < 0 or high + (g.hi - g.lo) > self.local_bytes:
            for access in g.accesses:
                at = d + (access.offset - g.lo)
                bad = (at < 0) | (at + access.size_bytes > self.local_bytes)
                if bad.any():
                    raise self.memory_fault("out of bounds", bad, a, access, g, m)
        if g.align > 1 and int(np.bitwise_or.reduce(d, axis=None)) & (g.align - 1):
            self._misaligned(a, g, m)
        if g.unit >= 4:
            index = (d >> 2) * self.lanes + self.lane_ids
            return Base(self.local, index, self.lanes, True, m, g, d)
        per_word = 4 // g.unit
        index = (d >> 2) * (self.lanes * per_word) + ((d & 3) >> g.shift)
        return Base(
            self.local, index + self.lane_ids * per_word, self.lanes * per_word, True, m, g, d
        )

    # ---- generic ----
    def xb(self, a: Array, g: AccessGroup, m: Mask | None) -> Base:
        """Check a group of generic accesses: the window tells the space."""
        if m is not None:
            if not m.lanes:
                return self._nowhere(g, m)
            a = self._settle(a, m)
        first = int(a.reshape(-1)[0])
        top = first >> 40
        same = a.size == 1 or bool(((a >> 40) == top).all())
        if top == SHARED_BASE >> 40 and same:
            return self.sb(a - SHARED_BASE, g, m)
        if top == LOCAL_BASE >> 40 and same:
            return self.lb(a - LOCAL_BASE, g, m)
        return self.gb(a, g, m)

    # ---- values ----
    def ld64(self, base: Base, rel: int, dtype: str) -> Array:
        """A 64-bit load; memories of words give it in two halves."""
        views, index, step = base.views, base.index, base.step
        if not base.wide:
            return views.get(dtype)[rel:].take(index)
        low = views.u32[2 * rel * step :].take(index, 0).astype(np.int64)
        high = views.i32[(2 * rel + 1) * step :].take(index, 0).astype(np.int64)
        low |= high << 32
        return low.view(DTYPES[dtype])

    def st(self, base: Base, rel: int, at: int, dtype: str, value: Array) -> None:
        """Store a value; where lanes share an address the last one wins."""
        if base.wide and value.dtype.itemsize == 8:
            bits = np.ascontiguousarray(value).view(np.int64)
            whole = 2 * (rel + at)
            self._put(base, whole * base.step, "i32", bits.astype(np.int32))
            self._put(base, (whole + 1) * base.step, "i32", (bits >> 32).astype(np.int32))
            return
        self._put(base, rel * base.step + base.element(at), dtype, value)

    def _put(self, base: Base, distance: int, dtype: str, value: Array) -> None:
        view = base.views.get(dtype)
        index, m = base.index, base.mask
        view = view[distance:]
        if index.ndim == 2:
            self._put_rows(view, index, value, m)
            return
        if m is None:
            if value.shape != index.shape:
                index, value = np.broadcast_arrays(index, value)
            view[index] = value
            return
        if not m.lanes:
            return
        index, value, active = np.broadcast_arrays(index, value, m.array)
        view[index[active]] = value[active]

    def _put_rows(self, view: Array, index: Array, value: Array, m: Mask | None) -> None:
        """Rows of a [words, B] view; the mask, if any, doesn't depend on the block."""
        ty, tx = np.broadcast_shapes(index.shape, value.shape[:2])
        if m is not None:
            if not m.lanes:
                return
            active = np.broadcast_to(
                m.array[:, :, 0], np.broadcast_shapes((ty, tx), m.array.shape[:2])
            )
            ty, tx = active.shape
            index = np.broadcast_to(index, (ty, tx))[active]
            view[index] = np.broadcast_to(value, (ty, tx, value.shape[2]))[active]
            return
        if index.shape != (ty, tx):
            index = np.broadcast_to(index, (ty, tx))
        view[index.reshape(-1)] = np.broadcast_to(value, (ty, tx, value.shape[2])).reshape(
            ty * tx, value.shape[2]
        )

    # ---- uninitialised shared memory ----
