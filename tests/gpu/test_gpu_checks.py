"""What doctor says for each state of a machine."""

from __future__ import annotations

from typing import Any

import pytest

from gemm_lab.core.checks import Check
from gemm_lab.gpu.checks import Probe, judge, probe
from gemm_lab.gpu.device import DeviceLimits, GpuInfo, NoGpu

LIMITS = DeviceLimits(
    max_threads_per_block=1024,
    max_block_x=1024,
    max_block_y=1024,
    max_block_z=64,
    max_grid_x=2**31 - 1,
    max_grid_y=65535,
    max_grid_z=65535,
    smem_per_block_bytes=49152,
    smem_per_block_optin_bytes=232448,
    registers_per_block=65536,
)


def device(arch: str = "sm_90") -> GpuInfo:
    return GpuInfo(
        index=0,
        name="NVIDIA H200",
        arch=arch,
        sm_count=132,
        memory_bytes=141 * 2**30,
        l2_bytes=50 * 2**20,
        driver_cuda=13000,
        runtime_cuda=12090,
        limits=LIMITS,
    )


def facts(**changes: Any) -> Probe:
    values: dict[str, Any] = {
        "cupy_packages": ("cupy-cuda12x 14.2.0",),
        "cupy_fault": "",
        "driver_cuda": 13000,
        "runtime_cuda": 12090,
        "nvrtc_cuda": 12090,
        "nvrtc_arches": (50, 70, 75, 80, 86, 89, 90, 100, 120),
        "devices": (device(),),
        "no_gpu": None,
        "cublas_version": 120901,
        "cublas_fault": "",
        "cublas_lt": True,
        "nvml": True,
    }
    return Probe(**{**values, **changes})


def finding(name: str, **changes: Any) -> Check:
    (found,) = [c for c in judge(facts(**changes)) if c.name == name]
    return found


def test_all_well() -> None:
    found = judge(facts())
    assert [c.name for c in found] == ["CuPy", "driver", "device 0", "cuBLAS"]
    assert {c.status for c in found} == {"ok"}
    assert not any(c.mend for c in found)
    assert "sm_90" in found[2].detail
    assert "141 GiB" in found[2].detail


NO_DRIVER = NoGpu(reason="no NVIDIA driver is loaded", mend="install the NVIDIA driver")
BOTH = ("cupy-cuda12x 14.2.0", "cupy-cuda13x 14.2.0")


@pytest.mark.parametrize(
    ("changes", "name", "status", "detail", "mend"),
    [
        (
            {"driver_cuda": 0, "devices": (), "no_gpu": NO_DRIVER},
            "driver",
            "absent",
            "no NVIDIA driver",
            "install the NVIDIA driver",
        ),
        (
            {"driver_cuda": 12040, "nvrtc_cuda": 13000},
            "driver",
            "error",
            "knows CUDA 12.4, NVRTC is of 13.0",
            "cupy-cuda12x",
        ),
        (
            {"driver_cuda": 11080},
            "driver",
            "error",
            "CuPy's runtime is of 12.9",
            "update the driver",
        ),
        ({"driver_cuda": 12040}, "driver", "warning", "PTX does not load", "loads cubins"),
        (
            {"cupy_packages": BOTH},
            "CuPy",
            "error",
            "installed together",
            "pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install cupy-cuda13x",
        ),
        (
            {"cupy_packages": BOTH, "driver_cuda": 12080},
            "CuPy",
            "error",
            "installed together",
            "&& pip install cupy-cuda12x",
        ),
        (
            {"cupy_packages": (), "cupy_fault": "CuPy cannot be imported"},
            "CuPy",
            "absent",
            "cannot be imported",
            "pip install cupy-cuda12x",
        ),
        (
            {"devices": (), "no_gpu": NoGpu(reason="finds no device", mend="check `nvidia-smi`")},
            "device",
            "absent",
            "finds no device",
            "nvidia-smi",
        ),
        (
            {"devices": (device("sm_70"),), "nvrtc_cuda": 13000, "nvrtc_arches": (75, 80, 90)},
            "device 0",
            "error",
            "compiles for sm_75 to sm_90",
            "CUDA 12",
        ),
        (
            {"devices": (device("sm_130"),)},
            "device 0",
            "error",
            "sm_130",
            "newer NVRTC",
        ),
        (
            {"devices": (device("sm_130"),), "nvrtc_arches": ()},
            "device 0",
            "warning",
            "no limits",
            "kernels run",
        ),
        (
            {"cublas_version": 0, "cublas_fault": "libcublas.so.12 is not there"},
            "cuBLAS",
            "absent",
            "libcublas.so.12",
            "pip install 'gemm-lab[cublas]'",
        ),
        ({"cublas_lt": False}, "cuBLAS", "warning", "fp8 has no baseline", "gemm-lab[cublas]"),
        ({"nvml": False}, "clocks", "absent", "not recorded", "gemm-lab[clocks]"),
    ],
)
def test_each_fault_has_its_mend(
    changes: dict[str, Any], name: str, status: str, detail: str, mend: str
) -> None:
    found = finding(name, **changes)
    assert found.status == status
    assert detail in found.detail
    assert mend in found.mend


def test_probe_never_fails() -> None:
    found = judge(probe())
    assert {"CuPy", "driver"} <= {c.name for c in found}
    assert all(c.mend for c in found if c.status != "ok")
