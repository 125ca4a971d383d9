"""Runs of mma instructions that can be done as one product of stacked operands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from gemm_lab.emulator.ptx.ir import Instr, Operand, Reg, Vec
from gemm_lab.emulator.tensor.fragments import PER_REGISTER

__all__ = ["WMMA_SHAPES", "Atom", "MmaRun", "find_runs"]

SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
WMMA_SHAPES = ((16, 16), (32, 8), (8, 32))
Operands = tuple[Operand | None, ...]


@dataclass(frozen=True, slots=True)
class Atom:
    """One m16n8 product: registers of A, B, C and D."""

    a: Operands
    b: Operands
    c: Operands
    d: Operands


@dataclass(slots=True)
class MmaRun:
    """Neighbouring mma instructions of one kind; none reads what another writes."""

    kind_a: str
    kind_b: str
    kind_d: str
    chunks: int
    saturate: bool
    instrs: list[Instr] = field(default_factory=list)
    atoms: list[Atom] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def takes(self, other: MmaRun) -> bool:
        """True when another instruction can join."""
        same = (self.kind_a, self.kind_b, self.kind_d, self.chunks, self.saturate) == (
            other.kind_a, other.kind_b, other.kind_d, other.chunks, other.saturate,
        )  # fmt: skip
        return same and not (other.read & self.written) and not (other.written & self.written)

    def join(self, other: MmaRun) -> None:
        """Add another instruction."""
        self.instrs += other.instrs
        self.atoms += other.atoms
        self.read |= other.read
        self.written |= other.written


def _registers(operands: Operands) -> set[str]:
    return {op.name for op in operands if isinstance(op, Reg)}


def _items(ins: Instr, fail: Callable[[str], Exception]) -> list[Operands]:
    out: list[Operands] = []
    for op in ins.operands:
        if isinstance(op, Vec):
            out.append(op.items)
        elif isinstance(op, Reg):
            out.append((op,))
        else:
            raise fail("its operands")
    if len(out) != 4:
        raise fail("its operands")
    return out


def single(ins: Instr, fail: Callable[[str], Exception]) -> MmaRun:
    """The run of one mma.sync or wmma.mma instruction; `fail` makes the error for others."""
    shape = next((SHAPE.match(mod) for mod in ins.mods if SHAPE.match(mod)), None)
    if shape is None:
        raise fail("no shape")
    m, n, k = (int(v) for v in shape.groups())
    layouts = [mod for mod in ins.mods if mod in ("row", "col")]
    kinds = [mod for mod in ins.mods if mod in PER_REGISTER or mod in ("f32", "s32")]
    d, a, b, c = _items(ins, fail)
    if ins.name == "wmma":
        if len(kinds) == 2:  # f16 operands: the types of D and C only
            kinds = [kinds[0], "f16", "f16", kinds[1]]
        if len(kinds) != 4:
            raise fail("its types")
        return _wmma(ins, (m, n, k), kinds, (d, a, b, c), fail)
    if len(kinds) != 4 or (m, n) != (16, 8) or layouts != ["row", "col"]:
        raise fail("its shape or types")
    return _run(ins, k, kinds, [Atom(a, b, c, d)], fail)


def _run(
    ins: Instr, k: int, kinds: list[str], atoms: list[Atom], fail: Callable[[str], Exception]
) -> MmaRun:
    kind_d, kind_a, kind_b, kind_c = kinds
    per = PER_REGISTER.get(kind_a)
    if per is None or PER_REGISTER.get(kind_b) != per or kind_c != kind_d:
        raise fail("its types")
    chunks = k // (4 * per)
    width = 2 if kind_d == "f16" else 4
    for atom in atoms:
        sizes = (len(atom.a), len(atom.b), len(atom.c), len(atom.d))
        if sizes != (2 * chunks, chunks, width, width):
            raise fail("its number of registers")
    run = MmaRun(kind_a, kind_b, kind_d, chunks, "satfinite" in ins.mods, [ins], atoms)
    for atom in atoms:
        run.read |= _registers(atom.a) | _registers(atom.b) | _registers(atom.c)
        run.written |= _registers(atom.d)
    return run


def _wmma(
    ins: Instr,
    shape: tuple[int, int, int],
    kinds: list[str],
    operands: list[Operands] | tuple[Operands, Operands, Operands, Operands],
    fail: Callable[[str], Exception],
) -> MmaRun:
    """wmma.mma as m16n8 atoms, in the layout of tensor.tiles."""
    m, n, k = shape
    d, a, b, c = operands
    per = PER_REGISTER.get(kinds[1], 0)
    if not per or (m, n) not in WMMA_SHAPES:
        raise fail("its shape")
    if m == 8:
        m, n, a, b, kinds = n, m, b, a, [kinds[0], kinds[2], kinds[1], kinds[3]]
    chunks = k // (4 * per)
    down, across = m // 16, n // 8
    width = 2 if kinds[0] == "f16" else 4
    if len(a) < 2 * chunks * down or len(b) < chunks * across or len(d) != width * down * across:
        raise fail("its number of registers")
    atoms = []
    for i in range(down):
        for j in range(across):
            at = (i * across + j) * width
            atoms.append(
                Atom(
                    a[2 * chunks * i : 2 * chunks * (i + 1)],
                    b[chunks * j : chunks * (j + 1)],
                    c[at : at + width],
                    d[at : at + width],
                )
            )
    return _run(ins, k, kinds, atoms, fail)


def find_runs(
    instrs: list[Instr], fail: Callable[[Instr, str], Exception]
) -> dict[int, MmaRun | None]:
    """For each mma of a block, by id: its run at the first of it, None at the others."""
    out: dict[int, MmaRun | None] = {}
    run: MmaRun | None = None
    for ins in instrs:
        if ins.name == "mma" or (ins.name == "wmma" and "mma" in ins.mods):
            if "f64" in ins.mods or ins.guard is not None:
                run = None
                continue
            one = single(ins, lambda why, ins=ins: fail(ins, why))  # type: ignore[misc]
            if run is not None and run.takes(one):
                run.join(one)
                out[id(ins)] = None
            else:
                run = one
                out[id(ins)] = run
        else:
            run = None
    return out
