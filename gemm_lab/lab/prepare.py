"""From a question to something that can be called: specification, compile, load, pack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemm_lab.core.arch import arch_limits
from gemm_lab.core.kernel import Config, KernelSpec
from gemm_lab.core.problem import GemmProblem, Strides
from gemm_lab.errors import ResourceError, UsageError
from gemm_lab.lab.execute import MAX_BATCH, Executor
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.variants import Facts, Variant, config_of, make_spec, parse_epilogue, plan

__all__ = [
    "Request",
    "build_executor",
    "check_launches",
    "merge_tunables",
    "reads_old_c",
    "recall_executor",
]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which variant, with which tunables, how compiled."""

    variant: Variant
    config: Config
    arch: str | None = None
    specialize: bool = False
    smem_pad_bytes: int = 0

    @staticmethod
    def of(
        variant: Variant,
        dtype: str,
        tunables: Mapping[str, Any],
        *,
        arch: str | None = None,
        specialize: bool = False,
        smem_pad_bytes: int = 0,
    ) -> Request:
        """A request with every tunable checked alone and the rest at the defaults."""
        return Request(
            variant=variant,
            config=config_of(variant, dtype, tunables),
            arch=arch,
            specialize=specialize,
            smem_pad_bytes=smem_pad_bytes,
        )


def build_executor(
    bench: Workbench,
    backend: Any,
    request: Request,
    problem: GemmProblem,
    strides: Strides,
    addresses: tuple[int, int, int],
) -> Executor:
    """Check, compile, load and pack; RuleError names operands that a copy would mend."""
    lowest = request.variant.support(problem.dtype.name).arch
    spec = make_spec(
        request.variant,
        Facts(
            dtype=problem.dtype,
            out=problem.out,
            layout=problem.layout,
            alignment=problem.alignment(strides, addresses),
            arch=choose_arch(lowest, request.arch, backend.arch),
            epilogue=problem.epilogue,
            bias=problem.bias,
            specialize=problem.shape if request.specialize else None,
        ),
        request.config,
    )
    check_launches(request, spec, problem, strides, backend.sm_count)
    compiled = bench.compile(request.variant, spec)
    return Executor(
        backend=backend,
        loaded=bench.load(backend, compiled),
        variant=request.variant,
        spec=spec,
        compiled=compiled,
        problem=problem,
        strides=strides,
        smem_pad_bytes=request.smem_pad_bytes,
    )


def recall_executor(
    bench: Workbench,
    backend: Any,
    request: Request,
    problem: GemmProblem,
    strides: Strides,
    addresses: tuple[int, int, int],
) -> Executor:
    """build_executor, but the same question gets the executor of the last time.

    A file that was written again is another variant, and so another question.
    """
    key = (backend, request, problem, strides, problem.alignment(strides, addresses))
    found: Executor | None = bench.recall(key)
    if found is None:
        found = build_executor(bench, backend, request, problem, strides, addresses)
        bench.keep(key, found)
    return found


def check_launches(
    request: Request, spec: KernelSpec, problem: GemmProblem, strides: Strides, sm_count: int
) -> None:
    """ResourceError when a launch cannot be, which is known before anything is compiled."""
    s = problem.shape
    if 0 in (s.m, s.n, s.batch):
        return
    # As Executor cuts a batch.
    batch = min(s.batch, MAX_BATCH) if request.variant.batched else 1
    made = plan(request.variant, spec, replace(s, batch=batch), strides, sm_count)
    most = arch_limits(spec.arch).smem_per_block_optin_bytes
    for launch in made.launches:
        smem_bytes = launch.smem_bytes + request.smem_pad_bytes
        if smem_bytes > most:
            raise ResourceError(
                f"{launch.entry} with {request.smem_pad_bytes} bytes added would need {smem_bytes} "
                f"bytes of dynamic shared memory a block; {spec.arch} has {most}",
                hint=f"at most {most - launch.smem_bytes} can be added",
            )


def merge_tunables(config: Mapping[str, Any] | None, tunables: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping of both; UsageError when they disagree."""
    if config is not None and not isinstance(config, Mapping):
        raise UsageError(
            f"config = {config!r} is no mapping", hint='config={"BM": 64}: names and values'
        )
    merged = dict(config or {})
    for name, value in tunables.items():
        if name in merged and merged[name] != value:
            raise UsageError(
                f"{name} is given twice: {merged[name]} in config and {value} by name",
                hint="give it once",
            )
        merged[name] = value
    return merged


def reads_old_c(problem: GemmProblem) -> bool:
    """Whether the result depends on what C holds before."""
    if problem.beta != 0:
        return True
    return problem.epilogue is not None and "c" in parse_epilogue(problem.epilogue).names
