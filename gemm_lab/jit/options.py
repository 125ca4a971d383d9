"""NVRTC's options: few, fixed, recorded, in one order, and none of them a path."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gemm_lab.core.arch import arch_number
from gemm_lab.errors import UsageError

__all__ = ["FIXED_OPTIONS", "check_arch", "compile_options", "program_name", "safe_name"]

# 177 is "declared but never referenced": every kernel is given constants that it may not need.
FIXED_OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v", "--diag-suppress=177")

_ARCH = re.compile(r"--?(?:gpu-architecture|arch|gpu-code|code|gencode|generate-code)\b")
_PATH = re.compile(r"(?:-I|--?include-path|--?pre-include|-include)(?:=|$|[^-])")
_OTHER_OUTPUT = re.compile(
    r"--?(?:dlto|dlink-time-opt|gen-opt-lto|relocatable-device-code=true|rdc=true|device-c|dc"
    r"|time|pch|create-pch|use-pch|fdevice-time-trace|minimal)\b"
)
_STANDARD = re.compile(r"--?std=")


def compile_options(arch: str, extra: Iterable[str] = ()) -> tuple[str, ...]:
    """All options of a compilation, arch first; UsageError for one that cannot be given.

    -ftz and fast math are nowhere unless the caller names them.
    """
    chosen = tuple(extra)
    for option in chosen:
        if _ARCH.match(option):
            raise UsageError(
                f"compiler option {option!r} sets the architecture a second time",
                hint=f"the kernel is compiled for {arch}; choose another with --arch alone",
            )
        if _PATH.match(option):
            raise UsageError(
                f"compiler option {option!r} brings in files that the cache cannot see",
                hint="include shared device code in the template: //% include 'lib/...'",
            )
        if _OTHER_OUTPUT.match(option):
            raise UsageError(
                f"compiler option {option!r} is not supported: the lab needs PTX and a cubin "
                "of one compilation",
                hint="leave it out",
            )
    fixed = FIXED_OPTIONS[1:] if any(_STANDARD.match(o) for o in chosen) else FIXED_OPTIONS
    return (f"--gpu-architecture={arch}", *fixed, *chosen)


def check_arch(arch: str, supported: tuple[int, ...], nvrtc_version: str) -> None:
    """UsageError when this NVRTC does not know the architecture."""
    number = arch_number(arch)
    if number not in supported:
        names = ", ".join(f"sm_{n}" for n in supported)
        older = number < supported[0]
        hint = f"it compiles for {names}"
        if older:
            hint += "; older chips need the wheels of CUDA 12"
        raise UsageError(f"NVRTC {nvrtc_version} does not know {arch}", hint=hint)
    lowest = {"a": 90, "f": 100}.get(arch[-1], 0)
    if number < lowest:
        raise UsageError(
            f"{arch} does not exist: the suffix {arch[-1]} begins with sm_{lowest}{arch[-1]}",
            hint=f"write sm_{number}",
        )


def safe_name(name: str) -> str:
    """A word fit for file names everywhere: letters, digits, _ . -, at most 64."""
    word = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip(".-")[:64]
    return word or "kernel"


def program_name(name: str) -> str:
    """The file name that the line table shows."""
    return f"/gemm_lab/{safe_name(name)}.cu"
