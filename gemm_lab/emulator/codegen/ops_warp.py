"""Operations of a warp and calls to the host."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.ops_arith import check_mods, count, kind_of
from gemm_lab.emulator.codegen.ops_hopper import cluster_arrive
from gemm_lab.emulator.codegen.reps import rep_of
from gemm_lab.emulator.ptx.ir import Instr, Operand, Pair, Sym

__all__ = ["OPS"]

FULL = -1


def both(target: Operand | None) -> tuple[Operand | None, Operand | None]:
    """(d, p) of d|p."""
    return (target.first, target.second) if isinstance(target, Pair) else (target, None)


def need(e: BlockEmitter, members: str) -> None:
    """Wait until all member lanes are here; when all are, only the mask can be wrong."""
    if e.masked:
        e.line(f"z=X.need(m,{members},{e.site()})")
        e.line("if z is not None: return z")
    else:
        e.line(f"X.need_all({members},{e.site()})")


def shfl(e: BlockEmitter, ins: Instr) -> None:
    """shfl.sync"""
    words = check_mods(e, ins, "sync", "up", "down", "bfly", "idx")
    mode = next((w for w in ("up", "down", "bfly", "idx") if w in words), "")
    if "sync" not in words or not mode:
        raise e.fail()
    count(e, ins, 5)
    value, predicate = both(ins.operands[0])
    members = e.src(ins.operands[4], "i32")
    need(e, members)
    a, b, c = (e.src(op, "i32") for op in ins.operands[1:4])
    x, y = e.fresh("u"), e.fresh("u")
    e.line(f"{x},{y}=X.shfl({mode!r},{a},{b},{c},{e.mask})")
    e.dst(value, x, "i32")
    e.dst(predicate, y, "pred")


def vote(e: BlockEmitter, ins: Instr) -> None:
    """vote.sync"""
    words = check_mods(e, ins, "sync", "all", "any", "uni", "ballot")
    count(e, ins, 3)
    if "sync" not in words:
        raise e.fail()
    members = e.src(ins.operands[2], "i32")
    need(e, members)
    p = e.src(ins.operands[1], "pred")
    if "ballot" in words:
        e.dst(ins.operands[0], f"X.ballot({p},{members},{e.mask})", "i32")
        return
    mode = next(w for w in ("all", "any", "uni") if w in words)
    e.dst(ins.operands[0], f"X.vote({mode!r},{p},{members},{e.mask})", "pred")


def match(e: BlockEmitter, ins: Instr) -> None:
    """match.any.sync and match.all.sync"""
    words = check_mods(e, ins, "sync", "any", "all")
    count(e, ins, 3)
    value, predicate = both(ins.operands[0])
    members = e.src(ins.operands[2], "i32")
    need(e, members)
    a = e.src(ins.operands[1], rep_of(kind_of(e, ins)))
    x, y = e.fresh("u"), e.fresh("u")
    mode = "all" if "all" in words else "any"
    e.line(f"{x},{y}=X.match({mode!r},{a},{members},{e.mask})")
    e.dst(value, x, "i32")
    e.dst(predicate, y, "pred")


def redux(e: BlockEmitter, ins: Instr) -> None:
    """redux.sync"""
    words = check_mods(e, ins, "sync", "add", "min", "max", "and", "or", "xor")
    count(e, ins, 3)
    op = next((w for w in ("add", "min", "max", "and", "or", "xor") if w in words), "")
    rep = rep_of(kind_of(e, ins))
    members = e.src(ins.operands[2], "i32")
    need(e, members)
    text = f"X.redux({op!r},{e.src(ins.operands[1], rep)},{members},{e.mask})"
    e.dst(ins.operands[0], text, rep)


def elect(e: BlockEmitter, ins: Instr) -> None:
    """elect.sync"""
    count(e, ins, 2)
    value, predicate = both(ins.operands[0])
    members = e.src(ins.operands[1], "i32")
    need(e, members)
    x, y = e.fresh("u"), e.fresh("u")
    e.line(f"{x},{y}=X.elect({members},{e.mask})")
    e.dst(value, x, "i32")
    e.dst(predicate, y, "pred")


def activemask(e: BlockEmitter, ins: Instr) -> None:
    """The lanes that run here."""
    yes, full = e.array(True, "pred"), e.array(FULL, "i32")
    e.dst(ins.operands[0], f"X.ballot({yes},{full},{e.mask})", "i32")


def bar(e: BlockEmitter, ins: Instr) -> None:
    """bar.warp.sync, bar.arrive, barrier.cluster.arrive; what parks lanes ends a block."""
    if "cluster" in ins.mods:
        cluster_arrive(e, ins)
        return
    if "warp" in ins.mods:
        members = e.src(ins.operands[0], "i32")
        need(e, members)
        if e.watch:
            e.line(f"X.warp_sync({members},{e.mask})")
        return
    if "arrive" in ins.mods and len(ins.operands) == 2:
        number, amount = (e.src(op, "i32") for op in ins.operands)
        e.line(f"X.bar_arrive({number},{amount},{e.mask},{e.site()})")
        return
    raise e.fail()


def slots(e: BlockEmitter, ins: Instr, number: int) -> str:
    """Frame offsets of a call's return and argument slots, as a constant."""
    offsets = []
    for op in ins.operands:
        if not isinstance(op, Sym) or op.name not in e.program.flat.local_offsets:
            raise e.fail("its arguments")
        offsets.append(e.program.flat.local_offsets[op.name])
    if len(offsets) < number:
        raise e.fail("its arguments")
    return e.constant(tuple(offsets))


def vprintf(e: BlockEmitter, ins: Instr) -> None:
    """printf"""
    e.line(f"X.vprintf({slots(e, ins, 3)},{e.mask},{e.site()})")


def assert_fail(e: BlockEmitter, ins: Instr) -> None:
    """assert"""
    e.line(f"X.assert_fail({slots(e, ins, 3)},{e.mask},{e.site()})")


OPS: dict[str, Emit] = {
    "shfl": shfl,
    "vote": vote,
    "match": match,
    "redux": redux,
    "elect": elect,
    "activemask": activemask,
    "bar": bar,
    "barrier": bar,
    "$vprintf": vprintf,
    "$assertfail": assert_fail,
}
