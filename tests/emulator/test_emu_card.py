"""The emulator held to what Nsight Compute counted and the card computed, of the very same PTX.

benchmarks/results/counters_h200.json is made by benchmarks/hardware.py, which also says how.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemm_lab import jit
from gemm_lab.core.kernel import CompiledKernel
from gemm_lab.emulator import Options
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.emulator.findings import Counters
from gemm_lab.variants import Variant, render

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from hardware import ARCH, cuda_core_rungs, launched, spec_of  # noqa: E402

RECORDED = json.loads((ROOT / "benchmarks/results/counters_h200.json").read_text(encoding="utf-8"))
RUNGS = [v for v in cuda_core_rungs() if v.name in RECORDED["rungs"]]
# Equal to the digit.
EXACT = (
    "global_store_requests",
    "global_store_sectors",
    "shared_load_instructions",
    "shared_store_instructions",
)


def compiled_as_recorded(variant: Variant) -> CompiledKernel:
    """The kernel, if this NVRTC makes the PTX that ran on the card."""
    compiled = jit.compile_kernel(render(variant, spec_of(variant, 1024)))
    known = RECORDED["rungs"][variant.name]
    if compiled.nvrtc_version != known["nvrtc"]:
        pytest.skip(f"recorded with NVRTC {known['nvrtc']}, this is {compiled.nvrtc_version}")
    assert compiled.ptx_hash == known["ptx_hash"], "the template changed: record again"
    return compiled


def execute(variant: Variant, size: int, options: Options) -> tuple[Any, Any]:
    """C and the report of one launch."""
    backend = EmulatorBackend(arch=ARCH, options=options, sm_count=132)
    backend.reports = []
    trial = launched(backend, compiled_as_recorded(variant), variant, size)
    return trial.result()[0], backend.reports[-1]


@pytest.mark.parametrize("variant", RUNGS, ids=lambda v: v.name)
def test_every_bit_is_the_card_s(variant: Variant) -> None:
    known = RECORDED["rungs"][variant.name]["outputs"]
    result, _ = execute(variant, known["size"], Options(exact_fma=True))
    found = hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()
    assert found == known["sha256"]


def requests_of_scalar_copies(counters: Counters) -> int:
    """Warp instructions of cp.async that copy 4 bytes a lane."""
    return sum(
        line.async_copy_requests
        for line in counters.lines.values()
        if line.async_copy_bytes == 32 * 4 * line.async_copy_requests
    )


@pytest.mark.parametrize("variant", RUNGS, ids=lambda v: v.name)
def test_counters_are_nsight_compute_s(variant: Variant) -> None:
    known = RECORDED["rungs"][variant.name]["counters"]["1024"]
    _, report = execute(variant, 1024, Options(counters="all"))
    total = report.counters.total
    for name in EXACT:
        assert getattr(total, name) == int(known[name]), name
    # The card counts loads and copies by cp.async together, and copies apart: through L1 (4 bytes
    # a lane) and past it (16). Through L1 the sectors are equal. Past it a copy of 16 sectors is 18
    # to the one metric and 24 to the other.
    past_l1 = total.async_copy_requests - requests_of_scalar_copies(report.counters)
    requests = total.global_load_requests + total.async_copy_requests
    sectors = total.global_load_sectors + total.async_copy_sectors
    assert requests == int(known["global_load_requests"])
    assert sectors + 2 * past_l1 == int(known["global_load_sectors"])
    assert (total.async_copy_requests > 0) == (variant.name == "simt_async")
    assert total.async_copy_requests - past_l1 == int(known["async_copy_requests_ca"])
    assert past_l1 == int(known["async_copy_requests_cg"])
    assert total.async_copy_sectors - 16 * past_l1 == int(known["async_copy_sectors_ca"])
    assert 24 * past_l1 == int(known["async_copy_sectors_cg"])
    assert total.fma == int(known["ffma"])
    # Where no addresses collide the card has none either, but for the odd clash of two warps.
    assert total.shared_load_conflicts <= known["shared_load_conflicts"]
    assert known["shared_load_conflicts"] <= 0.001 * max(known["shared_load_instructions"], 1)
