"""What can be wrong with compiler, headers and cache, each with its mend."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gemm_lab.core.checks import Check
from gemm_lab.errors import GemmLabError
from gemm_lab.jit.cache import Cache, default_cache
from gemm_lab.jit.compile import toolchain
from gemm_lab.jit.headers import BASE_HEADERS, HeaderSet
from gemm_lab.jit.probe import Toolchain
from gemm_lab.jit.toolchain import wheel_advice

__all__ = ["checks", "header_checks", "wheel_releases"]

_WHEELS = {
    12: ("nvidia_cuda_nvrtc_cu12", "nvidia_cuda_runtime_cu12", "nvidia_cuda_nvcc_cu12"),
    13: ("nvidia_cuda_nvrtc", "nvidia_cuda_runtime", "nvidia_cuda_crt"),
}


def checks(*, arch: str | None = None, cache: Cache | None = None) -> list[Check]:
    """NVRTC, headers, cache folder; with `arch` also whether it can be compiled for."""
    cache = cache or default_cache()
    return [*_toolchain_checks(arch, cache), _cache_check(cache)]


def _toolchain_checks(arch: str | None, cache: Cache) -> Iterator[Check]:
    try:
        tools = toolchain(cache)
        tools.nvrtc()
    except (GemmLabError, OSError) as error:
        mend = getattr(error, "hint", None) or wheel_advice(12)
        yield Check(
            name="NVRTC",
            status="error",
            detail=getattr(error, "message", str(error)),
            mend=mend,
        )
        return
    yield Check(
        name="NVRTC",
        status="ok",
        detail=f"{tools.nvrtc_version}, {tools.library.origin}: {tools.library.path}",
    )
    yield from header_checks(tools)
    yield _arch_check(tools, arch)


def header_checks(tools: Toolchain) -> Iterator[Check]:
    """One line for the header set, one for each thing wrong with it."""
    advice = wheel_advice(tools.library.major)
    headers = tools.headers
    if headers is None:
        yield Check(
            name="CUDA headers",
            status="error",
            detail=f"none of CUDA {tools.library.major} found; kernels that include any will fail",
            mend=advice,
        )
        return
    places = ", ".join(str(folder) for folder in headers.folders)
    missing = [name for name in (*BASE_HEADERS[:4], "crt/mma.h") if headers.find(name) is None]
    if missing:
        wheel = "nvidia-cuda-nvcc-cu12" if tools.library.major <= 12 else "nvidia-cuda-crt"
        about = f" (crt/mma.h is in the wheel {wheel})" if "crt/mma.h" in missing else ""
        yield Check(
            name="CUDA headers",
            status="error",
            detail=f"{', '.join(missing)} not in {places}{about}",
            mend=advice,
        )
        return
    yield Check(name="CUDA headers", status="ok", detail=f"{tools.header_set}: {places}")
    if reason := _mixed(tools, headers):
        yield Check(name="CUDA headers mixed", status="warning", detail=reason, mend=advice)


def _mixed(tools: Toolchain, headers: HeaderSet) -> str:
    """Why compiler and headers are not of one release; "" when they are."""
    build = tuple(int(part) for part in tools.nvrtc_version.split(".")[:2])
    if headers.version is not None and headers.version != build:
        release = ".".join(map(str, headers.version))
        return f"headers of CUDA {release} under NVRTC {tools.nvrtc_version}"
    releases = wheel_releases(headers.folders[0], tools.library.major)
    if headers.origin.startswith("wheel") and len({r[:2] for r in releases.values()}) > 1:
        told = ", ".join(f"{n} {'.'.join(map(str, r))}" for n, r in sorted(releases.items()))
        return f"wheels of different releases: {told}"
    return ""


def wheel_releases(include: Path, major: int) -> dict[str, tuple[int, ...]]:
    """Releases of the wheels that share a site-packages folder with these headers, by name."""
    site = next((p.parent for p in include.parents if p.name == "nvidia"), None)
    found: dict[str, tuple[int, ...]] = {}
    for wheel in _WHEELS.get(major, ()):
        for info in site.glob(f"{wheel}-*.dist-info") if site else ():
            if match := re.search(r"-(\d+(?:\.\d+)+)\.dist-info$", info.name):
                found[wheel.replace("_", "-")] = tuple(map(int, match[1].split(".")))
    return found


def _arch_check(tools: Toolchain, arch: str | None) -> Check:
    names = " ".join(f"sm_{number}" for number in tools.arch_numbers)
    number = re.fullmatch(r"sm_(\d+)[af]?", arch) if arch else None
    if arch and (number is None or int(number[1]) not in tools.arch_numbers):
        older = number is not None and int(number[1]) < tools.arch_numbers[0]
        return Check(
            name="architectures",
            status="error",
            detail=f"NVRTC {tools.nvrtc_version} does not know {arch}; it knows {names}",
            mend=wheel_advice(12) if older else wheel_advice(13),
        )
    return Check(name="architectures", status="ok", detail=names)


def _cache_check(cache: Cache) -> Check:
    info = cache.info()
    if info.writable:
        detail = f"{info.directory}: {info.entry_count} kernels, {info.size_bytes / 1e6:.1f} MB"
        return Check(name="kernel cache", status="ok", detail=detail)
    return Check(
        name="kernel cache",
        status="warning",
        detail=f"{info.directory} cannot be written; kernels are compiled anew in every process",
        mend="set GEMM_LAB_CACHE_DIR to a folder that can be written",
    )
