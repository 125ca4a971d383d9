"""Address, shape and strides of an array, and the bytes that it touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ArrayView", "may_overlap"]

_MOST_WORK = 10_000


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
    """Whether two arrays have a byte in common; True where that takes long to find out.

    Two column slices of one matrix do not overlap, though their ranges do.
    """
    if not first.size or not second.size:
        return False
    if first.low >= second.high or second.low >= first.high:
        return False
    import numpy

    try:
        return bool(numpy.shares_memory(_shadow(first), _shadow(second), max_work=_MOST_WORK))  # type: ignore[arg-type]
    except (numpy.exceptions.TooHardError, ValueError, OverflowError):
        return True


class _Interface:
    """An address to NumPy; nothing reads there."""

    def __init__(self, view: ArrayView) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{view.itemsize}",
            "data": (view.address, True),
            "shape": view.shape,
            "strides": tuple(s * view.itemsize for s in view.strides),
        }


def _shadow(view: ArrayView) -> Any:
    """A NumPy array of the same place and strides, on whichever device that is."""
    import numpy

    return numpy.asarray(_Interface(view))
