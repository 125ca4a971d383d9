"""Times of nothing, times of a launch, and numbers that JSON does not have."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gemm_lab
from gemm_lab.core.measurement import Measurement, to_json
from gemm_lab.core.statistics import paired_ratio, relative_standard_error, summarize
from gemm_lab.jit import Cache
from gemm_lab.lab.compare import compare_pair
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.results import Results
from gemm_lab.lab.station import StationPlan
from gemm_lab.lab.sweep import sweep
from gemm_lab.lab.workbench import Workbench
from gemm_lab.report.plain import render_plain
from gemm_lab.report.run import run_document
from tests.lab import fakes

QUICK = RunSettings(min_rounds=5, max_rounds=10)


def refuse(word: str) -> None:
    raise AssertionError(f"{word} in JSON")


def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: Any) -> Measurement:
    """One on the card that is not there, whose every time `times` makes of what it would be."""
    plain = fakes.FakeStopwatch.time_chunk
    monkeypatch.setattr(
        fakes.FakeStopwatch, "time_chunk", lambda self, runs: [times(t) for t in plain(self, runs)]
    )
    found = sweep(
        str(fakes.STUB),
        shape=(24, 20, 28),
        settings=QUICK,
        workbench=Workbench(cache=Cache(tmp_path)),
        station=StationPlan(
            maker="tests.lab.fakes:fake_station", arguments={"cache_directory": str(tmp_path)}
        ),
        isolate=False,
        progress=False,
        output=tmp_path / "m.jsonl",
    )
    for line in (tmp_path / "m.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    return found[0]


def test_an_elapsed_time_of_0_is_no_rate_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(tmp_path, monkeypatch, lambda _: 0.0)
    assert found.verified is True
    assert found.median_ms == 0.0
    assert found.tflops is None
    assert found.ratio_to_baseline is None
    assert found.baseline is not None
    assert found.baseline.tflops is None
    assert any("took 0 ms" in w for w in found.warnings)
    text = render_plain(run_document(found))
    assert "took 0 ms" in text
    assert "nan" not in text
    assert "inf" not in text
    again = compare_pair(found, found)
    assert (again.verdict, again.ratio) == ("unclear", None)
    assert Results([found]).best() == found


def test_a_library_that_took_no_time_gives_no_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(tmp_path, monkeypatch, lambda t: t)
    assert found.baseline is not None
    assert found.warnings == ()
    nothing = replace(found.baseline, samples_ms=(0.0,) * len(found.samples_ms))
    odd = replace(found, baseline=nothing)
    assert compare_pair(odd, replace(found, seed=1)).basis == "times"


def test_a_short_kernel_is_labelled_as_bound_by_its_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = measured(tmp_path, monkeypatch, lambda _: 0.004)
    assert short.launch_bound is True
    assert "bound by the launch" in render_plain(run_document(short))
    long = measured(tmp_path / "long", monkeypatch, lambda _: 4.0)
    assert long.launch_bound is False
    assert "bound by the launch" not in render_plain(run_document(long))


def test_the_emulator_claims_no_time() -> None:
    found = gemm_lab.run("naive", shape=16, backend="emulator")
    assert (found.samples_ms, found.median_ms, found.tflops, found.launch_bound) == (
        (), None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize("samples", [[], [0.0], [0.0, 0.0], [0.0, 1.0], [1.0]])
def test_statistics_divide_by_no_zero(samples: list[float]) -> None:
    assert (summarize(samples) is None) == (not samples)
    assert relative_standard_error(samples) >= 0
    ratio = paired_ratio(samples, samples)
    assert (ratio is None) == (not samples or 0.0 in samples)


def test_json_has_null_where_there_is_no_number() -> None:
    values = {"a": float("nan"), "b": [float("inf"), 1.0], "c": {"d": -float("inf")}}
    assert json.loads(to_json(values), parse_constant=refuse) == {
        "a": None, "b": [None, 1.0], "c": {"d": None},
    }  # fmt: skip


def test_results_and_documents_are_written_through_the_one_door() -> None:
    """Any json.dumps of floats elsewhere would write NaN; the compiler's room has none."""
    for path in sorted(Path(gemm_lab.__file__).parent.rglob("*.py")):
        if path.parent.name == "jit":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("dump", "dumps")
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "json"
            ):
                strict = [k for k in node.keywords if k.arg == "allow_nan"]
                assert strict, f"{path}:{node.lineno}"
