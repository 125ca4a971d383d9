"""A card that is not there: NumPy computes, a clock invents the times, faults come on demand.

It calls itself "gpu", so that everything but CUDA itself runs as on a real one. What a kernel
does stands in its source, on the line `// fake: LAYOUT MODE SPEED` of stub.cu.j2.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gemm_lab.core.backend import Pointer, Scalar
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch
from gemm_lab.errors import LaunchError
from gemm_lab.jit import Cache
from gemm_lab.lab.station import Station, StationPlan, TransientWorkbench
from gemm_lab.lab.timing import Library, TimingTools
from gemm_lab.lab.trial import Trial

STUB = Path(__file__).parent / "stub" / "stub.cu.j2"
_FAKE = re.compile(r"// fake: (\w\w) (\w+) (\d+)")
_MS_PER_GFLOP = 5e4


class FakeBuffer:
    """Host memory that pretends to lie on a card."""

    def __init__(self, size_bytes: int) -> None:
        self.bytes = np.zeros(max(-(-size_bytes // 16), 1) * 16, np.uint8)
        self.address = 0


@dataclass
class FakeLoaded:
    """A kernel on the card until it is unloaded."""

    layout: str
    mode: str
    speed: float


class FakeGpu:
    """The Backend protocol over NumPy."""

    name = "gpu"
    device_name = "Fake GPU"
    arch = "sm_80"
    sm_count = 4
    device = 0

    def __init__(self, *, pace_s: float = 0.0) -> None:
        self.info = SimpleNamespace(l2_bytes=1 << 16)
        self.memory: dict[int, FakeBuffer] = {}
        self.next_address = 1 << 20
        self.loaded = 0
        self.most_loaded = 0
        self.poisoned = False
        self.pace_s = pace_s
        self.pending_ms = 0.0

    @contextlib.contextmanager
    def on_device(self, doing: str) -> Iterator[None]:
        yield

    def free_bytes(self) -> int:
        return 1 << 26

    def load(self, compiled: CompiledKernel, *, transient: bool = False) -> FakeLoaded:
        assert transient, "a sweep must be able to unload what it loads"
        found = _FAKE.search(compiled.rendered.source)
        assert found is not None
        self.loaded += 1
        self.most_loaded = max(self.most_loaded, self.loaded)
        return FakeLoaded(layout=found[1], mode=found[2], speed=int(found[3]) / 100)

    def unload(self, loaded: FakeLoaded) -> None:
        self.loaded -= 1

    def alloc(self, size_bytes: int) -> FakeBuffer:
        self._check("allocating")
        buffer = FakeBuffer(size_bytes)
        buffer.address = self.next_address
        self.next_address += -(-max(size_bytes, 1) // 512) * 512
        self.memory[buffer.address] = buffer
        return buffer

    def free(self, buffer: FakeBuffer) -> None:
        self.memory.pop(buffer.address, None)

    def upload(self, array: Any) -> FakeBuffer:
        buffer = self.alloc(array.nbytes)
        self.write(buffer, array)
        return buffer

    def write(self, buffer: FakeBuffer, array: Any) -> None:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer.bytes[: raw.size] = raw

    def download(self, buffer: FakeBuffer, dtype: Any, shape: tuple[int, ...]) -> Any:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return buffer.bytes[:count].copy().view(dtype).reshape(shape)

    def address(self, buffer: FakeBuffer) -> int:
        return buffer.address

    def fill(self, buffer: FakeBuffer, byte: int) -> None:
        buffer.bytes[:] = byte

    def synchronize(self) -> None:
        self._check("waiting")

    def prepare(self, loaded: FakeLoaded, launch: KernelLaunch, arguments: Sequence[Any]) -> Any:
        return _FakeLaunch(self, loaded, dict(zip(launch.params, arguments, strict=True)))

    def _check(self, doing: str) -> None:
        if self.poisoned:
            raise LaunchError(f"{doing} failed: the context is poisoned")


class _FakeLaunch:
    def __init__(self, card: FakeGpu, loaded: FakeLoaded, arguments: dict[str, Any]) -> None:
        self._card = card
        self._loaded = loaded
        self._scalars = {n: a.value for n, a in arguments.items() if isinstance(a, Scalar)}
        self._pointers = [n for n, a in arguments.items() if isinstance(a, Pointer)]
        self._calls = 0

    def launch(self, addresses: Sequence[int], stream: int | None = None) -> None:
        self._card._check("launching")
        self._calls += 1
        mode = self._loaded.mode
        if mode == "die" or (mode == "die_timed" and self._calls > 3):
            os._exit(17)
        if mode == "hang":
            time.sleep(600)
        if mode == "illegal":
            self._card.poisoned = True
            raise LaunchError("an illegal access")
        time.sleep(self._card.pace_s)
        s = self._scalars
        flop_count = 2.0 * s["M"] * s["N"] * s["K"]
        self._card.pending_ms += flop_count / 1e9 * _MS_PER_GFLOP * self._loaded.speed
        if mode != "lazy":
            self._multiply(dict(zip(self._pointers, addresses, strict=True)))

    def _multiply(self, at: dict[str, int]) -> None:
        s, layout = self._scalars, self._loaded.layout
        m, n, k = int(s["M"]), int(s["N"]), int(s["K"])
        a = self._matrix(at["A"], (m, k) if layout[0] == "n" else (k, m), int(s["lda"]))
        b = self._matrix(at["B"], (k, n) if layout[1] == "n" else (n, k), int(s["ldb"]))
        c = self._matrix(at["C"], (m, n), int(s["ldc"]))
        a = a if layout[0] == "n" else a.T
        b = b if layout[1] == "n" else b.T
        result = s["alpha"] * (a.astype(np.float64) @ b.astype(np.float64))
        if self._loaded.mode == "wrong":
            result[m // 2, n // 2] += 1
        if s["beta"]:
            result += s["beta"] * c
        c[:] = result

    def _matrix(self, address: int, shape: tuple[int, int], leading: int) -> Any:
        flat = self._card.memory[address].bytes.view(np.float32)
        return np.lib.stride_tricks.as_strided(flat, shape, (leading * 4, 4))


class FakeStopwatch:
    """Reads the invented clock; noise of a percent, and a drift that both of a pair share."""

    def __init__(self, card: FakeGpu, seed: int = 3) -> None:
        self._card = card
        self._random = random.Random(seed)
        self._drift = 1.0

    def settle(self, run: Callable[[], None]) -> None:
        run()

    def time_chunk(self, runs: Sequence[Callable[[], None]]) -> list[float]:
        taken = []
        for run in runs:
            self._card.pending_ms = 0.0
            run()
            self._drift *= 1 + self._random.gauss(0, 0.001)
            noise = 1 + abs(self._random.gauss(0, 0.004))
            taken.append(max(self._card.pending_ms, 1e-3) * self._drift * noise)
        return taken

    def graph(self, runs: Sequence[Callable[[], None]]) -> None:
        return None


def _library(trial: Trial, stopwatch: FakeStopwatch) -> tuple[Library, list[str]]:
    card, shape = trial.backend, trial.problem.shape

    def run(index: int) -> None:
        card.pending_ms += shape.flop_count / 1e9 * _MS_PER_GFLOP

    return Library(name="fakeBLAS 1.0", compute_type="FAKE_32F", run=run), []


def fake_station(*, cache_directory: str, pace_s: float = 0.0) -> Station:
    """What the worker calls."""
    tools = TimingTools(stopwatch=FakeStopwatch, library=_library, meter=lambda _backend: None)
    bench = TransientWorkbench(cache=Cache(Path(cache_directory)))
    return Station(bench=bench, backend=FakeGpu(pace_s=pace_s), tools=tools)


def fake_plan(cache_directory: Path, *, pace_s: float = 0.0) -> StationPlan:
    """The same in plain values."""
    return StationPlan(
        maker="fakes:fake_station",
        arguments={"cache_directory": str(cache_directory), "pace_s": pace_s},
    )
