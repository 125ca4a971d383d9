"""PTX modules: parsed, checked and ready to launch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from gemm_lab.emulator.codegen.code import Code
from gemm_lab.emulator.faults import PtxError
from gemm_lab.emulator.ptx.cfg import Program, analyse
from gemm_lab.emulator.ptx.flatten import flatten
from gemm_lab.emulator.ptx.ir import Module, Param
from gemm_lab.emulator.ptx.parse import parse_ptx

__all__ = ["EntryInfo", "LoadedModule", "load_ptx"]

_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class EntryInfo:
    """What a kernel declares.

    Attributes:
        params: in the kernel's order, each with type, size and alignment in bytes.
        static_smem_bytes: shared memory of a block, dynamic not counted.
        local_bytes: stack of a thread.
        max_ntid, req_ntid, cluster: launch bounds, or None.
        registers: virtual registers by PTX type; ptxas will need fewer.
    """

    name: str
    params: tuple[Param, ...]
    static_smem_bytes: int
    local_bytes: int
    max_ntid: tuple[int, ...] | None
    req_ntid: tuple[int, ...] | None
    cluster: tuple[int, ...] | None
    registers: Mapping[str, int]
    explicit_cluster: bool = False


class LoadedModule:
    """A checked module. `entries` maps an entry's name to what it declares."""

    def __init__(self, module: Module, ptx: str, source: str | None, arch: str | None) -> None:
        self.number = next(_numbers)
        self.module = module
        self.arch = arch or module.target
        self.source = source
        self._ptx = ptx
        self._ptx_lines: list[str] | None = None
        self.variables = frozenset(
            v.name for v in module.variables.values() if v.space in ("global", "const")
        )
        self.programs: dict[str, Program] = {}
        self.entries: dict[str, EntryInfo] = {}
        self._codes: dict[tuple[str, bool, bool], Code] = {}
        for function in module.functions.values():
            if function.entry:
                program = analyse(flatten(module, function))
                self.programs[function.name] = program
                self.entries[function.name] = _describe(program)
                self.code(function.name, watch=False, exact_fma=False).check()

    def code(self, entry: str, *, watch: bool, exact_fma: bool) -> Code:
        """The entry's functions under a set of options, made once."""
        key = (entry, watch, exact_fma)
        if key not in self._codes:
            code = Code(self.programs[entry], self.variables, watch=watch, exact_fma=exact_fma)
            code.ptx_line = self.ptx_line  # type: ignore[attr-defined]
            plain = self._codes.get((entry, False, False))
            if plain is not None:  # which was written as a whole when it was checked
                code.spinning = plain.spinning
            self._codes[key] = code
        return self._codes[key]

    def ptx_line(self, line: int) -> str | None:
        """The text of a PTX line, from 1."""
        if self._ptx_lines is None:
            self._ptx_lines = self._ptx.splitlines()
        lines = self._ptx_lines
        return lines[line - 1].strip() if 0 < line <= len(lines) else None


def _describe(program: Program) -> EntryInfo:
    flat = program.flat
    counts: dict[str, int] = {}
    for kind in program.types:
        counts[kind] = counts.get(kind, 0) + 1
    get = flat.directives.get
    return EntryInfo(
        name=flat.name,
        params=tuple(flat.params),
        static_smem_bytes=flat.static_smem_bytes,
        local_bytes=flat.local_bytes,
        max_ntid=get("maxntid"),
        req_ntid=get("reqntid"),
        cluster=get("reqnctapercluster"),
        registers=counts,
        explicit_cluster="explicitcluster" in flat.directives,
    )


def load_ptx(ptx: str, *, source: str | None = None, arch: str | None = None) -> LoadedModule:
    """Parse PTX, check that every instruction is known, and prepare its entries.

    `source` is the CUDA text, for messages; `arch` overrides the target that the PTX names.
    PtxError names instruction, PTX line and CUDA line of what cannot be run.
    """
    try:
        return LoadedModule(parse_ptx(ptx), ptx, source, arch)
    except RecursionError:
        raise PtxError("PTX syntax", "nested too deeply") from None
