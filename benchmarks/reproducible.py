"""Do two runs of the ladder agree? Reads two files of `gemm-lab bench --suite ladder -o FILE`.

    gemm-lab bench --suite ladder -o first.jsonl
    gemm-lab bench --suite ladder -o second.jsonl
    python benchmarks/reproducible.py first.jsonl second.jsonl

Every median ratio to the baseline must repeat within 1%, within 2% under 50 us. Exit code 1
otherwise.
"""

from __future__ import annotations

import sys

from gemm_lab.lab.compare import MARGIN, SHORT_MARGIN, SHORT_MS
from gemm_lab.lab.results import Results


def main(first: str, second: str) -> int:
    """Print every ratio twice, and how far apart the two are."""
    by_key = {
        (m.variant, tuple(m.config.items()), m.problem): m for m in Results.load(second).latest()
    }
    failed = compared = 0
    for m in Results.load(first).latest():
        other = by_key.get((m.variant, tuple(m.config.items()), m.problem))
        if other is None or m.ratio_to_baseline is None or other.ratio_to_baseline is None:
            continue
        compared += 1
        a, b = m.ratio_to_baseline.median, other.ratio_to_baseline.median
        short = min(m.median_ms or 0.0, other.median_ms or 0.0) < SHORT_MS
        allowed = SHORT_MARGIN if short else MARGIN
        apart = abs(b / a - 1)
        failed += apart > allowed
        p = m.problem
        print(
            f"{m.variant:16} {p.m}x{p.n}x{p.k}  {a:.4f} {b:.4f}  {apart:.2%}"
            f"{'  TOO FAR' if apart > allowed else ''}"
        )
    print(f"{compared - failed} of {compared} within 1% (2% under {SHORT_MS * 1000:.0f} us)")
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
