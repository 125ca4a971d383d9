"""Named lists of shapes: `suites/*.toml` beside this file, or a file of the user's."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_lab.core.dtypes import DTYPES, LAYOUTS
from gemm_lab.core.problem import Shape
from gemm_lab.errors import UsageError

__all__ = ["Suite", "SuiteShape", "load_suite", "suite_names"]

_FOLDER = Path(__file__).parent / "suites"
_SIZES = {"m", "n", "k", "batch"}


@dataclass(frozen=True, kw_only=True)
class SuiteShape:
    """A shape, and what it stands for."""

    shape: Shape
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Shapes that belong together, with the arithmetic and layouts that they are meant for."""

    name: str
    title: str
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    shapes: tuple[SuiteShape, ...]


def suite_names() -> tuple[str, ...]:
    """The suites that come with the lab."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load_suite(name: str) -> Suite:
    """A suite by name, or a TOML file; UsageError says what is wrong with it, and where."""
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = difflib.get_close_matches(name, suite_names(), 1)
        raise UsageError(
            f"unknown suite {name!r}",
            hint=f"did you mean {near[0]}?"
            if near
            else f"known: {', '.join(suite_names())}; or a .toml file",
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    unknown = set(data) - {"title", "dtypes", "layouts", "shapes"}
    if unknown:
        raise UsageError(
            f"{path}: unknown key {sorted(unknown)[0]!r}", hint="title, dtypes, layouts, shapes"
        )
    shapes = data.get("shapes")
    if not isinstance(shapes, list) or not shapes:
        raise UsageError(f"{path}: shapes = [{{ m = 1024, n = 1024, k = 1024 }}, ...] is needed")
    return Suite(
        name=path.stem,
        title=str(data.get("title", path.stem)),
        dtypes=_words(path, "dtypes", data.get("dtypes", ["fp32"]), tuple(DTYPES)),
        layouts=_words(path, "layouts", data.get("layouts", ["nn"]), LAYOUTS),
        shapes=tuple(_shape(path, i, table) for i, table in enumerate(shapes, start=1)),
    )


def _words(path: Path, key: str, value: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not set(value) <= set(known):
        raise UsageError(f"{path}: {key} must be a list out of {', '.join(known)}")
    return tuple(value)


def _shape(path: Path, number: int, table: Any) -> SuiteShape:
    where = f"{path}: shape {number}"
    if not isinstance(table, dict) or not {"m", "n", "k"} <= set(table) <= _SIZES | {"note"}:
        raise UsageError(f"{where}: must be {{ m, n, k }}, with batch and note if wanted")
    sizes = {name: value for name, value in table.items() if name != "note"}
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in sizes.values()):
        raise UsageError(f"{where}: sizes are whole numbers")
    return SuiteShape(shape=Shape(**sizes), note=str(table.get("note", "")))
