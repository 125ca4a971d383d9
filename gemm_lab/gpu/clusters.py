"""How many clusters of a launch a card holds at once.

A cluster's blocks share a GPC, and GPCs of one card differ in size: no formula of the number of
multiprocessors gives the answer, the driver does.
"""

from __future__ import annotations

from math import prod

from gemm_lab.core.kernel import KernelLaunch

__all__ = ["resident_clusters"]


def resident_clusters(function: int, launch: KernelLaunch) -> int | None:
    """By the driver's occupancy calculation; None where cuda-bindings cannot be asked.

    The device must be current, and the function opted in to its shared memory.
    """
    if prod(launch.cluster) == 1:
        return None  # the driver answers for blocks elsewhere
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    config = driver.CUlaunchConfig()
    # The cluster's size is the function's own; the grid only has to be whole clusters.
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.cluster
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.smem_bytes
    try:
        status, count = driver.cuOccupancyMaxActiveClusters(driver.CUfunction(function), config)
    except (RuntimeError, AttributeError):  # a driver before CUDA 11.8
        return None
    return int(count) if int(status) == 0 else None
