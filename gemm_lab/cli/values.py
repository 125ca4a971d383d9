"""What a user types, read: tunables, value lists and ranges, shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from gemm_lab.core.problem import Shape
from gemm_lab.errors import UsageError

__all__ = [
    "expand_values",
    "finite",
    "parse_assignments",
    "parse_grid",
    "parse_shape",
    "shapes_of",
    "single_shape",
]

MAX_VALUES = 10_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = r"[+-]?\d{1,12}"
_RANGE = re.compile(rf"({_WHOLE}):({_WHOLE})(?::({_WHOLE}))?")
_SHAPE = re.compile(r"(\d{1,12})[xX×](\d{1,12})[xX×](\d{1,12})")


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """-p NAME=VALUE, each name once; UsageError for anything else, a list of values too."""
    found: dict[str, str] = {}
    for text in texts:
        name, value = _assignment(text)
        if name in found:
            raise UsageError(f"-p {name} is given twice", hint="give it once")
        if "," in value or _RANGE.fullmatch(value):
            raise UsageError(
                f"-p {text}: several values for {name}",
                hint="one value here; `gemm-lab sweep` and `bench` take lists and ranges",
            )
        found[name] = value
    return found


def parse_grid(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """-p NAME=VALUES of a sweep; several -p of one name add up."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, value = _assignment(text)
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), *expand_values(value))))
    return found


def expand_values(text: str) -> tuple[str, ...]:
    """`64,128` or `8:32:8` (stop included; step 1 when left out), or a mix: the values in order."""
    found: list[str] = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            raise UsageError(f"an empty value in {text!r}", hint="write 64,128 or 8:32:8")
        match = _RANGE.fullmatch(part)
        if match is None:
            if ":" in part:
                raise UsageError(
                    f"{part!r} is no range", hint="start:stop:step in whole numbers, as in 8:32:8"
                )
            found.append(part)
            continue
        start, stop = int(match[1]), int(match[2])
        step = int(match[3]) if match[3] else 1
        if step == 0 or (stop - start) * step < 0:
            raise UsageError(
                f"the range {part} has no values", hint="start:stop:step, with step towards stop"
            )
        if abs(stop - start) // abs(step) >= MAX_VALUES:
            raise UsageError(f"the range {part} is too long", hint=f"at most {MAX_VALUES} values")
        found.extend(str(v) for v in range(start, stop + (1 if step > 0 else -1), step))
    return tuple(dict.fromkeys(found))


def parse_shape(text: str, batch: int = 1) -> Shape:
    """MxNxK."""
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no shape", hint="MxNxK, as in 512x256x1024")
    return Shape(m=int(match[1]), n=int(match[2]), k=int(match[3]), batch=batch)


def shapes_of(
    *,
    shape: Sequence[str] = (),
    square: Sequence[int] = (),
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    batch: int = 1,
) -> tuple[Shape, ...]:
    """Every shape that was asked for; none when none was.

    -m -n -k make a shape together, or change that of --square.
    """
    found = [parse_shape(text, batch) for text in shape]
    sizes = {"m": m, "n": n, "k": k}
    given = {name: size for name, size in sizes.items() if size is not None}
    for side in square:
        found.append(Shape(**{"m": side, "n": side, "k": side, **given}, batch=batch))
    if given and not square:
        missing = [f"-{name}" for name in sizes if name not in given]
        if missing:
            raise UsageError(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                hint="give -m, -n and -k, or --square for the ones left out",
            )
        found.append(Shape(**given, batch=batch))
    if batch != 1 and not found:
        raise UsageError("--batch needs a shape", hint="add --square 512 or --shape MxNxK")
    return tuple(dict.fromkeys(found))


def single_shape(shapes: tuple[Shape, ...]) -> Shape | None:
    """The one shape of a command that takes one."""
    if len(shapes) > 1:
        raise UsageError(
            f"{len(shapes)} shapes for one run", hint="one here; `gemm-lab sweep` takes several"
        )
    return shapes[0] if shapes else None


def finite(name: str, value: float) -> float:
    """The number; UsageError for NaN and infinities."""
    if not math.isfinite(value):
        raise UsageError(f"{name} = {value} is not finite", hint="pass an ordinary number")
    return value


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not _NAME.fullmatch(name) or not value:
        raise UsageError(f"-p {text}: no NAME=VALUE", hint="as in -p BM=64")
    return name, value
