"""What the watchers report: races and traffic, by source line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gemm_lab.emulator.faults import Where

__all__ = ["Counters", "LineCounters", "Race"]

RaceKind = Literal[
    "write-write", "read-write", "write-read", "same instruction", "missing proxy fence"
]


@dataclass(frozen=True, kw_only=True)
class Race:
    """Two accesses of one address that nothing orders, at least one of them a write.

    Attributes:
        kind: what came first and second here; another run may have them the other way round.
        space: "shared" or "global". address: of the first byte found, as the kernel sees it.
        first, second: the two places. threads, blocks: who, (x, y, z) each; None for several.
        count: how often this pair of places was found.
    """

    kind: RaceKind
    space: str
    address: int
    first: Where
    second: Where
    block: tuple[int, int, int]
    other_block: tuple[int, int, int]
    thread: tuple[int, int, int]
    other_thread: tuple[int, int, int] | None
    count: int

    def __str__(self) -> str:
        who = "several threads" if self.other_thread is None else f"thread {self.other_thread}"
        return (
            f"race ({self.kind}) in {self.space} memory at {self.address:#x}, {self.count} times:\n"
            f"  {who} of block {self.other_block} at {self.first}\n"
            f"  thread {self.thread} of block {self.block} at {self.second}"
        )


@dataclass(slots=True)
class LineCounters:
    """Traffic and work of one source line, or of a kernel. Requests are a warp's instructions.

    Shared loads are grouped as ptxas does: scalar loads of neighbouring words count as one.
    A conflict is a wavefront beyond what the bytes need. Copies by cp.async (LDGSTS) are a class
    of their own: in Nsight Compute sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts and
    its sectors, where _cache_access are the .ca and _cache_bypass the .cg copies. Its
    l1tex__t_requests_pipe_lsu_mem_global_op_ld counts loads and copies together.
    """

    warp_instructions: int = 0
    thread_instructions: int = 0
    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_load_bytes: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_store_bytes: int = 0
    global_atomic_requests: int = 0
    shared_load_instructions: int = 0
    shared_load_wavefronts: int = 0
    shared_load_conflicts: int = 0
    shared_load_bytes: int = 0
    shared_store_instructions: int = 0
    shared_store_wavefronts: int = 0
    shared_store_conflicts: int = 0
    shared_store_bytes: int = 0
    shared_atomic_instructions: int = 0
    fma: int = 0
    flop: int = 0
    tensor_flop: int = 0
    async_copy_requests: int = 0
    async_copy_sectors: int = 0
    async_copy_bytes: int = 0
    tma_bytes: int = 0
    multicast_saved_bytes: int = 0

    def add(self, other: LineCounters) -> None:
        """Add another's numbers to this."""
        for name in self.__slots__:
            value = getattr(other, name)
            if value:
                setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Counters of the watched blocks.

    Attributes:
        blocks: how many were counted. total: their sum.
        lines: by (file, line) of the CUDA source.
        mix: warp instructions by PTX operation.
    """

    blocks: int
    total: LineCounters
    lines: Mapping[tuple[str, int], LineCounters]
    mix: Mapping[str, int] = field(default_factory=dict)

    @property
    def sectors_per_load_request(self) -> float | None:
        """32-byte sectors that a warp's global load touches, on average."""
        t = self.total
        return t.global_load_sectors / t.global_load_requests if t.global_load_requests else None

    @property
    def sectors_per_store_request(self) -> float | None:
        """32-byte sectors that a warp's global store touches, on average."""
        t = self.total
        return t.global_store_sectors / t.global_store_requests if t.global_store_requests else None

    @property
    def sectors_per_async_copy(self) -> float | None:
        """32-byte sectors of global memory that a warp's cp.async touches, on average."""
        t = self.total
        return t.async_copy_sectors / t.async_copy_requests if t.async_copy_requests else None

    @property
    def flop_per_global_byte(self) -> float | None:
        """Arithmetic intensity against the sectors that L1 moves."""
        t = self.total
        sectors = t.global_load_sectors + t.global_store_sectors + t.async_copy_sectors
        moved = 32 * sectors + t.tma_bytes
        return (t.flop + t.tensor_flop) / moved if moved else None

    @property
    def flop_per_shared_byte(self) -> float | None:
        """Arithmetic intensity against the bytes that shared memory delivers and takes."""
        t = self.total
        moved = t.shared_load_bytes + t.shared_store_bytes
        return (t.flop + t.tensor_flop) / moved if moved else None

    def as_dict(self) -> dict[str, int | float | None]:
        """All totals and ratios by name, for JSON."""
        out: dict[str, int | float | None] = {"blocks": self.blocks}
        for name in LineCounters.__slots__:
            out[name] = getattr(self.total, name)
        for name in (
            "sectors_per_load_request",
            "sectors_per_store_request",
            "sectors_per_async_copy",
            "flop_per_global_byte",
            "flop_per_shared_byte",
        ):
            out[name] = getattr(self, name)
        return out
