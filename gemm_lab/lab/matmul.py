"""matmul: one function for any array, on any backend."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemm_lab.core.dtypes import DType, ScalarType
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape, Strides
from gemm_lab.errors import RuleError, UsageError
from gemm_lab.gpu.arrays import ArrayView, empty_output, may_overlap, packed, view
from gemm_lab.gpu.streams import wait_for
from gemm_lab.lab.choose import choose_variant
from gemm_lab.lab.execute import Addresses, Executor
from gemm_lab.lab.operands import Placed, choose_layout, fits, host_array, matrix, place
from gemm_lab.lab.prepare import Request, build_executor, merge_tunables, reads_old_c
from gemm_lab.lab.workbench import BackendName, Workbench, default_workbench
from gemm_lab.variants import Variant, parse_epilogue

__all__ = ["CopyWarning", "matmul"]

Array = Any


class CopyWarning(UserWarning):
    """An operand had to be copied before a kernel could read it; the text says which and why."""


def matmul(
    a: Array,
    b: Array,
    *,
    out: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Array | None = None,
    epilogue: str | None = None,
    dtype: str | None = None,
    out_dtype: str | None = None,
    variant: str | Variant | None = None,
    config: Mapping[str, Any] | None = None,
    backend: BackendName = "auto",
    workbench: Workbench | None = None,
    **tunables: Any,
) -> Array:
    """epilogue(alpha * a @ b + beta * out), by a kernel of the lab.

    Args:
        a: [m, k] or [batch, m, k]; NumPy, CuPy, torch, or anything with the CUDA array interface
            or DLPack, with any strides. A batch of one goes with any batch.
        b: [k, n] or [batch, k, n], of the same element type.
        out: [m, n] or [batch, m, n]; written and returned. It must not overlap a, b or bias.
        beta: factor of the old `out`; 0 never reads it.
        bias: n elements of the output type, added before the epilogue.
        epilogue: an expression of x, bias, c, row, col (see gemm_lab.variants.epilogue).
        dtype: the arithmetic; float32 arrays mean fp32 unless this says tf32 or fp32x3, uint8
            ones need fp8_e4m3.
        out_dtype: of the result; the storage type by default.
        variant: a name, a file, or None for the lab's choice; `config` and further keywords are
            its tunables.

    Returns:
        `out`, or a new array of the same library as `a`. On a GPU the work is queued on the
        caller's current stream.

    Raises:
        UsageError: shapes, types or arrays that do not go together. RuleError: tunables that
        break a rule. CompileError, LaunchError: from below.
    """
    quick = _quick
    if quick is not None and workbench is None:
        found = quick(a, b, out)
        if found is not None:
            key = (found[0], alpha, beta, variant, backend, dtype, out_dtype, epilogue)
            if bias is None and config is None and not tunables:
                call = _warm.get(key)
                if call is not None and call(found[1]):
                    return out
    request = _Call(
        bench=workbench or default_workbench(),
        a=a,
        b=b,
        out=out,
        bias=bias,
        alpha=_number("alpha", alpha),
        beta=_number("beta", beta),
        epilogue=epilogue,
        dtype=dtype,
        out_dtype=out_dtype,
        variant=variant,
        tunables=merge_tunables(config, tunables),
        backend=backend,
    )
    result = request.run()
    if workbench is None and request.reusable is not None:
        _remember(request, variant, backend, dtype, out_dtype, epilogue, bool(config or tunables))
    return result


# ---- the warm road: a call like an earlier one goes straight to its packed launch ----

_quick: Callable[[Any, Any, Any], tuple[object, tuple[int, int, int]] | None] | None = None
_warm: dict[object, Callable[[tuple[int, int, int]], bool]] = {}
_MOST_WARM = 4096


def _remember(
    call: _Call,
    variant: str | Variant | None,
    backend: str,
    dtype: str | None,
    out_dtype: str | None,
    epilogue: str | None,
    tuned: bool,
) -> None:
    global _quick
    if tuned or call.bias is not None or call.out is None:
        return
    from gemm_lab.gpu.arrays import quick_looker

    if _quick is None:
        _quick = quick_looker()
    found = _quick(call.a, call.b, call.out)
    if found is None:
        return
    if len(_warm) >= _MOST_WARM:
        _warm.clear()
    key = (found[0], call.alpha, call.beta, variant, backend, dtype, out_dtype, epilogue)
    assert call.reusable is not None
    _warm[key] = _warm_call(call.reusable, call.spans)


def _warm_call(
    executor: Executor, spans: tuple[int, int, int]
) -> Callable[[tuple[int, int, int]], bool]:
    """A function of three addresses; False when out may overlap an input now."""
    size_a, size_b, size_c = spans

    def call(addresses: tuple[int, int, int]) -> bool:
        a, b, c = addresses
        if (a < c + size_c and c < a + size_a) or (b < c + size_c and c < b + size_b):
            return False
        executor.launch_three(a, b, c)
        return True

    return call


# ---- the whole road ----


@dataclass(kw_only=True)
class _Call:
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
    variant: str | Variant | None
    tunables: dict[str, Any]
    backend: BackendName
    reusable: Executor | None = None
    spans: tuple[int, int, int] = (0, 0, 0)

    def run(self) -> Array:
        a = matrix(view(self.a, name="a"), "a")
        b = matrix(view(self.b, name="b"), "b")
        arithmetic = _arithmetic(a, b, self.dtype)
        out_type = arithmetic.out(self.out_dtype or self._out_scalar())
        shape = _shape(a, b)
        flat = len(_shape_of(self.a)) == 2 and len(_shape_of(self.b)) == 2
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
        if self.epilogue is not None:
            parse_epilogue(self.epilogue)
        self._execute(problem, a, b, c, bias)
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
        if _overlaps_itself(c):
            raise UsageError(
                f"out has elements that share memory (strides {c.strides})",
                hint="pass an array of its own",
            )
        if c.device != a.device:
            raise UsageError(
                f"out lies on {_place(c)} and a on {_place(a)}", hint="put them in one place"
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
                f"bias lies on {_place(bias)} and a on {_place(a)}", hint="put them in one place"
            )
        return bias

    def _execute(
        self, problem: GemmProblem, a: ArrayView, b: ArrayView, c: ArrayView, bias: ArrayView | None
    ) -> None:
        backend, variant = self._backend_and_variant(problem, a)
        support = variant.support(problem.dtype.name)
        layout = choose_layout(a, b, support.layouts)
        problem = replace(problem, layout=layout)
        request = Request.of(variant, problem.dtype.name, self.tunables)
        aligned: frozenset[str] = frozenset()
        while True:
            placed_a = place(a, layout[0], backend, name="a", aligned="a" in aligned)
            placed_b = place(b, layout[1], backend, name="b", aligned="b" in aligned)
            placed_c = _place_out(problem, c, backend, aligned="c" in aligned)
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
                executor = build_executor(self.bench, backend, request, problem, strides, addresses)
                break
            except RuleError as error:
                # A copy with aligned rows may keep a rule that these strides break.
                if not error.alignment_of - aligned:
                    raise
                aligned |= error.alignment_of
        placed_bias = _place_bias(bias, backend)
        stream = _join_streams(backend, a, b, c, bias)
        where = Addresses(placed_a.address, placed_b.address, placed_c.address, placed_bias.address)
        executor(where, stream)
        copies = [p.copied for p in (placed_a, placed_b, placed_c) if p.copied]
        for text in copies:
            warnings.warn(text, CopyWarning, stacklevel=4)
        _bring_back(problem, c, placed_c, backend)
        if a.device is not None and not copies and executor.is_single:
            self.reusable = executor
            self.spans = (a.high - a.low, b.high - b.low, c.high - c.low)

    def _backend_and_variant(self, problem: GemmProblem, a: ArrayView) -> tuple[Any, Variant]:
        named = None if self.variant is None else self.bench.variant(self.variant)
        if a.device is not None:
            if self.backend == "emulator":
                raise UsageError(
                    "the emulator works on NumPy arrays",
                    hint="pass NumPy arrays, or leave the backend to auto",
                )
            backend: Any = self.bench.gpu(a.device)
        else:
            lowest = "sm_80" if named is None else named.support(problem.dtype.name).arch
            backend = self.bench.choose_backend(
                self.backend, lowest_arch=lowest, arch=None, device=None
            ).backend
        if named is None:
            named = choose_variant(
                self.bench, dtype=problem.dtype.name, layout=None, arch=backend.arch
            )
        return backend, named


def _number(name: str, value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise UsageError(f"{name} = {value} is not finite", hint=f"pass a finite {name}")
    return number


def _shape_of(array: Array) -> tuple[int, ...]:
    return tuple(array.shape) if hasattr(array, "shape") else view(array).shape


def _place(view_: ArrayView) -> str:
    return "the host" if view_.device is None else f"GPU {view_.device}"


def _arithmetic(a: ArrayView, b: ArrayView, asked: str | None) -> DType:
    if a.device != b.device:
        raise UsageError(
            f"a lies on {_place(a)} and b on {_place(b)}", hint="put them in one place"
        )
    if a.scalar != b.scalar:
        raise UsageError(
            f"a holds {a.scalar} and b {b.scalar}", hint="convert one to the other's type"
        )
    if asked is None:
        if a.scalar in ("fp32", "fp16", "bf16", "int8", "fp8_e4m3"):
            return dtype_named(a.scalar)
        raise UsageError(
            f"no kernel multiplies {a.scalar}",
            hint="fp32, fp16, bf16, int8 arrays, or uint8 ones with dtype='fp8_e4m3'",
        )
    arithmetic = dtype_named(asked)
    carriers = {arithmetic.storage.name, arithmetic.storage.numpy_name}
    if a.scalar not in carriers:
        raise UsageError(
            f"dtype {asked} needs {arithmetic.storage.name} arrays, not {a.scalar}",
            hint=f"convert them, or leave dtype out for {a.scalar}",
        )
    return arithmetic


def _shape(a: ArrayView, b: ArrayView) -> Shape:
    if a.shape[2] != b.shape[1]:
        raise UsageError(
            f"a is {a.shape[1:]} and b {b.shape[1:]}: {a.shape[2]} columns do not meet "
            f"{b.shape[1]} rows",
            hint="a is [m, k] and b [k, n]",
        )
    batches = {a.shape[0], b.shape[0]}
    if len(batches - {1}) > 1:
        raise UsageError(
            f"batches of {a.shape[0]} and {b.shape[0]} do not go together",
            hint="equal batches, or one of 1",
        )
    batch = next(iter(batches - {1}), 1)
    return Shape(m=a.shape[1], n=b.shape[2], k=a.shape[2], batch=batch)


def _overlaps_itself(c: ArrayView) -> bool:
    """Whether two elements of a view may share memory."""
    axes = sorted((abs(s), n) for s, n in zip(c.strides, c.shape, strict=True) if n > 1)
    reach = 0
    for stride, extent in axes:
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def _place_out(problem: GemmProblem, c: ArrayView, backend: Any, *, aligned: bool) -> Placed:
    """Where the kernel writes: the array itself, or a packed stand-in that is copied back."""
    reads = reads_old_c(problem)
    if c.device is not None:
        ld = fits(c, "n")
        positive = c.shape[0] == 1 or c.strides[0] > 0
        if ld is not None and positive and not aligned:
            stride = c.strides[0] if c.shape[0] > 1 else 0
            return Placed(address=c.address, letter="n", ld=ld, batch_stride=stride, owner=c.owner)
        stand_in = packed(c, row_multiple=16 // c.itemsize if aligned else 1)
        return Placed(
            address=stand_in.address,
            letter="n",
            ld=stand_in.strides[1],
            batch_stride=stand_in.strides[0] if c.shape[0] > 1 else 0,
            owner=stand_in,
            copied=f"out was written through a copy: strides {c.strides[1:]}",
        )
    if reads:
        return place(c, "n", backend, name="out", aligned=aligned)
    batch, m, n = c.shape
    step = 16 // c.itemsize if aligned else 1
    ld = -(-n // step) * step
    buffer = backend.alloc(batch * m * ld * c.itemsize)
    return Placed(
        address=backend.address(buffer),
        letter="n",
        ld=ld,
        batch_stride=m * ld if batch > 1 else 0,
        owner=buffer,
    )


def _place_bias(bias: ArrayView | None, backend: Any) -> Placed:
    if bias is None:
        return Placed(address=0, letter="n", ld=1, batch_stride=0, owner=None)
    row = replace(bias, shape=(1, 1, *bias.shape), strides=(0, 0, *bias.strides))
    if bias.device is None:
        row = replace(row, owner=bias.owner.reshape(1, 1, -1))
    return place(row, "n", backend, name="bias")


def _join_streams(backend: Any, *views: ArrayView | None) -> int | None:
    """The caller's stream, made to wait for the streams that fill the arrays."""
    producers = {v.stream for v in views if v is not None and v.stream is not None}
    if not producers:
        return None
    stream = int(backend.current_stream())
    with backend.on_device("joining streams"):
        for producer in producers:
            wait_for(producer, stream)
    return stream


def _bring_back(problem: GemmProblem, c: ArrayView, placed: Placed, backend: Any) -> None:
    """Copy a stand-in into the caller's array."""
    batch, m, n = c.shape
    if c.device is None:
        whole = backend.download(placed.owner, problem.out.numpy(), (batch, m, placed.ld))
        host_array(c)[...] = whole[:, :, :n]
        backend.free(placed.owner)
    elif placed.copied:
        from gemm_lab.gpu.arrays import copy_into

        copy_into(placed.owner, c)
