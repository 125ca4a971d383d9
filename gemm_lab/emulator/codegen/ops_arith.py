"""Integer and floating-point arithmetic."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.reps import rep_of
from gemm_lab.emulator.ptx.ir import Imm, Instr, Reg
from gemm_lab.emulator.ptx.types import TYPE_BYTES

__all__ = [
    "FLOATS",
    "OPS",
    "PACKED",
    "check_mods",
    "count",
    "finish_float",
    "integer_kind",
    "kind_of",
    "packed",
]

ROUND = frozenset({"rn", "rz", "rm", "rp"})
FLOATS = frozenset({"f32", "f64", "f16", "bf16", "f16x2", "bf16x2"})
PACKED = {"f16x2": "h2", "bf16x2": "b2", "f16": "h1", "bf16": "b1"}
WIDER = {"i16": "i32", "u16": "u32", "i32": "i64", "u32": "u64"}


def kind_of(e: BlockEmitter, ins: Instr) -> str:
    """The instruction's type."""
    kind = ins.mods[-1] if ins.mods else ""
    if kind not in TYPE_BYTES:
        raise e.fail("no type")
    return kind


def integer_kind(e: BlockEmitter, ins: Instr) -> str:
    """The instruction's type, which must be bits or integer."""
    kind = kind_of(e, ins)
    if kind in FLOATS or kind == "tf32":
        raise e.fail("a float type")
    return kind


def check_mods(e: BlockEmitter, ins: Instr, *allowed: str) -> set[str]:
    """The modifiers besides the types; an error for one that is not allowed."""
    words = {mod for mod in ins.mods if mod not in TYPE_BYTES}
    extra = words - set(allowed)
    if extra:
        raise e.fail(f".{min(extra)}")
    return words


def count(e: BlockEmitter, ins: Instr, number: int) -> None:
    if len(ins.operands) != number:
        raise e.fail(f"{len(ins.operands)} operands instead of {number}")


def finish_float(e: BlockEmitter, ins: Instr, text: str, words: set[str], kind: str) -> str:
    """Directed rounding is refused where it would matter; .sat and .ftz are applied."""
    if "sat" in words:
        text = f"saturate({text})"
    if "ftz" in words and kind == "f32":
        text = f"ftz({text})"
    return text


def binary(sign: str) -> Emit:
    """add, sub, mul by an operator."""

    def emit(e: BlockEmitter, ins: Instr) -> None:
        count(e, ins, 3)
        kind = kind_of(e, ins)
        words = check_mods(e, ins, "rn", "rz", "rm", "rp", "ftz", "sat", "lo", "hi", "wide", "cc")
        target, a, b = ins.operands
        leaves = e.leaf(a, b)
        if "cc" in words:
            raise e.fail(".cc")
        if kind in PACKED:
            packed(e, ins, {"+": "add", "-": "sub", "*": "mul"}[sign], kind, words)
            return
        rep = rep_of(kind)
        if kind in FLOATS:
            x, y = e.src(a, rep), e.src(b, rep)
            directed = words & {"rz", "rm", "rp"}
            if directed:
                text = f"directed({x},{y},{sign!r},{directed.pop()!r})"
            else:
                if "ftz" in words and kind == "f32":
                    x, y = f"ftz({x})", f"ftz({y})"
                text = f"{x}{sign}{y}"
            e.dst(target, finish_float(e, ins, text, words, kind), rep, leaves, owned=True)
            return
        if sign == "*":
            multiply(e, ins, rep, words)
            return
        if "sat" in words:
            wide = f"{e.src(a, 'i32')}.astype(D_i64){sign}{e.src(b, 'i32')}"
            e.dst(target, f"saturate_int({wide},'i32')", "i32", leaves)
            return
        rep = rep.replace("u", "i")
        e.dst(target, f"{e.src(a, rep)}{sign}{e.src(b, rep)}", rep, leaves)

    return emit


def product(e: BlockEmitter, ins: Instr, rep: str, words: set[str]) -> tuple[str, str]:
    """(expression, type) of the first two sources' product, for mul and mad."""
    a, b = ins.operands[1], ins.operands[2]
    if "wide" in words:
        wide = WIDER.get(rep)
        if wide is None:
            raise e.fail(".wide")
        return f"{e.src(a, rep)}.astype(D_{wide})*{e.src(b, rep)}", wide
    if "hi" in words:
        return f"mul_hi({e.src(a, rep)},{e.src(b, rep)})", rep
    if "lo" not in words:
        raise e.fail("neither .lo, .hi nor .wide")
    signed = rep.replace("u", "i")
    return f"{e.src(a, signed)}*{e.src(b, signed)}", signed


def multiply(e: BlockEmitter, ins: Instr, rep: str, words: set[str]) -> None:
    text, kind = product(e, ins, rep, words)
    e.dst(ins.operands[0], text, kind, e.leaf(*ins.operands[1:]))


def multiply24(e: BlockEmitter, ins: Instr) -> None:
    """mul24 and mad24, low half."""
    words = check_mods(e, ins, "lo", "hi")
    if "hi" in words or kind_of(e, ins) not in ("s32", "u32"):
        raise e.fail()
    signed = kind_of(e, ins) == "s32"
    parts = []
    for op in ins.operands[1:3]:
        text = e.src(op, "i32")
        parts.append(f"(({text}<<8)>>8)" if signed else f"({text}&0xFFFFFF)")
    text = "*".join(parts)
    if ins.name == "mad24":
        text += f"+{e.src(ins.operands[3], 'i32')}"
    e.dst(ins.operands[0], text, "i32", e.leaf(*ins.operands[1:]))


def mad(e: BlockEmitter, ins: Instr) -> None:
    """mad on integers; on floats it is fma."""
    count(e, ins, 4)
    kind = kind_of(e, ins)
    if kind in FLOATS:
        fma(e, ins)
        return
    words = check_mods(e, ins, "lo", "hi", "wide", "sat")
    if "sat" in words:
        raise e.fail(".sat")
    text, rep = product(e, ins, rep_of(kind), words)
    leaves = e.leaf(*ins.operands[1:])
    e.dst(ins.operands[0], f"{text}+{e.src(ins.operands[3], rep)}", rep, leaves)


def fma(e: BlockEmitter, ins: Instr) -> None:
    """a * b + c. Plain rounding works in place where the accumulator's array is free to change."""
    count(e, ins, 4)
    kind = kind_of(e, ins)
    words = check_mods(e, ins, "rn", "rz", "rm", "rp", "ftz", "sat", "relu")
    target, a, b, c = ins.operands
    if kind in PACKED:
        packed(e, ins, "fma", kind, words)
        return
    if kind not in ("f32", "f64"):
        raise e.fail()
    x, y, z = (e.src(op, kind) for op in (a, b, c))
    leaves = e.leaf(a, b, c)
    if e.exact_fma or words & {"rz", "rm", "rp"}:
        mode = next(iter(words & {"rz", "rm", "rp"}), "rn")
        call = (
            f"exact_fma{kind[1:]}({x},{y},{z})"
            if mode == "rn"
            else (f"directed_fma({x},{y},{z},{mode!r})")
        )
        e.dst(target, finish_float(e, ins, call, words, kind), kind, leaves, owned=True)
        return
    if words & {"sat", "ftz", "relu"} or e.guard is not None:
        if "relu" in words:
            raise e.fail(".relu")
        e.dst(target, finish_float(e, ins, f"{x}*{y}+{z}", words, kind), kind, leaves, owned=True)
        return
    pair = e.leaf(a, b)
    if isinstance(a, Imm) and isinstance(b, Imm):
        e.dst(target, f"{x}*{y}+{z}", kind, leaves, owned=True)
        return
    key = (pair, kind)
    scratch = e.scratch.get(key)
    if scratch is None:
        scratch = e.scratch[key] = e.fresh("w")
        e.line(f"{scratch}={x}*{y}")
    else:
        e.line(f"mul({x},{y},{scratch})")
    if isinstance(c, Reg) and isinstance(target, Reg) and not c.special:
        number = e.number(c)
        free = e.dying(number) or e.number(target) == number
        if (
            free
            and number in e.owned
            and pair <= e.leaves[number]
            and e.rep(c) == e.rep(target) == kind
        ):
            e.line(f"add({z},{scratch},{z})")
            e.adopt(target, c)
            return
    e.dst(target, f"{scratch}+{z}", kind, leaves, owned=True)


def packed(e: BlockEmitter, ins: Instr, op: str, kind: str, words: set[str]) -> None:
    """Half-precision arithmetic, one or two to a register."""
    if words & {"rz", "rm", "rp"}:
        raise e.fail("directed rounding of halves")
    rep = "i32" if kind.endswith("x2") else "i16"
    args = ",".join(e.src(operand, rep) for operand in ins.operands[1:])
    text = f"half_op({op!r},{PACKED[kind]!r},({args},))"
    if "sat" in words:
        text = f"half_op('sat',{PACKED[kind]!r},({text},))"
    if "relu" in words:
        text = f"half_op('relu',{PACKED[kind]!r},({text},))"
    e.dst(ins.operands[0], text, rep, e.leaf(*ins.operands[1:]))


def div(e: BlockEmitter, ins: Instr) -> None:
    """div: truncating on integers; .full and .approx are rounded as .rn."""
    count(e, ins, 3)
    kind = kind_of(e, ins)
    words = check_mods(e, ins, "rn", "rz", "rm", "rp", "ftz", "full", "approx")
    target, a, b = ins.operands
    rep = rep_of(kind)
    x, y = e.src(a, rep), e.src(b, rep)
    leaves = e.leaf(a, b)
    if kind in ("f32", "f64"):
        directed = words & {"rz", "rm", "rp"}
        text = f"directed({x},{y},'/',{directed.pop()!r})" if directed else f"{x}/{y}"
        e.dst(target, finish_float(e, ins, text, words, kind), rep, leaves, owned=True)
    elif kind in FLOATS:
        raise e.fail()
    else:
        e.dst(target, f"int_div({x},{y})", rep, leaves)


def rem(e: BlockEmitter, ins: Instr) -> None:
    """Integer remainder."""
    count(e, ins, 3)
    rep = rep_of(integer_kind(e, ins))
    _, a, b = ins.operands
    text = f"int_rem({e.src(a, rep)},{e.src(b, rep)})"
    e.dst(ins.operands[0], text, rep, e.leaf(a, b))


def sad(e: BlockEmitter, ins: Instr) -> None:
    """|a - b| + c."""
    count(e, ins, 4)
    rep = rep_of(integer_kind(e, ins))
    a, b, c = (e.src(op, rep) for op in ins.operands[1:])
    e.dst(ins.operands[0], f"np.maximum({a},{b})-np.minimum({a},{b})+{c}", rep)


OPS: dict[str, Emit] = {
    "add": binary("+"),
    "sub": binary("-"),
    "mul": binary("*"),
    "mad": mad,
    "mul24": multiply24,
    "mad24": multiply24,
    "fma": fma,
    "div": div,
    "rem": rem,
    "sad": sad,
}
