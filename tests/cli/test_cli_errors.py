"""Hostile and mistaken input: one line, a hint, DESIGN's exit code, never a trace."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_helpers import Call

from gemm_lab.cli import failures
from gemm_lab.core.measurement import Measurement
from gemm_lab.errors import LaunchError, NoGpuError, RegressionError, WrongResultError
from gemm_lab.lab import api

NONE = ("--backend", "none")

HOSTILE: list[tuple[tuple[str, ...], int, str]] = [
    (("frobnicate",), 2, "no such command"),
    (("rnu",), 2, "no such command"),
    (("run", "sharde", *NONE), 2, "did you mean shared?"),
    (("run", "zzz", *NONE), 2, "known: "),
    (("run", "", *NONE), 2, "unknown variant"),
    (("run", "./none.cu.j2", *NONE), 2, "none.cu.j2"),
    (("run", "/etc/passwd", *NONE), 2, "no variant file"),
    (("run", "../../../etc", *NONE), 2, "no variant file"),
    (("run", "shared", "--variant", "naive", *NONE), 2, "two variants"),
    (("run", "shared", "-p", "BLOCK_SIZE=abc", *NONE), 2, "BLOCK_SIZE is a whole number"),
    (("run", "shared", "-p", "BLOCK_SIZE=0", *NONE), 2, "BLOCK_SIZE = 0"),
    (("run", "shared", "-p", "BLOCK_SIZE=-4", *NONE), 2, "BLOCK_SIZE = -4"),
    (("run", "shared", "-p", "BLOCK_SIZE=1e3", *NONE), 2, "BLOCK_SIZE = 1e3"),
    (("run", "shared", "-p", "BLOCK_SIZE=" + "9" * 5000, *NONE), 2, "BLOCK_SIZE is a whole"),
    (("run", "shared", "-p", "BLOCK_SIZE", *NONE), 2, "no NAME=VALUE"),
    (("run", "shared", "-p", "BLOCK_SIZE=16,32", *NONE), 2, "several values"),
    (("run", "shared", "-p", "NOPE=1", *NONE), 2, "tunables of shared: BLOCK_SIZE"),
    (("run", "shared", "-p", "BLOCK_SIZE=8", "-p", "BLOCK_SIZE=9", *NONE), 2, "given twice"),
    (("run", "shared", "-p", "BLOCK_SIZE=64", *NONE), 2, "nearest that fit"),
    (("run", "shared", "--square", "-5", *NONE), 2, "out of range"),
    (("run", "shared", "--square", "99999999999", *NONE), 2, ""),
    (("run", "shared", "--square", "1000000", "--backend", "emulator"), 2, "GiB of memory"),
    (("run", "shared", "--shape", "300000000x1x4", "--backend", "emulator"), 6, "has 4.0 GiB free"),
    (("run", "shared", "--shape", "2000000000x2000000000x1", *NONE), 6, "a grid of"),
    (("run", "shared", "--square", "x", *NONE), 2, "--square"),
    (("run", "shared", "--shape", "1x2", *NONE), 2, "MxNxK"),
    (("run", "shared", "--shape", "1x2x3", "--shape", "4x5x6", *NONE), 2, "2 shapes"),
    (("run", "shared", "-m", "4", *NONE), 2, "-n, -k are missing"),
    (("run", "shared", "--batch", "-1", "--square", "4", *NONE), 2, "batch = -1"),
    (("run", "shared", "--dtype", "fp64", *NONE), 2, "unknown dtype"),
    (("run", "shared", "--out-dtype", "fp8", *NONE), 2, "cannot write fp8"),
    (("run", "shared", "--layout", "xx", *NONE), 2, "--layout"),
    (("run", "shared", "--arch", "sm_9999", *NONE), 2, "sm_9999"),
    (("run", "shared", "--arch", "sm_30", *NONE), 2, "sm_30"),
    (("run", "shared", "--arch", "--help; rm -rf /", *NONE), 2, "is no architecture"),
    (("run", "shared", "--alpha", "nan", *NONE), 2, "not finite"),
    (("run", "shared", "--beta", "inf", *NONE), 2, "not finite"),
    (("run", "shared", "--alpha", "one", *NONE), 2, "--alpha"),
    (("run", "shared", "--epilogue", "__import__('os')", *NONE), 2, ""),
    (("run", "shared", "--epilogue", "x +", *NONE), 2, ""),
    (("run", "shared", "--smem-pad", "-1", *NONE), 2, "--smem-pad"),
    (("run", "shared", "--smem-pad", "99999999", *NONE), 6, ""),
    (("run", "shared", "--backend", "tpu"), 2, "--backend"),
    (("run", "shared", "--seed", "-1", *NONE), 2, "--seed"),
    (("run", "--frobnicate"), 2, "no such option"),
    (("list", "--templates", "/proc/nonexistent"), 2, "no folder"),
    (("show",), 2, "which variant?"),
    (("show", "shared", "--ptx", "--sass"), 2, "--ptx and --sass"),
    (("model", "--gpu", "rtx_9090"), 2, "unknown GPU"),
    (("model", "--gpu", "t4", "--dtype", "bf16"), 2, "bf16"),
    (("model", "--gpu", "t4", "--square", "0"), 2, "no work"),
    (("cache", "prune"), 2, "prune what?"),
    (("cache", "prune", "--older-than", "soon"), 2, "no age"),
]


@pytest.mark.parametrize(
    ("words", "code", "said"), HOSTILE, ids=[" ".join(w)[:60] for w, _, _ in HOSTILE]
)
def test_hostile_input(words: tuple[str, ...], code: int, said: str, call: Call) -> None:
    answer = call(*words)
    assert answer.code == code, answer.err
    assert said in answer.err
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert lines[0].startswith("error: ")
    assert not lines[0].startswith("error: internal")
    assert [line.partition(":")[0] for line in lines[1:]] in ([], ["hint"])
    assert "Traceback" not in answer.err
    assert "\x1b" not in answer.err


def test_compile_error_shows_the_source(call: Call, mine: Path) -> None:
    mine.write_text(mine.read_text().replace("acc_t acc = 0;", "acc_t acc = nothing;"))
    answer = call("run", str(mine), "--backend", "none", "--square", "8")
    assert answer.code == 5
    assert answer.err.startswith("error: ")
    assert '"nothing" is undefined' in answer.err
    marked = [line for line in answer.err.splitlines() if line.startswith(">")]
    assert len(marked) == 1
    assert "acc_t acc = nothing;" in marked[0]
    assert "`gemm-lab show` prints" in answer.err


@pytest.mark.parametrize("words", [(), ("cache",), ("experiment",)])
def test_no_command_at_all_shows_the_help(call: Call, words: tuple[str, ...]) -> None:
    answer = call(*words)
    assert answer.code == 2
    assert answer.err.startswith(" ".join(["Usage: gemm-lab", *words]))
    assert "\nCommands:\n" in answer.err


@pytest.mark.parametrize(
    ("error", "code", "first"),
    [
        (LaunchError("the launch broke off", hint="look"), 6, "error: the launch broke off"),
        (RegressionError("slower"), 7, "error: slower"),
        (WrongResultError("wrong"), 3, "error: wrong"),
        (MemoryError("8 TiB"), 6, "error: not enough memory: 8 TiB"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("by\nzero"), 1, "error: internal: ZeroDivisionError: by zero"),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, first: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(api, "run", fail)
    answer = call("run", "shared")
    assert answer.code == code
    assert answer.err.splitlines()[0] == first
    assert "Traceback" not in answer.err


def test_debug_shows_the_trace(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(api, "run", fail)
    for words in (("run", "shared", "--debug"), ("--debug", "run", "shared")):
        answer = call(*words)
        assert answer.code == 1
        assert "Traceback" in answer.err
        assert answer.err.splitlines()[-1] == "error: internal: ZeroDivisionError: planted"
    assert "Traceback" not in call("run", "shared").err


def test_wrong_result_is_shown_and_exits_3(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    honest = api.run("naive", backend="none", shape=8)
    wrong: Measurement = replace(honest, verified=False, relative_rmse=0.5)
    monkeypatch.setattr(api, "run", lambda **_: wrong)
    answer = call("run", "naive", "--backend", "none")
    assert answer.code == 3
    answer = call("run", "naive", "--backend", "none", "--json")
    assert answer.code == 3
    assert '"verified": false' in answer.out


def test_no_gpu_compiles_and_exits_4(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    real = api.run

    def without(**keywords: object) -> Measurement:
        if keywords["backend"] == "gpu":
            raise NoGpuError("no NVIDIA driver is loaded", hint="install the NVIDIA driver")
        return real(**keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(api, "run", without)
    answer = call("run", "shared", "--backend", "gpu", "--square", "64")
    assert answer.code == 4
    assert "nothing was executed: compiled for sm_80 only" in answer.out
    assert "registers a thread" in answer.out
    assert answer.out.rstrip().endswith("--backend gpu")
    assert "error: nothing was executed: no NVIDIA driver is loaded" in answer.err
    assert "hint: install the NVIDIA driver" in answer.err
    answer = call("run", "shared", "--backend", "gpu", "--square", "64", "--json")
    assert answer.code == 4
    assert answer.out.startswith("{")


def test_broken_pipe_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.report_failure(BrokenPipeError()) == failures.BROKEN_PIPE
    assert capsys.readouterr().err == ""


def test_nvdisasm_that_is_missing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    answer = call("show", "naive", "--sass")
    assert answer.code == 2
    assert "nvdisasm is not on PATH" in answer.err


def test_sass(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def disassemble(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[-1].endswith(".cubin")
        return subprocess.CompletedProcess(command, 0, "FFMA R0, R1, R2, R3 ;\n", "")

    monkeypatch.setattr("shutil.which", lambda _: "/bin/nvdisasm")
    monkeypatch.setattr("subprocess.run", disassemble)
    assert call("show", "naive", "--sass").out == "FFMA R0, R1, R2, R3 ;\n"
