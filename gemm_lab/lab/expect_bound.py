"""How far a result may be from what was expected, and whether it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_lab.core.measurement import MaxError

__all__ = ["Finding", "bound_of", "compare", "is_whole"]

Array = Any
_SIGMAS = 8.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """How a result stands against what was expected."""

    text: str
    ok: bool
    wrong_count: int
    size: int
    worst: MaxError | None
    tolerance: str


def is_whole(array: Array) -> bool:
    """Whether it holds integers."""
    return array.dtype.kind in "iub"


def _unit_roundoff(dtype: Any) -> float:
    if dtype.kind in "iub":
        return 0.0
    if dtype.name in ("float16", "float32", "float64"):
        return {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}[dtype.name]
    return {"bfloat16": 2.0**-8}.get(dtype.name, 2.0**-4)


def bound_of(
    size: Array, terms: int, arrays: list[Array], after: Array, tolerance: float | None
) -> tuple[Array, str]:
    """Allowed errors from the terms' magnitudes, and where they come from."""
    import math

    import numpy

    floats = [a.dtype for a in arrays if not is_whole(a)]
    if tolerance is not None:
        return tolerance * size, f"{tolerance:g} of the terms' magnitude, as given"
    if not floats:
        return numpy.zeros_like(size), "integers: exact"
    # Sums of narrow types are taken in fp32.
    u = 2.0**-53 if all(d.name == "float64" for d in floats) else 2.0**-24
    u_out = _unit_roundoff(after.dtype)
    share = _SIGMAS * u * (math.sqrt(terms) + 4)
    bound = share * size + 1.01 * u_out * size
    if is_whole(after):
        bound = bound + 0.5
    return bound, (
        f"{_SIGMAS:g} * {u:.1e} * (sqrt({terms}) + 4) of the terms' magnitude, and output rounding "
        f"{u_out:.1e}"
    )


def compare(text: str, expected: Array, bound: Array, after: Array, reason: str) -> Finding:
    """A result against what was expected, element by element; NaN is right where it belongs."""
    import numpy

    exact = numpy.array_equal(bound, numpy.zeros_like(bound)) and is_whole(after)
    got = after if exact else after.astype(numpy.float64)
    same = got == expected
    if not exact:
        same = same | (numpy.isnan(got) & numpy.isnan(expected))
    distance = abs(got.astype(numpy.float64) - expected)
    good = same | (distance <= bound)
    worst = None
    if got.size:
        rank = numpy.where(good, distance / numpy.maximum(bound, 1e-300), numpy.inf)
        rank = numpy.where(same, 0.0, rank)
        rank = numpy.where(good, rank, 1e6 + numpy.nan_to_num(distance, nan=1e30, posinf=1e30))
        flat = int(numpy.argmax(rank))
        index = tuple(int(i) for i in numpy.unravel_index(flat, got.shape))
        worst = MaxError(
            index=index,
            got=_number(got[index]),
            expected=_number(expected[index]),
            bound=_number(bound[index]),
        )
    return Finding(
        text=text,
        ok=bool(good.all()),
        wrong_count=int(numpy.count_nonzero(~good)),
        size=int(got.size),
        worst=worst,
        tolerance=reason,
    )


def _number(value: Any) -> float | str:
    import math

    number = float(value)
    return number if math.isfinite(number) else str(number)
