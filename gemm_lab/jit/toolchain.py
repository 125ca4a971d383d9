"""Which NVRTC and which headers there are: installed wheels first, then a CUDA toolkit."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemm_lab.jit.headers import HeaderSet

__all__ = ["Library", "cupy_majors", "find_header_sets", "find_libraries", "wheel_advice"]

_LIBRARY = re.compile(r"(?:libnvrtc\.so\.(\d+)(?:\.\d+)*|nvrtc64_(\d+)0_0\.dll)$")


@dataclass(frozen=True, kw_only=True)
class Library:
    """An NVRTC library file; `major` is that of its CUDA."""

    path: Path
    major: int
    origin: str


def wheel_advice(major: int) -> str:
    """The command that brings NVRTC and one whole header set."""
    if major <= 12:
        names = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12", "nvidia-cuda-nvcc-cu12")
        pins = "<13"
        return "pip install " + " ".join(f"'{name}{pins}'" for name in names)
    return (
        "pip install --upgrade nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt  "
        "(all of one release)"
    )


def find_libraries() -> tuple[Library, ...]:
    """Every NVRTC, the one to use first.

    CuPy's own CUDA generation leads, since its driver interface will load the result; then
    wheels before toolkits, newer before older.
    """
    found = {library.path: library for library in _libraries()}.values()
    majors = cupy_majors()
    return tuple(
        sorted(
            found,
            key=lambda x: (x.major not in majors, not x.origin.startswith("wheel"), -x.major),
        )
    )


def find_header_sets(major: int) -> tuple[HeaderSet, ...]:
    """Header sets of that CUDA generation: whole ones before those without crt/, wheels first."""
    found = [s for s in _header_sets(major) if s.version is None or s.version[0] == major]
    return tuple(sorted(found, key=lambda s: s.find("crt/mma.h") is None))


def cupy_majors() -> tuple[int, ...]:
    """CUDA generations of the installed CuPy packages, from their names; CuPy is not imported."""
    majors = set()
    for folder in _package_folders("cupy"):
        for info in folder.parent.glob("cupy_cuda*-*.dist-info"):
            if number := re.match(r"cupy_cuda(\d+)", info.name):
                majors.add(int(number[1]))
    return tuple(sorted(majors))


def _libraries() -> Iterator[Library]:
    for root in _package_folders("nvidia"):
        for folder in ("cuda_nvrtc", "cu13", "cu14"):
            for place in ("lib", "bin", "bin/x86_64"):
                yield from _in_folder(root / folder / place, "wheel nvidia-cuda-nvrtc")
    for home in _toolkits():
        for place in ("lib64", "lib", "targets/x86_64-linux/lib", "bin", "bin/x64"):
            yield from _in_folder(home / place, f"toolkit {home}")


def _in_folder(folder: Path, origin: str) -> Iterator[Library]:
    """One library a generation: the shortest name is the one that programs link to."""
    try:
        names = sorted(os.listdir(folder), key=len)
    except OSError:
        return
    seen = set()
    for name in names:
        match = _LIBRARY.match(name)
        major = int(match[1] or match[2]) if match else 0
        if match and major not in seen:
            seen.add(major)
            yield Library(path=folder / name, major=major, origin=origin)


def _header_sets(major: int) -> Iterator[HeaderSet]:
    for root in _package_folders("nvidia"):
        if major >= 13:
            folders: tuple[Path, ...] = (
                root / f"cu{major}" / "include",
                root / f"cu{major}" / "include" / "cccl",
            )
            origin = "wheels nvidia-cuda-runtime, nvidia-cuda-crt"
        else:
            names = ("cuda_runtime", "cuda_nvcc", "cuda_cccl")
            folders = tuple(root / name / "include" for name in names)
            origin = f"wheels nvidia-cuda-runtime-cu{major}, nvidia-cuda-nvcc-cu{major}"
        if (folders[0] / "cuda_fp16.h").is_file():
            yield HeaderSet(origin=origin, folders=tuple(f for f in folders if f.is_dir()))
    for home in _toolkits():
        for place in ("include", "targets/x86_64-linux/include"):
            folder = home / place
            if (folder / "cuda_fp16.h").is_file():
                folders = tuple(f for f in (folder, folder / "cccl") if f.is_dir())
                yield HeaderSet(origin=f"toolkit {home}", folders=folders)
                break


def _toolkits() -> list[Path]:
    """CUDA_HOME, CUDA_PATH, a conda environment, /usr/local/cuda*, the system's own; each once."""
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), sys.prefix]
    places = [Path(name) for name in named if name]
    places += [Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    places += [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr")]
    seen: dict[Path, Path] = {}
    for place in places:
        if place.is_dir():
            seen.setdefault(place.resolve(), place)
    return list(seen.values())


def _package_folders(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
