"""What `gemm-lab devices` and `gemm-lab model` print, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import UsageError
from gemm_lab.model.devices import Device
from gemm_lab.model.kernel_shape import KernelShape
from gemm_lab.model.littles_law import LittlesLaw, littles_law
from gemm_lab.model.occupancy import Occupancy, textbook_occupancy
from gemm_lab.model.predict import BoundName, Prediction, predict
from gemm_lab.model.roofline import (
    Level,
    NoReuse,
    Roofline,
    ideal_intensity,
    no_reuse,
    no_reuse_intensity,
    roofline,
)
from gemm_lab.model.what_if import OccupancyRow, Step, next_steps, what_if

__all__ = [
    "DeviceReport",
    "DeviceRow",
    "LevelRow",
    "ModelReport",
    "device_report",
    "device_rows",
    "model_report",
]


@dataclass(frozen=True, kw_only=True)
class DeviceRow:
    """One line of the table of cards; ridge and crossover are fp32 against DRAM."""

    device: Device
    ridge_flop_per_byte: float
    crossover_n: float
    measured: bool


@dataclass(frozen=True, kw_only=True)
class DeviceReport:
    """A card and a product, no kernel yet.

    `laws` holds Little's law for the levels whose rate and latency are known.
    """

    device: Device
    problem: GemmProblem
    roofline: Roofline
    ends: NoReuse
    no_reuse_intensity_flop_per_byte: float
    ideal_intensity_flop_per_byte: float
    laws: tuple[LittlesLaw, ...]


@dataclass(frozen=True, kw_only=True)
class LevelRow:
    """Traffic of a kernel at one level against that level's ceiling.

    `gb_s`, `time_ms` and `attainable_tflops` are None where the card's rate is not known.
    """

    level: Level
    bytes: float
    intensity_flop_per_byte: float
    gb_s: float | None
    time_ms: float | None
    attainable_tflops: float | None


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """A kernel on a card: where its bytes go, what fits, what it waits for.

    `bytes_in_flight_per_sm` is what its resident blocks can have on the way at once, to be held
    against the laws in `about`.
    """

    device: Device
    problem: GemmProblem
    shape: KernelShape
    about: DeviceReport
    levels: tuple[LevelRow, ...]
    textbook: Occupancy
    hardware: Occupancy
    what_if: tuple[OccupancyRow, ...]
    steps: tuple[Step, ...]
    bytes_in_flight_per_sm: int
    prediction: Prediction

    @property
    def bound(self) -> BoundName:
        """What the kernel waits for."""
        return self.prediction.bound


def device_rows(devices: Mapping[str, Device]) -> tuple[DeviceRow, ...]:
    """All cards in the order of the table."""
    rows: list[DeviceRow] = []
    for device in devices.values():
        dram = roofline(device).ceiling(Level.DRAM)
        rows.append(
            DeviceRow(
                device=device,
                ridge_flop_per_byte=dram.ridge_flop_per_byte,
                crossover_n=dram.crossover_n,
                measured=device.measured is not None,
            )
        )
    return tuple(rows)


def device_report(device: Device, problem: GemmProblem) -> DeviceReport:
    """Roofline, the two ends of a product and Little's law; measured ceilings come first.

    Raises UsageError when the card has no peak for the product's dtype.
    """
    card = device.calibrated()
    size = problem.dtype.storage.size_bytes
    laws: list[LittlesLaw] = []
    for level in ("dram", "l2"):
        try:
            laws.append(littles_law(card, level))
        except UsageError:
            continue  # a rate or latency that nobody knows has no line in the report
    return DeviceReport(
        device=card,
        problem=problem,
        roofline=roofline(
            card, problem.dtype.name, input_bytes=size, output_bytes=problem.out.size_bytes
        ),
        ends=no_reuse(card, problem),
        no_reuse_intensity_flop_per_byte=no_reuse_intensity(size),
        ideal_intensity_flop_per_byte=ideal_intensity(problem),
        laws=tuple(laws),
    )


def model_report(device: Device, problem: GemmProblem, shape: KernelShape) -> ModelReport:
    """The whole model of one launch; measured ceilings come first.

    Raises UsageError for an empty product, a kernel that does not fit, or a dtype that the card
    has no peak for.
    """
    card = device.calibrated()
    about = device_report(device, problem)
    prediction = predict(card, shape, problem)
    moved = prediction.traffic
    found = {
        Level.DRAM: moved.dram_bytes,
        Level.L2: moved.l2_bytes,
        Level.SMEM: moved.shared_bytes,
    }
    return ModelReport(
        device=card,
        problem=problem,
        shape=shape,
        about=about,
        levels=tuple(
            _level(level, moved_bytes, about.roofline, problem)
            for level, moved_bytes in found.items()
            if moved_bytes
        ),
        textbook=textbook_occupancy(card.limits, shape.resources),
        hardware=prediction.occupancy,
        what_if=what_if(card.limits, shape.resources),
        steps=next_steps(card.limits, shape.resources),
        bytes_in_flight_per_sm=_in_flight_bytes(
            shape, prediction.occupancy.blocks_per_sm, problem.dtype.storage.size_bytes
        ),
        prediction=prediction,
    )


def _in_flight_bytes(shape: KernelShape, blocks: int, size: int) -> int:
    if shape.staging == "none":
        # The loads of the K steps that are issued together, of every thread.
        return blocks * shape.threads * (shape.thread_m + shape.thread_n) * shape.block_k * size
    ahead = max(1, shape.stages - 1)
    return blocks * ahead * (shape.block_m + shape.block_n) * shape.block_k * size


def _level(level: Level, moved_bytes: float, roof: Roofline, problem: GemmProblem) -> LevelRow:
    intensity = problem.shape.flop_count / moved_bytes
    rates = {ceiling.level: ceiling.gb_s for ceiling in roof.ceilings}
    rate = rates.get(level)
    return LevelRow(
        level=level,
        bytes=moved_bytes,
        intensity_flop_per_byte=intensity,
        gb_s=rate,
        time_ms=None if rate is None else moved_bytes / (rate * 1e9) * 1e3,
        attainable_tflops=None if rate is None else roof.attainable_tflops(intensity, level),
    )
