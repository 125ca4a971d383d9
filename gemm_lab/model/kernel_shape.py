"""A kernel as the model sees it: tiles, threads, vector widths and resources, no name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil
from typing import Any, Literal, get_args

from gemm_lab.errors import UsageError
from gemm_lab.model.occupancy import BlockResources

__all__ = ["KernelShape", "SharedOperand", "Staging", "Unit"]

Unit = Literal["cuda_core", "tensor"]
# How a K slice reaches the arithmetic: straight from global memory; through registers into shared
# memory; by cp.async; by the tensor memory accelerator.
Staging = Literal["none", "registers", "cp_async", "tma"]
_WARP = 32


@dataclass(frozen=True, kw_only=True)
class SharedOperand:
    """How a tile lies in shared memory and how a thread reads its part of it.

    Attributes:
        vector_elements: elements of one shared load.
        k_contiguous: True for [row][k], False for [k][row], the tile of B seen as its transpose.
        pitch_elements: distance of two neighbours along the other axis; None is a tile without
            padding.
        interleaved: True when a thread's elements lie lanes apart (groups of `vector_elements`
            that the lanes share out in turn), False when they lie side by side.
        swizzled: conflicts are taken to be resolved by the layout.
    """

    vector_elements: int = 1
    k_contiguous: bool = False
    pitch_elements: int | None = None
    interleaved: bool = False
    swizzled: bool = False


@dataclass(frozen=True, kw_only=True)
class KernelShape:
    """Facts that decide traffic and time. All counts are elements unless the name says bytes.

    Attributes:
        unit: "cuda_core" multiplies outer products in registers, "tensor" whole warp tiles.
        block_m, block_n: the tile of C of a block; block_k: the K slice that it stages at a time
            (without staging: the K steps whose loads the compiler issues together, usually 4).
        threads: a block's; those that only load (producers) count too.
        thread_m, thread_n: outputs of one thread (CUDA cores).
        lanes_m, lanes_n: how the 32 lanes of a warp spread over rows and columns; lanes count up
            along `lanes_first`.
        warp_m, warp_n: the tile for which a warp (a warpgroup, with wgmma) fetches operands from
            shared memory; tensor cores only.
        staging, stages: how operands arrive, and how many K slices fit in shared memory.
        global_vector_bytes: of one thread's global load; store_vector_bytes: of its store.
        shared_a, shared_b: reading the tiles (CUDA cores with staging).
        shared_store_ways: bank conflicts of writing them, 1 for none.
        group_m: block rows that neighbouring blocks walk together; 1 is plain row order.
        cluster_m, cluster_n: blocks that share one fetch of B or of A by multicast.
        split_k: blocks that share one tile of C.
    """

    unit: Unit
    block_m: int
    block_n: int
    block_k: int
    threads: int
    thread_m: int = 1
    thread_n: int = 1
    lanes_m: int = 1
    lanes_n: int = 32
    lanes_first: Literal["m", "n"] = "n"
    warp_m: int = 64
    warp_n: int = 32
    staging: Staging = "none"
    stages: int = 1
    global_vector_bytes: int = 4
    store_vector_bytes: int = 4
    shared_a: SharedOperand = SharedOperand()
    shared_b: SharedOperand = SharedOperand()
    shared_store_ways: int = 1
    group_m: int = 1
    cluster_m: int = 1
    cluster_n: int = 1
    split_k: int = 1
    registers_per_thread: int = 0
    static_smem_bytes: int = 0
    dynamic_smem_bytes: int = 0
    barriers: int = 1

    def __post_init__(self) -> None:
        may_be_zero = {"registers_per_thread", "static_smem_bytes", "dynamic_smem_bytes"}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.type != "int":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise UsageError(f"{f.name} = {value!r}: must be a whole number")
            if value < (0 if f.name in may_be_zero else 1):
                raise UsageError(f"{f.name} = {value}: too small for a kernel")
        if self.unit not in get_args(Unit):
            raise UsageError(f"unit {self.unit!r}", hint=f"one of {', '.join(get_args(Unit))}")
        if self.staging not in get_args(Staging):
            hint = f"one of {', '.join(get_args(Staging))}"
            raise UsageError(f"staging {self.staging!r}", hint=hint)
        if self.lanes_m * self.lanes_n != _WARP:
            raise UsageError(
                f"lanes_m x lanes_n = {self.lanes_m} x {self.lanes_n}: a warp has {_WARP} lanes"
            )

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> KernelShape:
        """A shape from plain values, nested tables for shared_a and shared_b.

        Raises UsageError with the name of a fact that is missing or unknown.
        """
        _refuse_unknown(facts, {f.name for f in fields(cls)})
        values = dict(facts)
        for name in ("shared_a", "shared_b"):
            if isinstance(values.get(name), Mapping):
                values[name] = _operand(name, values[name])
        missing = [
            n for n in ("unit", "block_m", "block_n", "block_k", "threads") if n not in facts
        ]
        if missing:
            raise UsageError(f"the model needs {', '.join(missing)}")
        return cls(**values)

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return ceil(self.threads / _WARP)

    @property
    def resources(self) -> BlockResources:
        """What occupancy asks about."""
        return BlockResources(
            threads=self.threads,
            registers_per_thread=self.registers_per_thread,
            static_smem_bytes=self.static_smem_bytes,
            dynamic_smem_bytes=self.dynamic_smem_bytes,
            barriers=self.barriers,
        )

    def lane_rows_and_columns(self) -> tuple[list[int], list[int]]:
        """Row and column index of each lane, [0, lanes_m) and [0, lanes_n)."""
        if self.lanes_first == "n":
            return (
                [lane // self.lanes_n for lane in range(_WARP)],
                [lane % self.lanes_n for lane in range(_WARP)],
            )
        return (
            [lane % self.lanes_m for lane in range(_WARP)],
            [lane // self.lanes_m for lane in range(_WARP)],
        )


def _operand(name: str, table: Mapping[str, Any]) -> SharedOperand:
    _refuse_unknown(table, {f.name for f in fields(SharedOperand)}, f"{name}.")
    return SharedOperand(**table)


def _refuse_unknown(facts: Mapping[str, Any], known: set[str], prefix: str = "") -> None:
    for name in facts:
        if name not in known:
            hint = f"known: {', '.join(sorted(known))}"
            raise UsageError(f"unknown fact {prefix + name!r}", hint=hint)
