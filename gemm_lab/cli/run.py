"""gemm-lab run"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemm_lab.cli import options as o
from gemm_lab.cli.bundles import spread
from gemm_lab.cli.model_options import GpuName, card_named, device_table
from gemm_lab.cli.output import print_document, print_json, progress
from gemm_lab.cli.values import parse_assignments, single_shape
from gemm_lab.errors import NoGpuError, UsageError, WrongResultError

if TYPE_CHECKING:
    from gemm_lab.core.measurement import Measurement
    from gemm_lab.lab.workbench import Workbench

__all__ = ["run"]

ExplainChoice = Annotated[
    bool,
    typer.Option(
        "--explain-choice",
        help="Say which kernel would be taken when none is named, and why; run nothing.",
    ),
]


@spread
def run(
    *,
    variant: o.VariantArgument = None,
    variant_option: o.VariantOption = None,
    params: o.Params = None,
    sizes: o.Sizes,
    dtype: o.DTypeName = "fp32",
    out_dtype: o.OutDType = None,
    layout: o.LayoutName = None,
    terms: o.Terms,
    backend: o.BackendChoice = "auto",
    seed: o.Seed = 0,
    specialize: o.Specialize = False,
    smem_pad: o.SmemPad = 0,
    no_verify: o.NoVerify = False,
    no_time: o.NoTime = False,
    no_baseline: o.NoBaseline = False,
    counters: o.Counters = False,
    explain_choice: ExplainChoice = False,
    gpu: GpuName = None,
    templates: o.Templates = None,
    as_json: o.Json = False,
) -> None:
    """Run one kernel on seeded data: verify it, and on a GPU time it beside cuBLAS.

    Without a variant the lab chooses one and its tunables, by recorded results and a short rule;
    --explain-choice says why, and runs nothing. The shape is 4096^3 on a GPU
    and 512^3 on the emulator unless one is given. Exit code 3 says that the result is wrong, 4
    that nothing was executed for want of a GPU.
    """
    from gemm_lab.lab.measure import RunSettings
    from gemm_lab.lab.workbench import Workbench

    wanted = single_shape(sizes.shapes())
    bench = Workbench(templates or ())
    named = o.optional_variant(variant, variant_option)
    if explain_choice:
        if named is not None:
            raise UsageError(
                f"{named} is named: there is nothing to choose", hint="leave the variant out"
            )
        question: dict[str, Any] = {
            "shape": wanted, "dtype": dtype, "out_dtype": out_dtype, "layout": layout,
            "epilogue": terms.epilogue, "bias": terms.bias, "gpu": gpu, "arch": terms.arch,
            "device": terms.device,
            "backend": backend, "config": parse_assignments(params or ()),
        }  # fmt: skip
        _explain(bench, question, as_json=as_json)
        return
    if gpu is not None:
        raise UsageError(
            "--gpu goes with --explain-choice", hint="--device chooses among the GPUs at hand"
        )
    question = {
        "variant": named,
        "shape": wanted,
        "dtype": dtype,
        "out_dtype": out_dtype,
        "layout": layout,
        **terms.facts(),
        "smem_pad_bytes": smem_pad,
        "specialize": specialize,
        "config": parse_assignments(params or ()),
        "settings": RunSettings(
            seed=seed,
            verify=not no_verify,
            time=not no_time,
            baseline=not no_baseline,
            counters=counters,
            progress=progress,
        ),
    }
    try:
        outcome = _run(bench, backend, question)
    finally:
        progress("")
    _show(outcome, as_json=as_json)
    if outcome.missing is not None:
        raise typer.Exit(NoGpuError.exit_code)
    if outcome.measured.verified is False:
        raise typer.Exit(WrongResultError.exit_code)


def _explain(bench: Workbench, question: dict[str, Any], *, as_json: bool) -> None:
    from gemm_lab.cli.choice_document import choice_document
    from gemm_lab.core.measurement import SCHEMA
    from gemm_lab.lab.choose import explain

    gpu = question.pop("gpu")
    card = None if gpu is None else card_named(gpu, device_table(None))
    choice = explain(gpu=card, workbench=bench, **question)
    if as_json:
        print_json({"schema": SCHEMA, "choice": choice.to_dict()})
    else:
        print_document(choice_document(choice))


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """The measurement, why its backend was taken, and why nothing was executed, if so."""

    measured: Measurement
    reason: str
    missing: NoGpuError | None = None


def _run(bench: Workbench, backend: Any, question: dict[str, Any]) -> _Outcome:
    from gemm_lab.lab import api

    try:
        measured = api.run(backend=backend, workbench=bench, **question)
    except (NoGpuError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError):
            if not (error.name or "").startswith("gemm_lab.emulator"):
                raise
            missing = NoGpuError(
                f"there is no GPU, and the emulator is not whole: {error.name} is missing",
                hint="install gemm-lab anew; `gemm-lab doctor` says more",
            )
        else:
            missing = error
        measured = api.run(backend="none", workbench=bench, **{**question, "device": None})
        command = f"{measured.command.removesuffix('none')}{backend}"
        return _Outcome(
            measured=replace(measured, command=command), reason=missing.message, missing=missing
        )
    chosen = bench.choose_backend(
        backend, lowest_arch=measured.arch, arch=measured.arch, device=question["device"]
    )
    return _Outcome(measured=measured, reason=chosen.reason)


def _show(outcome: _Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json(outcome.measured.to_dict())
    else:
        from gemm_lab.report.run import run_document

        print_document(run_document(outcome.measured, reason=outcome.reason))
    if outcome.missing is not None:
        message = f"error: nothing was executed: {outcome.missing.message}"
        typer.echo(message, err=True)
        if outcome.missing.hint:
            typer.echo(f"hint: {outcome.missing.hint}", err=True)
