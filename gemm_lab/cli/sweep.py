"""gemm-lab sweep"""

from __future__ import annotations

import typer

from gemm_lab.cli import measuring_options as mo
from gemm_lab.cli import options as o
from gemm_lab.cli.values import finite, shapes_of

__all__ = ["sweep"]


def sweep(
    variant: o.VariantArgument = None,
    variant_option: o.VariantOption = None,
    params: o.Params = None,
    shape: o.Shapes = None,
    square: o.Squares = None,
    m: o.M = None,
    n: o.N = None,
    k: o.K = None,
    batch: o.Batch = 1,
    dtype: o.DTypeName = "fp32",
    out_dtype: o.OutDType = None,
    layout: o.LayoutName = None,
    alpha: o.Alpha = 1.0,
    beta: o.Beta = 0.0,
    epilogue: o.Epilogue = None,
    bias: o.Bias = False,
    arch: o.ArchName = None,
    device: o.Device = None,
    backend: mo.Backend = "auto",
    seed: o.Seed = 0,
    specialize: o.Specialize = False,
    smem_pad: o.SmemPad = 0,
    output: mo.Output = None,
    no_resume: mo.NoResume = False,
    retry_failed: mo.RetryFailed = False,
    timeout: mo.Timeout = 120.0,
    max_seconds: mo.MaxSeconds = None,
    rounds: mo.Rounds = None,
    no_verify: o.NoVerify = False,
    no_time: o.NoTime = False,
    no_baseline: o.NoBaseline = False,
    templates: o.Templates = None,
    as_json: o.Json = False,
    as_csv: mo.Csv = False,
    as_md: mo.Markdown = False,
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

    form = mo.output_format(as_json=as_json, as_csv=as_csv, as_md=as_md)
    shapes = shapes_of(shape=shape or (), square=square or (), m=m, n=n, k=k, batch=batch)
    found = lab.sweep(
        o.one_variant(variant, variant_option),
        shape=list(shapes) or None,
        dtype=dtype,
        out_dtype=out_dtype,
        layout=layout,
        alpha=finite("--alpha", alpha),
        beta=finite("--beta", beta),
        epilogue=epilogue,
        bias=bias,
        arch=arch,
        device=device,
        backend=backend,
        smem_pad_bytes=smem_pad,
        specialize=specialize,
        settings=mo.timing_settings(
            RunSettings(),
            seed=seed,
            verify=not no_verify,
            time=not no_time,
            baseline=not no_baseline,
            max_seconds=max_seconds,
            rounds=rounds,
        ),
        output=output,
        resume=not no_resume,
        retry_failed=retry_failed,
        timeout_s=timeout,
        progress=True,
        workbench=Workbench(templates or ()),
        config=mo.parse_search(params or ()),
    )
    ranked = sorted(found, key=lambda x: (x.error is not None, -(x.tflops or 0.0)))
    document = (
        *survey_document(ranked),
        *pruned_facts(mo.pruned_counts(found), len(found.pruned)),
        *mo.closing(found, output),
    )
    mo.print_results(found, form, document)
    raise typer.Exit(mo.exit_code(found, failures_matter=False))
