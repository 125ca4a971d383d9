"""One Measurement: what was run, whether it was right, how long it took, on what.

Fields are added, never renamed; what is not known is None. JSON has neither NaN nor Infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from gemm_lab.core.decode import decode

__all__ = [
    "SCHEMA",
    "Baseline",
    "MaxError",
    "MeasuredProblem",
    "MeasuredResources",
    "Measurement",
    "Ratio",
    "Tolerance",
    "to_json",
]

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class MeasuredProblem:
    """The product that was asked for."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    out_dtype: str
    layout: str
    alpha: float
    beta: float
    epilogue: str | None


@dataclass(frozen=True, kw_only=True)
class MaxError:
    """The element that comes nearest to its bound, or is farthest past it.

    got and expected are text where JSON has no number for them ("nan", "inf").
    """

    index: tuple[int, ...]
    got: float | str
    expected: float | str
    bound: float | str


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """The largest allowed error over all elements, and where the bound comes from."""

    value: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The library's time for the same product, in the same rounds."""

    name: str
    compute_type: str
    samples_ms: tuple[float, ...]
    median_ms: float | None
    tflops: float | None


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Median of the paired ratios baseline / kernel time (above 1: we are faster), 95% interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class MeasuredResources:
    """Resources of the launch that needs most, as loaded; occupancy is a fraction."""

    registers_per_thread: int
    static_smem_bytes: int
    dynamic_smem_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    occupancy: float | None


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Everything known of one run.

    Measurements of the same `group` shared their rounds: sample i of each is of round i.
    `error` says why there is no result. `smem_pad_bytes` is dynamic shared memory added by hand.
    `choice_rank` is the place in the order of automatic choice, 0 for what it takes. `single_ms` is
    what one call took before the rounds; without samples it was too long for the time at hand.
    """

    schema: int = SCHEMA
    command: str
    variant: str
    source_sha256: str
    config: Mapping[str, Any]
    problem: MeasuredProblem
    backend: str
    device: str
    arch: str
    verified: bool | None = None
    relative_rmse: float | None = None
    max_error: MaxError | None = None
    tolerance: Tolerance | None = None
    samples_ms: tuple[float, ...] = ()
    median_ms: float | None = None
    tflops: float | None = None
    launch_bound: bool | None = None
    baseline: Baseline | None = None
    ratio_to_baseline: Ratio | None = None
    resources: MeasuredResources | None = None
    counters: Mapping[str, Any] | None = None
    clocks: Mapping[str, Any] | None = None
    cache_hit: bool | None = None
    ptx_hash: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seed: int | None = None
    started: str | None = None
    warm_median_ms: float | None = None
    error: str | None = None
    group: str | None = None
    smem_pad_bytes: int = 0
    bias: bool = False
    choice_rank: int | None = None
    single_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        """Back from JSON; fields of a later schema are passed over.

        TypeError or ValueError when a field is missing or of another type.
        """
        return decode(cls, data)


def to_json(data: Any, *, indent: int | None = None) -> str:
    """JSON text without NaN or Infinity (they become null).

    Bytes of a path that are no text become '?', so that the text can be written as UTF-8.
    """
    text = json.dumps(_plain(data), indent=indent, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
