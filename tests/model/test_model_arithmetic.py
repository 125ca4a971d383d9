"""The published arithmetic of one card, at the precision given."""

from __future__ import annotations

import pytest
from model_shapes import SHARED_32, product

from gemm_lab.core.arch import arch_limits
from gemm_lab.errors import UsageError
from gemm_lab.model import (
    Device,
    Level,
    bandwidth_curve,
    bandwidth_gb_s,
    bytes_per_cycle,
    compulsory_bytes,
    device_report,
    find_device,
    ideal_intensity,
    littles_law,
    load_devices,
    no_reuse,
    no_reuse_intensity,
    roofline,
    saturation_occupancy,
    tile_intensity,
    traffic,
)

DEVICES = load_devices()


@pytest.fixture
def ada() -> Device:
    return find_device("RTX 4000 Ada", DEVICES)


def test_the_card(ada: Device) -> None:
    assert (ada.fp32_tflops, ada.dram_gb_s, ada.l2_gb_s) == (26.7, 360, 2500)
    assert (ada.boost_clock_mhz, ada.dram_latency_cycles, ada.smem_latency_cycles) == (
        2175,
        800,
        35,
    )
    assert ada.limits.max_warps_per_sm == 48
    assert ada.limits.smem_per_sm_bytes == 100 * 1024


def test_intensity_ridge_and_crossover(ada: Device) -> None:
    assert no_reuse_intensity(4) == 0.25
    for n in (6, 600, 4096):
        assert ideal_intensity(product(n)) == pytest.approx(n / 6, rel=1e-12)
    dram = roofline(ada).ceiling(Level.DRAM)
    assert round(dram.ridge_flop_per_byte, 2) == 74.17
    assert dram.crossover_n == pytest.approx(445.0, abs=1e-9)
    assert roofline(ada).attainable_tflops(444 / 6) < ada.fp32_tflops
    assert roofline(ada).attainable_tflops(446 / 6) == ada.fp32_tflops


def test_the_two_ends_at_3072(ada: Device) -> None:
    ends = no_reuse(ada, product(3072))
    assert round(ends.flop_count / 1e9, 2) == 57.98
    assert round(ends.compute_ms, 2) == 2.17
    assert round(ends.ideal_bytes / 1e6, 2) == 113.25
    assert round(ends.ideal_dram_ms, 2) == 0.31
    assert round(ends.no_reuse_bytes / 1e9, 2) == 231.93
    assert round(ends.no_reuse_dram_ms, 1) == 644.2
    assert round(ends.no_reuse_dram_ratio) == 297
    assert ends.no_reuse_l2_ms is not None
    assert ends.no_reuse_l2_ratio is not None
    assert round(ends.no_reuse_l2_ms, 1) == 92.8
    assert round(ends.no_reuse_l2_ratio) == 43


@pytest.mark.parametrize("tile", [8, 32, 64, 128])
def test_a_tile_divides_the_traffic(tile: int, ada: Device) -> None:
    n = 1024
    shape = SHARED_32.from_facts(
        {
            "unit": "cuda_core",
            "block_m": tile,
            "block_n": tile,
            "block_k": 8,
            "threads": 64,
            "staging": "registers",
        }
    )
    moved = traffic(shape, product(n), l2_cache_bytes=ada.l2_bytes, resident_blocks=48)
    assert moved.l2_read_bytes == 2 * n**3 / tile * 4
    assert tile_intensity(tile) == tile / 4
    assert 2 * n**3 / moved.l2_read_bytes == tile_intensity(tile)


def test_littles_law(ada: Device) -> None:
    law = littles_law(ada)
    assert round(bytes_per_cycle(360, 2175), 1) == 165.5
    assert round(law.bytes_per_cycle, 1) == 165.5
    assert round(law.bytes_in_flight) == 132_414
    assert bandwidth_gb_s(ada, law.bytes_in_flight / 2) == pytest.approx(180)
    assert bandwidth_gb_s(ada, law.bytes_in_flight * 2) == 360


def test_a_copy_saturates_between_a_third_and_a_half(ada: Device) -> None:
    needed = saturation_occupancy(ada, bytes_per_thread=4)
    assert needed is not None
    assert 1 / 3 <= needed <= 1 / 2
    low, high = bandwidth_curve(ada, [1 / 3, 1 / 2], bytes_per_thread=4)
    assert not low.saturated
    assert high.saturated
    assert high.gb_s == ada.dram_gb_s
    assert low.gb_s > 0.7 * ada.dram_gb_s


def test_the_curve_rises_and_flattens() -> None:
    for device in DEVICES.values():
        if device.dram_latency_cycles is None:
            continue
        points = bandwidth_curve(device, [i / 16 for i in range(1, 17)], bytes_per_thread=16)
        rates = [p.gb_s for p in points]
        assert rates == sorted(rates)
        assert all(p.saturated == (p.gb_s == device.dram_gb_s) for p in points)


def test_h100_bf16_tensor_against_fma() -> None:
    h100 = find_device("h100", DEVICES)
    assert h100.tensor_tflops["bf16"] == pytest.approx(1000, rel=0.02)
    # FMA units do bf16 at twice the fp32 rate: about 120 at the tensor clock of 1830 MHz.
    assert 2 * h100.fp32_tflops * 1830 / 1980 == pytest.approx(120, rel=0.04)


def test_unknown_rates_are_said_not_guessed() -> None:
    b200 = find_device("b200", DEVICES)
    with pytest.raises(UsageError, match="l2_gb_s"):
        littles_law(b200, "l2")
    with pytest.raises(UsageError, match="no l2 rate"):
        roofline(b200).ceiling(Level.L2)
    assert device_report(b200, product(4096)).laws == ()
    with pytest.raises(UsageError, match="unknown level"):
        littles_law(b200, "l3")
    with pytest.raises(UsageError, match="occupancy"):
        bandwidth_curve(find_device("h200", DEVICES), [1.5])
    with pytest.raises(UsageError, match="bytes_per_thread"):
        bandwidth_curve(find_device("h200", DEVICES), [1.0], bytes_per_thread=0)


def test_compulsory_bytes_count_c_twice_with_beta() -> None:
    assert compulsory_bytes(product(8, 4, 2)) == (16 + 8 + 32) * 4
    assert compulsory_bytes(product(8, 4, 2, beta=1.0)) == (16 + 8 + 64) * 4
    assert compulsory_bytes(product(8, 4, 2, batch=3)) == 3 * (16 + 8 + 32) * 4
    assert ideal_intensity(product(0, 4, 2)) == 0.0


def test_arch_of_every_card_is_known() -> None:
    for device in DEVICES.values():
        assert device.limits == arch_limits(device.arch)
