"""One problem laid out in a backend's memory: run it, poison it, hold it against the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_lab.core.dtypes import ScalarType
from gemm_lab.core.problem import GemmProblem, Strides
from gemm_lab.errors import RuleError
from gemm_lab.lab.execute import Addresses, Executor
from gemm_lab.lab.inputs import decode, uniform
from gemm_lab.lab.memory import check_memory
from gemm_lab.lab.prepare import Request, build_executor, reads_old_c
from gemm_lab.lab.verify import Matrices, Verdict, verify
from gemm_lab.lab.workbench import Workbench

__all__ = ["Trial", "TrialData", "aligned_strides", "make_data", "make_executor", "make_trial"]

Array = Any
POISON = 0xFF  # a NaN in every floating type, -1 in the integers
# Above this many products the reference is taken on some rows only (host arithmetic).
_HOST_REFERENCE_LIMIT = 3 * 10**11
_SAMPLED_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class TrialData:
    """Host copies of the inputs, as stored: [batch, outer, ld] with the rows padded to ld."""

    a: Array
    b: Array
    c: Array | None
    bias: Array | None
    strides: Strides
    seed: int


@dataclass(frozen=True, slots=True)
class MatrixView:
    """[batch, rows, cols] within a buffer; strides in elements."""

    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    scalar: ScalarType


@dataclass(frozen=True, slots=True)
class _Buffers:
    a: Any
    b: Any
    c: Any
    bias: Any


class Trial:
    """A problem on a backend with its inputs uploaded, in one or more sets of buffers.

    With a `lender` A, B and the bias of its sets are read; only C is this trial's own.
    """

    def __init__(
        self,
        *,
        backend: Any,
        executor: Executor,
        problem: GemmProblem,
        data: TrialData,
        sets: int = 1,
        lender: Trial | None = None,
    ) -> None:
        self.backend = backend
        self._lender = lender
        self.executor = executor
        self.problem = problem
        self.data = data
        s = problem.shape
        self.c_bytes = (
            max((s.batch - 1) * data.strides.stride_c, 0) + s.m * data.strides.ldc
        ) * problem.out.size_bytes
        self._buffers: list[_Buffers] = []
        self.addresses = [self._upload_set() for _ in range(sets)]

    def _upload_set(self) -> Addresses:
        data, backend, lender = self.data, self.backend, self._lender
        c = backend.alloc(self.c_bytes) if data.c is None else backend.upload(data.c)
        if lender is None:
            a, b = backend.upload(data.a), backend.upload(data.b)
            bias = None if data.bias is None else backend.upload(data.bias)
        else:
            index = len(self._buffers)
            lender.add_sets(index + 1)
            lent = lender._buffers[index]
            a, b, bias = lent.a, lent.b, lent.bias
        self._buffers.append(_Buffers(a, b, c, bias))
        return Addresses(
            backend.address(a),
            backend.address(b),
            backend.address(c),
            0 if bias is None else backend.address(bias),
        )

    @property
    def input_bytes(self) -> int:
        """A and B of one set."""
        return int(self.data.a.nbytes + self.data.b.nbytes)

    def add_sets(self, count: int) -> None:
        """Upload until there are `count` sets."""
        while len(self.addresses) < count:
            self.addresses.append(self._upload_set())

    def launch(self, index: int = 0) -> None:
        """Queue the kernel on set `index`."""
        self.executor(self.addresses[index])

    def reset_c(self, index: int = 0) -> None:
        """Poison C with NaN, or put the old C back where the result depends on it."""
        c = self._buffers[index].c
        if self.data.c is None:
            self.backend.fill(c, POISON)
        else:
            self.backend.write(c, self.data.c)

    def result(self, index: int = 0) -> Array:
        """C as [batch, m, n] in the output type, on the host, after everything queued is done."""
        self.backend.synchronize()
        raw = self.backend.download(
            self._buffers[index].c,
            self.problem.out.numpy(),
            (self.c_bytes // self.problem.out.size_bytes,),
        )
        view = self._views()["c"]
        return _strided(raw, view)

    def check(self, index: int = 0) -> Verdict:
        """Poison C, run once, compare every element (or, for huge problems, whole rows)."""
        self.reset_c(index)
        self.launch(index)
        self.backend.synchronize()
        decode_rows = getattr(self.backend, "float64_rows", None)
        if decode_rows is not None:
            try:
                return verify(self.problem, self._on_device(decode_rows, index))
            except ImportError:  # CuPy multiplies float64 with cuBLAS, which is not there
                pass
        return self._check_on_host(self.result(index))

    def _views(self) -> dict[str, MatrixView]:
        """Where [batch, rows, cols] of each operand lie in their buffers, strides in elements."""
        s, t, layout = self.problem.shape, self.data.strides, self.problem.layout
        a = (t.lda, 1) if layout[0] == "n" else (1, t.lda)
        b = (t.ldb, 1) if layout[1] == "n" else (1, t.ldb)
        storage, out = self.problem.dtype.storage, self.problem.out
        return {
            "a": MatrixView((s.batch, s.m, s.k), (t.stride_a, *a), storage),
            "b": MatrixView((s.batch, s.k, s.n), (t.stride_b, *b), storage),
            "c": MatrixView((s.batch, s.m, s.n), (t.stride_c, t.ldc, 1), out),
        }

    def _check_on_host(self, c_after: Array) -> Verdict:
        import numpy

        s, data, views = self.problem.shape, self.data, self._views()
        rows = None
        if s.m * s.n * max(s.k, 1) * s.batch > _HOST_REFERENCE_LIMIT:
            generator = numpy.random.default_rng(data.seed)
            rows = numpy.sort(generator.permutation(s.m)[:_SAMPLED_ROWS])
        a, b = _strided(data.a, views["a"]), _strided(data.b, views["b"])
        before = None if data.c is None else _strided(data.c, views["c"])
        storage, out = self.problem.dtype.storage, self.problem.out
        return verify(
            self.problem,
            Matrices(
                a=lambda block: decode(a[:, block], storage),
                b=lambda: decode(b, storage),
                c_after=lambda block: decode(c_after[:, block], out),
                c_before=None if before is None else lambda block: decode(before[:, block], out),
                bias=None if data.bias is None else decode(data.bias, out),
            ),
            rows=rows,
        )

    def _on_device(self, decode_rows: Any, index: int) -> Matrices:
        """The same matrices where they lie; the old C is uploaded again."""
        views, held, data = self._views(), self._buffers[index], self.data
        kept = None if data.c is None else self.backend.upload(data.c)

        def rows(buffer: Any, view: MatrixView) -> Any:
            return lambda block: decode_rows(buffer, view.scalar, view.shape, view.strides, block)

        out = self.problem.out
        vector = MatrixView((1, 1, self.problem.shape.n), (0, 0, 1), out)
        return Matrices(
            a=rows(held.a, views["a"]),
            b=lambda: rows(held.b, views["b"])(slice(None)),
            c_after=rows(held.c, views["c"]),
            c_before=None if kept is None else rows(kept, views["c"]),
            bias=None if held.bias is None else rows(held.bias, vector)(slice(None))[0, 0],
        )

    def free(self) -> None:
        """Give all buffers back that are this trial's own."""
        for buffers in self._buffers:
            lent = () if self._lender else (buffers.a, buffers.b, buffers.bias)
            for buffer in (buffers.c, *lent):
                if buffer is not None:
                    self.backend.free(buffer)
        self._buffers.clear()


def make_data(problem: GemmProblem, strides: Strides, *, seed: int) -> TrialData:
    """Inputs of a problem, stored with these strides; the padding holds NaN poison."""
    s = problem.shape
    storage, out = problem.dtype.storage, problem.out
    outer_a, inner_a = (s.m, s.k) if problem.layout[0] == "n" else (s.k, s.m)
    outer_b, inner_b = (s.k, s.n) if problem.layout[1] == "n" else (s.n, s.k)
    return TrialData(
        a=_stored(s.batch, outer_a, inner_a, strides.lda, storage, seed),
        b=_stored(s.batch, outer_b, inner_b, strides.ldb, storage, seed + 1),
        c=_stored(s.batch, s.m, s.n, strides.ldc, out, seed + 2) if reads_old_c(problem) else None,
        bias=uniform((s.n,), out, seed=seed + 3) if problem.bias else None,
        strides=strides,
        seed=seed,
    )


def _strided(stored: Array, view: MatrixView) -> Array:
    """A host view of stored elements."""
    import numpy

    size = stored.itemsize
    return numpy.lib.stride_tricks.as_strided(
        stored, view.shape, tuple(x * size for x in view.strides), writeable=False
    )


def _stored(batch: int, outer: int, inner: int, ld: int, scalar: Any, seed: int) -> Array:
    import numpy

    values = uniform((batch, outer, inner), scalar, seed=seed)
    if ld == inner:
        return values
    wide = numpy.full((batch, outer, ld * values.itemsize), POISON, numpy.uint8)
    stored = wide.view(values.dtype)
    stored[:, :, :inner] = values
    return stored


def aligned_strides(problem: GemmProblem, operands: frozenset[str]) -> Strides:
    """Packed strides, with rows of the named operands padded to whole 16 bytes."""
    s = problem.shape
    packed = problem.packed_strides()
    step, step_c = 16 // problem.dtype.storage.size_bytes, 16 // problem.out.size_bytes
    lda = -(-packed.lda // step) * step if "a" in operands else packed.lda
    ldb = -(-packed.ldb // step) * step if "b" in operands else packed.ldb
    ldc = -(-packed.ldc // step_c) * step_c if "c" in operands else packed.ldc
    return Strides(
        lda=lda,
        ldb=ldb,
        ldc=ldc,
        stride_a=lda * (s.m if problem.layout[0] == "n" else s.k),
        stride_b=ldb * (s.k if problem.layout[1] == "n" else s.n),
        stride_c=ldc * s.m,
    )


def make_executor(
    bench: Workbench, backend: Any, request: Request, problem: GemmProblem
) -> tuple[Executor, tuple[str, ...]]:
    """An executor for packed operands; rows are padded where a rule needs that, and it is told."""
    padded: frozenset[str] = frozenset()
    while True:
        strides = aligned_strides(problem, padded)
        try:
            executor = build_executor(bench, backend, request, problem, strides, (0, 0, 0))
        except RuleError as error:
            if not error.alignment_of - padded:
                raise
            padded |= error.alignment_of
            continue
        notes = tuple(
            f"rows of {name.upper()} are padded to whole 16 bytes: {request.variant.name} "
            "needs that"
            for name in sorted(padded)
            if strides != problem.packed_strides()
        )
        return executor, notes


def make_trial(
    backend: Any,
    executor: Executor,
    problem: GemmProblem,
    *,
    seed: int,
    sets: int = 1,
    lender: Trial | None = None,
) -> Trial:
    """Inputs for an executor, uploaded `sets` times.

    They are the `lender`'s where it has the same strides; it must outlive this trial. UsageError,
    ResourceError: they would not fit.
    """
    if lender is not None and lender.data.strides != executor.strides:
        lender = None
    check_memory(
        problem,
        executor.strides,
        backend,
        workspace_bytes=executor.plan.workspace_bytes,
        lent=lender is not None,
    )
    return Trial(
        backend=backend,
        executor=executor,
        problem=problem,
        data=lender.data if lender else make_data(problem, executor.strides, seed=seed),
        sets=sets,
        lender=lender,
    )
