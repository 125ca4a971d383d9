"""Groups a block's accesses by base register, so that each base is checked and indexed once."""

from __future__ import annotations

from typing import Any

from gemm_lab.emulator.ptx.cfg import Block
from gemm_lab.emulator.ptx.ir import Instr, Mem, Reg
from gemm_lab.emulator.ptx.opset import written_registers
from gemm_lab.emulator.ptx.types import TYPE_BYTES
from gemm_lab.emulator.runtime.groups import Access, AccessGroup, Site

__all__ = ["MEMORY_OPS", "BlockPlan", "memory_facts"]

MEMORY_OPS = frozenset({"ld", "st", "atom", "red", "ldu", "ldmatrix", "stmatrix"})
OPERATIONS = {"ldu": "ld", "red": "atom", "ldmatrix": "ld", "stmatrix": "st"}
SPACES = ("global", "shared", "local", "const", "param")


def memory_facts(ins: Instr) -> tuple[str, str, int, int] | None:
    """(space, PTX type, vector width, index of the address operand) of a load, store or atomic."""
    if ins.name in ("ldmatrix", "stmatrix"):
        return "shared", "b32", 4, 1 if ins.name == "ldmatrix" else 0
    kinds = [mod for mod in ins.mods if mod in TYPE_BYTES]
    if not kinds:
        return None
    space = next((mod.split(":")[0] for mod in ins.mods if mod.split(":")[0] in SPACES), "generic")
    space = {"const": "global", "param": "global"}.get(space, space)
    width = 8 if "v8" in ins.mods else 4 if "v4" in ins.mods else 2 if "v2" in ins.mods else 1
    at = 0 if ins.name in ("st", "red") else 1
    return space, kinds[-1], width, at


class BlockPlan:
    """Which group each access of a block belongs to; groups are shared by both versions."""

    def __init__(self, program: Any, block: Block) -> None:
        cache: dict[int, dict[int, AccessGroup]] = program.plans
        if block.index not in cache:
            cache[block.index] = self._group(block)
        self.groups = cache[block.index]

    def _group(self, block: Block) -> dict[int, AccessGroup]:
        groups: dict[Any, AccessGroup] = {}
        of: dict[int, AccessGroup] = {}
        versions: dict[str, int] = {}
        epoch = 0
        previous = ""
        for ins in block.instrs:
            if ins.name in MEMORY_OPS:
                facts = memory_facts(ins)
                if facts is not None and len(ins.operands) > facts[3]:
                    space, kind, width, at = facts
                    operation = OPERATIONS.get(ins.name, ins.name)
                    mem = ins.operands[at]
                    if space in ("shared", "generic") and operation != previous:
                        epoch += 1
                        previous = operation
                    if isinstance(mem, Mem):
                        unit = TYPE_BYTES[kind]
                        align = unit * width
                        base: Any = mem.base
                        version = versions.get(base.name, 0) if isinstance(base, Reg) else 0
                        spot = epoch if space in ("shared", "generic") else 0
                        own = ins.line if ins.guard is not None or operation == "atom" else -1
                        low = mem.offset % max(align, 4)
                        rows = ins.mods if "matrix" in ins.name else ()
                        apart = id(ins) if own >= 0 else 0
                        key = (
                            operation, space, base, version, unit, align, low, spot, apart, rows,
                        )  # fmt: skip
                        group = groups.get(key)
                        if group is None:
                            group = groups[key] = AccessGroup(operation, space, unit, align, [])
                        group.accesses.append(Access(mem.offset, align, Site(ins.line, ins)))
                        of[id(ins)] = group
            elif ins.name in ("bar", "barrier", "membar", "fence", "cp", "mbarrier", "wgmma"):
                epoch += 1
                previous = ""
            for name in written_registers(ins):
                versions[name] = versions.get(name, 0) + 1
        for group in groups.values():
            group.finish()
        return of

    def group(self, ins: Instr) -> AccessGroup | None:
        """The group of an access."""
        return self.groups.get(id(ins))
