"""The small kernels of ceilings.cu: rendered, compiled, launched, timed on a card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from gemm_lab import jit
from gemm_lab.core.backend import Argument, Pointer, Scalar
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch, RenderedKernel

__all__ = ["ENTRIES", "WORD_TYPES", "Probes", "int_argument", "long_argument", "probe_source"]

ENTRIES = ("stream", "l2_read", "smem_read", "fma_rate", "chase", "smem_chase")
WORD_TYPES = {4: "unsigned", 8: "uint2", 16: "uint4"}


def probe_source(*, word_bytes: int, unroll: int, copy: bool, arch: str) -> RenderedKernel:
    """The kernels, with the width of a load, the loads a thread has on the way, read or copy."""
    text = files("gemm_lab.lab").joinpath("ceilings.cu").read_text(encoding="utf-8")
    head = (
        f"using word = {WORD_TYPES[word_bytes]};\n"
        f"constexpr int UNROLL = {unroll};\n"
        f"constexpr bool COPY = {str(copy).lower()};\n\n"
    )
    return RenderedKernel(name="ceilings", source=head + text, entries=ENTRIES, arch=arch)


class Probes:
    """One rendering of the kernels on a backend.

    Args:
        stopwatch: of the device; None runs without timing (the emulator).
    """

    def __init__(
        self,
        backend: Any,
        stopwatch: Any,
        *,
        word_bytes: int = 16,
        unroll: int = 4,
        copy: bool = True,
        cache: jit.Cache | None = None,
    ) -> None:
        self.backend = backend
        self._stopwatch = stopwatch
        rendered = probe_source(word_bytes=word_bytes, unroll=unroll, copy=copy, arch=backend.arch)
        self.compiled: CompiledKernel = jit.compile_kernel(rendered, cache=cache)
        self._loaded = backend.load(self.compiled)
        self._buffers: list[Any] = []

    def prepare(
        self,
        entry: str,
        arguments: Sequence[Argument],
        *,
        blocks: int,
        threads: int,
        smem_bytes: int = 0,
    ) -> Callable[[], None]:
        """A launch that can be repeated."""
        launch = KernelLaunch(
            entry=entry,
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
            smem_bytes=smem_bytes,
            params=tuple(f"p{i}" for i in range(len(arguments))),
        )
        prepared = self.backend.prepare(self._loaded, launch, arguments)
        addresses = [a.address for a in arguments if isinstance(a, Pointer)]
        return lambda: prepared.launch(addresses)

    def median_ms(self, run: Callable[[], None], repeats: int = 7) -> float:
        """Median device time of a launch."""
        return float(self._stopwatch.median_ms(run, repeats))

    def alloc(self, size_bytes: int, fill: int = 0) -> Any:
        """Device memory with every byte set, given back by `free`."""
        buffer = self.backend.alloc(size_bytes)
        self._buffers.append(buffer)
        self.backend.fill(buffer, fill)
        return buffer

    def pointer(self, buffer: Any) -> Pointer:
        """A buffer as an argument."""
        return Pointer(self.backend.address(buffer))

    def numbers(self, buffer: Any, count: int) -> list[int]:
        """The first 64-bit numbers of a buffer, after all work is done."""
        import numpy

        self.backend.synchronize()
        found = self.backend.download(buffer, numpy.dtype(numpy.int64), (count,))
        return [int(x) for x in found]

    def free(self) -> None:
        """Give all memory back and unload."""
        while self._buffers:
            self.backend.free(self._buffers.pop())
        self.backend.unload(self._loaded)


def int_argument(value: int) -> Scalar:
    """A C int."""
    return Scalar("int", value)


def long_argument(value: int) -> Scalar:
    """A C long long."""
    return Scalar("long long", value)
