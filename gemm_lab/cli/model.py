"""gemm-lab model"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gemm_lab.cli import options as o
from gemm_lab.cli.model_options import DeviceFile, GpuName, card_named, device_table
from gemm_lab.cli.output import print_document, print_json
from gemm_lab.cli.values import parse_assignments, shapes_of, single_shape
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.errors import UsageError

if TYPE_CHECKING:
    from gemm_lab.model.devices import Device
    from gemm_lab.model.kernel_shape import KernelShape

__all__ = ["model"]

_DEFAULT_SIZE = 4096


def model(
    variant: o.VariantArgument = None,
    variant_option: o.VariantOption = None,
    gpu: GpuName = None,
    params: o.Params = None,
    shape: o.Shapes = None,
    square: o.Square = None,
    m: o.M = None,
    n: o.N = None,
    k: o.K = None,
    batch: o.Batch = 1,
    dtype: o.DTypeName = "fp32",
    out_dtype: o.OutDType = None,
    layout: o.LayoutName = None,
    device_file: DeviceFile = None,
    templates: o.Templates = None,
    as_json: o.Json = False,
) -> None:
    """What a card can reach for a product: roofline, the two ends of reuse, Little's law.

    With a variant also its traffic, occupancy, predicted time and what it waits for. All of it is
    arithmetic on the card's figures; nothing is run.
    """
    from gemm_lab.cli.model_document import device_document, kernel_document
    from gemm_lab.core.dtypes import dtype as dtype_named
    from gemm_lab.model.report import device_report, model_report

    squares = () if square is None else (square,)
    wanted = single_shape(shapes_of(shape=shape or (), square=squares, m=m, n=n, k=k, batch=batch))
    wanted = wanted or Shape(m=_DEFAULT_SIZE, n=_DEFAULT_SIZE, k=_DEFAULT_SIZE)
    if wanted.flop_count == 0:
        raise UsageError(f"{wanted} has no work to model", hint="sizes of 1 and up")
    arithmetic = dtype_named(dtype)
    card = card_named(gpu, device_table(device_file))
    problem = GemmProblem(
        shape=wanted, dtype=arithmetic, out=arithmetic.out(out_dtype), layout=layout or "nn"
    )
    name = o.optional_variant(variant, variant_option)
    if name is None:
        if params:
            raise UsageError("-p without a variant", hint="name the variant that it belongs to")
        about = device_report(card, problem)
        if as_json:
            print_json({"schema": SCHEMA, "model": about})
        else:
            print_document(device_document(about))
        return
    kernel = _kernel_shape(name, templates or [], problem, parse_assignments(params or ()), card)
    report = model_report(card, problem, kernel)
    if as_json:
        print_json({"schema": SCHEMA, "variant": name, "model": report})
    else:
        print_document(kernel_document(name, report))


def _kernel_shape(
    name: str, templates: list[Any], problem: GemmProblem, tunables: dict[str, str], card: Device
) -> KernelShape:
    from gemm_lab.lab.workbench import Workbench

    home = "gemm_lab.lab.modelling"
    try:
        modelling = importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != home:
            raise
        raise UsageError(
            "the model of a variant is not part of this installation",
            hint="leave the variant out for what the card can do",
        ) from error
    bench = Workbench(templates)
    found: KernelShape = modelling.variant_shape(
        bench, bench.variant(name), problem=problem, tunables=tunables, arch=card.arch
    )
    return found
