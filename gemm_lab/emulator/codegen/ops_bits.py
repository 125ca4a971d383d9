"""Bit operations: logic, shifts, fields, permutes, byte dot products."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.ops_arith import check_mods, count, integer_kind
from gemm_lab.emulator.codegen.reps import rep_of
from gemm_lab.emulator.ptx.ir import Imm, Instr
from gemm_lab.emulator.ptx.types import TYPE_BYTES

__all__ = ["OPS"]


def shift(e: BlockEmitter, ins: Instr) -> None:
    """shl and shr; amounts at or beyond the width clamp."""
    count(e, ins, 3)
    kind = integer_kind(e, ins)
    rep = rep_of(kind)
    if ins.name == "shl":
        rep = rep.replace("u", "i")
    elif kind[0] == "b":
        rep = rep.replace("i", "u")
    _, a, amount = ins.operands
    bits = 8 * TYPE_BYTES[kind]
    leaves = e.leaf(a, amount)
    value = e.src(a, rep)
    if isinstance(amount, Imm) and isinstance(amount.value, int) and 0 <= amount.value < bits:
        sign = "<<" if ins.name == "shl" else ">>"
        e.dst(ins.operands[0], f"{value}{sign}{e.array(amount.value, rep)}", rep, leaves)
        return
    text = f"shift({value},{e.src(amount, 'u32')},{ins.name!r})"
    e.dst(ins.operands[0], text, rep, leaves)


def bfind(e: BlockEmitter, ins: Instr) -> None:
    """bfind and bfind.shiftamt."""
    words = check_mods(e, ins, "shiftamt")
    rep = rep_of(integer_kind(e, ins))
    e.dst(ins.operands[0], f"bfind({e.src(ins.operands[1], rep)},{'shiftamt' in words})", "i32")


def bfe(e: BlockEmitter, ins: Instr) -> None:
    """Bit field extract."""
    count(e, ins, 4)
    rep = rep_of(integer_kind(e, ins))
    _, a, pos, length = ins.operands
    text = f"bfe({e.src(a, rep)},{e.src(pos, 'i32')},{e.src(length, 'i32')})"
    e.dst(ins.operands[0], text, rep, e.leaf(a, pos, length))


def bfi(e: BlockEmitter, ins: Instr) -> None:
    """Bit field insert."""
    count(e, ins, 5)
    rep = rep_of(integer_kind(e, ins))
    _, a, b, pos, length = ins.operands
    text = f"bfi({e.src(a, rep)},{e.src(b, rep)},{e.src(pos, 'i32')},{e.src(length, 'i32')})"
    e.dst(ins.operands[0], text, rep)


def lop3(e: BlockEmitter, ins: Instr) -> None:
    """Any bitwise function of three words."""
    count(e, ins, 5)
    table = ins.operands[4]
    check_mods(e, ins)
    if not isinstance(table, Imm) or not isinstance(table.value, int) or not 0 <= table.value < 256:
        raise e.fail("its table")
    args = ",".join(e.src(op, "i32") for op in ins.operands[1:4])
    e.dst(ins.operands[0], f"lop3({args},{table.value})", "i32")


def prmt(e: BlockEmitter, ins: Instr) -> None:
    """Byte permute, default mode."""
    count(e, ins, 4)
    check_mods(e, ins)
    args = ",".join(e.src(op, "i32") for op in ins.operands[1:])
    e.dst(ins.operands[0], f"prmt({args})", "i32")


def shf(e: BlockEmitter, ins: Instr) -> None:
    """Funnel shift."""
    count(e, ins, 4)
    words = check_mods(e, ins, "l", "r", "wrap", "clamp")
    args = ",".join(e.src(op, "i32") for op in ins.operands[1:])
    e.dst(ins.operands[0], f"shf({args},{'l' in words},{'clamp' in words})", "i32")


def dot(e: BlockEmitter, ins: Instr) -> None:
    """dp4a and dp2a."""
    count(e, ins, 4)
    kinds = [mod for mod in ins.mods if mod in TYPE_BYTES]
    if len(kinds) != 2:
        raise e.fail("two types are needed")
    args = ",".join(e.src(op, "i32") for op in ins.operands[1:])
    signs = f"{kinds[0] == 's32'},{kinds[1] == 's32'}"
    if ins.name == "dp2a":
        signs += f",{'hi' in ins.mods}"
    e.dst(ins.operands[0], f"{ins.name}({args},{signs})", "i32")


def logic(sign: str) -> Emit:
    """and, or, xor on bits and predicates."""

    def emit(e: BlockEmitter, ins: Instr) -> None:
        count(e, ins, 3)
        rep = rep_of(integer_kind(e, ins))
        check_mods(e, ins)
        _, a, b = ins.operands
        e.dst(ins.operands[0], f"{e.src(a, rep)}{sign}{e.src(b, rep)}", rep, e.leaf(a, b))

    return emit


def not_(e: BlockEmitter, ins: Instr) -> None:
    """Bitwise or logical not."""
    count(e, ins, 2)
    rep = rep_of(integer_kind(e, ins))
    e.dst(ins.operands[0], f"~{e.src(ins.operands[1], rep)}", rep, e.leaf(ins.operands[1]))


def call(function: str, result: str = "", *, sources: int = 1, extra: str = "") -> Emit:
    """A helper over sources of the instruction's type; `result` is the type that it gives."""

    def emit(e: BlockEmitter, ins: Instr) -> None:
        count(e, ins, sources + 1)
        rep = rep_of(integer_kind(e, ins))
        args = ",".join(e.src(op, rep) for op in ins.operands[1:])
        e.dst(
            ins.operands[0], f"{function}({args}{extra})", result or rep, e.leaf(*ins.operands[1:])
        )

    return emit


OPS: dict[str, Emit] = {
    "and": logic("&"),
    "or": logic("|"),
    "xor": logic("^"),
    "not": not_,
    "shl": shift,
    "shr": shift,
    "shf": shf,
    "popc": call("popc", "i32"),
    "clz": call("clz", "i32"),
    "brev": call("brev"),
    "bfind": bfind,
    "bfe": bfe,
    "bfi": bfi,
    "lop3": lop3,
    "prmt": prmt,
    "dp4a": dot,
    "dp2a": dot,
}
