"""Arguments of any kernel, as a user writes them.

    A:fp32[100,50]=uniform:0    an array: name, element type, shape, contents
    M:i32=100                   a scalar
    bias:null                   a null pointer

Contents: uniform[:SEED] (floats in [-1, 1], integers in [-100, 100]), zeros, ones, arange, nan
(integers: every bit set), a number, or a .npy file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_lab.core.dtypes import SCALARS
from gemm_lab.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ELEMENTS", "ArrayArgument", "KernelArgument", "ScalarArgument", "read_arguments"]

Array = Any
_FORM = "A:fp32[100,50]=uniform:0, M:i32=100, alpha:fp32=1.5 or bias:null"
_SPEC = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*:)?\s*(?P<type>\w+)\s*(?P<shape>\[[^\]]*\])?"
    r"\s*(?:=(?P<value>.*))?",
    re.DOTALL,
)
_LARGEST_BYTES = 1 << 31

# Element types by the names of the lab and by their width.
ELEMENTS: dict[str, str] = {
    **{f"{kind}{bits}": f"{word}{bits}" for bits in (8, 16, 32, 64)
       for kind, word in (("i", "int"), ("s", "int"), ("u", "uint"))},
    **{f"{word}{bits}": f"{word}{bits}" for bits in (8, 16, 32, 64) for word in ("int", "uint")},
    **dict.fromkeys(("fp16", "f16", "float16", "half"), "float16"),
    **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp32", "f32", "float32", "float"), "float32"),
    **dict.fromkeys(("fp64", "f64", "float64", "double"), "float64"),
    "fp8_e4m3": "float8_e4m3fn",
    "int": "int32",
    "bool": "bool",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ArrayArgument:
    """A pointer to an array that holds `before` at first.

    `target` is the caller's own array, which takes the result.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    before: Array
    target: Array | None = None


@dataclass(frozen=True, kw_only=True)
class ScalarArgument:
    """A number by value; `value` None is a null pointer, `typed` whether the user named a type."""

    name: str
    value: Any
    typed: bool = True


KernelArgument = ArrayArgument | ScalarArgument


def read_arguments(args: Sequence[Any] | Mapping[str, Any]) -> tuple[KernelArgument, ...]:
    """Texts, NumPy arrays and numbers, in the kernel's order; a mapping gives their names.

    UsageError says which cannot be read, and how it is written.
    """
    items = list(args.items()) if isinstance(args, Mapping) else [(None, arg) for arg in args]
    found: list[KernelArgument] = []
    for number, (name, arg) in enumerate(items):
        label = name or f"arg{number}"
        found.append(_from_text(arg, label) if isinstance(arg, str) else _from_value(arg, label))
    names = [argument.name for argument in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two arguments are named {name}", hint="give each its own name")
    return tuple(found)


def _from_value(value: Any, name: str) -> KernelArgument:
    import numpy

    if value is None:
        return ScalarArgument(name=name, value=None)
    if isinstance(value, numpy.generic):
        return ScalarArgument(name=name, value=value)
    if isinstance(value, bool | int | float):
        return ScalarArgument(name=name, value=value, typed=False)
    if isinstance(value, numpy.ndarray):
        if value.dtype.hasobject or value.dtype.kind not in "biufV":
            raise UsageError(
                f"{name} holds {value.dtype}", hint="pass an array of numbers that a kernel knows"
            )
        return ArrayArgument(
            name=name,
            dtype=value.dtype,
            shape=value.shape,
            before=numpy.ascontiguousarray(value),
            target=value if value.flags.writeable else None,
        )
    raise UsageError(
        f"argument {name} is a {type(value).__name__}",
        hint=f"pass a NumPy array, a number, None for a null pointer, or a text such as {_FORM}",
    )


def _from_text(text: str, label: str) -> KernelArgument:
    match = _SPEC.fullmatch(text)
    if match is None:
        raise UsageError(f"argument {text!r} cannot be read", hint=f"write it as {_FORM}")
    name, kind, value = match["name"] or label, match["type"], match["value"]
    if kind == "null":
        return ScalarArgument(name=name, value=None)
    dtype = _element(kind, text)
    if match["shape"] is not None:
        shape = _shape(match["shape"][1:-1], text)
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if size > _LARGEST_BYTES:
            raise UsageError(
                f"{name} would take {size / 2**30:,.1f} GiB", hint="at most 2 GiB an array"
            )
        return ArrayArgument(
            name=name, dtype=dtype, shape=shape, before=_contents(text, dtype, shape, value)
        )
    if value is None:
        raise UsageError(f"argument {text!r} has no value", hint=f"write it as {_FORM}")
    if value.strip() == "null":
        return ScalarArgument(name=name, value=None)
    return ScalarArgument(name=name, value=_number(value, dtype, text))


def _element(kind: str, text: str) -> np.dtype[Any]:
    import numpy

    if kind not in ELEMENTS:
        if kind in SCALARS:
            return SCALARS[kind].numpy()
        raise UsageError(
            f"argument {text!r}: unknown type {kind!r}",
            hint="known: i8 i16 i32 i64 u8 u16 u32 u64 fp16 bf16 fp32 fp64 fp8_e4m3",
        )
    name = ELEMENTS[kind]
    if name in ("bfloat16", "float8_e4m3fn"):
        import ml_dtypes

        made: np.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
        return made
    return numpy.dtype(name)


def _shape(text: str, whole: str) -> tuple[int, ...]:
    parts = [p.strip() for p in re.split(r"[,x×]", text) if p.strip()]
    if not parts or not all(re.fullmatch(r"\d{1,12}", p) for p in parts):
        raise UsageError(
            f"argument {whole!r}: {text!r} is no shape", hint="whole numbers, as in [100,50]"
        )
    return tuple(int(p) for p in parts)


def _contents(text: str, dtype: np.dtype[Any], shape: tuple[int, ...], value: str | None) -> Array:
    import numpy

    word, _, rest = (value or "").strip().partition(":")
    floating = dtype.kind in "fV"
    if word == "uniform" and re.fullmatch(r"\d*", rest):
        generator = numpy.random.Generator(numpy.random.SFC64(int(rest or 0)))
        if dtype.kind == "b":
            return generator.integers(0, 2, size=shape).astype(dtype)
        if floating:
            return (generator.random(size=shape, dtype=numpy.float64) * 2 - 1).astype(dtype)
        low = 0 if dtype.kind == "u" else -100
        return generator.integers(low, 100, size=shape, endpoint=True).astype(dtype)
    if word == "nan" and not rest:
        if floating:
            return numpy.full(shape, numpy.nan, numpy.float64).astype(dtype)
        return (
            numpy.full(shape, 0xFF, numpy.uint8).astype(dtype)
            if dtype.kind == "b"
            else (numpy.zeros(shape, dtype) - numpy.ones((), dtype))
        )
    if word in ("zeros", "ones") and not rest:
        return numpy.full(shape, word == "ones").astype(dtype)
    if word == "arange" and not rest:
        size = int(numpy.prod(shape, dtype=numpy.int64))
        return numpy.arange(size).reshape(shape).astype(dtype)
    if value is not None and value.strip().endswith(".npy"):
        return _from_file(value.strip(), dtype, shape, text)
    if value is not None and re.fullmatch(r"[+-]?[\d.][\w.+-]*|[+-]?inf", value.strip()):
        return numpy.full(shape, _number(value, dtype, text), dtype)
    raise UsageError(
        f"argument {text!r} does not say what the array holds",
        hint="=uniform:SEED =zeros =ones =arange =nan =1.5 or =file.npy",
    )


def _from_file(path: str, dtype: np.dtype[Any], shape: tuple[int, ...], text: str) -> Array:
    import numpy

    try:
        array = numpy.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"argument {text!r}: {path} cannot be read: {error}") from None
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)  # NumPy's files forget the name of bf16
    if array.shape != shape or array.dtype != dtype:
        raise UsageError(
            f"argument {text!r}: {path} holds {array.dtype} {list(array.shape)}",
            hint="type and shape must be those of the file",
        )
    return numpy.ascontiguousarray(array)


def _number(value: str, dtype: np.dtype[Any], text: str) -> Any:
    import numpy

    word = value.strip()
    try:
        if dtype.kind in "iu":
            number = int(word, 0)
            limits = numpy.iinfo(dtype)
            if not limits.min <= number <= limits.max:
                raise UsageError(
                    f"argument {text!r}: {number} does not fit",
                    hint=f"{dtype} ends at {limits.max}",
                )
            return dtype.type(number)
        if dtype.kind == "b":
            return dtype.type({"true": 1, "false": 0}.get(word.lower(), word) not in (0, "0"))
        return numpy.array([float(word)], numpy.float64).astype(dtype)[0]
    except ValueError:
        raise UsageError(
            f"argument {text!r}: {word!r} is no {dtype}", hint=f"write it as {_FORM}"
        ) from None
