"""Loads, stores, atomics, address conversions."""

from __future__ import annotations

from gemm_lab.emulator.codegen.emitter import BlockEmitter, Emit
from gemm_lab.emulator.codegen.plan import memory_facts
from gemm_lab.emulator.codegen.reps import REP_BYTES, rep_of
from gemm_lab.emulator.ptx.ir import Instr, Mem, Operand, Reg, Sym, Vec
from gemm_lab.emulator.ptx.types import TYPE_BYTES

__all__ = ["OPS"]

LD_ST_WORDS = frozenset(
    [
        "global",
        "shared",
        "shared:cta",
        "shared:cluster",
        "local",
        "const",
        "param",
        "generic",
        "nc",
        "weak",
        "relaxed",
        "acquire",
        "release",
        "volatile",
        "cta",
        "gpu",
        "sys",
        "cluster",
        "ca",
        "cg",
        "cs",
        "cv",
        "lu",
        "wb",
        "wt",
        "v2",
        "v4",
        "v8",
        "unified",
        "mmio",
    ]
)
CACHE_PREFIXES = ("L1:", "L2:")
CHECKERS = {"global": "gb", "shared": "sb", "local": "lb", "generic": "xb"}


def base(e: BlockEmitter, ins: Instr, mem: Operand | None) -> tuple[str, int]:
    """The checked base of an access and how many units the access lies past its lowest."""
    group = e.plan.group(ins)
    if group is None or not isinstance(mem, Mem):
        raise e.fail("an address that it cannot read")
    # Elements below a word are reached word by word: their neighbours may lie anywhere.
    rel = (mem.offset - group.lo) // max(group.unit, 4)
    name = e.bases.get(id(group))
    if name is None:
        mask = e.guard_mask()
        if isinstance(mem.base, Reg):
            address = e.src(mem.base, "i64" if e.rep(mem.base) in ("i64", "f64") else "i32")
            leaves = e.leaf(mem.base)
        elif isinstance(mem.base, Sym):
            address = e.symbol(Sym(mem.base.name), "i64")
            leaves = frozenset()
        else:
            address = e.array(0, "i64")
            leaves = frozenset()
        name = e.bases[id(group)] = e.fresh("b")
        checker = CHECKERS[group.space]
        e.line(f"{name}=X.{checker}({address},{e.constant(group)},{mask})")
        if e.watch:
            e.line(f"X.seen({name})")
        if group.kind == "ld":
            e.line(f"i{name}={name}.index;v{name}={name}.views;k{name}={name}.step")
        del leaves
    return name, rel


def check_words(e: BlockEmitter, ins: Instr) -> None:
    for mod in ins.mods:
        if mod not in LD_ST_WORDS and mod not in TYPE_BYTES and not mod.startswith(CACHE_PREFIXES):
            raise e.fail(f".{mod}")
    if len(ins.operands) not in (2, 3):
        raise e.fail("number of operands")


def load_rep(e: BlockEmitter, kind: str, items: tuple[Operand | None, ...]) -> str:
    """The type of a load: untyped bits fill a wider register with zeros."""
    rep = rep_of(kind)
    if kind[0] == "b":
        wider = any(
            isinstance(item, Reg) and REP_BYTES[e.rep(item)] > TYPE_BYTES[kind] for item in items
        )
        if wider:
            return f"u{8 * TYPE_BYTES[kind]}"
    return rep


def ld(e: BlockEmitter, ins: Instr) -> None:
    """ld, ld.v2, ld.v4 from any space; ld.param of the entry's own parameters."""
    check_words(e, ins)
    facts = memory_facts(ins)
    if facts is None:
        raise e.fail("no type")
    space, kind, width, _ = facts
    target, mem = ins.operands[0], ins.operands[1]
    items = target.items if isinstance(target, Vec) else (target,)
    if len(items) != width:
        raise e.fail("vector width and operands differ")
    if kind == "b128" or kind == "pred":
        raise e.fail(f"loads of .{kind}")
    rep = load_rep(e, kind, items)
    if "param" in ins.mods and isinstance(mem, Mem) and isinstance(mem.base, Sym):
        ld_param(e, mem, items, rep, TYPE_BYTES[kind])
        return
    if e.block.in_loop and e.program.volatile_words & set(ins.mods):
        e.program.spinning.add(e.block.index)
    name, rel = base(e, ins, mem)
    group = e.plan.group(ins)
    leaves = frozenset((("g", id(group)),))
    if TYPE_BYTES[kind] == 8 and space != "global":
        values = [f"X.ld64({name},{rel + at},{rep!r})" for at in range(width)]
    elif width == 1:
        shift = f"[{rel}*k{name}:]" if rel else ""
        axis = ",0" if space != "global" else ""
        values = [f"v{name}.{rep}{shift}.take(i{name}{axis})"]
    elif width == 8:
        shift = f"[{rel}*k{name}:]" if rel else ""
        if TYPE_BYTES[kind] < 4:
            raise e.fail("vector width and type")
        values = [f"v{name}.{rep}[{rel + at}*k{name}:].take(i{name},0)" for at in range(8)]
    else:
        key = ("quad", name, width)
        quad = e.bases.get(key)
        if quad is None:
            quad = e.bases[key] = e.fresh("q")
            e.line(f"{quad}={name}.quad({width})")
        shift = f"[{rel}*k{name}:]" if rel else ""
        temps = [e.fresh("u") for _ in items]
        e.line(f"{','.join(temps)}=v{name}.{rep}{shift}.take({quad},0)")
        values = temps
    if width > 1 and values[0][0] != "u":
        temps = []
        for value in values:
            temps.append(e.fresh("u"))
            e.line(f"{temps[-1]}={value}")
        values = temps
    for item, value in zip(items, values, strict=True):
        e.dst(item, value, rep, leaves, owned=True)


def ld_param(
    e: BlockEmitter, mem: Mem, items: tuple[Operand | None, ...], rep: str, unit: int
) -> None:
    base_name = mem.base.name if isinstance(mem.base, Sym) else ""
    for param in e.program.flat.params:
        if param.name == base_name:
            break
    else:
        raise e.fail("an unknown parameter")
    for at, item in enumerate(items):
        offset = mem.offset + at * unit
        if offset < 0 or offset + unit > param.size_bytes or offset % unit:
            raise e.fail("beyond the parameter, or misaligned")
        e.dst(item, f"X.param({param.offset + offset},{rep!r})", rep, frozenset())


def st(e: BlockEmitter, ins: Instr) -> None:
    """st, st.v2, st.v4 to any space."""
    check_words(e, ins)
    facts = memory_facts(ins)
    if facts is None:
        raise e.fail("no type")
    _, kind, width, _ = facts
    mem, source = ins.operands[0], ins.operands[1]
    items = source.items if isinstance(source, Vec) else (source,)
    if len(items) != width or kind in ("b128", "pred"):
        raise e.fail("vector width and operands differ, or the type")
    rep = rep_of(kind)
    values = [e.src(item, rep) for item in items]
    name, rel = base(e, ins, mem)
    for at, value in enumerate(values):
        e.line(f"X.st({name},{rel},{at},{rep!r},{value})")


ATOMIC_OPS = frozenset(["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"])


def atom(e: BlockEmitter, ins: Instr) -> None:
    """atom and red; red wants no result."""
    facts = memory_facts(ins)
    if facts is None:
        raise e.fail("no type")
    _, kind, width, at = facts
    op = next((mod for mod in ins.mods if mod in ATOMIC_OPS), "")
    allowed = LD_ST_WORDS | ATOMIC_OPS | {"acq_rel", "noftz", kind}
    if not op or set(ins.mods) - allowed:
        raise e.fail()
    mem = ins.operands[at]
    sources = ins.operands[at + 1 :]
    if len(sources) != (2 if op == "cas" else 1):
        raise e.fail("number of operands")
    if width > 1 or kind in ("f16x2", "bf16x2", "b128"):
        vector_atom(e, ins, op, kind, width, mem, sources[0])
        return
    if e.block.in_loop:
        e.program.spinning.add(e.block.index)
    rep = rep_of(kind)
    values = [e.src(source, rep) for source in sources]
    name, rel = base(e, ins, mem)
    third = values[1] if op == "cas" else "None"
    if kind == "bf16":
        op = f"bf16{op}"
        if op != "bf16add":
            raise e.fail()
    want = ins.name == "atom" and ins.operands[0] is not None
    call = f"X.atom({name},{rel},0,{op!r},{rep!r},{values[0]},{third},{want})"
    if want:
        e.dst(ins.operands[0], call, rep)
    else:
        e.line(call)


def vector_atom(
    e: BlockEmitter,
    ins: Instr,
    op: str,
    kind: str,
    width: int,
    mem: Operand | None,
    source: Operand | None,
) -> None:
    """red.v2/v4.f32 and packed halves: element by element; results are not supported."""
    if op != "add" or (ins.name == "atom" and ins.operands[0] is not None):
        raise e.fail("a vector atomic that returns values")
    items = source.items if isinstance(source, Vec) else (source,)
    if len(items) != width:
        raise e.fail("vector width and operands differ")
    if kind in ("f16x2", "bf16x2"):
        raise e.fail("packed atomics")
    rep = rep_of(kind)
    values = [e.src(item, rep) for item in items]
    name, rel = base(e, ins, mem)
    for at, value in enumerate(values):
        e.line(f"X.atom({name},{rel},{at},'add',{rep!r},{value},None,False)")


def cvta(e: BlockEmitter, ins: Instr) -> None:
    """Between a space's addresses and generic ones."""
    words = [mod.split(":")[0] for mod in ins.mods]
    space = next((w for w in words if w in ("global", "shared", "local", "const", "param")), "")
    rep = "i64" if "u64" in words else "i32"
    if not space or rep == "i32":
        raise e.fail()
    text = e.src(ins.operands[1], rep)
    if space in ("shared", "local"):
        window = "KSHARED" if space == "shared" else "KLOCAL"
        text = f"{text}{'-' if 'to' in words else '+'}{window}"
    e.dst(ins.operands[0], text, rep, e.leaf(ins.operands[1]))


def isspacep(e: BlockEmitter, ins: Instr) -> None:
    """Whether a generic address lies in a space's window."""
    a = e.src(ins.operands[1], "i64")
    space = ins.mods[0].split(":")[0]
    test = {
        "shared": f"({a}>>40)==KSHARED40",
        "local": f"({a}>>40)==KLOCAL40",
        "global": f"({a}>>40)==KHEAP40",
    }.get(space)
    if test is None:
        raise e.fail()
    e.dst(ins.operands[0], f"({test})", "pred")


def nothing(e: BlockEmitter, ins: Instr) -> None:
    """Hints without an effect on results."""


def membar(e: BlockEmitter, ins: Instr) -> None:
    """Fences: memory is already in order; the watchers are told."""
    if e.watch:
        proxy = "proxy" in ins.mods or any(mod.startswith("proxy") for mod in ins.mods)
        e.line(f"X.{'proxy_fence' if proxy else 'fence'}({e.guard_mask()},{e.site()})")


OPS: dict[str, Emit] = {
    "ld": ld,
    "ldu": ld,
    "st": st,
    "atom": atom,
    "red": atom,
    "cvta": cvta,
    "isspacep": isspacep,
    "membar": membar,
    "fence": membar,
    "prefetch": nothing,
    "prefetchu": nothing,
    "discard": nothing,
    "applypriority": nothing,
    "nanosleep": nothing,
    "pmevent": nothing,
    "griddepcontrol": nothing,
}
