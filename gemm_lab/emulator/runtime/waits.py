"""Lanes that wait for an mbarrier's phase or for their cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.tensor.clusters import ClusterWait
from gemm_lab.emulator.tensor.mbarriers import MbarrierWait

__all__ = ["Waits"]

Outcome = MbarrierWait | ClusterWait
Released = Iterator[tuple[int, Array]]


@dataclass(slots=True)
class Waiting:
    """Lanes [Ty, Tx, B] and what they wait for."""

    lanes: Array
    outcome: Outcome


class Waits:
    """All waiting lanes of a batch; they are looked at again when some barrier has changed."""

    def __init__(self, context: Context) -> None:
        self.x = context
        self.items: list[Waiting] = []
        self.version = -1

    def __bool__(self) -> bool:
        return bool(self.items)

    def takes(self, outcome: Any) -> bool:
        """True for outcomes that are kept here."""
        return isinstance(outcome, MbarrierWait | ClusterWait)

    def targets(self) -> list[int]:
        """Blocks where waiting lanes will go on."""
        return [item.outcome.next for item in self.items]

    def add(self, mask: Mask | None, outcome: Outcome, registers: list[Any]) -> Released:
        """Keep lanes; those that need not wait go on at once."""
        lanes = np.ones(self.x.shape, dtype=bool) if mask is None else mask.full()
        item = Waiting(lanes, outcome)
        self.items.append(item)
        yield from self._free(item, registers)
        self.items = [i for i in self.items if i.lanes.any()]

    def released(self, registers: list[Any]) -> Released:
        """Lanes whose wait is over."""
        if self.version == self.x.barrier_version:
            return
        self.version = self.x.barrier_version
        for item in list(self.items):
            yield from self._free(item, registers)
        self.items = [i for i in self.items if i.lanes.any()]

    def _free(self, item: Waiting, registers: list[Any]) -> Released:
        x, outcome = self.x, item.outcome
        if isinstance(outcome, MbarrierWait):
            ready = item.lanes & x.phase_over(outcome.slot, outcome.parity, outcome.token)
        else:
            ready = x.cluster_ready(item.lanes)
        if not ready.any():
            return
        item.lanes = item.lanes & ~ready
        if isinstance(outcome, MbarrierWait):
            mask = Mask(ready, x.shape)
            x.passed_phase(outcome.slot, mask, outcome.register, registers)
        else:
            x.cluster_passed(ready)
        yield outcome.next, ready

    def describe(self) -> list[str]:
        """Who waits for what, for a deadlock's message."""
        out = []
        for item in self.items:
            count = int(item.lanes.sum())
            where = self.x.where(item.outcome.site.ins)
            if isinstance(item.outcome, ClusterWait):
                out.append(f"{count} threads at barrier.cluster.wait ({where})")
                continue
            lane = self.x.first_lane(item.lanes)
            slot = int(item.outcome.slot.reshape(-1)[lane])
            block = lane % self.x.B
            state = {k: int(v[slot, block]) for k, v in self.x.mbarriers.items()}
            out.append(
                f"{count} threads at the mbarrier at {slot * 8:#x}, parity "
                f"{int(item.outcome.parity.reshape(-1)[lane])}, in phase {state['phase']}: "
                f"{missing(state['pending'], state['bytes'])} ({where})"
            )
        return out

    def first(self) -> tuple[Array, Any] | None:
        """Lanes and place of the first wait."""
        return (self.items[0].lanes, self.items[0].outcome.site) if self.items else None


def missing(arrivals: int, size: int) -> str:
    """What an mbarrier's phase waits for."""
    if size < 0:
        return f"{arrivals} arrivals missing, and {-size} bytes more than expect_tx announced came"
    return f"{arrivals} arrivals and {size} bytes missing"
