"""Numbers as people read them; every unit is spelt."""

from __future__ import annotations

import math

__all__ = ["bytes_text", "count_text", "milliseconds", "number", "percent", "significant"]


def significant(value: float, digits: int = 4) -> str:
    """A number with that many significant digits and no exponent where it reads well."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{decimals}f}"


def milliseconds(value_ms: float) -> str:
    """Milliseconds, or microseconds below a tenth of one."""
    return f"{significant(value_ms * 1e3)} us" if value_ms < 0.1 else f"{significant(value_ms)} ms"


def percent(fraction: float) -> str:
    """A share; one decimal below 100, more where it would read 0."""
    shown = fraction * 100
    return f"{shown:.2g}%" if 0 < shown < 0.1 else f"{shown:.1f}%"


def bytes_text(count: float) -> str:
    """Bytes, KiB, MiB or GiB."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{int(count)} bytes" if unit == "bytes" else f"{size:.4g} {unit}"


def count_text(count: int, one: str, many: str | None = None) -> str:
    """1 kernel, 2 kernels."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def number(value: float | str) -> str:
    """A float, or the word that stands for one ("nan")."""
    return value if isinstance(value, str) else f"{value:.7g}"
