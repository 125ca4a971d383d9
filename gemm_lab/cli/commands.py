"""Every command there is: its name, where it lives, its one line of help.

To add one: a module with a function (Typer reads its signature and docstring) or a `typer.Typer`
of subcommands, and a line here. Nothing of it is imported before the command is called.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COMMANDS", "CommandEntry"]


@dataclass(frozen=True)
class CommandEntry:
    """A command: `attribute` of `module` is a function or a typer.Typer."""

    name: str
    module: str
    attribute: str
    help: str


COMMANDS: dict[str, CommandEntry] = {
    entry.name: entry
    for entry in (
        CommandEntry(
            "run", "gemm_lab.cli.run", "run", "Run one kernel: verify it, time it beside cuBLAS."
        ),
        CommandEntry(
            "sweep", "gemm_lab.cli.sweep", "sweep", "One kernel over values of its tunables."
        ),
        CommandEntry(
            "bench",
            "gemm_lab.cli.bench",
            "bench",
            "Kernels side by side, in the same rounds as cuBLAS.",
        ),
        CommandEntry(
            "compare",
            "gemm_lab.cli.compare",
            "compare",
            "Same, faster, slower or unclear: two kernels, or two recorded runs.",
        ),
        CommandEntry(
            "experiment",
            "gemm_lab.cli.experiment",
            "app",
            "One law of the hardware each: bandwidth over occupancy.",
        ),
        CommandEntry("results", "gemm_lab.cli.results", "results", "Show a file of measurements."),
        CommandEntry(
            "list", "gemm_lab.cli.list", "list_variants", "The ladder: every kernel and its knobs."
        ),
        CommandEntry(
            "show",
            "gemm_lab.cli.show",
            "show",
            "The rendered CUDA of a kernel, its PTX, or what differs between two.",
        ),
        CommandEntry(
            "doctor",
            "gemm_lab.cli.doctor",
            "doctor",
            "What is wrong with this machine, and the mend.",
        ),
        CommandEntry(
            "emulate",
            "gemm_lab.cli.emulate",
            "emulate",
            "Any kernel of a .cu or .ptx file on the emulator, without a GPU.",
        ),
        CommandEntry(
            "check",
            "gemm_lab.cli.check",
            "check",
            "Races, faults and wrong results of a variant on small ragged problems.",
        ),
        CommandEntry("cache", "gemm_lab.cli.cache", "app", "The compiled kernels on disk."),
        CommandEntry(
            "devices", "gemm_lab.cli.devices", "devices", "The cards that the model knows."
        ),
        CommandEntry(
            "model",
            "gemm_lab.cli.model",
            "model",
            "What a card can reach at most, from arithmetic.",
        ),
    )
}
