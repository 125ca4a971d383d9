"""wgmma: four warps multiply matrices that lie in shared memory.

Matrices are found by descriptors (PTX ISA, "Matrix descriptor"): start, leading and stride byte
offsets in units of 16 bytes, swizzle in bits 62 and 63. D's register 4 j + 2 h + i of lane 4 g + t
of warp w holds row 16 w + 8 h + g, column 8 j + 2 t + i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.faults import BarrierFault
from gemm_lab.emulator.runtime.arrays import Array, any_of
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.tensor.descriptors import Descriptors, Flight
from gemm_lab.emulator.tensor.fragments import PER_REGISTER

__all__ = ["Flight", "Wgmma", "WgmmaForm"]

GROUP = 128
ROWS = 64


@dataclass(frozen=True, kw_only=True)
class WgmmaForm:
    """A wgmma instruction: columns, element types, and what its immediates say."""

    columns: int
    kind_a: str
    kind_b: str
    kind_d: str
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    registers: tuple[int, ...] = ()
    fragments: tuple[int, ...] = ()


class Wgmma(Descriptors):
    """wgmma.mma_async with its fence, groups and waits."""

    def _group_mask(self, m: Mask | None, site: Site) -> Array:
        """Active (warpgroup, block), [groups, B]; every warp of a group must be whole and here."""
        if self.threads % GROUP:
            raise self.warp_fault(site)
        if m is None:
            return np.ones((self.threads // GROUP, self.B), dtype=bool)
        lanes = m.full().reshape(self.threads // GROUP, GROUP, self.B)
        any_lane, all_lanes = any_of(lanes, 1), ~any_of(~lanes, 1)
        if (any_lane & ~all_lanes).any():
            lane = self.first_lane(m.full())
            raise BarrierFault(
                "divergent warpgroup",
                f"{site.ins.opcode} needs all four warps of a warpgroup",
                **self.blame_lane(lane, site),
            )
        return all_lanes

    def _first_of(self, value: Array) -> Array:
        """A value of each warpgroup and block: that of its first lane, [groups, B]."""
        full = np.broadcast_to(value, self.shape).reshape(-1, GROUP, self.B)
        first: Array = full[:, 0]
        return first

    def wgmma_fence(self, m: Mask | None, site: Site) -> None:
        """wgmma.fence: registers may be handed over."""
        active = self._group_mask(m, site)
        self._clean(active.shape)[active] = True

    def _clean(self, shape: tuple[int, ...]) -> Array:
        if self.wgmma_clean is None:
            self.wgmma_clean = np.zeros(shape, dtype=bool)
        return self.wgmma_clean

    def wgmma_use(
        self, registers: tuple[int, ...], dirty: bool, m: Mask | None, site: Site
    ) -> None:
        """Ordinary code touches accumulators: they must not be in flight, and need a fence."""
        if self.threads % GROUP:
            return
        shape = (self.threads // GROUP, self.B)
        active = (
            np.ones(shape, dtype=bool)
            if m is None
            else np.any(m.full().reshape(shape[0], GROUP, self.B), axis=1)
        )
        if dirty:
            self._clean(shape)[active] = False
        wanted = frozenset(registers)
        for flight in self.flights:
            if flight.registers & wanted and (flight.groups & active).any():
                group = int((flight.groups & active).any(axis=1).argmax())
                raise BarrierFault(
                    "registers in flight",
                    "an accumulator is touched before wgmma.wait_group says that it is done",
                    **self.blame_lane(group * GROUP * self.B, site),
                )

    def wgmma_overwrite(self, registers: tuple[int, ...], m: Mask | None, site: Site) -> None:
        """Ordinary code writes registers of A: no product may still read them."""
        if self.threads % GROUP or not self.flights:
            return
        shape = (self.threads // GROUP, self.B)
        active = (
            np.ones(shape, dtype=bool)
            if m is None
            else np.any(m.full().reshape(shape[0], GROUP, self.B), axis=1)
        )
        for flight in self.flights:
            reading = flight.groups & active
            if flight.fragments & set(registers) and reading.any():
                raise BarrierFault(
                    "registers in flight",
                    "a register of A is overwritten before wgmma.wait_group says that the "
                    "product has read it",
                    **self.blame_lane(int(reading.any(axis=1).argmax()) * GROUP * self.B, site),
                )

    def wgmma(
        self,
        form: WgmmaForm,
        d: Sequence[Array],
        a: Array | Sequence[Array],
        b: Array,
        scale_d: Array,
        m: Mask | None,
        site: Site,
    ) -> Array:
        """D = A B, plus D where scale_d holds: [registers, Ty, Tx, B]."""
        active = self._group_mask(m, site)
        if not self._clean(active.shape)[active].all():
            raise BarrierFault(
                "wgmma.fence",
                "accumulators were touched since the last wgmma.fence",
                **self.blame_lane(0, site),
            )
        tile = self._tile(d, form)
        flight = Flight(
            frozenset(form.registers), active.copy(), fragments=frozenset(form.fragments)
        )
        add = np.broadcast_to(self._first_of(scale_d), active.shape)
        right = self._first_of(b)
        if isinstance(a, np.ndarray):
            left = self._first_of(a)
        else:
            left = np.zeros(active.shape, dtype=np.int64)
            registers = np.stack(
                [np.broadcast_to(self._as_words(r), self.shape) for r in a]
            ).reshape(4, -1, GROUP, self.B)
        for group in range(active.shape[0]):
            blocks = np.flatnonzero(active[group])
            keys = np.stack([left[group, blocks], right[group, blocks], add[group, blocks]])
            for column in np.unique(keys, axis=1).T:
                pick = blocks[(keys == column[:, None]).all(axis=0)]
                if isinstance(a, np.ndarray):
                    first = self._operand_at(
                        int(column[0]), ROWS, form.kind_a, form.transpose_a, group, pick, flight,
                        site,
                    )  # fmt: skip
                else:
                    first = self._from_registers(registers[:, group][..., pick], form.kind_a)
                second = self._operand_at(
                    int(column[1]), form.columns, form.kind_b, form.transpose_b, group, pick,
                    flight, site,
                )  # fmt: skip
                self._accumulate(tile, form, first, second, bool(column[2]), group, pick)
        self.flights.append(flight)
        if self.races is not None:
            self.races.wgmma_read(self, flight, site)
        if self.counters is not None:
            flop = 2 * ROWS * form.columns * 4 * PER_REGISTER[form.kind_a] * 2
            self.counters.bump(site.ins, "tensor_flop", flop * int(active.sum()))
        return tile

    def _as_words(self, register: Array) -> Array:
        return register if register.dtype == np.int32 else register.view(np.int32)

    def _tile(self, d: Sequence[Array], form: WgmmaForm) -> Array:
        """The accumulators as one array: the one that they are views of, or a new one."""
        base = d[0].base
        dtype = {"f32": np.float32, "s32": np.int32}.get(form.kind_d, np.int32)
        if (
            base is not None
            and id(base) in self.tiles
            and base.shape[0] == len(d)
            and all(x.base is base for x in d)
            and d[0].__array_interface__["data"][0] == base.__array_interface__["data"][0]
            and d[-1].__array_interface__["data"][0] == base[-1].__array_interface__["data"][0]
        ):
            found: Array = base
            return found
        tile = np.empty((len(d), *self.shape), dtype=dtype)
        for at, register in enumerate(d):
            tile[at] = register if register.dtype == dtype else register.view(dtype)
        self.tiles[id(tile)] = tile
        if len(self.tiles) > 64:
            self.tiles = {id(tile): tile}
        return tile

    def _accumulate(
        self,
        tile: Array,
        form: WgmmaForm,
        left: Array,
        right: Array,
        add: bool,
        group: int,
        blocks: Array,
    ) -> None:
        product = np.matmul(left, right.transpose(0, 2, 1))
        if form.negate_a != form.negate_b:
            product = -product
        across = form.columns // 8
        shape = (len(blocks), 4, 2, 8, across, 4, 2)
        # -> column group, half, column in pair, warp, g, t, block
        moved = product.reshape(shape).transpose(4, 2, 6, 1, 3, 5, 0)
        values = moved.reshape(across * 4, GROUP, len(blocks))
        rows = tile.reshape(tile.shape[0], self.threads, self.B)
        lanes = slice(group * GROUP, (group + 1) * GROUP)
        if form.kind_d == "f16":
            self._half(rows, values, add, lanes, blocks)
            return
        if form.kind_d == "s32":
            values = values.astype(np.int32)
        if len(blocks) == self.B:
            if add:
                rows[:, lanes] += values
            else:
                rows[:, lanes] = values
            return
        old = rows[:, lanes][..., blocks]
        rows[:, lanes.start : lanes.stop, blocks] = old + values if add else values

    def _half(self, rows: Array, values: Array, add: bool, lanes: slice, blocks: Array) -> None:
        """float16 accumulators, two to a register."""
        pairs = values.reshape(-1, 2, *values.shape[1:])
        old = rows[:, lanes][..., blocks]
        packed = np.zeros(old.shape, dtype=np.uint32)
        for i in range(2):
            before = (old >> (16 * i)).astype(np.int16).view(np.float16)
            total = pairs[:, i] + (before.astype(np.float32) if add else np.float32(0))
            half = total.astype(np.float16).view(np.uint16).astype(np.uint32)
            packed |= half << np.uint32(16 * i)
        rows[:, lanes.start : lanes.stop, blocks] = packed.view(np.int32)

    # ---- groups ----
    def wgmma_commit(self, m: Mask | None, site: Site) -> None:
        """wgmma.commit_group"""
        active = self._group_mask(m, site)
        if self.wgmma_committed is None:
            self.wgmma_committed = np.zeros(active.shape, dtype=np.int64)
        for flight in self.flights:
            if flight.number is None and (flight.groups & active).any():
                flight.number = self.wgmma_committed.copy()
        self.wgmma_committed[active] += 1

    def wgmma_wait(self, pending: int, m: Mask | None, site: Site) -> None:
        """wgmma.wait_group: all but the latest `pending` groups are done."""
        active = self._group_mask(m, site)
        if self.wgmma_committed is None:
            return
        kept = []
        for flight in self.flights:
            if flight.number is not None:
                done = active & (flight.number < self.wgmma_committed - pending) & flight.groups
                if done.any():
                    flight.groups = flight.groups & ~done
                    if self.races is not None:
                        self.races.wgmma_done(self, flight, done, site)
            if flight.groups.any():
                kept.append(flight)
        self.flights = kept
