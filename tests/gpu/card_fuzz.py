"""Random products on the card: variants x tunables x shapes x views x alpha, beta x epilogues.

    python tests/gpu/card_fuzz.py --cases 1000 --seed 1 [--variant shared ...] [--out FILE.jsonl]

One process a variant, so that an illegal access spoils one variant and not the rest. Every case is
held against float64 element by element, with the bound of gemm_lab.lab.reference. Exit code 3 when
one is wrong. tests/gpu/test_card_fuzz.py runs some of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import Any

import numpy

from gemm_lab.core.arch import arch_number
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import Alignment, GemmProblem, Shape
from gemm_lab.errors import GemmLabError, ResourceError, UsageError
from gemm_lab.lab.call import CopyWarning
from gemm_lab.lab.inputs import uniform
from gemm_lab.lab.matmul import matmul
from gemm_lab.lab.verify import Matrices, verify
from gemm_lab.variants import Catalogue, Facts, Variant, config_of, make_spec

PRIMES = [2, 3, 5, 7, 11, 13, 17, 31, 37, 61, 67, 101, 127, 131, 251, 257, 509, 521, 1021, 1499]
EPILOGUES = [None, None, None, "relu", "gelu(x)", "where(col <= row, x, 0)", "x * 0.5 + bias"]
CONFIGS_PER_VARIANT = 12


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One case: its description, and what was wrong with it (empty when right)."""

    case: str
    fault: str


def random_shape(rng: random.Random) -> tuple[int, int, int, int]:
    """m, n, k, batch: ragged primes, aligned, zeros and ones, tall, wide, deep."""
    kind = rng.random()
    if kind < 0.45:
        m, n, k = rng.sample(PRIMES, 3)
    elif kind < 0.65:
        m, n, k = (rng.choice([16, 32, 48, 64, 128, 136, 256, 512, 640]) for _ in range(3))
    elif kind < 0.75:
        m, n, k = (rng.choice([0, 1, 1, 2, 33, 129]) for _ in range(3))
    elif kind < 0.85:
        m, n, k = rng.choice([(70_001, 3, 17), (3, 70_001, 17), (65_537, 1, 8), (1, 65_537, 8)])
    elif kind < 0.95:
        m, n, k = rng.randint(1, 300), rng.randint(1, 300), rng.randint(1, 3000)
    else:
        m, n, k = 5, 7, rng.choice([16_384, 20_011])
    batch = 1 if rng.random() < 0.8 or m * n > 300_000 else rng.choice([2, 3, 5])
    return m, n, k, batch


def random_view(cp: Any, rng: random.Random, shape: tuple[int, ...], scalar: Any, seed: int) -> Any:
    """A CuPy array of that shape, seen through slices, transposes, reversals or broadcasts."""
    *batch, rows, cols = shape
    kind = rng.choice(["plain", "plain", "transposed", "padded", "offset", "reversed", "stepped",
                       "both", "broadcast"])  # fmt: skip
    # Padding rows by whole 16 bytes keeps wide loads; odd padding forbids them.
    pad = rng.choice([1, 3, 16])

    def fresh(*dims: int) -> Any:
        values = uniform(tuple(dims), scalar, seed=seed)
        if scalar.name == "bf16":
            return cp.asarray(values.view(numpy.uint16)).view(scalar.numpy())
        return cp.asarray(values)

    if kind == "transposed":
        return fresh(*batch, cols, rows).swapaxes(-1, -2)
    if kind == "padded":
        return fresh(*batch, rows, cols + pad)[..., :cols]
    if kind == "offset":
        return fresh(*batch, rows + 1, cols + pad)[..., 1:, pad:]
    if kind == "reversed":
        return fresh(*batch, rows, cols)[..., ::-1, :]
    if kind == "stepped":
        return fresh(*batch, 2 * rows, 2 * cols)[..., ::2, ::2]
    if kind == "both":
        return fresh(*batch, cols + pad, rows + 1).swapaxes(-1, -2)[..., 1:, pad:]
    if kind == "broadcast":
        return cp.broadcast_to(fresh(*batch, 1, cols), shape)
    return fresh(*shape)


def widen(cp: Any, array: Any, scalar: Any) -> Any:
    """float64 of a CuPy array in a storage type."""
    if scalar.name == "bf16":
        raw = cp.ascontiguousarray(array).view(numpy.uint16).astype(numpy.uint32) << 16
        return raw.view(numpy.float32).astype(numpy.float64)
    if scalar.name == "fp8_e4m3":
        import ml_dtypes

        codes = numpy.arange(256, dtype=numpy.uint8).view(ml_dtypes.float8_e4m3fn)
        return cp.asarray(codes.astype(numpy.float64))[cp.ascontiguousarray(array)]
    return array.astype(numpy.float64)


def random_config(variant: Variant, name: str, arch: str, rng: random.Random) -> dict[str, Any]:
    """Tunables that keep the rules: half the time the defaults, else a few of them moved."""
    if rng.random() < 0.25:
        return {}
    support = variant.support(name)
    for _ in range(300):
        moved: dict[str, Any] = {}
        for knob in rng.sample(
            list(variant.tunables), rng.randint(1, min(4, len(variant.tunables)))
        ):
            tunable = variant.tunables[knob]
            values = list(tunable.candidates)
            if tunable.kind == "integer":
                values += [v for v in (1, 2, 3, 4, 8, 16, 24, 32, 48) if v >= tunable.minimum]
            moved[knob] = rng.choice(values)
        found = dtype_named(name)
        wide = 16 // found.storage.size_bytes
        facts = Facts(
            dtype=found,
            out=found.default_out,
            layout=support.layouts[0],
            alignment=Alignment(
                vec_a=wide,
                vec_b=wide,
                vec_c=16 // found.default_out.size_bytes,
                tma_a=True,
                tma_b=True,
                tma_c=True,
            ),
            arch=support.arch if support.arch[-1].isalpha() else arch,
        )
        try:
            make_spec(variant, facts, config_of(variant, name, moved))
        except (UsageError, ResourceError):
            continue
        return moved
    return {}


def one_case(variant: Variant, name: str, tunables: dict[str, Any], seed: int) -> Outcome:
    """Run one random product and hold it against float64."""
    import cupy as cp

    rng = random.Random(seed)
    m, n, k, batch = random_shape(rng)
    arithmetic = dtype_named(name)
    outs = variant.support(name).outs
    out_type = arithmetic.out(rng.choice(outs))
    alpha = rng.choice([1.0, 1.0, -0.5, 1.7, 0.0]) if name != "int8" else rng.choice([1.0, 2.0])
    beta = rng.choice([0.0, 0.0, 1.0, -1.5]) if name != "int8" else rng.choice([0.0, 1.0])
    epilogue = rng.choice(EPILOGUES)
    bias_on = (epilogue is not None and "bias" in epilogue) or rng.random() < 0.2
    lead = (batch,) if batch > 1 else ()
    a = random_view(cp, rng, (*lead, m, k), arithmetic.storage, seed)
    b = random_view(cp, rng, (*lead, k, n), arithmetic.storage, seed + 1)
    c = random_view(cp, rng, (*lead, m, n), out_type, seed + 2)
    if 0 in c.strides:
        c = cp.ascontiguousarray(c)
    before = widen(cp, c.copy(), out_type).reshape(batch, m, n)
    if beta == 0 and out_type.unit_roundoff and c.size:
        c.fill(numpy.nan)
    bias = random_view(cp, rng, (1, n), out_type, seed + 3)[0] if bias_on else None
    text = (
        f"{variant.name} {name}->{out_type.name} {batch}x[{m}x{n}x{k}] alpha={alpha} beta={beta} "
        f"epilogue={epilogue} bias={bias_on} strides a{a.strides} b{b.strides} c{c.strides} "
        f"{tunables} seed={seed}"
    )
    problem = GemmProblem(
        shape=Shape(m=m, n=n, k=k, batch=batch), dtype=arithmetic, out=out_type, alpha=alpha,
        beta=beta, epilogue=epilogue, bias=bias_on,
    )  # fmt: skip
    try:
        got = matmul(
            a, b, out=c, alpha=alpha, beta=beta, bias=bias, epilogue=epilogue, dtype=name,
            out_dtype=out_type.name, variant=variant, config=tunables,
        )  # fmt: skip
        cp.cuda.Device().synchronize()
    except UsageError as error:
        # Tunables that fit wide loads may break a rule where the arrays allow none.
        return Outcome(
            case=text, fault="" if "rule" in type(error).__name__.lower() else str(error)
        )
    if got.size == 0:
        return Outcome(case=text, fault="")
    a64, b64, c64 = (
        widen(cp, x, t).reshape(batch, *x.shape[-2:])
        for x, t in ((a, arithmetic.storage), (b, arithmetic.storage), (got, out_type))
    )
    verdict = verify(
        problem,
        Matrices(
            a=lambda rows: a64[:, rows],
            b=lambda: b64,
            c_after=lambda rows: c64[:, rows],
            c_before=(lambda rows: before[:, rows]) if beta else None,
            bias=None if bias is None else widen(cp, bias, out_type),
        ),
    )
    fault = "" if verdict.ok else f"{verdict.wrong_count} wrong, worst {verdict.max_error}"
    return Outcome(case=text, fault=fault)


def fuzz_variant(path: str, cases: int, seed: int, queue: Any) -> None:
    """All cases of one variant, in a process of its own."""
    from gemm_lab.lab.workbench import default_workbench

    warnings.simplefilter("ignore", CopyWarning)
    bench = default_workbench()
    variant = bench.variant(path)
    arch = bench.gpu().arch
    rng = random.Random(f"{seed}-{variant.name}")
    configs = []
    for _ in range(CONFIGS_PER_VARIANT):
        name = rng.choice(sorted(variant.dtypes))
        configs.append((name, random_config(variant, name, arch, rng)))
    for number in range(cases):
        name, tunables = configs[number % len(configs)]
        try:
            outcome = one_case(variant, name, tunables, rng.randrange(2**31))
        except GemmLabError as error:
            outcome = Outcome(case=f"{variant.name} {name} {tunables}", fault=str(error))
            queue.put((variant.name, outcome))
            if "poison" in str(error):
                break
            continue
        except Exception:
            outcome = Outcome(
                case=f"{variant.name} {name} {tunables}", fault=traceback.format_exc()
            )
        queue.put((variant.name, outcome))
    queue.put((variant.name, None))


def fuzz(names: list[str], cases: int, seed: int, seconds: float) -> dict[str, list[Outcome]]:
    """Spread cases over variants, one process each; what a dead process owes counts as wrong."""
    from gemm_lab.gpu import NoGpu, find_gpu

    found = find_gpu()
    if isinstance(found, NoGpu):
        raise found.error()
    variants = [v for v in Catalogue().ladder() if not names or v.name in names]
    variants = [
        v for v in variants
        if any(
            arch_number(s.arch) == arch_number(found.arch)
            if s.arch[-1].isalpha()
            else arch_number(s.arch) <= arch_number(found.arch)
            for s in v.dtypes.values()
        )
    ]  # fmt: skip
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    each = -(-cases // len(variants))
    workers = {
        v.name: context.Process(
            target=fuzz_variant, args=(str(v.path), each, seed, queue), daemon=True
        )
        for v in variants
    }
    for worker in workers.values():
        worker.start()
    outcomes: dict[str, list[Outcome]] = {name: [] for name in workers}
    open_ones = set(workers)
    end = time.monotonic() + seconds
    while open_ones and time.monotonic() < end:
        try:
            name, outcome = queue.get(timeout=1)
        except Exception:
            open_ones -= {n for n in open_ones if not workers[n].is_alive()}
            continue
        if outcome is None:
            open_ones.discard(name)
        else:
            outcomes[name].append(outcome)
    for name, worker in workers.items():
        if worker.is_alive():
            worker.kill()
        if len(outcomes[name]) < each:
            outcomes[name].append(
                Outcome(case=name, fault=f"ended after {len(outcomes[name])} of {each} cases")
            )
    return outcomes


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--out")
    options = parser.parse_args()
    outcomes = fuzz(options.variant, options.cases, options.seed, options.seconds)
    wrong = [o for found in outcomes.values() for o in found if o.fault]
    for outcome in wrong[:40]:
        print(f"WRONG {outcome.case}\n    {outcome.fault[:1500]}")
    for name, found in outcomes.items():
        print(f"{name:18} {len(found):5} cases {sum(1 for o in found if o.fault):4} wrong")
    print(f"{sum(map(len, outcomes.values()))} cases, {len(wrong)} wrong, seed {options.seed}")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            for name, found in outcomes.items():
                for o in found:
                    file.write(
                        json.dumps({"variant": name, "case": o.case, "fault": o.fault}) + "\n"
                    )
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
