"""Random products on the card; card_fuzz.py has the longer run."""

from __future__ import annotations

import pytest
from card_fuzz import fuzz

pytestmark = pytest.mark.gpu


def test_two_hundred_random_products_are_right() -> None:
    outcomes = fuzz([], 200, seed=7, seconds=200)
    wrong = [f"{o.case}\n{o.fault}" for found in outcomes.values() for o in found if o.fault]
    assert not wrong, "\n".join(wrong[:5])
