"""One call of matmul worked out: views, backend, variant, placement, launch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemm_lab.core.dtypes import ScalarType
from gemm_lab.core.problem import GemmProblem, Shape, Strides
from gemm_lab.errors import GemmLabError, RuleError, UsageError
from gemm_lab.gpu.arrays import ArrayView, empty_output, may_overlap, view
from gemm_lab.gpu.streams import on_stream, wait_for
from gemm_lab.lab.choice import Alternative
from gemm_lab.lab.choice_questions import question_of_arrays
from gemm_lab.lab.chooser import RefusedError, chooser_of
from gemm_lab.lab.execute import Addresses, Executor
from gemm_lab.lab.operands import Placed, choose_layout, matrix, place
from gemm_lab.lab.outputs import bring_back, overlaps_itself, place_bias, place_out
from gemm_lab.lab.prepare import Request, build_executor, recall_executor
from gemm_lab.lab.question import arithmetic_of, home, shape_of
from gemm_lab.lab.workbench import LOWEST_USUAL_ARCH, BackendName, Workbench
from gemm_lab.variants import Variant, parse_epilogue

__all__ = ["Call", "CopyWarning"]

Array = Any


class CopyWarning(UserWarning):
    """An operand had to be copied before a kernel could read it; the text says which and why."""


@dataclass(frozen=True, kw_only=True)
class _Views:
    """The operands, each with three axes; they lie in one place."""

    a: ArrayView
    b: ArrayView
    c: ArrayView
    bias: ArrayView | None


@dataclass(kw_only=True)
class Call:
    """One call of matmul while it is worked out."""

    bench: Workbench
    a: Array
    b: Array
    out: Array | None
    bias: Array | None
    alpha: float
    beta: float
    epilogue: str | None
    dtype: str | None
    out_dtype: str | None
    variant: str | Path | Variant | None
    tunables: dict[str, Any]
    backend: BackendName
    reusable: Executor | None = None
    spans: tuple[int, int, int] = (0, 0, 0)
    copies: list[str] = field(default_factory=list)

    def run(self) -> Array:
        """Check everything, launch, and give `out` (or a new array) back; see matmul."""
        seen_a, seen_b = view(self.a, name="a"), view(self.b, name="b")
        ranks = (len(seen_a.shape), len(seen_b.shape))
        a, b = matrix(seen_a, "a"), matrix(seen_b, "b")
        arithmetic = arithmetic_of(a, b, self.dtype)
        out_type = arithmetic.out(self.out_dtype or self._out_scalar())
        shape = shape_of(a, b)
        flat = ranks == (2, 2)
        reads_c = self.epilogue is not None and "c" in parse_epilogue(self.epilogue).names
        if reads_c and self.out is None:
            raise UsageError(
                f"epilogue {self.epilogue!r} reads c, the old out, and none was given",
                hint="pass out=, or an epilogue without c",
            )
        out, c = self._output(a, b, shape, out_type, flat)
        bias = self._bias_view(shape, out_type, a)
        for other, name in ((a, "a"), (b, "b"), (bias, "bias")):
            if other is not None and self.out is not None and may_overlap(c, other):
                raise UsageError(
                    f"out overlaps {name} in memory",
                    hint="pass another out, or a copy of the operand",
                )
        if shape.m == 0 or shape.n == 0 or shape.batch == 0:
            return out
        problem = GemmProblem(
            shape=shape,
            dtype=arithmetic,
            out=out_type,
            alpha=self.alpha,
            beta=self.beta,
            epilogue=self.epilogue,
            bias=self.bias is not None,
        )
        self._execute(problem, _Views(a=a, b=b, c=c, bias=bias))
        for text in self.copies:
            warnings.warn(text, CopyWarning, stacklevel=3)
        return out

    def _out_scalar(self) -> str | None:
        if self.out is None:
            return None
        return view(self.out, name="out").scalar

    def _output(
        self, a: ArrayView, b: ArrayView, shape: Shape, out_type: ScalarType, flat: bool
    ) -> tuple[Array, ArrayView]:
        import numpy

        wanted = (shape.m, shape.n) if flat else (shape.batch, shape.m, shape.n)
        if self.out is None:
            if self.beta != 0:
                raise UsageError(
                    f"beta = {self.beta} needs out, the matrix that it multiplies",
                    hint="pass out=, or leave beta at 0",
                )
            made = (
                numpy.empty(wanted, out_type.numpy())
                if a.device is None
                else empty_output(wanted, out_type, device=a.device, like=self.a)
            )
            return made, matrix(view(made, name="out"), "out")
        c = view(self.out, name="out")
        if c.shape != wanted:
            raise UsageError(f"out has shape {c.shape}", hint=f"{wanted} is needed")
        if c.scalar != out_type.name:
            raise UsageError(
                f"out holds {c.scalar}", hint=f"{out_type.name} is needed, or another out_dtype"
            )
        if c.readonly:
            raise UsageError("out is read-only", hint="pass an array that may be written")
        if overlaps_itself(c):
            raise UsageError(
                f"out has elements that share memory (strides {c.strides})",
                hint="pass an array of its own",
            )
        if c.device != a.device:
            raise UsageError(
                f"out lies on {home(c)} and a on {home(a)}", hint="put them in one place"
            )
        return self.out, matrix(c, "out")

    def _bias_view(self, shape: Shape, out_type: ScalarType, a: ArrayView) -> ArrayView | None:
        if self.bias is None:
            return None
        bias = view(self.bias, name="bias")
        if bias.shape != (shape.n,):
            raise UsageError(f"bias has shape {bias.shape}", hint=f"({shape.n},) is needed")
        if bias.scalar != out_type.name:
            raise UsageError(f"bias holds {bias.scalar}", hint=f"{out_type.name} is needed")
        if bias.device != a.device:
            raise UsageError(
                f"bias lies on {home(bias)} and a on {home(a)}", hint="put them in one place"
            )
        return bias

    def _execute(self, problem: GemmProblem, views: _Views) -> None:
        dtype = problem.dtype.name
        if self.variant is not None:
            variant = self.bench.variant(self.variant)
            support = variant.support(dtype)
            laid = replace(problem, layout=choose_layout(views.a, views.b, support.layouts))
            request = Request.of(variant, dtype, self.tunables)
            self._on_its_stream(self._backend(views.a, support.arch), request, laid, views)
            return
        backend = self._backend(views.a, LOWEST_USUAL_ARCH)
        emulated = backend.name == "emulator"
        question = question_of_arrays(
            problem, views.a, views.b, views.c,
            arch=None if emulated else backend.arch,
            device=None if emulated else backend.device_name,
            sm_count=backend.sm_count,
            emulated=emulated,
            tunables=self.tunables,
        )  # fmt: skip

        def attempt(chosen: Alternative) -> None:
            request = Request(variant=self.bench.variant(chosen.variant), config=chosen.config)
            where = self.bench.emulator(chosen.arch) if emulated else backend
            laid = replace(problem, layout=chosen.layout)
            self._on_its_stream(where, request, laid, views)

        chooser_of(self.bench).first_that_works(question, attempt)

    def _on_its_stream(
        self, backend: Any, request: Request, problem: GemmProblem, views: _Views
    ) -> None:
        a, b, c, bias = views.a, views.b, views.c, views.bias
        if a.device is None:
            self._place_and_launch(backend, request, problem, views)
            return
        # The result is expected on the stream of the library that holds it.
        with on_stream(c.stream, a.device):
            if c.stream is not None or any(v and v.stream is not None for v in (a, b, bias)):
                stream = int(backend.current_stream())
                for other in (a, b, bias):
                    wait_for(None if other is None else other.stream, stream)
            self._place_and_launch(backend, request, problem, views)

    def _place_and_launch(
        self, backend: Any, request: Request, problem: GemmProblem, views: _Views
    ) -> None:
        """On the current stream: place the operands, launch, bring the result back."""
        uploads: list[Placed] = []
        try:
            self._launch(backend, request, problem, views, uploads)
        finally:
            if views.a.device is None:
                for placed in uploads:
                    if placed.owner is not None:
                        backend.free(placed.owner)

    def _launch(
        self,
        backend: Any,
        request: Request,
        problem: GemmProblem,
        views: _Views,
        placed: list[Placed],
    ) -> None:
        """The same; `placed` takes whatever was laid in the backend's memory."""
        layout, a, b, c, bias = problem.layout, views.a, views.b, views.c, views.bias
        aligned: frozenset[str] = frozenset()
        ready = build_executor if a.device is None else recall_executor
        while True:
            placed_a = place(a, layout[0], backend, name="a", aligned="a" in aligned)
            placed_b = place(b, layout[1], backend, name="b", aligned="b" in aligned)
            placed_c = place_out(problem, c, backend, aligned="c" in aligned)
            placed += (placed_a, placed_b, placed_c)
            strides = Strides(
                lda=placed_a.ld,
                ldb=placed_b.ld,
                ldc=placed_c.ld,
                stride_a=placed_a.batch_stride,
                stride_b=placed_b.batch_stride,
                stride_c=placed_c.batch_stride,
            )
            addresses = (placed_a.address, placed_b.address, placed_c.address)
            try:
                executor = ready(self.bench, backend, request, problem, strides, addresses)
                break
            except RuleError as error:
                # A copy with aligned rows may keep a rule that these strides break.
                if not error.alignment_of - aligned:
                    raise self._refusal(error) from None
                aligned |= error.alignment_of
            except GemmLabError as error:
                raise self._refusal(error) from error
        placed_bias = place_bias(bias, backend)
        placed.append(placed_bias)
        executor(Addresses(*addresses, placed_bias.address))
        copies = [p.copied for p in (placed_a, placed_b, placed_c) if p.copied]
        self.copies += copies
        bring_back(problem, c, placed_c, backend)
        plain = all(v is None or v.stream is None for v in (a, b, c, bias))
        if a.device is not None and plain and not copies and executor.takes_three:
            self.reusable = executor
            self.spans = (a.high - a.low, b.high - b.low, c.high - c.low)

    def _refusal(self, error: GemmLabError) -> Exception:
        """For a kernel of the lab's own choice: the next one may do."""
        return error if self.variant is not None else RefusedError(error)

    def _backend(self, a: ArrayView, lowest_arch: str) -> Any:
        if a.device is None:
            return self.bench.choose_backend(
                self.backend, lowest_arch=lowest_arch, arch=None, device=None
            ).backend
        if self.backend == "emulator":
            raise UsageError(
                "the emulator works on NumPy arrays",
                hint="pass NumPy arrays, or leave the backend to auto",
            )
        return self.bench.gpu(a.device)
