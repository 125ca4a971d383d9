"""sweep, bench, compare and results on the emulator, and on recorded files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemm_lab.core.measurement import Baseline, MeasuredProblem, Measurement
from gemm_lab.core.statistics import paired_ratio
from gemm_lab.lab.results import Results

Call = Callable[..., Any]
SMALL = ("--square", "16", "--backend", "emulator")


def recorded(path: Path, *kernel_ms: float, variant: str = "naive", m: int = 4096) -> Path:
    """A file with one measurement a time, on rising sizes."""
    found = []
    for i, ms in enumerate(kernel_ms):
        samples = tuple(ms * (1 + 0.001 * (j % 5)) for j in range(20))
        library = tuple(1 + 0.001 * (j % 3) for j in range(20))
        found.append(
            Measurement(
                command="c", variant=variant, source_sha256="0", config={}, verified=True,
                problem=MeasuredProblem(m=m + i, n=m, k=m, batch=1, dtype="fp32", out_dtype="fp32",
                                        layout="nn", alpha=1.0, beta=0.0, epilogue=None),
                backend="gpu", device="Card", arch="sm_80", samples_ms=samples, median_ms=ms,
                tflops=1.0, ratio_to_baseline=paired_ratio(library, samples),
                baseline=Baseline(name="BLAS", compute_type="F32", samples_ms=library,
                                  median_ms=1.0, tflops=2.0),
            )
        )  # fmt: skip
    Results(found).save(path)
    return path


def test_sweep(call: Call, tmp_path: Path) -> None:
    output = tmp_path / "sweep.jsonl"
    words = ("sweep", "shared", "-p", "BLOCK_SIZE=8,16,64", *SMALL, "-o", str(output))
    found = call(*words)
    assert found.code == 0
    assert "BLOCK_SIZE=8" in found.out
    assert "1 candidate pruned before compiling" in found.out
    assert "must not pass the limit of threads" in found.out
    assert "\x1b" not in found.out
    assert "measuring: 2/2" in found.err
    again = call(*words)
    assert f"2 of 2 were in {output} already" in again.out
    assert len(output.read_text().splitlines()) == 2
    assert "2/2" in call(*words, "--no-resume").err


def test_sweep_over_what_the_file_lists_and_ranges(call: Call) -> None:
    found = call("sweep", "shared", "-p", "BLOCK_SIZE", *SMALL, "--json")
    data = json.loads(found.out, parse_constant=pytest.fail)
    assert [m["config"]["BLOCK_SIZE"] for m in data["measurements"]] == [8, 16, 32]
    assert data["pruned"] == []
    rows = csv.DictReader(
        io.StringIO(call("sweep", "shared", "-p", "BLOCK_SIZE=8:16:4", *SMALL, "--csv").out)
    )
    assert [r["BLOCK_SIZE"] for r in rows] == ["8", "12", "16"]
    assert (
        "| BLOCK_SIZE=8 |" in call("sweep", "shared", "-p", "BLOCK_SIZE=8,16", *SMALL, "--md").out
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sweep", "shared", "-p", "BLOCK_SIZE=64"), "no candidate is left of 1"),
        (("sweep", "shared", "-p", "BM=64"), "has no tunable BM"),
        (("sweep", "shared", "-p", "BLOCK_SIZE", "-p", "BLOCK_SIZE=8"), "with and without values"),
        (("sweep",), "which variant?"),
        (("sweep", "shared", "--json", "--csv"), "several formats: --json, --csv"),
        (("bench", "--suite", "lader"), "did you mean ladder?"),
        (("bench", "--layout", "xx"), "unknown layout 'xx'"),
        (("bench", "--dtype", "fp31"), "unknown dtype 'fp31'"),
        (("bench", "naive", "-p", "STAGES=2"), "no variant here has a tunable STAGES"),
        (("results", "no.jsonl"), "cannot be read"),
        (("compare", "a.jsonl", "shared"), "a file and a kernel"),
        (("compare", "a.jsonl", "b.jsonl"), "cannot be read"),
        (("sweep", "shared", "-o", "/"), "cannot be written"),
    ],
)
def test_mistakes_are_told_in_one_line(call: Call, words: tuple[str, ...], message: str) -> None:
    small = () if words[0] in ("compare", "results") else SMALL
    found = call(*words, *small)
    assert found.code == 2
    assert message in found.err
    assert "Traceback" not in found.err
    assert found.out == ""


def test_bench_ends_with_the_ladder(call: Call, tmp_path: Path) -> None:
    output = tmp_path / "bench.jsonl"
    found = call("bench", "naive", "y_first", *SMALL, "-o", str(output))
    assert found.code == 0
    lines = [line.split()[:2] for line in found.out.splitlines()]
    assert ["naive", "right"] in lines
    assert ["y_first", "right"] in lines
    shown = call("results", str(output), "--ladder", "--md").out
    assert "| naive | right |" in shown
    listed = call("results", str(output), "--json")
    assert len(json.loads(listed.out)["measurements"]) == 2


def test_bench_of_layouts_and_dtypes(call: Call) -> None:
    found = call("bench", "shared", "--dtype", "fp32,int8", "--layout", "nn,tt", *SMALL, "--json")
    data = json.loads(found.out)["measurements"]
    assert {(m["problem"]["dtype"], m["problem"]["layout"]) for m in data} == {
        ("fp32", "nn"), ("fp32", "tt"), ("int8", "nn"), ("int8", "tt"),
    }  # fmt: skip
    assert all(m["verified"] for m in data)


def test_a_wrong_kernel_ends_with_3(call: Call, mine: Path) -> None:
    text = mine.read_text().replace("acc += A[", "acc += 2 * A[")
    mine.write_text(text)
    for command in ("sweep", "bench"):
        found = call(command, str(mine), *SMALL)
        assert found.code == 3
        assert "WRONG" in found.out
        assert "allowed error" in found.out


def test_a_kernel_that_does_not_compile_ends_with_6(call: Call, mine: Path) -> None:
    mine.write_text(mine.read_text().replace("acc_t acc = 0;", "acc_t acc = oops;"))
    found = call("bench", str(mine), *SMALL)
    assert found.code == 6
    assert "failed" in found.out


def test_compare_files(call: Call, tmp_path: Path) -> None:
    a = recorded(tmp_path / "a.jsonl", 2.0, 2.0)
    b = recorded(tmp_path / "b.jsonl", 2.0, 2.1)
    found = call("compare", str(a), str(b))
    assert found.code == 0
    assert "1 same, 1 slower" in found.out
    failed = call("compare", str(a), str(b), "--fail-on", "slower")
    assert failed.code == 7
    assert "1 regression: naive on 4097x4096x4096 is slower" in failed.err
    assert call("compare", str(a), str(a), "--fail-on", "unclear").code == 0
    assert call("compare", str(b), str(a), "--fail-on", "slower").code == 0
    assert call("compare", str(a), str(b), "--margin", "10", "--fail-on", "slower").code == 0
    data = json.loads(call("compare", str(a), str(b), "--json").out, parse_constant=pytest.fail)
    assert [p["verdict"] for p in data["comparisons"]["pairs"]] == ["same", "slower"]
    assert "| slower |" in call("compare", str(a), str(b), "--md").out


def test_compare_different_kernels_by_problem(call: Call, tmp_path: Path) -> None:
    a = recorded(tmp_path / "a.jsonl", 2.0)
    b = recorded(tmp_path / "b.jsonl", 1.0, variant="shared")
    found = call("compare", str(a), str(b))
    assert "naive -> shared" in found.out
    assert "faster" in found.out
    assert call("compare", str(a), str(b), "--by", "kernel").code == 2


def test_results_of_a_damaged_file(call: Call, tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.jsonl", 2.0)
    path.write_text(path.read_text() + "garbage\n")
    found = call("results", str(path))
    assert found.code == 0
    assert ":2 is no JSON and is passed over" in found.err
    assert "naive" in found.out
