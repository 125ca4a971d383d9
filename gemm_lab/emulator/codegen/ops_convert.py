"""cvt: conversions between number types. PTX ISA, "cvt"."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.ops_arith import check_mods
from gemm_lab.emulator.codegen.reps import REP_BYTES, rep_of
from gemm_lab.emulator.ptx.ir import Instr
from gemm_lab.emulator.ptx.types import TYPE_BYTES

__all__ = ["OPS"]

ROUND = ("rn", "rz", "rm", "rp", "rna")
INT_ROUND = ("rni", "rzi", "rmi", "rpi")
FLOAT_KINDS = frozenset({"f16", "bf16", "f32", "f64", "tf32"})
PLAIN_SOURCES = frozenset({"s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64"})


def cvt(e: BlockEmitter, ins: Instr) -> None:
    """Between two types; the packed forms have two sources or two halves."""
    kinds = [mod for mod in ins.mods if mod in TYPE_BYTES or mod.startswith(("e4m3", "e5m2"))]
    if len(kinds) != 2:
        raise e.fail("two types are needed")
    target, origin = kinds
    words = check_mods(e, ins, *ROUND, *INT_ROUND, "sat", "ftz", "satfinite", "relu", *kinds)
    words -= set(kinds)
    if target.startswith("e") or origin.startswith("e"):
        fp8(e, ins, target, origin, words)
    elif target in ("f16x2", "bf16x2") and origin == "f32" and len(ins.operands) == 3:
        high, low = (e.src(op, "f32") for op in ins.operands[1:])
        mode = "rz" if "rz" in words else "rn"
        text = f"cvt_pack({target!r},{mode!r},{'relu' in words},{high},{low})"
        e.dst(ins.operands[0], text, "i32", e.leaf(*ins.operands[1:]))
    elif len(ins.operands) != 2 or "x2" in target or "x2" in origin:
        raise e.fail()
    elif target in FLOAT_KINDS or origin in FLOAT_KINDS:
        floats(e, ins, target, origin, words)
    else:
        integers(e, ins, rep_of(target), rep_of(origin), words)


def fp8(e: BlockEmitter, ins: Instr, target: str, origin: str, words: set[str]) -> None:
    """To and from pairs of 8-bit floats."""
    rep = "i16" if origin.startswith("e") else "f32" if origin == "f32" else "i32"
    sources = ",".join(e.src(op, rep) for op in ins.operands[1:])
    if len(ins.operands) != (3 if origin == "f32" else 2):
        raise e.fail("number of operands")
    text = f"cvt_fp8({target!r},{origin!r},{'relu' in words},{sources})"
    result = "i16" if target.startswith("e") else "i32"
    e.dst(ins.operands[0], text, result, e.leaf(*ins.operands[1:]))


def floats(e: BlockEmitter, ins: Instr, target: str, origin: str, words: set[str]) -> None:
    """Where source or result is a float."""
    if "satfinite" in words and target != "tf32":
        raise e.fail(".satfinite")
    x = e.src(ins.operands[1], rep_of(origin))
    leaves = e.leaf(ins.operands[1])
    # NumPy rounds these to nearest even, as .rn does.
    if not words - {"rn"} and origin in PLAIN_SOURCES and target in ("f32", "f64"):
        e.dst(ins.operands[0], f"{x}.astype(D_{target})", target, leaves)
        return
    mode = next((w for w in (*ROUND, *INT_ROUND) if w in words), "")
    flags = f"{'sat' in words},{'ftz' in words},{'relu' in words}"
    text = f"cvt_float({x},{target!r},{origin!r},{mode!r},{flags})"
    e.dst(ins.operands[0], text, rep_of(target), leaves)


def integers(e: BlockEmitter, ins: Instr, to: str, of: str, words: set[str]) -> None:
    """Truncation, extension, saturation."""
    text = e.src(ins.operands[1], of)
    if "sat" in words:
        text = f"saturate_int({text},{to!r})"
    elif to != of:
        how = "view" if REP_BYTES[to] == REP_BYTES[of] else "astype"
        text = f"{text}.{how}(D_{to})"
    e.dst(ins.operands[0], text, to, e.leaf(ins.operands[1]))


OPS: dict[str, Emit] = {"cvt": cvt}
