"""What can be wrong with driver, CuPy, devices and cuBLAS: facts first, judgement apart."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

from gemm_lab.core.arch import ARCHES, arch_number
from gemm_lab.core.checks import Check
from gemm_lab.errors import NoGpuError
from gemm_lab.gpu._cuda import cuda
from gemm_lab.gpu.device import GpuInfo, NoGpu, cuda_version_text, device_info, find_gpu

__all__ = ["Probe", "checks", "judge", "probe"]

GIB = 2**30
_CUPY_PREFIX = "cupy-cuda"
INSTALL_CUBLAS = "pip install 'gemm-lab[cublas]'"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Raw facts. CUDA versions as 12090 for 12.9; 0 where nothing answers.

    `cupy_packages` are the installed distributions that hold CuPy, as "cupy-cuda12x 14.2.0".
    `nvrtc_arches` are the numbers that this NVRTC compiles for; empty when it is not known.
    `cublas_version` as 120901, 0 where it did not start; then `cublas_fault` says why.
    `cublas_lt`, `nvml`: whether nvmath-python and nvidia-ml-py are installed.
    """

    cupy_packages: tuple[str, ...]
    cupy_fault: str
    driver_cuda: int
    runtime_cuda: int
    nvrtc_cuda: int
    nvrtc_arches: tuple[int, ...]
    devices: tuple[GpuInfo, ...]
    no_gpu: NoGpu | None
    cublas_version: int
    cublas_fault: str
    cublas_lt: bool
    nvml: bool


def checks() -> list[Check]:
    """The findings for this process and machine."""
    return judge(probe())


def judge(facts: Probe) -> list[Check]:
    """Each finding with its mend; pure."""
    return [
        *_cupy(facts),
        *_driver(facts),
        *_devices(facts),
        *_cublas(facts),
        *_nvml(facts),
    ]


def _cupy(facts: Probe) -> Iterator[Check]:
    packages = ", ".join(facts.cupy_packages)
    if len(facts.cupy_packages) > 1:
        names = [p.split()[0] for p in facts.cupy_packages]
        keep = _fitting_cupy(facts, names)
        yield Check(
            name="CuPy",
            status="error",
            detail=f"{packages} are installed together; they overwrite each other's files",
            mend=f"pip uninstall -y {' '.join(names)} && pip install {keep}",
        )
    elif facts.cupy_fault:
        yield Check(
            name="CuPy",
            status="error" if facts.cupy_packages else "absent",
            detail=facts.cupy_fault,
            mend="pip install cupy-cuda12x (CUDA 12) or cupy-cuda13x (CUDA 13)",
        )
    else:
        yield Check(name="CuPy", status="ok", detail=packages or "built from source")


def _fitting_cupy(facts: Probe, names: list[str]) -> str:
    """The newest of the installed ones that the driver can run."""
    usable = [n for n in names if _cupy_major(n) and _cupy_major(n) * 1000 <= facts.driver_cuda]
    return max(usable or [min(names, key=_cupy_major)], key=_cupy_major)


def _cupy_major(name: str) -> int:
    digits = name.removeprefix(_CUPY_PREFIX)[:2]
    return int(digits) if digits.isdigit() else 0


def _driver(facts: Probe) -> Iterator[Check]:
    if facts.driver_cuda == 0:
        reason = facts.no_gpu.reason if facts.no_gpu else "no NVIDIA driver is loaded"
        yield Check(
            name="driver",
            status="absent",
            detail=f"{reason}; kernels compile, and run on the emulator",
            mend=facts.no_gpu.mend if facts.no_gpu else "install the NVIDIA driver",
        )
        return
    driver = cuda_version_text(facts.driver_cuda)
    # Within a major version an older driver runs newer libraries; cubins need no more than that.
    for what, version in (("CuPy's runtime", facts.runtime_cuda), ("NVRTC", facts.nvrtc_cuda)):
        if version // 1000 > facts.driver_cuda // 1000:
            major = facts.driver_cuda // 1000
            yield Check(
                name="driver",
                status="error",
                detail=f"the driver knows CUDA {driver}, {what} is of {cuda_version_text(version)}",
                mend=f"update the driver to one of CUDA {version // 1000}, or install "
                f"cupy-cuda{major}x and NVRTC {major}",
            )
            return
    if facts.nvrtc_cuda > facts.driver_cuda:
        yield Check(
            name="driver",
            status="warning",
            detail=f"the driver knows CUDA {driver}, NVRTC is of "
            f"{cuda_version_text(facts.nvrtc_cuda)}: cubins run, its PTX does not load",
            mend="update the driver if PTX has to be loaded; the lab loads cubins",
        )
        return
    yield Check(name="driver", status="ok", detail=f"knows CUDA {driver}")


def _devices(facts: Probe) -> Iterator[Check]:
    if not facts.devices and facts.driver_cuda:
        yield Check(
            name="device",
            status="absent",
            detail=facts.no_gpu.reason if facts.no_gpu else "the driver reports no device",
            mend=facts.no_gpu.mend if facts.no_gpu else "check `nvidia-smi`",
        )
    for info in facts.devices:
        detail = (
            f"{info.name}, {info.arch}, {info.sm_count} multiprocessors, "
            f"{info.memory_bytes / GIB:.0f} GiB"
        )
        number = arch_number(info.arch)
        if facts.nvrtc_arches and number not in facts.nvrtc_arches:
            lowest, highest = min(facts.nvrtc_arches), max(facts.nvrtc_arches)
            older = number < lowest
            yield Check(
                name=f"device {info.index}",
                status="error",
                detail=f"{detail}; NVRTC {cuda_version_text(facts.nvrtc_cuda)} compiles for "
                f"sm_{lowest} to sm_{highest}",
                mend="install NVRTC and CuPy of CUDA 12, which still know it"
                if older and facts.nvrtc_cuda >= 13000
                else "install a newer NVRTC"
                if not older
                else "use a newer GPU",
            )
        elif number not in ARCHES:
            yield Check(
                name=f"device {info.index}",
                status="warning",
                detail=f"{detail}; the lab has no limits of {info.arch} on record",
                mend="kernels run; rules that need those limits say so",
            )
        else:
            yield Check(name=f"device {info.index}", status="ok", detail=detail)


def _cublas(facts: Probe) -> Iterator[Check]:
    if not facts.cublas_version:
        yield Check(
            name="cuBLAS",
            status="absent",
            detail=f"no baseline to compare with: {facts.cublas_fault or 'not installed'}",
            mend=INSTALL_CUBLAS,
        )
        return
    version = facts.cublas_version
    text = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    if facts.cublas_lt:
        yield Check(name="cuBLAS", status="ok", detail=f"{text}, cuBLASLt through nvmath-python")
    else:
        yield Check(
            name="cuBLAS",
            status="warning",
            detail=f"{text}; without nvmath-python cuBLASLt is not asked, and fp8 has no baseline",
            mend=INSTALL_CUBLAS,
        )


def _nvml(facts: Probe) -> Iterator[Check]:
    if facts.devices and not facts.nvml:
        yield Check(
            name="clocks",
            status="absent",
            detail="clocks and power are not recorded beside timings",
            mend="pip install 'gemm-lab[clocks]'",
        )


def probe() -> Probe:
    """Ask everything; nothing here fails."""
    cupy_fault = ""
    try:
        cuda()
    except NoGpuError as missing:
        cupy_fault = missing.message
    nvrtc_cuda, nvrtc_arches = _nvrtc()
    devices, no_gpu = _all_devices()
    cublas_version, cublas_fault = _cublas_facts(bool(devices))
    return Probe(
        cupy_packages=_cupy_packages(),
        cupy_fault=cupy_fault,
        driver_cuda=0 if cupy_fault else _version("driverGetVersion"),
        runtime_cuda=0 if cupy_fault else _version("runtimeGetVersion"),
        nvrtc_cuda=nvrtc_cuda,
        nvrtc_arches=nvrtc_arches,
        devices=devices,
        no_gpu=no_gpu,
        cublas_version=cublas_version,
        cublas_fault=cublas_fault,
        cublas_lt=importlib.util.find_spec("nvmath") is not None,
        nvml=importlib.util.find_spec("pynvml") is not None,
    )


def _version(call: str) -> int:
    try:
        return int(getattr(cuda().runtime, call)())
    except RuntimeError:
        return 0


def _cupy_packages() -> tuple[str, ...]:
    found = set()
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if name == "cupy" or name.startswith(_CUPY_PREFIX):
            found.add(f"{name} {distribution.version}")
    return tuple(sorted(found))


def _all_devices() -> tuple[tuple[GpuInfo, ...], NoGpu | None]:
    first = find_gpu(None)
    if isinstance(first, NoGpu):
        return (), first
    count = cuda().runtime.getDeviceCount()
    return tuple(device_info(index) for index in range(count)), None


def _nvrtc() -> tuple[int, tuple[int, ...]]:
    from gemm_lab.jit import supported_arches

    try:
        from cupy.cuda import nvrtc

        major, minor = nvrtc.getVersion()
    except (ImportError, RuntimeError):
        major = minor = 0
    try:
        arches = tuple(arch_number(a) for a in supported_arches())
    except Exception:  # the compiler's own checks say what is wrong with it
        arches = ()
    return major * 1000 + minor * 10, arches


def _cublas_facts(has_device: bool) -> tuple[int, str]:
    try:
        from cupy_backends.cuda.libs import cublas
    except ImportError as fault:
        return 0, str(fault).partition("\n")[0].partition(", No such")[0]
    if not has_device:
        return 0, "it is installed, and without a device it does not start"
    from cupy.cuda.device import get_cublas_handle

    try:
        return int(cublas.getVersion(get_cublas_handle())), ""
    except RuntimeError as fault:
        return 0, str(fault)
