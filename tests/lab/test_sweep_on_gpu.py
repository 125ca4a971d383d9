"""Faults on a real card: an illegal access and a hang cost no other candidate; modules go away."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemm_lab.lab.bench import bench
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.sweep import sweep
from gemm_lab.lab.versus import parse_contender, versus
from gemm_lab.lab.workbench import Workbench

pytestmark = pytest.mark.gpu
QUICK = RunSettings(min_rounds=5, max_rounds=10, max_seconds=1.0)
FAULTY = """/*---
title = "Faults on demand"
idea  = "For the tests of the harness."
[dtype.fp32]
[tunables.MODE]
default = "right"
choices = ["right", "wrong", "illegal", "trap", "hang"]
doc = "what it does"
[tunables.SALT]
default = 1
doc = "makes another kernel of it"
[launch]
grid = ["ceil_div(N, 16)", "ceil_div(M, 16)", 1]
block = [16, 16, 1]
---*/
//% include "lib/index.cuh.j2"
//% include "lib/epilogue.cuh.j2"
extern "C" __global__ void ${entry}(${params}) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    //% if MODE == "illegal"
    C[(1ll << 42) + row] = 0;
    //% elif MODE == "trap"
    asm volatile("trap;");
    //% elif MODE == "hang"
    const long long begin = clock64();
    while (clock64() - begin >= 0) {}
    //% endif
    if (row >= M || col >= N) return;
    acc_t acc = ${"1" if MODE == "wrong" else "0"};
    for (int k = 0; k < K; ++k) acc += A[a_index(row, k, lda)] * B[b_index(k, col, ldb)];
    store_c(C, ldc, row, col, alpha, acc + SALT * 0, beta, nullptr);
}
"""


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    path = tmp_path / "faulty.cu.j2"
    path.write_text(FAULTY)
    return str(path)


def test_a_fault_costs_no_other_candidate(faulty: str, tmp_path: Path) -> None:
    modes = ["right", "illegal", "wrong", "trap", "hang", "right"]
    found = sweep(
        faulty, shape=(129, 65, 33), settings=QUICK, backend="gpu", timeout_s=20.0,
        output=tmp_path / "sweep.jsonl", MODE=modes, SALT=[1, 2],
    )  # fmt: skip
    states = {m.config["MODE"]: (m.verified, m.error) for m in found}
    assert states["right"] == (True, None)
    assert states["wrong"] == (False, None)
    for mode in ("illegal", "trap", "hang"):
        assert states[mode][1], mode
    assert "hung while trying" in (states["hang"][1] or "")
    assert len(found.right) == 2
    assert all(m.samples_ms for m in found.right)


def test_a_group_loses_only_the_faulty_one(faulty: str) -> None:
    found = bench(
        [faulty, "naive"], shape=(65, 65, 65), settings=QUICK, backend="gpu", timeout_s=20.0,
        tunables={"MODE": ["right", "illegal"]},
    )  # fmt: skip
    assert [m.error is None for m in found] == [True, False, True]
    assert found[0].group == found[2].group is not None


def test_modules_and_memory_do_not_pile_up(faulty: str) -> None:
    from gemm_lab.gpu._cuda import cuda
    from gemm_lab.lab.candidates import Planner, expand
    from gemm_lab.lab.prepare import Request
    from gemm_lab.lab.runner import LocalRunner
    from gemm_lab.lab.station import gpu_station

    station = gpu_station(device=None, cache_directory=None)
    runner = LocalRunner(station)
    variant = station.bench.variant(faulty)
    planner = Planner(target=runner.target)
    only_right = RunSettings(time=False)
    free: list[int] = []
    for config in expand(variant, "fp32", {"SALT": list(range(1, 61))}):
        made = planner.candidate(Request(variant=variant, config=config), _problem())
        runner.run([made], only_right, lambda _what: None)  # type: ignore[list-item]
        free.append(int(cuda().runtime.memGetInfo()[0]))
    assert free[10] - free[-1] < 2**22


def test_a_kernel_is_the_same_as_itself() -> None:
    said = versus(
        parse_contender("shared"), parse_contender("shared"), shape=[1024], backend="gpu",
        workbench=Workbench(),
    )  # fmt: skip
    assert [p.verdict for p in said.comparisons.pairs] == ["same"]
    assert said.comparisons.pairs[0].basis == "rounds"


def _problem() -> object:
    from gemm_lab.core.dtypes import dtype
    from gemm_lab.core.problem import GemmProblem, Shape

    fp32 = dtype("fp32")
    return GemmProblem(shape=Shape(m=33, n=33, k=33), dtype=fp32, out=fp32.out(None))
