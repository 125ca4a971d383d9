"""Cards of the device table by whatever name a driver, a user or a record gives them."""

from __future__ import annotations

from functools import cache

from gemm_lab.errors import UsageError
from gemm_lab.model import Device, find_device, load_devices, peak_tflops

__all__ = ["card_named", "device_key"]


@cache
def _cards() -> dict[str, Device]:
    return load_devices()


@cache
def device_key(name: str) -> str:
    """The table's key of a card; the name itself where the table does not know it."""
    try:
        return find_device(name, _cards()).key
    except UsageError:
        return name


@cache
def card_named(name: str, dtype: str) -> Device | None:
    """The card, if the table has it and knows its peak in this arithmetic."""
    try:
        card = find_device(name, _cards())
        peak_tflops(card, dtype)
    except UsageError:
        return None
    return card
