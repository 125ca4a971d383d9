"""A variant as the model sees it: its [model] table, evaluated, with the compiler's resources.

    [model]
    unit     = "cuda_core"
    block_m  = "BM"
    threads  = "THREADS"
    staging  = "registers"
    shared_a = { k_contiguous = true, vector_elements = 4 }

Keys are the fields of model.KernelShape; values are expressions over tunables, dtype facts and
derived names, or a bare word for unit, staging and lanes_first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemm_lab.core.kernel import CompiledKernel, KernelSpec, heaviest_launch
from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import CompileError, UsageError
from gemm_lab.lab.candidates import checked_spec
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.workbench import Workbench
from gemm_lab.model import KernelShape
from gemm_lab.variants import Variant, plan, spec_scope
from gemm_lab.variants.expressions import ExpressionError

__all__ = ["model_facts", "variant_shape"]


def variant_shape(
    bench: Workbench,
    variant: Variant,
    *,
    problem: GemmProblem,
    tunables: Mapping[str, Any],
    arch: str,
    sm_count: int = 1,
    smem_pad_bytes: int = 0,
) -> KernelShape:
    """What the model needs to know of a variant on one problem, compiled for `arch`.

    Registers and shared memory are the compiler's answer. Where there is no compiler for the
    architecture, shared memory is what the file declares and registers are taken as no limit.

    UsageError: the file has no [model] table, or the variant cannot do the problem.
    """
    request = Request.of(variant, problem.dtype.name, tunables)
    spec, strides = checked_spec(request, problem, arch)
    facts = model_facts(variant, spec)
    launch_plan = plan(variant, spec, problem.shape, strides, sm_count)
    compiled = _compiled(bench, variant, spec)
    launch = heaviest_launch(launch_plan.launches, {} if compiled is None else compiled.resources)
    if compiled is None:
        scope = {
            **spec_scope(variant, spec), "M": problem.shape.m, "N": problem.shape.n,
            "K": problem.shape.k, "batch": problem.shape.batch, "SMS": sm_count,
        }  # fmt: skip
        step = next(step for step in variant.launches if step.entry == launch.entry)
        facts["static_smem_bytes"] = int(step.static_smem(scope))
    else:
        resources = compiled.resources[launch.entry]
        facts["static_smem_bytes"] = resources.static_smem_bytes
        facts["registers_per_thread"] = resources.registers_per_thread
    facts["dynamic_smem_bytes"] = launch.smem_bytes + smem_pad_bytes
    facts.setdefault("threads", launch.block[0] * launch.block[1] * launch.block[2])
    try:
        return KernelShape.from_facts(facts)
    except UsageError as error:
        raise variant.fault("model", error.message, hint=error.hint) from error


def model_facts(variant: Variant, spec: KernelSpec) -> dict[str, Any]:
    """The [model] table in numbers and words, operands nested; UsageError when there is none."""
    if not variant.model:
        raise UsageError(
            f"{variant.name} does not say how the model shall see it",
            hint="add a [model] table to its front matter: unit, block_m, block_n, block_k, ...",
        )
    scope = spec_scope(variant, spec)
    facts: dict[str, Any] = {}
    for key, expression in variant.model.items():
        try:
            value = expression(scope)
        except ExpressionError as error:
            raise variant.fault(f"model.{key}", str(error)) from None
        outer, _, inner = key.partition(".")
        if inner:
            facts.setdefault(outer, {})[inner] = value
        else:
            facts[outer] = value
    return facts


def _compiled(bench: Workbench, variant: Variant, spec: KernelSpec) -> CompiledKernel | None:
    try:
        return bench.compile(variant, spec)
    except CompileError as error:
        if error.source:  # the kernel's own fault, not a missing compiler
            raise
        return None
    except UsageError:
        return None  # NVRTC does not know the architecture (V100 under CUDA 13)
