"""Kernels that do not end: instructions, seconds, what is said meanwhile and at the end."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest
from emulator_helpers import run, wrap

from gemm_lab.emulator import BudgetFault, Options, Progress
from gemm_lab.emulator.runtime.budget import Budget
from gemm_lab.errors import UsageError

# Alone, apart, at a barrier, on memory: the ways in which lanes can go on for ever.
ENDLESS = {
    "all lanes": "while (n == 5) { if (o[threadIdx.x] == 1) break; }",
    "some lanes": "if (threadIdx.x < 7) while (n == 5) { if (o[threadIdx.x] == 1) break; }",
    "barriers": "while (n == 5) { __syncthreads(); }",
    "a spin": "volatile int *p = o; while (p[threadIdx.x] == 0) ;",
    "atomics": "while (atomicAdd(o, 1) != -1) ;",
}


def endless(body: str, **options: object) -> BudgetFault:
    with pytest.raises(BudgetFault) as told:
        run(wrap(body, "int *o, int n"), np.zeros(64, np.int32), 5, block=(64,), **options)
    return told.value


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_seconds_end_it(body: str) -> None:
    begin = time.monotonic()
    fault = endless(body, max_seconds=0.4)
    assert time.monotonic() - begin < 5
    assert fault.kind == "time budget"
    assert "the limit is 0.4 s; 0 of 1 blocks are done" in fault.message
    assert fault.where is not None
    assert fault.where.line == 2
    assert "endless loop" in (fault.hint or "")


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_instructions_end_it(body: str) -> None:
    fault = endless(body, max_instructions=3000)
    assert fault.kind == "instruction budget"
    assert "k issued 3,0" in fault.message
    assert "the limit is 3,000 instructions" in fault.message


def test_the_environment_sets_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMM_LAB_EMULATOR_INSTRUCTIONS", "2e3")
    assert "the limit is 2,000 instructions" in endless(ENDLESS["a spin"]).message
    monkeypatch.setenv("GEMM_LAB_EMULATOR_INSTRUCTIONS", "")
    monkeypatch.setenv("GEMM_LAB_EMULATOR_SECONDS", "0.3")
    assert endless(ENDLESS["a spin"]).kind == "time budget"
    # What the caller says goes before.
    assert endless(ENDLESS["a spin"], max_instructions=500).kind == "instruction budget"


@pytest.mark.parametrize("text", ["many", "0", "-3", "nan", "inf"])
def test_nonsense_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("GEMM_LAB_EMULATOR_SECONDS", text)
    with pytest.raises(UsageError, match=f"GEMM_LAB_EMULATOR_SECONDS is '{text}'"):
        Budget(Options(), "k")
    with pytest.raises(UsageError, match="max_instructions is '0'"):
        Budget(Options(max_instructions=0), "k")


class Clock:
    """Seconds as the test wants them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_looks_come_a_few_times_a_second_however_fast_instructions_are() -> None:
    for rate in (100, 20_000, 3_000_000):
        clock = Clock()
        budget = Budget(Options(max_instructions=10**12), "k", clock)
        looks, steps = 0, 0
        while clock.now < 130:
            steps = budget.next_look + 1
            clock.now = 100 + steps / rate
            budget.look(steps, lambda: None)
            looks += 1
        assert 20 <= looks <= 200


def test_the_end_is_not_missed() -> None:
    """The last look before a limit is at the limit, not a look's length behind it."""
    clock = Clock()
    budget = Budget(Options(max_seconds=1, max_instructions=10**9), "k", clock)

    def go_on() -> None:
        while True:
            steps = budget.next_look + 1
            clock.now = 100 + steps / 1000
            budget.look(steps, lambda: None)

    with pytest.raises(BudgetFault):
        go_on()
    assert clock.now - 100 < 1.3


def test_blocks_that_are_done_tell_what_all_need() -> None:
    clock = Clock()
    budget = Budget(Options(max_seconds=60), "k", clock)
    budget.blocks, budget.blocks_done = 400, 100
    clock.now += 61
    with pytest.raises(BudgetFault, match="at that pace all need 800,000 instructions and 240 s"):
        budget.look(200_000, lambda: None)


def test_a_listener_hears_of_progress() -> None:
    heard: list[Progress] = []
    clock = Clock()
    budget = Budget(Options(progress=heard.append), "k", clock)
    for _ in range(100):
        clock.now += 0.1
        budget.look(1000, lambda: None)
    assert 8 <= len(heard) <= 10
    assert heard[-1].instructions == 1000
    assert heard[-1].max_instructions == 20_000_000


def test_without_one_the_log_has_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    budget = Budget(Options(), "k", clock)
    with caplog.at_level(logging.WARNING, logger="gemm_lab.emulator"):
        for _ in range(900):
            clock.now += 0.1
            budget.look(1000, lambda: None)
    assert len(caplog.records) == 4  # after 10, 20, 40 and 80 seconds
    assert "emulating k for 10 s" in caplog.records[0].message


def test_a_launch_within_its_limits_is_left_alone() -> None:
    o = np.zeros(64, np.int32)
    run(wrap("o[threadIdx.x] = n;", "int *o, int n"), o, 5, block=(64,), max_seconds=30)
    assert (o == 5).all()
