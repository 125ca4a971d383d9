"""wgmma and setmaxnreg."""

from __future__ import annotations

import re

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.ptx.ir import Imm, Instr, Operand, Reg, Vec
from gemm_lab.emulator.tensor.fragments import PER_REGISTER
from gemm_lab.emulator.tensor.wgmma import WgmmaForm

__all__ = ["OPS"]

SHAPE = re.compile(r"m64n(\d+)k(\d+)$")


def wgmma(e: BlockEmitter, ins: Instr) -> None:
    """wgmma.fence, commit_group, wait_group, mma_async."""
    words = set(ins.mods)
    e.wgmma_seen.clear()
    if ins.guard is not None:
        raise e.fail("a guard")
    if "fence" in words:
        e.line(f"X.wgmma_fence({e.mask},{e.site()})")
    elif "commit_group" in words:
        e.line(f"X.wgmma_commit({e.mask},{e.site()})")
    elif "wait_group" in words:
        count = ins.operands[0]
        if not isinstance(count, Imm):
            raise e.fail()
        e.line(f"X.wgmma_wait({int(count.value)},{e.mask},{e.site()})")
    elif "mma_async" in words and "sp" not in words:
        multiply(e, ins)
    else:
        raise e.fail()


def flag(e: BlockEmitter, ops: list[Operand | None], at: int, default: int) -> int:
    if at >= len(ops):
        return default
    value = ops[at]
    if not isinstance(value, Imm) or not isinstance(value.value, int):
        raise e.fail("its immediates")
    return value.value


def multiply(e: BlockEmitter, ins: Instr) -> None:
    """wgmma.mma_async"""
    shape = next((SHAPE.match(mod) for mod in ins.mods if SHAPE.match(mod)), None)
    kinds = [mod for mod in ins.mods if mod in PER_REGISTER or mod in ("f32", "s32")]
    ops = list(ins.operands)
    d, a = ops[0], ops[1]
    if shape is None or len(kinds) != 3 or not isinstance(d, Vec) or len(ops) < 4:
        raise e.fail("its shape or types")
    columns, depth = int(shape[1]), int(shape[2])
    if kinds[1] not in PER_REGISTER or depth != 8 * PER_REGISTER[kinds[1]]:
        raise e.fail("its depth")
    if len(d.items) != columns // (4 if kinds[0] == "f16" else 2) or columns % 8:
        raise e.fail("its number of registers")
    registers_a = isinstance(a, Vec)
    numbers = tuple(e.number(r) for r in d.items if isinstance(r, Reg))
    form = WgmmaForm(
        columns=columns,
        kind_a=kinds[1],
        kind_b=kinds[2],
        kind_d=kinds[0],
        negate_a=flag(e, ops, 4, 1) < 0,
        negate_b=flag(e, ops, 5, 1) < 0,
        transpose_a=not registers_a and flag(e, ops, 6, 0) == 1,
        transpose_b=flag(e, ops, 6 if registers_a else 7, 0) == 1,
        registers=numbers,
        fragments=tuple(e.number(r) for r in a.items if isinstance(r, Reg))
        if isinstance(a, Vec)
        else (),
    )
    rep = "f32" if kinds[0] == "f32" else "i32"
    old = ",".join(e.src(item, rep) for item in d.items)
    if isinstance(a, Vec):
        left = "[" + ",".join(e.src(item, "i32") for item in a.items) + "]"
    else:
        left = e.src(a, "i64")
    scale = ops[3]
    add = e.src(scale, "pred") if isinstance(scale, Reg) else e.array(flag(e, ops, 3, 1), "pred")
    name = e.fresh("u")
    e.line(
        f"{name}=X.wgmma({e.constant(form)},[{old}],{left},{e.src(ops[2], 'i64')},{add},"
        f"{e.mask},{e.site()})"
    )
    for at, item in enumerate(d.items):
        e.dst(item, f"{name}[{at}]", rep)


def setmaxnreg(e: BlockEmitter, ins: Instr) -> None:
    """setmaxnreg.inc and .dec"""
    count = ins.operands[0]
    if not isinstance(count, Imm) or not isinstance(count.value, int):
        raise e.fail()
    e.line(f"X.set_registers({count.value},{e.mask},{e.site()})")


OPS: dict[str, Emit] = {"wgmma": wgmma, "setmaxnreg": setmaxnreg}
