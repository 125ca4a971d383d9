"""What analysis must know of each operation: its destinations, and how it steers a block."""

from __future__ import annotations

from collections.abc import Iterator

from gemm_lab.emulator.ptx.ir import Instr, Mem, Operand, Pair, Reg, Vec

__all__ = [
    "ends_block",
    "in_out",
    "is_barrier",
    "is_branch_only",
    "needs_own_block",
    "read_registers",
    "registers_of",
    "split_operands",
    "written_registers",
]

NO_DESTINATION = frozenset(
    [
        "st",
        "red",
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "brkpt",
        "membar",
        "fence",
        "prefetch",
        "prefetchu",
        "nanosleep",
        "pmevent",
        "cp",
        "stmatrix",
        "discard",
        "applypriority",
        "setmaxnreg",
        "griddepcontrol",
        "$vprintf",
        "$assertfail",
        "$free",
        "$use",
        "tcgen05",
        "multimem",
    ]
)
# Operations that wait for other lanes of the warp: each begins a block of its own.
WARP_SYNC = frozenset({"shfl", "vote", "match", "redux", "elect"})
BARRIERS = frozenset({"bar", "barrier"})


def split_operands(
    ins: Instr,
) -> tuple[tuple[Operand | None, ...], tuple[Operand | None, ...]]:
    """(destinations, sources) of an instruction."""
    name, ops = ins.name, ins.operands
    if not ops or name in NO_DESTINATION:
        return (), ops
    if name in BARRIERS:
        return (ops[:1], ops[1:]) if "red" in ins.mods else ((), ops)
    if name == "wgmma":
        return (ops[:1], ops) if "mma_async" in ins.mods else ((), ops)
    if name == "mbarrier":
        return ((), ops) if isinstance(ops[0], Mem) else (ops[:1], ops[1:])
    if name == "wmma" and "store" in ins.mods:
        return (), ops
    return ops[:1], ops[1:]


def in_out(ins: Instr) -> bool:
    """True where destinations are read too."""
    return ins.name == "wgmma"


def registers_of(operand: Operand | None) -> Iterator[str]:
    """Names of ordinary registers in an operand."""
    if isinstance(operand, Reg):
        if not operand.special:
            yield operand.name
    elif isinstance(operand, Mem):
        if isinstance(operand.base, Reg):
            yield operand.base.name
        for item in operand.coords:
            yield from registers_of(item)
    elif isinstance(operand, Vec):
        for part in operand.items:
            yield from registers_of(part)
    elif isinstance(operand, Pair):
        yield from registers_of(operand.first)
        yield from registers_of(operand.second)


def written_registers(ins: Instr) -> list[str]:
    """Registers that the instruction writes."""
    return [name for op in split_operands(ins)[0] for name in registers_of(op)]


def read_registers(ins: Instr) -> list[str]:
    """Registers that it reads: sources, the guard, and what a guarded write keeps."""
    dsts, srcs = split_operands(ins)
    names = [name for op in srcs for name in registers_of(op)]
    if ins.guard is not None:
        names.append(ins.guard.name)
        names += [name for op in dsts for name in registers_of(op)]
    return names


def is_barrier(ins: Instr) -> bool:
    """A block-wide barrier at which lanes park."""
    if ins.name in BARRIERS:
        return "arrive" not in ins.mods and "warp" not in ins.mods and "cluster" not in ins.mods
    return False


def needs_own_block(ins: Instr) -> bool:
    """True for operations that wait for lanes of their warp."""
    if ins.name in WARP_SYNC:
        return "sync" in ins.mods
    return ins.name == "bar" and "warp" in ins.mods


def ends_block(ins: Instr) -> bool:
    """True where lanes may go somewhere other than the next instruction, or park."""
    return (
        ins.name in ("bra", "brx", "ret", "exit", "trap")
        or is_barrier(ins)
        or (ins.name == "barrier" and "cluster" in ins.mods and "wait" in ins.mods)
        or (ins.name == "mbarrier" and ("try_wait" in ins.mods))
    )


def is_branch_only(ins: Instr) -> bool:
    """Operations whose guard must become a branch around them."""
    if ins.name in ("bra", "brx"):
        return ins.name == "brx"
    return (
        ends_block(ins)
        or needs_own_block(ins)
        or ins.name.startswith("$")
        or ins.name == "bar"
        or ins.name == "barrier"
    )
