"""Two kernels in the same rounds on a card that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import STUB, fake_plan

from gemm_lab.errors import UsageError
from gemm_lab.jit import Cache
from gemm_lab.lab.results import Results
from gemm_lab.lab.versus import Contender, Versus, parse_contender, versus
from gemm_lab.lab.workbench import Workbench


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def run(cache_directory: Path, a: str, b: str, **wanted: object) -> Versus:
    settings = {"shape": [(24, 20, 28)], "progress": False, "isolate": False}
    return versus(
        parse_contender(a),
        parse_contender(b),
        workbench=Workbench(cache=Cache(cache_directory)),
        station=fake_plan(cache_directory),
        **{**settings, **wanted},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("b", "verdict"), [("", "same"), (":SPEED=102", "slower"), (":SPEED=98", "faster")]
)
def test_verdicts(cache_directory: Path, tmp_path: Path, b: str, verdict: str) -> None:
    output = tmp_path / "versus.jsonl"
    found = run(cache_directory, str(STUB), f"{STUB}{b}", output=output)
    (pair,) = found.comparisons.pairs
    assert (pair.verdict, pair.basis) == (verdict, "rounds")
    assert list(Results.load(output)) == list(found.results)


def test_several_shapes_share_the_confidence(cache_directory: Path) -> None:
    found = run(cache_directory, str(STUB), f"{STUB}:SPEED=110", shape=[16, 24])
    assert [p.verdict for p in found.comparisons.pairs] == ["slower", "slower"]
    assert found.comparisons.pairs[0].confidence == pytest.approx(0.975)


def test_one_that_breaks_is_broken(cache_directory: Path) -> None:
    found = run(cache_directory, str(STUB), f"{STUB}:MODE=die", isolate=True)
    (pair,) = found.comparisons.pairs
    assert pair.verdict == "broken"
    assert found.comparisons.regressions() == [pair]


def test_what_cannot_be_compared(cache_directory: Path) -> None:
    with pytest.raises(UsageError, match="must not pass the limit"):
        run(cache_directory, str(STUB), f"{STUB}:SIZE=64")
    with pytest.raises(UsageError, match="has no tunable BM"):
        run(cache_directory, str(STUB), f"{STUB}:BM=64")


@pytest.mark.parametrize(
    ("text", "variant", "tunables"),
    [
        ("shared", "shared", {}),
        ("shared:BLOCK_SIZE=16", "shared", {"BLOCK_SIZE": "16"}),
        ("./my:file.cu.j2:BM=64,SWIZZLE=128B", "./my:file.cu.j2", {"BM": "64", "SWIZZLE": "128B"}),
        ("shared:oops", "shared:oops", {}),
    ],
)
def test_how_a_contender_is_written(text: str, variant: str, tunables: dict[str, str]) -> None:
    found = parse_contender(text)
    assert found == Contender(variant=variant, tunables=tunables)
    assert str(found) == text
