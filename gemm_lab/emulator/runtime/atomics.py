"""Atomic operations: lanes that meet at one address take turns, lowest lane first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemm_lab.emulator.runtime.access import Base
from gemm_lab.emulator.runtime.arrays import DTYPES, Array
from gemm_lab.emulator.runtime.blame import Blame
from gemm_lab.emulator.runtime.halves import bf16_to_f32, f32_to_bf16

__all__ = ["Atomics"]

Step = Callable[[Array, Array, Array], Array]


def _wrap_inc(old: Array, b: Array, c: Array) -> Array:
    return np.where(old >= b, np.zeros_like(old), old + np.ones_like(old))


def _wrap_dec(old: Array, b: Array, c: Array) -> Array:
    return np.where((old == 0) | (old > b), b, old - np.ones_like(old))


def _bf16_add(old: Array, b: Array, c: Array) -> Array:
    return f32_to_bf16(bf16_to_f32(old) + bf16_to_f32(b))


STEPS: dict[str, Step] = {
    "add": lambda old, b, c: old + b,
    "bf16add": _bf16_add,
    "min": lambda old, b, c: np.minimum(old, b),
    "max": lambda old, b, c: np.maximum(old, b),
    "and": lambda old, b, c: old & b,
    "or": lambda old, b, c: old | b,
    "xor": lambda old, b, c: old ^ b,
    "exch": lambda old, b, c: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "inc": _wrap_inc,
    "dec": _wrap_dec,
}
PLAIN = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
         "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip


class Atomics(Blame):
    """atom and red in every space."""

    def atom(
        self,
        base: Base,
        rel: int,
        at: int,
        op: str,
        dtype: str,
        b: Array,
        c: Array | None,
        want: bool,
    ) -> Array | None:
        """Read-modify-write; old values as [Ty, Tx, B] when `want`, else None."""
        shape = self.shape
        kind = DTYPES[dtype]
        flat: Array = np.broadcast_to(self._flat_index(base, rel, at), shape).reshape(
            self.threads, self.B
        )
        lanes = None if base.mask is None else base.mask.full().reshape(self.threads, self.B)
        # Blocks in order, then threads: the order of a machine that runs block after block.
        flat = flat.T.reshape(-1)
        value = np.broadcast_to(b, shape).reshape(self.threads, self.B).T.reshape(-1).view(kind)
        other = (
            value
            if c is None
            else (np.broadcast_to(c, shape).reshape(self.threads, self.B).T.reshape(-1).view(kind))
        )
        active = None if lanes is None else np.flatnonzero(lanes.T.reshape(-1))
        if active is not None:
            flat, value, other = flat[active], value[active], other[active]
        view, join = self._atom_view(base, dtype)
        if not want and op in PLAIN and not join:
            PLAIN[op].at(view, flat, value)
            return None
        old = self._turns(view, flat, value, other, STEPS[op], kind, join)
        if not want:
            return None
        result = np.zeros(self.lanes, dtype=kind)
        if active is None:
            result[:] = old
        else:
            result[active] = old
        return np.ascontiguousarray(result.reshape(self.B, self.threads).T).reshape(shape)

    def _flat_index(self, base: Base, rel: int, at: int) -> Array:
        if base.views is self.smem_rows:
            return (base.index[:, :, None] + rel + at) * self.B + self.block_row
        factor = 2 if base.wide and base.group.unit == 8 else 1
        return base.index + (rel * base.step + base.element(at)) * factor

    def _atom_view(self, base: Base, dtype: str) -> tuple[Array, int]:
        """The view, and the distance of the upper half where 64 bits lie in two words."""
        views = self.smem_flat if base.views is self.smem_rows else base.views
        if base.wide and DTYPES[dtype].itemsize == 8:
            return views.i32, self.B if base.views is self.smem_rows else base.step
        return views.get(dtype), 0

    def _turns(
        self,
        view: Array,
        flat: Array,
        value: Array,
        other: Array,
        step: Step,
        kind: np.dtype[np.generic],
        join: int,
    ) -> Array:
        """Rounds: in each, every address is touched by at most one lane."""
        old = np.empty(len(flat), dtype=kind)
        if not len(flat):
            return old
        order = np.argsort(flat, kind="stable")
        ranked = flat[order]
        starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
        counts = np.diff(np.append(starts, len(ranked)))
        rank = np.arange(len(ranked)) - np.repeat(starts, counts)
        by_rank = np.argsort(rank, kind="stable")
        bounds = np.searchsorted(rank[by_rank], np.arange(int(counts.max()) + 1))
        for turn in range(int(counts.max())):
            end = bounds[turn + 1] if turn + 1 < len(bounds) else len(by_rank)
            pick = order[by_rank[bounds[turn] : end]]
            at = flat[pick]
            if join:
                low = view[at].astype(np.int64) & 0xFFFFFFFF
                before = (low | view[at + join].astype(np.int64) << 32).view(kind)
            else:
                before = view[at]
            after = step(before, value[pick], other[pick])
            if join:
                bits = np.ascontiguousarray(after).view(np.int64)
                view[at] = bits.astype(np.int32)
                view[at + join] = (bits >> 32).astype(np.int32)
            else:
                view[at] = after
            old[pick] = before
        return old
