"""What a variant file says, as frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gemm_lab.core.dtypes import DType, Layout
from gemm_lab.core.kernel import TunableValue
from gemm_lab.errors import UsageError, VariantError
from gemm_lab.variants.expressions import Expression
from gemm_lab.variants.lines import line_in

__all__ = [
    "DTypeSupport",
    "LaunchStep",
    "Rule",
    "TensorMapDecl",
    "Tunable",
    "Variant",
    "Workspace",
    "WorkspaceMap",
]


@dataclass(frozen=True, kw_only=True)
class Tunable:
    """A knob: a whole number of at least `minimum`, a switch, or one word of `choices`."""

    name: str
    default: TunableValue
    doc: str
    minimum: int = 1
    choices: tuple[str, ...] = ()
    search: tuple[TunableValue, ...] = ()

    @property
    def kind(self) -> str:
        """integer, switch or choice."""
        if self.choices:
            return "choice"
        return "switch" if isinstance(self.default, bool) else "integer"

    @property
    def candidates(self) -> tuple[TunableValue, ...]:
        """What a tuner tries: `search`, or every choice, or both ends of a switch."""
        if self.search:
            return self.search
        if self.choices:
            return self.choices
        return (False, True) if self.kind == "switch" else (self.default,)

    def parse(self, value: object) -> TunableValue:
        """A value from a command line or a call; UsageError says what is allowed."""
        if self.kind == "switch":
            words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
            key = str(value).lower()
            if key not in words:
                raise self._refuse(value, "true or false")
            return words[key]
        if self.kind == "choice":
            if value not in self.choices:
                raise self._refuse(value, f"one of {', '.join(self.choices)}")
            return str(value)
        try:
            number = int(str(value)) if not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not self.minimum <= number < 2**31:
            raise self._refuse(value, f"a whole number from {self.minimum} to {2**31 - 1}")
        return number

    def _refuse(self, value: object, wanted: str) -> UsageError:
        return UsageError(
            f"{self.name} = {value} cannot be used: {self.doc}", hint=f"{self.name} is {wanted}"
        )


@dataclass(frozen=True, kw_only=True)
class DTypeSupport:
    """One arithmetic of a variant: layouts, lowest architecture, defaults that differ.

    `fast_accumulation` tells whether the tensor cores' own sums are taken as they are, which for
    fp8 keeps fewer bits: the library is then held to the same.
    """

    dtype: DType
    layouts: tuple[Layout, ...]
    arch: str
    outs: tuple[str, ...]
    fast_accumulation: Expression
    defaults: Mapping[str, TunableValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A condition on the tunables, and what to say when it does not hold."""

    check: Expression
    say: str


@dataclass(frozen=True, kw_only=True)
class LaunchStep:
    """One launch of the kernel; all expressions may use the problem's sizes."""

    entry: str
    params: tuple[str, ...]
    grid: tuple[Expression, Expression, Expression]
    block: tuple[Expression, Expression, Expression]
    cluster: tuple[Expression, Expression, Expression]
    smem: Expression
    static_smem: Expression
    when: Expression


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Scratch memory for one call, in bytes, zeroed before each call when `zero`."""

    size_bytes: Expression
    zero: bool


@dataclass(frozen=True, kw_only=True)
class WorkspaceMap:
    """Where a map lies that is over the workspace.

    `offset` is in bytes; `dims` are elements, innermost first; `strides` the bytes of dims 1 and
    up.
    """

    offset: Expression
    dims: tuple[Expression, ...]
    strides: tuple[Expression, ...]


@dataclass(frozen=True, kw_only=True)
class TensorMapDecl:
    """A TMA map that the host encodes: box in elements, innermost first, and swizzle (a word).

    `source` is a word too: the operand itself, or "workspace" where `workspace` says how.
    """

    operand: str
    box: tuple[Expression, ...]
    swizzle: Expression
    source: Expression | None = None
    workspace: WorkspaceMap | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """A kernel idea: everything that its file says. Two readings of a file are two variants.

    `model` holds its [model] table by dotted key ("shared_a.vector_elements"); empty when the
    file has none.
    """

    name: str
    path: Path
    title: str
    idea: str
    after: str | None
    dtypes: Mapping[str, DTypeSupport]
    tunables: Mapping[str, Tunable]
    derived: Mapping[str, Expression]
    rules: tuple[Rule, ...]
    launches: tuple[LaunchStep, ...]
    workspace: Workspace | None
    tensor_maps: Mapping[str, TensorMapDecl]
    text: str
    body: str
    model: Mapping[str, Expression] = field(default_factory=dict)

    @property
    def entry(self) -> str:
        """Name of the first kernel function."""
        return self.launches[0].entry

    @property
    def batched(self) -> bool:
        """Whether one launch can do a whole batch."""
        return all("batch" in step.params for step in self.launches)

    def support(self, dtype: str) -> DTypeSupport:
        """Facts of one arithmetic; UsageError with what the variant can do."""
        if dtype not in self.dtypes:
            raise UsageError(
                f"{self.name} does not do {dtype}",
                hint=f"{self.name} does {', '.join(self.dtypes)}",
            )
        return self.dtypes[dtype]

    def tunable(self, name: str) -> Tunable:
        """A tunable by name; UsageError with the known ones."""
        if name not in self.tunables:
            raise UsageError(
                f"{self.name} has no tunable {name}",
                hint=f"tunables of {self.name}: {', '.join(self.tunables) or 'none'}",
            )
        return self.tunables[name]

    def names_behind(self, names: Iterable[str]) -> frozenset[str]:
        """These names and all that they are derived from."""
        pending, seen = list(names), set[str]()
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                if name in self.derived:
                    pending.extend(self.derived[name].names)
        return frozenset(seen)

    def operands_behind(self, rule: Rule) -> frozenset[str]:
        """Operands ("a", "b", "c") on whose alignment a rule depends."""
        behind = self.names_behind(rule.check.names)
        return frozenset(o for o in "abc" if {f"VEC_{o.upper()}", f"TMA_{o.upper()}"} & behind)

    def fault(self, key: str, message: str, *, hint: str | None = None) -> VariantError:
        """The error of a key of the file, with its line."""
        return VariantError(
            message, file=str(self.path), line=line_in(self.text, key), key=key, hint=hint
        )
