"""Planted races are found with both lines; the repaired kernels are silent."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import numpy as np
import pytest
from emulator_helpers import HALF_HEADERS, run, wrap
from emulator_kernels import SHARED, WARP_TILED

HEAD = """
__device__ void sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : "memory"); }
__device__ void arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : "memory"); }
"""

# name: (racy body, repaired body)
PAIRS = {
    "missing barrier": (
        "__shared__ int s[64]; s[t] = t;\n o[t] = s[63 - t];",
        "__shared__ int s[64]; s[t] = t; __syncthreads();\n o[t] = s[63 - t];",
    ),
    "overwritten too early": (
        "__shared__ int s[64]; s[t] = t; __syncthreads(); int v = s[63 - t];\n s[t] = 5; __syncthreads(); o[t] = v + s[t];",
        "__shared__ int s[64]; s[t] = t; __syncthreads(); int v = s[63 - t]; __syncthreads();\n s[t] = 5; o[t] = v + s[t];",
    ),
    "two lanes, one address": (
        "__shared__ int s[64];\n s[t / 2] = t; __syncthreads(); o[t] = s[t / 2];",
        "__shared__ int s[64];\n if (t % 2 == 0) s[t / 2] = t; __syncthreads(); o[t] = s[t / 2];",
    ),
    "lanes of a warp": (
        "__shared__ int s[64]; s[t] = t;\n o[t] = s[t ^ 1];",
        "__shared__ int s[64]; s[t] = t; __syncwarp();\n o[t] = s[t ^ 1];",
    ),
    "neighbouring bytes": (
        "__shared__ unsigned char s[64]; s[t] = t;\n o[t] = s[t ^ 1];",
        "__shared__ unsigned char s[64]; s[t] = t;\n o[t] = s[t];",
    ),
    "neighbouring halves": (
        "__shared__ short s[64]; s[t] = t;\n o[t] = s[(t + 1) % 64];",
        "__shared__ short s[64]; s[t] = t; o[t] = s[t];",
    ),
    "plain and atomic": (
        "__shared__ int s[2]; if (t < 2) s[t] = 0;\n atomicAdd(s, 1); __syncthreads(); o[t] = s[0];",
        "__shared__ int s[2]; if (t < 2) s[t] = 0; __syncthreads();\n atomicAdd(s, 1); __syncthreads(); o[t] = s[0];",
    ),
    "wrong named barrier": (
        "__shared__ int s[64]; if (t < 32) { s[t] = t; arrive(1, 64); } else { arrive(2, 64);\n o[t] = s[t - 32]; } if (t < 32) sync(2, 64); else sync(1, 64);",
        "__shared__ int s[64]; if (t < 32) { s[t] = t; arrive(1, 64); } else { arrive(2, 64); sync(1, 64);\n o[t] = s[t - 32]; } if (t < 32) sync(2, 64);",
    ),
    "barrier of half the block": (
        "__shared__ int s[128]; s[t] = t; sync(1 + t / 64, 64);\n o[t] = s[127 - t];",
        "__shared__ int s[128]; s[t] = t; sync(1 + t / 64, 64);\n o[t] = s[t / 64 * 64 + 63 - t % 64];",
    ),
    "global in a block": (
        "o[t] = t;\n int v = o[127 - t]; __syncthreads(); o[t] = v;",
        "o[t] = t; __syncthreads(); int v = o[127 - t]; __syncthreads(); o[t] = v;",
    ),
    "global, two lanes": ("\n o[t / 2] = t;", "\n o[t] = t;"),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_planted(name):
    for body, racy in zip(PAIRS[name], (True, False), strict=True):
        size = 128 if name.startswith(("barrier", "global")) else 64
        source = wrap("int t = threadIdx.x;\n" + body, "int *o", HEAD)
        report = run(source, np.zeros(128, np.int32), block=(size,), races="all", grid=(1,))
        assert bool(report.races) == racy, report.races
        if racy:
            race = report.races[0]
            assert race.first.line
            assert race.second.line
            assert race.space == ("global" if name.startswith("global") else "shared")
            assert str(race.second.line) in str(race)


def test_both_lines_are_told():
    body = "int t = threadIdx.x; __shared__ int s[64];\ns[t] = t;\no[t] = s[63 - t];"
    report = run(wrap(body, "int *o"), np.zeros(64, np.int32), block=(64,), races="sampled")
    (race,) = report.races
    assert (race.first.text, race.second.text) == ("s[t] = t;", "o[t] = s[63 - t];")
    assert race.kind == "write-read"
    assert race.count == 64
    assert race.thread != race.other_thread


def test_races_between_blocks():
    racy = wrap("o[threadIdx.x] = blockIdx.x;", "int *o")
    o = np.zeros(64, np.int32)
    (race,) = run(racy, o, grid=(2,), races="all").races
    assert {race.other_block, race.block} == {(0, 0, 0), (1, 0, 0)}
    reads = wrap("o[threadIdx.x + 32 * blockIdx.x] = o[(threadIdx.x + 32) % 64];", "int *o")
    assert run(reads, o, grid=(2,), races="all").races
    fine = wrap("o[threadIdx.x + 32 * blockIdx.x] += 1;", "int *o")
    assert not run(fine, o, grid=(2,), races="all").races
    atomics = wrap("atomicAdd(o + threadIdx.x, 1);", "int *o")
    assert not run(atomics, o, grid=(2,), races="all").races


def mutated(source: str, line: str, by: str = "") -> str:
    assert source.count(line) >= 1
    return source.replace(line, by, 1)


MUTANTS = [
    ("shared", SHARED, "    __syncthreads();\n    #pragma", "    #pragma"),
    ("shared", SHARED, "    __syncthreads();  // the tile is free again\n", ""),
    ("warp_tiled", WARP_TILED, "store(s ^ 1); __syncthreads();", "store(s ^ 1);"),
    ("warp_tiled", WARP_TILED, "load(0); store(0); __syncthreads();", "load(0); store(0);"),
    (
        "warp_tiled",
        WARP_TILED,
        "store(s ^ 1); __syncthreads(); s ^= 1;",
        "store(s); __syncthreads();",
    ),
]


@pytest.mark.parametrize(("name", "source", "line", "by"), MUTANTS)
def test_a_barrier_less_is_found(name, source, line, by):
    block = (32, 32) if name == "shared" else (256,)
    n = 64
    a, b = np.random.default_rng(0).uniform(-1, 1, (2, n, n)).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    grid = (2, 2) if name == "shared" else (1, 1)
    text = mutated(source, line, by)
    assert run(text, n, n, n, a, b, c, grid=grid, block=block, races="all").races
    assert not run(source, n, n, n, a, b, c, grid=grid, block=block, races="all").races


def test_half_tiles_are_exact_to_the_half():
    body = """
    __shared__ __half s[2][64]; int t = threadIdx.x;
    s[0][t] = __int2half_rn(t); s[1][t] = s[0][t]; __syncthreads();
    o[t] = (int)__half2float(s[1][63 - t]);"""
    o = np.zeros(64, np.int32)
    assert not run(wrap(body, "int *o", HALF_HEADERS), o, block=(64,), races="all").races
    assert o.tolist() == list(range(63, -1, -1))


def test_the_printed_defects_are_caught():
    """Tile loads and barrier inside `if (row < M && col < N)`; float4 of a ragged row."""
    guarded = SHARED.replace("for (int k0 = 0", "if (row < M && col < N) for (int k0 = 0")
    a = np.random.default_rng(0).uniform(-1, 1, (40, 40)).astype(np.float32)
    c = np.zeros((40, 40), np.float32)
    from gemm_lab.emulator import MemoryFault

    with pytest.raises(MemoryFault, match="uninitialised"):
        run(guarded, 40, 40, 40, a, a, c, grid=(2, 2), block=(32, 32))
    run(guarded, 40, 40, 40, a, a, c, grid=(2, 2), block=(32, 32), uninitialised=False)
    assert not np.allclose(c, a.astype(float) @ a, atol=0.1)
    b = np.random.default_rng(1).uniform(-1, 1, (41, 42)).astype(np.float32)
    c = np.zeros((40, 42), np.float32)
    a = np.random.default_rng(2).uniform(-1, 1, (40, 41)).astype(np.float32)
    with pytest.raises(MemoryFault, match="misaligned"):
        run(WARP_TILED, 40, 42, 41, a, b, c, grid=(1, 1), block=(256,))
