"""What makes two measurements the same question."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

from gemm_lab.core.measurement import Measurement, to_json

__all__ = ["measurement_key", "question_key"]


def measurement_key(m: Measurement) -> str:
    """What makes two measurements the same question: source, tunables, problem, card, seed."""
    return question_key(
        variant=m.variant,
        source_sha256=m.source_sha256,
        config=dict(m.config),
        problem=m.problem,
        bias=m.bias,
        backend=m.backend,
        device=m.device,
        arch=m.arch,
        seed=m.seed,
        smem_pad_bytes=m.smem_pad_bytes,
    )


def question_key(**facts: Any) -> str:
    """Hash of the facts; `problem` is a MeasuredProblem."""
    plain = {**facts, "problem": asdict(facts["problem"])}
    plain["config"] = dict(sorted(plain["config"].items()))
    return hashlib.sha256(to_json(plain).encode()).hexdigest()
