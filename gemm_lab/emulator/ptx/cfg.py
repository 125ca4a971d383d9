"""Basic blocks, live registers, and registers that may be read before they are written."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemm_lab.emulator.faults import PtxError, Where
from gemm_lab.emulator.ptx.flatten import FlatEntry
from gemm_lab.emulator.ptx.ir import Instr, Label, Reg, Sym
from gemm_lab.emulator.ptx.opset import (
    ends_block,
    in_out,
    needs_own_block,
    read_registers,
    registers_of,
    split_operands,
    written_registers,
)

__all__ = ["EXIT", "Block", "Program", "analyse"]

EXIT = -1


@dataclass(slots=True)
class Block:
    """A basic block.

    Attributes:
        start: index of its first instruction in the program.
        last: the terminator, if the block does not simply run on.
        next: the block after it; targets: what a branch may take.
        warp_sync: the block's first instruction waits for lanes of its warp.
        reads, writes, live_in, live_out: register sets as bit masks.
    """

    index: int
    start: int
    instrs: list[Instr] = field(default_factory=list)
    last: Instr | None = None
    next: int = EXIT
    targets: list[int] = field(default_factory=list)
    warp_sync: bool = False
    in_loop: bool = False
    reads: int = 0
    writes: int = 0
    live_in: int = 0
    live_out: int = 0


@dataclass(slots=True)
class Program:
    """An entry's control flow. `registers` maps a name to its number, `types` to its PTX type."""

    flat: FlatEntry
    blocks: list[Block]
    registers: dict[str, int]
    types: list[str]
    maybe_unset: int = 0


def analyse(flat: FlatEntry) -> Program:
    """Cut into blocks and solve liveness. PtxError for a branch to nowhere."""
    registers = {name: number for number, name in enumerate(flat.registers)}
    blocks, labels = _cut(flat)
    for block in blocks:
        block.targets = _targets(block, labels, flat)
    program = Program(flat, blocks, registers, list(flat.registers.values()))
    _liveness(program)
    if blocks[0].live_in:
        watch_unset(program)
        _liveness(program)
    program.maybe_unset = blocks[0].live_in
    _loops(blocks)
    return program


def _cut(flat: FlatEntry) -> tuple[list[Block], dict[str, int]]:
    blocks: list[Block] = []
    labels: dict[str, int] = {}
    current: Block | None = None
    pending: list[str] = []
    number = 0
    for item in flat.body:
        if isinstance(item, Label):
            pending.append(item.name)
            current = None
            continue
        own = needs_own_block(item)
        if current is None or own:
            current = Block(len(blocks), number, warp_sync=own)
            blocks.append(current)
            for name in pending:
                labels[name] = current.index
            pending = []
        number += 1
        if ends_block(item):
            current.last = item
            current = None
        else:
            current.instrs.append(item)
    if pending or not blocks:
        blocks.append(Block(len(blocks), number))
        for name in pending:
            labels[name] = blocks[-1].index
    for block in blocks[:-1]:
        block.next = block.index + 1
    return blocks, labels


def _targets(block: Block, labels: dict[str, int], flat: FlatEntry) -> list[int]:
    last = block.last
    if last is None or last.name not in ("bra", "brx"):
        return []
    where = Where(ptx_line=last.line, instruction=last.opcode)
    operand = last.operands[-1] if last.operands else None
    if not isinstance(operand, Sym):
        raise PtxError("PTX syntax", "a branch without a label", where=where)
    names = [operand.name]
    if last.name == "brx":
        names = flat.tables.get(operand.name, [])
        if not names:
            raise PtxError("PTX syntax", "a branch table that is not there", where=where)
    if any(name not in labels for name in names):
        raise PtxError("PTX syntax", f"branch to unknown label {names[0]}", where=where)
    return [labels[name] for name in names]


def successors(block: Block) -> list[int]:
    """Blocks that may run next."""
    last = block.last
    if last is None:
        return [block.next]
    if last.name in ("ret", "exit", "trap"):
        return []
    if last.name == "bra":
        return [*block.targets, block.next] if last.guard is not None else block.targets
    if last.name == "brx":
        return block.targets
    return [block.next]


def _liveness(program: Program) -> None:
    numbers = program.registers
    for block in program.blocks:
        reads = writes = 0
        instrs = [*block.instrs, block.last] if block.last else block.instrs
        for ins in instrs:
            read = read_registers(ins)
            if in_out(ins):
                read = read + written_registers(ins)
            for name in read:
                bit = 1 << numbers[name]
                if not writes & bit:
                    reads |= bit
            for name in written_registers(ins):
                writes |= 1 << numbers[name]
        block.reads, block.writes = reads, writes
        block.live_in = reads
    changed = True
    while changed:
        changed = False
        for block in reversed(program.blocks):
            out = 0
            for index in successors(block):
                if index >= 0:
                    out |= program.blocks[index].live_in
            live = block.reads | (out & ~block.writes)
            block.live_out = out
            if live != block.live_in:
                block.live_in = live
                changed = True


def _loops(blocks: list[Block]) -> None:
    """Mark blocks between a backward branch and its target."""
    for block in blocks:
        for target in successors(block):
            if 0 <= target <= block.index:
                for inner in blocks[target : block.index + 1]:
                    inner.in_loop = True


def watch_unset(program: Program) -> None:
    """Where a register may be read before it is written, follow at run time which lanes wrote it.

    Each such register gets a flag; `$def` sets it behind a write, `$use` checks it before a read.
    """
    unset = program.blocks[0].live_in
    flags: dict[str, str] = {}
    for name, number in list(program.registers.items()):
        if unset >> number & 1:
            flags[name] = f"{name}@set"
            program.registers[flags[name]] = len(program.types)
            program.types.append("pred")
    for block in program.blocks:
        items: list[Instr] = []
        for ins in [*block.instrs, *([block.last] if block.last else [])]:
            sources = split_operands(ins)[1]
            if ins.name == "wgmma":
                sources = sources[1:]  # accumulators may be unset where scale-d is false
            read = {name for op in sources for name in registers_of(op)}
            if ins.guard is not None:
                read.add(ins.guard.name)
            for name in sorted(read & flags.keys()):
                guard = ins.guard if ins.guard is None or ins.guard.name != name else None
                use = Instr("$use", (), (Reg(flags[name]),), ins.line, ins.loc, guard, name)
                items.append(use)
            if ins is block.last:
                continue
            items.append(ins)
            for name in written_registers(ins):
                if name in flags:
                    items.append(
                        Instr("$def", (), (Reg(flags[name]),), ins.line, ins.loc, ins.guard)
                    )
        # An operation that waits for its warp must stay first in its block.
        block.instrs = items
