"""Every command: help, output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_helpers import Call

from gemm_lab.cli.commands import COMMANDS
from gemm_lab.cli.group import load_command
from gemm_lab.core.measurement import Measurement


def strict_json(text: str) -> Any:
    """Parsed; NaN and Infinity are refused."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in JSON")

    return json.loads(text, parse_constant=refuse)


def leaves(command: Any, name: str) -> list[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        return [(name, command)]
    return [leaf for child in children.values() for leaf in leaves(child, f"{name} {child.name}")]


ALL = [leaf for entry in COMMANDS.values() for leaf in leaves(load_command(entry), entry.name)]


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_command_and_option_is_documented(name: str, command: Any) -> None:
    assert (command.help or "").strip(), f"{name} has no help"
    for param in command.params:
        assert getattr(param, "help", None), f"{name}: {param.name} has no help"
    options = [o for param in command.params for o in param.opts]
    assert "--debug" in options
    assert len(options) == len(set(options)), f"{name} declares an option twice"


@pytest.mark.parametrize("entry", COMMANDS.values(), ids=COMMANDS)
def test_help_of_every_command(entry: Any, call: Call) -> None:
    assert entry.help.endswith(".")
    answer = call(entry.name, "--help")
    assert answer.code == 0
    assert f"Usage: gemm-lab {entry.name}" in answer.out
    assert entry.name in call("--help").out


def test_version(call: Call) -> None:
    answer = call("--version")
    assert answer.code == 0
    assert answer.out.startswith("gemm-lab ")


def test_no_words_show_help(call: Call) -> None:
    assert "Commands:" in call().out + call().err


def test_list(call: Call) -> None:
    answer = call("list")
    assert answer.code == 0
    names = [line.split()[0] for line in answer.out.splitlines() if line]
    assert names.index("naive") < names.index("y_first") < names.index("shared")


def test_list_json_and_verbose(call: Call, mine: Path) -> None:
    data = strict_json(call("list", "--json", "--templates", str(mine.parent)).out)
    assert data["schema"] == 1
    assert data["broken"] == []
    mine_data = next(v for v in data["variants"] if v["name"] == "of_my_own")
    assert mine_data["tunables"]["SIDE"]["candidates"] == [8, 16]
    text = call("list", "-v", "--templates", str(mine.parent)).out
    assert "threads along each side of a block (tried: 8 16)" in text
    assert "A first kernel." in text


def test_a_broken_file_is_told_and_stops_nobody(
    call: Call, mine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(mine.parent)
    (mine.parent / "bad.cu.j2").write_text("nothing")
    asked = ("run", "--explain-choice", "--gpu", "H200", "--square", "64", "--templates", folder)
    assert call(*asked).code == 0
    (mine.parent / "worse.cu.j2").write_text(mine.read_text() + "//% if\n")
    words = ("--square", "8", "--backend", "emulator", "--json")
    answer = call("bench", "--templates", folder, *words)
    assert answer.code == 0, answer.err
    found = strict_json(answer.out)
    assert [p["variant"] for p in found["pruned"]] == ["worse"]
    assert "worse.cu.j2" in found["pruned"][0]["reason"]
    assert {m["variant"] for m in found["measurements"]} > {"of_my_own", "naive"}
    assert call("bench", "worse", "--templates", folder, *words).code == 2
    told = [r.getMessage().partition(":")[0] for r in caplog.records]
    assert told == ["bad is left out"] * 2
    assert call("bench", "bad", "--templates", folder).code == 2


def test_list_shows_broken_files_and_goes_on(call: Call, mine: Path) -> None:
    (mine.parent / "bad.cu.j2").write_text("/*---\ntitle = \n---*/\n")
    lost = mine.read_text().replace("idea  =", 'after = "nobody"\nidea  =')
    (mine.parent / "lost.cu.j2").write_text(lost)
    answer = call("list", "--templates", str(mine.parent))
    assert answer.code == 0
    assert "broken" in answer.out
    assert "bad.cu.j2:2" in answer.out
    assert "'nobody' names no variant" in answer.out
    assert "One thread an element, mine" in answer.out
    data = strict_json(call("list", "--json", "--templates", str(mine.parent)).out)
    assert [b["name"] for b in data["broken"]] == ["bad", "lost"]


def test_show_source(call: Call) -> None:
    answer = call("show", "shared", "-p", "BLOCK_SIZE=16")
    assert answer.code == 0
    assert "constexpr int BLOCK_SIZE = 16;" in answer.out
    assert call("show", "--variant", "shared", "-p", "BLOCK_SIZE=16").out == answer.out


def test_show_reads_a_file(call: Call, mine: Path) -> None:
    assert "constexpr int SIDE = 16;" in call("show", str(mine)).out


def test_show_ptx(call: Call) -> None:
    answer = call("show", "naive", "--ptx", "--arch", "sm_86")
    assert answer.code == 0
    assert ".target sm_86" in answer.out


def test_show_specialize_needs_a_shape(call: Call) -> None:
    assert call("show", "naive", "--specialize").code == 2
    answer = call("show", "naive", "--specialize", "--square", "96")
    assert answer.code == 0
    assert "96" in answer.out


def test_show_diff(call: Call) -> None:
    other = call("show", "naive", "--diff", "y_first")
    assert other.code == 0
    assert other.out.startswith("--- naive\n+++ y_first\n")
    knob = call("show", "shared", "--diff", "BLOCK_SIZE=16").out
    assert "-constexpr int BLOCK_SIZE = 32;\n+constexpr int BLOCK_SIZE = 16;\n" in knob
    assert call("show", "shared", "--diff", "shared").out == ""
    assert call("show", "shared", "--diff", "naive", "--diff", "y_first").code == 2
    both = call("show", "shared", "-p", "MIN_BLOCKS=1", "--diff", "naive", "--diff", "BLOCK_SIZE=8")
    assert both.code == 0
    assert "+++ naive BLOCK_SIZE=8" in both.out


def test_run_compiled_only(call: Call) -> None:
    answer = call("run", "shared", "--backend", "none", "-p", "BLOCK_SIZE=16", "--square", "100")
    assert answer.code == 0
    assert "nothing was executed: compiled for sm_80 only" in answer.out
    assert "registers a thread" in answer.out
    assert "repeat with: gemm-lab run --variant shared --shape 100x100x100" in answer.out
    assert answer.err == ""


def test_run_json_is_a_measurement(call: Call, mine: Path) -> None:
    words = ("run", str(mine), "--backend", "none", "-m", "17", "-n", "5", "-k", "3", "--json")
    data = strict_json(call(*words).out)
    measured = Measurement.from_dict(data)
    assert (measured.problem.m, measured.problem.n, measured.problem.k) == (17, 5, 3)
    assert measured.verified is None
    assert str(mine) in measured.command


def test_run_repeats_itself(call: Call, mine: Path) -> None:
    first = strict_json(call("run", str(mine), "--backend", "none", "--square", "64", "--json").out)
    words = first["command"].split()[1:]
    again = strict_json(call(*words, "--json").out)
    assert again["command"] == first["command"]
    assert again["cache_hit"] is True


def test_run_takes_a_variant_when_none_is_named(call: Call) -> None:
    answer = call(
        "run", "--backend", "none", "--dtype", "bf16", "--arch", "sm_80", "--square", "64"
    )
    assert answer.code == 0, answer.err


def test_doctor(call: Call) -> None:
    answer = call("doctor")
    assert "NVRTC" in answer.out
    data = strict_json(call("doctor", "--json").out)
    assert {check["status"] for check in data["checks"]} <= {"ok", "warning", "error", "absent"}
    errors = [c for c in data["checks"] if c["status"] == "error"]
    assert answer.code == (1 if errors else 0)
    assert all(c["mend"] for c in data["checks"] if c["status"] in ("error", "warning"))


def test_doctor_knows_an_unknown_arch(call: Call) -> None:
    answer = call("doctor", "--arch", "sm_30")
    assert answer.code == 1
    assert "does not know sm_30" in answer.out
    assert "mend: " in answer.out


def test_cache(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMM_LAB_CACHE_DIR", str(tmp_path / "ein Platz für Kerne"))
    assert "the cache is empty" in call("cache", "list").out
    assert call("run", "naive", "--backend", "none", "--square", "8").code == 0
    assert strict_json(call("cache", "info", "--json").out)["entry_count"] == 1
    assert "für" in call("cache", "info").out
    assert "naive" in call("cache", "list").out
    (entry,) = strict_json(call("cache", "list", "--json").out)["entries"]
    assert entry["variant"] == "naive"
    assert "removed 0 kernels" in call("cache", "prune", "--older-than", "1d").out
    assert "removed 1 kernel" in call("cache", "prune", "--max-size", "0").out
    assert strict_json(call("cache", "clear", "--json").out)["entry_count"] == 0


def test_devices(call: Call, tmp_path: Path) -> None:
    assert "NVIDIA T4" in call("devices").out
    data = strict_json(call("devices", "--json").out)
    assert any(row["device"]["key"] == "h200" for row in data["devices"])
    own = tmp_path / "own.toml"
    own.write_text("[devices.t4]\ndram_gb_s = 111.0\n")
    assert " 111 " in call("devices", "--device-file", str(own)).out
    assert call("devices", "--device-file", str(tmp_path / "none.toml")).code == 2


def test_model(call: Call) -> None:
    answer = call("model", "--gpu", "a100_sxm", "--square", "1024")
    assert answer.code == 0
    for word in ("peak", "no reuse", "roofline", "Little's law"):
        assert word in answer.out
    assert strict_json(call("model", "--gpu", "t4", "--json").out)["schema"] == 1


def test_typer_is_as_we_need_it() -> None:
    # failures.py finds Click's base error through this class.
    assert [c.__name__ for c in typer.BadParameter.__mro__][:3] == [
        "BadParameter",
        "UsageError",
        "ClickException",
    ]
