"""gemm-lab compare"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gemm_lab.cli import measuring_options as mo
from gemm_lab.cli import options as o
from gemm_lab.cli.output import print_document, print_json, print_text
from gemm_lab.cli.values import shapes_of
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.errors import RegressionError, UsageError
from gemm_lab.report.document import Document, Paragraph, Style, Table
from gemm_lab.report.numbers import count_text, milliseconds

if TYPE_CHECKING:
    from gemm_lab.lab.compare import Comparison, Comparisons

__all__ = ["compare"]

_STYLES: dict[str, Style] = {
    "same": "", "faster": "good", "slower": "bad", "broken": "bad", "unclear": "warning",
}  # fmt: skip


def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A file of measurements, or KERNEL[:BM=64,BN=128].")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same; what A is held against.")],
    fail_on: Annotated[
        Literal["slower", "unclear"] | None,
        typer.Option(
            "--fail-on", help="Exit 7 when B is slower or broken (unclear: or nobody can say)."
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            metavar="PERCENT",
            min=0.01,
            max=50.0,
            help="Differences up to this are the same: 1, or 2 between runs under 50 us.",
        ),
    ] = None,
    by: Annotated[
        Literal["auto", "kernel", "problem"],
        typer.Option("--by", help="Files: match kernel by kernel, or the fastest of a problem."),
    ] = "auto",
    shape: o.Shapes = None,
    square: o.Squares = None,
    dtype: o.DTypeName = "fp32",
    layout: o.LayoutName = None,
    arch: o.ArchName = None,
    device: o.Device = None,
    seed: o.Seed = 0,
    output: mo.Output = None,
    timeout: mo.Timeout = 120.0,
    max_seconds: mo.MaxSeconds = None,
    rounds: mo.Rounds = None,
    templates: o.Templates = None,
    as_json: o.Json = False,
    as_md: mo.Markdown = False,
) -> None:
    """Say whether B is the same as A, faster, slower, or whether nobody can tell.

    Two files that `bench -o` or `run --json` wrote are compared by their ratios to cuBLAS. Two
    kernels are measured here, in the same rounds: gemm-lab compare shared tiled --square 4096.
    """
    margin_share = None if margin is None else margin / 100
    form = mo.Form(as_json=as_json, as_md=as_md).chosen()
    if _is_file(a) and _is_file(b):
        from gemm_lab.lab.compare import compare_results
        from gemm_lab.lab.results import Results

        found = compare_results(
            Results.load(a).latest(), Results.load(b).latest(), margin=margin_share, by=by
        )
    elif _is_file(a) or _is_file(b):
        raise UsageError(
            f"a file and a kernel: {a}, {b}", hint="two files of measurements, or two kernels"
        )
    else:
        from gemm_lab.lab import versus as lab
        from gemm_lab.lab.workbench import Workbench

        shapes = shapes_of(shape=shape or (), square=square or ())
        found = lab.versus(
            lab.parse_contender(a),
            lab.parse_contender(b),
            shape=list(shapes) or None,
            dtype=dtype,
            layout=layout,
            arch=arch,
            device=device,
            margin=margin_share,
            settings=mo.Measuring(max_seconds=max_seconds, rounds=rounds).settings(
                lab.VERSUS_SETTINGS, seed=seed
            ),
            output=output,
            timeout_s=timeout,
            progress=True,
            workbench=Workbench(templates or ()),
        ).comparisons
    document = _document(found)
    if form == "json":
        print_json({"schema": SCHEMA, "comparisons": found})
    elif form == "md":
        from gemm_lab.report.markdown import render_markdown

        print_text(render_markdown(document))
    else:
        print_document(document)
    if fail_on is not None:
        _fail(found, fail_on)


def _is_file(text: str) -> bool:
    path = Path(text)
    return text.endswith((".jsonl", ".json")) or (path.is_file() and not text.endswith(".cu.j2"))


def _fail(found: Comparisons, fail_on: Literal["slower", "unclear"]) -> None:
    bad = found.regressions(fail_on=fail_on)
    if bad:
        worst = bad[0]
        p = worst.problem
        raise RegressionError(
            f"{count_text(len(bad), 'regression')}: {worst.name} on {p.m}x{p.n}x{p.k} is "
            f"{worst.verdict}",
            hint="repeat it to be sure: gemm-lab compare of the two kernels in one run",
        )


def _document(found: Comparisons) -> Document:
    numbers = ("A", "B", "A / B")
    table = Table(
        columns=("kernel", "shape", "type", *numbers, "interval", "verdict"),
        rows=tuple(_row(pair) for pair in found.pairs),
        right=frozenset(numbers),
        styles=tuple(_STYLES[pair.verdict] for pair in found.pairs),
    )
    counts = [
        f"{found.count(verdict)} {verdict}"
        for verdict in ("same", "faster", "slower", "unclear", "broken")
        if found.count(verdict)
    ]
    lines = [", ".join(counts)]
    if found.only_a or found.only_b:
        lines.append(f"without a partner: {found.only_a} of A, {found.only_b} of B")
    notes = dict.fromkeys(note for pair in found.pairs for note in pair.notes)
    lines += [f"note: {note}" for note in notes]
    return (table, Paragraph(text="\n".join(lines)))


def _row(pair: Comparison) -> tuple[str, ...]:
    p, ratio = pair.problem, pair.ratio
    return (
        pair.name,
        f"{p.m}x{p.n}x{p.k}",
        f"{p.dtype} {p.layout}",
        "" if pair.a_ms is None else milliseconds(pair.a_ms),
        "" if pair.b_ms is None else milliseconds(pair.b_ms),
        "" if ratio is None else f"{ratio.median:.4f}",
        "" if ratio is None else f"{ratio.low:.4f} to {ratio.high:.4f}",
        pair.verdict,
    )
