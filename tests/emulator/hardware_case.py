"""What a hardware case is: one launch whose outputs a card and the emulator must agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["DTYPES", "PER_REGISTER", "Case", "TensorMapOver", "random_words"]

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "s8": np.int8,
    "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
PER_REGISTER = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4, "e4m3": 4, "e5m2": 4}


@dataclass(frozen=True)
class TensorMapOver:
    """An argument: a map over the array of another argument.

    `box` is innermost first; `dims`, as the box, are the array's own extents unless given.
    """

    argument: int
    box: tuple[int, ...]
    swizzle: str = "128B"
    dims: tuple[int, ...] | None = None
    round_tf32: bool = False

    def extents(self, array: np.ndarray) -> tuple[int, ...]:
        """Dimensions of the map, innermost first."""
        return self.dims or array.shape[::-1]

    def strides_bytes(self, array: np.ndarray) -> tuple[int, ...]:
        """Strides of all dimensions but the innermost."""
        return array.strides[::-1][1:]


@dataclass(frozen=True)
class Case:
    """One launch. `outputs` are numbers of array arguments; they must have equal bits unless
    `tolerance` (relative) or `absolute` says how far apart they may be."""

    name: str
    source: str
    args: tuple[Any, ...]
    outputs: tuple[int, ...]
    arch: str = "sm_80"
    grid: int = 1
    block: int = 32
    smem_bytes: int = 0
    tolerance: float = 0.0
    absolute: float = 0.0
    exact_fma: bool = True


def random_words(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """32-bit words of a shape whose elements are moderate numbers of a type."""
    rng = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        return rng.integers(0, 2**32, shape, dtype=np.uint32)
    wide = (*shape[:-1], shape[-1] * PER_REGISTER[kind])
    return rng.uniform(-2, 2, wide).astype(np.float32).astype(DTYPES[kind]).view(np.uint32)
