"""Streams by their handle: which one a call uses, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gemm_lab.gpu._cuda import cuda

__all__ = ["external_stream", "on_stream", "wait_for"]

_LEGACY = 1  # the handles 0 and 1 name the same legacy default stream
_DISABLE_TIMING = 2


class _Handle:
    """A bare handle that speaks the CUDA stream protocol."""

    def __init__(self, stream: int) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream)


def external_stream(stream: int, device: int) -> Any:
    """CuPy's object for a stream handle of the current device, which is `device`."""
    cupy = cuda().cupy
    if hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14; ExternalStream warns there
        return cupy.cuda.Stream.from_external(_Handle(stream))
    return cupy.cuda.ExternalStream(stream, device)


@contextmanager
def on_stream(stream: int | None, device: int) -> Iterator[None]:
    """Make a device and a stream handle CuPy's current ones; None leaves the stream."""
    cupy = cuda().cupy
    with cupy.cuda.Device(device):
        if stream is None:
            yield
        elif stream in (0, _LEGACY):
            with cupy.cuda.Stream.null:
                yield
        else:
            with external_stream(stream, device):
                yield


def wait_for(producer: int | None, stream: int) -> None:
    """Order later work on `stream` after the work already on `producer`; no host wait.

    The device of both must be current. None means that there is nothing to wait for.
    """
    if producer is None or (producer or _LEGACY) == (stream or _LEGACY):
        return
    runtime = cuda().runtime
    event = runtime.eventCreateWithFlags(_DISABLE_TIMING)
    try:
        runtime.eventRecord(event, producer)
        runtime.streamWaitEvent(stream, event)
    finally:
        # CUDA keeps the event until the wait is over.
        runtime.eventDestroy(event)
