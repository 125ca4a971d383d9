"""Address, shape and strides of an array, and the bytes that it touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ArrayView", "may_overlap"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrayView:
    """Where an array lies.

    Attributes:
        address: byte address of element [0, 0, ...].
        shape: elements along each axis.
        strides: elements from one to the next along each axis; may be negative or 0.
        scalar: the lab's name of the element type, or NumPy's for one that it has none for.
        itemsize: bytes of an element.
        device: index of the CUDA device; None on the host.
        readonly: whether its owner forbids writing.
        stream: handle of the stream that fills it; None when nothing has to be waited for.
        owner: what keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    scalar: str
    itemsize: int
    device: int | None
    readonly: bool = False
    stream: int | None = None
    owner: Any = None

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def low(self) -> int:
        """Lowest byte address that is touched."""
        return self.address + self.itemsize * sum(
            (n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s < 0 and n > 0
        )

    @property
    def high(self) -> int:
        """One past the highest byte address that is touched; `low` when it is empty."""
        if self.size == 0:
            return self.low
        return self.address + self.itemsize * (
            1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s > 0)
        )


def may_overlap(first: ArrayView, second: ArrayView) -> bool:
    """Whether the byte ranges, from lowest to highest element, have a byte in common."""
    if not first.size or not second.size:
        return False
    return first.low < second.high and second.low < first.high
