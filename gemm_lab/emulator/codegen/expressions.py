"""Names, constants and operands of the text that the emitter writes.

Names are numbers that the emitter gave; nothing of the PTX text is ever pasted in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_lab.emulator.codegen.plan import BlockPlan
from gemm_lab.emulator.codegen.reps import REP_BYTES
from gemm_lab.emulator.faults import PtxError, Where
from gemm_lab.emulator.ptx.cfg import Block
from gemm_lab.emulator.ptx.ir import Imm, Instr, Operand, Reg, Sym
from gemm_lab.emulator.runtime.arrays import DTYPES
from gemm_lab.emulator.runtime.groups import Site

__all__ = ["Expressions", "Leaves", "unknown"]

Leaves = frozenset[Any]
DTYPE_NAMES = {name: f"D_{name}" for name in DTYPES}


def unknown(ins: Instr, why: str = "") -> PtxError:
    """The error for an instruction that the emulator doesn't know."""
    where = Where(
        ins.loc.file if ins.loc else None,
        ins.loc.line if ins.loc else None,
        None,
        ins.line,
        ins.opcode,
    )
    text = f"instruction {ins.opcode}" + (f": {why}" if why else "")
    return PtxError("unknown to the emulator", text, where=where)


class Expressions:
    """State while one block is written.

    Attributes:
        masked: the version for some lanes, whose mask is the variable `m`.
        lines: the text. watch: also report every access to the watchers.
        slots: local variables of registers. leaves: what a register's shape depends on.
        owned: registers whose arrays nobody else holds, so that they may be changed in place.
    """

    def __init__(self, program: Any, block: Block, *, masked: bool, pool: dict[str, Any]) -> None:
        self.program = program
        self.block = block
        self.masked = masked
        self.pool = pool
        self.watch: bool = program.watch
        self.exact_fma: bool = program.exact_fma
        self.lines: list[str] = []
        self.plan = BlockPlan(program, block)
        self.slots: dict[int, int] = {}
        self.free: list[int] = []
        self.slot_count = 0
        self.leaves: dict[int, Leaves] = {}
        self.owned: set[int] = set()
        self.scratch: dict[Any, str] = {}
        self.last: dict[int, int] = {}
        self.at = 0
        self.names = 0
        self.mask = "m" if masked else "None"
        self.guard: Reg | None = None
        self.ins: Instr | None = None
        self.bases: dict[Any, str] = {}
        self.touched: set[int] = set()
        self.wgmma_seen: set[int] = set()
        self.runs: dict[int, Any] | None = None

    def fresh(self, prefix: str = "t") -> str:
        """A new local name."""
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, value: Any) -> str:
        """A name for an object that the text needs."""
        name = f"K{len(self.pool)}"
        self.pool[name] = value
        return name

    def array(self, value: int | float, rep: str) -> str:
        """A name for a [1, 1, 1] constant."""
        key = ("array", rep, repr(value))
        names = self.program.constant_names
        if key not in names:
            if isinstance(value, int) and rep not in ("f16", "f32", "f64", "pred"):
                bits = 8 * REP_BYTES[rep]
                value &= (1 << bits) - 1
                if rep[0] == "i" and value >> (bits - 1):
                    value -= 1 << bits
            filled = np.full((1, 1, 1), value, dtype=DTYPES[rep])
            filled.flags.writeable = False
            names[key] = self.constant(filled)
        name: str = names[key]
        return name

    def site(self, ins: Instr | None = None) -> str:
        """A name for the current instruction, for faults."""
        item = ins or self.ins
        assert item is not None
        key = ("site", id(item))
        names = self.program.constant_names
        if key not in names:
            names[key] = self.constant(Site(item.line, item))
        name: str = names[key]
        return name

    def line(self, text: str) -> None:
        """Append a line of the body."""
        self.lines.append(text)

    def fail(self, why: str = "") -> PtxError:
        """An error at the current instruction."""
        assert self.ins is not None
        return unknown(self.ins, why)

    def number(self, reg: Reg) -> int:
        """A register's number in the program."""
        found: int = self.program.registers[reg.name]
        return found

    def rep(self, reg: Reg) -> str:
        """How a register is kept."""
        if reg.special:
            return "i64" if reg.name in ("%clock64", "%globaltimer", "%gridid") else "i32"
        rep: str = self.program.reps[self.number(reg)]
        return rep

    def convert(self, text: str, have: str, want: str) -> str:
        """Reinterpret, truncate or extend between types; PTX does so between register widths."""
        if have == want:
            return text
        if "pred" in (have, want):
            raise self.fail("a predicate where a number belongs, or the reverse")
        if REP_BYTES[have] == REP_BYTES[want]:
            return f"{text}.view({DTYPE_NAMES[want]})"
        integer = {8: "i64", 4: "i32", 2: "i16", 1: "i8"}
        if have[0] == "f":
            have = integer[REP_BYTES[have]]
            text = f"{text}.view({DTYPE_NAMES[have]})"
        if want[0] == "f":
            middle = integer[REP_BYTES[want]]
            return f"{text}.astype({DTYPE_NAMES[middle]}).view({DTYPE_NAMES[want]})"
        return f"{text}.astype({DTYPE_NAMES[want]})"

    def src(self, op: Operand | None, rep: str) -> str:
        """An expression for a source operand as a type."""
        if isinstance(op, Reg):
            text = f"X.special({op.name!r})" if op.special else f"s{self.slot_of(op)}"
            text = self.convert(text, self.rep(op), rep)
            return f"(~{text})" if op.negated else text
        if isinstance(op, Imm):
            return self.immediate(op, rep)
        if isinstance(op, Sym):
            return self.symbol(op, rep)
        raise self.fail("an operand of a kind that it cannot take")

    def immediate(self, op: Imm, rep: str) -> str:
        """A literal as a constant array."""
        value = op.value
        if rep == "pred":
            return self.array(bool(value), "pred")
        if rep in ("f32", "f64", "f16"):
            if isinstance(value, int):
                # An integer in a float's place is its bit pattern, as are NaN literals.
                integer = {"f32": "i32", "f64": "i64", "f16": "i16"}[rep]
                name = self.array(value, integer)
                return f"{name}.view({DTYPE_NAMES[rep]})"
            if op.bits == 32 and rep == "f64":
                return self.array(float(np.float32(value)), rep)
            return self.array(value, rep)
        if isinstance(value, float):
            if op.bits == 0 and not value.is_integer():
                raise self.fail("a decimal where an integer belongs")
            kind = np.float64 if op.bits == 64 or REP_BYTES[rep] == 8 else np.float32
            whole = np.array(value, dtype=kind).view(np.int64 if kind is np.float64 else np.int32)
            return self.array(int(whole), rep)
        return self.array(value, rep)

    def symbol(self, op: Sym, rep: str) -> str:
        """An address."""
        flat = self.program.flat
        if op.name in flat.shared_offsets:
            return self.array(flat.shared_offsets[op.name] + op.offset, rep)
        if op.name in flat.local_offsets:
            return self.array(flat.local_offsets[op.name] + op.offset, rep)
        for param in flat.params:
            if param.name == op.name:
                return self.convert(f"X.symbol('%param',{param.offset + op.offset})", "i64", rep)
        if op.name not in self.program.module_variables:
            raise self.fail("an unknown name")
        name = self.constant(op.name)
        return self.convert(f"X.symbol({name},{op.offset})", "i64", rep)

    def slot_of(self, reg: Reg) -> int:
        """The local slot of a register, fetched from the register file when first met."""
        number = self.number(reg)
        slot = self.slots.get(number)
        if slot is None:
            slot = self.slots[number] = self.take_slot()
            self.line(f"s{slot}=R[{number}]")
            self.leaves[number] = frozenset((("r", number),))
        return slot

    def take_slot(self) -> int:
        if self.free:
            return self.free.pop()
        self.slot_count += 1
        return self.slot_count - 1
