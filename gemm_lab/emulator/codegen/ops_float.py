"""Minimum and maximum, sign operations, and the functions that hardware approximates.

ex2, lg2, sin, cos, tanh, rcp, rsqrt, sqrt.approx and div.approx come from NumPy, correctly rounded
or within an ulp; hardware may differ by what the PTX ISA allows each (rcp and sqrt 1 ulp, ex2 and
lg2 about 2^-22, sin and cos 2^-20.5 absolute, tanh 2^-11).
"""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.ops_arith import (
    FLOATS,
    PACKED,
    check_mods,
    count,
    finish_float,
    kind_of,
    packed,
)
from gemm_lab.emulator.codegen.reps import rep_of
from gemm_lab.emulator.ptx.ir import Instr

__all__ = ["OPS"]


def unary(table: dict[str, str]) -> Emit:
    """One source; the table gives the expression by kind of type: int, float."""

    def emit(e: BlockEmitter, ins: Instr) -> None:
        count(e, ins, 2)
        kind = kind_of(e, ins)
        words = check_mods(e, ins, "ftz", "approx", "rn", "rz", "rm", "rp", "full", "sat")
        if kind in PACKED:
            packed(e, ins, ins.name, kind, set())
            return
        rep = rep_of(kind)
        group = "float" if kind in FLOATS else "int"
        if group not in table:
            raise e.fail()
        text = table[group].format(e.src(ins.operands[1], rep))
        text = finish_float(e, ins, text, words, kind)
        e.dst(ins.operands[0], text, rep, e.leaf(ins.operands[1]))

    return emit


def min_max(name: str) -> Emit:
    """min and max; floats prefer the operand that is no NaN unless .NaN is given."""

    def emit(e: BlockEmitter, ins: Instr) -> None:
        kind = kind_of(e, ins)
        words = check_mods(e, ins, "ftz", "NaN", "xorsign", "abs", "relu")
        if words & {"xorsign", "abs", "relu"}:
            raise e.fail()
        if kind in PACKED:
            packed(e, ins, name + ("nan" if "NaN" in words else ""), kind, set())
            return
        rep = rep_of(kind)
        function = "np.minimum" if name == "min" else "np.maximum"
        if kind in FLOATS:
            function = function if "NaN" in words else f"np.f{name}"
        text = e.src(ins.operands[1], rep)
        for op in ins.operands[2:]:
            text = f"{function}({text},{e.src(op, rep)})"
        e.dst(
            ins.operands[0], finish_float(e, ins, text, words, kind), rep, e.leaf(*ins.operands[1:])
        )

    return emit


def copysign(e: BlockEmitter, ins: Instr) -> None:
    """The magnitude of b with the sign of a."""
    count(e, ins, 3)
    rep = rep_of(kind_of(e, ins))
    a, b = (e.src(op, rep) for op in ins.operands[1:])
    e.dst(ins.operands[0], f"np.copysign({b},{a})", rep)


def testp(e: BlockEmitter, ins: Instr) -> None:
    """Tests of a float's class."""
    rep = rep_of(kind_of(e, ins))
    test = {
        "finite": "np.isfinite({})",
        "infinite": "np.isinf({})",
        "number": "~np.isnan({})",
        "notanumber": "np.isnan({})",
    }.get(ins.mods[0])
    if test is None:
        raise e.fail()
    e.dst(ins.operands[0], test.format(e.src(ins.operands[1], rep)), "pred")


OPS: dict[str, Emit] = {
    "min": min_max("min"),
    "max": min_max("max"),
    "abs": unary({"int": "abs({})", "float": "abs({})"}),
    "neg": unary({"int": "-{}", "float": "-{}"}),
    "sqrt": unary({"float": "np.sqrt({})"}),
    "rsqrt": unary({"float": "reciprocal(np.sqrt({}))"}),
    "rcp": unary({"float": "reciprocal({})"}),
    "ex2": unary({"float": "np.exp2({})"}),
    "lg2": unary({"float": "np.log2({})"}),
    "sin": unary({"float": "np.sin({})"}),
    "cos": unary({"float": "np.cos({})"}),
    "tanh": unary({"float": "np.tanh({})"}),
    "cnot": unary({"int": "cnot({})"}),
    "copysign": copysign,
    "testp": testp,
}
