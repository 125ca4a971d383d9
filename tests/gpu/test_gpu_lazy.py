"""Importing the room costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gemm_lab.gpu
from gemm_lab.core.backend import Backend
from gemm_lab.errors import NoGpuError
from gemm_lab.gpu import GpuBackend, NoGpu, find_gpu

SCRIPT = """
import sys, gemm_lab.gpu, gemm_lab.gpu.arrays, gemm_lab.gpu.baseline, gemm_lab.gpu.timing
import gemm_lab.gpu.stopwatch, gemm_lab.gpu.checks
print(sorted(m for m in sys.modules if m.split(".")[0] in ("cupy", "cupy_backends", "nvmath")))
"""


def test_import_loads_no_cupy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_all_names_are_there() -> None:
    assert all(hasattr(gemm_lab.gpu, name) for name in gemm_lab.gpu.__all__)


def test_without_a_gpu_the_backend_says_why() -> None:
    found = find_gpu()
    if not isinstance(found, NoGpu):
        pytest.skip(f"there is a GPU: {found.name}")
    with pytest.raises(NoGpuError) as caught:
        GpuBackend()
    assert caught.value.message == found.reason
    assert caught.value.hint == found.mend


def _is_a_backend(backend: GpuBackend) -> Backend:
    return backend  # mypy checks the protocol here
