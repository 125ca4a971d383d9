"""gemm-lab devices"""

from __future__ import annotations

from gemm_lab.cli.model_options import DeviceFile, device_table
from gemm_lab.cli.options import Json
from gemm_lab.cli.output import print_document, print_json
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.report.document import Document, Paragraph, Table
from gemm_lab.report.numbers import significant

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
    table = Table(
        columns=(
            "key",
            "card",
            "arch",
            "SMs",
            "clock MHz",
            "DRAM GB/s",
            "L2 MiB",
            "fp32 TFLOP/s",
            "fp16 TFLOP/s",
            "ridge FLOP/byte",
            "crossover n",
            "measured",
        ),
        right=frozenset(
            {
                "SMs",
                "clock MHz",
                "DRAM GB/s",
                "L2 MiB",
                "fp32 TFLOP/s",
                "fp16 TFLOP/s",
                "ridge FLOP/byte",
                "crossover n",
            }
        ),
        rows=tuple(
            (
                r.device.key,
                r.device.name,
                r.device.arch,
                str(r.device.sm_count),
                f"{r.device.boost_clock_mhz:.0f}",
                f"{r.device.dram_gb_s:.0f}",
                f"{r.device.l2_bytes / 2**20:.0f}",
                significant(r.device.fp32_tflops),
                significant(r.device.tensor_tflops["fp16"])
                if "fp16" in r.device.tensor_tflops
                else "-",
                significant(r.ridge_flop_per_byte, 3),
                significant(r.crossover_n, 3),
                "yes" if r.measured else "",
            )
            for r in rows
        ),
    )
    document: Document = (
        table,
        Paragraph(text="sources: gemm-lab devices --json", style="quiet"),
    )
    print_document(document)
