"""gemm-lab devices"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemm_lab.cli.model_options import DeviceFile, device_table
from gemm_lab.cli.options import Json
from gemm_lab.cli.output import print_document, print_json
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.report.document import Document, Paragraph, Table
from gemm_lab.report.numbers import significant

if TYPE_CHECKING:
    from gemm_lab.model.report import DeviceRow

__all__ = ["devices"]


def devices(device_file: DeviceFile = None, as_json: Json = False) -> None:
    """The cards that the model knows: peaks, memory, and from which n a product is compute-bound.

    Peaks are dense. Ridge and crossover are those of fp32 against DRAM.
    """
    from gemm_lab.model.report import device_rows

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
