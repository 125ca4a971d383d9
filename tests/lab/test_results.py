"""The journal: torn at any byte, full disks, several writers; and what Results makes of it."""

from __future__ import annotations

import csv
import errno
import io
import json
import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import measurement, problem, timed

from gemm_lab.core.measurement import SCHEMA, MaxError, Measurement, Ratio, to_json
from gemm_lab.errors import GemmLabError, UsageError
from gemm_lab.lab import journal as journal_module
from gemm_lab.lab.journal import Journal, read_journal
from gemm_lab.lab.results import Results


def write(path: Path, *numbers: int) -> None:
    with Journal(path) as journal:
        for number in numbers:
            journal.append(measurement(number))


def seeds(path: Path) -> list[int | None]:
    return [m.seed for m in read_journal(path).measurements]


def test_a_measurement_comes_back_as_it_went(tmp_path: Path) -> None:
    whole = timed(
        [1.0, 1.1, 1.2],
        [0.5, 0.5, 0.6],
        max_error=MaxError(index=(1, 2), got="nan", expected=1.0, bound=1e-6),
        warnings=("ragged\u2028line", "two\nlines"),
        clocks={"sm_mhz_median": 1980},
        group="abc",
        smem_pad_bytes=512,
    )
    path = tmp_path / "new" / "folder" / "m.jsonl"
    with Journal(path) as journal:
        journal.append(whole)
    assert read_journal(path).measurements == (whole,)
    assert path.read_bytes().count(b"\n") == 1


@given(cut=st.integers(min_value=0, max_value=10_000))
def test_torn_at_any_byte(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "m.jsonl"
    write(path, 1, 2, 3)
    data = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    cut = min(cut, len(data))
    path.write_bytes(data[:cut])
    # A line that lacks only its newline is whole.
    kept = sum(end - 1 <= cut for end in ends)
    assert len(read_journal(path).measurements) == kept
    write(path, 4)
    assert seeds(path) == [*range(1, kept + 1), 4]
    assert read_journal(path).damaged == ()
    for line in path.read_bytes().splitlines():
        json.loads(line)
    torn = path.with_name("m.jsonl.torn")
    rest = cut - max((e for e in (0, *ends) if e <= cut), default=0)
    if rest and kept == sum(end <= cut for end in ends):
        assert torn.read_bytes() == data[cut - rest : cut] + b"\n"


def test_a_line_torn_by_another_writer_is_never_joined(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with Journal(path) as journal:
        journal.append(measurement(1))
        with path.open("ab") as file:
            file.write(b'{"schema": 1, "var')
        journal.append(measurement(2))
    assert seeds(path) == [1, 2]
    assert read_journal(path).damaged == ()


def test_damage_in_the_middle_is_told_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write(path, 1)
    later = json.dumps({"schema": SCHEMA + 1, "everything": "else"})
    path.write_text(f"{path.read_text()}\x00\x00garbage\n{later}\n[1]\n\n")
    write(path, 2)
    found = read_journal(path)
    assert [m.seed for m in found.measurements] == [1, 2]
    reasons = {d.line: d.reason for d in found.damaged}
    assert reasons == {
        2: "is no JSON",
        3: f"has schema {SCHEMA + 1}, this version reads up to {SCHEMA}",
        4: "is no measurement",
    }


def test_fields_of_a_later_schema_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    data = measurement(1).to_dict()
    data["schema"] = SCHEMA + 1
    data["new"] = 1
    data["problem"]["newer"] = 2
    path.write_text(json.dumps(data) + "\n")
    (found,) = read_journal(path).measurements
    assert found.seed == 1


def test_an_early_line_without_later_fields_is_read(tmp_path: Path) -> None:
    data = {
        k: v for k, v in measurement(1).to_dict().items() if k not in ("group", "smem_pad_bytes")
    }
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(data) + "\n")
    assert seeds(path) == [1]


@pytest.mark.parametrize("text", ["# notes\nof mine\n", "{}\n", "a", "[]"])
def test_somebody_elses_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no journal"):
        Journal(path)
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        Journal(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_journal(tmp_path / "none.jsonl")


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    path = tmp_path / "m.jsonl"
    real = os.write

    def write_some(fd: int, data: bytes) -> int:
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:room])

    with Journal(path) as journal:
        journal.append(measurement(1))
        before = path.read_bytes()
        monkeypatch.setattr(journal_module.os, "write", write_some)
        with pytest.raises(GemmLabError, match="the disk is full: 1 measurements are kept") as told:
            journal.append(measurement(2))
        assert "goes on where it stopped" in (told.value.hint or "")
        assert path.read_bytes() == before
        monkeypatch.undo()
        journal.append(measurement(3))
    assert seeds(path) == [1, 3]


def test_a_full_disk_that_shows_only_at_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.jsonl"

    def refuse(fd: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with Journal(path) as journal:
        journal.append(measurement(1))
        monkeypatch.setattr(journal_module.os, "fsync", refuse)
        with pytest.raises(GemmLabError, match="full"):
            journal.append(measurement(2))
    monkeypatch.undo()
    assert seeds(path) == [1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_the_systems_own_full_device() -> None:
    with (
        pytest.raises(GemmLabError, match="full"),
        Journal(Path("/dev/full")) as journal,
    ):
        journal.append(measurement(1))


def _append_many(path: str, first: int) -> None:
    with Journal(Path(path)) as journal:
        for number in range(first, first + 25):
            # Long lines, past what a pipe writes at once.
            journal.append(measurement(number, samples_ms=tuple(i / 7 for i in range(2000))))


def test_several_processes_append(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_many, args=(str(path), 100 * i)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    found = read_journal(path)
    assert found.damaged == ()
    assert sorted(m.seed or 0 for m in found.measurements) == sorted(
        100 * i + j for i in range(4) for j in range(25)
    )


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=5),
    st.one_of(st.none(), st.floats()),
)
def test_json_never_has_nan(samples: list[float], tflops: float | None) -> None:
    text = to_json(measurement(samples_ms=tuple(samples), tflops=tflops).to_dict())

    def refuse(word: str) -> None:
        raise AssertionError(word)

    data = json.loads(text, parse_constant=refuse)
    assert Measurement.from_dict(data).variant == "naive"


def test_rows_csv_and_markdown() -> None:
    ratio = Ratio(median=0.5, low=0.4, high=0.6)
    results = Results(
        [
            timed([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], config={"BM": 64}),
            measurement(1, config={"FAST": True}, error="died | here\nof it", verified=None),
            measurement(2, tflops=float("nan"), verified=False, ratio_to_baseline=ratio),
        ]
    )
    rows = list(csv.DictReader(io.StringIO(results.to_csv())))
    assert [r["BM"] for r in rows] == ["64", "", ""]
    assert rows[0]["median_ms"] == "2.0"
    assert rows[2]["tflops"] == ""
    assert rows[1]["error"] == "died | here\nof it"
    table = results.to_markdown().splitlines()
    assert len(table) == 5
    assert r"failed: died \| here" in table[3]
    assert "wrong" in table[4]
    assert "50.0% (40.0% to 60.0%)" in table[4]
    assert Results([]).to_csv() == "\n"


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = Results([timed([1.0]), measurement(1, config={"BM": 2})]).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["variant"]) == ["naive", "naive"]
    assert frame.loc[1, "BM"] == 2


def test_best_and_filter() -> None:
    fast = timed([1.0], config={"BM": 64})
    slow = timed([2.0], config={"BM": 128})
    wrong = timed([0.1], verified=False)
    failed = measurement(error="no")
    results = Results([slow, fast, wrong, failed])
    assert results.best() is fast
    assert list(results.filter(BM=128)) == [slow]
    assert list(results.filter(BM=[64, 128], variant="naive")) == [slow, fast]
    assert list(results.right) == [slow, fast]
    assert isinstance(results[1:], Results)
    with pytest.raises(UsageError, match="no measurement has 'BN'"):
        results.filter(BN=1)
    with pytest.raises(UsageError, match="no right, timed"):
        Results([wrong, failed]).best()
    big = timed([1.0], problem=problem(128))
    assert [len(p) for p in Results([slow, big, fast]).problems()] == [2, 1]


def test_save_and_load(tmp_path: Path) -> None:
    results = Results([measurement(1), measurement(2), measurement(1, verified=False)])
    results.save(tmp_path / "m.jsonl")
    back = Results.load(tmp_path / "m.jsonl")
    assert list(back) == list(results)
    assert [m.verified for m in back.latest()] == [False, True]


@pytest.mark.parametrize("whole", [True, False])
def test_what_the_commands_print_can_be_read(tmp_path: Path, whole: bool) -> None:
    data = measurement(1).to_dict()
    path = tmp_path / "run.json"
    printed = {"schema": SCHEMA, "measurements": [data], "pruned": []} if whole else data
    path.write_text(to_json(printed, indent=2) + "\n")
    assert seeds(path) == [1]
    with pytest.raises(UsageError, match="is no journal"):
        Journal(path)


@pytest.mark.parametrize("wrong", [None, "zz", -1.5, [1, "x"], {"q": 1}, 10**400, float("inf")])
@pytest.mark.parametrize("name", [*measurement(1).to_dict(), "problem.m", "problem.dtype"])
def test_a_field_of_another_type_is_damage(tmp_path: Path, name: str, wrong: object) -> None:
    data = timed([1.0, 1.1], [0.5, 0.6]).to_dict()
    if name.startswith("problem."):
        data["problem"][name.removeprefix("problem.")] = wrong
    else:
        data[name] = wrong
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(data) + "\n" + to_json(measurement(2)) + "\n")
    content = read_journal(path)
    assert len(content.measurements) + len(content.damaged) == 2
    results = Results(content.measurements)
    assert results.to_markdown()
    assert results.to_csv()


def test_a_path_that_is_no_text_can_be_written() -> None:
    assert to_json({"command": "run bad\udcff"}) == '{"command": "run bad?"}'


needs_devices = pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such devices here")


@needs_devices
def test_what_is_no_regular_file_takes_lines_and_holds_nothing(tmp_path: Path) -> None:
    with Journal(Path("/dev/null")) as journal:
        journal.append(measurement(1))
    assert (journal.kept, journal.before.measurements) == (1, ())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="cannot be written"):
        Journal(pipe)  # nobody reads
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with Journal(pipe) as journal:
        journal.append(measurement(1))
        assert b'"seed": 1' in os.read(reader, 2**16)
    os.close(reader)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["pipe"]


@needs_devices
def test_what_never_ends_is_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("/dev/zero", "/dev/null"):
        with pytest.raises(UsageError, match="no regular file"):
            read_journal(Path(device))
    sparse = tmp_path / "sparse.jsonl"
    with sparse.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UsageError, match="a line has more than 16 MiB"):
        read_journal(sparse)
    with pytest.raises(UsageError, match="a line has more than 16 MiB"):
        Journal(sparse)
    monkeypatch.setattr("gemm_lab.lab.journal._MOST_PIPED", 2**21)
    endless = SimpleNamespace(buffer=SimpleNamespace(read=lambda size: b"y\n" * (size // 2)))
    monkeypatch.setattr("sys.stdin", endless)
    with pytest.raises(UsageError, match="- is no journal of measurements: it has more than 2 MiB"):
        read_journal(Path("-"))


def test_stdin_and_pipes_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    Results([measurement(1), measurement(2)]).save(path)
    with path.open("rb") as file:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=file))
        assert read_journal(Path("-")) == read_journal(path)
