"""Operations across the lanes of a warp: shuffle, vote, match, redux, elect."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.machine import Machine
from gemm_lab.emulator.runtime.masks import Mask

__all__ = ["Warps"]


class Warps(Machine):
    """Values are [Ty, Tx, B] or smaller; inside, [warps, 32, B]."""

    def shfl(
        self, mode: str, value: Array, b: Array, c: Array, m: Mask | None
    ) -> tuple[Array, Array]:
        """shfl.sync: (value, predicate). PTX ISA, "shfl.sync": clamp and segment mask in c."""
        v = self.to_warps(value)
        amount = self.to_warps(b) & 31
        pattern = self.to_warps(c)
        clamp, segment = pattern & 31, (pattern >> 8) & 31
        lane = np.arange(32, dtype=np.int32).reshape(1, 32, 1)
        high = (lane & segment) | (clamp & ~segment)
        low = lane & segment
        if mode == "up":
            source = lane - amount
            inside = source >= high
        elif mode == "down":
            source = lane + amount
            inside = source <= high
        elif mode == "bfly":
            source = lane ^ amount
            inside = source <= high
        else:
            source = low | (amount & ~segment)
            inside = source <= high
        source = np.where(inside, source, lane)
        source, _ = np.broadcast_arrays(source, v)
        result = np.take_along_axis(v, source.astype(np.int64), axis=1)
        return self.from_warps(result), self.from_warps(np.broadcast_to(inside, v.shape))

    def ballot(self, p: Array, members: Array, m: Mask | None) -> Array:
        """vote.sync.ballot as int32."""
        bits = np.int64(1) << np.arange(32, dtype=np.int64).reshape(1, 32, 1)
        votes = self.to_warps(p) & self.active_warps(m)
        named = self.to_warps(members).astype(np.int64) & 0xFFFFFFFF
        total = np.where(votes, bits, 0).sum(axis=1, keepdims=True) & named
        return self.from_warps(total.astype(np.uint32).view(np.int32))

    def vote(self, mode: str, p: Array, members: Array, m: Mask | None) -> Array:
        """vote.sync.all, .any or .uni."""
        bits = np.int64(1) << np.arange(32, dtype=np.int64).reshape(1, 32, 1)
        named = (self.to_warps(members).astype(np.int64) & bits) != 0
        counted = named & self.active_warps(m)
        votes = self.to_warps(p) & counted
        yes, of = votes.sum(axis=1, keepdims=True), counted.sum(axis=1, keepdims=True)
        if mode == "any":
            result = yes > 0
        elif mode == "all":
            result = yes == of
        else:
            result = (yes == of) | (yes == 0)
        return self.from_warps(np.broadcast_to(result, votes.shape))

    def match(self, mode: str, value: Array, members: Array, m: Mask | None) -> tuple[Array, Array]:
        """match.any or match.all: (mask of lanes with the same value, predicate)."""
        v = self.to_warps(value)
        bits = np.int64(1) << np.arange(32, dtype=np.int64)
        named = self.to_warps(members).astype(np.int64) & 0xFFFFFFFF
        active = self.active_warps(m)
        same = (v[:, :, None] == v[:, None, :]) & active[:, None, :]
        found = (same * bits.reshape(1, 1, 32, 1)).sum(axis=2) & named
        if mode == "all":
            all_same = found == (
                named & (active * bits.reshape(1, 32, 1)).sum(axis=1, keepdims=True)
            )
            found = np.where(all_same, found, 0)
        else:
            all_same = found != 0
        return (
            self.from_warps(found.astype(np.uint32).view(np.int32)),
            self.from_warps(all_same),
        )

    def redux(self, op: str, value: Array, members: Array, m: Mask | None) -> Array:
        """redux.sync over the active member lanes of each lane's mask."""
        v = self.to_warps(value)
        bits = np.int64(1) << np.arange(32, dtype=np.int64)
        named = self.to_warps(members).astype(np.int64) & 0xFFFFFFFF
        pairs = (named[:, :, None] & bits.reshape(1, 1, 32, 1)) != 0
        pairs &= self.active_warps(m)[:, None]
        spread = np.broadcast_to(v[:, None], pairs.shape)
        if op == "add":
            total = np.where(pairs, spread, 0).sum(axis=2, dtype=np.int64).astype(np.int32)
            return self.from_warps(total.astype(v.dtype))
        info = np.iinfo(v.dtype) if v.dtype.kind in "iu" else np.finfo(v.dtype)
        neutral = {"and": -1, "or": 0, "xor": 0, "min": info.max, "max": info.min}[op]
        table = {
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "min": np.minimum,
            "max": np.maximum,
        }
        filled = np.where(pairs, spread, np.array(neutral).astype(v.dtype))
        return self.from_warps(table[op].reduce(filled, axis=2))

    def elect(self, members: Array, m: Mask | None) -> tuple[Array, Array]:
        """elect.sync: (leader's lane, whether this lane is it): the lowest member."""
        active = self.active_warps(m)
        bits = np.int64(1) << np.arange(32, dtype=np.int64).reshape(1, 32, 1)
        named = (self.to_warps(members).astype(np.int64) & bits) != 0
        leader = (active & named).argmax(axis=1, keepdims=True)
        lane = np.arange(32).reshape(1, 32, 1)
        chosen = np.broadcast_to(lane == leader, active.shape) & active
        number = np.broadcast_to(leader, active.shape).astype(np.int32)
        return self.from_warps(number), self.from_warps(chosen)
