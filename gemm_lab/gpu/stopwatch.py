"""Device time by CUDA events and graphs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gemm_lab.gpu._cuda import cuda
from gemm_lab.gpu.faults import POISONING, status_of, translated
from gemm_lab.gpu.streams import on_stream, wait_for

__all__ = ["CudaStopwatch"]

_settled: set[int] = set()
_settled_lock = threading.Lock()
_SETTLE_BATCH_S = 0.1
_SETTLE_LEAST_BATCHES = 5
_SETTLE_MOST_S = 3.0
_SETTLE_SPREAD = 0.005


class CudaStopwatch:
    """Times work on one stream of one device.

    `stream` None takes a stream of its own, which can be captured into a graph; the caller's work
    on the current stream is waited for. Runners find it as CuPy's current stream.
    """

    def __init__(self, device: int, stream: int | None = None) -> None:
        self.device = device
        self._own: Any = None
        if stream is None:
            with cuda().cupy.cuda.Device(device):
                self._own = cuda().cupy.cuda.Stream(non_blocking=True)
                wait_for(cuda().cupy.cuda.get_current_stream().ptr, self._own.ptr)
            stream = self._own.ptr
        self.stream: int = stream
        self._events: list[Any] = []

    def settle(self, run: Callable[[], None]) -> None:
        """Repeat `run` until batches of 0.1 s agree within 0.5%, at most 3 s; once a device."""
        with _settled_lock:
            if self.device in _settled:
                return
            once_ms = max(statistics.median(self.time_chunk([run] * 3)), 0.001)
            count = max(min(int(_SETTLE_BATCH_S * 1000.0 / once_ms), 5000), 1)
            taken: list[float] = []
            start = time.perf_counter()
            while time.perf_counter() - start < _SETTLE_MOST_S:
                taken.append(statistics.median(self.time_chunk([run] * count)))
                last = taken[-3:]
                if len(taken) >= _SETTLE_LEAST_BATCHES and (
                    max(last) - min(last) <= _SETTLE_SPREAD * min(last)
                ):
                    break
            _settled.add(self.device)

    def time_chunk(self, runs: Sequence[Callable[[], None]]) -> list[float]:
        """Milliseconds of each, between two events of its own; one wait at the end."""
        cupy = cuda().cupy
        count = len(runs)
        with translated("timing on the device"), on_stream(self.stream, self.device):
            while len(self._events) < 2 * count:
                self._events.append(cupy.cuda.Event())
            events = self._events
            stream = cupy.cuda.get_current_stream()
            for index, run in enumerate(runs):
                events[2 * index].record(stream)
                run()
                events[2 * index + 1].record(stream)
            stream.synchronize()
            elapsed = cupy.cuda.get_elapsed_time
            return [float(elapsed(events[2 * i], events[2 * i + 1])) for i in range(count)]

    def graph(self, runs: Sequence[Callable[[], None]]) -> Callable[[], None] | None:
        """A graph of all of `runs`, or None when the stream or one of them refuses capture."""
        if self._own is None:
            return None
        with on_stream(None, self.device), self._own:
            self._own.synchronize()
            self._own.begin_capture()
            try:
                for run in runs:
                    run()
            except Exception as fault:
                _abandon_capture(self._own)
                if status_of(fault) in POISONING:
                    raise
                return None
            try:
                captured = self._own.end_capture()
            except RuntimeError:
                return None
            captured.upload(self._own)

        def start() -> None:
            captured.launch(self._own)

        return start

    def median_ms(self, run: Callable[[], None], repeats: int = 7) -> float:
        """Median of a few timings after one untimed call: for choosing, not for reporting."""
        self.time_chunk([run])
        return statistics.median(self.time_chunk([run] * repeats))


def _abandon_capture(stream: Any) -> None:
    with suppress(RuntimeError):  # what broke the capture has been seen already
        stream.end_capture()
