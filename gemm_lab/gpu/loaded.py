"""Cubins and memory in a device's context."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any

from gemm_lab.core.kernel import CompiledKernel
from gemm_lab.errors import LaunchError
from gemm_lab.gpu._cuda import cuda
from gemm_lab.gpu.limits import FunctionFacts

__all__ = ["DeviceBuffer", "LoadedKernel", "allow_smem", "load_cubin"]

# Dynamic shared memory that each (device, function) was opted in to, in bytes. CUDA keeps it in
# the function, which RawModule shares between all who load one path.
_smem_allowed: dict[tuple[int, int], int] = {}
_smem_lock = threading.Lock()


class DeviceBuffer:
    """Device memory of `size_bytes`, aligned to 512 bytes (CuPy's pool), until it is freed."""

    __slots__ = ("device", "memory", "size_bytes")

    def __init__(self, memory: Any, size_bytes: int, device: int) -> None:
        self.memory = memory
        self.size_bytes = size_bytes
        self.device = device

    @property
    def address(self) -> int:
        """Byte address; LaunchError after `free`."""
        if self.memory is None:
            raise LaunchError("the buffer was freed", hint="allocate a new one")
        return int(self.memory.ptr)


class LoadedKernel:
    """A cubin in a device's context: a handle and the driver's facts of each entry."""

    def __init__(
        self,
        *,
        compiled: CompiledKernel,
        device: int,
        functions: dict[str, int],
        facts: dict[str, FunctionFacts],
        module: object,
        transient: bool,
    ) -> None:
        self.compiled = compiled
        self.device = device
        self.facts = facts
        self.transient = transient
        self._functions = functions
        self._module: object | None = module
        # Whether it is released or merely dropped, its code may leave the context, and another
        # kernel be given the same handles.
        self._forget = weakref.finalize(self, _forget_smem, device, tuple(functions.values()))
        self._forget.atexit = False
        if not transient:
            self._forget.detach()

    def function(self, entry: str) -> int:
        """The driver's handle; LaunchError when there is no such entry or it was unloaded."""
        if self._module is None:
            raise LaunchError(
                f"{self.compiled.rendered.name} was unloaded", hint="load it again before a launch"
            )
        try:
            return self._functions[entry]
        except KeyError:
            raise LaunchError(
                f"{self.compiled.rendered.name} has no entry {entry!r}",
                hint=f"entries: {', '.join(self._functions)}",
            ) from None

    @property
    def module(self) -> object | None:
        """CuPy's module, which keeps the code in the context; None after `release`."""
        return self._module

    def release(self) -> None:
        """Let go of the module; it is unloaded when no prepared launch holds it any more."""
        if self.transient:
            self._forget()
        self._module = None
        self._functions = {}


def load_cubin(compiled: CompiledKernel, device: int, *, transient: bool) -> LoadedKernel:
    """Every entry of a cubin in the context of `device`, which is the current one.

    RawModule remembers each path until the process ends; `transient` loads past that memory.
    """
    entries = compiled.rendered.entries
    path = str(compiled.cubin_path)
    if transient:
        module = cuda().module_class()
        module.load(_read(path))
        functions = {e: int(module.get_function(e).ptr) for e in entries}
    else:
        module = cuda().cupy.RawModule(path=path)
        functions = {e: int(module.get_function(e).kernel.ptr) for e in entries}
    return LoadedKernel(
        compiled=compiled,
        device=device,
        functions=functions,
        facts={e: _facts(e, function) for e, function in functions.items()},
        module=module,
        transient=transient,
    )


def allow_smem(device: int, function: int, smem_bytes: int) -> None:
    """Opt a function in to that much dynamic shared memory; never takes back what it has.

    Always needed: 48 KiB less the static part is the default limit, whatever the card has.
    """
    if smem_bytes == 0:
        return
    driver = cuda().driver
    with _smem_lock:
        if _smem_allowed.get((device, function), 0) < smem_bytes:
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function, attribute, smem_bytes)
            _smem_allowed[device, function] = smem_bytes


def _forget_smem(device: int, functions: tuple[int, ...]) -> None:
    # Without the lock: a finalizer may run wherever memory is asked for, inside it too.
    for function in functions:
        _smem_allowed.pop((device, function), None)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as fault:
        raise LaunchError(f"the cubin cannot be read: {fault}", hint="compile it again") from fault


def _facts(entry: str, function: int) -> FunctionFacts:
    driver = cuda().driver

    def attribute(name: str) -> int:
        return int(driver.funcGetAttribute(getattr(driver, f"CU_FUNC_ATTRIBUTE_{name}"), function))

    return FunctionFacts(
        entry=entry,
        registers_per_thread=attribute("NUM_REGS"),
        static_smem_bytes=attribute("SHARED_SIZE_BYTES"),
        local_bytes=attribute("LOCAL_SIZE_BYTES"),
        max_threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
        binary_version=attribute("BINARY_VERSION"),
    )
