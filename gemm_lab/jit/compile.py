"""The room's front door: rendered kernels in, compiled kernels out, through the cache."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gemm_lab.core.kernel import CompiledKernel, RenderedKernel
from gemm_lab.errors import CompileError, GemmLabError
from gemm_lab.jit.cache import Cache, default_cache
from gemm_lab.jit.compiler import CompilerOutput, add_to_count, run_compiler
from gemm_lab.jit.entry import SCHEMA, CachedKernel
from gemm_lab.jit.forks import fork_safe_lock
from gemm_lab.jit.headers import included_names
from gemm_lab.jit.log import parse_resources
from gemm_lab.jit.options import check_arch, compile_options, program_name, safe_name
from gemm_lab.jit.probe import NO_HEADERS, Toolchain, find_toolchain

if TYPE_CHECKING:
    from gemm_lab.jit.worker import CompilerProcess

__all__ = [
    "compile_kernel",
    "compile_many",
    "is_cached",
    "kernel_key",
    "supported_arches",
    "toolchain",
]

PROCESS_THRESHOLD = 6  # below that a child's start takes what it saves

_toolchains: dict[Path, Toolchain] = {}
_lock = fork_safe_lock()


def toolchain(cache: Cache | None = None) -> Toolchain:
    """Compiler and headers, looked for once a process; CompileError where there is none."""
    notes = (cache or default_cache()).directory
    with _lock:
        if notes not in _toolchains:
            _toolchains[notes] = find_toolchain(notes)
        return _toolchains[notes]


def supported_arches() -> tuple[str, ...]:
    """Architectures that the installed NVRTC compiles for, rising."""
    return tuple(f"sm_{number}" for number in toolchain().arch_numbers)


def compile_kernel(rendered: RenderedKernel, *, cache: Cache | None = None) -> CompiledKernel:
    """Cubin, PTX, log and resources of a kernel, from the cache where it has them.

    UsageError: an arch or option that cannot be used. CompileError: no NVRTC, or faulty source.
    """
    cache = cache or default_cache()
    tools = toolchain(cache)
    options = compile_options(rendered.arch, rendered.options)
    check_arch(rendered.arch, tools.arch_numbers, tools.nvrtc_version)
    key = kernel_key(rendered, tools)
    name = safe_name(rendered.name)
    found = cache.get(name, key)
    hit = found is not None
    if found is None:
        output = _with_report(rendered, tools)
        made = CachedKernel(
            source=rendered.source,
            ptx=output.ptx,
            cubin=output.cubin,
            log=output.log,
            resources=parse_resources(output.log),
            arch=rendered.arch,
            options=options,
            nvrtc_version=tools.nvrtc_version,
            header_set=_headers_used(rendered, tools),
            compile_ms=output.compile_ms,
            lowered_names=output.lowered_names,
        )
        found = cache.put(name, key, made)
    assert found.folder is not None
    return CompiledKernel(
        rendered=rendered,
        cubin_path=found.folder / "kernel.cubin",
        ptx=found.ptx,
        log=found.log,
        resources=found.resources,
        options=found.options,
        nvrtc_version=found.nvrtc_version,
        header_set=found.header_set,
        cache_hit=hit,
        compile_ms=None if hit else found.compile_ms,
        lowered_names=found.lowered_names,
    )


def _with_report(rendered: RenderedKernel, tools: Toolchain) -> CompilerOutput:
    """Compiler output whose log tells the resources of every entry; once more if it does not."""
    for _ in range(2):
        output = run_compiler(rendered, tools)
        told = parse_resources(output.log)
        if rendered.name_expressions or all(entry in told for entry in rendered.entries):
            return output
    missing = [entry for entry in rendered.entries if entry not in told]
    raise CompileError(
        f"the compiler's report says nothing of {', '.join(missing)}",
        log=output.log,
        hint='is the kernel there under that name, extern "C" and __global__?',
    )


def is_cached(rendered: RenderedKernel, cache: Cache | None = None) -> bool:
    """Whether an entry lies in the cache, unread."""
    cache = cache or default_cache()
    return cache.has(safe_name(rendered.name), kernel_key(rendered, toolchain(cache)))


def kernel_key(rendered: RenderedKernel, tools: Toolchain) -> str:
    """Hash of all that the machine code depends on; no path, host or time."""
    parts = {
        "schema": SCHEMA,
        "source": rendered.source,
        "program": program_name(rendered.name),
        "options": compile_options(rendered.arch, rendered.options),
        "nvrtc": tools.nvrtc_version,
        "headers": _headers_used(rendered, tools),
    }
    if rendered.name_expressions:
        parts["names"] = rendered.name_expressions
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def compile_many(
    rendered: Iterable[RenderedKernel],
    *,
    cache: Cache | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[CompiledKernel | GemmLabError]:
    """Compile side by side; results in the order given, the error in place of a kernel that failed.

    A handful is compiled in threads, more in processes (see `worker`). Equal kernels are
    compiled once. `progress(done, total)` is called in the caller's thread.
    """
    wanted = list(rendered)
    cache = cache or default_cache()
    counts = Counter(wanted)
    workers = min(workers or _cpu_count(), len(counts)) or 1
    results: dict[RenderedKernel, CompiledKernel | GemmLabError] = {}
    done = 0
    compilers = _Compilers(cache, processes=workers > 1 and len(counts) >= PROCESS_THRESHOLD)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        jobs = {pool.submit(compilers.compile, item): item for item in counts}
        try:
            for job in as_completed(jobs):
                item = jobs[job]
                try:
                    results[item] = job.result()
                except GemmLabError as error:
                    results[item] = error
                done += counts[item]
                if progress is not None:
                    progress(done, len(wanted))
        finally:
            # After Ctrl-C, or a fault of ours, what has not begun shall not.
            pool.shutdown(wait=True, cancel_futures=True)
            compilers.close()
    return [results[item] for item in wanted]


class _Compilers:
    """One compiler process a thread, made when that thread first meets a kernel to compile."""

    def __init__(self, cache: Cache, *, processes: bool) -> None:
        self._cache = cache
        self._processes = processes and bool(sys.executable)
        self._mine = threading.local()
        self._all: list[CompilerProcess] = []

    def compile(self, rendered: RenderedKernel) -> CompiledKernel:
        if not self._processes or is_cached(rendered, self._cache):
            return compile_kernel(rendered, cache=self._cache)
        from gemm_lab.jit.worker import CompilerProcess

        try:
            process = getattr(self._mine, "process", None)
            if process is None:
                process = self._mine.process = CompilerProcess(self._cache.directory)
                self._all.append(process)
            made = process.compile(rendered)
        except (OSError, EOFError, pickle.UnpicklingError):
            # The child could not start, or died of this kernel: compile here, from now on.
            self._processes = False
            return compile_kernel(rendered, cache=self._cache)
        add_to_count(made)
        found = compile_kernel(rendered, cache=self._cache)
        if not found.cache_hit:
            # The child had no cache to leave it in.
            self._processes = False
        return replace(found, cache_hit=made == 0 and found.cache_hit)

    def close(self) -> None:
        for process in self._all:
            process.close()


def _headers_used(rendered: RenderedKernel, tools: Toolchain) -> str:
    """A kernel that includes nothing does not depend on headers."""
    return tools.header_set if included_names(rendered.source) else NO_HEADERS


def _cpu_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
