"""gemm-lab emulate"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemm_lab.cli.options import ArchName, Json
from gemm_lab.cli.output import print_document, print_json
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.errors import UsageError, WrongResultError

if TYPE_CHECKING:
    from gemm_lab.lab.emulate import Emulation

__all__ = ["emulate"]

_DIMS = r"\d{1,10}(?:[,x]\d{1,10}){0,2}"


def emulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .cu or .ptx file.")],
    entry: Annotated[
        str | None,
        typer.Option(
            "--entry", metavar="NAME", help="The kernel, as in C++: name or 'name<32>'; if several."
        ),
    ] = None,
    grid: Annotated[str, typer.Option("--grid", metavar="X,Y,Z", help="Blocks.")] = "1",
    block: Annotated[
        str, typer.Option("--block", metavar="X,Y,Z", help="Threads of a block.")
    ] = "1",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            metavar="SPEC",
            help="An argument, in the kernel's order: A:fp32[100,50]=uniform:0 (or zeros, ones, "
            "arange, nan, 1.5, file.npy), M:i32=100, alpha:fp32=1.5, bias:null.",
        ),
    ] = None,
    smem: Annotated[
        int, typer.Option("--smem", metavar="BYTES", help="Dynamic shared memory of a block.")
    ] = 0,
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="X,Y,Z", help="Blocks of a cluster.")
    ] = "1",
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="C=A@B",
            help="What an array should hold, from the arguments as they were before; may be "
            "repeated.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            help="Allowed error as a share of the terms' magnitude; else from the types.",
        ),
    ] = None,
    dump: Annotated[
        Path | None,
        typer.Option("--dump", metavar="OUT.npz", help="Write every array, as it was left."),
    ] = None,
    counters: Annotated[
        bool, typer.Option("--counters", help="Memory traffic and instructions of all blocks.")
    ] = False,
    no_races: Annotated[
        bool, typer.Option("--no-races", help="Leave the race detector off: faster.")
    ] = False,
    exact_fma: Annotated[
        bool, typer.Option("--exact-fma", help="Round each fma once, as hardware does: slower.")
    ] = False,
    define: Annotated[
        list[str] | None,
        typer.Option("-D", "--define", metavar="NAME=VALUE", help="A macro; may be repeated."),
    ] = None,
    max_instructions: Annotated[
        int | None,
        typer.Option(
            "--max-instructions", metavar="COUNT", help="Stop a kernel that does not end."
        ),
    ] = None,
    arch: ArchName = None,
    as_json: Json = False,
) -> None:
    """Run any kernel on the emulator: faults, races, results, without a GPU.

    The kernel's file may have host code and a main: they are passed over. Exit code 3 says a wrong
    result or a race, 5 that it does not compile, 6 a fault.
    """
    from gemm_lab.lab.emulate import emulate as run_kernel

    if max_instructions is not None and max_instructions < 1:
        raise UsageError("--max-instructions must be 1 or more")
    if dump is not None and dump.is_dir():
        raise UsageError(f"--dump {dump} is a folder", hint=f"a file: {dump / 'arrays.npz'}")
    found = run_kernel(
        file,
        entry=entry,
        grid=_dims("--grid", grid),
        block=_dims("--block", block),
        args=arg or (),
        smem_bytes=smem,
        cluster=_dims("--cluster", cluster),
        arch=arch,
        expect=expect or (),
        tolerance=tolerance,
        races="off" if no_races else "all",
        counters="all" if counters else "off",
        exact_fma=exact_fma,
        defines=define or (),
        max_instructions=max_instructions,
    )
    if dump is not None:
        _dump(dump, found)
    if as_json:
        print_json(_data(found))
    else:
        from gemm_lab.report.emulation import emulation_document

        print_document(emulation_document(_data(found)))
    if not found.ok:
        raise typer.Exit(WrongResultError.exit_code)


def _dims(name: str, text: str) -> tuple[int, ...]:
    if not re.fullmatch(_DIMS, text.strip()):
        raise UsageError(f"{name} {text!r} cannot be read", hint=f"one to three: {name} 4,3")
    return tuple(int(part) for part in re.split("[,x]", text.strip()))


def _dump(path: Path, found: Emulation) -> None:
    import numpy

    try:
        with path.open("wb") as file:  # by its name alone NumPy would add an ending
            numpy.savez(file, **found.arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def _data(found: Emulation) -> dict[str, Any]:
    from dataclasses import asdict

    report = found.report
    return {
        "schema": SCHEMA,
        "file": found.file,
        "entry": found.entry,
        "arch": found.arch,
        "ok": found.ok,
        "blocks_run": report.blocks_run,
        "instructions_executed": report.instructions_executed,
        "expectations": [asdict(finding) for finding in found.findings],
        "races": [str(race) for race in found.races],
        "printf": list(report.printf_output),
        "counters": found.counters,
        "resources": None if found.resources is None else asdict(found.resources),
        "arrays": {
            name: {"dtype": str(array.dtype), "shape": list(array.shape)}
            for name, array in found.arrays.items()
        },
    }
