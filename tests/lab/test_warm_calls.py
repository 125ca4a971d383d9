"""Calls of matmul on device arrays that come again: nothing is rendered or planned anew."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemm_lab
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.errors import UsageError
from gemm_lab.gpu import arrays
from gemm_lab.lab import call, execute, prepare
from gemm_lab.lab import matmul as matmul_module
from gemm_lab.lab.station import TransientWorkbench
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants.paths import template_root

TILES = {"BM": 32, "BN": 64, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "BK": 8, "STAGES": 2}
SPLIT: dict[str, Any] = {"variant": "simt_async", **TILES, "SPLIT_K": 2}


class CardArray:
    """A float32 matrix in the emulator's memory, as an array on a card."""

    def __init__(self, backend: EmulatorBackend, host: Any) -> None:
        self.backend = backend
        self.buffer = backend.upload(host)
        self.shape = host.shape
        self.address = backend.address(self.buffer)
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": host.shape,
            "data": (self.address, False),
        }

    def host(self) -> Any:
        return self.backend.download(self.buffer, np.dtype(np.float32), self.shape)


class Card:
    """The emulator in the place of device 0, and how often the slow steps were taken."""

    def __init__(self, patch: pytest.MonkeyPatch, bench: Workbench) -> None:
        self.backend = EmulatorBackend(arch="sm_80")
        self.bench = bench
        self.counts: Counter[str] = Counter()
        bench._gpus[0] = self.backend
        patch.setattr(EmulatorBackend, "current_stream", lambda _: 0, raising=False)
        patch.setattr(arrays, "_device_of", lambda _: 0)
        patch.setattr(call, "on_stream", lambda *_: contextlib.nullcontext())
        patch.setattr(matmul_module, "default_workbench", lambda: bench)
        patch.setattr(matmul_module, "quick_looker", lambda: self.look)
        patch.setattr(matmul_module, "_quick", None)
        patch.setattr(matmul_module, "_warm", {})
        for module, name in (
            (matmul_module, "Call"),
            (prepare, "make_spec"),
            (prepare, "plan"),
            (execute, "plan"),
        ):
            patch.setattr(module, name, self._counting(name, getattr(module, name)))

    def _counting(self, name: str, function: Any) -> Any:
        def counted(*args: Any, **keywords: Any) -> Any:
            self.counts[name] += 1
            return function(*args, **keywords)

        return counted

    def look(self, a: Any, b: Any, c: Any) -> tuple[object, tuple[int, int, int]] | None:
        if not all(isinstance(x, CardArray) for x in (a, b, c)):
            return None
        return (a.shape, b.shape, c.shape), (a.address, b.address, c.address)

    def array(self, *shape: int, seed: int = 0) -> CardArray:
        numbers = np.random.default_rng(seed).integers(-4, 5, shape)
        return CardArray(self.backend, numbers.astype(np.float32))

    def multiply(self, seed: int, *, bias: Any = None, **keywords: Any) -> None:
        """On new arrays; the result is verified."""
        a, b = self.array(36, 24, seed=seed), self.array(24, 40, seed=seed + 1)
        c = self.array(36, 40, seed=seed + 2)
        gemm_lab.matmul(a, b, out=c, bias=bias, **keywords)
        expected = a.host() @ b.host() + (0 if bias is None else bias.host())
        np.testing.assert_array_equal(c.host(), expected)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch, Workbench())


WARM: dict[str, dict[str, Any]] = {
    "plain": {"variant": "naive"},
    "tunables": {"variant": "simt_async", **TILES},
    "split": SPLIT,
}


@pytest.mark.parametrize("name", WARM)
def test_a_second_call_goes_straight_to_its_launches(card: Card, name: str) -> None:
    card.multiply(1, **WARM[name])
    assert card.counts["Call"] == 1
    card.counts.clear()
    card.multiply(5, **WARM[name])
    assert not card.counts


def test_other_tunables_are_another_call(card: Card) -> None:
    card.multiply(1, **SPLIT)
    card.multiply(1, **{**SPLIT, "SPLIT_K": 1})
    assert card.counts["make_spec"] == 2
    card.multiply(1, **dict(reversed(SPLIT.items())))
    assert card.counts["Call"] == 2


def test_an_equal_value_of_another_type_is_refused_still(card: Card) -> None:
    keywords = {**SPLIT, "SPLIT_K": 1}
    card.multiply(1, **keywords)
    with pytest.raises(UsageError, match="SPLIT_K = True"):
        card.multiply(1, **{**keywords, "SPLIT_K": True})


@pytest.mark.parametrize("value", [[2], {"a": 1}, np.ones(2)])
def test_a_value_without_a_hash_is_told_as_ever(card: Card, value: Any) -> None:
    card.multiply(1, **SPLIT)
    with pytest.raises(UsageError, match="SPLIT_K = "):
        card.multiply(1, **{**SPLIT, "SPLIT_K": value})


def test_a_factor_without_a_hash(card: Card) -> None:
    for _ in range(2):
        card.multiply(1, alpha=np.array(1.0), **SPLIT)
    assert card.counts["make_spec"] == 1


def test_an_overlap_is_refused_on_the_warm_road_too(card: Card) -> None:
    a, b, c = (card.array(32, 32, seed=s) for s in range(3))
    gemm_lab.matmul(a, b, out=c, **SPLIT)
    with pytest.raises(UsageError, match="overlaps"):
        gemm_lab.matmul(a, b, out=a, **SPLIT)


def test_the_workspace_is_given_back(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = (card.array(32, 32, seed=s) for s in range(3))
    freed: list[Any] = []
    free = card.backend.free

    def watched(buffer: Any) -> None:
        freed.append(buffer)
        free(buffer)

    monkeypatch.setattr(card.backend, "free", watched)
    for _ in range(3):
        gemm_lab.matmul(a, b, out=c, **SPLIT)
    assert len(freed) == 3
    assert all(buffer.free for buffer in freed)


@pytest.mark.parametrize("keywords", [{"variant": "naive"}, SPLIT], ids=["naive", "split"])
def test_with_a_bias_only_the_call_is_worked_out(card: Card, keywords: dict[str, Any]) -> None:
    card.multiply(1, bias=card.array(40, seed=9), **keywords)
    card.counts.clear()
    card.multiply(5, bias=card.array(40, seed=10), **keywords)
    assert card.counts == {"Call": 1}
    # The other half of the question counts: without the bias it is another kernel.
    card.multiply(5, **keywords)
    assert card.counts["make_spec"] == 1


def test_with_config_only_the_call_is_worked_out(card: Card) -> None:
    for _ in range(2):
        card.multiply(1, variant="simt_async", config={**TILES, "SPLIT_K": 2})
    assert (card.counts["Call"], card.counts["make_spec"]) == (2, 1)


def test_other_alignment_is_another_question(card: Card) -> None:
    a, b, c = card.array(36, 24), card.array(24, 40), card.array(36, 40)
    shifted = card.array(37, 24)
    shifted.__cuda_array_interface__ = {
        **a.__cuda_array_interface__, "data": (shifted.address + 4, False)
    }  # fmt: skip
    for left in (a, shifted, shifted):
        gemm_lab.matmul(left, b, out=c, variant="naive", workbench=card.bench)
    assert card.counts["make_spec"] == 2
    flat = card.backend.download(shifted.buffer, np.dtype(np.float32), (37 * 24,))
    np.testing.assert_array_equal(c.host(), flat[1 : 1 + 36 * 24].reshape(36, 24) @ b.host())


def test_a_file_that_was_written_again_is_read_again(card: Card, tmp_path: Path) -> None:
    text = (template_root() / "naive.cu.j2").read_text(encoding="utf-8")
    file = tmp_path / "naive.cu.j2"
    a, b, c = card.array(8, 8), card.array(8, 8, seed=1), card.array(8, 8)
    for factor, times in ((1, 2), (3, 2)):
        file.write_text(text.replace("alpha, acc", f"alpha, {factor} * acc"), encoding="utf-8")
        os.utime(file, ns=(factor * 10**18, factor * 10**18))
        for _ in range(times):
            gemm_lab.matmul(a, b, out=c, variant=file)
            np.testing.assert_array_equal(c.host(), factor * (a.host() @ b.host()))
    assert card.counts["make_spec"] == 2


def test_what_is_kept_is_bounded(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemm_lab.lab.workbench._MOST_KEPT", 2)
    for alpha in (1.0, 2.0, 3.0):
        gemm_lab.matmul(card.array(8, 8), card.array(8, 8), out=card.array(8, 8), alpha=alpha,
                        variant="naive", workbench=card.bench)  # fmt: skip
    assert len(card.bench._kept) == 1


def test_an_unloaded_kernel_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TransientWorkbench()
    card = Card(monkeypatch, bench)
    for _ in range(2):
        card.multiply(1, variant="naive", workbench=bench)
    assert card.counts["make_spec"] == 1
    bench.clear()
    card.multiply(1, variant="naive", workbench=bench)
    assert card.counts["make_spec"] == 2


def test_host_arrays_keep_nothing() -> None:
    bench = Workbench()
    ones = np.ones((4, 4), np.float32)
    gemm_lab.matmul(ones, ones, variant="naive", backend="emulator", workbench=bench)
    assert not bench._kept
