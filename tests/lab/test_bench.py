"""Bench on a card that is not there: shared rounds, resuming after a kill, Ctrl-C, suites."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import bench_stub
import pytest
from fakes import STUB, fake_plan

from gemm_lab.core.statistics import paired_ratio
from gemm_lab.errors import UsageError
from gemm_lab.jit import Cache
from gemm_lab.lab.bench import bench
from gemm_lab.lab.candidates import Recipe
from gemm_lab.lab.describe import measured_problem
from gemm_lab.lab.journal import read_journal
from gemm_lab.lab.keys import measurement_key
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.progress import Quiet
from gemm_lab.lab.results import Results
from gemm_lab.lab.suite import load_suite, suite_names
from gemm_lab.lab.workbench import Workbench
from gemm_lab.lab.worker import Lost, Note, Ready, Task, WorkerProcess

QUICK = RunSettings(min_rounds=5, max_rounds=10)


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def run(cache_directory: Path, **wanted: object) -> Results:
    settings = {
        "shape": (24, 20, 28), "settings": QUICK, "progress": False, "isolate": False,
        "tunables": {"SPEED": [100, 50]},
    }  # fmt: skip
    return bench(
        [str(STUB)],
        workbench=Workbench(cache=Cache(cache_directory)),
        station=fake_plan(cache_directory),
        **{**settings, **wanted},  # type: ignore[arg-type]
    )


def test_all_kernels_of_a_problem_share_their_rounds(cache_directory: Path) -> None:
    slow, fast = run(cache_directory)
    assert slow.group == fast.group is not None
    assert slow.baseline == fast.baseline
    assert len(slow.samples_ms) == len(fast.samples_ms)
    ratio = paired_ratio(slow.samples_ms, fast.samples_ms)
    assert ratio is not None
    assert ratio.median == pytest.approx(2, rel=0.03)
    assert all(m.verified for m in (slow, fast))


def test_more_than_fit_are_split(cache_directory: Path) -> None:
    found = run(cache_directory, tunables={"SPEED": [50, 60, 70, 80, 90]}, interleave=2)
    assert [len({m.group for m in found[i : i + 2]}) for i in (0, 2)] == [1, 1]
    assert len({m.group for m in found}) == 3
    assert all(m.baseline for m in found)


def test_a_faulty_kernel_costs_the_others_nothing(cache_directory: Path) -> None:
    modes = ["right", "illegal", "die_timed", "wrong"]
    found = run(cache_directory, tunables={"MODE": modes}, isolate=True, timeout_s=20.0)
    states = {m.config["MODE"]: (m.verified, m.error is None) for m in found}
    assert states == {
        "right": (True, True), "illegal": (None, False), "die_timed": (None, False),
        "wrong": (False, True),
    }  # fmt: skip


def test_layouts_dtypes_and_shapes_multiply(cache_directory: Path) -> None:
    found = run(cache_directory, shape=[16, 24], layouts=["nn", "nt", "tn", "tt"], tunables={})
    assert len(found) == 8
    assert all(m.verified for m in found)
    with pytest.raises(UsageError, match="does not do tf32"):
        run(cache_directory, dtypes=["tf32"])
    with pytest.raises(UsageError, match="no variant here has a tunable BM"):
        run(cache_directory, tunables={"BM": [1]})
    with pytest.raises(UsageError, match="unknown suite 'laddr'"):
        run(cache_directory, suite="laddr")
    with pytest.raises(UsageError, match="unknown dtype"):
        run(cache_directory, dtypes=["fp31"])
    with pytest.raises(UsageError, match="unknown layout"):
        run(cache_directory, layouts=["xx"])


def test_killed_at_ten_random_moments(tmp_path: Path, cache_directory: Path) -> None:
    """SIGKILL: what was shown as done is in the file, and the next run goes on from there."""
    output = tmp_path / "bench.jsonl"
    chance = random.Random(20)
    kept = 0
    for _ in range(10):
        child = _start(cache_directory, output)
        assert child.stdout is not None
        wait_for = chance.randrange(1, 5)
        shown = 0
        for line in child.stdout:
            if line.startswith("done"):
                shown = int(line.split()[1])
            if shown >= wait_for or line.startswith("end"):
                break
        time.sleep(chance.random() * 0.05)
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            if line.startswith("done"):
                shown = int(line.split()[1])
        child.wait()
        child.stdout.close()
        found = read_journal(output)
        assert len(found.measurements) >= kept + shown
        kept = len(found.measurements)
        # Only a write in mid-air may be torn.
        assert len(found.damaged) <= 1
    child = _start(cache_directory, output)
    text, _ = child.communicate(timeout=120)
    end = text.strip().splitlines()[-1].split()
    assert end[:2] == ["end", str(bench_stub.TOTAL)]
    assert int(end[2]) > 0
    whole = Results.load(output)
    assert whole.damaged == ()
    assert len(whole.latest()) == bench_stub.TOTAL
    assert len({measurement_key(m) for m in whole}) == bench_stub.TOTAL
    assert all(m.verified for m in whole)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path, cache_directory: Path) -> None:
    class Impatient(Quiet):
        steps = 0

        def note(self, text: str) -> None:
            if text == "timing":
                self.steps += 1
                if self.steps == 2:
                    raise KeyboardInterrupt

    output = tmp_path / "bench.jsonl"
    found = run(
        cache_directory, shape=[16, 24, 40], output=output, progress=Impatient(), isolate=True
    )
    assert found.interrupted
    assert len(found) == 2
    assert list(Results.load(output)) == list(found)
    again = run(cache_directory, shape=[16, 24, 40], output=output)
    assert (again.resumed, len(again), again.interrupted) == (2, 6, False)


def test_a_real_ctrl_c_ends_the_bench_and_its_worker(tmp_path: Path, cache_directory: Path) -> None:
    output = tmp_path / "bench.jsonl"
    child = _start(cache_directory, output)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("done 4"):
            break
    child.send_signal(signal.SIGINT)
    text, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert "interrupted" in text
    assert len(read_journal(output).measurements) >= 4


def test_a_partly_kept_group_is_measured_whole(tmp_path: Path, cache_directory: Path) -> None:
    output = tmp_path / "bench.jsonl"
    run(cache_directory, output=output)
    first = output.read_bytes().splitlines(keepends=True)[0]
    output.write_bytes(first)
    found = run(cache_directory, output=output)
    assert found.resumed == 0
    assert found[0].group == found[1].group
    assert len(Results.load(output)) == 3
    assert list(Results.load(output).latest()) == list(found)


def test_a_worker_leaves_when_its_parent_is_gone(cache_directory: Path) -> None:
    worker = WorkerProcess(fake_plan(cache_directory))
    assert isinstance(worker.receive(60), Ready)
    from gemm_lab.core.dtypes import dtype
    from gemm_lab.core.problem import GemmProblem, Shape

    fp32 = dtype("fp32")
    problem = GemmProblem(shape=Shape(m=8, n=8, k=8), dtype=fp32, out=fp32.out(None))
    recipe = Recipe(
        variant=str(STUB),
        config={"SIZE": 8, "SPEED": 100, "MODE": "hang"},
        problem=measured_problem(problem),
        bias=False,
        arch=None,
        specialize=False,
        smem_pad_bytes=0,
    )
    worker.send(Task(recipes=(recipe,), settings=QUICK))
    while True:
        told = worker.receive(60)
        assert isinstance(told, Note)
        if told.what == "trying":
            break
    worker._child.stdin.close()  # type: ignore[union-attr]
    assert worker.receive(10) == Lost(exit_code=0)
    worker.close()


def test_suites() -> None:
    assert set(suite_names()) == {"ladder", "ragged", "skinny", "squares", "transformer"}
    suites = [load_suite(name) for name in suite_names()]
    assert sum(len(s.shapes) for s in suites) >= 40
    for suite in suites:
        shapes = [s.shape for s in suite.shapes]
        assert len(set(shapes)) == len(shapes)
        assert suite.title


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shapes = 3", "is needed"),
        ("shapes = [{m=1}]", "shape 1: must be"),
        ("shapes = [{m=1, n=1, k='1'}]", "whole numbers"),
        ("shapes = [{m=1, n=1, k=1}]\ndtypes = ['fp31']", "dtypes must be a list out of"),
        ("shapes = [{m=1, n=1, k=1}]\nlayout = ['nn']", "unknown key 'layout'"),
        ("shapes = [", "cannot be read"),
    ],
)
def test_a_faulty_suite_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_suite(str(path))


def test_a_suite_of_ones_own(tmp_path: Path, cache_directory: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("shapes = [{m=9, n=8, k=7, note='small'}]\nlayouts = ['nt']")
    (found,) = run(cache_directory, shape=None, suite=str(path), tunables={})
    assert (found.problem.m, found.problem.n, found.problem.k) == (9, 8, 7)
    assert found.problem.layout == "nt"


def test_no_nan_in_what_is_written(tmp_path: Path, cache_directory: Path) -> None:
    output = tmp_path / "bench.jsonl"
    run(cache_directory, output=output, shape=[(0, 4, 4), (4, 4, 0), (16, 16, 16)])
    for line in output.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def _start(cache_directory: Path, output: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        [sys.executable, bench_stub.__file__, str(cache_directory), str(output)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_a_slow_kernel_does_not_take_the_rounds_of_the_others(
    cache_directory: Path, tmp_path: Path
) -> None:
    output = tmp_path / "bench.jsonl"
    wanted = {
        "tunables": {"SPEED": [100_000, 100, 50]}, "output": output,
        # One call of the slow one takes 1,344 ms of the fake card's time, of the others 1.
        "settings": RunSettings(min_rounds=5, max_rounds=10, max_seconds=2.0),
    }  # fmt: skip
    slow, plain, fast = run(cache_directory, **wanted)
    assert slow.verified
    assert (slow.samples_ms, slow.median_ms, slow.tflops, slow.baseline) == ((), None, None, None)
    assert slow.single_ms == pytest.approx(1344, rel=0.1)
    assert any(w.startswith("not timed: one call takes") for w in slow.warnings)
    assert len(plain.samples_ms) == len(fast.samples_ms) >= 5
    assert run(cache_directory, **wanted).resumed == 3
    longer = {**wanted, "settings": RunSettings(min_rounds=5, max_rounds=5, max_seconds=60.0)}
    again = run(cache_directory, **longer)
    assert again.resumed == 0
    assert len(again[0].samples_ms) == 5
    alone = run(cache_directory, **{**wanted, "tunables": {"SPEED": [100_000]}, "output": None})
    assert alone[0].median_ms == pytest.approx(1344, rel=0.1)
