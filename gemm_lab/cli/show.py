"""gemm-lab show"""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from gemm_lab.cli.options import (
    ArchName,
    Bias,
    DTypeName,
    Epilogue,
    K,
    LayoutName,
    M,
    N,
    OutDType,
    Params,
    Shapes,
    Specialize,
    Square,
    Templates,
    VariantArgument,
    VariantOption,
    one_variant,
)
from gemm_lab.cli.output import print_code, print_diff
from gemm_lab.cli.values import parse_assignments, shapes_of, single_shape
from gemm_lab.errors import UsageError

__all__ = ["show"]


def show(
    variant: VariantArgument = None,
    variant_option: VariantOption = None,
    ptx: Annotated[bool, typer.Option("--ptx", help="The PTX that NVRTC makes of it.")] = False,
    sass: Annotated[
        bool, typer.Option("--sass", help="The machine code; needs nvdisasm on PATH.")
    ] = False,
    diff: Annotated[
        list[str] | None,
        typer.Option(
            "--diff",
            metavar="OTHER",
            help="What differs from another variant, or with NAME=VALUE from other tunables; "
            "may be repeated.",
        ),
    ] = None,
    params: Params = None,
    dtype: DTypeName = "fp32",
    out_dtype: OutDType = None,
    layout: LayoutName = None,
    arch: ArchName = None,
    epilogue: Epilogue = None,
    bias: Bias = False,
    specialize: Specialize = False,
    shape: Shapes = None,
    square: Square = None,
    m: M = None,
    n: N = None,
    k: K = None,
    templates: Templates = None,
) -> None:
    """The rendered CUDA C++ of a kernel, as it is compiled.

    A shape decides how widely the operands may be read, and what --specialize bakes in;
    without one the widest loads are shown. Nothing needs a GPU.
    """
    if ptx and sass:
        raise UsageError("--ptx and --sass at once", hint="ask for one of them")
    name = one_variant(variant, variant_option)
    wanted = single_shape(
        shapes_of(shape=shape or (), square=() if square is None else (square,), m=m, n=n, k=k)
    )
    if specialize and wanted is None:
        raise UsageError("--specialize needs a shape", hint="add --square 512 or --shape MxNxK")
    question = {
        "dtype": dtype,
        "out_dtype": out_dtype,
        "layout": layout,
        "arch": arch,
        "epilogue": epilogue,
        "bias": bias,
        "shape": wanted,
        "specialize": specialize,
    }
    form = "ptx" if ptx else "sass" if sass else "cuda"
    tunables = parse_assignments(params or ())
    text = _text(templates or [], name, tunables, form, question)
    if not diff:
        print_code(text, "cuda" if form == "cuda" else "text")
        return
    other, changes = _other(diff, name)
    # Tunables of the first hold for the other too, as far as it has them.
    other_text = _text(
        templates or [], other, {**tunables, **changes}, form, question, lenient=tunables
    )
    label = " ".join([other, *(f"{k}={v}" for k, v in changes.items())])
    print_diff(
        list(
            difflib.unified_diff(
                text.splitlines(keepends=True),
                other_text.splitlines(keepends=True),
                fromfile=name,
                tofile=label,
            )
        )
    )


def _other(words: list[str], name: str) -> tuple[str, dict[str, str]]:
    """The variant and the tunables on the other side of a diff."""
    variants = [word for word in words if "=" not in word]
    if len(variants) > 1:
        raise UsageError(
            f"two variants to hold against: {', '.join(variants)}", hint="give one --diff VARIANT"
        )
    changes = parse_assignments(word for word in words if "=" in word)
    return (variants[0] if variants else name), changes


def _text(
    templates: list[Path],
    name: str,
    tunables: dict[str, str],
    form: str,
    question: dict[str, Any],
    *,
    lenient: dict[str, str] | None = None,
) -> str:
    from gemm_lab.core.problem import GemmProblem
    from gemm_lab.lab.api import kernel_spec, source
    from gemm_lab.lab.workbench import Workbench

    bench = Workbench(templates)
    variant = bench.variant(name)
    known = {
        k: v
        for k, v in tunables.items()
        if k in variant.tunables or lenient is None or lenient.get(k) != v
    }
    question = dict(question)
    shape, specialize = question.pop("shape"), question.pop("specialize")
    alignment = None
    if shape is not None:
        support = variant.support(question["dtype"])
        problem = GemmProblem(
            shape=shape,
            dtype=support.dtype,
            out=support.dtype.out(question["out_dtype"]),
            layout=question["layout"] or support.layouts[0],
        )
        alignment = problem.alignment(problem.packed_strides())
    spec = kernel_spec(
        bench,
        variant,
        tunables=known,
        alignment=alignment,
        specialize=shape if specialize else None,
        **question,
    )
    if form == "cuda":
        return source(bench, variant, spec)
    compiled = bench.compile(variant, spec)
    return compiled.ptx if form == "ptx" else _sass(compiled.cubin_path)


def _sass(cubin: Path) -> str:
    tool = shutil.which("nvdisasm")
    if tool is None:
        raise UsageError(
            "nvdisasm is not on PATH", hint="it comes with the CUDA toolkit; --ptx needs nothing"
        )
    done = subprocess.run(
        [tool, "--print-code", str(cubin)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError(f"nvdisasm failed: {done.stderr.strip()}")
    return done.stdout
