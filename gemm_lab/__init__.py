"""A playground for JIT-compiled GPU matrix multiplication.

    import gemm_lab
    c = gemm_lab.matmul(a, b, variant="warp_tiled", BM=64)
    print(gemm_lab.kernel("shared", BLOCK_SIZE=32).resources)

Names are loaded when first used: importing the package loads neither CuPy nor NumPy.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemm_lab.errors import (
        CompileError,
        GemmLabError,
        LaunchError,
        NoGpuError,
        RegressionError,
        ResourceError,
        RuleError,
        UsageError,
        VariantError,
        WrongResultError,
    )
    from gemm_lab.lab.api import kernel, run
    from gemm_lab.lab.call import CopyWarning
    from gemm_lab.lab.choose import explain_choice
    from gemm_lab.lab.emulate import emulate
    from gemm_lab.lab.matmul import matmul
    from gemm_lab.lab.results import Results
    from gemm_lab.lab.sweep import sweep

__all__ = [
    "CompileError",
    "CopyWarning",
    "GemmLabError",
    "LaunchError",
    "NoGpuError",
    "RegressionError",
    "ResourceError",
    "Results",
    "RuleError",
    "UsageError",
    "VariantError",
    "WrongResultError",
    "emulate",
    "explain_choice",
    "kernel",
    "matmul",
    "run",
    "sweep",
    "variants",
]

_HOMES = {
    "matmul": "gemm_lab.lab.matmul",
    "CopyWarning": "gemm_lab.lab.call",
    "kernel": "gemm_lab.lab.api",
    "run": "gemm_lab.lab.api",
    "sweep": "gemm_lab.lab.sweep",
    "Results": "gemm_lab.lab.results",
    "emulate": "gemm_lab.lab.emulate",
    "explain_choice": "gemm_lab.lab.choose",
    **dict.fromkeys((n for n in __all__ if n.endswith("Error")), "gemm_lab.errors"),
}


def __getattr__(name: str) -> Any:
    if name == "variants":
        return importlib.import_module("gemm_lab.variants")
    if name == "__version__":
        from importlib.metadata import version

        return version("gemm-lab")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != _HOMES[name]:
            raise
        raise AttributeError(f"{name} is not part of this installation") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _CallableRoom(ModuleType):
    """The room `gemm_lab.variants`, which is also the function of that name."""

    def __call__(self, workbench: Any = None) -> list[Any]:
        """Every variant of the catalogue, each after the rung that it improves on."""
        from gemm_lab.lab import api

        return list(api.variants(workbench))


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # The import system sets a room on its package; this one gets its call here.
        if name == "variants" and isinstance(value, ModuleType):
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
