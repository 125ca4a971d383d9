"""gemm-lab doctor"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from gemm_lab.cli.options import ArchName, Json
from gemm_lab.cli.output import print_document, print_json
from gemm_lab.report.document import Document, Fact, Facts, Paragraph, Style
from gemm_lab.report.numbers import count_text

if TYPE_CHECKING:
    from gemm_lab.core.checks import Check

__all__ = ["doctor"]

_STYLES: dict[str, Style] = {"ok": "good", "warning": "warning", "error": "bad", "absent": "quiet"}


def doctor(arch: ArchName = None, as_json: Json = False) -> None:
    """Compiler, headers, cache, driver, cards and cuBLAS: what is wrong, each with its mend.

    Exit code 1 when something is in error; a part that is only absent (a GPU, cuBLAS) is no error.
    With --arch also whether the compiler knows that architecture.
    """
    from gemm_lab import jit
    from gemm_lab.gpu.checks import checks as gpu_checks

    found = [*jit.checks(arch=arch), *gpu_checks()]
    if as_json:
        from gemm_lab.core.measurement import SCHEMA

        print_json({"schema": SCHEMA, "checks": [asdict(check) for check in found]})
    else:
        print_document(doctor_document(found))
    if any(check.status == "error" for check in found):
        raise typer.Exit(1)


def doctor_document(found: list[Check]) -> Document:
    """One line a check, its mend below it, and a sum."""
    facts = []
    for check in found:
        facts.append(
            Fact(
                name=f"{check.status:<7}  {check.name}",
                text=check.detail,
                style=_STYLES[check.status],
            )
        )
        if check.mend:
            facts.append(Fact(name="", text=f"mend: {check.mend}"))
    errors = sum(check.status == "error" for check in found)
    warnings = sum(check.status == "warning" for check in found)
    absent = [check.name for check in found if check.status == "absent"]
    end = "all is well"
    if errors or warnings:
        end = f"{count_text(errors, 'error')}, {count_text(warnings, 'warning')}"
    elif absent:
        end = f"all that is here is well; not here: {', '.join(absent)}"
    return (Facts(facts=tuple(facts)), Paragraph(text=end, style="bad" if errors else ""))
