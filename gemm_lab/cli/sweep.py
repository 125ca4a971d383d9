"""gemm-lab sweep"""

from __future__ import annotations

import typer

from gemm_lab.cli import measuring_options as mo
from gemm_lab.cli import options as o
from gemm_lab.cli.bundles import spread

__all__ = ["sweep"]


@spread
def sweep(
    *,
    variant: o.VariantArgument = None,
    variant_option: o.VariantOption = None,
    params: o.Params = None,
    sizes: o.Sizes,
    dtype: o.DTypeName = "fp32",
    out_dtype: o.OutDType = None,
    layout: o.LayoutName = None,
    terms: o.Terms,
    backend: mo.Backend = "auto",
    seed: o.Seed = 0,
    specialize: o.Specialize = False,
    smem_pad: o.SmemPad = 0,
    measuring: mo.Measuring,
    templates: o.Templates = None,
    form: mo.Form,
) -> None:
    """Run one kernel over values of its tunables and over shapes; the fastest comes first.

    -p BM=64,128 tries two values, -p BK=8:32:8 four, -p BM alone what the variant's file lists.
    What breaks a rule is left out before compiling. On a GPU each candidate runs in a process
    that may die: one illegal access or a hang costs no other. Exit code 3 says that a result is
    wrong.
    """
    from gemm_lab.lab import sweep as lab
    from gemm_lab.lab.measure import RunSettings
    from gemm_lab.lab.workbench import Workbench
    from gemm_lab.report.survey import pruned_facts, survey_document

    shown = form.chosen()
    found = lab.sweep(
        o.one_variant(variant, variant_option),
        shape=list(sizes.shapes()) or None,
        dtype=dtype,
        out_dtype=out_dtype,
        layout=layout,
        **terms.facts(),
        backend=backend,
        smem_pad_bytes=smem_pad,
        specialize=specialize,
        **measuring.facts(RunSettings(), seed=seed),
        workbench=Workbench(templates or ()),
        config=mo.parse_search(params or ()),
    )
    ranked = sorted(found, key=lambda x: (x.error is not None, -(x.tflops or 0.0)))
    document = (
        *survey_document(ranked),
        *pruned_facts(mo.pruned_counts(found), len(found.pruned)),
        *mo.closing(found, measuring.output),
    )
    mo.print_results(found, shown, document)
    raise typer.Exit(mo.exit_code(found, failures_matter=False))
