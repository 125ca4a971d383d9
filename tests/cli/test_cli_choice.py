"""run --explain-choice, and results --choices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Call

from gemm_lab.core.measurement import MeasuredProblem, Measurement, Ratio
from gemm_lab.lab.results import Results

WORDS = ("run", "--explain-choice", "--dtype", "bf16", "--shape", "64x4096x16384", "--gpu", "H200")


@pytest.fixture(autouse=True)
def _no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMM_LAB_RESULTS", "")


def test_explains_for_a_card_that_is_not_here(call: Call) -> None:
    answer = call(*WORDS)
    assert answer.code == 0, answer.err
    assert answer.out.startswith("product  64x4096x16384, bf16 to bf16, nn\n")
    assert "because " in answer.out
    assert "in the order in which they would be tried" in answer.out
    assert answer.err == ""


def test_explains_in_json(call: Call) -> None:
    data = json.loads(call(*WORDS, "--json", "--layout", "nt").out)
    choice: dict[str, Any] = data["choice"]
    assert data["schema"] == 1
    assert choice["layout"] == "nt"
    assert choice["alternatives"][0]["variant"] == choice["variant"]
    assert choice["alternatives"][0]["config"] == choice["config"]
    assert choice["alternatives"][0]["estimated_ms"] > 0


def test_explains_for_the_emulator_and_keeps_tunables(call: Call) -> None:
    words = ("run", "--explain-choice", "--backend", "emulator", "--square", "64")
    assert "the emulator, sm_80" in call(*words).out
    answer = call(*words, "-p", "BLOCK_SIZE=8")
    assert "BLOCK_SIZE=8" in answer.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "naive", "--explain-choice"), "nothing to choose"),
        (("run", "--gpu", "H200", "--square", "8"), "--gpu goes with --explain-choice"),
        (("run", "--explain-choice", "--gpu", "H2O"), "unknown GPU"),
        (("run", "--explain-choice", "--gpu", "H200", "-p", "NO=1"), "has the tunables NO"),
    ],
)
def test_what_is_refused(call: Call, words: tuple[str, ...], said: str) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert said in answer.err


def recorded(variant: str, ms: float, **other: Any) -> Measurement:
    facts: dict[str, Any] = {
        "command": "gemm-lab run", "variant": variant, "source_sha256": "0" * 64, "config": {},
        "backend": "gpu", "device": "NVIDIA H200", "arch": "sm_90", "verified": True,
        "median_ms": ms,
        "problem": MeasuredProblem(
            m=64, n=4096, k=16384, batch=1, dtype="bf16", out_dtype="bf16", layout="nn",
            alpha=1.0, beta=0.0, epilogue=None,
        ),
    }  # fmt: skip
    return Measurement(**{**facts, **other})


def test_recorded_results_become_choices(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    Results([recorded("y_first", 1e-3), recorded("naive", 9.0)]).save(one)
    Results([recorded("shared", 2e-3)]).save(two)
    folder = tmp_path / "choices"
    folder.mkdir()
    answer = call("results", str(one), str(two), "--choices", str(folder))
    assert (answer.code, answer.out) == (0, "")
    assert f"3 records in {folder / 'h200.jsonl'}" in answer.err
    assert "y_first" in call("results", str(one), str(two)).out
    monkeypatch.setenv("GEMM_LAB_RESULTS", str(folder))
    found = json.loads(call(*WORDS, "--json").out)["choice"]
    assert (found["variant"], found["alternatives"][0]["basis"]) == ("y_first", "recorded")
    empty = tmp_path / "none.jsonl"
    Results([recorded("naive", 1.0, verified=False)]).save(empty)
    assert call("results", str(empty), "--choices", str(folder)).code == 2


def test_results_say_how_choice_stands(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    ratio = Ratio(median=0.5, low=0.5, high=0.5)
    Results(
        [
            recorded("async_copy", 2.0, ratio_to_baseline=ratio, choice_rank=0),
            recorded("mma", 1.0, ratio_to_baseline=replace(ratio, median=1.0), choice_rank=1),
        ]
    ).save(file)
    said = call("results", str(file), "--standing").out
    assert "chosen / library  best tried / library" in said
    assert "0.500                 1.000" in said
    assert "1.000 mma" in said
    assert "nothing was timed" in call("results", str(file), "--standing", "--suite", "squares").out
    assert call("results", str(file), "--suite", "squares").code == 2
    assert call("results", str(file), "--standing", "--ladder").code == 2
    assert call("results", str(file), "--standing", "--suite", "sqares").code == 2
