"""What a launch asks for against what the device and the kernel allow, before it is tried."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_lab.core.kernel import KernelLaunch
from gemm_lab.errors import LaunchError, ResourceError
from gemm_lab.gpu.device import DeviceLimits

__all__ = ["FunctionFacts", "check_launch", "describe"]

KIB = 1024


@dataclass(frozen=True, kw_only=True)
class FunctionFacts:
    """What the driver says of a loaded kernel; bytes a block for shared memory, a thread for local.

    `max_threads_per_block` follows from its registers.
    """

    entry: str
    registers_per_thread: int
    static_smem_bytes: int
    local_bytes: int
    max_threads_per_block: int
    binary_version: int


def describe(launch: KernelLaunch, facts: FunctionFacts | None = None) -> str:
    """One line: entry, geometry, memory, and registers where they are known."""
    grid = "x".join(str(g) for g in launch.grid)
    block = "x".join(str(b) for b in launch.block)
    text = (
        f"launch of {launch.entry}: grid {grid}, block {block}, "
        f"{launch.smem_bytes} bytes of dynamic shared memory"
    )
    if facts is None:
        return text
    return (
        f"{text}, {facts.static_smem_bytes} static, {facts.registers_per_thread} registers a thread"
    )


def check_launch(launch: KernelLaunch, facts: FunctionFacts, limits: DeviceLimits) -> None:
    """ResourceError or LaunchError, with the numbers, when the device would refuse the launch."""
    what = describe(launch, facts)
    if min(*launch.grid, *launch.block) < 1:
        raise LaunchError(
            f"{what}: a dimension is below 1", hint="an empty product needs no launch"
        )
    most_grid = (limits.max_grid_x, limits.max_grid_y, limits.max_grid_z)
    for axis, size, most in zip("xyz", launch.grid, most_grid, strict=True):
        if size > most:
            raise LaunchError(
                f"{what}: grid {axis} = {size}, the device allows {most}",
                hint="put the long axis on x, or take larger tiles",
            )
    most_block = (limits.max_block_x, limits.max_block_y, limits.max_block_z)
    for axis, size, most in zip("xyz", launch.block, most_block, strict=True):
        if size > most:
            raise ResourceError(
                f"{what}: block {axis} = {size}, the device allows {most}",
                hint="fewer threads along that axis",
            )
    _check_threads(launch, facts, limits, what)
    smem_bytes = facts.static_smem_bytes + launch.smem_bytes
    if smem_bytes > limits.smem_per_block_optin_bytes:
        most_kib = limits.smem_per_block_optin_bytes / KIB
        raise ResourceError(
            f"{what}: {smem_bytes} bytes of shared memory in all, the device allows "
            f"{limits.smem_per_block_optin_bytes} a block ({most_kib:g} KiB)",
            hint="smaller tiles (BM, BN, BK) or fewer STAGES",
        )


def _check_threads(
    launch: KernelLaunch, facts: FunctionFacts, limits: DeviceLimits, what: str
) -> None:
    x, y, z = launch.block
    threads = x * y * z
    if threads > limits.max_threads_per_block:
        raise ResourceError(
            f"{what}: {threads} threads a block, the device allows {limits.max_threads_per_block}",
            hint="smaller tiles a block, or more outputs a thread",
        )
    if threads > facts.max_threads_per_block:
        # Registers are given out to whole warps, 8 a thread at a time.
        fitting = limits.registers_per_block // (-(-threads // 32) * 32) // 8 * 8
        if facts.registers_per_thread <= fitting:
            raise ResourceError(
                f"{what}: {threads} threads, and the kernel was compiled for at most "
                f"{facts.max_threads_per_block}",
                hint="fewer threads a block, or launch bounds that allow as many",
            )
        raise ResourceError(
            f"{what}: {threads} threads with {facts.registers_per_thread} registers each; the "
            f"device has {limits.registers_per_block} registers a block, so this kernel runs "
            f"with at most {facts.max_threads_per_block} threads",
            hint=f"fewer threads a block, or launch bounds that keep it to {fitting} registers",
        )
