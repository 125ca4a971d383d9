"""The error tree and its exit codes.

GemmLabError                 1  internal
├── UsageError               2  bad input: a name, a shape, a value
│   ├── RuleError            2  tunables that break a rule of the variant
│   └── VariantError         2  a variant file that cannot be read
├── WrongResultError         3  a kernel computed something else
├── NoGpuError               4  a GPU was asked for and there is none
├── CompileError             5  NVRTC refused the source
├── LaunchError              6  the device (or the emulator) refused or broke off
│   └── ResourceError        6  more threads, registers or shared memory than there are
└── RegressionError          7  a comparison found something slower
"""

from __future__ import annotations

__all__ = [
    "CompileError",
    "GemmLabError",
    "LaunchError",
    "NoGpuError",
    "RegressionError",
    "ResourceError",
    "RuleError",
    "UsageError",
    "VariantError",
    "WrongResultError",
]


class GemmLabError(Exception):
    """What happened in one line, and a hint: what was needed, the limit, what to try."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(GemmLabError):
    """Input that cannot be used: an unknown name, a shape below zero, a value out of range."""

    exit_code = 2


class RuleError(UsageError):
    """Tunables that break one of the variant's rules; told before anything is compiled.

    `alignment_of` names the operands ("a", "b", "c") on whose alignment the rule depends: a copy
    of those may keep it.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        alignment_of: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(message, hint=hint)
        self.alignment_of = alignment_of


class VariantError(UsageError):
    """A variant file with a fault; says file, line and key."""

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        place = file if line is None else f"{file}:{line}"
        where = f"{place}: [{key}]" if key else place
        super().__init__(f"{where}: {message}", hint=hint)
        self.file = file
        self.line = line
        self.key = key


class WrongResultError(GemmLabError):
    """A result outside its error bound."""

    exit_code = 3


class NoGpuError(GemmLabError):
    """A GPU was asked for and none can be used."""

    exit_code = 4


class CompileError(GemmLabError):
    """NVRTC refused the source; `log` holds its messages, `source` the numbered text."""

    exit_code = 5

    def __init__(
        self, message: str, *, log: str = "", source: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.log = log
        self.source = source


class LaunchError(GemmLabError):
    """A launch that was refused or broke off."""

    exit_code = 6


class ResourceError(LaunchError):
    """A kernel that asks for more than a block, a thread or the card can have."""


class RegressionError(GemmLabError):
    """A comparison found something slower and was asked to fail on it."""

    exit_code = 7
