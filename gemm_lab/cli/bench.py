"""gemm-lab bench"""

from __future__ import annotations

from typing import Annotated

import typer

from gemm_lab.cli import completion
from gemm_lab.cli import measuring_options as mo
from gemm_lab.cli import options as o
from gemm_lab.cli.bundles import spread
from gemm_lab.cli.values import expand_values
from gemm_lab.core.dtypes import LAYOUTS, Layout
from gemm_lab.errors import UsageError

__all__ = ["bench"]


def _suites(incomplete: str) -> list[str]:
    from gemm_lab.lab.suite import suite_names

    return [name for name in suite_names() if name.startswith(incomplete)]


SuiteName = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="NAME",
        help="Shapes by name (ladder, squares, transformer, ragged, skinny), or a .toml file.",
        autocompletion=_suites,
    ),
]
DTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="The arithmetic; may be repeated or fp16,bf16. The suite's, or fp32, when left out.",
        autocompletion=completion.dtypes,
    ),
]
LayoutNames = Annotated[
    list[str] | None,
    typer.Option(
        "--layout",
        metavar="LAYOUT",
        help="nn nt tn tt; may be repeated or nn,nt.",
        autocompletion=completion.layouts,
    ),
]
Interleave = Annotated[
    int,
    typer.Option(
        "--interleave", metavar="N", min=1, help="At most so many kernels share their rounds."
    ),
]


@spread
def bench(
    *,
    variants: o.VariantArguments = None,
    variant_options: o.VariantOptions = None,
    params: o.Params = None,
    suite: SuiteName = None,
    sizes: o.Sizes,
    dtype: DTypes = None,
    out_dtype: o.OutDType = None,
    layout: LayoutNames = None,
    terms: o.Terms,
    backend: mo.Backend = "auto",
    seed: o.Seed = 0,
    interleave: Interleave = 12,
    measuring: mo.Measuring,
    templates: o.Templates = None,
    form: mo.Form,
) -> None:
    """Measure kernels side by side, in the same rounds as cuBLAS; the ladder when none is named.

    Every kernel that can do a dtype and layout takes part; -p takes lists and ranges as in sweep
    and goes to those that have the tunable. With -o an interrupted or killed bench resumes. Exit
    code 3 says that a result is wrong, 6 that a kernel failed.
    """
    from gemm_lab.lab import bench as lab
    from gemm_lab.lab.workbench import Workbench
    from gemm_lab.report.ladder import ladder_document, ladders
    from gemm_lab.report.survey import pruned_facts, survey_document

    shown = form.chosen()
    found = lab.bench(
        o.several_variants(variants, variant_options),
        shape=list(sizes.shapes()) or None,
        suite=suite,
        dtypes=[d for text in dtype or () for d in expand_values(text)],
        layouts=[_layout(x) for text in layout or () for x in expand_values(text)],
        tunables=mo.parse_search(params or ()),
        out_dtype=out_dtype,
        **terms.facts(),
        backend=backend,
        **measuring.facts(lab.BENCH_SETTINGS, seed=seed),
        interleave=interleave,
        workbench=Workbench(templates or ()),
    )
    one_each = len({(x.variant, x.problem) for x in found}) == len(found)
    several = len({x.variant for x in found}) > 1
    document = (
        *(() if one_each and several else survey_document(list(found))),
        *(ladder_document(ladders(found)) if several else ()),
        *(survey_document(list(found))[1:] if one_each and several else ()),
        *pruned_facts(mo.pruned_counts(found), len(found.pruned)),
        *mo.closing(found, measuring.output),
    )
    mo.print_results(found, shown, document)
    raise typer.Exit(mo.exit_code(found, failures_matter=True))


def _layout(text: str) -> Layout:
    for layout in LAYOUTS:
        if layout == text:
            return layout
    raise UsageError(f"unknown layout {text!r}", hint=f"one of {', '.join(LAYOUTS)}")
