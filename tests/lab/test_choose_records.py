"""Automatic choice from recorded results: which count, which are near, what they are worth."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from choice_helpers import A100, H200, choose, question, record
from measurements import problem, timed

import gemm_lab
from gemm_lab.core.measurement import to_json
from gemm_lab.errors import UsageError
from gemm_lab.lab.choice import Basis, Choice
from gemm_lab.lab.choice_records import (
    MOST_RECORDED,
    Records,
    choice_lines,
    load_records,
    records_of,
    write_choices,
)
from gemm_lab.lab.results import Results
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Catalogue, config_of

CUBE = (4096, 4096, 4096)


def rungs(dtype: str = "bf16") -> list[str]:
    """Names from the highest rung down, of those that run on the H200 in nt."""
    ladder = [v for v in Catalogue().ladder() if dtype in v.dtypes]
    return [v.name for v in reversed(ladder) if "nt" in v.dtypes[dtype].layouts]


def defaults(name: str, **changes: Any) -> dict[str, Any]:
    return dict(config_of(Workbench().variant(name), "bf16", changes))


HIGH, *_, LOW = rungs()


class TestWhatIsTaken:
    def test_the_fastest_record_of_this_very_product(self) -> None:
        middle = rungs()[1]
        records = [
            record(HIGH, defaults(HIGH), 0.5),
            record(middle, defaults(middle), 0.19),
            record(LOW, defaults(LOW), 30.0),
        ]
        choice = choose(question(CUBE), records)
        assert choice.variant == middle
        assert choice.chosen.basis is Basis.RECORDED
        assert choice.chosen.recorded_ms == 0.19
        assert "this very product was recorded on NVIDIA H200: 0.19 ms" in choice.reason

    def test_a_neighbour_is_scaled(self) -> None:
        own = choose(question(CUBE)).variant
        asked = question((4096, 4096, 8192))
        choice = choose(asked, [record(own, defaults(own), 0.2)])
        (found,) = [a for a in choice.alternatives if a.basis is Basis.NEIGHBOUR]
        assert found.recorded_problem == "4096x4096x4096"
        assert found.estimated_ms == pytest.approx(0.4, rel=0.1)

    def test_far_away_the_rule_decides(self) -> None:
        choice = choose(question((64, 4096, 16384)), [record(HIGH, defaults(HIGH), 0.2)])
        assert choice.chosen.basis is Basis.RULE

    def test_as_many_records_as_are_kept_outrank_what_the_rule_promises(self) -> None:
        slow = [record(name, defaults(name), 300.0 + i) for i, name in enumerate(rungs())]
        few, full = slow[1:MOST_RECORDED], slow[1 : MOST_RECORDED + 1]
        assert choose(question(CUBE), few).chosen.basis is not Basis.RECORDED
        choice = choose(question(CUBE), full)
        assert choice.chosen.basis is Basis.RECORDED
        assert choice.variant == rungs()[1]

    def test_a_slow_kernel_is_not_taken_for_being_the_only_one_recorded(self) -> None:
        choice = choose(question(CUBE), [record(LOW, defaults(LOW), 300.0)])
        assert choice.variant != LOW

    def test_records_of_a_rung_correct_its_estimates_everywhere(self) -> None:
        plain = choose(question((64, 4096, 16384)))
        other = next(a.variant for a in plain.alternatives if a.variant != plain.variant)
        worse = record(plain.variant, defaults(plain.variant), 10.0)
        better = record(other, defaults(other), 0.3)
        choice = choose(question((64, 4096, 16384)), [worse, better])
        assert choice.variant == other
        assert choice.chosen.basis is Basis.RULE

    def test_other_arithmetic_layouts_and_cards_do_not_count(self) -> None:
        plain = choose(question(CUBE))
        for other in ({"dtype": "fp16"}, {"layout": "nn"}, {"arch": "sm_80", "device": "A100"}):
            records = [record(LOW, defaults(LOW), 1e-6, **other)]
            assert choose(question(CUBE), records).variant == plain.variant

    def test_a_card_of_the_same_architecture_stands_in(self) -> None:
        records = [record(HIGH, defaults(HIGH), 0.2, device="NVIDIA H100 80GB HBM3")]
        choice = choose(question(CUBE), records)
        assert choice.chosen.basis is Basis.NEIGHBOUR
        both = [*records, record(HIGH, defaults(HIGH), 0.19)]
        assert choose(question(CUBE), both).chosen.basis is Basis.RECORDED

    def test_a_card_that_the_table_does_not_know(self) -> None:
        records = [record(HIGH, defaults(HIGH), 0.2, device="New Card")]
        asked = question(CUBE, device="New Card")
        assert choose(asked, records).chosen.basis is Basis.RECORDED
        near = question((4096, 4096, 8192), device="New Card")
        found = choose(near, records).alternatives
        (scaled,) = [a for a in found if a.basis is Basis.NEIGHBOUR]
        assert scaled.estimated_ms == pytest.approx(0.4, rel=0.1)


class TestWhatNoLongerFits:
    def test_tunables_that_are_gone(self) -> None:
        choice = choose(question(CUBE), [record(HIGH, {"OLD_KNOB": 3}, 0.1)])
        assert choice.chosen.basis is Basis.RULE
        assert any("recorded, but" in p.reason for p in choice.passed_over)

    def test_variants_that_are_gone(self) -> None:
        assert choose(question(CUBE), [record("gone", {}, 0.1)]).variant != "gone"

    def test_rules_that_this_config_breaks(self) -> None:
        choice = choose(question(CUBE), [record(HIGH, defaults(HIGH, BM=1), 0.1)])
        assert choice.chosen.basis is Basis.RULE
        assert choice.passed_over

    def test_alignment_that_these_operands_lack(self) -> None:
        exact = next(v for v in rungs() if Workbench().variant(v).dtypes["bf16"].arch == "sm_90a")
        records = [record(exact, defaults(exact), 0.2)]
        choice = choose(question((4095, 4095, 4095)), records)
        (scaled,) = [a for a in choice.alternatives if a.basis is Basis.NEIGHBOUR]
        assert scaled.copies == ("a", "b")
        assert scaled.estimated_ms is not None
        assert scaled.copies_ms is not None
        assert 0.19 < scaled.estimated_ms - scaled.copies_ms < 0.23

    def test_tunables_that_the_caller_wants_otherwise(self) -> None:
        fast = record(HIGH, defaults(HIGH), 1e-3)
        value = defaults(HIGH)["GROUP_M"]
        for wanted in (value, value * 2):
            choice = choose(question(CUBE, tunables={"GROUP_M": wanted}), [fast])
            assert choice.config["GROUP_M"] == wanted
            assert (choice.chosen.basis is Basis.RECORDED) == (wanted == value)


class TestFiles:
    def test_what_counts(self) -> None:
        good = timed([1.0, 1.1, 0.9], [1.0, 1.0, 1.0], variant="shared")
        others = [
            timed([0.1], variant="wrong", verified=False),
            timed([0.1], variant="emulated", backend="emulator"),
            timed([0.1], variant="scaled", problem=problem(beta=1.0)),
            timed([0.1], variant="ended", problem=problem(epilogue="relu(x)")),
            timed([0.1], variant="padded", smem_pad_bytes=1024),
            timed([0.1], variant="failed", error="no"),
        ]
        (found,) = records_of([good, *others])
        assert (found.variant, found.median_ms, found.ratio) == ("shared", 1.0, 1.0)

    def test_the_fastest_few_of_each_problem_and_the_later_of_two(self) -> None:
        ms = [timed([float(i)], variant=f"v{i}") for i in range(9, 0, -1)]
        again = timed([50.0], variant="v1")
        found = records_of([*ms, again, timed([1.0], problem=problem(128))])
        assert [r.variant for r in found] == ["v2", "v3", "v4", "v5", "naive"]

    def test_a_file_a_card(self, tmp_path: Path) -> None:
        some = [timed([1.0], device="NVIDIA H200"), timed([1.0], device="My (Own) Card")]
        assert write_choices(tmp_path, some) == {
            tmp_path / "h200.jsonl": 1,
            tmp_path / "my_own_card.jsonl": 1,
        }
        assert write_choices(tmp_path / "all.jsonl", some) == {tmp_path / "all.jsonl": 2}
        first = (tmp_path / "all.jsonl").read_bytes()
        write_choices(tmp_path / "all.jsonl", some)
        assert (tmp_path / "all.jsonl").read_bytes() == first
        with pytest.raises(UsageError, match="no measurement here can guide"):
            write_choices(tmp_path, [])

    def test_the_users_come_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shipped = tmp_path / "shipped"
        shipped.mkdir()
        (shipped / "h200.jsonl").write_text(choice_lines([record("shipped", {}, 1.0)]))
        journal = tmp_path / "runs.jsonl"
        Results([timed([2.0], variant="journal")]).save(journal)
        folder = tmp_path / "more"
        folder.mkdir()
        (folder / "mine.jsonl").write_text(choice_lines([record("mine", {}, 3.0)]))
        one = tmp_path / "one.json"
        one.write_text(to_json(timed([4.0], variant="printed").to_dict(), indent=2))
        monkeypatch.setenv("GEMM_LAB_RESULTS", os.pathsep.join(map(str, (journal, folder, one))))
        found = [r.variant for r in load_records(shipped)]
        assert found == ["journal", "mine", "printed", "shipped"]

    def test_damage_is_told_and_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = asdict(record("good", {}, 1.0))
        bad: list[dict[str, Any]] = [
            {**good, "median_ms": 0}, {**good, "m": "x"}, {**good, "config": 3},
            {**good, "arch": "sm"}, {k: v for k, v in good.items() if k != "variant"},
        ]  # fmt: skip
        file = tmp_path / "damaged.jsonl"
        lines = [to_json(good), *map(to_json, bad), '{"torn', to_json({**good, "later": 1})]
        file.write_text("\n".join(lines))
        (tmp_path / "other.jsonl").write_text("not ours\n")
        (tmp_path / "empty.jsonl").write_text("")
        absent = tmp_path / "absent.jsonl"
        monkeypatch.setenv("GEMM_LAB_RESULTS", f"{tmp_path}{os.pathsep}{absent}")
        with caplog.at_level(logging.WARNING, logger="gemm_lab"):
            assert [r.variant for r in load_records(tmp_path / "none")] == ["good", "good"]
        assert len(caplog.records) == len(bad) + 1 + 2

    def test_without_the_variable_the_data_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("GEMM_LAB_RESULTS", raising=False)
        monkeypatch.setattr("platformdirs.user_data_dir", lambda *_, **__: str(tmp_path))
        assert len(load_records(tmp_path / "none")) == 0
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / "x.jsonl").write_text(choice_lines([record("mine", {}, 1.0)]))
        assert len(load_records(tmp_path / "none")) == 1

    def test_what_is_shipped_can_be_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GEMM_LAB_RESULTS", "")
        names = set(Catalogue().names())
        assert all(r.variant in names for r in load_records())

    def test_explain_uses_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "mine.jsonl"
        file.write_text(choice_lines([record(LOW, defaults(LOW), 1e-3)]))
        monkeypatch.setenv("GEMM_LAB_RESULTS", str(file))
        asked: dict[str, Any] = {"shape": CUBE, "dtype": "bf16", "layout": "nt"}
        choice = gemm_lab.explain_choice(gpu="H200", workbench=Workbench(), **asked)
        assert (choice.variant, choice.chosen.basis) == (LOW, Basis.RECORDED)
        other = gemm_lab.explain_choice(gpu="A100 SXM", workbench=Workbench(), **asked)
        assert other.chosen.basis is Basis.RULE


def test_distance_is_in_doublings() -> None:
    r = record("x", {}, 1.0)
    assert r.distance(4096, 4096, 4096, 1) == 0
    assert r.distance(2048, 4096, 4096, 1) == 1
    assert r.distance(4096, 8192, 4096, 2) == pytest.approx(2**0.5)
    near = Records([record("far", {}, 1.0, m=64), r]).near(
        device=H200.name, arch=H200.arch, dtype="bf16", out_dtype="bf16", layout="nt",
        shape=(4096, 4096, 2048, 1),
    )  # fmt: skip
    assert [x.variant for _, x in near] == ["x", "far"]
    assert A100.arch == "sm_80"


def test_records_without_their_copies_are_ranked_with_them() -> None:
    """A recorded time is of rows that were padded beforehand."""
    shape = (4095, 4097, 4093)
    ranked = choose(question(shape)).alternatives
    copying = next(a for a in ranked if a.copies)
    plain = next(a for a in ranked if not a.copies)
    m, n, k = shape

    def recorded(copying_ms: float) -> Choice:
        some = [
            record(copying.variant, dict(copying.config), copying_ms, m=m, n=n, k=k),
            record(plain.variant, dict(plain.config), 0.2, m=m, n=n, k=k),
        ]
        return choose(question(shape), some)

    assert copying.copies_ms is not None
    near = recorded(0.2 - 0.9 * copying.copies_ms)
    assert near.variant == plain.variant
    clear = recorded(0.2 - 1.1 * copying.copies_ms)
    assert clear.variant == copying.variant
    assert clear.chosen.estimated_ms == pytest.approx(0.2 - 0.1 * copying.copies_ms)


def test_a_layout_without_records_learns_from_another() -> None:
    """What a rung was seen to need in nt is expected of it in nn."""
    shape = (4096, 4096, 4096)
    blank = choose(question(shape, layout="nn"))
    ranked = [a for a in blank.alternatives if a.estimated_ms]
    first, second = ranked[0], next(a for a in ranked if a.variant != ranked[0].variant)
    seen = [
        record(first.variant, dict(first.config), 40 * first.estimated_ms),
        record(second.variant, dict(second.config), second.estimated_ms),
    ]
    assert choose(question(shape, layout="nn"), seen).variant == second.variant
