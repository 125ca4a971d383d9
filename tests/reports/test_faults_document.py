"""docs/faults.md names tests that are there, and nothing in tests/reports is missing from it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
NAMED = re.findall(r"(tests/[\w/]+\.py)::(\w+)", DOCUMENT)


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_named_is_there(file: str) -> None:
    assert {name for named, name in NAMED if named == file} <= names_in(ROOT / file)


def test_every_row_names_a_test() -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("| ")]
    kinds = [r for r in rows if not r.startswith(("| what goes wrong", "|---"))]
    held, others = [r for r in kinds if "::" in r], [r for r in kinds if "::" not in r]
    applies, _, rest = DOCUMENT.partition("## What does not apply")
    assert len(held) == sum(row in applies for row in kinds)
    assert others == [row for row in kinds if row in rest]


def test_no_test_of_this_folder_is_forgotten() -> None:
    # Supports of others, which are no kind of fault themselves.
    apart = {
        "test_a_factor_that_is_no_number_is_refused",
        "test_host_arrays_go_to_the_card_and_back",
        "test_the_emulator_claims_no_time",
    }
    here = Path(__file__).parent
    for path in sorted(here.glob("test_*.py")):
        if path != Path(__file__):
            known = {name for file, name in NAMED if file == f"tests/reports/{path.name}"}
            assert names_in(path) - known - apart == set(), path.name
