"""The wheel, installed elsewhere, holds all that the program reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = "Scripts" if os.name == "nt" else "bin"


def ran(command: Sequence[str | Path], folder: Path) -> str:
    """Standard output of a command in a folder, without this checkout on its path."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    ran([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], ROOT)
    (found,) = folder.glob("gemm_lab-*.whl")
    return found


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of the wheel alone; what it depends on comes from this one."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    python = home / BIN / "python"
    ran([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index",
         "--quiet", "--disable-pip-version-check", wheel], home)  # fmt: skip
    purelib = ran([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], home)
    (Path(purelib.strip()) / "more.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_holds_templates_and_tables(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "templates").rglob("*.j2"):
        assert f"gemm_lab/templates/{path.relative_to(ROOT / 'templates').as_posix()}" in names
    data = [p for p in (ROOT / "gemm_lab").rglob("*") if p.suffix in (".toml", ".cu", ".jsonl")]
    assert {"devices.toml", "ceilings.cu", "ladder.toml"} <= {path.name for path in data}
    assert {path.parent.name for path in data} >= {"suites", "choices"}
    for path in data:
        assert path.relative_to(ROOT).as_posix() in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


def test_runs_from_another_folder(elsewhere: Path, tmp_path: Path) -> None:
    python, program = (elsewhere / BIN / name for name in ("python", "gemm-lab"))
    where = ran([python, "-c", "import gemm_lab; print(gemm_lab.__file__)"], tmp_path)
    assert Path(where.strip()).is_relative_to(elsewhere)
    listed = json.loads(ran([program, "list", "--json"], tmp_path))
    assert "warp_tiled" in json.dumps(listed)
    assert "warp_tiled" in ran([program, "list"], tmp_path)
    assert "RIGHT" in ran([program, "run", "shared", "--square", "64"], tmp_path)
    assert "waits for" in ran(
        [program, "model", "tiled", "--gpu", "H200", "--square", "512"], tmp_path
    )
    explained = ["run", "--explain-choice", "--gpu", "H200", "--square", "4096", "--dtype", "bf16"]
    assert "because" in ran([program, *explained], tmp_path)
