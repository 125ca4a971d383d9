"""Automatic choice from the outside: explain it, or run what it takes.

print(gemm_lab.explain_choice(shape=(64, 4096, 16384), dtype="bf16", gpu="H200").reason)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemm_lab.core.dtypes import DType, Layout, ScalarType
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.measurement import Measurement
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.errors import GemmLabError
from gemm_lab.lab.choice import Alternative, Choice, ChoiceQuestion, PassedOver
from gemm_lab.lab.choice_questions import question_of_problem
from gemm_lab.lab.chooser import RefusedError, chooser_of
from gemm_lab.lab.measure import RunSettings, measure
from gemm_lab.lab.prepare import Request, merge_tunables
from gemm_lab.lab.question import as_shape
from gemm_lab.lab.trial import make_executor
from gemm_lab.lab.workbench import (
    LOWEST_USUAL_ARCH,
    BackendName,
    Workbench,
    default_workbench,
)
from gemm_lab.model import Device, find_device, load_devices

__all__ = [
    "EMULATED_SIZE",
    "GPU_SIZE",
    "Alternative",
    "Asked",
    "Choice",
    "PassedOver",
    "explain",
    "explain_choice",
    "run_chosen",
]

GPU_SIZE = 4096
EMULATED_SIZE = 512


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A product on packed operands, with what the caller left open as None."""

    arithmetic: DType
    out: ScalarType
    shape: Shape | None = None
    layout: Layout | None = None
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: str | None = None
    bias: bool = False
    arch: str | None = None
    tunables: Mapping[str, Any]

    def problem(self, backend: str, layout: Layout) -> GemmProblem:
        """The product; a backend has its own shape where none was given."""
        size = GPU_SIZE if backend == "gpu" else EMULATED_SIZE
        return GemmProblem(
            shape=self.shape or as_shape(size),
            dtype=self.arithmetic,
            out=self.out,
            layout=layout,
            alpha=self.alpha,
            beta=self.beta,
            epilogue=self.epilogue,
            bias=self.bias,
        )


def explain(
    *,
    shape: Any = None,
    dtype: str = "fp32",
    out_dtype: str | None = None,
    layout: Layout | None = None,
    epilogue: str | None = None,
    bias: bool = False,
    gpu: str | Device | None = None,
    arch: str | None = None,
    device: int | None = None,
    backend: BackendName = "auto",
    config: Mapping[str, Any] | None = None,
    workbench: Workbench | None = None,
    **tunables: Any,
) -> Choice:
    """What `run` (and `matmul`, on packed arrays) would take when no variant is named, and why.

    Nothing is compiled or run.

    Args:
        shape: see as_shape; 4096^3 for a card and 512^3 for the emulator when None.
        gpu: a card of the device table, which need not be here; else the GPU at hand, else the
            emulator.
        config, tunables: those that shall have a given value.

    UsageError: no such card, or no variant does this.
    """
    bench = workbench or default_workbench()
    arithmetic = dtype_named(dtype)
    asked = Asked(
        arithmetic=arithmetic,
        out=arithmetic.out(out_dtype),
        shape=None if shape is None else as_shape(shape),
        layout=layout,
        epilogue=epilogue,
        bias=bias,
        arch=arch,
        tunables=merge_tunables(config, tunables),
    )
    if gpu is None:
        place = bench.choose_backend(
            backend, lowest_arch=LOWEST_USUAL_ARCH, arch=arch, device=device
        )
        return chooser_of(bench).choose(_question(bench, place.backend, asked))
    card = gpu if isinstance(gpu, Device) else find_device(gpu, load_devices())
    return chooser_of(bench).choose(_question(bench, _Named(card), asked))


explain_choice = explain


def run_chosen(
    bench: Workbench,
    backend: Any,
    asked: Asked,
    smem_pad_bytes: int,
    specialize: bool,
    settings: RunSettings,
) -> Measurement:
    """Measure the first kernel of the choice that can be made; see lab.measure."""
    question = _question(bench, backend, asked)
    notes: list[str] = []

    def attempt(chosen: Alternative) -> Measurement:
        variant = bench.variant(chosen.variant)
        request = Request(
            variant=variant,
            config=chosen.config,
            arch=asked.arch,
            specialize=specialize,
            smem_pad_bytes=smem_pad_bytes,
        )
        where = backend
        if backend.name != "gpu":
            lowest = variant.support(asked.arithmetic.name).arch
            where = bench.choose_backend(
                backend.name, lowest_arch=lowest, arch=asked.arch, device=None
            ).backend
        problem = asked.problem(backend.name, chosen.layout)
        try:
            make_executor(bench, where, request, problem)
        except GemmLabError as error:
            notes.append(f"{variant.name} {chosen.config} was passed over: {error.message}")
            raise RefusedError(error) from error
        if chosen.copies:
            notes.append(f"the time is without the copies that matmul makes: {chosen.copies_text}")
        return measure(bench, where, request, problem, settings)

    measured = chooser_of(bench).first_that_works(question, attempt)
    return replace(measured, warnings=(*measured.warnings, *notes), choice_rank=0)


@dataclass(frozen=True)
class _Named:
    """A card of the table in the place of a backend."""

    card: Device
    name: str = "gpu"

    @property
    def arch(self) -> str:
        return self.card.arch

    @property
    def device_name(self) -> str:
        return self.card.name

    @property
    def sm_count(self) -> int:
        return self.card.sm_count


def _question(bench: Workbench, backend: Any, asked: Asked) -> ChoiceQuestion:
    on_card = backend.name == "gpu"
    arch = asked.arch or (backend.arch if on_card else None)
    dtype = asked.arithmetic.name
    chooser = chooser_of(bench)
    layouts = (asked.layout,) if asked.layout else chooser.layouts_for(dtype, arch)
    return question_of_problem(
        asked.problem(backend.name, layouts[0]),
        layouts=layouts,
        arch=arch,
        device=backend.device_name if on_card else None,
        sm_count=backend.sm_count if on_card else None,
        emulated=backend.name == "emulator",
        tunables=asked.tunables,
    )
