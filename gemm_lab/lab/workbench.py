"""What one process works with: the catalogue, the cache, the backends, what is loaded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from gemm_lab import jit
from gemm_lab.core.arch import arch_number
from gemm_lab.core.backend import Backend
from gemm_lab.core.kernel import CompiledKernel, KernelSpec
from gemm_lab.errors import NoGpuError, UsageError
from gemm_lab.lab.unexecuted import NoBackend
from gemm_lab.variants import Catalogue, Variant, render

__all__ = [
    "LOWEST_USUAL_ARCH",
    "BackendChoice",
    "BackendName",
    "Workbench",
    "choose_arch",
    "default_workbench",
]

BackendName = Literal["auto", "gpu", "emulator", "none"]
LOWEST_USUAL_ARCH = "sm_80"
_MOST_KEPT = 1024


@dataclass(frozen=True, kw_only=True)
class BackendChoice:
    """A backend, and why it was taken."""

    backend: Backend
    reason: str


class Workbench:
    """Variants, compiled kernels and backends; safe to use from several threads.

    Args:
        templates: the user's folders of variants.
        cache: of compiled kernels; the default one when None.
    """

    def __init__(self, templates: Sequence[Path] = (), *, cache: jit.Cache | None = None) -> None:
        self.catalogue = Catalogue(templates)
        self._cache = cache
        self._lock = threading.RLock()
        self._gpus: dict[int | None, Any] = {}
        self._emulators: dict[str, Any] = {}
        # By variant too: two files may have one name.
        self._compiled: dict[tuple[Variant, KernelSpec], CompiledKernel] = {}
        # With its backend, which lives on here: the id of one that is gone may come again.
        self._loaded: dict[tuple[int, str], tuple[Backend, Any]] = {}
        self._kept: dict[object, Any] = {}

    def variant(self, name: str | Path | Variant) -> Variant:
        """A variant by name or by the path of its file."""
        return name if isinstance(name, Variant) else self.catalogue.get(name)

    @property
    def cache(self) -> jit.Cache | None:
        """The cache that was given; None is the default one."""
        return self._cache

    @property
    def cache_directory(self) -> Path | None:
        """Folder of the cache that was given; None is the default one."""
        return None if self._cache is None else self._cache.directory

    def compile(self, variant: Variant, spec: KernelSpec) -> CompiledKernel:
        """Render and compile; remembered for the life of the process, or of the cache's entry."""
        key = (variant, spec)
        with self._lock:
            found = self._compiled.get(key)
        if found is None or not found.cubin_path.exists():
            found = jit.compile_kernel(render(variant, spec), cache=self._cache)
            with self._lock:
                self._compiled[key] = found
        return found

    def load(self, backend: Backend, compiled: CompiledKernel) -> Any:
        """The kernel in a backend, loaded once."""
        key = (id(backend), str(compiled.cubin_path))
        with self._lock:
            if key not in self._loaded:
                self._loaded[key] = (backend, backend.load(compiled))
            return self._loaded[key][1]

    def recall(self, key: object) -> Any:
        """What was kept under a key, or None."""
        return self._kept.get(key)

    def keep(self, key: object, ready: Any) -> None:
        """Remember what is ready to be called; all is forgotten when it grows too much."""
        with self._lock:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = ready

    def gpu(self, device: int | None = None) -> Any:
        """The GPU backend of a device; NoGpuError with the reason when there is none."""
        from gemm_lab.gpu import GpuBackend

        with self._lock:
            if device not in self._gpus:
                made = GpuBackend(device)
                self._gpus[device] = self._gpus.setdefault(made.device, made)
            return self._gpus[device]

    def detected_arch(self) -> str | None:
        """Architecture of the GPU at hand, or None."""
        try:
            return str(self.gpu().arch)
        except NoGpuError:
            return None

    def emulator(self, arch: str) -> Backend:
        """The emulator of an architecture."""
        from gemm_lab.emulator.backend import EmulatorBackend

        with self._lock:
            if arch not in self._emulators:
                self._emulators[arch] = EmulatorBackend(arch=arch)
            return cast("Backend", self._emulators[arch])

    def choose_backend(
        self, name: BackendName, *, lowest_arch: str, arch: str | None, device: int | None
    ) -> BackendChoice:
        """The GPU if it is asked for or there is one, else the emulator; with the reason.

        "none" compiles and executes nothing. NoGpuError when a GPU was asked for and there is none.
        """
        if name not in ("auto", "gpu", "emulator", "none"):
            raise UsageError(f"unknown backend {name!r}", hint="auto, gpu, emulator or none")
        if name == "none":
            nobody = NoBackend(arch=choose_arch(lowest_arch, arch, None))
            return BackendChoice(backend=cast("Backend", nobody), reason="asked for")
        if name != "emulator":
            try:
                gpu = self.gpu(device)
                return BackendChoice(backend=gpu, reason=f"found {gpu.device_name}")
            except NoGpuError as error:
                if name == "gpu" or device is not None:
                    raise
                reason = f"no GPU: {error.message}"
        else:
            reason = "asked for"
        return BackendChoice(
            backend=self.emulator(choose_arch(lowest_arch, arch, None)), reason=reason
        )


def choose_arch(lowest: str, asked: str | None, detected: str | None) -> str:
    """The architecture to compile for.

    An explicit one is taken verbatim; a detected 9.0 becomes sm_90a when the variant asks for
    it; without a device the greater of the variant's lowest and sm_80.
    """
    if asked is not None:
        return asked
    if detected is None:
        if arch_number(lowest) >= arch_number(LOWEST_USUAL_ARCH):
            return lowest
        return LOWEST_USUAL_ARCH
    if lowest[-1].isalpha() and arch_number(lowest) == arch_number(detected):
        return lowest
    return detected


_default: Workbench | None = None
_default_lock = threading.Lock()


def default_workbench() -> Workbench:
    """The workbench behind gemm_lab.matmul and the others, made when first used."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Workbench()
        return _default
