"""Arithmetic about kernels and cards: no GPU, no timing, no I/O but the device table."""

from gemm_lab.model.access import GlobalRequest, bank_wavefronts, global_request, run_sectors
from gemm_lab.model.device_file import load_devices, render_measured
from gemm_lab.model.devices import Device, MeasuredCeilings, find_device, peak_tflops
from gemm_lab.model.experiment import (
    OccupancyPoint,
    occupancy_paddings,
    occupancy_prediction,
    saturation_occupancy,
)
from gemm_lab.model.kernel_shape import KernelShape, SharedOperand
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
from gemm_lab.model.predict import Bound, BoundName, Prediction, UnitClass, Waves, predict
from gemm_lab.model.report import (
    DeviceReport,
    DeviceRow,
    LevelRow,
    ModelReport,
    device_report,
    device_rows,
    model_report,
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
from gemm_lab.model.traffic import Grid, Traffic, grid_of, traffic
from gemm_lab.model.what_if import OccupancyRow, Step, next_steps, what_if

__all__ = [
    "BandwidthPoint",
    "BlockResources",
    "Bound",
    "BoundName",
    "Ceiling",
    "Device",
    "DeviceReport",
    "DeviceRow",
    "GlobalRequest",
    "Grid",
    "KernelShape",
    "Level",
    "LevelRow",
    "Limiter",
    "LittlesLaw",
    "MeasuredCeilings",
    "ModelReport",
    "NoReuse",
    "Occupancy",
    "OccupancyPoint",
    "OccupancyRow",
    "Prediction",
    "Roofline",
    "SharedOperand",
    "Step",
    "Traffic",
    "UnitClass",
    "Waves",
    "bandwidth_curve",
    "bandwidth_gb_s",
    "bank_wavefronts",
    "bytes_per_cycle",
    "compulsory_bytes",
    "device_report",
    "device_rows",
    "find_device",
    "global_request",
    "grid_of",
    "hardware_occupancy",
    "ideal_intensity",
    "littles_law",
    "load_devices",
    "model_report",
    "next_steps",
    "no_reuse",
    "no_reuse_intensity",
    "occupancy_paddings",
    "occupancy_prediction",
    "peak_tflops",
    "predict",
    "render_measured",
    "roofline",
    "run_sectors",
    "saturation_occupancy",
    "textbook_occupancy",
    "tile_intensity",
    "traffic",
    "what_if",
]
