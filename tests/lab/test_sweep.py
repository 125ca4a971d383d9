"""Sweeps on a card that is not there: pruning, workers that die, resuming, right and wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes import STUB, fake_plan, fake_station

from gemm_lab.errors import RuleError, UsageError
from gemm_lab.jit import Cache
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.results import Results
from gemm_lab.lab.sweep import sweep
from gemm_lab.lab.workbench import Workbench

QUICK = RunSettings(min_rounds=5, max_rounds=10)


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def run(cache_directory: Path, **wanted: object) -> Results:
    settings = {"shape": (24, 20, 28), "settings": QUICK, "progress": False, "timeout_s": 20.0}
    return sweep(
        str(STUB),
        workbench=Workbench(cache=Cache(cache_directory)),
        station=fake_plan(cache_directory),
        **{**settings, **wanted},  # type: ignore[arg-type]
    )


def test_product_of_tunables_and_shapes(cache_directory: Path) -> None:
    found = run(
        cache_directory, SIZE=None, SPEED=[100, 50], shape=[(24, 20, 28), 32], isolate=False
    )
    assert len(found) == 12
    assert {(m.config["SIZE"], m.config["SPEED"]) for m in found} == {
        (size, speed) for size in (8, 16, 32) for speed in (50, 100)
    }
    assert all(m.verified and m.error is None and m.samples_ms for m in found)
    assert all(m.baseline and len(m.baseline.samples_ms) == len(m.samples_ms) for m in found)
    assert found.best().config["SPEED"] == 50
    assert len(found.problems()) == 2
    assert len(found.filter(SPEED=50, m=32)) == 3
    assert len(found.filter(SIZE=[8, 16])) == 8


def test_rules_prune_before_anything_is_compiled(tmp_path: Path) -> None:
    found = run(tmp_path / "cache", SIZE=[16, 64, 128], isolate=False)
    assert len(found) == 1
    assert [p.config["SIZE"] for p in found.pruned] == [64, 128]
    assert "must not pass the limit" in found.pruned[0].reason
    assert len(list((tmp_path / "cache").glob("stub-*"))) == 1


def test_a_sweep_with_nothing_left_says_why(cache_directory: Path) -> None:
    with pytest.raises(UsageError, match="no candidate is left of 2"):
        run(cache_directory, SIZE=[64, 128], isolate=False)
    with pytest.raises(UsageError, match="has no tunable BM"):
        run(cache_directory, BM=[64])
    assert issubclass(RuleError, UsageError)


def test_one_candidate_that_breaks_poisons_no_other(cache_directory: Path) -> None:
    modes = ["right", "illegal", "wrong", "die", "lazy", "die_timed", "broken", "right"]
    found = run(cache_directory, MODE=modes, SIZE=[8, 16])
    assert len(found) == 14
    by_mode = {mode: found.filter(MODE=mode) for mode in modes}
    assert all(m.verified is True and m.samples_ms for m in by_mode["right"])
    # C is poisoned for each: one that writes nothing does not pass with another's result.
    assert all(m.verified is False and m.error is None for m in by_mode["wrong"])
    assert all(m.verified is False and m.error is None for m in by_mode["lazy"])
    assert all("illegal access" in (m.error or "") for m in by_mode["illegal"])
    assert all("exit code 17" in (m.error or "") for m in by_mode["die"])
    assert all("died while timing" in (m.error or "") for m in by_mode["die_timed"])
    assert all(m.error and m.samples_ms == () for m in by_mode["broken"])
    assert len(found.right) == 2
    assert len(found.wrong) == 4
    assert len(found.failed) == 8


def test_a_hang_is_killed(cache_directory: Path) -> None:
    found = run(cache_directory, MODE=["hang", "right"], timeout_s=2.0)
    assert found[0].error is not None
    assert "hung while trying" in found[0].error
    assert found[1].verified is True


def test_resume_passes_over_what_the_journal_has(tmp_path: Path, cache_directory: Path) -> None:
    output = tmp_path / "sweep.jsonl"
    first = run(cache_directory, SIZE=[8], output=output, isolate=False)
    again = run(cache_directory, SIZE=[8, 16], output=output, isolate=False)
    assert (first.resumed, again.resumed) == (0, 1)
    assert again[0] == first[0]
    assert [m.config["SIZE"] for m in again] == [8, 16]
    assert len(output.read_text().splitlines()) == 2
    other_seed = RunSettings(min_rounds=5, max_rounds=10, seed=1)
    assert (
        run(cache_directory, SIZE=[8], output=output, settings=other_seed, isolate=False).resumed
        == 0
    )
    assert run(cache_directory, SIZE=[8], output=output, resume=False, isolate=False).resumed == 0
    assert len(Results.load(output)) == 4
    assert len(Results.load(output).latest()) == 3
    for line in output.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_failures_are_kept_and_tried_again_on_request(
    tmp_path: Path, cache_directory: Path
) -> None:
    output = tmp_path / "sweep.jsonl"
    run(cache_directory, MODE=["die"], output=output)
    assert run(cache_directory, MODE=["die"], output=output).resumed == 1
    assert run(cache_directory, MODE=["die"], output=output, retry_failed=True).resumed == 0


def test_modules_do_not_pile_up(cache_directory: Path) -> None:
    station = fake_station(cache_directory=str(cache_directory))

    from gemm_lab.lab.candidates import Planner, expand
    from gemm_lab.lab.prepare import Request
    from gemm_lab.lab.runner import LocalRunner

    runner = LocalRunner(station)
    variant = station.bench.variant(str(STUB))
    planner = Planner(target=runner.target)
    problem = _problem()
    for config in expand(variant, "fp32", {"SIZE": None, "SPEED": [90, 100]}):
        made = planner.candidate(Request(variant=variant, config=config), problem)
        runner.run([made], QUICK, lambda _what: None)  # type: ignore[list-item]
    assert station.backend.loaded == 0
    assert station.backend.most_loaded == 1
    assert not station.backend.memory


def _problem() -> object:
    from gemm_lab.core.dtypes import dtype
    from gemm_lab.core.problem import GemmProblem, Shape

    return GemmProblem(shape=Shape(m=8, n=8, k=8), dtype=dtype("fp32"), out=dtype("fp32").out(None))
