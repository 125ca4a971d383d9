"""Arithmetic about kernels and cards: no GPU, no timing, no I/O but the device table."""

from gemm_lab.model.device_file import load_devices, render_measured
from gemm_lab.model.devices import Device, MeasuredCeilings, find_device, peak_tflops
from gemm_lab.model.littles_law import (
    BandwidthPoint,
    LittlesLaw,
    bandwidth_curve,
    bandwidth_gb_s,
    bytes_per_cycle,
    littles_law,
)
from gemm_lab.model.occupancy import (
    BlockResources,
    Limiter,
    Occupancy,
    hardware_occupancy,
    textbook_occupancy,
)
from gemm_lab.model.roofline import (
    Ceiling,
    Level,
    NoReuse,
    Roofline,
    compulsory_bytes,
    ideal_intensity,
    no_reuse,
    no_reuse_intensity,
    roofline,
    tile_intensity,
)
from gemm_lab.model.what_if import OccupancyRow, Step, next_steps, what_if

__all__ = [
    "BandwidthPoint",
    "BlockResources",
    "Ceiling",
    "Device",
    "Level",
    "Limiter",
    "LittlesLaw",
    "MeasuredCeilings",
    "NoReuse",
    "Occupancy",
    "OccupancyRow",
    "Roofline",
    "Step",
    "bandwidth_curve",
    "bandwidth_gb_s",
    "bytes_per_cycle",
    "compulsory_bytes",
    "find_device",
    "hardware_occupancy",
    "ideal_intensity",
    "littles_law",
    "load_devices",
    "next_steps",
    "no_reuse",
    "no_reuse_intensity",
    "peak_tflops",
    "render_measured",
    "roofline",
    "textbook_occupancy",
    "tile_intensity",
    "what_if",
]
