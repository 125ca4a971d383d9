"""cp.async and its groups."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter
from gemm_lab.emulator.ptx.ir import Imm, Instr, Mem, Operand, Reg, Sym
from gemm_lab.emulator.runtime.groups import Access, AccessGroup, Site

__all__ = ["address_of", "cp"]


def cp(e: BlockEmitter, ins: Instr) -> None:
    """cp.async and its groups; bulk copies are in ops_hopper."""
    words = ins.mods
    if "async" not in words:
        raise e.fail()
    if "commit_group" in words:
        e.line(f"X.commit_group({e.guard_mask()})")
    elif "wait_group" in words:
        count = ins.operands[0]
        if not isinstance(count, Imm) or not isinstance(count.value, int):
            raise e.fail("its count")
        e.line(f"X.wait_group({count.value},{e.guard_mask()},{e.site()})")
    elif "wait_all" in words:
        e.line(f"X.wait_all({e.guard_mask()},{e.site()})")
    elif "mbarrier" in words:
        text, offset = address_of(e, ins.operands[0])
        if not any(w.startswith("shared") for w in words):
            text = f"({text}-KSHARED)"
        noinc = "noinc" in words
        e.line(f"X.mbarrier_copies({text}+{offset},{noinc},{e.guard_mask()},{e.site()})")
    else:
        copy(e, ins)


def address_of(e: BlockEmitter, mem: Operand | None) -> tuple[str, int]:
    """An address expression and the offset beside it."""
    if not isinstance(mem, Mem):
        raise e.fail("an address that it cannot read")
    if isinstance(mem.base, Reg):
        wide = e.rep(mem.base) in ("i64", "f64")
        return e.src(mem.base, "i64" if wide else "i32"), mem.offset
    if isinstance(mem.base, Sym):
        return e.symbol(Sym(mem.base.name), "i64"), mem.offset
    return e.array(0, "i64"), mem.offset


def own_group(e: BlockEmitter, ins: Instr, kind: str, space: str, offset: int, size: int) -> str:
    """A group of one access of whole words."""
    group = AccessGroup(kind, space, 4, size, [Access(offset, size, Site(ins.line, ins))])
    group.finish()
    return e.constant(group)


def copy(e: BlockEmitter, ins: Instr) -> None:
    """cp.async.ca and .cg of 4, 8 or 16 bytes, with an optional count of source bytes."""
    allowed = {"async", "ca", "cg", "shared", "shared:cta", "global"}
    extra = {w for w in ins.mods if w not in allowed and not w.startswith(("L1:", "L2:"))}
    if extra or len(ins.operands) < 3:
        raise e.fail(f".{min(extra)}" if extra else "")
    target, source, size = ins.operands[:3]
    if not isinstance(size, Imm) or size.value not in (4, 8, 16):
        raise e.fail("its size")
    count = int(size.value) // 4
    extra_operand = ins.operands[3] if len(ins.operands) > 3 else None
    if any(mod == "L2:cache_hint" for mod in ins.mods) and len(ins.operands) == 4:
        extra_operand = None
    valid = "None"
    if isinstance(extra_operand, Reg) and e.rep(extra_operand) == "pred":
        valid = f"where({e.src(extra_operand, 'pred')},0,{size.value})"
    elif extra_operand is not None:
        valid = e.src(extra_operand, "i32")
    mask = e.guard_mask()
    to, to_offset = address_of(e, target)
    of, of_offset = address_of(e, source)
    a, b, v = e.fresh("b"), e.fresh("b"), e.fresh("u")
    groups = (
        own_group(e, ins, "cp", "shared", to_offset, int(size.value)),
        own_group(e, ins, "ld", "global", of_offset, int(size.value)),
    )
    e.line(f"{v}={valid}")
    e.line(f"{a}=X.sb({to},{groups[0]},{mask})")
    e.line(f"{b}=X.copy_source({of},{groups[1]},{v},{mask})")
    if e.watch:
        e.line(f"X.seen_copy({b})")
    e.line(f"X.async_copy({a},0,{b},0,{count},{v},{mask})")
