"""A Measurement as text."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from report_samples import COMPILED, EMULATED, ON_GPU, WRONG

from gemm_lab.core.measurement import Measurement
from gemm_lab.report.plain import render_plain
from gemm_lab.report.run import MAX_COUNTERS, run_document
from gemm_lab.report.terminal import print_document


def plain(measured: Measurement, reason: str = "") -> str:
    return render_plain(run_document(measured, reason=reason))


def test_gpu_run_tells_everything() -> None:
    text = plain(ON_GPU, "found NVIDIA H200")
    assert text == (
        "kernel         shared BLOCK_SIZE=32 SWIZZLE=true\n"
        "problem        M x N x K = 4096 x 4096 x 4096, fp16 to fp32, layout nt, beta 0.5, "
        "epilogue relu(x)\n"
        "ran on         NVIDIA H200, GPU, sm_90 (found NVIDIA H200)\n"
        "verdict        RIGHT, relative RMSE 1.25e-07\n"
        "worst element  C[0, 3, 5] = 1.5, expected 1.25, allowed error 0.5\n"
        "tolerance      0.5 at most: K = 4096 sums in fp32\n"
        "time           median 12.50 ms (IQR 0.5000 ms, min 12.00 ms, 5 samples)\n"
        "rate           11.00 TFLOP/s\n"
        "cuBLAS         54.98 TFLOP/s, median 2.500 ms, compute type CUBLAS_COMPUTE_32F\n"
        "ratio          20.0% of cuBLAS's rate (95% interval 19.8% to 20.2%)\n"
        "resources      40 registers a thread, 8 KiB static shared memory, 1 KiB dynamic, "
        "no spills, occupancy 75.0%\n"
        "compiled       taken from the cache by NVRTC 12.9.86\n"
        "\n"
        "warning  the card throttled: power\n"
        "\n"
        "repeat with: gemm-lab run --variant shared --shape 4096x4096x4096 --backend gpu\n"
    )


def test_wrong_result_shows_nan() -> None:
    text = plain(WRONG)
    assert "WRONG" in text
    assert "RIGHT" not in text
    assert "C[0, 1, 2] = nan" in text


def test_emulator_claims_no_time() -> None:
    text = plain(EMULATED)
    assert "executes the PTX for sm_90; it has no kernel time" in text
    assert "TFLOP/s" not in text
    assert "median" not in text
    assert "fma                   1,234,567" in text
    assert "global: load sectors  10" in text


def test_counters_say_of_how_many_blocks() -> None:
    assert "\ncounters of one block; --counters: of all, by source line\n" in plain(EMULATED)
    whole = {"blocks": 4, "fma": 8, "lines": {"x.cu:1": {"fma": 8}}}
    assert "\ncounters\n" in plain(replace(EMULATED, counters=whole))
    text = plain(replace(EMULATED, counters={"launch_1": whole, "launch_2": whole}))
    assert "\nlaunch 1: counters\n" in text
    assert "\nlaunch 2: counters\n" in text
    assert text.count("x.cu:1") == 2


def test_many_counters_are_cut() -> None:
    many = replace(EMULATED, counters={f"c{i}": i + 1 for i in range(MAX_COUNTERS + 5)})
    assert "5 more in --json" in plain(many)


def test_compiled_only_has_no_verdict() -> None:
    text = plain(COMPILED, "no NVIDIA driver is loaded")
    assert "nothing was executed: compiled for sm_90 only (no NVIDIA driver is loaded)" in text
    assert "verdict" not in text
    assert "registers" in text


@pytest.mark.parametrize("measured", [ON_GPU, WRONG, EMULATED, COMPILED])
def test_plain_has_no_escape_bytes_and_no_trailing_space(measured: Measurement) -> None:
    text = plain(measured)
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("measured", [ON_GPU, WRONG, EMULATED, COMPILED])
def test_terminal_drawing_holds_the_same_words(measured: Measurement) -> None:
    page = io.StringIO()
    print_document(run_document(measured), page)
    for word in ("shared", "sm_90", "registers", "repeat with"):
        assert word in page.getvalue()


def test_markup_in_a_text_is_not_markup() -> None:
    page = io.StringIO()
    print_document(run_document(replace(ON_GPU, variant="[red]x[/red]", warnings=("[/b]",))), page)
    assert "[red]x[/red]" in page.getvalue()
    assert "[/b]" in page.getvalue()


def test_unverified_says_so() -> None:
    assert "verdict        not verified" in plain(
        replace(ON_GPU, verified=None, relative_rmse=None)
    )


def test_spills_are_told() -> None:
    assert ON_GPU.resources is not None
    spilled = replace(ON_GPU, resources=replace(ON_GPU.resources, spill_store_bytes=8))
    assert "spills 8 bytes stored, 0 loaded a thread" in plain(spilled)
