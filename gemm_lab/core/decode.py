"""Dataclasses back from JSON, every field held to its declared type."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

__all__ = ["decode"]

T = TypeVar("T")


def decode(kind: type[T], data: Any) -> T:
    """A dataclass from a mapping; unknown keys are passed over.

    A null where a number has to be is the NaN that JSON lacks. TypeError or ValueError when a field
    is missing or holds something else than it declares.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"{kind.__name__} needs a mapping")
    hints = _hints(cast(Hashable, kind))
    return kind(**{name: _value(hints[name], data[name]) for name in hints if name in data})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    declared = get_type_hints(kind)
    return {f.name: declared[f.name] for f in fields(kind)}


def _value(hint: Any, value: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        if value is None and NoneType in inner:
            return None
        kinds = [k for k in inner if k is not NoneType]
        hint = next((k for k in kinds if type(value) is k), kinds[0])
        return _value(hint, value)
    if isinstance(hint, type) and is_dataclass(hint):
        return decode(hint, value)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(inner[0], part) for part in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {key: _value(inner[1], part) for key, part in value.items()}
    if hint is float and value is None:
        return math.nan
    if hint is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not finite")
        return value
    if hint is not Any and type(value) is not hint:
        raise TypeError(f"{value!r:.40} is no {hint}")
    return value
