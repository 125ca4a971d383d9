"""What the tests of the program share: its answer, and a variant file of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MINE = """/*---
title = "One thread an element, mine"
idea  = "A first kernel."
params = ["M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc"]
[dtype.fp32]
layouts = ["nn"]
arch = "sm_70"
[tunables.SIDE]
default = 16
search = [8, 16]
doc = "threads along each side of a block"
[launch]
grid = ["ceil_div(N, SIDE)", "ceil_div(M, SIDE)", 1]
block = ["SIDE", "SIDE", 1]
smem = "0"
static_smem = "0"
---*/
<% include "lib/index.cuh.j2" %>
<% include "lib/epilogue.cuh.j2" %>
extern "C" __global__ void ${entry}(${params}) {
    const int row = blockIdx.y * SIDE + threadIdx.y;
    const int col = blockIdx.x * SIDE + threadIdx.x;
    if (row >= M || col >= N) return;
    acc_t acc = 0;
    for (int k = 0; k < K; ++k) acc += A[a_index(row, k, lda)] * B[b_index(k, col, ldb)];
    store_c(C, ldc, row, col, alpha, acc, beta, nullptr);
}
"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one call printed, and its exit code."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]
