"""Who did it: lanes to blocks and threads, instructions to lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_lab.emulator.faults import BarrierFault, MemoryFault, Where
from gemm_lab.emulator.ptx.ir import Instr
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.groups import Access, AccessGroup, Site
from gemm_lab.emulator.runtime.machine import Machine
from gemm_lab.emulator.runtime.masks import Mask

__all__ = ["Blame"]


class Blame(Machine):
    """Turns a lane and an instruction into a fault's facts."""

    def where(self, ins: Instr) -> Where:
        """The instruction's place in PTX and CUDA."""
        return self.setup.where(ins)

    def block_of(self, index: int) -> tuple[int, int, int]:
        """Coordinates of the batch's block number `index`."""
        return self.grid_block(int(self.block_ids[index]))

    def grid_block(self, block: int) -> tuple[int, int, int]:
        """Coordinates of the grid's block number `block`."""
        gx, gy, _ = self.setup.grid
        return block % gx, block // gx % gy, block // (gx * gy)

    def thread_of(self, linear: int) -> tuple[int, int, int]:
        """Coordinates of a block's thread number `linear`."""
        bx, by, _ = self.setup.block
        return linear % bx, linear // bx % by, linear // (bx * by)

    def blame_lane(self, lane: int, site: Site) -> dict[str, Any]:
        """where, block and thread of a flat lane number."""
        thread, block = divmod(lane, self.B)
        return {
            "where": self.where(site.ins),
            "block": self.block_of(block),
            "thread": self.thread_of(thread),
        }

    def first_lane(self, bad: Array) -> int:
        """The first lane of a bool array of the batch: lowest block, then thread."""
        full = np.broadcast_to(bad, self.shape).reshape(self.threads, self.B)
        block = int(full.any(axis=0).argmax())
        return int(full[:, block].argmax()) * self.B + block

    def memory_fault(
        self,
        kind: str,
        bad: Array,
        address: Array,
        access: Access,
        group: AccessGroup,
        m: Mask | None,
    ) -> MemoryFault:
        """A fault of one access; `bad` marks the lanes, inactive ones are left out."""
        if m is not None:
            bad = bad & m.array
        lane = self.first_lane(bad)
        at = int(np.broadcast_to(address, self.shape).reshape(-1)[lane]) + access.offset
        count = int(np.count_nonzero(np.broadcast_to(bad, self.shape)))
        verb = {"ld": "load", "st": "store", "atom": "atomic", "cp": "copy"}[group.kind]
        text = f"{group.space} {verb} of {access.size_bytes} bytes at {at:#x}"
        hint = None
        if kind == "misaligned":
            text += f", which must be a multiple of {group.align}"
        elif kind == "out of bounds":
            text += f"; {self._neighbourhood(at, group.space)}"
        elif kind == "uninitialised":
            text += ", where nothing was written"
            hint = "store before the load, and put a barrier between"
        text += f"; {count} lane{'s' if count != 1 else ''}"
        return MemoryFault(kind, text, address=at, hint=hint, **self.blame_lane(lane, access.site))

    def _neighbourhood(self, at: int, space: str) -> str:
        if space == "shared":
            return f"the block has {self.smem_bytes} bytes of shared memory"
        if space == "local":
            return f"the thread has {self.local_bytes} bytes of local memory"
        buffer = self.memory.nearest(at)
        if at == 0 or buffer is None:
            return "a null pointer" if at == 0 else "there is no allocation"
        if at < buffer.address:
            return f"{buffer.address - at} bytes before {buffer.name}"
        if at >= buffer.end:
            past = at - buffer.end
            return f"{past} bytes past the end of {buffer.name} ({buffer.size_bytes} bytes)"
        return f"it crosses the end of {buffer.name} ({buffer.size_bytes} bytes)"

    def whole(self, m: Mask | None, site: Site) -> None:
        """An .aligned operation: every live lane of each active warp must be here."""
        if m is None:
            return
        active = self.by_warp(m.full().reshape(self.threads, self.B))
        lanes = np.ones((self.threads, self.B), dtype=bool)
        part = active.any(axis=1, keepdims=True) & ~active & self.by_warp(lanes)
        if part.any():
            raise BarrierFault(
                "divergent warp",
                f"{site.ins.opcode} needs all lanes of its warp, this one is elsewhere",
                **self.blame_lane(self.first_lane(self.from_warps(part)), site),
            )

    def warp_fault(self, site: Site) -> BarrierFault:
        """A warp operation in a block whose last warp is not full."""
        return BarrierFault(
            "partial warp",
            f"{site.ins.opcode} in blocks of {self.threads} threads: warps must be full",
            where=self.where(site.ins),
        )
