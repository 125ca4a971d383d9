"""gemm-lab emulate and check, and run on the emulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
SHAPE = ("--arg", "M:i32=100", "--arg", "N:i32=77", "--arg", "K:i32=50")
ARRAYS = ("--arg", "A:fp32[100,50]=uniform:0", "--arg", "B:fp32[50,77]=uniform:1",
          "--arg", "C:fp32[100,77]=nan")  # fmt: skip
TUTORIAL = (
    "emulate", str(KERNELS / "tutorial.cu"), "--entry", "sgemm_shared<32>",
    "--block", "32,32", *SHAPE, *ARRAYS,
)  # fmt: skip


def test_a_tutorials_file(call: Any, tmp_path: Path) -> None:
    dump = tmp_path / "out.npz"
    more = ("--expect", "C=A@B", "--dump", str(dump), "--counters")
    answer = call(*TUTORIAL, "--grid", "3,4", *more)
    assert answer.code == 0, answer.err
    assert "RIGHT" in answer.out
    assert "none found" in answer.out
    assert "global load sectors" in answer.out
    assert "tutorial.cu:64" in answer.out
    with np.load(dump) as found:
        np.testing.assert_allclose(found["C"], found["A"] @ found["B"], rtol=1e-4, atol=1e-5)


def test_json_alone(call: Any) -> None:
    answer = call(*TUTORIAL, "--grid", "3x4", "--expect", "C=A@B", "--json")
    data = json.loads(answer.out)
    assert data["ok"] is True
    assert data["expectations"][0]["wrong_count"] == 0
    assert data["arrays"]["C"] == {"dtype": "float32", "shape": [100, 77]}


def test_exit_codes(call: Any, tmp_path: Path) -> None:
    wrong = call(*TUTORIAL, "--grid", "2,4", "--expect", "C=A@B")
    assert wrong.code == 3
    assert "WRONG in 1,300 of 7,700 elements" in wrong.out
    defects = ("emulate", str(KERNELS / "defects.cu"), "--grid", "3,4", "--block", "32,32")
    race = call(*defects, "--entry", "unfenced_shared", *SHAPE, *ARRAYS, "--expect", "C=A@B")
    assert race.code == 3
    assert "RIGHT" in race.out
    assert "race (" in race.out
    fault = call(*defects, "--entry", "guarded_shared", *SHAPE, *ARRAYS)
    assert fault.code == 6
    assert "uninitialised" in fault.err
    assert "defects.cu:22" in fault.err
    broken = tmp_path / "broken.cu"
    broken.write_text("__global__ void k(int* p) { *p = nothing; }\n")
    refused = call("emulate", str(broken), "--arg", "p:i32[1]=zeros")
    assert refused.code == 5
    assert "nothing" in refused.err


@pytest.mark.parametrize(
    "change",
    [
        ("--grid", "a"),
        ("--grid", "1,2,3,4"),
        ("--expect", "C"),
        ("--expect", "D=A"),
        ("--arg", "X"),
        ("--arg", "X:i32=1"),
        ("--max-instructions", "0"),
        ("--arch", "sm_1"),
        ("--dump", "/nowhere/at/all.npz"),
    ],
)
def test_usage(call: Any, change: tuple[str, str]) -> None:
    answer = call(*TUTORIAL, *change)
    assert answer.code == 2
    assert "Traceback" not in answer.err


def test_check(call: Any, tmp_path: Path) -> None:
    good = call("check", "--variant", "shared", "-p", "BLOCK_SIZE=16", "--shape", "17x19x40")
    assert good.code == 0, good.err
    assert "nothing found" in good.out
    shown = call("show", "shared").out
    assert "__syncthreads" in shown
    from gemm_lab.variants import Catalogue

    text = Catalogue().get("shared").path.read_text()
    path = tmp_path / "mine.cu.j2"
    path.write_text(text.replace("__syncthreads();", ";", 1))
    bad = call("check", str(path), "-p", "BLOCK_SIZE=16", "--shape", "17x19x40", "--json")
    data = json.loads(bad.out)
    assert bad.code in (3, 6)
    assert data["ok"] is False
    assert any("mine.cu:" in finding["text"] for finding in data["findings"])


def test_run_on_the_emulator(call: Any) -> None:
    answer = call("run", "--variant", "shared", "--square", "64", "--backend", "emulator",
                 "--counters", "--json")  # fmt: skip
    data = json.loads(answer.out)
    assert answer.code == 0
    assert (data["verified"], data["backend"], data["median_ms"]) == (True, "emulator", None)
    assert data["counters"]["fma"] >= 64**3
    assert data["counters"]["blocks"] == 4
    assert data["resources"]["registers_per_thread"] > 0


def test_a_dump_goes_where_it_is_told(call: Any, tmp_path: Path) -> None:
    folder = tmp_path / "arrays"
    folder.mkdir()
    short = ("emulate", str(KERNELS / "tutorial.cu"), "--entry", "sgemm_shared<16>",
             "--block", "16,16", "--arg", "M:i32=8", "--arg", "N:i32=8", "--arg", "K:i32=8",
             "--arg", "A:fp32[8,8]=ones", "--arg", "B:fp32[8,8]=ones",
             "--arg", "C:fp32[8,8]=nan")  # fmt: skip
    answer = call(*short, "--dump", str(folder))
    assert answer.code == 2
    assert "is a folder" in answer.err
    assert [x.name for x in tmp_path.iterdir()] == ["arrays"]
    assert call(*short, "--dump", str(folder / "plain")).code == 0
    assert [x.name for x in folder.iterdir()] == ["plain"]
    answer = call(*short, "--dump", str(folder / "plain" / "x"))
    assert (answer.code, "cannot be written" in answer.err) == (2, True)
