"""gemm-lab devices"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemm_lab.cli.model_options import DeviceFile, device_table, user_device_file
from gemm_lab.cli.options import Device, Json
from gemm_lab.cli.output import print_document, print_json, progress
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.report.document import Document, Fact, Facts, Paragraph, Table
from gemm_lab.report.numbers import significant

if TYPE_CHECKING:
    from gemm_lab.model.report import DeviceRow

__all__ = ["devices"]


def devices(
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure the ceilings of the GPU at hand, a few seconds, and keep them in the "
            "device file.",
        ),
    ] = False,
    device: Device = None,
    device_file: DeviceFile = None,
    as_json: Json = False,
) -> None:
    """The cards that the model knows: peaks, memory, and from which n a product is compute-bound.

    Peaks are dense. Ridge and crossover are those of fp32 against DRAM.
    """
    from gemm_lab.model.report import device_rows

    if measure:
        _measure(device, device_file or user_device_file(), as_json=as_json)
        return
    rows = device_rows(device_table(device_file))
    if as_json:
        print_json({"schema": SCHEMA, "devices": rows})
        return
    numbers = (
        "SMs",
        "DRAM GB/s",
        "fp32 TFLOP/s",
        "fp16 TFLOP/s",
        "ridge FLOP/B",
        "crossover n",
    )
    table = Table(
        columns=("key", "arch", *numbers, "card"),
        right=frozenset(numbers),
        rows=tuple(_row(row) for row in rows),
    )
    document: Document = (
        table,
        Paragraph(text="everything, with sources: gemm-lab devices --json", style="quiet"),
    )
    print_document(document)


def _measure(device: int | None, file: Path, *, as_json: bool) -> None:
    """The ceilings of a GPU, kept and shown; NoGpuError without one."""
    from gemm_lab.gpu import GpuBackend
    from gemm_lab.lab.ceilings import measure_ceilings, save_ceilings

    backend = GpuBackend(device)
    try:
        found = measure_ceilings(backend, progress=progress)
    finally:
        progress("")
    key = save_ceilings(file, backend, found)
    if as_json:
        print_json({"schema": SCHEMA, "key": key, "file": str(file), "measured": found})
        return
    facts = (
        ("SM clock", found.sm_clock_mhz, "MHz"),
        ("DRAM, copied", found.dram_gb_s, "GB/s"),
        ("L2, read", found.l2_gb_s, "GB/s"),
        ("shared memory, read", found.smem_gb_s, "GB/s"),
        ("fp32", found.fp32_tflops, "TFLOP/s"),
        ("DRAM latency", found.dram_latency_cycles, "cycles"),
        ("L2 latency", found.l2_latency_cycles, "cycles"),
        ("shared memory latency", found.smem_latency_cycles, "cycles"),
    )
    print_document(
        (
            Facts(
                title=f"{backend.device_name}, measured",
                facts=tuple(
                    Fact(name=name, text=f"{significant(value)} {unit}")
                    for name, value, unit in facts
                    if value is not None
                ),
            ),
            Paragraph(text=f"kept as {key} in {file}; the model uses it", style="quiet"),
        )
    )


def _row(row: DeviceRow) -> tuple[str, ...]:
    card = row.device
    fp16 = card.tensor_tflops.get("fp16")
    return (
        card.key,
        card.arch,
        str(card.sm_count),
        f"{card.dram_gb_s:.0f}",
        significant(card.fp32_tflops),
        "-" if fp16 is None else significant(fp16),
        significant(row.ridge_flop_per_byte, 3),
        significant(row.crossover_n, 3),
        card.name + (" (measured here)" if row.measured else ""),
    )
