"""Any array as a kernel can read it: a layout letter and strides, or a copy that is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gemm_lab.core.dtypes import Layout
from gemm_lab.errors import UsageError
from gemm_lab.gpu.arrays import ArrayView, packed

__all__ = ["Lie", "Placed", "choose_layout", "fits", "host_array", "lies_as", "matrix", "place"]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """An operand in the backend's memory. `copied` says why, when it is a copy."""

    address: int
    letter: str
    ld: int
    batch_stride: int
    owner: Any
    copied: str | None = None


@dataclass(frozen=True, kw_only=True)
class Lie:
    """Where an operand would lie in a layout; `copied` when it has to be rearranged for that."""

    address: int
    ld: int
    batch_stride: int
    copied: bool


def matrix(view: ArrayView, name: str) -> ArrayView:
    """The view with three axes, [batch, rows, cols]; UsageError for other ranks."""
    if len(view.shape) == 3:
        return view
    if len(view.shape) == 2:
        return replace(view, shape=(1, *view.shape), strides=(0, *view.strides))
    raise UsageError(
        f"{name} has {len(view.shape)} axes {view.shape}",
        hint="pass a matrix [rows, cols] or a batch of them [batch, rows, cols]; "
        f"{name}.reshape(1, -1) makes a row of a vector",
    )


def fits(view: ArrayView, letter: str) -> int | None:
    """The leading dimension with which a 3-axis view has that layout, or None.

    Layout n needs neighbours along cols, t along rows. An axis of one element has no stride.
    """
    _, rows, cols = view.shape
    row_stride, col_stride = view.strides[1:]
    outer, inner = (rows, cols) if letter == "n" else (cols, rows)
    outer_stride, inner_stride = (
        (row_stride, col_stride) if letter == "n" else (col_stride, row_stride)
    )
    if inner > 1 and inner_stride != 1:
        return None
    if outer <= 1:
        return max(inner, 1)
    return outer_stride if outer_stride >= max(inner, 1) else None


def choose_layout(a: ArrayView, b: ArrayView, layouts: tuple[Layout, ...]) -> Layout:
    """The layout of a variant that needs the fewest copied bytes."""

    def cost(layout: Layout) -> int:
        return sum(
            0 if _usable(view, letter) else view.size * view.itemsize
            for view, letter in ((a, layout[0]), (b, layout[1]))
        )

    return min(layouts, key=cost)


def _usable(view: ArrayView, letter: str) -> bool:
    return fits(view, letter) is not None and (view.shape[0] == 1 or view.strides[0] >= 0)


def lies_as(view: ArrayView, letter: str) -> Lie:
    """How `place` would bring a 3-axis view to the backend, without doing it."""
    ld = fits(view, letter) if _usable(view, letter) else None
    if view.device is not None and ld is not None:
        stride = view.strides[0] if view.shape[0] > 1 else 0
        return Lie(address=view.address, ld=ld, batch_stride=stride, copied=False)
    batch, rows, cols = view.shape
    outer, inner = (rows, cols) if letter == "n" else (cols, rows)
    packed_ld = max(inner, 1)
    shared = batch == 1 or (view.device is None and view.strides[0] == 0)
    return Lie(
        address=0, ld=packed_ld, batch_stride=0 if shared else outer * packed_ld, copied=ld is None
    )


def place(
    view: ArrayView, letter: str, backend: Any, *, name: str, aligned: bool = False
) -> Placed:
    """Bring a 3-axis view to the backend in a layout; `aligned` asks for rows of whole 16 bytes.

    A device array that fits is used where it lies.
    """
    step = 16 // view.itemsize if aligned else 1
    if view.device is None:
        return _upload(view, letter, backend, step)
    ld = fits(view, letter)
    if ld is not None and _usable(view, letter) and not aligned:
        stride = view.strides[0] if view.shape[0] > 1 else 0
        return Placed(
            address=view.address, letter=letter, ld=ld, batch_stride=stride, owner=view.owner
        )
    turned = view if letter == "n" else _transposed(view)
    copy = packed(turned, row_multiple=step)
    why = "rows of whole 16 bytes are needed" if ld is not None else f"strides {view.strides[1:]}"
    return Placed(
        address=copy.address,
        letter=letter,
        ld=copy.strides[1],
        batch_stride=copy.strides[0] if view.shape[0] > 1 else 0,
        owner=copy.owner,
        copied=f"{name} was copied ({view.size * view.itemsize} bytes): {why}",
    )


def _transposed(view: ArrayView) -> ArrayView:
    (batch, rows, cols), (s0, s1, s2) = view.shape, view.strides
    return replace(view, shape=(batch, cols, rows), strides=(s0, s2, s1))


def host_array(view: ArrayView) -> Any:
    """The NumPy array behind a host view, with three axes."""
    import numpy

    array = view.owner
    assert isinstance(array, numpy.ndarray)
    return array.reshape(view.shape) if array.ndim == 2 else array


def _upload(view: ArrayView, letter: str, backend: Any, step: int) -> Placed:
    """A packed copy of a host array; rows are padded to whole 16 bytes when asked."""
    import numpy

    array = host_array(view)
    if view.shape[0] > 1 and view.strides[0] == 0:
        array = array[:1]  # one matrix for the whole batch
    if letter == "t":
        array = array.transpose(0, 2, 1)
    batch, outer, inner = array.shape
    ld = -(-max(inner, 1) // step) * step
    if ld != inner:
        wide = numpy.zeros((batch, outer, ld), array.dtype)
        wide[:, :, :inner] = array
        array = wide
    buffer = backend.upload(numpy.ascontiguousarray(array))
    return Placed(
        address=backend.address(buffer),
        letter=letter,
        ld=ld,
        batch_stride=outer * ld if batch > 1 else 0,
        owner=buffer,
    )
