"""One entry with its device functions inlined: a flat list of instructions and its variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gemm_lab.emulator.faults import PtxError, Where
from gemm_lab.emulator.ptx.ir import (
    Function,
    Imm,
    Instr,
    Label,
    Mem,
    Module,
    Operand,
    Pair,
    Param,
    Reg,
    Sym,
    Variable,
    Vec,
)
from gemm_lab.emulator.ptx.opset import is_branch_only

__all__ = ["MAX_INSTRUCTIONS", "FlatEntry", "flatten"]

MAX_INSTRUCTIONS = 150_000
BUILTINS = {"vprintf": "$vprintf", "__assertfail": "$assertfail", "malloc": "", "free": "$free"}


@dataclass(slots=True)
class FlatEntry:
    """An entry ready for control-flow analysis.

    Attributes:
        local_offsets: offset of each local variable and call slot in a thread's frame.
        shared_offsets: offset of each shared variable; dynamic ones begin at the static end.
    """

    name: str
    params: list[Param]
    directives: dict[str, tuple[int, ...]]
    body: list[Instr | Label]
    registers: dict[str, str]
    tables: dict[str, list[str]]
    local_offsets: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    shared_offsets: dict[str, int] = field(default_factory=dict)
    static_smem_bytes: int = 0
    dynamic_align: int = 16


def flatten(module: Module, entry: Function) -> FlatEntry:
    """Inline every call. PtxError for recursion, unknown callees or a body that grows too large."""
    flattener = _Flattener(module, entry)
    flattener.expand(entry, "", {}, None, ())
    flat = flattener.flat
    flat.body = _branch_around(flat.body)
    _place_shared(module, flattener.shared, flat)
    return flat


class _Flattener:
    def __init__(self, module: Module, entry: Function) -> None:
        self.module = module
        self.flat = FlatEntry(entry.name, entry.params, entry.directives, [], {}, {})
        self.shared: dict[str, Variable] = {
            v.name: v for v in module.variables.values() if v.space == "shared"
        }
        self.count = 0

    def slot(self, name: str, variable: Variable) -> None:
        flat = self.flat
        align = max(variable.align, 4)
        flat.local_bytes = -(-flat.local_bytes // align) * align
        flat.local_offsets[name] = flat.local_bytes
        flat.local_bytes += variable.size_bytes

    def expand(
        self,
        function: Function,
        suffix: str,
        symbols: dict[str, str],
        end: str | None,
        stack: tuple[str, ...],
    ) -> None:
        """Append a function's body with its names made unique."""
        if function.name in stack:
            raise PtxError(
                "unknown to the emulator",
                f"recursion through {function.name}",
                where=Where(ptx_line=function.line),
                hint="rewrite the recursion as a loop",
            )
        flat = self.flat
        names = dict(symbols)
        for variable in function.variables.values():
            if variable.space in ("local", "param"):
                names[variable.name] = variable.name + suffix + "@local"
                self.slot(names[variable.name], variable)
            elif variable.space == "shared":
                names[variable.name] = f"{function.name}:{variable.name}"
                self.shared[names[variable.name]] = variable
        for name, kind in function.registers.items():
            flat.registers[name + suffix] = kind
        for name, targets in function.tables.items():
            flat.tables[name + suffix] = [target + suffix for target in targets]
        labels = {item.name for item in function.body if isinstance(item, Label)}
        names.update({label: label + suffix for label in labels | set(function.tables)})
        rewrite = _Rewriter(suffix, names, self.flat.local_offsets, inner=bool(suffix))
        for item in function.body:
            if isinstance(item, Label):
                flat.body.append(Label(item.name + suffix))
            elif item.name == "call":
                self.call(item, rewrite, (*stack, function.name))
            elif item.name == "ret" and end is not None:
                jump = replace(item, name="bra", mods=(), operands=(Sym(end),))
                flat.body.append(rewrite.guarded(jump))
            else:
                flat.body.append(rewrite.instr(item))
        if len(flat.body) > MAX_INSTRUCTIONS:
            raise PtxError("unknown to the emulator", f"more than {MAX_INSTRUCTIONS} instructions")

    def call(self, ins: Instr, rewrite: _Rewriter, stack: tuple[str, ...]) -> None:
        returns, args = (op.items if isinstance(op, Vec) else () for op in ins.operands)
        where = Where(ptx_line=ins.line, instruction=f"call {ins.callee}")
        slots = []
        for item in (*returns, *args):
            name = rewrite.names.get(item.name) if isinstance(item, Sym) else None
            if name is None or name not in self.flat.local_offsets:
                raise PtxError("unknown to the emulator", "a call argument", where=where)
            slots.append(name)
        function = self.module.functions.get(ins.callee)
        if function is None:
            raise PtxError("PTX syntax", f"call of undeclared {ins.callee}", where=where)
        if function.external:
            builtin = BUILTINS.get(ins.callee)
            if not builtin:
                raise PtxError(
                    "unknown to the emulator", f"external function {ins.callee}", where=where
                )
            operands = tuple(Sym(slot) for slot in slots)
            flat_call = Instr(builtin, (), operands, ins.line, ins.loc, ins.guard)
            self.flat.body.append(rewrite.guarded(flat_call))
            return
        if len(returns) != len(function.returns) or len(args) != len(function.params):
            raise PtxError("PTX syntax", f"wrong number of arguments for {ins.callee}", where=where)
        for slot, param in zip(slots, (*function.returns, *function.params), strict=True):
            offset = self.flat.local_offsets[slot]
            if offset + param.size_bytes > self.flat.local_bytes:
                self.flat.local_bytes = offset + param.size_bytes
        self.count += 1
        suffix = f"#{self.count}"
        end = f"end{suffix}"
        symbols = {
            param.name: slot
            for param, slot in zip((*function.returns, *function.params), slots, strict=True)
        }
        if ins.guard is not None:
            guard = replace(rewrite.reg(ins.guard), negated=not ins.guard.negated)
            self.flat.body.append(Instr("bra", (), (Sym(end),), ins.line, ins.loc, guard))
        self.expand(function, suffix, symbols, end, stack)
        self.flat.body.append(Label(end))


class _Rewriter:
    """Gives operands the names that they have in the flat body."""

    def __init__(
        self, suffix: str, names: dict[str, str], slots: dict[str, int], *, inner: bool
    ) -> None:
        self.suffix = suffix
        self.names = names
        self.slots = slots
        self.inner = inner
        self.cache: dict[Operand, Operand] = {}

    def reg(self, reg: Reg) -> Reg:
        return Reg(reg.name + self.suffix, False, reg.negated)

    def operand(self, op: Operand | None) -> Operand | None:
        if op is None or isinstance(op, Imm):
            return op
        found = self.cache.get(op)
        if found is None:
            found = self.cache[op] = self._operand(op)
        return found

    def _operand(self, op: Operand) -> Operand:
        if isinstance(op, Reg):
            return op if op.special or not self.suffix else self.reg(op)
        if isinstance(op, Sym):
            return Sym(self.names.get(op.name, op.name), op.offset)
        if isinstance(op, Mem):
            base = self.operand(op.base)
            assert base is None or isinstance(base, Reg | Sym)
            coords = tuple(c for c in map(self.operand, op.coords) if c is not None)
            return Mem(base, op.offset, coords)
        if isinstance(op, Vec):
            return Vec(tuple(self.operand(item) for item in op.items))
        if isinstance(op, Pair):
            return Pair(self.operand(op.first), self.operand(op.second))
        return op

    def guarded(self, ins: Instr) -> Instr:
        return replace(ins, guard=self.reg(ins.guard) if ins.guard else None)

    def instr(self, ins: Instr) -> Instr:
        operands = tuple(self.operand(op) for op in ins.operands)
        mods = ins.mods
        if "param" in mods and ins.name in ("ld", "st"):
            mem = next((op for op in operands if isinstance(op, Mem)), None)
            base = mem.base if mem else None
            slot = isinstance(base, Sym) and base.name in self.slots
            if slot or (self.inner and isinstance(base, Reg)):
                mods = tuple("local" if mod == "param" else mod for mod in mods)
        if operands == ins.operands and mods == ins.mods and ins.guard is None:
            return ins
        guard = self.reg(ins.guard) if ins.guard else None
        return Instr(ins.name, mods, operands, ins.line, ins.loc, guard)


def _branch_around(body: list[Instr | Label]) -> list[Instr | Label]:
    """A guard on a barrier, a return or a warp operation becomes a branch around it."""
    out: list[Instr | Label] = []
    count = 0
    for item in body:
        if isinstance(item, Instr) and item.guard is not None and is_branch_only(item):
            count += 1
            label = f"around@{count}"
            guard = replace(item.guard, negated=not item.guard.negated)
            out.append(Instr("bra", ("$around",), (Sym(label),), item.line, item.loc, guard))
            out.append(replace(item, guard=None))
            out.append(Label(label))
        else:
            out.append(item)
    return out


def _symbols(ins: Instr) -> Iterator[str]:
    """Names of variables in an instruction's operands."""
    for operand in ins.operands:
        for op in operand.items if isinstance(operand, Vec) else (operand,):
            base = op.base if isinstance(op, Mem) else op
            if isinstance(base, Sym):
                yield base.name


def _place_shared(module: Module, shared: dict[str, Variable], flat: FlatEntry) -> None:
    """Static variables that the entry names, by falling alignment; dynamic ones after them."""
    used = {name for item in flat.body if isinstance(item, Instr) for name in _symbols(item)}
    offset = 0
    dynamic = []
    for name, variable in shared.items():
        if name not in used:
            continue
        if variable.dynamic:
            dynamic.append((name, variable.align))
            continue
        offset = -(-offset // variable.align) * variable.align
        flat.shared_offsets[name] = offset
        offset += variable.size_bytes
    flat.static_smem_bytes = offset
    align = max((a for _, a in dynamic), default=1)
    flat.dynamic_align = align
    start = -(-offset // align) * align
    for name, _ in dynamic:
        flat.shared_offsets[name] = start
