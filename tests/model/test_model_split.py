"""Pieces of K and orders of tiles, as the model sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from model_shapes import WARPGROUPS, product

from gemm_lab.lab.candidates import checked_spec
from gemm_lab.lab.modelling import model_facts
from gemm_lab.lab.prepare import Request
from gemm_lab.model import find_device, load_devices, predict, traffic
from gemm_lab.variants import Catalogue

L2_BYTES = 50 << 20


def facts(**tunables: object) -> dict[str, object]:
    variant = Catalogue().get("wgmma")
    problem = product(4096, name="bf16", layout="nt")
    spec, _ = checked_spec(Request.of(variant, "bf16", tunables), problem, "sm_90a")
    return model_facts(variant, spec)


def moved(split_k: int, *, name: str = "bf16", beta: float = 0.0):
    shape = replace(WARPGROUPS, split_k=split_k)
    return traffic(
        shape, product(1024, name=name, beta=beta), l2_cache_bytes=L2_BYTES, resident_blocks=132
    )


def test_a_piece_writes_a_sum_of_its_own() -> None:
    """In the accumulator's type, once a piece; what the pieces read is the same in all."""
    outputs = 1024 * 1024
    assert moved(1).l2_write_bytes == outputs * 2
    for pieces in (2, 4, 8):
        assert moved(pieces).l2_write_bytes == outputs * 4 * pieces
        assert moved(pieces).l2_read_bytes == moved(1).l2_read_bytes
        asked = moved(pieces).requested_bytes - moved(1).requested_bytes
        assert asked == outputs * (4 * pieces - 2)


def test_pieces_do_not_read_c() -> None:
    assert moved(1, beta=1.0).l2_read_bytes > moved(1).l2_read_bytes
    assert moved(2, beta=1.0).l2_read_bytes == moved(2).l2_read_bytes


def test_splitting_fills_the_card() -> None:
    """4 x 2 tiles of C and a deep K leave most of 132 multiprocessors idle."""
    card = find_device("h200", load_devices())
    problem = product(512, 512, 16384, name="bf16", layout="nt")
    whole, split = (predict(card, replace(WARPGROUPS, split_k=s), problem) for s in (1, 16))
    assert (whole.waves.blocks, split.waves.blocks) == (8, 128)
    assert split.time_ms < whole.time_ms / 4


@pytest.mark.parametrize("pieces", [1, 4])
def test_wgmma_tells_its_pieces(pieces: int) -> None:
    assert facts(SPLIT_K=pieces)["split_k"] == pieces


@pytest.mark.parametrize(
    ("tunables", "rows"),
    [
        ({}, 16), ({"GROUP_M": 4}, 8), ({"CLUSTER_M": 1}, 8), ({"RASTER": "rows"}, 2),
        ({"RASTER": "hilbert"}, 16), ({"RASTER": "hilbert", "GROUP_M": 4}, 16),
    ],
)  # fmt: skip
def test_wgmma_tells_how_many_rows_of_blocks_go_together(
    tunables: dict[str, object], rows: int
) -> None:
    assert facts(**tunables)["group_m"] == rows


def test_rows_in_flight_decide_what_dram_must_send() -> None:
    """Square patches of blocks fetch less than rows of them where the inputs exceed the L2."""
    problem = product(16384, name="bf16", layout="nt")

    def dram_bytes(group_m: int) -> float:
        shape = replace(WARPGROUPS, group_m=group_m)
        return traffic(shape, problem, l2_cache_bytes=L2_BYTES, resident_blocks=132).dram_bytes

    assert dram_bytes(16) < dram_bytes(1)
    assert dram_bytes(16) < dram_bytes(65536)
