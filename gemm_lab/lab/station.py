"""Where candidates run: a backend, a workbench whose kernels come and go, the tools to time with.

A station is made in the process that uses it, from a `StationPlan` in plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from gemm_lab import jit
from gemm_lab.core.kernel import CompiledKernel, KernelSpec
from gemm_lab.core.measurement import Measurement
from gemm_lab.errors import GemmLabError
from gemm_lab.lab.candidates import Recipe, Target
from gemm_lab.lab.measure import GroupListener, RunSettings, measure_group
from gemm_lab.lab.timing import GPU_TOOLS, TimingTools
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Variant, render

__all__ = ["Station", "StationPlan", "TransientWorkbench", "emulator_station", "gpu_station"]


@dataclass(frozen=True, kw_only=True)
class StationPlan:
    """How to make a station: "module:function" and its arguments, all in plain values."""

    maker: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Station:
        """The station, in this process."""
        module, _, name = self.maker.partition(":")
        station = getattr(import_module(module), name)(**self.arguments)
        assert isinstance(station, Station)
        return station


class TransientWorkbench(Workbench):
    """A workbench for thousands of kernels: what is loaded is unloaded by `clear`."""

    def __init__(self, templates: Sequence[Path] = (), *, cache: jit.Cache | None = None) -> None:
        super().__init__(templates, cache=cache)
        self._transient: list[tuple[Any, Any]] = []

    def compile(self, variant: Variant, spec: KernelSpec) -> CompiledKernel:
        """As a workbench, but the cache folder is the only memory."""
        return jit.compile_kernel(render(variant, spec), cache=self._cache)

    def load(self, backend: Any, compiled: CompiledKernel) -> Any:
        """Load past CuPy's memory of modules."""
        transient = {"transient": True} if backend.name == "gpu" else {}
        loaded = backend.load(compiled, **transient)
        self._transient.append((backend, loaded))
        return loaded

    def clear(self) -> None:
        """Unload everything, and forget what would launch it."""
        self._kept.clear()
        while self._transient:
            backend, loaded = self._transient.pop()
            backend.unload(loaded)


@dataclass(frozen=True, kw_only=True)
class Station:
    """One process's place of work."""

    bench: TransientWorkbench
    backend: Any
    tools: TimingTools = GPU_TOOLS

    @property
    def target(self) -> Target:
        """What it runs on."""
        b = self.backend
        return Target(backend=b.name, device=b.device_name, arch=b.arch, sm_count=b.sm_count)

    def measure(
        self, recipes: Sequence[Recipe], settings: RunSettings, listener: GroupListener
    ) -> list[Measurement | GemmLabError]:
        """Kernels on one problem in the same rounds; see measure.measure_group."""
        requests = [r.request(self.bench.variant(r.variant)) for r in recipes]
        problem = recipes[0].gemm_problem()
        try:
            return measure_group(
                self.bench,
                self.backend,
                requests,
                problem,
                settings,
                tools=self.tools,
                listener=listener,
            )
        finally:
            self._clear()

    def _clear(self) -> None:
        # In a poisoned context nothing can be unloaded; the process ends anyway.
        try:
            self.bench.clear()
        except GemmLabError:
            return


def gpu_station(*, device: int | None, cache_directory: str | None) -> Station:
    """A GPU of this process; NoGpuError when there is none."""
    bench = TransientWorkbench(cache=_cache(cache_directory))
    return Station(bench=bench, backend=bench.gpu(device))


def emulator_station(*, arch: str, cache_directory: str | None) -> Station:
    """The emulator of an architecture."""
    bench = TransientWorkbench(cache=_cache(cache_directory))
    return Station(bench=bench, backend=bench.emulator(arch))


def _cache(directory: str | None) -> jit.Cache | None:
    return None if directory is None else jit.Cache(Path(directory))
