"""What an architecture allows of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemm_lab.core.arch import ArchLimits, arch_limits
from gemm_lab.emulator.faults import LaunchFault
from gemm_lab.emulator.module import EntryInfo
from gemm_lab.errors import GemmLabError

__all__ = ["Geometry", "check_limits", "find_limits"]

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """A launch's shape: blocks, threads of a block, blocks of a cluster; each (x, y, z)."""

    grid: Dim3
    block: Dim3
    cluster: Dim3


def find_limits(arch: str, limits: ArchLimits | None) -> ArchLimits | None:
    """The given limits, or those of the architecture; None where it is unknown."""
    if limits is not None:
        return limits
    try:
        return arch_limits(arch)
    except GemmLabError:
        return None


def _dim3(values: Sequence[int], name: str) -> Dim3:
    numbers = [int(v) for v in values]
    numbers += [1] * (3 - len(numbers))
    if len(numbers) > 3 or min(numbers) < 1:
        raise LaunchFault("launch", f"{name} {tuple(values)}: three numbers of 1 and up are needed")
    return numbers[0], numbers[1], numbers[2]


def check_limits(
    info: EntryInfo,
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int],
    smem_bytes: int,
    limits: ArchLimits | None,
) -> Geometry:
    """The launch's shape; LaunchFault says which limit it breaks."""
    shape = Geometry(
        grid=_dim3(grid, "grid"),
        block=_dim3(block, "block"),
        cluster=_dim3(cluster, "cluster"),
    )
    if info.cluster and shape.cluster == (1, 1, 1):
        shape = Geometry(grid=shape.grid, block=shape.block, cluster=_dim3(info.cluster, "cluster"))
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    max_threads = limits.max_threads_per_block if limits else 1024
    _limit(threads, max_threads, "threads in a block")
    _limit(shape.block[2], limits.max_block_z if limits else 64, "threads along z")
    _limit(shape.grid[0], limits.max_grid_x if limits else 2**31 - 1, "blocks along x")
    for axis in (1, 2):
        most = limits.max_grid_yz if limits else 65535
        _limit(shape.grid[axis], most, f"blocks along {'xyz'[axis]}")
    for bound, exact in ((info.max_ntid, False), (info.req_ntid, True)):
        if bound:
            most = 1
            for value in bound:
                most *= value
            if threads > most or (exact and threads != most):
                raise LaunchFault("launch", f"{threads} threads; the kernel is bound to {most}")
    if smem_bytes < 0:
        raise LaunchFault("launch", f"{smem_bytes} bytes of dynamic shared memory")
    total = info.static_smem_bytes + smem_bytes
    most = limits.smem_per_block_optin_bytes if limits else 227 * 1024
    if info.static_smem_bytes > 48 * 1024:
        raise LaunchFault(
            "launch",
            f"{info.static_smem_bytes} bytes of static shared memory; the limit is {48 * 1024}",
            hint="more must be dynamic",
        )
    _limit(total, most, "bytes of shared memory in a block")
    _limit(info.local_bytes, 512 * 1024, "bytes of local memory in a thread")
    if any(g % c for g, c in zip(shape.grid, shape.cluster, strict=True)):
        raise LaunchFault("launch", f"grid {shape.grid} is no multiple of cluster {shape.cluster}")
    _limit(shape.cluster[0] * shape.cluster[1] * shape.cluster[2], 16, "blocks in a cluster")
    return shape


def _limit(value: int, most: int, what: str) -> None:
    if value > most:
        raise LaunchFault("launch", f"{value} {what}; the limit is {most}")
