"""matmul: one function for any array, on any backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gemm_lab.gpu.arrays import quick_looker
from gemm_lab.lab.call import Call
from gemm_lab.lab.execute import Executor
from gemm_lab.lab.prepare import merge_tunables
from gemm_lab.lab.question import finite
from gemm_lab.lab.workbench import BackendName, Workbench, default_workbench
from gemm_lab.variants import Variant
from gemm_lab.variants.catalogue import names_file

__all__ = ["matmul"]

Array = Any


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
    variant: str | Path | Variant | None = None,
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
        variant: a name, a file (read again when it changed), or None for the lab's choice;
            `config` and further keywords are its tunables.

    Returns:
        `out`, or a new array of the same library as `a`. On a GPU the work is queued on the
        caller's current stream.

    Raises:
        UsageError: shapes, types or arrays that do not go together. RuleError: tunables that
        break a rule. CompileError, LaunchError: from below.
    """
    quick = _quick
    usual = workbench is None and bias is None and config is None
    # With the types: 1 and True are equal, but not both values of a tunable.
    named = tuple((n, type(v), v) for n, v in sorted(tunables.items())) if tunables else ()
    asked = (alpha, beta, variant, backend, dtype, out_dtype, epilogue, named)
    if quick is not None and usual:
        found = quick(a, b, out)
        if found is not None:
            try:
                call = _warm.get((found[0], asked))
            except TypeError:  # no hash: what is wrong with it is told below
                call = None
            if call is not None and call(found[1]):
                return out
    request = Call(
        bench=workbench or default_workbench(),
        a=a,
        b=b,
        out=out,
        bias=bias,
        alpha=finite("alpha", alpha),
        beta=finite("beta", beta),
        epilogue=epilogue,
        dtype=dtype,
        out_dtype=out_dtype,
        variant=variant,
        tunables=merge_tunables(config, tunables),
        backend=backend,
    )
    result = request.run()
    if usual and request.reusable is not None:
        _remember(request, request.reusable, asked)
    return result


# ---- the warm road: a call like an earlier one goes straight to its packed launch ----

_quick: Callable[[Any, Any, Any], tuple[object, tuple[int, int, int]] | None] | None = None
_warm: dict[object, Callable[[tuple[int, int, int]], bool]] = {}
_MOST_WARM = 4096


def _remember(call: Call, executor: Executor, asked: tuple[object, ...]) -> None:
    global _quick
    if call.out is None:
        return
    if isinstance(call.variant, str | Path) and names_file(call.variant):
        return  # it may be written again
    if _quick is None:
        _quick = quick_looker()
    found = _quick(call.a, call.b, call.out)
    if found is None:
        return
    if len(_warm) >= _MOST_WARM:
        _warm.clear()
    with suppress(TypeError):  # a factor without a hash
        _warm[found[0], asked] = _warm_call(executor, call.spans)


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
