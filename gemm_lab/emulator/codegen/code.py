"""An entry's generated functions, compiled when they are first needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_lab.emulator.codegen import (
    ops_arith,
    ops_bits,
    ops_convert,
    ops_data,
    ops_float,
    ops_hopper,
    ops_memory,
    ops_tensor,
    ops_warp,
    ops_wgmma,
)
from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.finish import finish
from gemm_lab.emulator.codegen.reps import choose_reps
from gemm_lab.emulator.faults import Where
from gemm_lab.emulator.ptx.cfg import Program
from gemm_lab.emulator.ptx.ir import Reg, Vec
from gemm_lab.emulator.ptx.opset import written_registers
from gemm_lab.emulator.runtime import arith, bits, convert, fp8, halves, rounding
from gemm_lab.emulator.runtime.arrays import DTYPES
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.machine import LOCAL_BASE, SHARED_BASE
from gemm_lab.emulator.runtime.memory import HEAP_BASE

__all__ = ["Code"]

MODULES = (
    ops_arith,
    ops_bits,
    ops_convert,
    ops_data,
    ops_float,
    ops_hopper,
    ops_memory,
    ops_tensor,
    ops_warp,
    ops_wgmma,
)
TABLE: dict[str, Emit] = {name: emit for module in MODULES for name, emit in module.OPS.items()}
VOLATILE = frozenset({"volatile", "acquire", "relaxed"})


def _namespace() -> dict[str, Any]:
    space: dict[str, Any] = {"np": np, "where": np.where, "mul": np.multiply, "add": np.add}
    space.update({f"D_{name}": dtype for name, dtype in DTYPES.items()})
    for module in (arith, bits, convert, fp8, halves, rounding):
        space.update({name: getattr(module, name) for name in module.__all__})
    space["KSHARED"] = np.int64(SHARED_BASE)
    space["KLOCAL"] = np.int64(LOCAL_BASE)
    space["KSHARED40"] = SHARED_BASE >> 40
    space["KLOCAL40"] = LOCAL_BASE >> 40
    space["KHEAP40"] = HEAP_BASE >> 40
    space["__builtins__"] = {"abs": abs}
    return space


def _accumulators(program: Program) -> frozenset[int]:
    """Registers that wgmma writes."""
    return frozenset(
        program.registers[name]
        for block in program.blocks
        for ins in block.instrs
        if ins.name == "wgmma"
        for name in written_registers(ins)
    )


def _fragments(program: Program) -> frozenset[int]:
    """Registers of A that wgmma reads while it is in flight."""
    return frozenset(
        program.registers[item.name]
        for block in program.blocks
        for ins in block.instrs
        if ins.name == "wgmma" and "mma_async" in ins.mods and isinstance(ins.operands[1], Vec)
        for item in ins.operands[1].items
        if isinstance(item, Reg)
    )


def _merged_writes(program: Program, index: int) -> int:
    """Registers that a block writes for the active lanes' sake only.

    wgmma keeps what inactive lanes hold, so what it alone writes needs no merge.
    """
    writes = 0
    block = program.blocks[index]
    for ins in [*block.instrs, *([block.last] if block.last else [])]:
        if ins.name != "wgmma":
            for name in written_registers(ins):
                writes |= 1 << program.registers[name]
    return writes


class Code:
    """Functions of one entry under one set of options.

    `full[i]` runs block i for all lanes, `masked[i]` for some; None until first needed.
    """

    def __init__(
        self, program: Program, variables: frozenset[str], *, watch: bool, exact_fma: bool
    ) -> None:
        self.program = program
        self.flat = program.flat
        self.registers = program.registers
        self.module_variables = variables
        self.watch = watch
        self.exact_fma = exact_fma
        self.reps = choose_reps(program)
        self.constant_names: dict[Any, str] = {}
        self.plans: dict[int, Any] = {}
        self.volatile_words = VOLATILE
        # Blocks of loops that may wait for what other lanes do.
        self.spinning: set[int] = set()
        self.pool = _namespace()
        blocks = program.blocks
        self.asynchronous = any(
            ins.name in ("cp", "mbarrier", "wgmma") or "cluster" in ins.mods or ins.name == "fence"
            for block in blocks
            for ins in [*block.instrs, *([block.last] if block.last else [])]
        )
        self.accumulators = _accumulators(program)
        self.fragments = _fragments(program)
        self.full: list[Any] = [None] * len(blocks)
        self.masked: list[Any] = [None] * len(blocks)
        self.sizes = [len(b.instrs) + (b.last is not None) or 1 for b in blocks]
        self.live_in = [b.live_in for b in blocks]
        self.writes = [_merged_writes(program, b.index) for b in blocks]
        self.max_live = max(mask.bit_count() for mask in self.live_in)
        self.text: dict[tuple[int, bool], str] = {}

    def check(self) -> None:
        """Write every block once: the first unknown instruction is a PtxError."""
        for block in self.program.blocks:
            self.source(block.index, masked=False)

    def source(self, index: int, *, masked: bool) -> str:
        """The text of a block's function."""
        key = (index, masked)
        if key not in self.text:
            emitter = BlockEmitter(self, self.program.blocks[index], masked=masked, pool=self.pool)
            self.text[key] = emitter.write(TABLE, finish)
        return self.text[key]

    def function(self, index: int, *, masked: bool) -> Any:
        """A block's function, compiled now."""
        text = self.source(index, masked=masked)
        scope: dict[str, Any] = {}
        exec(compile(text, f"<ptx block {index}>", "exec"), self.pool, scope)
        function = scope["f"]
        (self.masked if masked else self.full)[index] = function
        return function

    def initial_registers(self) -> list[Any]:
        """An empty register file; registers that may be read unset hold zeros."""
        file: list[Any] = [None] * len(self.reps)
        unset = self.program.maybe_unset
        for number, rep in enumerate(self.reps):
            if unset >> number & 1:
                file[number] = np.zeros((1, 1, 1), dtype=DTYPES[rep])
        return file

    def where_of(self, index: int, context: Context) -> Where | None:
        """The place of a block's first instruction that has a source line."""
        block = self.program.blocks[index]
        for ins in [*block.instrs, *([block.last] if block.last else [])]:
            if ins.loc is not None:
                return context.where(ins)
        return None
