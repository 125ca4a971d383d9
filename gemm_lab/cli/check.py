"""gemm-lab check"""

from __future__ import annotations

from dataclasses import asdict

import typer

from gemm_lab.cli import options as o
from gemm_lab.cli.output import print_document, print_json, progress
from gemm_lab.cli.values import parse_assignments, shapes_of
from gemm_lab.core.measurement import SCHEMA

__all__ = ["check"]


def check(
    variant: o.VariantArgument = None,
    variant_option: o.VariantOption = None,
    params: o.Params = None,
    shape: o.Shapes = None,
    square: o.Square = None,
    dtype: o.DTypeName = "fp32",
    out_dtype: o.OutDType = None,
    layout: o.LayoutName = None,
    epilogue: o.Epilogue = None,
    bias: o.Bias = False,
    arch: o.ArchName = None,
    seed: o.Seed = 0,
    templates: o.Templates = None,
    as_json: o.Json = False,
) -> None:
    """Run a kernel on the emulator under every detector, over small ragged problems.

    Races, reads of memory never written, accesses out of bounds or misaligned, barriers that not
    all threads reach, wrong results: each with its CUDA source line. Exit code 3 says a wrong
    result or a race, 6 a fault. Nothing needs a GPU.
    """
    from gemm_lab.lab.check import check_variant
    from gemm_lab.lab.workbench import Workbench

    bench = Workbench(templates or ())
    found_variant = bench.variant(o.one_variant(variant, variant_option))
    squares = () if square is None else (square,)
    try:
        found = check_variant(
            bench,
            found_variant,
            dtype=dtype,
            out_dtype=out_dtype,
            layout=layout,
            tunables=parse_assignments(params or ()),
            arch=arch,
            shapes=shapes_of(shape=shape or (), square=squares),
            epilogue=epilogue,
            bias=bias,
            seed=seed,
            progress=progress,
        )
    finally:
        progress("")
    if as_json:
        print_json({"schema": SCHEMA, "ok": found.ok, **asdict(found)})
    else:
        from gemm_lab.report.emulation import check_document

        print_document(check_document(asdict(found)))
    if found.exit_code:
        raise typer.Exit(found.exit_code)
