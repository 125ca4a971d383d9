"""mma.sync, wmma, ldmatrix, stmatrix."""

from __future__ import annotations

import re

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit, unknown
from gemm_lab.emulator.codegen.mma_runs import WMMA_SHAPES, MmaRun, find_runs
from gemm_lab.emulator.ptx.ir import Instr, Mem, Operand, Reg, Sym, Vec
from gemm_lab.emulator.tensor.fragments import MmaGrid
from gemm_lab.emulator.tensor.tiles import TileMap, tile_map

__all__ = ["OPS"]

SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def mma(e: BlockEmitter, ins: Instr) -> None:
    """mma.sync and wmma.mma: the first of a run does all of it."""
    if "sparse" in ins.mods or (ins.name == "mma" and "sp" in ins.mods):
        raise e.fail("sparse products")
    if "f64" in ins.mods:
        mma_f64(e, ins)
        return
    if ins.guard is not None:
        raise e.fail("a guard")
    if e.runs is None:
        e.runs = find_runs(e.block.instrs, unknown)
    run = e.runs[id(ins)]
    if run is not None:
        emit_run(e, run)


def index_of(items: dict[tuple[str, ...], int], key: tuple[str, ...]) -> int:
    return items.setdefault(key, len(items))


def emit_run(e: BlockEmitter, run: MmaRun) -> None:
    """One product of the stacked operands, then a sum for each accumulator register."""
    lefts: dict[tuple[str, ...], int] = {}
    rights: dict[tuple[str, ...], int] = {}
    pairs = []
    for atom in run.atoms:
        a = tuple(words(e, op) for op in atom.a)
        b = tuple(words(e, op) for op in atom.b)
        pairs.append((index_of(lefts, a), index_of(rights, b)))
    grid = MmaGrid(
        kind_a=run.kind_a,
        kind_b=run.kind_b,
        chunks=run.chunks,
        count_a=len(lefts),
        count_b=len(rights),
        pairs=tuple(pairs),
        integer=run.kind_d == "s32",
        saturate=run.saturate,
    )
    names = [e.fresh("u") for _ in range(4 * len(pairs))]
    left = ",".join(name for key in lefts for name in key)
    right = ",".join(name for key in rights for name in key)
    e.line(f"{','.join(names)}=X.mma({e.constant(grid)},[{left}],[{right}],{e.mask},{e.site()})")
    if e.watch:
        e.line(f"X.count_mma({e.constant(grid)},{e.mask},{e.site()})")
    sums: list[tuple[Operand | None, str, str]] = []
    for number, atom in enumerate(run.atoms):
        product = names[4 * number : 4 * number + 4]
        if run.kind_d == "f16":
            old = ",".join(e.src(op, "i32") for op in atom.c)
            first, second = e.fresh("u"), e.fresh("u")
            e.line(f"{first},{second}=X.mma_half([{','.join(product)}],[{old}])")
            sums += [(atom.d[0], first, "i32"), (atom.d[1], second, "i32")]
            continue
        rep = "i32" if run.kind_d == "s32" else "f32"
        for op, target, name in zip(atom.c, atom.d, product, strict=True):
            old = e.src(op, rep)
            if run.saturate and rep == "i32":
                e.line(f"{name}=saturate_int({old}.astype(D_i64)+{name},'i32')")
            else:
                e.line(f"add({old},{name},{name})")
            sums.append((target, name, rep))
    for target, name, rep in sums:
        e.dst(target, name, rep, owned=True)


def words(e: BlockEmitter, op: Operand | None) -> str:
    """A 32-bit operand as its register keeps it: the product looks at the bits."""
    if isinstance(op, Reg) and not op.special:
        return e.src(op, e.rep(op))
    return e.src(op, "i32")


def mma_f64(e: BlockEmitter, ins: Instr) -> None:
    """m8n8k4 on float64."""
    if "m8n8k4" not in ins.mods or len(ins.operands) != 4 or ins.name != "mma":
        raise e.fail("its shape")
    d, a, b, c = (op.items if isinstance(op, Vec) else (op,) for op in ins.operands)
    x, y = e.src(a[0], "f64"), e.src(b[0], "f64")
    names = [e.fresh("u"), e.fresh("u")]
    e.line(f"{','.join(names)}=X.mma_f64({x},{y},{e.mask},{e.site()})")
    for name, old in zip(names, c, strict=True):
        e.line(f"{name}=({name}+{e.src(old, 'f64')})")
    for target, name in zip(d, names, strict=True):
        e.dst(target, name, "f64")


def matrix_facts(e: BlockEmitter, ins: Instr) -> tuple[int, bool]:
    allowed = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared:cta", "b16"}
    extra = set(ins.mods) - allowed
    count = next((COUNTS[mod] for mod in ins.mods if mod in COUNTS), 0)
    if extra or not count or len(ins.operands) != 2 or ins.guard is not None:
        raise e.fail(f".{min(extra)}" if extra else "")
    return count, "trans" in ins.mods


def matrix_base(e: BlockEmitter, ins: Instr, mem: Operand | None, count: int) -> tuple[str, int]:
    """The checked row addresses and the words that the access lies past the lowest."""
    group = e.plan.group(ins)
    if group is None or not isinstance(mem, Mem):
        raise e.fail("an address that it cannot read")
    name = e.bases.get(id(group))
    if name is None:
        if isinstance(mem.base, Reg):
            address = e.src(mem.base, "i64" if e.rep(mem.base) == "i64" else "i32")
        elif isinstance(mem.base, Sym):
            address = e.symbol(Sym(mem.base.name), "i64")
        else:
            raise e.fail("an address that it cannot read")
        name = e.bases[id(group)] = e.fresh("b")
        e.line(f"{name}=X.matrix_base({address},{e.constant(group)},{count},{e.mask},{e.site()})")
    return name, (mem.offset - group.lo) // 4


def ldmatrix(e: BlockEmitter, ins: Instr) -> None:
    """ldmatrix.m8n8, plain and .trans."""
    count, trans = matrix_facts(e, ins)
    target = ins.operands[0]
    items = target.items if isinstance(target, Vec) else (target,)
    if len(items) != count:
        raise e.fail("its number of registers")
    name, rel = matrix_base(e, ins, ins.operands[1], count)
    names = [e.fresh("u") for _ in items]
    e.line(f"{','.join(names)},=X.ldmatrix({name},{rel},{count},{trans})")
    for item, value in zip(items, names, strict=True):
        e.dst(item, value, "i32")


def stmatrix(e: BlockEmitter, ins: Instr) -> None:
    """stmatrix.m8n8, plain and .trans."""
    count, trans = matrix_facts(e, ins)
    source = ins.operands[1]
    items = source.items if isinstance(source, Vec) else (source,)
    if len(items) != count:
        raise e.fail("its number of registers")
    values = ",".join(e.src(item, "i32") for item in items)
    name, rel = matrix_base(e, ins, ins.operands[0], count)
    e.line(f"X.stmatrix({name},{rel},[{values}],{trans})")


def wmma(e: BlockEmitter, ins: Instr) -> None:
    """wmma.load, wmma.mma, wmma.store."""
    if "mma" in ins.mods:
        mma(e, ins)
    elif "load" in ins.mods or "store" in ins.mods:
        wmma_move(e, ins)
    else:
        raise e.fail()


def wmma_tile(e: BlockEmitter, ins: Instr, registers: int) -> TileMap:
    shape = next((SHAPE.match(mod) for mod in ins.mods if SHAPE.match(mod)), None)
    operand = next((mod for mod in ins.mods if mod in ("a", "b", "c", "d")), "")
    if shape is None or not operand or ins.guard is not None:
        raise e.fail()
    m, n, k = (int(v) for v in shape.groups())
    if (m, n) not in WMMA_SHAPES:
        raise e.fail("its shape")
    tile = tile_map(operand, m, n, k, ins.mods[-1], "row" in ins.mods, registers)
    if tile is None:
        raise e.fail("its shape, type or number of registers")
    return tile


def wmma_move(e: BlockEmitter, ins: Instr) -> None:
    """wmma.load.a/b/c and wmma.store.d, from shared, global or generic addresses."""
    load = "load" in ins.mods
    vec, mem = (ins.operands[0], ins.operands[1]) if load else (ins.operands[1], ins.operands[0])
    if not isinstance(vec, Vec) or not isinstance(mem, Mem):
        raise e.fail("its operands")
    tile = wmma_tile(e, ins, len(vec.items))
    space = next((s for s in ("shared", "global") if s in ins.mods), "generic")
    if isinstance(mem.base, Reg):
        address = e.src(mem.base, "i64" if e.rep(mem.base) == "i64" else "i32")
    elif isinstance(mem.base, Sym):
        address = e.symbol(Sym(mem.base.name), "i64")
    else:
        raise e.fail("an address that it cannot read")
    if mem.offset:
        address = f"({address}+{mem.offset})"
    shape = next(int(SHAPE.match(mod)[2]) for mod in ins.mods if SHAPE.match(mod))  # type: ignore[index]
    stride = e.src(ins.operands[2], "i32") if len(ins.operands) > 2 else e.array(shape, "i32")
    kind = "ld" if load else "st"
    name, constant = e.fresh("b"), e.constant(tile)
    values = ",".join(words(e, item) for item in vec.items) if not load else ""
    e.line(
        f"{name}=X.tile_base({address},{stride},{constant},{space!r},{kind!r},{e.mask},{e.site()})"
    )
    if e.watch:
        e.line(f"X.seen({name})")
    if not load:
        e.line(f"X.tile_store({name},{constant},[{values}])")
        return
    names = [e.fresh("u") for _ in vec.items]
    e.line(f"{','.join(names)},=X.tile_load({name},{constant})")
    for item, value in zip(vec.items, names, strict=True):
        e.dst(item, value, "i32")


OPS: dict[str, Emit] = {
    "mma": mma,
    "wmma": wmma,
    "ldmatrix": ldmatrix,
    "stmatrix": stmatrix,
}
