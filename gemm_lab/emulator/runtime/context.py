"""What generated code reaches as X: one batch of blocks with all that it can do."""

from __future__ import annotations

from gemm_lab.emulator.runtime.atomics import Atomics
from gemm_lab.emulator.runtime.steer import Steer
from gemm_lab.emulator.runtime.warps import Warps
from gemm_lab.emulator.tensor.async_copy import AsyncCopies
from gemm_lab.emulator.tensor.bulk import BulkCopies
from gemm_lab.emulator.tensor.clusters import Clusters
from gemm_lab.emulator.tensor.fragments import Fragments
from gemm_lab.emulator.tensor.matrix_moves import MatrixMoves
from gemm_lab.emulator.tensor.wgmma import Wgmma

__all__ = ["Context"]


class Context(
    AsyncCopies, BulkCopies, Wgmma, MatrixMoves, Fragments, Clusters, Atomics, Warps, Steer
):
    """A batch in flight; see Machine for its state."""
