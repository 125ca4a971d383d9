"""The room's front door: rendered kernels in, compiled kernels out, through the cache."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from gemm_lab.core.kernel import CompiledKernel, RenderedKernel
from gemm_lab.errors import GemmLabError
from gemm_lab.jit.cache import Cache, default_cache
from gemm_lab.jit.compiler import run_compiler
from gemm_lab.jit.entry import SCHEMA, CachedKernel
from gemm_lab.jit.headers import included_names
from gemm_lab.jit.log import parse_resources
from gemm_lab.jit.options import check_arch, compile_options, program_name, safe_name
from gemm_lab.jit.probe import NO_HEADERS, Toolchain, find_toolchain

__all__ = ["compile_kernel", "compile_many", "kernel_key", "supported_arches", "toolchain"]

_toolchains: dict[Path, Toolchain] = {}
_lock = threading.Lock()


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
        output = run_compiler(rendered, tools)
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
    )


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
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def compile_many(
    rendered: Iterable[RenderedKernel],
    *,
    cache: Cache | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[CompiledKernel | GemmLabError]:
    """Compile in threads; results in the order given, the error in place of a kernel that failed.

    `progress(done, total)` is called in the caller's thread. Equal kernels are compiled once.
    """
    wanted = list(rendered)
    cache = cache or default_cache()
    results: dict[RenderedKernel, CompiledKernel | GemmLabError] = {}
    counts: dict[RenderedKernel, int] = {}
    for item in wanted:
        counts[item] = counts.get(item, 0) + 1
    done = 0
    with ThreadPoolExecutor(max_workers=workers or _cpu_count()) as pool:
        jobs: dict[Future[CompiledKernel], RenderedKernel] = {
            pool.submit(compile_kernel, item, cache=cache): item for item in counts
        }
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
        except BaseException:
            # Ctrl-C, or a fault of ours: what has not begun shall not.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[item] for item in wanted]


def _headers_used(rendered: RenderedKernel, tools: Toolchain) -> str:
    """A kernel that includes nothing does not depend on headers."""
    return tools.header_set if included_names(rendered.source) else NO_HEADERS


def _cpu_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
