"""Options of the commands that measure many things, and what they print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gemm_lab.cli.options import Json, NoBaseline, NoTime, NoVerify
from gemm_lab.cli.output import print_document, print_json, print_text
from gemm_lab.cli.values import parse_grid
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.errors import LaunchError, UsageError, WrongResultError
from gemm_lab.report.document import Document, Paragraph

if TYPE_CHECKING:
    from gemm_lab.lab.measure import RunSettings
    from gemm_lab.lab.results import Results

__all__ = [
    "Backend",
    "Csv",
    "Form",
    "Markdown",
    "MaxSeconds",
    "Measuring",
    "NoResume",
    "Output",
    "RetryFailed",
    "Rounds",
    "Timeout",
    "closing",
    "exit_code",
    "parse_search",
    "print_results",
    "pruned_counts",
]

INTERRUPTED = 130

Backend = Annotated[
    Literal["auto", "gpu", "emulator"],
    typer.Option(
        "--backend", help="auto takes the GPU if there is one, else the emulator (no times)."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Append every measurement to this file, JSON Lines; a later call resumes from it.",
    ),
]
NoResume = Annotated[
    bool, typer.Option("--no-resume", help="Measure again what the file has already.")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Try again what failed according to the file.")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=1.0,
        help="A kernel that shows no life for so long is killed and recorded as failed.",
    ),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds", metavar="SECONDS", min=0.01, help="Device time for one problem, at most."
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds", metavar="N", min=1, help="Exactly so many rounds instead of until it is sure."
    ),
]
Csv = Annotated[bool, typer.Option("--csv", help="Comma-separated values on stdout.")]
Markdown = Annotated[bool, typer.Option("--md", help="A Markdown table on stdout.")]

Format = Literal["text", "json", "csv", "md"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """How results are printed."""

    as_json: Json = False
    as_csv: Csv = False
    as_md: Markdown = False

    def chosen(self) -> Format:
        """The one format that was asked for."""
        flags: dict[Format, bool] = {"json": self.as_json, "csv": self.as_csv, "md": self.as_md}
        asked = [name for name, given in flags.items() if given]
        if len(asked) > 1:
            raise UsageError(
                f"several formats: {', '.join(f'--{x}' for x in asked)}",
                hint="one at a time; -o FILE keeps everything besides",
            )
        return asked[0] if asked else "text"


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Where measurements go, and how long and how they are made."""

    output: Output = None
    no_resume: NoResume = False
    retry_failed: RetryFailed = False
    timeout: Timeout = 120.0
    max_seconds: MaxSeconds = None
    rounds: Rounds = None
    no_verify: NoVerify = False
    no_time: NoTime = False
    no_baseline: NoBaseline = False

    def settings(self, base: RunSettings, *, seed: int) -> RunSettings:
        """What was not asked for is as in `base`."""
        asked: dict[str, Any] = {
            "seed": seed,
            "verify": not self.no_verify,
            "time": not self.no_time,
            "baseline": not self.no_baseline,
        }
        if self.max_seconds is not None:
            asked["max_seconds"] = self.max_seconds
        if self.rounds is not None:
            asked |= {"min_rounds": self.rounds, "max_rounds": self.rounds, "target_error": 0.0}
        return replace(base, **asked)

    def facts(self, base: RunSettings, *, seed: int) -> dict[str, Any]:
        """Arguments of `sweep` and `bench`."""
        return {
            "settings": self.settings(base, seed=seed),
            "output": self.output,
            "resume": not self.no_resume,
            "retry_failed": self.retry_failed,
            "timeout_s": self.timeout,
            "progress": True,
        }


def parse_search(texts: Iterable[str]) -> dict[str, tuple[str, ...] | None]:
    """-p NAME=64,128 or 8:32:8; -p NAME alone means what the variant's file lists to search."""
    named = [t.strip() for t in texts]
    alone = [t for t in named if t.isidentifier()]
    found: dict[str, tuple[str, ...] | None] = dict(parse_grid(t for t in named if t not in alone))
    for name in alone:
        if name in found:
            raise UsageError(f"-p {name} is given with and without values", hint="either way, once")
        found[name] = None
    return found


def print_results(found: Results, form: Format, document: Document) -> None:
    """The results in the format that was asked for; `document` is the text."""
    from gemm_lab.report.markdown import render_markdown

    if form == "json":
        print_json(
            {
                "schema": SCHEMA,
                "measurements": [m.to_dict() for m in found],
                "pruned": list(found.pruned),
                "interrupted": found.interrupted,
            }
        )
    elif form == "csv":
        print_text(found.to_csv())
    elif form == "md":
        print_text(render_markdown(document))
    else:
        print_document(document)


def exit_code(found: Results, *, failures_matter: bool) -> int:
    """130 interrupted, 3 a wrong result, 6 failures (or nothing right at all), else 0."""
    if found.interrupted:
        return INTERRUPTED
    if len(found.wrong):
        return WrongResultError.exit_code
    if len(found.failed) and (failures_matter or not len(found.right)):
        return LaunchError.exit_code
    return 0


def closing(found: Results, output: Path | None) -> Document:
    """How many were taken from the file, and how to go on."""
    lines = []
    if found.resumed:
        lines.append(f"{found.resumed} of {len(found)} were in {output} already")
    if found.interrupted:
        lines.append(
            "interrupted; the same command goes on where it stopped"
            if output
            else "interrupted; with -o FILE the next call would go on where it stopped"
        )
    return (Paragraph(text="\n".join(lines), style="quiet"),) if lines else ()


def pruned_counts(found: Results) -> dict[str, int]:
    """Reasons without the numbers of each case, and how often each."""
    counts: dict[str, int] = {}
    for p in found.pruned:
        reason = p.reason.split(" (", 1)[0]
        counts[reason] = counts.get(reason, 0) + 1
    return counts
