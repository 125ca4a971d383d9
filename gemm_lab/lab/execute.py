"""One call made ready: every launch of a plan with its arguments packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemm_lab.core.arch import arch_limits
from gemm_lab.core.backend import Argument, Pointer, Prepared, Scalar, TensorMapArgument
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch, KernelSpec, LaunchPlan
from gemm_lab.core.problem import GemmProblem, Shape, Strides
from gemm_lab.variants import Variant, plan, spec_scope

__all__ = ["Addresses", "Executor"]

MAX_BATCH = 65535  # the grid's z axis


@dataclass(frozen=True, slots=True)
class Addresses:
    """Byte addresses of the operands; bias 0 when there is none."""

    a: int
    b: int
    c: int
    bias: int = 0


class Executor:
    """All launches of one problem on one backend.

    Args:
        smem_pad_bytes: dynamic shared memory added to every launch, to lower occupancy by hand.
    """

    def __init__(
        self,
        *,
        backend: Any,
        loaded: Any,
        variant: Variant,
        spec: KernelSpec,
        compiled: CompiledKernel,
        problem: GemmProblem,
        strides: Strides,
        smem_pad_bytes: int = 0,
    ) -> None:
        self.backend = backend
        self.compiled = compiled
        self.problem = problem
        self.strides = strides
        self.limits = arch_limits(spec.arch)
        support = variant.support(spec.dtype.name)
        self.fast_accumulation = bool(support.fast_accumulation(spec_scope(variant, spec)))
        self._loaded = loaded
        shape = problem.shape
        # BLAS: alpha == 0 does not read A and B; a sum over nothing says the same.
        depth = 0 if problem.alpha == 0 else shape.k
        chunk = min(shape.batch, MAX_BATCH) if variant.batched else 1
        self._chunks: list[_Chunk] = []
        made: dict[int, tuple[LaunchPlan, list[_Step]]] = {}

        def resident_clusters(launch: KernelLaunch) -> int:
            count: int = backend.resident_clusters(loaded, _more_smem(launch, smem_pad_bytes))
            return count

        # Nothing is launched for an empty C.
        count_all = 0 if 0 in (shape.m, shape.n) else shape.batch
        for first in range(0, count_all, max(chunk, 1)):
            count = min(chunk, shape.batch - first)
            if count not in made:
                part = Shape(m=shape.m, n=shape.n, k=depth, batch=count)
                plan_ = _padded(
                    plan(variant, spec, part, strides, backend.sm_count, resident_clusters),
                    smem_pad_bytes,
                )
                made[count] = (plan_, self._steps(plan_, part))
            self._chunks.append(_Chunk(first=first, plan=made[count][0], steps=made[count][1]))
        self.plan = self._chunks[0].plan if self._chunks else LaunchPlan(launches=())
        # The ordinary call: one step, no workspace, no offsets.
        self._single: _Step | None = None
        if len(self._chunks) == 1 and len(self._chunks[0].steps) == 1:
            self._single = None if self.plan.workspace_bytes else self._chunks[0].steps[0]
        self.takes_three = not problem.bias  # a, b and c are all that a call has to bring
        self._in_order = False
        if self._single is not None:
            order = self._single.names
            self._in_order = order[:3] == ("a", "b", "c") and not {"a", "b", "c"} & set(order[3:])
            self._unused = (0,) * (len(order) - 3)  # workspace and scales, which are not there
            self._launch = self._single.prepared.launch

    def launch_three(self, a: int, b: int, c: int) -> None:
        """The warm call without bias: for a single launch as little Python as can be."""
        if self._in_order:
            self._launch((a, b, c, *self._unused))
        else:
            self(Addresses(a, b, c))

    def __call__(self, where: Addresses, stream: int | None = None) -> None:
        """Launch everything, in order, on a stream (None: the caller's current one)."""
        single = self._single
        if single is not None:
            single.prepared.launch(single.pick(where, 0), stream)
            return
        out_size = self.problem.out.size_bytes
        size = self.problem.dtype.storage.size_bytes
        for chunk in self._chunks:
            moved = Addresses(
                a=where.a + chunk.first * self.strides.stride_a * size,
                b=where.b + chunk.first * self.strides.stride_b * size,
                c=where.c + chunk.first * self.strides.stride_c * out_size,
                bias=where.bias,
            )
            space = None
            if chunk.plan.workspace_bytes:
                space = self.backend.alloc(chunk.plan.workspace_bytes)
                if chunk.plan.workspace_zero:
                    self.backend.fill(space, 0)
            address = 0 if space is None else self.backend.address(space)
            try:
                for step in chunk.steps:
                    step.prepared.launch(step.pick(moved, address), stream)
            finally:
                if space is not None:
                    self.backend.free(space)

    def _steps(self, plan_: LaunchPlan, part: Shape) -> list[_Step]:
        found = []
        for launch in plan_.launches:
            arguments = [self._argument(name, part, plan_) for name in launch.params]
            prepared = self.backend.prepare(self._loaded, launch, arguments)
            moving = [
                _place(name, argument)
                for name, argument in zip(launch.params, arguments, strict=True)
                if not isinstance(argument, Scalar)
            ]
            found.append(
                _Step(
                    prepared=prepared,
                    names=tuple(name for name, _ in moving),
                    offsets_bytes=tuple(offset for _, offset in moving),
                )
            )
        return found

    def _argument(self, name: str, part: Shape, plan_: LaunchPlan) -> Argument:
        compute = self.problem.dtype.compute
        sizes = {"M": part.m, "N": part.n, "K": part.k, "batch": part.batch}
        if name in sizes:
            return Scalar("int", sizes[name])
        if name in ("alpha", "beta"):
            return Scalar(compute, getattr(self.problem, name))
        if name in ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c"):
            return Scalar("long long", getattr(self.strides, name))
        if name.startswith("tma_"):
            # The plan's own address: the real one comes with each call.
            return TensorMapArgument(plan_.tensor_maps[name[-1]], 0)
        return Pointer(0)


_OPERAND = {
    "A": "a", "B": "b", "C": "c", "bias": "bias", "workspace": "workspace",
    "tma_a": "a", "tma_b": "b", "tma_c": "c", "scale_a": "none", "scale_b": "none",
}  # fmt: skip


def _place(name: str, argument: Argument) -> tuple[str, int]:
    """Which address of a call an argument takes, and how many bytes behind it."""
    if isinstance(argument, TensorMapArgument):
        offset_bytes = argument.spec.workspace_offset_bytes
        if offset_bytes is not None:
            return "workspace", offset_bytes
    return _OPERAND[name], 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Step:
    prepared: Prepared
    names: tuple[str, ...]
    offsets_bytes: tuple[int, ...]

    def pick(self, where: Addresses, workspace: int) -> Sequence[int]:
        """Addresses in the order of the launch's pointers."""
        known = {
            "a": where.a, "b": where.b, "c": where.c, "bias": where.bias,
            "workspace": workspace, "none": 0,
        }  # fmt: skip
        return [known[n] + o for n, o in zip(self.names, self.offsets_bytes, strict=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chunk:
    first: int
    plan: LaunchPlan
    steps: list[_Step]


def _padded(plan_: LaunchPlan, pad_bytes: int) -> LaunchPlan:
    if pad_bytes == 0:
        return plan_
    launches = tuple(_more_smem(launch, pad_bytes) for launch in plan_.launches)
    return replace(plan_, launches=launches)


def _more_smem(launch: KernelLaunch, pad_bytes: int) -> KernelLaunch:
    return replace(launch, smem_bytes=launch.smem_bytes + pad_bytes)
