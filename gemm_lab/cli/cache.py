"""gemm-lab cache info, list, clear, prune"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from gemm_lab.cli.options import Json
from gemm_lab.cli.output import print_document, print_json
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.errors import UsageError
from gemm_lab.report.document import Fact, Facts, Paragraph, Table
from gemm_lab.report.numbers import bytes_text, count_text

if TYPE_CHECKING:
    from gemm_lab.jit import PruneResult

__all__ = ["app", "parse_age", "parse_size"]

app = typer.Typer(
    help="The compiled kernels on disk: where they are, what they take, how to be rid of them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_UNITS_BYTES = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@app.command()
def info(as_json: Json = False) -> None:
    """Where the cache is, what it holds, whether it can be written."""
    from gemm_lab import jit

    found = jit.default_cache().info()
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "directory": str(found.directory),
                "writable": found.writable,
                "entry_count": found.entry_count,
                "size_bytes": found.size_bytes,
                "leftover_count": found.leftover_count,
            }
        )
        return
    facts = [
        Fact(name="folder", text=str(found.directory)),
        Fact(
            name="writable",
            text="yes" if found.writable else "no: set GEMM_LAB_CACHE_DIR to a folder that is",
            style="" if found.writable else "warning",
        ),
        Fact(name="kernels", text=f"{found.entry_count:,}"),
        Fact(name="size", text=bytes_text(found.size_bytes)),
    ]
    if found.leftover_count:
        facts.append(Fact(name="leftovers", text=f"{found.leftover_count} of broken-off compiles"))
    print_document((Facts(facts=tuple(facts)),))


@app.command("list")
def list_entries(as_json: Json = False) -> None:
    """Every compiled kernel, the one used last first."""
    from gemm_lab import jit

    entries = jit.default_cache().entries()
    if as_json:
        rows = [
            {
                "variant": e.variant,
                "hash": e.hash,
                "arch": e.arch or None,
                "size_bytes": e.size_bytes,
                "age_s": e.age_s,
                "path": str(e.path),
            }
            for e in entries
        ]
        print_json({"schema": SCHEMA, "entries": rows})
        return
    if not entries:
        print_document((Paragraph(text="the cache is empty"),))
        return
    table = Table(
        columns=("variant", "hash", "arch", "size", "last used"),
        right=frozenset({"size", "last used"}),
        rows=tuple(
            (e.variant, e.hash, e.arch or "?", bytes_text(e.size_bytes), _age(e.age_s))
            for e in entries
        ),
    )
    print_document((table,))


@app.command()
def clear(as_json: Json = False) -> None:
    """Remove every compiled kernel; they are made again when needed."""
    from gemm_lab import jit

    _tell(jit.default_cache().clear(), as_json=as_json)


@app.command()
def prune(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Not used for so long: 30d, 12h, 2w."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="Keep at most so much: 500M, 2G."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove kernels that were not used for long, then the oldest down to a size."""
    from gemm_lab import jit

    if older_than is None and max_size is None:
        raise UsageError(
            "prune what?", hint="--older-than 30d, --max-size 500M, or `gemm-lab cache clear`"
        )
    result = jit.default_cache().prune(
        max_bytes=None if max_size is None else parse_size(max_size),
        older_than_s=None if older_than is None else parse_age(older_than),
    )
    _tell(result, as_json=as_json)


def parse_size(text: str) -> int:
    """500M, 2GiB, 1024: bytes."""
    match = re.fullmatch(r"(\d{1,15})\s*([kmg]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is no size", hint="as in 500M or 2G")
    return int(match[1]) * _UNITS_BYTES[match[2].upper()]


def parse_age(text: str) -> float:
    """30d, 12h, 90s: seconds."""
    match = re.fullmatch(r"(\d{1,9})\s*([smhdw])", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no age", hint="as in 30d, 12h or 45m")
    return int(match[1]) * _UNITS_S[match[2]]


def _tell(result: PruneResult, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "entry_count": result.entry_count,
                "freed_bytes": result.freed_bytes,
            }
        )
        return
    gone = count_text(result.entry_count, "kernel")
    print_document((Paragraph(text=f"removed {gone}, {bytes_text(result.freed_bytes)}"),))


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
