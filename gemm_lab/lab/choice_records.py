"""Recorded times: small files of the fastest kernels by device and problem.

A line is a JSON object: device, arch, dtype, out_dtype, layout, m, n, k, batch, variant, config,
source_sha256, median_ms, tflops, ratio (to the library). `gemm-lab results FILE... --choices OUT`
makes such files from measurements. Those in `choices/` here are shipped; GEMM_LAB_RESULTS names
more (files or folders, choice files or what `bench -o` wrote), else `results/` in the user's data
folder is looked into.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from gemm_lab.core.arch import arch_number
from gemm_lab.core.measurement import Measurement, to_json
from gemm_lab.errors import UsageError
from gemm_lab.lab.choice_cards import device_key
from gemm_lab.lab.journal import read_journal

__all__ = ["Record", "Records", "choice_lines", "load_records", "records_of", "write_choices"]

# So many kernels of a problem are kept; where there are so many, others were measured and slower.
MOST_RECORDED = 4
_SHIPPED = Path(__file__).parent / "choices"
_ENVIRONMENT = "GEMM_LAB_RESULTS"
_log = logging.getLogger("gemm_lab")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One kernel's median time for one problem on one card; `ratio` above 1 beat the library."""

    device: str
    arch: str
    dtype: str
    out_dtype: str
    layout: str
    m: int
    n: int
    k: int
    batch: int
    variant: str
    config: dict[str, Any]
    median_ms: float
    source_sha256: str = ""
    tflops: float | None = None
    ratio: float | None = None

    @property
    def problem_text(self) -> str:
        """4096x4096x4096, or 8x[64x64x64]."""
        text = f"{self.m}x{self.n}x{self.k}"
        return text if self.batch == 1 else f"{self.batch}x[{text}]"

    def distance(self, m: int, n: int, k: int, batch: int) -> float:
        """From a shape, in doublings: 1 is one axis doubled. Sizes of 0 count as 1."""
        ours, theirs = (self.m, self.n, self.k, self.batch), (m, n, k, batch)
        return math.hypot(
            *(math.log2(max(a, 1) / max(b, 1)) for a, b in zip(ours, theirs, strict=True))
        )


class Records(Sequence[Record]):
    """Records in order of trust: the user's own before those that are shipped."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = tuple(records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def near(
        self,
        *,
        device: str,
        arch: str | None,
        dtype: str,
        out_dtype: str,
        layout: str,
        shape: tuple[int, int, int, int],
    ) -> list[tuple[float, Record]]:
        """Records of that arithmetic and layout with their distance, nearest first.

        Those of the same card, or of another one of its architecture when there are none.
        """
        found = self._groups.get((dtype, out_dtype, layout), ())
        same = [r for r in found if device_key(r.device) == device_key(device)]
        if not same and arch is not None:
            same = [r for r in found if arch_number(r.arch) == arch_number(arch)]
        return sorted(((r.distance(*shape), r) for r in same), key=lambda pair: pair[0])

    @cached_property
    def _groups(self) -> dict[tuple[str, str, str], list[Record]]:
        groups: dict[tuple[str, str, str], list[Record]] = {}
        for r in self._records:
            groups.setdefault((r.dtype, r.out_dtype, r.layout), []).append(r)
        return groups


def records_of(measurements: Iterable[Measurement], *, most: int = MOST_RECORDED) -> list[Record]:
    """The fastest kernels of every problem on every card, `most` at most, fastest first.

    Only right, timed, plain products on a GPU count; of a kernel measured twice, the later time.
    """
    latest: dict[Any, Record] = {}
    for m in measurements:
        record = _record(m)
        if record is not None:
            latest[(_problem_key(record), record.variant, to_json(record.config))] = record
    groups: dict[Any, list[Record]] = {}
    for record in latest.values():
        groups.setdefault(_problem_key(record), []).append(record)
    found: list[Record] = []
    for key in sorted(groups):
        ranked = sorted(groups[key], key=lambda r: (r.median_ms, r.variant, to_json(r.config)))
        found += ranked[:most]
    return found


def write_choices(path: Path, measurements: Iterable[Measurement]) -> dict[Path, int]:
    """Write a choice file, or one a card where `path` is a folder; how many records in each.

    UsageError when no measurement counts, or the file cannot be written.
    """
    records = records_of(measurements)
    if not records:
        raise UsageError(
            "no measurement here can guide a choice",
            hint="right, timed products on a GPU count, with alpha 1, beta 0 and no epilogue",
        )
    groups: dict[Path, list[Record]] = {}
    for record in records:
        name = re.sub(r"[^a-z0-9]+", "_", device_key(record.device).lower()).strip("_")
        target = path / f"{name}.jsonl" if path.is_dir() else path
        groups.setdefault(target, []).append(record)
    for target, some in groups.items():
        try:
            target.write_text(choice_lines(some), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    return {target: len(some) for target, some in groups.items()}


def choice_lines(records: Iterable[Record]) -> str:
    """The text of a choice file."""
    return "".join(to_json(asdict(r)) + "\n" for r in records)


def load_records(shipped: Path | None = None) -> Records:
    """All records at hand. A file that cannot be read is told in a warning and passed over."""
    found: list[Record] = []
    for path in (*_user_files(), *_files(shipped or _SHIPPED)):
        try:
            found += _read(path)
        except (UsageError, OSError, UnicodeDecodeError) as error:
            _log.warning("recorded results are passed over: %s", getattr(error, "message", error))
    return Records(found)


def _user_files() -> Iterator[Path]:
    named = os.environ.get(_ENVIRONMENT)
    if named is not None:
        for word in named.split(os.pathsep):
            if word:
                yield from _files(Path(word))
        return
    import platformdirs

    yield from _files(Path(platformdirs.user_data_dir("gemm-lab", appauthor=False)) / "results")


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.glob("*.jsonl"))
    # A folder that is not there holds nothing; a file that is not there was named by somebody.
    return [path] if path.is_file() or path.suffix else []


def _read(path: Path) -> list[Record]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if lines and '"median_ms"' in lines[0] and '"schema"' not in lines[0]:
        return [record for line in lines if (record := _parsed(path, line)) is not None]
    return records_of(read_journal(path).measurements) if lines else []


_NUMBERS = ("m", "n", "k", "batch")


def _parsed(path: Path, line: str) -> Record | None:
    known = {f.name for f in fields(Record)}
    try:
        data = json.loads(line)
        record = Record(**{name: value for name, value in data.items() if name in known})
        whole = all(type(getattr(record, name)) is int for name in _NUMBERS)
        if not whole or not isinstance(record.config, dict) or not 0 < record.median_ms < math.inf:
            raise ValueError
        arch_number(record.arch)
    except (ValueError, TypeError, AttributeError, RecursionError, UsageError):
        _log.warning("a line of %s is no record and is passed over", path)
        return None
    return record


def _record(m: Measurement) -> Record | None:
    p = m.problem
    plain = (p.alpha, p.beta, p.epilogue, m.bias, m.smem_pad_bytes) == (1, 0, None, False, 0)
    if m.backend != "gpu" or m.error is not None or m.verified is False or not plain:
        return None
    if m.median_ms is None or m.median_ms <= 0:
        return None
    ratio = m.ratio_to_baseline
    return Record(
        device=m.device,
        arch=m.arch,
        dtype=p.dtype,
        out_dtype=p.out_dtype,
        layout=p.layout,
        m=p.m,
        n=p.n,
        k=p.k,
        batch=p.batch,
        variant=m.variant,
        config=dict(m.config),
        median_ms=float(f"{m.median_ms:.6g}"),
        source_sha256=m.source_sha256,
        tflops=None if m.tflops is None else float(f"{m.tflops:.5g}"),
        ratio=None if ratio is None else float(f"{ratio.median:.4g}"),
    )


def _problem_key(r: Record) -> tuple[str, str, str, str, int, int, int, int]:
    return (r.device, r.dtype, r.out_dtype, r.layout, r.m, r.n, r.k, r.batch)
