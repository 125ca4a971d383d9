"""Traffic, bounds and times of kernels, against what was measured and against each other."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import ceil

import pytest
from model_shapes import (
    COLUMN_LANES,
    LADDER,
    REGISTER_TILE_8,
    ROW_LANES,
    SHARED_32,
    WARP_TILE,
    WARPGROUPS,
    product,
)

from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import UsageError
from gemm_lab.model import (
    BlockResources,
    BoundName,
    KernelShape,
    Level,
    Limiter,
    SharedOperand,
    Traffic,
    UnitClass,
    hardware_occupancy,
    load_devices,
    model_report,
    occupancy_paddings,
    occupancy_prediction,
    peak_tflops,
    predict,
    traffic,
)

DEVICES = load_devices()
H200, ADA, V100S = DEVICES["h200"], DEVICES["rtx_4000_ada"], DEVICES["v100s"]


def moved(shape: KernelShape, problem: GemmProblem) -> Traffic:
    return traffic(shape, problem, l2_cache_bytes=H200.l2_bytes, resident_blocks=264)


def test_sectors_a_request_of_the_first_two_rungs() -> None:
    column, row = moved(COLUMN_LANES, product(4096)), moved(ROW_LANES, product(4096))
    assert column.sectors_per_load_request == 16.5  # A 32, B 1
    assert column.sectors_per_store_request == 32
    assert row.sectors_per_load_request == 2.5  # A 1, B 4
    assert row.sectors_per_store_request == 4


def test_repeated_reads_of_a_block_hit_the_l1() -> None:
    problem = product(4096)
    for shape in (COLUMN_LANES, ROW_LANES, SHARED_32):
        assert moved(shape, problem).l2_read_bytes == 2 * 4096**3 / 32 * 4
    asked = moved(ROW_LANES, problem).requested_bytes - 4096**2 * 4
    assert asked == 2 * 4096**3 * 4


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("shape", [ROW_LANES, SHARED_32, WARP_TILE])
def test_ragged_l2_reads_follow_the_sectors(shape: KernelShape, layout: str) -> None:
    """Count the sectors that the blocks of a ragged product touch, one by one."""
    m, n, k = 100, 76, 52
    problem = replace(product(m, n, k), layout=layout)
    size = 4

    def touched(outer: int, block: int, inner_contiguous: bool) -> int:
        total = 0
        for first in range(0, outer, block):
            last = min(first + block, outer)
            if inner_contiguous:  # rows of length k
                runs = [(row * k, k) for row in range(first, last)]
            else:  # k rows of a piece of `outer`
                runs = [(step * outer + first, last - first) for step in range(k)]
            for start, length in runs:
                total += (
                    ((start + length) * size - 1) // 32 - start * size // 32 + 1
                )  # fmt: skip
        return total

    a = touched(m, shape.block_m, layout[0] == "n") * ceil(n / shape.block_n)
    b = touched(n, shape.block_n, layout[1] == "t") * ceil(m / shape.block_m)
    assert moved(shape, problem).l2_read_bytes == pytest.approx(32 * (a + b), rel=0.02)


def test_beta_reads_c() -> None:
    plain, with_c = moved(SHARED_32, product(512)), moved(SHARED_32, product(512, beta=1.0))
    assert with_c.l2_read_bytes - plain.l2_read_bytes == 512 * 512 * 4
    assert with_c.l2_write_bytes == plain.l2_write_bytes
    assert with_c.requested_bytes > plain.requested_bytes


def test_batch_multiplies() -> None:
    one, five = moved(SHARED_32, product(512)), moved(SHARED_32, product(512, batch=5))
    assert five.l2_bytes == 5 * one.l2_bytes
    assert five.shared_bytes == 5 * one.shared_bytes


def test_multicast_shares_fetches() -> None:
    problem = product(4096, name="bf16", layout="nt")
    alone = moved(replace(WARPGROUPS, cluster_m=1), problem).l2_read_bytes
    band = 4096 * 4096 * 2
    assert alone == band * (4096 / 256 + 4096 / 128)
    assert moved(WARPGROUPS, problem).l2_read_bytes == band * (4096 / 256 + 4096 / 256)


def test_dram_is_between_compulsory_and_l2() -> None:
    for shape in LADDER:
        for n in (256, 1000, 4096, 8192):
            found = moved(shape, product(n))
            assert found.compulsory_bytes <= found.dram_bytes
            assert found.dram_bytes <= max(found.l2_bytes, found.compulsory_bytes)
    assert moved(SHARED_32, product(1024)).dram_bytes == 3 * 1024**2 * 4


def test_grouped_order_saves_dram() -> None:
    problem = product(16384)
    rows = moved(replace(WARP_TILE, group_m=1), problem).dram_bytes
    grouped = moved(replace(WARP_TILE, group_m=16), problem).dram_bytes
    assert grouped < rows


def test_no_shared_memory_no_shared_traffic() -> None:
    assert moved(ROW_LANES, product(512)).shared_bytes == 0
    report = model_report(H200, product(512), ROW_LANES)
    assert [row.level for row in report.levels] == [Level.DRAM, Level.L2]


# ---- times -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "n", "shape", "measured_tflops", "within"),
    [
        (H200, 4096, COLUMN_LANES, 0.50, 0.05),
        (H200, 4096, ROW_LANES, 4.4, 0.10),
        (H200, 4096, SHARED_32, 8.7, 0.15),
        (V100S, 4096, COLUMN_LANES, 0.245, 0.05),
        (V100S, 4096, ROW_LANES, 1.89, 0.10),
        (ADA, 3072, SHARED_32, 3.06, 0.10),
        (ADA, 3072, REGISTER_TILE_8, 8.82, 0.10),
    ],
)
def test_prediction_against_published_measurements(
    device: object, n: int, shape: KernelShape, measured_tflops: float, within: float
) -> None:
    found = predict(device, shape, product(n))  # type: ignore[arg-type]
    assert found.tflops == pytest.approx(measured_tflops, rel=within)


def test_each_rung_is_predicted_faster_than_the_one_before() -> None:
    rates = [predict(H200, shape, product(4096)).tflops for shape in LADDER]
    assert rates == sorted(rates)
    # An upper bound: 38.3 was measured for the warp tile, 51 to 55.6 for the best known.
    assert 38.3 <= rates[-1] <= 55.6


def test_bounds_of_the_ladder_on_the_h200() -> None:
    found = [predict(H200, shape, product(4096)) for shape in LADDER]
    assert [p.bound for p in found] == [
        BoundName.L1,
        BoundName.L1,
        BoundName.SMEM,
        BoundName.SMEM,
        BoundName.REGISTERS,
    ]
    assert [p.busiest.unit_class for p in found] == [UnitClass.L1TEX] * 4 + [UnitClass.SM]


def test_the_bigger_tile_loses_on_a_small_product() -> None:
    small = predict(ADA, SHARED_32, product(256))
    big = predict(ADA, REGISTER_TILE_8, product(256))
    assert big.tflops < small.tflops
    assert big.bound == BoundName.LATENCY
    assert big.waves.efficiency == pytest.approx(4 / 48)


def test_tensor_cores_run_near_their_peak() -> None:
    found = predict(H200, WARPGROUPS, product(4096, name="bf16", layout="nt"))
    assert found.busiest.name == BoundName.TENSOR
    assert 0.9 < found.share_of_peak <= 1.0


def test_nothing_is_faster_than_the_peak() -> None:
    for device in DEVICES.values():
        for shape in LADDER:
            for n in (1, 33, 256, 2048, 4096):
                found = predict(device, shape, product(n))
                assert 0 < found.tflops <= peak_tflops(device, "fp32")
                assert found.bounds[0].share == 1.0
                assert all(0 <= b.share <= 1 for b in found.bounds)
                shares = [b.share for b in found.bounds]
                assert shares == sorted(shares, reverse=True)


def test_waves() -> None:
    waves = predict(H200, WARP_TILE, product(4096)).waves
    assert waves.blocks == 1024
    assert waves.blocks_per_wave == 264
    assert waves.waves == pytest.approx(1024 / 264)
    assert waves.tail_blocks == 1024 - 3 * 264
    assert waves.efficiency == pytest.approx(1024 / (132 * 8))


def test_a_measured_ceiling_slows_the_prediction() -> None:
    from gemm_lab.model import MeasuredCeilings

    slow = H200.with_measured(MeasuredCeilings(smem_gb_s=H200.smem_gb_s / 2))
    plain = predict(H200, SHARED_32, product(4096)).tflops
    assert model_report(slow, product(4096), SHARED_32).prediction.tflops == pytest.approx(
        plain / 2
    )


def test_what_cannot_be_predicted() -> None:
    with pytest.raises(UsageError, match="nothing is multiplied"):
        predict(H200, SHARED_32, product(0, 4, 4))
    with pytest.raises(UsageError, match=r"does not fit .*: shared memory"):
        predict(H200, replace(SHARED_32, dynamic_smem_bytes=300_000), product(64))
    with pytest.raises(UsageError, match="no bf16 peak"):
        predict(V100S, WARPGROUPS, product(64, name="bf16"))


# ---- the description -------------------------------------------------------------------------


def test_a_shape_from_plain_facts() -> None:
    facts = {
        "unit": "cuda_core", "block_m": 64, "block_n": 64, "block_k": 8, "threads": 64,
        "staging": "registers", "shared_a": {"k_contiguous": True, "pitch_elements": 9},
    }  # fmt: skip
    shape = KernelShape.from_facts(facts)
    assert shape.shared_a == SharedOperand(k_contiguous=True, pitch_elements=9)
    assert shape.warps == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tiles": 3}, "unknown fact 'tiles'"),
        ({"shared_a": {"pad": 1}}, r"unknown fact 'shared_a\.pad'"),
        ({"unit": "npu"}, "unit 'npu'"),
        ({"staging": "magic"}, "staging 'magic'"),
        ({"block_m": 0}, "block_m = 0"),
        ({"block_m": "64"}, "block_m = '64': must be a whole number"),
        ({"stages": True}, "stages = True: must be a whole number"),
        ({"lanes_m": 3}, "a warp has 32 lanes"),
        ({"registers_per_thread": -1}, "registers_per_thread = -1"),
    ],
)
def test_bad_facts(change: dict[str, object], message: str) -> None:
    facts = {"unit": "cuda_core", "block_m": 8, "block_n": 8, "block_k": 8, "threads": 64}
    with pytest.raises(UsageError, match=message):
        KernelShape.from_facts({**facts, **change})


def test_missing_facts_are_named() -> None:
    with pytest.raises(UsageError, match="needs block_n, threads"):
        KernelShape.from_facts({"unit": "tensor", "block_m": 8, "block_k": 8})


def test_store_conflicts_cost_cycles() -> None:
    twice = moved(replace(SHARED_32, shared_store_ways=2), product(512))
    once = moved(SHARED_32, product(512))
    assert twice.shared_store_wavefronts == 2 * once.shared_store_wavefronts


def test_wide_shared_loads_along_k() -> None:
    """ptxas joins four K steps of a broadcast row into one 16-byte load: two cycles for four."""
    scalar = replace(SHARED_32, shared_a=SharedOperand(k_contiguous=True))
    warp_steps = 512**3 / 32
    assert moved(scalar, product(512)).shared_load_wavefronts == 2 * warp_steps
    assert moved(SHARED_32, product(512)).shared_load_wavefronts == 1.5 * warp_steps
    assert moved(SHARED_32, product(512)).shared_load_requests == 1.25 * warp_steps


def test_padding_takes_conflicts_away() -> None:
    """Rows of 32 floats, read down a column by four rows of lanes: four words in one bank."""
    shape = KernelShape(
        unit="cuda_core", block_m=32, block_n=32, block_k=32, threads=64, thread_m=4, thread_n=4,
        lanes_m=4, lanes_n=8, staging="registers", shared_a=SharedOperand(k_contiguous=True),
    )  # fmt: skip
    padded = replace(shape, shared_a=SharedOperand(k_contiguous=True, pitch_elements=33))
    swizzled = replace(shape, shared_a=SharedOperand(k_contiguous=True, swizzled=True))
    problem = product(512)
    with_conflicts, without = moved(shape, problem), moved(padded, problem)
    assert with_conflicts.shared_load_requests == without.shared_load_requests
    a_requests = without.shared_load_requests / 2
    assert with_conflicts.shared_load_wavefronts - without.shared_load_wavefronts == 3 * a_requests
    assert moved(swizzled, problem).shared_load_wavefronts == without.shared_load_wavefronts


# ---- occupancy by hand -----------------------------------------------------------------------


@pytest.mark.parametrize("key", DEVICES)
@pytest.mark.parametrize("threads", [128, 256, 1024])
def test_paddings_reach_every_number_of_blocks(key: str, threads: int) -> None:
    limits = DEVICES[key].limits
    block = BlockResources(threads=threads, registers_per_thread=24)
    pads = occupancy_paddings(limits, block)
    assert pads[0] == 0
    blocks = [
        hardware_occupancy(limits, replace(block, dynamic_smem_bytes=pad)).blocks_per_sm
        for pad in pads
    ]
    assert len(set(blocks)) == len(blocks)
    assert blocks == sorted(blocks, reverse=True)
    assert blocks[-1] >= 1


def test_the_occupancy_experiment() -> None:
    block = BlockResources(threads=256, registers_per_thread=24)
    pads = occupancy_paddings(H200.limits, block)
    points = occupancy_prediction(H200, block, pads, bytes_per_thread=16)
    rates = [p.predicted_gb_s for p in points]
    assert rates == sorted(rates, reverse=True)
    assert points[0].saturated
    assert points[0].predicted_gb_s == H200.dram_gb_s
    assert not points[-1].saturated
    assert points[-1].occupancy.limiters == (Limiter.SMEM,)
    with pytest.raises(UsageError, match="no block fits"):
        occupancy_prediction(H200, block, [300_000], bytes_per_thread=16)


# ---- the report ------------------------------------------------------------------------------


def test_the_report_is_whole() -> None:
    report = model_report(ADA, product(3072), SHARED_32)
    assert [row.level for row in report.levels] == list(Level)
    for row in report.levels:
        assert row.time_ms is not None
        assert row.attainable_tflops is not None
        assert row.gb_s is not None
        assert row.time_ms == pytest.approx(row.bytes / row.gb_s / 1e6)
    assert report.textbook.blocks_per_sm == 1
    assert report.hardware.limiters == (Limiter.WARPS,)
    assert report.bound in {b.name for b in report.prediction.bounds}
    assert report.about.ends.flop_count == 2 * 3072**3
    assert {law.level for law in report.about.laws} == {"dram", "l2"}
    assert any(row.current for row in report.what_if)
    assert report.steps[0].blocks_per_sm == 1
    assert report.bytes_in_flight_per_sm == 2 * 32 * 32 * 4
    assert (
        model_report(
            H200, product(4096, name="bf16", layout="nt"), WARPGROUPS
        ).bytes_in_flight_per_sm
        == 3 * (128 + 256) * 64 * 2
    )


def test_the_report_is_plain_data() -> None:
    """Everything in it goes into JSON without NaN or infinity."""
    for device in DEVICES.values():
        for shape in LADDER:
            report = model_report(device, product(100, 77, 50), shape)
            json.dumps(asdict(report), allow_nan=False)


def test_a_level_without_a_known_rate_has_no_time() -> None:
    report = model_report(DEVICES["rtx_5090"], product(4096), SHARED_32)
    l2 = next(row for row in report.levels if row.level == Level.L2)
    assert (l2.gb_s, l2.time_ms, l2.attainable_tflops) == (None, None, None)
    assert BoundName.L2 not in {b.name for b in report.prediction.bounds}
    assert BoundName.LATENCY not in {b.name for b in report.prediction.bounds}
