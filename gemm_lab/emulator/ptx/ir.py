"""The intermediate form: instructions, functions, variables. Plain data, free of NumPy."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "Function",
    "Imm",
    "Instr",
    "Label",
    "Loc",
    "Mem",
    "Module",
    "Operand",
    "Pair",
    "Param",
    "Reg",
    "Sym",
    "Variable",
    "Vec",
]


@dataclass(frozen=True, slots=True)
class Loc:
    """A CUDA source line; `file` is the path that the compiler was given."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Reg:
    """A register, or a special register when `special` is set."""

    name: str
    special: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal. `bits` is 32 or 64 for 0f.../0d... literals, 0 for integers and decimals."""

    value: int | float
    bits: int = 0


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable, or the name of a function or label."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Mem:
    """[base + offset]; a TMA coordinate list follows in `coords`."""

    base: Reg | Sym | None
    offset: int = 0
    coords: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    """{a, b, ...}; an item None is the sink `_`."""

    items: tuple[Operand | None, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """d|p: two destinations."""

    first: Operand | None
    second: Operand | None


Operand = Reg | Imm | Sym | Mem | Vec | Pair


@dataclass(slots=True)
class Instr:
    """One instruction. `name` and `mods` are the opcode's parts; `guard` its predicate."""

    name: str
    mods: tuple[str, ...]
    operands: tuple[Operand | None, ...]
    line: int
    loc: Loc | None
    guard: Reg | None = None
    callee: str = ""

    @property
    def opcode(self) -> str:
        return ".".join((self.name, *self.mods))


@dataclass(slots=True)
class Label:
    """A place that branches name."""

    name: str


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: bytes, alignment, PTX type, offset in the parameter block."""

    name: str
    type: str
    size_bytes: int
    align: int
    offset: int


@dataclass(slots=True)
class Variable:
    """A variable outside registers: space is global, const, shared, local or param."""

    name: str
    space: str
    size_bytes: int
    align: int
    dynamic: bool = False
    init: bytes = b""
    pointers: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Function:
    """An entry or a device function; `registers` maps each name to its PTX type."""

    name: str
    entry: bool
    line: int
    params: list[Param]
    returns: list[Param] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instr | Label] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    external: bool = False


@dataclass(slots=True)
class Module:
    """All of one PTX text."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
