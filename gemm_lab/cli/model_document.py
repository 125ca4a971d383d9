"""The model's reports as documents."""

from __future__ import annotations

from gemm_lab.model.littles_law import LittlesLaw
from gemm_lab.model.occupancy import Occupancy
from gemm_lab.model.report import DeviceReport, ModelReport
from gemm_lab.model.what_if import OccupancyRow
from gemm_lab.report.document import Document, Fact, Facts, Paragraph, Table
from gemm_lab.report.numbers import bytes_text, milliseconds, percent, significant

__all__ = ["device_document", "kernel_document"]


def device_document(about: DeviceReport) -> Document:
    """A card and a product, no kernel yet."""
    problem, roof, ends = about.problem, about.roofline, about.ends
    facts: tuple[Fact, ...] = (
        Fact(name="card", text=f"{about.device.name}, {about.device.arch}", style="strong"),
        Fact(
            name="product",
            text=f"{problem.shape}, {problem.dtype.name} to {problem.out.name}: "
            f"{ends.flop_count / 1e9:,.6g} GFLOP",
        ),
        Fact(name="peak", text=f"{significant(roof.peak_tflops)} TFLOP/s {roof.dtype}"),
        Fact(name="at the peak", text=milliseconds(ends.compute_ms)),
        Fact(
            name="every element once",
            text=f"{bytes_text(ends.ideal_bytes)}, {milliseconds(ends.ideal_dram_ms)} from DRAM, "
            f"{significant(about.ideal_intensity_flop_per_byte)} FLOP/byte",
        ),
        Fact(
            name="no reuse",
            text=f"{bytes_text(ends.no_reuse_bytes)}, {milliseconds(ends.no_reuse_dram_ms)} from "
            f"DRAM: {significant(ends.no_reuse_dram_ratio)} times the time at the peak, "
            f"{significant(about.no_reuse_intensity_flop_per_byte)} FLOP/byte",
        ),
    )
    if ends.no_reuse_l2_ms is not None and ends.no_reuse_l2_ratio is not None:
        l2 = Fact(
            name="no reuse, from L2",
            text=f"{milliseconds(ends.no_reuse_l2_ms)}: {significant(ends.no_reuse_l2_ratio)} "
            "times the time at the peak",
        )
        facts = (*facts, l2)
    document: Document = (Facts(facts=facts), _ceilings(about))
    if about.laws:
        document = (*document, _laws(about.laws))
    return (*document, Paragraph(text=f"figures: {about.device.source}", style="quiet"))


def kernel_document(variant: str, report: ModelReport) -> Document:
    """A kernel on a card."""
    prediction = report.prediction
    reached = report.problem.shape.flop_count / prediction.time_ms / 1e9
    facts = (
        Fact(name="kernel", text=variant, style="strong"),
        Fact(
            name="at least",
            text=f"{milliseconds(prediction.time_ms)}, so at most {significant(reached)} TFLOP/s",
            style="strong",
        ),
        Fact(name="waits for", text=str(report.bound.value), style="strong"),
        Fact(name="occupancy", text=_occupancy(report.hardware)),
        Fact(name="by the textbook", text=_occupancy(report.textbook)),
        Fact(name="in flight", text=f"{bytes_text(report.bytes_in_flight_per_sm)} an SM"),
        Fact(
            name="waves",
            text=f"{prediction.waves.blocks:,} blocks, {prediction.waves.blocks_per_wave:,} at "
            f"once, efficiency {percent(prediction.waves.efficiency)}",
        ),
    )
    levels = Table(
        title="traffic",
        columns=("level", "bytes", "FLOP/byte", "GB/s", "time", "attainable TFLOP/s"),
        right=frozenset({"bytes", "FLOP/byte", "GB/s", "time", "attainable TFLOP/s"}),
        rows=tuple(
            (
                row.level.value,
                bytes_text(row.bytes),
                significant(row.intensity_flop_per_byte),
                "?" if row.gb_s is None else significant(row.gb_s),
                "?" if row.time_ms is None else milliseconds(row.time_ms),
                "?" if row.attainable_tflops is None else significant(row.attainable_tflops),
            )
            for row in report.levels
        ),
    )
    return (Facts(facts=facts), levels, _what_if(report.what_if), *device_document(report.about))


def _ceilings(about: DeviceReport) -> Table:
    return Table(
        title="roofline",
        columns=("level", "GB/s", "ridge FLOP/byte", "crossover n"),
        right=frozenset({"GB/s", "ridge FLOP/byte", "crossover n"}),
        rows=tuple(
            (
                c.level.value,
                significant(c.gb_s),
                significant(c.ridge_flop_per_byte),
                significant(c.crossover_n),
            )
            for c in about.roofline.ceilings
        ),
    )


def _laws(laws: tuple[LittlesLaw, ...]) -> Table:
    return Table(
        title="Little's law: bytes in flight that keep a level busy",
        columns=("level", "latency cycles", "bytes/cycle", "in flight", "an SM"),
        right=frozenset({"latency cycles", "bytes/cycle", "in flight", "an SM"}),
        rows=tuple(
            (
                law.level,
                f"{law.latency_cycles:.0f}",
                f"{law.bytes_per_cycle:.0f}",
                bytes_text(law.bytes_in_flight),
                bytes_text(law.bytes_in_flight_per_sm),
            )
            for law in laws
        ),
    )


def _occupancy(found: Occupancy) -> str:
    limiters = ", ".join(limiter.value for limiter in found.limiters)
    return (
        f"{percent(found.fraction)}: {found.warps_per_sm} of {found.max_warps_per_sm} warps in "
        f"{found.blocks_per_sm} blocks an SM, limited by {limiters or 'nothing'}"
    )


def _what_if(rows: tuple[OccupancyRow, ...]) -> Table:
    return Table(
        title="what if",
        columns=("resource", "value", "occupancy", "by the textbook", "limited by"),
        right=frozenset({"value", "occupancy", "by the textbook"}),
        rows=tuple(
            (
                row.changed,
                f"{row.value:,}" + (" *" if row.current else ""),
                percent(row.hardware.fraction),
                percent(row.textbook.fraction),
                ", ".join(limiter.value for limiter in row.hardware.limiters),
            )
            for row in rows
        ),
        styles=tuple("strong" if row.current else "" for row in rows),
    )
