"""Where a kernel writes, and how the result reaches the caller's array."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemm_lab.core.problem import GemmProblem
from gemm_lab.gpu.arrays import ArrayView, copy_into, packed
from gemm_lab.lab.operands import Placed, fits, host_array, place
from gemm_lab.lab.prepare import reads_old_c

__all__ = ["bring_back", "overlaps_itself", "place_bias", "place_out"]


def overlaps_itself(c: ArrayView) -> bool:
    """Whether two elements of a view may share memory."""
    if not c.size:
        return False
    axes = sorted((abs(s), n) for s, n in zip(c.strides, c.shape, strict=True) if n > 1)
    reach = 0
    for stride, extent in axes:
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def place_out(problem: GemmProblem, c: ArrayView, backend: Any, *, aligned: bool) -> Placed:
    """Where the kernel writes: the array itself, or a packed stand-in that is copied back."""
    reads = reads_old_c(problem)
    if c.device is not None:
        ld = fits(c, "n")
        positive = c.shape[0] == 1 or c.strides[0] > 0
        if ld is not None and positive and not aligned:
            stride = c.strides[0] if c.shape[0] > 1 else 0
            return Placed(address=c.address, letter="n", ld=ld, batch_stride=stride, owner=c.owner)
        stand_in = packed(c, row_multiple=16 // c.itemsize if aligned else 1)
        return Placed(
            address=stand_in.address,
            letter="n",
            ld=stand_in.strides[1],
            batch_stride=stand_in.strides[0] if c.shape[0] > 1 else 0,
            owner=stand_in,
            copied=f"out was written through a copy: strides {c.strides[1:]}",
        )
    if reads:
        return place(c, "n", backend, name="out", aligned=aligned)
    batch, m, n = c.shape
    step = 16 // c.itemsize if aligned else 1
    ld = -(-n // step) * step
    buffer = backend.alloc(batch * m * ld * c.itemsize)
    return Placed(
        address=backend.address(buffer),
        letter="n",
        ld=ld,
        batch_stride=m * ld if batch > 1 else 0,
        owner=buffer,
    )


def place_bias(bias: ArrayView | None, backend: Any) -> Placed:
    """The bias, [n], as a row without gaps where the backend reads it; address 0 for none."""
    if bias is None:
        return Placed(address=0, letter="n", ld=1, batch_stride=0, owner=None)
    row = replace(bias, shape=(1, 1, *bias.shape), strides=(0, 0, *bias.strides))
    if bias.device is None:
        row = replace(row, owner=bias.owner.reshape(1, 1, -1))
    return place(row, "n", backend, name="bias")


def bring_back(problem: GemmProblem, c: ArrayView, placed: Placed, backend: Any) -> None:
    """Copy a stand-in into the caller's array."""
    batch, m, n = c.shape
    if c.device is None:
        whole = backend.download(placed.owner, problem.out.numpy(), (batch, m, placed.ld))
        host_array(c)[...] = whole[:, :, :n]
        backend.free(placed.owner)
    elif placed.copied:
        copy_into(placed.owner, c)
