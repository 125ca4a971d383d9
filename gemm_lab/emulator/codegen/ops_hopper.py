"""mbarrier, bulk copies and TMA, clusters."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.ops_async import address_of, cp
from gemm_lab.emulator.ptx.ir import Imm, Instr, Mem, Operand, Reg, Vec

__all__ = ["OPS", "cluster_arrive", "cluster_wait", "try_wait"]

SCOPES = frozenset(
    {
        "release",
        "acquire",
        "relaxed",
        "cta",
        "cluster",
        "shared",
        "shared:cta",
        "shared:cluster",
        "b64",
    }
)
REDUCE = {
    "f32": "f32",
    "f64": "f64",
    "f16": "f16",
    "bf16": "bf16",
    "s32": "i32",
    "u32": "u32",
    "s64": "i64",
    "u64": "u64",
}


def place(e: BlockEmitter, op: Operand | None, *, shared: bool = True) -> str:
    """A byte address; generic ones of shared memory become offsets."""
    text, offset = address_of(e, op)
    if offset:
        text = f"({text}+{offset})"
    return text if shared else f"({text}-KSHARED)"


def in_shared(ins: Instr) -> bool:
    return any(mod.startswith("shared") for mod in ins.mods)


def mbarrier(e: BlockEmitter, ins: Instr) -> None:
    """All of mbarrier but try_wait, which ends a block."""
    kind = ins.mods[0]
    words = set(ins.mods[1:]) - SCOPES
    mask, site = e.guard_mask(), e.site()
    ops = list(ins.operands)
    if kind in ("init", "inval", "expect_tx", "complete_tx"):
        at = place(e, ops[0], shared=in_shared(ins))
        value = e.src(ops[1], "i32") if len(ops) > 1 else ""
        if words:
            raise e.fail()
        call = {
            "init": f"X.mbarrier_init({at},{value},{mask},{site})",
            "inval": f"X.mbarrier_inval({at},{mask},{site})",
            "expect_tx": f"X.mbarrier_expect({at},{value},{mask},{site})",
        }.get(kind)
        if call is None:
            raise e.fail()
        e.line(call)
    elif kind in ("arrive", "arrive_drop"):
        arrive(e, ins, ops, words, mask)
    elif kind == "test_wait":
        if e.block.in_loop:
            e.program.spinning.add(e.block.index)
        at = place(e, ops[1], shared=in_shared(ins))
        state = e.src(ops[2], "i32" if "parity" in words else "i64")
        text = f"X.test_wait({at},{state},{'parity' not in words},{mask},{site})"
        e.dst(ops[0], text, "pred")
    else:
        raise e.fail()


def arrive(
    e: BlockEmitter, ins: Instr, ops: list[Operand | None], words: set[str], mask: str
) -> None:
    """mbarrier.arrive, with a count or with bytes to expect."""
    if words - {"expect_tx", "noComplete"}:
        raise e.fail()
    target = None if isinstance(ops[0], Mem) else ops.pop(0)
    at = e.fresh("u")
    e.line(f"{at}={place(e, ops[0], shared=in_shared(ins))}")
    one = e.array(1, "i32")
    value = e.src(ops[1], "i32") if len(ops) > 1 else one
    if "expect_tx" in words:
        e.line(f"X.mbarrier_expect({at},{value},{mask},{e.site()})")
        value = one
    drop = ",True" if ins.mods[0] == "arrive_drop" else ""
    call = f"X.mbarrier_arrive({at},{value},{mask},{e.site()}{drop})"
    if target is None:
        e.line(call)
    else:
        e.dst(target, call, "i64")


def try_wait(e: BlockEmitter, last: Instr) -> None:
    """mbarrier.try_wait: a wait, which ends the block."""
    words = set(last.mods[1:]) - SCOPES
    if words - {"parity"} or len(last.operands) not in (3, 4):
        raise e.fail()
    target, at, state = last.operands[:3]
    token = "parity" not in words
    where = place(e, at, shared=in_shared(last))
    value = e.src(state, "i64" if token else "i32")
    register = e.number(target) if isinstance(target, Reg) else -1
    e.spill()
    e.line(
        f"return X.try_wait({where},{value},{token},{e.mask},{e.block.next},{register},R,"
        f"{e.site(last)})"
    )


def cluster_wait(e: BlockEmitter, last: Instr) -> None:
    """barrier.cluster.wait"""
    e.spill()
    e.line(f"return X.cluster_wait({e.mask},{e.block.next},{e.site(last)})")


def cluster_arrive(e: BlockEmitter, ins: Instr) -> None:
    """barrier.cluster.arrive"""
    if set(ins.mods) - {"cluster", "arrive", "release", "relaxed", "aligned"}:
        raise e.fail()
    e.line(f"X.cluster_arrive({e.mask},{e.site()})")


def coordinates(e: BlockEmitter, mem: Mem) -> str:
    """The coordinates of a tensor access, innermost first, as a list."""
    items = mem.coords[0].items if mem.coords and isinstance(mem.coords[0], Vec) else mem.coords
    return ",".join(e.src(item, "i32") for item in items)


def copies(e: BlockEmitter, ins: Instr) -> None:
    """Everything that begins with cp."""
    (bulk if "bulk" in ins.mods else cp)(e, ins)


def bulk(e: BlockEmitter, ins: Instr) -> None:
    """cp.async.bulk, cp.reduce.async.bulk and their tensor forms."""
    words = set(ins.mods)
    mask, site = e.guard_mask(), e.site()
    if "commit_group" in words:
        e.line(f"X.bulk_commit({mask})")
        return
    if "wait_group" in words:
        count = ins.operands[0]
        if not isinstance(count, Imm):
            raise e.fail()
        e.line(f"X.bulk_wait({int(count.value)},{'read' in words},{mask},{site})")
        return
    if "prefetch" in words:
        return
    if words & {
        "im2col",
        "im2col:w",
        "tile:gather4",
        "tile:scatter4",
        "cta_group:1",
        "cta_group:2",
    }:
        raise e.fail()
    spaces = [mod for mod in ins.mods if mod.startswith(("shared", "global"))]
    if len(spaces) != 2:
        raise e.fail("its spaces")
    if spaces[1] == "global":
        load(e, ins, mask, site)
    elif spaces[0] == "global":
        store(e, ins, mask, site)
    else:
        raise e.fail("a copy between blocks")


def load(e: BlockEmitter, ins: Instr, mask: str, site: str) -> None:
    """Into shared memory, with an mbarrier that counts the bytes."""
    ops = list(ins.operands)
    multicast = "None"
    tensor = "tensor" in ins.mods
    at = 3 if tensor else 4
    if "multicast:cluster" in ins.mods:
        multicast = e.src(ops[at], "u16")
    target, barrier = place(e, ops[0]), place(e, ops[at - 1])
    source = ops[1]
    if not isinstance(source, Mem):
        raise e.fail("its source")
    if tensor:
        map_ = place(e, Mem(source.base, source.offset))
        e.line(
            f"X.tma_load({target},{map_},[{coordinates(e, source)}],{barrier},{multicast},"
            f"{mask},{site})"
        )
        return
    size = e.src(ops[2], "i32")
    e.line(f"X.bulk_load({target},{place(e, source)},{size},{barrier},{multicast},{mask},{site})")


def store(e: BlockEmitter, ins: Instr, mask: str, site: str) -> None:
    """Out of shared memory, in a bulk group."""
    words = set(ins.mods)
    reduce = next((w for w in ("add", "min", "max") if w in words), "") if "reduce" in words else ""
    if "reduce" in words and not reduce:
        raise e.fail("its operation")
    target, source = ins.operands[0], ins.operands[1]
    if not isinstance(target, Mem):
        raise e.fail("its destination")
    if "tensor" in words:
        map_ = place(e, Mem(target.base, target.offset))
        e.line(
            f"X.tma_store({map_},[{coordinates(e, target)}],{place(e, source)},{reduce!r},"
            f"{mask},{site})"
        )
        return
    kind = next((w for w in REDUCE if w in words), "" if reduce else "f32")
    if not kind:
        raise e.fail("its type")
    size = e.src(ins.operands[2], "i32")
    e.line(
        f"X.bulk_store({place(e, target)},{place(e, source)},{size},{reduce!r},{REDUCE[kind]!r},"
        f"{mask},{site})"
    )


def mapa(e: BlockEmitter, ins: Instr) -> None:
    """mapa: the same address in another block of the cluster."""
    target, source, rank = ins.operands
    rep = "i64" if ins.mods[-1] == "u64" else "i32"
    shared = in_shared(ins)
    a = e.src(source, rep) if not isinstance(source, Mem) else place(e, source)
    text = f"X.remote({a},{e.src(rank, 'i32')})"
    if not shared:
        text = f"(X.remote({a}-KSHARED,{e.src(rank, 'i32')})+KSHARED)"
    e.dst(target, text, rep)


def getctarank(e: BlockEmitter, ins: Instr) -> None:
    """The rank of the block that a shared::cluster address belongs to."""
    rep = "i64" if ins.mods[-1] == "u64" else "i32"
    a = e.src(ins.operands[1], rep)
    if not in_shared(ins):
        a = f"({a}-KSHARED)"
    e.dst(ins.operands[0], f"X.rank_of({a})", "i32")


OPS: dict[str, Emit] = {
    "cp": copies,
    "mbarrier": mbarrier,
    "mapa": mapa,
    "getctarank": getctarank,
}
