"""Every test has a cache of its own, and a process that has not warned yet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jit_helpers import PROJECT

from gemm_lab.jit import Cache, places


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The state of a process that has just begun."""
    monkeypatch.setattr(places, "_warned", False)
    monkeypatch.setattr(places, "_fallback", None)
    monkeypatch.setenv("GEMM_LAB_CACHE_DIR", str(tmp_path / "default"))


@pytest.fixture
def python() -> Callable[..., str]:
    """Run a script in a new interpreter; its stdout, or an assertion with its stderr."""

    def run(script: str, *args: str, cwd: Path | None = None, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, *args],
            env={**os.environ, "PYTHONPATH": str(PROJECT), **env},
            cwd=cwd,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run
