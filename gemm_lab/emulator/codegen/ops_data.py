"""Moves, conversions, comparisons, selections."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.ops_arith import check_mods, count, kind_of
from gemm_lab.emulator.codegen.reps import REP_BYTES, rep_of
from gemm_lab.emulator.ptx.ir import Instr, Operand, Pair, Reg, Vec
from gemm_lab.emulator.ptx.types import TYPE_BYTES

__all__ = ["OPS"]

INTEGERS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
FLOAT_KINDS = frozenset({"f16", "bf16", "f32", "f64", "tf32", "f16x2", "bf16x2"})
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
           "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
UNORDERED = {"equ": "~(({0}<{1})|({0}>{1}))", "neu": "{0}!={1}", "ltu": "~({0}>={1})",
             "leu": "~({0}>{1})", "gtu": "~({0}<={1})", "geu": "~({0}<{1})",
             "num": "({0}=={0})&({1}=={1})", "nan": "({0}!={0})|({1}!={1})"}  # fmt: skip


def mov(e: BlockEmitter, ins: Instr) -> None:
    """Copies, addresses, special registers, packing and unpacking."""
    count(e, ins, 2)
    target, source = ins.operands
    kind = kind_of(e, ins)
    if isinstance(source, Vec):
        pack(e, target, source, TYPE_BYTES[kind])
        return
    if isinstance(target, Vec):
        unpack(e, target, source, TYPE_BYTES[kind])
        return
    if not isinstance(target, Reg):
        if target is None:
            return
        raise e.fail("its destination")
    rep = e.rep(target)
    if rep != "pred" and REP_BYTES[rep] != TYPE_BYTES[kind]:
        raise e.fail("register and type differ in size")
    text = e.src(source, rep)
    leaves = e.leaf(source)
    # Both names now mean one array, so neither may be changed in place.
    if isinstance(source, Reg) and not source.special:
        e.owned.discard(e.number(source))
        if e.number(source) in e.program.accumulators:
            # wgmma changes its accumulators in place.
            text = f"{text}.copy()"
    e.dst(target, text, rep, leaves)


def pack(e: BlockEmitter, target: Operand | None, source: Vec, size: int) -> None:
    """{a, b, ...} into one register, the first in the low bits."""
    part = size // max(len(source.items), 1)
    rep = INTEGERS.get(part)
    whole = INTEGERS.get(size)
    if rep is None or whole is None or part * len(source.items) != size:
        raise e.fail("vector and type differ in size")
    unsigned = rep.replace("i", "u")
    terms = []
    for at, item in enumerate(source.items):
        text = f"{e.src(item, unsigned)}.astype(D_{whole})"
        terms.append(f"({text}<<{8 * part * at})" if at else text)
    e.dst(target, "|".join(terms), whole, e.leaf(*source.items))


def unpack(e: BlockEmitter, target: Vec, source: Operand | None, size: int) -> None:
    """One register into parts."""
    part = size // max(len(target.items), 1)
    rep = INTEGERS.get(part)
    whole = INTEGERS.get(size)
    if rep is None or whole is None or part * len(target.items) != size:
        raise e.fail("vector and type differ in size")
    name = e.fresh("u")
    e.line(f"{name}={e.src(source, whole)}")
    leaves = e.leaf(source)
    for at, item in enumerate(target.items):
        text = f"({name}>>{8 * part * at})" if at else name
        e.dst(item, f"{text}.astype(D_{rep})", rep, leaves)


def comparison(e: BlockEmitter, ins: Instr, a: Operand | None, b: Operand | None) -> str:
    """The boolean of setp or set."""
    kind = kind_of(e, ins)
    how = ins.mods[0]
    if kind in ("f16x2", "bf16x2"):
        raise e.fail("packed comparisons")
    if kind in ("f16", "bf16"):
        x, y = (f"half_wide({e.src(op, 'i16')},{kind!r})" for op in (a, b))
    else:
        rep = rep_of(kind)
        if how in ("lo", "ls", "hi", "hs"):
            rep = rep.replace("i", "u")
        x, y = e.src(a, rep), e.src(b, rep)
    if how in UNORDERED and kind in FLOAT_KINDS:
        return UNORDERED[how].format(x, y)
    if how == "ne" and kind in FLOAT_KINDS:
        return f"({x}<{y})|({x}>{y})"
    if how not in COMPARE:
        raise e.fail(f".{how}")
    return f"{x}{COMPARE[how]}{y}"


def setp(e: BlockEmitter, ins: Instr) -> None:
    """Comparison into one predicate or two, with an optional boolean operation."""
    if len(ins.operands) not in (3, 4) or not ins.mods:
        raise e.fail("number of operands")
    allowed = set(COMPARE) | set(UNORDERED) | {"and", "or", "xor", "ftz"}
    words = check_mods(e, ins, *allowed)
    target, a, b = ins.operands[:3]
    text = comparison(e, ins, a, b)
    leaves = e.leaf(*ins.operands[1:])
    sign = next((s for w, s in (("and", "&"), ("or", "|"), ("xor", "^")) if w in words), "")
    extra = ""
    if sign:
        if len(ins.operands) != 4:
            raise e.fail("number of operands")
        extra = f"{sign}{e.src(ins.operands[3], 'pred')}"
    if isinstance(target, Pair):
        name, other = e.fresh("u"), e.fresh("u")
        e.line(f"{name}=({text})")
        e.line(f"{other}=(~{name}){extra}")
        e.line(f"{name}={name}{extra}")
        e.dst(target.first, name, "pred", leaves)
        e.dst(target.second, other, "pred", leaves)
        return
    e.dst(target, f"({text}){extra}" if extra else text, "pred", leaves)


def set_(e: BlockEmitter, ins: Instr) -> None:
    """Comparison into a register: all ones, or 1.0."""
    kinds = [mod for mod in ins.mods if mod in TYPE_BYTES]
    if len(kinds) != 2 or len(ins.operands) != 3:
        raise e.fail()
    text = f"({comparison(e, ins, ins.operands[1], ins.operands[2])})"
    leaves = e.leaf(*ins.operands[1:])
    if kinds[0] == "f32":
        e.dst(ins.operands[0], f"{text}.astype(D_f32)", "f32", leaves)
    elif kinds[0] in ("u32", "s32"):
        e.dst(ins.operands[0], f"-({text}.astype(D_i32))", "i32", leaves)
    else:
        raise e.fail()


def selp(e: BlockEmitter, ins: Instr) -> None:
    """a where p holds, else b."""
    count(e, ins, 4)
    target, a, b, p = ins.operands
    if not isinstance(target, Reg):
        raise e.fail("its destination")
    rep = (
        e.rep(target)
        if REP_BYTES[e.rep(target)] == TYPE_BYTES[kind_of(e, ins)]
        else rep_of(kind_of(e, ins))
    )
    text = f"where({e.src(p, 'pred')},{e.src(a, rep)},{e.src(b, rep)})"
    e.dst(target, text, rep, e.leaf(a, b, p), owned=True)


def slct(e: BlockEmitter, ins: Instr) -> None:
    """a where c >= 0, else b."""
    count(e, ins, 4)
    kinds = [mod for mod in ins.mods if mod in TYPE_BYTES]
    if len(kinds) != 2:
        raise e.fail()
    rep = rep_of(kinds[0])
    target, a, b, c = ins.operands
    text = f"where({e.src(c, rep_of(kinds[1]))}>=0,{e.src(a, rep)},{e.src(b, rep)})"
    e.dst(target, text, rep, e.leaf(a, b, c))


def define(e: BlockEmitter, ins: Instr) -> None:
    """Marks a register as written."""
    e.dst(ins.operands[0], e.array(True, "pred"), "pred", frozenset())


def use(e: BlockEmitter, ins: Instr) -> None:
    """Faults where a register was not written."""
    good = e.src(ins.operands[0], "pred")
    e.line(f"X.check_set({good},{e.guard_mask()},{e.constant(ins.callee)},{e.site()})")


OPS: dict[str, Emit] = {
    "mov": mov,
    "setp": setp,
    "set": set_,
    "selp": selp,
    "slct": slct,
    "$def": define,
    "$use": use,
}
