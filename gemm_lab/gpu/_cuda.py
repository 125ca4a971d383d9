"""CuPy, imported when it is first needed; nothing here runs at import."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemm_lab.errors import NoGpuError

__all__ = ["Cuda", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """The parts of CuPy that this room uses.

    `driver` and `runtime` are CuPy's thin wrappers of the two CUDA interfaces.
    """

    cupy: Any
    driver: Any
    runtime: Any
    module_class: Callable[[], Any]

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a failed CUDA call raises."""
        return (self.driver.CUDADriverError, self.runtime.CUDARuntimeError)


@functools.cache
def cuda() -> Cuda:
    """CuPy's modules; NoGpuError when it is missing or broken."""
    _prepare_environment()
    try:
        import cupy
        from cupy.cuda.function import Module
        from cupy_backends.cuda.api import driver, runtime
    except ImportError as fault:
        raise NoGpuError(
            f"CuPy cannot be imported: {fault}",
            hint="pip install cupy-cuda12x (CUDA 12) or cupy-cuda13x (CUDA 13), one of the two",
        ) from fault
    return Cuda(cupy=cupy, driver=driver, runtime=runtime, module_class=Module)


def _prepare_environment() -> None:
    """CUPY_CACHE_DIR must stand before the import when HOME cannot be written."""
    from gemm_lab.jit import prepare_cupy_environment

    prepare_cupy_environment()
