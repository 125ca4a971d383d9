"""Questions, records and cards for the tests of automatic choice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.lab.choice import Choice, ChoiceQuestion
from gemm_lab.lab.choice_questions import question_of_problem
from gemm_lab.lab.choice_records import Record, Records
from gemm_lab.lab.chooser import Chooser
from gemm_lab.lab.workbench import Workbench
from gemm_lab.model import Device, find_device, load_devices

H200 = find_device("H200", load_devices())
A100 = find_device("A100 SXM", load_devices())
# One kernel a file; the body goes behind the usual head.
HEAD = """/*---
title = "t"
idea = "i"
[dtype.fp32]
[launch]
grid = ["ceil_div(N, 16)", "ceil_div(M, 16)", "batch"]
block = [16, 16, 1]
[model]
unit = "cuda_core"
block_m = 16
block_n = 16
block_k = 4
threads = 256
---*/
"""


def question(
    shape: tuple[int, ...],
    *,
    dtype: str = "bf16",
    layout: Layout = "nt",
    card: Device | None = H200,
    device: str | None = None,
    arch: str | None = None,
    **other: Any,
) -> ChoiceQuestion:
    """For packed operands on a card of the table, or on one that it does not know."""
    arithmetic = dtype_named(dtype)
    m, n, k, *batch = shape
    problem = GemmProblem(
        shape=Shape(m=m, n=n, k=k, batch=batch[0] if batch else 1),
        dtype=arithmetic,
        out=arithmetic.default_out,
    )
    name = device if device is not None else (card.name if card else None)
    return question_of_problem(
        problem,
        layouts=(layout,),
        arch=arch or (card.arch if card else None),
        device=name,
        sm_count=card.sm_count if card else None,
        **other,
    )


def record(variant: str, config: dict[str, Any], median_ms: float, **other: Any) -> Record:
    """A record on the H200, of 4096^3 in bf16 nt unless told otherwise."""
    facts: dict[str, Any] = {
        "device": "NVIDIA H200", "arch": "sm_90a", "dtype": "bf16", "out_dtype": "bf16",
        "layout": "nt", "m": 4096, "n": 4096, "k": 4096, "batch": 1,
    }  # fmt: skip
    return Record(**{**facts, **other}, variant=variant, config=config, median_ms=median_ms)


def choose(asked: ChoiceQuestion, records: Sequence[Record] = (), bench: Any = None) -> Choice:
    """With nothing recorded but these."""
    return Chooser(bench or Workbench(), Records(records)).choose(asked)


class EmulatedCard(EmulatorBackend):
    """The emulator under the name of a card, so that the road of a GPU is taken."""

    def __init__(self, card: Device) -> None:
        super().__init__(arch=card.arch)
        self.card = card
        self.name = "gpu"  # type: ignore[assignment]

    @property
    def device_name(self) -> str:
        return self.card.name


class CardBench(Workbench):
    """A workbench whose GPU is an emulated card."""

    def __init__(self, card: Device, templates: Sequence[Path] = ()) -> None:
        super().__init__(templates)
        self.card = EmulatedCard(card)

    def gpu(self, device: int | None = None) -> Any:
        return self.card
