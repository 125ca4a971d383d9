"""Sets of active lanes. A mask broadcasts to [Ty, Tx, B] like every register."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array, Shape

__all__ = ["Mask"]


class Mask:
    """Lanes of a batch; the array is bool and of size 1 on axes that it doesn't depend on."""

    __slots__ = ("_fits", "_full", "array", "lanes", "shape")

    def __init__(self, array: Array, shape: Shape) -> None:
        self.array = array
        self.shape = shape
        self.lanes = int(np.count_nonzero(array)) * (
            (shape[0] * shape[1] * shape[2]) // max(array.size, 1)
        )
        self._fits: dict[Shape, Array] = {}
        self._full: Array | None = None

    def fit(self, shape: Shape) -> Array:
        """The mask for a value of `shape`: true where any lane that shares the value is active."""
        found = self._fits.get(shape)
        if found is None:
            array = self.array
            axes = tuple(a for a in range(3) if shape[a] == 1 and array.shape[a] != 1)
            fitted: Array = np.any(array, axis=axes, keepdims=True) if axes else array
            self._fits[shape] = fitted
            return fitted
        return found

    def full(self) -> Array:
        """The mask as [Ty, Tx, B], contiguous."""
        if self._full is None:
            self._full = np.ascontiguousarray(np.broadcast_to(self.array, self.shape))
        return self._full
