"""gemm-lab experiment"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gemm_lab.cli import options as o
from gemm_lab.cli.model_options import DeviceFile, GpuName, card_named, device_table
from gemm_lab.cli.output import print_document, print_json, progress
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.errors import NoGpuError, UsageError
from gemm_lab.report.document import Document, Paragraph, Table
from gemm_lab.report.numbers import bytes_text, percent, significant

if TYPE_CHECKING:
    from gemm_lab.lab.experiment import OccupancyExperiment

__all__ = ["app"]

app = typer.Typer(
    help="Small experiments that show one law of the hardware each.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_BAR = 30


@app.callback()
def experiment() -> None:
    """Keeps `occupancy` a subcommand while it is the only one."""


@app.command()
def occupancy(
    gpu: GpuName = None,
    smem_pad: Annotated[
        list[int] | None,
        typer.Option(
            "--smem-pad",
            metavar="BYTES",
            min=0,
            help="Shared memory added to each block; may be repeated. One for every number of "
            "resident blocks when left out.",
        ),
    ] = None,
    access: Annotated[
        Literal["read", "copy"], typer.Option("--access", help="Read an array, or copy it.")
    ] = "read",
    width: Annotated[
        Literal["4", "8", "16"], typer.Option("--width", help="Bytes of one load.")
    ] = "4",
    loads: Annotated[
        int,
        typer.Option("--loads", metavar="N", min=1, max=16, help="Loads a thread issues at once."),
    ] = 1,
    device: o.Device = None,
    device_file: DeviceFile = None,
    as_json: o.Json = False,
) -> None:
    """Bandwidth over occupancy: where more warps stop helping.

    A kernel reads or copies a large array; shared memory that it does not use keeps blocks away.
    On a GPU the bandwidth is measured beside the prediction of Little's law; with --gpu NAME it
    is predicted for that card, and nothing is run. Try --width 16 --loads 4: with more bytes on
    the way a thread, few warps suffice.
    """
    from gemm_lab.lab.experiment import occupancy_experiment

    table = device_table(device_file)
    backend = _backend(device) if gpu is None else None
    card = card_named(backend.device_name if backend is not None else gpu, table)
    try:
        found = occupancy_experiment(
            card.calibrated(),
            backend=backend,
            access=access,
            word_bytes=int(width),
            unroll=loads,
            paddings_bytes=smem_pad,
            progress=progress,
        )
    finally:
        progress("")
    if as_json:
        print_json({"schema": SCHEMA, "experiment": found})
    else:
        print_document(_document(found))


def _backend(device: int | None) -> Any:
    from gemm_lab.gpu import GpuBackend

    try:
        return GpuBackend(device)
    except NoGpuError as error:
        raise UsageError(
            f"which card? there is none here: {error.message}",
            hint="--gpu NAME predicts for a card of `gemm-lab devices`",
        ) from error


def _document(found: OccupancyExperiment) -> Document:
    measured = any(p.measured_gb_s is not None for p in found.points)
    best = max((p.measured_gb_s if measured else p.predicted_gb_s) or 0.0 for p in found.points)
    numbers = ("--smem-pad", "blocks an SM", "occupancy", "in flight", "expected GB/s",
               "measured GB/s")  # fmt: skip
    rows = []
    for p in found.points:
        rate = p.measured_gb_s if measured else p.predicted_gb_s
        rows.append(
            (
                str(p.smem_pad_bytes),
                str(p.blocks_per_sm),
                percent(p.occupancy),
                bytes_text(p.bytes_in_flight),
                "" if p.predicted_gb_s is None else significant(p.predicted_gb_s),
                "" if p.measured_gb_s is None else significant(p.measured_gb_s),
                "#" * round(_BAR * (rate or 0.0) / best) if best else "",
            )
        )
    kept = [i for i in range(7) if i != 5 or measured]
    columns = (*numbers, "")
    table = Table(
        title=f"{found.device}: {found.access} with {found.unroll} x {found.word_bytes} bytes on "
        "the way a thread",
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        right=frozenset(numbers),
    )
    lines = []
    if found.expected_knee is not None:
        lines.append(f"Little's law: more warps stop helping at {percent(found.expected_knee)}")
    elif any(p.predicted_gb_s is not None for p in found.points):
        lines.append("Little's law: even all warps do not fill the memory; widen the loads")
    if found.measured_knee is not None:
        lines.append(f"measured: 95% of the best is reached at {percent(found.measured_knee)}")
    lines += [f"note: {note}" for note in found.notes]
    return (table, Paragraph(text="\n".join(lines)))
