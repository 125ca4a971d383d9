"""What a Measurement says before anything has run: command, kernel, resources, versions."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gemm_lab import jit
from gemm_lab.core.kernel import CompiledKernel, format_value, heaviest_launch
from gemm_lab.core.measurement import MeasuredProblem, MeasuredResources, Measurement
from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import ResourceError
from gemm_lab.lab.execute import Executor
from gemm_lab.lab.prepare import Request
from gemm_lab.model import BlockResources, hardware_occupancy
from gemm_lab.variants.paths import template_root

__all__ = ["describe", "describe_command", "measured_problem"]


def measured_problem(problem: GemmProblem) -> MeasuredProblem:
    """The product in plain values."""
    s = problem.shape
    return MeasuredProblem(
        m=s.m,
        n=s.n,
        k=s.k,
        batch=s.batch,
        dtype=problem.dtype.name,
        out_dtype=problem.out.name,
        layout=problem.layout,
        alpha=problem.alpha,
        beta=problem.beta,
        epilogue=problem.epilogue,
    )


def describe_command(
    request: Request, problem: GemmProblem, backend: str, seed: int, *, defaults: bool = False
) -> str:
    """The command line that repeats a run; tunables at their defaults are left out."""
    variant, s = request.variant, problem.shape
    support = variant.support(problem.dtype.name)
    ours = variant.path.parent == template_root()
    known = variant.name if ours else str(variant.path)
    words = ["gemm-lab", "run", "--variant", known]
    words += ["--shape", f"{s.m}x{s.n}x{s.k}"]
    if s.batch != 1:
        words += ["--batch", str(s.batch)]
    for name, value in request.config.items():
        default = support.defaults.get(name, variant.tunables[name].default)
        if value != default or defaults:
            words += ["-p", f"{name}={format_value(value)}"]
    words += ["--dtype", problem.dtype.name]
    if problem.out is not problem.dtype.default_out:
        words += ["--out-dtype", problem.out.name]
    words += ["--layout", problem.layout]
    if problem.alpha != 1:
        words += ["--alpha", repr(problem.alpha)]
    if problem.beta != 0:
        words += ["--beta", repr(problem.beta)]
    if problem.epilogue:
        words += ["--epilogue", problem.epilogue]
    if problem.bias:
        words += ["--bias"]
    if request.arch:
        words += ["--arch", request.arch]
    if request.smem_pad_bytes:
        words += ["--smem-pad", str(request.smem_pad_bytes)]
    if request.specialize:
        words += ["--specialize"]
    words += ["--seed", str(seed), "--backend", backend]
    return shlex.join(words)


def describe(
    backend: Any,
    request: Request,
    problem: GemmProblem,
    executor: Executor,
    seed: int,
    notes: tuple[str, ...],
) -> Measurement:
    """The Measurement of a kernel that is ready to run and has not yet run.

    ResourceError when not one block fits on a multiprocessor.
    """
    compiled = executor.compiled
    return Measurement(
        command=describe_command(request, problem, backend.name, seed),
        variant=request.variant.name,
        source_sha256=compiled.rendered.source_sha256,
        config=dict(request.config),
        problem=measured_problem(problem),
        backend=backend.name,
        device=backend.device_name,
        arch=compiled.rendered.arch,
        resources=_resources(compiled, executor),
        cache_hit=compiled.cache_hit,
        ptx_hash=compiled.ptx_hash,
        versions=_versions(compiled),
        warnings=(*jit.log_warnings(compiled.log), *notes),
        seed=seed,
        smem_pad_bytes=request.smem_pad_bytes,
        bias=problem.bias,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _resources(compiled: CompiledKernel, executor: Executor) -> MeasuredResources | None:
    """Of the launch that needs most registers a block; None when nothing is launched."""
    if not executor.plan.launches:
        return None

    launch = heaviest_launch(executor.plan.launches, compiled.resources)
    found = compiled.resources[launch.entry]
    x, y, z = launch.block
    occupancy = hardware_occupancy(
        executor.limits,
        BlockResources(
            threads=x * y * z,
            registers_per_thread=found.registers_per_thread,
            static_smem_bytes=found.static_smem_bytes,
            dynamic_smem_bytes=launch.smem_bytes,
        ),
    )
    if occupancy.blocks_per_sm == 0:
        limiters = ", ".join(str(x) for x in occupancy.limiters)
        fewer = "take fewer threads"
        if "registers" in limiters:
            # They are given out to whole warps, 8 a thread at a time.
            each = -(-found.registers_per_thread // 8) * 8
            fewer += f" ({executor.limits.registers_per_block // (32 * each) * 32} fit)"
        raise ResourceError(
            f"not one block of {launch.entry} fits on a multiprocessor of "
            f"{compiled.rendered.arch}: {found.registers_per_thread} registers x {x * y * z} "
            f"threads, {found.static_smem_bytes + launch.smem_bytes} bytes of shared memory",
            hint=f"limited by {limiters}: {fewer}, a smaller tile or fewer stages",
        )
    return MeasuredResources(
        registers_per_thread=found.registers_per_thread,
        static_smem_bytes=found.static_smem_bytes,
        dynamic_smem_bytes=launch.smem_bytes,
        spill_store_bytes=found.spill_store_bytes,
        spill_load_bytes=found.spill_load_bytes,
        occupancy=occupancy.fraction,
    )


def _versions(compiled: CompiledKernel) -> Mapping[str, str]:
    found = {
        "nvrtc": compiled.nvrtc_version,
        "headers": compiled.header_set,
        "python": platform.python_version(),
    }
    for package in ("gemm-lab", "numpy", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
