"""Bulk copies and TMA: one lane moves a run of bytes or a box of a tensor.

Data moves when the instruction is issued; the race detector takes it as moving until its mbarrier
or its wait says that it has arrived.
"""

from __future__ import annotations

import functools

import numpy as np

from gemm_lab.emulator.runtime.arrays import DTYPES, Array
from gemm_lab.emulator.runtime.convert import round_tf32
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.halves import bf16_to_f32, f32_to_bf16
from gemm_lab.emulator.runtime.machine import REMOTE_MASK, REMOTE_SHIFT
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.memory import HEAP_BASE
from gemm_lab.emulator.runtime.system import System
from gemm_lab.emulator.tensor.bulk_checks import BulkChecks
from gemm_lab.emulator.tensor.maps import TensorMap

__all__ = ["BulkCopies", "swizzled"]

ELEMENTS = {1: "u8", 2: "i16", 4: "i32", 8: "i64"}
BITS = {"bf16": "i16"}  # how a type without a view lies in memory
REDUCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum}


def swizzled(address: Array, span: int) -> Array:
    """Shared byte addresses under a swizzle: bits 4 and up are mixed with bits 7 and up."""
    if not span:
        return address
    mixed: Array = address ^ ((address >> 3) & (span - 16))
    return mixed


@functools.lru_cache(maxsize=256)
def _box_words(size: int, base: int, span: int, row: int) -> Array:
    """Shared words of `size` bytes at a byte offset, in the order of the box.

    Rows of `row` bytes lie a whole `span` apart where they are shorter than it.
    """
    at = np.arange(size // 4, dtype=np.int64) * 4
    if row < span:
        at = at // row * span + at % row
    return swizzled(base + at, span) >> 2


class BulkCopies(BulkChecks, System):
    """cp.async.bulk and cp.async.bulk.tensor."""

    def tma_load(
        self,
        target: Array,
        map_address: Array,
        coords: list[Array],
        barrier: Array,
        multicast: Array | None,
        m: Mask | None,
        site: Site,
    ) -> None:
        """cp.async.bulk.tensor from global to shared memory of one or more blocks of a cluster."""
        for address, lanes in self._by_map(map_address, m):
            map_ = self.tensor_map_at(address, int(lanes[0]), site)
            at = self._lane(target, lanes)
            self._check_shared(at & REMOTE_MASK, map_.shared_bytes, 128, lanes, site)
            places = [self._lane(c, lanes) for c in coords]
            self._check_coordinates(map_, places, False, lanes, site)
            data = self._gather(map_, places, lanes, site)
            self._deliver(at, data, map_, barrier, multicast, lanes, site)
            if self.counters is not None:
                self.counters.bump(site.ins, "tma_bytes", map_.box_bytes * len(lanes))

    def bulk_load(
        self,
        target: Array,
        source: Array,
        size: Array,
        barrier: Array,
        multicast: Array | None,
        m: Mask | None,
        site: Site,
    ) -> None:
        """cp.async.bulk from global to shared memory."""
        for count, lanes in self._by_map(size, m):
            at = self._lane(target, lanes)
            self._check_shared(at & REMOTE_MASK, count, 16, lanes, site)
            of = self._lane(source, lanes)
            self._check_heap(of, count, lanes, site)
            words = (of - HEAP_BASE >> 2)[:, None] + np.arange(count // 4)
            data = self.heap.i32[words]
            self._deliver(at, data, None, barrier, multicast, lanes, site)
            if self.counters is not None:
                self.counters.bump(site.ins, "tma_bytes", count * len(lanes))

    def _deliver(
        self,
        at: Array,
        data: Array,
        map_: TensorMap | None,
        barrier: Array,
        multicast: Array | None,
        lanes: Array,
        site: Site,
    ) -> None:
        """Words [lanes, n] into shared memory, and their bytes to the mbarrier at the target."""
        size = data.shape[1] * 4
        span, row = (map_.swizzle, map_.inner_bytes) if map_ else (0, size)
        cluster = self.cluster_size
        own = lanes % self.B
        first = own // cluster * cluster
        signal = self._lane(barrier, lanes)
        if multicast is None:
            rank = at >> REMOTE_SHIFT
            targets = [(np.where(rank > 0, first + rank - 1, own), np.ones(len(lanes), bool))]
        else:
            bits = self._lane(multicast, lanes)
            if len(bits) and int(bits.max()) >> cluster:
                raise self._bulk_fault(
                    "multicast", "the mask names a block outside the cluster", int(lanes[0]), site
                )
            targets = [(first + r, (bits >> r & 1) == 1) for r in range(cluster)]
            if self.counters is not None:
                copies = sum(int(on.sum()) for _, on in targets)
                self.counters.bump(site.ins, "multicast_saved_bytes", size * (copies - len(lanes)))
        offset, slot = at & REMOTE_MASK, (signal & REMOTE_MASK) >> 3
        for block, on in targets:
            if cluster > 1 and on.any():
                self.remote_use(lanes[on], block[on], site)
            for start in np.unique(offset[on]).tolist():
                pick = on & (offset == start)
                words = _box_words(size, start, span, row)
                self.smem[words[:, None], block[pick][None]] = data[pick].T
                if self.track:
                    self.smem_written[words[:, None], block[pick][None]] = True
                    self.smem_gaps = None
                if self.races is not None:
                    self.races.bulk_write(self, words, block[pick], slot[pick], lanes[pick], site)
            if on.any():
                self._signal(slot[on], block[on], size, lanes[on], site)

    def _signal(self, slot: Array, block: Array, size: int, lanes: Array, site: Site) -> None:
        state = self._barriers()
        if not state["valid"][slot, block].all():
            self._barrier_fault("mbarrier", "used before mbarrier.init", int(lanes[0]), site)
        self.complete_bytes(slot, block, np.full(len(slot), size, dtype=np.int64))

    def _gather(self, map_: TensorMap, coords: list[Array], lanes: Array, site: Site) -> Array:
        """Boxes as int32 words [lanes, n]; what lies outside the tensor is zero."""
        index, inside = self._box_index(map_, coords)
        if inside.any():
            found = index[inside]
            low, high = int(found.min()), int(found.max()) + map_.element_bytes
            self._check_span(low, high, lanes, site)
        at = np.where(inside, index - HEAP_BASE, 0) // map_.element_bytes
        data = self.heap.get(ELEMENTS[map_.element_bytes])[at]
        if not inside.all():
            data = np.where(inside, data, np.zeros((), data.dtype))
        data = np.ascontiguousarray(data)
        if map_.round_tf32:
            data = round_tf32(data.view(np.float32), "rn").view(np.int32)
        words: Array = data.reshape(len(lanes), -1).view(np.int32)
        return words

    def _box_index(self, map_: TensorMap, coords: list[Array]) -> tuple[Array, Array]:
        """Byte addresses and validity of boxes, [lanes, box...] with the innermost last."""
        rank = len(map_.dims)
        address: Array = np.full((1,) * (rank + 1), map_.address, dtype=np.int64)
        inside: Array = np.ones((1,) * (rank + 1), dtype=bool)
        for axis in range(rank):
            shape = [1] * (rank + 1)
            shape[rank - axis] = map_.box[axis]
            at = np.arange(map_.box[axis]).reshape(shape) + coords[axis].reshape(-1, *(1,) * rank)
            inside = inside & (at >= 0) & (at < map_.dims[axis])
            address = address + at * map_.strides[axis]
        address, inside = np.broadcast_arrays(address, inside)
        return address, inside

    # ---- stores ----
    def bulk_store(
        self,
        target: Array,
        source: Array,
        size: Array,
        reduce: str,
        dtype: str,
        m: Mask | None,
        site: Site,
    ) -> None:
        """cp.async.bulk from shared to global memory, or its reduction there."""
        for count, lanes in self._by_map(size, m):
            at, of = self._lane(target, lanes), self._lane(source, lanes)
            self._check_shared(of, count, 16, lanes, site)
            self._check_heap(at, count, lanes, site)
            words = (of >> 2)[:, None] + np.arange(count // 4)
            data = self.smem[words, (lanes % self.B)[:, None]]
            self._read_shared(words, lanes, site)
            where = (at - HEAP_BASE >> 2)[:, None] + np.arange(count // 4)
            self._store(where, data, reduce, dtype)
            if self.counters is not None:
                self.counters.bump(site.ins, "tma_bytes", count * len(lanes))

    def _store(self, where: Array, data: Array, reduce: str, dtype: str) -> None:
        if not reduce:
            self.heap.i32[where] = data
            return
        size = self.heap.get(BITS.get(dtype, dtype)).dtype.itemsize
        values = np.ascontiguousarray(data).view(DTYPES[BITS.get(dtype, dtype)])
        at = (where[:, :1] * 4 // size) + np.arange(values.shape[1])
        # Lanes one after the other: they may reduce into the same elements.
        for row, found in zip(at, values, strict=True):
            self._reduce(row, found, reduce, dtype)

    def _reduce(self, at: Array, values: Array, reduce: str, dtype: str) -> None:
        """Elements of the heap, each once, with values of their type (bf16 as its bits)."""
        operation = REDUCTIONS[reduce]
        view = self.heap.get(BITS.get(dtype, dtype))
        if dtype == "bf16":
            total = operation(bf16_to_f32(view[at]), bf16_to_f32(values))
            view[at] = f32_to_bf16(total)
        else:
            view[at] = operation(view[at], values)

    def _read_shared(self, words: Array, lanes: Array, site: Site) -> None:
        """Shared words that a bulk store reads: written, fenced, and left alone until the wait."""
        blocks = np.broadcast_to((lanes % self.B)[:, None], words.shape)
        if self.track:
            bad = ~self.smem_written[words, blocks]
            if bad.any():
                row = int(bad.any(axis=1).argmax())
                raise self._bulk_fault(
                    "uninitialised", "a bulk store of shared memory where nothing was written",
                    int(lanes[row]), site,
                )  # fmt: skip
        if self.races is not None:
            self.races.bulk_read(self, words, blocks, lanes, site)

    def tma_store(
        self,
        map_address: Array,
        coords: list[Array],
        source: Array,
        reduce: str,
        m: Mask | None,
        site: Site,
    ) -> None:
        """cp.async.bulk.tensor from shared to global memory; nothing goes outside the tensor."""
        for address, lanes in self._by_map(map_address, m):
            map_ = self.tensor_map_at(address, int(lanes[0]), site)
            of = self._lane(source, lanes)
            self._check_shared(of, map_.shared_bytes, 128, lanes, site)
            places = [self._lane(c, lanes) for c in coords]
            self._check_coordinates(map_, places, True, lanes, site)
            index, inside = self._box_index(map_, places)
            if inside.any():
                found = index[inside]
                self._check_span(
                    int(found.min()), int(found.max()) + map_.element_bytes, lanes, site
                )
            kind = map_.kind if reduce else ELEMENTS[map_.element_bytes]
            if not kind:
                raise self._bulk_fault(
                    "tensor map", "elements of this type cannot be reduced", int(lanes[0]), site
                )
            view = self.heap.get(BITS.get(kind, kind))
            for row, (start, lane) in enumerate(zip(of.tolist(), lanes.tolist(), strict=True)):
                words = _box_words(map_.box_bytes, start, map_.swizzle, map_.inner_bytes)
                self._read_shared(words[None], np.array([lane]), site)
                data = self.smem[words, lane % self.B].view(view.dtype).reshape(inside.shape[1:])
                on = inside[row]
                at = (index[row][on] - HEAP_BASE) // map_.element_bytes
                if reduce:
                    self._reduce(at, data[on], reduce, kind)
                else:
                    view[at] = data[on]
            if self.counters is not None:
                self.counters.bump(site.ins, "tma_bytes", map_.box_bytes * len(lanes))

    def bulk_commit(self, m: Mask | None) -> None:
        """cp.async.bulk.commit_group"""
        if self.races is not None:
            self.races.bulk_commit(self, m)

    def bulk_wait(self, pending: int, read: bool, m: Mask | None, site: Site) -> None:
        """cp.async.bulk.wait_group"""
        if self.races is not None:
            self.races.bulk_wait(self, pending, m)

    def remote(self, a: Array, rank: Array) -> Array:
        """mapa: a shared address in another block of the cluster."""
        out: Array = (a & REMOTE_MASK) | ((rank.astype(a.dtype) + 1) << REMOTE_SHIFT)
        return out

    def rank_of(self, a: Array) -> Array:
        """getctarank: the rank of the block whose memory an address names."""
        own = self.special("%cluster_ctarank")
        rank = (a >> REMOTE_SHIFT).astype(np.int32)
        out: Array = np.where(rank > 0, rank - 1, own).astype(np.int32)
        return out
