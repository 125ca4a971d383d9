"""A whole warp-specialised kernel: right, silent, and its mutants are caught."""

# ruff: noqa: E501 - mutants read better whole

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulator_helpers import run
from tensor_kernels import HOPPER, WARP_SPECIALIZED, wgmma_call
from test_emu_tensor import tensor_map

from gemm_lab.emulator import EmulatorFault, Memory

SOURCE = HOPPER + wgmma_call(128, "bf16.bf16") + WARP_SPECIALIZED
SMEM_BYTES = 4 * 32768 + 32768 + 128


def product(source: str, m: int, n: int, k: int, blocks: int, **options):
    """C and whether it is right; `blocks` may be fewer than the tiles."""
    rng = np.random.default_rng(m + n + k)
    a = rng.uniform(-1, 1, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.uniform(-1, 1, (n, k)).astype(ml_dtypes.bfloat16)
    c = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    memory = Memory(64 << 20)
    _, map_a = tensor_map(memory, a, (64, 128))
    _, map_b = tensor_map(memory, b, (64, 64))
    buffer, map_c = tensor_map(memory, c, (128, 64), "none")
    report = run(
        source, m, n, k, map_a, map_b, map_c, grid=(blocks,), block=(384,), arch="sm_90a",
        memory=memory, smem_bytes=SMEM_BYTES, **options,
    )  # fmt: skip
    got = memory.download(buffer, np.uint16, (m, n)).view(ml_dtypes.bfloat16).astype(float)
    want = a.astype(float) @ b.astype(float).T
    return bool(np.allclose(got, want, rtol=1e-2, atol=2e-2)), report


@pytest.mark.parametrize(
    ("m", "n", "k", "blocks"), [(256, 128, 64, 2), (200, 136, 200, 2), (520, 264, 328, 4)]
)
def test_right_and_silent(m, n, k, blocks):
    right, report = product(SOURCE, m, n, k, blocks, races="all", counters="all")
    assert right
    assert report.races == ()
    assert report.counters.total.multicast_saved_bytes > 0
    assert report.counters.total.tensor_flop >= 2 * m * n * k


MUTANTS = [
    ("wait(empty + 8 * stage, phase ^ 1);", ""),
    ("wait(empty + 8 * stage, phase ^ 1);", "wait(empty + 8 * stage, phase);"),
    ("wait(full + 8 * stage, phase);", ""),
    ("wait(full + 8 * stage, phase);", "wait(full + 8 * stage, phase ^ 1);"),
    ("expect(bar, STAGE_BYTES);", "expect(bar, STAGE_BYTES - 16);"),
    ("expect(bar, STAGE_BYTES);", "expect(bar, A_BYTES);"),
    ("init(empty + 8 * s, 4)", "init(empty + 8 * s, 3)"),
    ("init(empty + 8 * s, 4)", "init(empty + 8 * s, 5)"),
    ("if (t < 2) arrive_at(empty + 8 * stage, t);", "if (t < 1) arrive_at(empty + 8 * stage, t);"),
    ("wg_wait();\n        if", "if"),
    ("wg_fence();", ""),
    ("col + rank * (BN / 2), bar, 3)", "col + rank * (BN / 2), bar, 1)"),
    ("rank * (B_BYTES / 2)", "0"),
    ("descriptor(a + 32 * s, 16, 1024)", "descriptor(a + 32 * s, 16, 2048)"),
    ("descriptor(b + 32 * s, 16, 1024)", "descriptor(b, 16, 1024)"),
    ("group_sync(1 + wg);  // the last tile has left the staging buffer", ""),
    ("group_sync(1 + wg);  // the tile is complete", ""),
    ("proxy_fence();\n", "\n"),
    ("if (t == 0) bulk_wait_read();\n      group_sync", "group_sync"),
    ("if (++stage == STAGES) stage = 0, phase ^= 1;\n      }\n      if", "if (++stage == STAGES) stage = 0;\n      }\n      if"),
    ("232;", "248;"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_mutants_are_caught(number):
    old, new = MUTANTS[number]
    source = SOURCE.replace(old, new, 1)
    assert source != SOURCE
    try:
        right, report = product(source, 520, 136, 392, 2, races="all", max_instructions=300_000)
    except EmulatorFault:
        return
    assert report.races or not right
