"""How a register is kept: which NumPy type stands for a PTX type, register by register."""

from __future__ import annotations

from gemm_lab.emulator.ptx.cfg import Program
from gemm_lab.emulator.ptx.ir import Instr
from gemm_lab.emulator.ptx.opset import registers_of, split_operands
from gemm_lab.emulator.ptx.types import TYPE_BYTES

__all__ = ["REP_BYTES", "choose_reps", "rep_of"]

REP_OF: dict[str, str] = {
    "pred": "pred",
    "b8": "i8", "s8": "i8", "u8": "u8",
    "b16": "i16", "s16": "i16", "u16": "u16", "f16": "f16", "bf16": "i16",
    "b32": "i32", "s32": "i32", "u32": "u32", "f32": "f32", "tf32": "f32",
    "f16x2": "i32", "bf16x2": "i32", "u16x2": "i32", "s16x2": "i32",
    "b64": "i64", "s64": "i64", "u64": "u64", "f64": "f64",
}  # fmt: skip
REP_BYTES = {rep: TYPE_BYTES[kind] for kind, rep in REP_OF.items()}
SIGNED = {"u8": "i8", "u16": "i16", "f16": "i16", "u32": "i32", "u64": "i64"}
WEIGHTLESS = frozenset({"mov", "selp", "prmt", "shfl", "$def", "$use"})


def rep_of(kind: str) -> str:
    """The NumPy type that an instruction of a PTX type computes in; KeyError for none."""
    return REP_OF[kind]


def choose_reps(program: Program) -> list[str]:
    """A type for each register: declared floats and what untyped 32 and 64-bit ones hold most."""
    votes = [0] * len(program.types)
    numbers = program.registers

    def vote(ins: Instr) -> None:
        kinds = [mod for mod in ins.mods if mod in TYPE_BYTES]
        if not kinds or (ins.name in WEIGHTLESS and kinds[-1] not in ("f32", "f64")):
            return
        dsts, srcs = split_operands(ins)
        if ins.name in ("mma", "wmma", "wgmma"):
            # Only accumulators are what the types at both ends say.
            srcs = srcs[-1:] if "mma" in (ins.name, *ins.mods) and ins.name != "wgmma" else ()
        for operands, kind in ((dsts, kinds[0]), (srcs, kinds[-1])):
            weight = 1 if kind in ("f32", "f64") else -1 if kind[0] in "us" else 0
            if ins.name in ("setp", "selp") and operands is dsts and ins.name == "setp":
                continue
            for operand in operands:
                for name in registers_of(operand):
                    votes[numbers[name]] += weight

    for block in program.blocks:
        for ins in block.instrs:
            vote(ins)
    reps = []
    for kind, score in zip(program.types, votes, strict=True):
        rep = rep_of(kind)
        rep = SIGNED.get(rep, rep)
        if kind == "b32" and score > 0:
            rep = "f32"
        elif kind == "b64" and score > 0:
            rep = "f64"
        reps.append(rep)
    return reps
