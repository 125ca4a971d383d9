"""CUDA's error numbers in the lab's words.

Numbers: CUDA Driver API, "Data types used by CUDA driver", CUresult; the runtime's cudaError
shares them from 100 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gemm_lab.errors import GemmLabError, LaunchError, NoGpuError, ResourceError
from gemm_lab.gpu._cuda import cuda

__all__ = ["POISONING", "status_of", "translate", "translated"]

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
INSUFFICIENT_DRIVER = 35
NO_DEVICE = 100
INVALID_DEVICE = 101
LAUNCH_OUT_OF_RESOURCES = 701

# After one of these every later call in the process fails too.
POISONING: dict[int, str] = {
    214: "an uncorrectable memory error",
    700: "an access to an address that is not its own",
    702: "a run past the time limit of the display driver",
    710: "an assertion in the kernel",
    714: "a fault of the hardware stack",
    715: "an illegal instruction",
    716: "a misaligned address",
    717: "an address in the wrong memory space",
    718: "a jump to an invalid address",
    719: "an unspecified fault",
}

NO_FORK = (
    "a forked child cannot use the CUDA that its parent started: "
    "multiprocessing.get_context('spawn') makes children that can"
)

_IMAGE: dict[int, str] = {
    200: "the file is no valid cubin",
    209: "the cubin was made for another architecture",
    218: "the PTX is invalid",
    222: "the PTX is newer than the driver",
    301: "the file is not there",
    500: "the cubin has no kernel of that name",
}


def status_of(fault: BaseException) -> int | None:
    """CUDA's error number, or None when CUDA did not report one."""
    status = getattr(fault, "status", None)
    return status if isinstance(status, int) else None


def translate(fault: BaseException, doing: str) -> GemmLabError:
    """The lab's error for a failed CUDA call; `doing` says what was asked for."""
    status = status_of(fault)
    if status in POISONING:
        return LaunchError(
            f"{doing} failed: a kernel broke off with {POISONING[status]}. The CUDA context of "
            "this process is poisoned; nothing more can run on the device in it",
            hint="start a new process; compute-sanitizer names the access that did it",
        )
    if status == OUT_OF_MEMORY:
        return ResourceError(
            f"{doing} failed: the device is out of memory",
            hint="take a smaller shape, or end what else uses the device (nvidia-smi lists it)",
        )
    if status == NOT_INITIALIZED:
        return LaunchError(f"{doing} failed: CUDA does not start in this process", hint=NO_FORK)
    if status == LAUNCH_OUT_OF_RESOURCES:
        return ResourceError(
            f"{doing} failed: the block needs more registers or threads than there are",
            hint="fewer threads a block, smaller tiles a thread, or launch bounds (MIN_BLOCKS)",
        )
    if status in (INSUFFICIENT_DRIVER, NO_DEVICE, INVALID_DEVICE):
        return NoGpuError(f"{doing} failed: {fault}", hint="`gemm-lab doctor` says what is missing")
    if status in _IMAGE:
        return LaunchError(
            f"{doing} failed: {_IMAGE[status]} ({fault})",
            hint="compile for this device's architecture, and look at `gemm-lab doctor`",
        )
    hint = "--debug shows where"
    if status == INVALID_VALUE:
        hint = "check grid, block and shared memory against the limits of the device"
    return LaunchError(f"{doing} failed: {fault}", hint=hint)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Run CUDA calls; their errors come out as the lab's."""
    try:
        yield
    except cuda().errors as fault:
        raise translate(fault, doing) from fault
    except MemoryError as fault:
        # CuPy's OutOfMemoryError carries no CUDA number.
        raise ResourceError(
            f"{doing} failed: {fault}",
            hint="take a smaller shape, or end what else uses the device (nvidia-smi lists it)",
        ) from fault
