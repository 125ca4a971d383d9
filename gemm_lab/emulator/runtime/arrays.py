"""NumPy types under the names that the emulator uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DTYPES", "Array", "Shape", "any_of"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

DTYPES: dict[str, np.dtype[Any]] = {
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "u16": np.dtype(np.uint16),
    "f16": np.dtype(np.float16),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "f32": np.dtype(np.float32),
    "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(np.bool_),
}


def any_of(array: Array, axis: int) -> Array:
    """Logical or along one axis."""
    out: Array = np.any(array, axis=axis)
    return out
