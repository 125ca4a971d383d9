"""Mutants that are the same kernel, each with the reason.

By variant, then by the line's code before and after. A mutant that survives and is not here fails
the test: add a problem that catches it, or a line here that proves it equivalent.
"""

from __future__ import annotations

Edit = tuple[str, str]

_BETA = (
    "store_c_vec hands epilogue a register copy of C, which is 0 when beta is 0: the guard only "
    "saves a multiplication (it matters where store_c passes C itself)"
)
_BEHIND_K = (
    "tiles behind K are read as zeros by TileShare's own guards, into the stage that was read one "
    "turn ago, and never multiplied: the guard saves work alone"
)

_NO_SOURCE = (
    "where k is not below k_count, cp_async_or_zero copies no byte and reads no address: the guard "
    "keeps one inside the matrix that nobody uses"
)
_EMPTY_GROUPS = (
    "groups without a copy, behind the tile's own: the wait then asks for more copies than it "
    "needs, and never for fewer"
)
_AT_K = "where begin is K, both branches give K"
_NOT_MINE = (
    "a thread without a share of its own reads an element that lies inside the matrix, and write "
    "leaves it out: that guard is the one that counts"
)
_LOAD = "held[i] = *reinterpret_cast<const Vec<in_t, WIDTH>*>(from);"
_READ_MINE = (
    f"if (mine(i) && outer < outers && inner < inners) {_LOAD}",
    f"if (true && outer < outers && inner < inners) {_LOAD}",
)

EQUIVALENT: dict[str, dict[Edit, str]] = {
    "naive": {},
    "y_first": {},
    "shared": {},
    "tiled": {},
    "vectorized": {
        (
            "if (beta != compute_t(0)) x += beta * compute_t(*c_ptr);",
            "if (true) x += beta * compute_t(*c_ptr);",
        ): _BETA,
        _READ_MINE: _NOT_MINE,
    },
    "warp_tiled": {
        (
            "if (beta != compute_t(0)) x += beta * compute_t(*c_ptr);",
            "if (true) x += beta * compute_t(*c_ptr);",
        ): _BETA,
        _READ_MINE: _NOT_MINE,
        ("if (k_next < K) {", "if (k_next <= K) {"): _BEHIND_K,
        ("if (k_next < K) {", "if (true) {"): _BEHIND_K,
        (
            "if (STAGES > 1 && k_next < K) {",
            "if (STAGES > 1 && k_next <= K) {",
        ): _BEHIND_K,
        ("if (STAGES > 1 && k_next < K) {", "if (STAGES > 1 && true) {"): _BEHIND_K,
    },
    "simt_async": {
        (
            "const in_t* source = k < k_count ? row_0 + k * ld : row_0;",
            "const in_t* source = k <= k_count ? row_0 + k * ld : row_0;",
        ): _NO_SOURCE,
        (
            "const in_t* source = k < k_count ? row_0 + k * ld : row_0;",
            "const in_t* source = true ? row_0 + k * ld : row_0;",
        ): _NO_SOURCE,
        (
            "if (first < BURSTS && last == BURSTS) cp_async_commit();",
            "if (first <= BURSTS && last == BURSTS) cp_async_commit();",
        ): _EMPTY_GROUPS,
        (
            "if (first < BURSTS && last == BURSTS) cp_async_commit();",
            "if (true && last == BURSTS) cp_async_commit();",
        ): _EMPTY_GROUPS,
        (
            "return begin < K ? int(begin) : K;",
            "return begin <= K ? int(begin) : K;",
        ): _AT_K,
    },
}
