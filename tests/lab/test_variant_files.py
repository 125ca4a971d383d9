"""Files as variants: one name in two folders, and a file that is written again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import gemm_lab
from gemm_lab.core.dtypes import dtype
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.jit import Cache
from gemm_lab.lab import api
from gemm_lab.lab.candidates import Candidate, Planner, Target
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants.paths import template_root

ONES = np.ones((4, 4), np.float32)


def write(folder: Path, factor: int) -> Path:
    """`naive` with a wrong factor, under its own name."""
    text = (template_root() / "naive.cu.j2").read_text(encoding="utf-8")
    path = folder / "naive.cu.j2"
    assert text.count("alpha, acc") == 1
    path.write_text(text.replace("alpha, acc", f"alpha, {factor} * acc"), encoding="utf-8")
    return path


def product(variant: str | Path, bench: Workbench) -> float:
    made = gemm_lab.matmul(ONES, ONES, variant=variant, backend="emulator", workbench=bench)
    return float(made[0, 0])


def test_a_file_of_a_known_name_is_another_kernel(tmp_path: Path) -> None:
    bench, file = Workbench(), write(tmp_path, 3)
    assert [product("naive", bench), product(file, bench)] == [4, 12]
    assert product("naive", bench) == 4


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    bench, file = Workbench(), write(tmp_path, 3)
    assert bench.variant(file) is bench.variant(str(file))
    assert product(file, bench) == 12
    before = file.stat().st_mtime_ns
    write(tmp_path, 5)
    os.utime(file, ns=(before + 10**9, before + 10**9))  # where a clock of the disk is coarse
    assert product(file, bench) == 20


def test_two_files_of_one_name_in_a_plan(tmp_path: Path) -> None:
    bench, file = Workbench(), write(tmp_path, 3)
    fp32 = dtype("fp32")
    problem = GemmProblem(shape=Shape(m=4, n=4, k=4), dtype=fp32, out=fp32.default_out)
    target = Target(backend="emulator", device="emulated sm_80", arch="sm_80", sm_count=4)
    planner = Planner(target=target)
    keys = set()
    for variant in (bench.variant("naive"), bench.variant(file)):
        made = planner.candidate(Request.of(variant, "fp32", {}), problem)
        assert isinstance(made, Candidate)
        keys.add(made.rendered.source)
    assert len(keys) == 2


def test_a_file_that_went_away_is_told(tmp_path: Path) -> None:
    bench, file = Workbench(), write(tmp_path, 3)
    bench.variant(file)
    file.unlink()
    with pytest.raises(gemm_lab.VariantError, match="cannot be read"):
        bench.variant(file)


def test_a_cache_that_was_cleared_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Workbench(cache=Cache(tmp_path))
    monkeypatch.setattr(api, "default_workbench", lambda: bench)
    made = gemm_lab.kernel("naive", arch="sm_80", workbench=bench)
    before = made.cubin
    for found in (made, gemm_lab.kernel("naive", arch="sm_80", workbench=bench)):
        shutil.rmtree(found.compiled.cubin_path.parent)
        assert found.cubin == before
