"""Sectors, lines and bank conflicts of single warp instructions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemm_lab.model import bank_wavefronts, global_request, run_sectors

LANES = range(32)
FAR = 1 << 16


@pytest.mark.parametrize(
    ("addresses", "width", "sectors", "lines"),
    [
        ([0] * 32, 4, 1, 1),  # a broadcast
        ([4 * i for i in LANES], 4, 4, 1),  # neighbours
        ([16 * i for i in LANES], 16, 16, 4),
        ([FAR * i for i in LANES], 4, 32, 32),  # a column
        ([4 + 4 * i for i in LANES], 4, 5, 2),  # misaligned
        ([FAR * (i // 8) + 4 * (i % 8) for i in LANES], 4, 4, 4),
    ],
)
def test_global_requests(addresses: list[int], width: int, sectors: int, lines: int) -> None:
    found = global_request(addresses, width)
    assert (found.sectors, found.lines) == (sectors, lines)


@pytest.mark.parametrize(
    ("addresses", "width", "wavefronts"),
    [
        ([0] * 32, 4, 1),
        ([4 * i for i in LANES], 4, 1),
        ([8 * i for i in LANES], 4, 2),
        ([128 * i for i in LANES], 4, 32),
        ([132 * i for i in LANES], 4, 1),  # a pad of one word
        ([8 * i for i in LANES], 8, 2),
        ([8 * (i % 16) for i in LANES], 8, 1),
        ([16 * i for i in LANES], 16, 4),
        ([0] * 32, 16, 2),
        ([16 * (i // 4) for i in LANES], 16, 2),
        ([32 * (i // 4) for i in LANES], 16, 2),  # eight rows of 32 bytes, four a half warp
        ([64 * (i // 2) for i in LANES], 16, 8),
        ([2 * i for i in LANES], 2, 1),
    ],
)
def test_bank_conflicts(addresses: list[int], width: int, wavefronts: int) -> None:
    assert bank_wavefronts(addresses, width) == wavefronts


@given(
    st.integers(1, 64), st.sampled_from([1, 2, 4, 8, 16, 32, 36, 100, 128, 4096]), st.integers(1, 4)
)
def test_mean_sectors_of_runs(elements: int, stride_elements: int, size: int) -> None:
    """The mean over all rows of a pitch, when a run is a multiple of the alignment's step."""
    run, stride = elements * size, stride_elements * size
    mean = sum(
        len({b // 32 for b in range(row * stride, row * stride + run)}) for row in range(32)
    ) / 32  # fmt: skip
    predicted = run_sectors(run, stride)
    assert abs(predicted - mean) <= 1.0
    if run % 32 == 0 and stride % 32 == 0:
        assert predicted == mean


def test_empty_run() -> None:
    assert run_sectors(0, 128) == 0.0
