"""emulate: any kernel, from a .cu or .ptx file, on the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_lab import jit
from gemm_lab.core.kernel import Resources
from gemm_lab.emulator import EmulatorFault, LaunchReport, Memory, Options
from gemm_lab.emulator import launch as launch_kernel
from gemm_lab.emulator.options import Watch
from gemm_lab.errors import UsageError
from gemm_lab.lab.expect import Expectation, read_expectation
from gemm_lab.lab.expect_bound import Finding
from gemm_lab.lab.findings import counters_of, race_texts
from gemm_lab.lab.kernel_arguments import ArrayArgument, KernelArgument, read_arguments
from gemm_lab.lab.kernel_file import KernelFile, load_kernel_file

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Emulation", "emulate"]

Array = Any


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """What a launch left behind.

    Attributes:
        entry: its name in the PTX. file: where the source came from.
        arrays: every array argument by name, as the kernel left it.
        findings: one for each expectation. report: races, counters, printf output.
        resources: of ptxas, None for a .ptx file.
        virtual: what the line table calls the file.
    """

    entry: str
    file: str
    arch: str
    arrays: Mapping[str, np.ndarray[Any, Any]]
    findings: tuple[Finding, ...]
    report: LaunchReport
    resources: Resources | None = None
    virtual: str | None = None

    @property
    def races(self) -> tuple[str, ...]:
        """What the race detector tells, with lines of the user's file."""
        return race_texts([self.report], self.virtual, self.file)

    @property
    def counters(self) -> dict[str, Any] | None:
        """Memory traffic and instructions; None when they were off."""
        return counters_of([self.report], lines=True)

    @property
    def ok(self) -> bool:
        """No race, and everything as expected."""
        return not self.report.races and all(f.ok for f in self.findings)


def emulate(
    source: str | Path,
    *,
    entry: str | None = None,
    grid: Sequence[int] | int = 1,
    block: Sequence[int] | int = 1,
    args: Sequence[Any] | Mapping[str, Any] = (),
    smem_bytes: int = 0,
    cluster: Sequence[int] = (1, 1, 1),
    arch: str | None = None,
    expect: str | Sequence[str] = (),
    tolerance: float | None = None,
    races: Watch = "all",
    counters: Watch = "off",
    exact_fma: bool = False,
    defines: Sequence[str] = (),
    max_instructions: int | None = None,
    cache: jit.Cache | None = None,
) -> Emulation:
    """Run one kernel of a file on the emulator and look at what hardware hides.

    Args:
        source: a .cu or .ptx file, or its text. Host functions, launches and headers of a .cu file
            are passed over; lines keep their numbers.
        entry: the kernel's C++ name, "kernel<32>" for a template; the only one when None.
        grid, block, cluster: (x, y, z); what is left out is 1.
        args: in the kernel's order: NumPy arrays (which take the result), numbers, None for a
            null pointer, or texts such as "A:fp32[100,50]=uniform:0"; a mapping names them.
        smem_bytes: dynamic shared memory.
        arch: compile for it and hold its limits; sm_80, or the target of a .ptx file.
        expect: "C = A @ B"; see gemm_lab.lab.expect. tolerance: a share of the terms' magnitude.
        defines: macros, "TILE=16".

    Raises:
        UsageError: arguments that do not fit the kernel. CompileError: from NVRTC. EmulatorFault:
        the kernel broke a rule of the machine. A wrong result or a race is told, not raised.
    """
    arguments = read_arguments(args)
    known = {a.name: a.before for a in arguments if isinstance(a, ArrayArgument)}
    scalars = _scalars(arguments)
    texts = [expect] if isinstance(expect, str) else list(expect)
    wanted = [read_expectation(text, {**scalars, **known}) for text in texts]
    for expectation in wanted:
        if expectation.target not in known:
            raise UsageError(f"--expect {expectation.text!r}: {expectation.target} is no array")
    code = load_kernel_file(source, entry, arch, defines, cache)
    memory = Memory()
    packed, buffers = _place(code, arguments, memory)
    options = Options(races=races, counters=counters, exact_fma=exact_fma)
    if max_instructions is not None:
        options = replace(options, max_instructions=max_instructions)
    try:
        report = launch_kernel(
            code.module,
            code.entry,
            grid=_dims(grid),
            block=_dims(block),
            cluster=cluster,
            smem_bytes=smem_bytes,
            args=packed,
            memory=memory,
            options=options,
        )
    except EmulatorFault as fault:
        raise code.in_users_file(fault) from None
    after = {
        a.name: memory.download(buffers[a.name], a.dtype, a.shape)
        for a in arguments
        if isinstance(a, ArrayArgument)
    }
    for argument in arguments:
        if isinstance(argument, ArrayArgument) and argument.target is not None:
            argument.target[...] = after[argument.name]
    return Emulation(
        entry=code.entry,
        file=code.file,
        arch=code.module.arch,
        arrays=after,
        findings=_findings(wanted, {**scalars, **known}, after, tolerance),
        report=report,
        resources=code.resources,
        virtual=code.virtual,
    )


def _findings(
    wanted: Sequence[Expectation],
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    tolerance: float | None,
) -> tuple[Finding, ...]:
    return tuple(e.check(before, after[e.target], tolerance=tolerance) for e in wanted)


def _scalars(arguments: Sequence[KernelArgument]) -> dict[str, Array]:
    import numpy

    found = {}
    for argument in arguments:
        if not isinstance(argument, ArrayArgument) and argument.value is not None:
            found[argument.name] = numpy.asarray(argument.value)
    return found


def _dims(values: Sequence[int] | int) -> tuple[int, ...]:
    return (values,) if isinstance(values, int) else tuple(values)


# ---- arguments ----


def _place(
    code: KernelFile, arguments: Sequence[KernelArgument], memory: Memory
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as the emulator takes them, checked against the kernel's parameters."""
    params = code.module.entries[code.entry].params
    if len(params) != len(arguments):
        sizes = ", ".join(str(p.size_bytes) for p in params) or "none"
        raise UsageError(
            f"{code.entry} takes {len(params)} arguments, {len(arguments)} were given",
            hint=f"in the kernel's order, of these sizes in bytes: {sizes}",
        )
    packed: list[Any] = []
    buffers: dict[str, Any] = {}
    for number, (param, argument) in enumerate(zip(params, arguments, strict=True), 1):
        size = param.size_bytes
        if isinstance(argument, ArrayArgument) or argument.value is None:
            _check_size(argument.name, number, size, 8, "a pointer")
            if isinstance(argument, ArrayArgument):
                buffers[argument.name] = memory.upload(argument.before, name=argument.name)
                packed.append(buffers[argument.name])
            else:
                packed.append(0)
            continue
        value = argument.value
        if argument.typed:
            _check_size(argument.name, number, size, value.nbytes, str(value.dtype))
            packed.append(value.tobytes())
        else:
            packed.append(value)
    return packed, buffers


def _check_size(name: str, number: int, needed: int, given: int, what: str) -> None:
    if needed != given:
        hint = {4: "i32, u32 or fp32", 8: "i64, u64, fp64 or an array", 2: "i16, fp16 or bf16",
                1: "i8, u8 or bool"}.get(needed, f"a value of {needed} bytes")  # fmt: skip
        raise UsageError(
            f"argument {number}, {name}, is {what} of {given} bytes; the kernel's parameter "
            f"{number} has {needed}",
            hint=f"it takes {hint}; arguments stand in the kernel's order",
        )
