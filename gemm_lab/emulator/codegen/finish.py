"""The last instruction of a block: where its lanes go."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter
from gemm_lab.emulator.codegen.ops_hopper import cluster_wait, try_wait
from gemm_lab.emulator.ptx.cfg import EXIT
from gemm_lab.emulator.ptx.ir import Instr, Reg
from gemm_lab.emulator.ptx.opset import is_barrier

__all__ = ["finish"]

BRA_WORDS = frozenset({"uni", "$around"})
BAR_WORDS = frozenset({"sync", "red", "cta", "aligned", "popc", "and", "or", "u32", "pred"})


def finish(e: BlockEmitter) -> None:
    """Spill and return; terminators that need their operands read them first."""
    last = e.block.last
    if last is None:
        e.spill()
        e.line(f"return {e.block.next}")
        return
    if last.name == "bra":
        branch(e, last)
    elif last.name == "brx":
        index = e.src(last.operands[0], "i32")
        targets = e.constant(tuple(e.block.targets))
        e.spill()
        e.line(f"return X.brx({index},{e.mask},{targets},{e.site(last)})")
    elif last.name in ("ret", "exit"):
        e.line(f"return {EXIT}")
    elif last.name == "trap":
        e.line(f"X.trap({e.mask},{e.site(last)})")
        e.line(f"return {EXIT}")
    elif is_barrier(last):
        barrier(e, last)
    elif last.name == "mbarrier":
        try_wait(e, last)
    elif last.name == "barrier":
        cluster_wait(e, last)
    else:
        raise e.fail()


def branch(e: BlockEmitter, last: Instr) -> None:
    """bra, guarded or not."""
    if set(last.mods) - BRA_WORDS:
        raise e.fail()
    target = e.block.targets[0]
    if last.guard is None:
        e.spill()
        e.line(f"return {target}")
        return
    p = f"s{e.slot_of(Reg(last.guard.name))}"
    yes, no = target, e.block.next
    if last.guard.negated:
        yes, no = no, yes
    e.spill()
    e.line(f"if {p}.size==1: return {yes} if {p}.item() else {no}")
    e.line(f"return X.br({p},{e.mask},{yes},{no})")


def barrier(e: BlockEmitter, last: Instr) -> None:
    """bar.sync, barrier.sync and bar.red."""
    words = set(last.mods)
    if words - BAR_WORDS or ("sync" not in words and "red" not in words):
        raise e.fail()
    ops = list(last.operands)
    site = e.site(last)
    after = e.block.next
    if "red" in words:
        target = ops.pop(0)
        predicate = e.src(ops.pop(), "pred")
        if not isinstance(target, Reg) or not 1 <= len(ops) <= 2:
            raise e.fail()
        kind = next(w for w in ("popc", "and", "or") if w in words)
        number = e.src(ops[0], "i32")
        amount = e.src(ops[1], "i32") if len(ops) == 2 else "None"
        e.spill()
        register = e.number(target)
        e.line(
            f"return X.bar_red({number},{amount},{e.mask},{after},{site},"
            f"{kind!r},{register},{predicate},R)"
        )
        return
    if not 1 <= len(ops) <= 2:
        raise e.fail("number of operands")
    number = e.src(ops[0], "i32")
    amount = e.src(ops[1], "i32") if len(ops) == 2 else "None"
    e.spill()
    e.line(f"return X.bar({number},{amount},{e.mask},{after},{site})")
