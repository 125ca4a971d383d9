"""Orders of the tiles of C, run on the emulator: each tile comes once, Hilbert's are neighbours."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from emulator_helpers import run, wrap

from gemm_lab.core.dtypes import dtype
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.variants import Facts, config_of, load_variant, make_spec, render
from gemm_lab.variants.paths import template_root

BATCHES = 2
SMALL = [(m, n) for m in range(1, 14) for n in range(1, 14)]
LARGE = [(16, 16), (32, 32), (64, 64), (1, 300), (300, 1), (127, 3), (4, 90), (97, 64), (33, 50)]
SQUARES = [1, 2, 4, 8, 16, 32, 64]

KERNEL = wrap(
    f"""const int m = shapes[2 * blockIdx.x], n = shapes[2 * blockIdx.x + 1];
    int *to = tiles + 3 * (long long)starts[blockIdx.x];
    for (int i = threadIdx.x; i < {BATCHES} * m * n; i += 256) {{
      const Tile tile = tile_at(i, m, n);
      to[3 * i] = tile.row, to[3 * i + 1] = tile.col, to[3 * i + 2] = tile.batch; }}""",
    "const int *shapes, const int *starts, int *tiles",
)


def code_of(raster: str) -> str:
    """lib/tile_order as a wgmma kernel includes it."""
    variant = load_variant(template_root() / "wgmma.cu.j2")
    bf16 = dtype("bf16")
    problem = GemmProblem(shape=Shape(m=64, n=64, k=64), dtype=bf16, out=bf16.default_out)
    facts = Facts(
        dtype=bf16, out=problem.out, layout=problem.layout,
        alignment=problem.alignment(problem.packed_strides()), arch="sm_90a",
    )  # fmt: skip
    spec = make_spec(variant, facts, config_of(variant, "bf16", {"RASTER": raster}))
    source = render(variant, spec).source
    start = source.index("// ---- lib/tile_order")
    return "constexpr int GROUP_M = 8;\n" + source[start : source.index("// ---- lib/", start + 9)]


@functools.cache
def orders(raster: str) -> dict[tuple[int, int], np.ndarray]:
    """[batches, tiles, (row, col)] of each shape."""
    shapes = SMALL + LARGE
    counts = [BATCHES * m * n for m, n in shapes]
    starts = np.cumsum([0, *counts])[:-1].astype(np.int32)
    tiles = np.full((sum(counts), 3), -1, np.int32)
    run(
        code_of(raster) + KERNEL, np.array(shapes, np.int32), starts, tiles,
        grid=(len(shapes),), block=(256,),
    )  # fmt: skip
    out = {}
    for (m, n), start, count in zip(shapes, starts, counts, strict=True):
        found = tiles[start : start + count].reshape(BATCHES, m * n, 3)
        assert (found[..., 2] == np.arange(BATCHES)[:, None]).all()
        out[m, n] = found[..., :2]
    return out


@pytest.mark.parametrize("raster", ["grouped", "hilbert", "rows", "cols"])
def test_every_tile_comes_once(raster):
    for (m, n), found in orders(raster).items():
        for order in found:
            assert sorted(map(tuple, order.tolist())) == [
                (r, c) for r in range(m) for c in range(n)
            ]


@pytest.mark.parametrize("size", SQUARES)
def test_neighbours_on_hilberts_curve_share_an_edge(size):
    known = orders("hilbert")
    steps = np.abs(np.diff(known[size, size][0], axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_in_any_rectangle_a_step_is_a_corner_at_most():
    for (m, n), found in orders("hilbert").items():
        steps = np.abs(np.diff(found[0], axis=0))
        assert steps.max(initial=0) <= 1, (m, n)
        # An odd number of tiles may need one diagonal, no more.
        assert (steps.sum(axis=1) == 2).sum() <= 1, (m, n)


def test_tiles_in_flight_are_nearly_square():
    """66 clusters at once need fewer rows of A and columns of B than in plain order."""

    def bands(raster: str) -> float:
        order = orders(raster)[97, 64][0]
        waves = [order[i : i + 66] for i in range(0, len(order) - 66, 66)]
        return float(np.mean([len(set(w[:, 0])) + len(set(w[:, 1])) for w in waves]))

    assert bands("hilbert") < 26
    assert bands("hilbert") < 0.5 * bands("rows")
