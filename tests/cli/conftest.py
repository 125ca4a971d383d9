"""A runner of the program in this process, and variant files to run it on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import MINE, Answer, Call
from typer.testing import CliRunner

from gemm_lab.cli.app import app


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the caller's cache or configuration."""
    base = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("GEMM_LAB_CACHE_DIR", str(base / "cli-cache"))
    monkeypatch.setenv("GEMM_LAB_DEVICES", str(base / "no-devices.toml"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def call() -> Call:
    """The program on some words."""
    runner = CliRunner()

    def run(*words: str) -> Answer:
        result = runner.invoke(app, list(words))
        return Answer(code=result.exit_code, out=result.stdout, err=result.stderr)

    return run


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A variant file of the user's own."""
    path = tmp_path / "of_my_own.cu.j2"
    path.write_text(MINE)
    return path
