"""What the shell completes: variants, dtypes, layouts, architectures, tunables and their values.

A completion must never fail or write: whatever goes wrong gives no suggestions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

__all__ = ["arches", "dtypes", "gpus", "layouts", "out_dtypes", "tunables", "variants"]


def variants(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of the catalogue, and variant files of the folder that is being typed."""
    found = []
    with contextlib.suppress(Exception):
        found += [(name, "") for name in _catalogue(ctx).names() if name.startswith(incomplete)]
    with contextlib.suppress(OSError):
        found += [(path, "a file") for path in _files(incomplete)]
    return found


def dtypes(incomplete: str) -> list[str]:
    """Arithmetic names."""
    from gemm_lab.core.dtypes import DTYPES

    return [name for name in DTYPES if name.startswith(incomplete)]


def out_dtypes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Element types that the arithmetic in question can write."""
    from gemm_lab.core.dtypes import DTYPES

    asked = [str(ctx.params.get("dtype") or "fp32"), *_values_on_line(ctx, "--dtype")]
    arithmetic = DTYPES.get(asked[-1])
    outs = [] if arithmetic is None else [out.name for out in arithmetic.outs]
    return [name for name in outs if name.startswith(incomplete)]


def layouts(incomplete: str) -> list[str]:
    """nn nt tn tt."""
    from gemm_lab.core.dtypes import LAYOUTS

    return [name for name in LAYOUTS if name.startswith(incomplete)]


def arches(incomplete: str) -> list[str]:
    """Architectures whose limits are known."""
    from gemm_lab.core.arch import ARCHES

    return [a.arch for a in ARCHES.values() if a.arch.startswith(incomplete)]


def gpus(incomplete: str) -> list[str]:
    """Keys of the device table."""
    with contextlib.suppress(Exception):
        from gemm_lab.model.device_file import load_devices

        return [key for key in load_devices() if key.startswith(incomplete)]
    return []


def tunables(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """NAME= of the variant on the line; behind the sign, the values that its file tries."""
    with contextlib.suppress(Exception):
        return list(_tunables(ctx, incomplete))
    return []


def _tunables(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    from gemm_lab.core.kernel import format_value

    catalogue = _catalogue(ctx)
    name = _variant_on_line(ctx, catalogue.names())
    if name is None:
        return
    known = catalogue.get(name).tunables
    asked, equals, value = incomplete.partition("=")
    if not equals:
        for tunable in known.values():
            if tunable.name.startswith(asked):
                yield f"{tunable.name}=", tunable.doc
    elif asked in known:
        for candidate in known[asked].candidates:
            text = format_value(candidate)
            if text.startswith(value):
                yield f"{asked}={text}", known[asked].doc


def _variant_on_line(ctx: typer.Context, names: Sequence[str]) -> str | None:
    for key in ("variant", "variant_option", "variants", "variant_options"):
        given: Any = ctx.params.get(key)
        if isinstance(given, str):
            return given
        if isinstance(given, Sequence) and given:
            return str(given[0])
    # Behind an option that waits for its value, Click leaves every word unread.
    for word in ctx.args:
        if word in names or word.endswith(".cu.j2"):
            return word
    return None


def _catalogue(ctx: typer.Context) -> Any:
    from gemm_lab.variants.catalogue import Catalogue

    folders = [*(ctx.params.get("templates") or ()), *_values_on_line(ctx, "--templates")]
    return Catalogue([Path(folder) for folder in folders])


def _values_on_line(ctx: typer.Context, option: str) -> list[str]:
    """Values of an option among the words that Click left unread."""
    return [value for word, value in pairwise(ctx.args) if word == option]


def _files(incomplete: str) -> Iterator[str]:
    if "/" not in incomplete:
        return
    folder = incomplete.rpartition("/")[0] or "/"
    for path in sorted(Path(folder).iterdir()):
        text = f"{folder.rstrip('/')}/{path.name}"
        if not text.startswith(incomplete):
            continue
        if path.is_dir():
            yield f"{text}/"
        elif path.name.endswith(".cu.j2"):
            yield text
