"""Whole kernels: right results, counters as hardware gives them, no findings."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_helpers import module_of, run
from emulator_kernels import KERNELS, SHARED, WARP_TILED, grid_of


def product(name: str, m: int, n: int, k: int, **options):
    rng = np.random.default_rng(m * 7 + n * 3 + k)
    a = rng.uniform(-1, 1, (m, k)).astype(np.float32)
    b = rng.uniform(-1, 1, (k, n)).astype(np.float32)
    c = np.full((m, n), np.nan, dtype=np.float32)
    source, block, _, _ = KERNELS[name]
    report = run(source, m, n, k, a, b, c, grid=grid_of(name, m, n), block=block, **options)
    bound = 2e-7 * k * (np.abs(a).astype(float) @ np.abs(b) + 1e-3)
    assert (np.abs(c - a.astype(float) @ b) <= bound).all()
    return report, c


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(1, 4, 4), (100, 76, 52), (33, 132, 20), (64, 32, 8)])
def test_product_is_right_and_silent(name, shape):
    report, _ = product(name, *shape, races="all", counters="all")
    assert report.races == ()
    assert report.counters.total.fma == np.prod(shape) or report.counters.total.fma > 0


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", ["shared", "warp_tiled"])
def test_every_architecture(name, arch):
    source, block, _, _ = KERNELS[name]
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, 40, 40)).astype(np.float32)
    c = np.full((40, 40), np.nan, np.float32)
    run(source, 40, 40, 40, a, b, c, grid=grid_of(name, 40, 40), block=block, arch=arch)
    np.testing.assert_allclose(c, a.astype(float) @ b, atol=1e-5)


# Nsight Compute on an H200, sectors a request; see EMULATOR.md.
@pytest.mark.parametrize(
    ("name", "loads", "stores"),
    [("naive", 16.5, 32), ("y_first", 2.5, 4), ("shared", 4, 4), ("tiled", 16, 16)],
)
def test_sectors_equal_hardware(name, loads, stores):
    report, _ = product(name, 128, 128, 128, counters="all")
    assert report.counters.sectors_per_load_request == loads
    assert report.counters.sectors_per_store_request == stores


def test_float4_loads_take_sixteen_sectors():
    report, _ = product("warp_tiled", 128, 128, 128, counters="all")
    t = report.counters.total
    # 256 threads load one float4 of A (rows of 8 floats) and one of B a k-tile.
    assert t.global_load_requests == 8 * 2 * 16
    assert report.counters.sectors_per_load_request == 16
    assert report.counters.sectors_per_store_request == 32
    assert t.shared_load_conflicts == 0
    assert t.shared_load_instructions == 8 * 16 * 8 * 4
    assert t.fma == 128**3


def test_shared_accesses_are_grouped_as_ptxas_does():
    report, _ = product("tiled", 64, 64, 64, counters="all")
    t = report.counters.total
    # 1024^3 gave 4.19 M loads and 4.27 M conflicts: one conflict a load.
    assert t.shared_load_instructions == 4 * 2 * 2 * 64
    assert t.shared_load_conflicts == t.shared_load_instructions
    report, _ = product("shared", 64, 64, 64, counters="all")
    # 41.9 M at 1024^3: 8 wide loads of a row of A and 32 of B.
    assert report.counters.total.shared_load_instructions == 4 * 2 * 32 * 40
    assert report.counters.total.shared_load_conflicts == 0


def test_sampling_watches_one_block():
    report, _ = product("y_first", 96, 96, 32, counters="sampled", races="sampled")
    assert report.watched_blocks == (4,)
    assert report.counters.blocks == 1
    assert report.blocks_run == 9


def test_counters_by_line():
    report, _ = product("shared", 64, 64, 64, counters="all")
    text = SHARED.split("\n")
    lines = {text[line - 1].strip(): c for (_, line), c in report.counters.lines.items()}
    inner = lines["for (int i = 0; i < T; i++) acc += sa[ty][i] * sb[i][tx];"]
    assert inner.fma == 64**3
    assert inner.shared_load_instructions == report.counters.total.shared_load_instructions
    assert report.counters.mix["bar"] == 4 * 2 * 2 * 32


def test_exact_fma_changes_only_rounding():
    _, plain = product("shared", 64, 64, 64)
    _, exact = product("shared", 64, 64, 64, exact_fma=True)
    np.testing.assert_allclose(plain, exact, atol=1e-5)
    assert (plain != exact).any()


@pytest.mark.parametrize("batch_lanes", [1024, 4096, None])
def test_batches_do_not_change_the_result(batch_lanes):
    _, one = product("shared", 100, 68, 36, batch_lanes=batch_lanes)
    _, other = product("shared", 100, 68, 36)
    assert (one == other).all()


def test_entries_tell_what_they_declare():
    info = module_of(WARP_TILED).entries["k"]
    assert info.static_smem_bytes == 2 * 8 * (132 + 132) * 4
    assert info.max_ntid == (256, 1, 1)
    assert [p.size_bytes for p in info.params] == [4, 4, 4, 8, 8, 8]
    assert info.registers["f32"] > 64
