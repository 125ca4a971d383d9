"""What the card at hand really reaches: bandwidths, the FMA rate, latencies.

Six small kernels (ceilings.cu), a few seconds. The figures go to the user's device file, where the
model finds them.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemm_lab import jit
from gemm_lab.core.backend import Argument, Scalar
from gemm_lab.errors import UsageError
from gemm_lab.gpu.stopwatch import CudaStopwatch
from gemm_lab.lab.probes import Probes, int_argument, long_argument
from gemm_lab.model import MeasuredCeilings, find_device, load_devices, render_measured

__all__ = ["measure_ceilings", "save_ceilings"]

_STREAM_BYTES = 1 << 30
_LINE_BYTES = 128
_CHASE_STEPS = 8192
_LONG_MS = 20.0


def measure_ceilings(
    backend: Any,
    *,
    stopwatch: Any = None,
    cache: jit.Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> MeasuredCeilings:
    """Drive each part of a GPU to its limit in turn.

    DRAM is a device copy (bytes read and written), L2 and shared memory are reads, the rate counts
    a multiply-add as two operations; latencies are SM clock cycles of dependent loads.
    """
    say = progress or (lambda _: None)
    with backend.on_device("measuring ceilings"):
        stopwatch = stopwatch or CudaStopwatch(backend.device)
        probes = Probes(backend, stopwatch, cache=cache)
        try:
            say("arithmetic")
            tflops, clock_mhz = _fma(probes)
            say("shared memory")
            smem = _smem_gb_s(probes)
            say("L2")
            l2 = _l2_gb_s(probes)
            say("DRAM")
            dram = _dram_gb_s(probes)
            say("latencies")
            # Twice the cache and more, so that next to nothing of it is found there.
            dram_cycles = _chase_cycles(probes, max(6 * backend.info.l2_bytes, 1 << 24), flush=True)
            l2_cycles = _chase_cycles(
                probes, max(backend.info.l2_bytes // 16, 1 << 18), flush=False
            )
            smem_cycles = _smem_cycles(probes)
        finally:
            probes.free()
    return MeasuredCeilings(
        sm_clock_mhz=round(clock_mhz, 0),
        dram_gb_s=round(dram, 1),
        l2_gb_s=round(l2, 1),
        smem_gb_s=round(smem, 1),
        fp32_tflops=round(tflops, 2),
        dram_latency_cycles=round(dram_cycles, 1),
        l2_latency_cycles=round(l2_cycles, 1),
        smem_latency_cycles=round(smem_cycles, 1),
        source=f"gemm-lab devices --measure on {backend.device_name}",
    )


def save_ceilings(path: Path, backend: Any, measured: MeasuredCeilings) -> str:
    """Put the figures into a device file, in the place of older ones; the card's key.

    The rest of the file stays as it is. A card that the table does not know is added.
    UsageError when the file cannot be read as TOML or written.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    devices = load_devices(path)
    info = backend.info
    try:
        key = find_device(info.name, devices).key
        entry = ""
    except UsageError:
        key = re.sub(r"[^a-z0-9]+", "_", info.name.lower()).strip("_")
        entry = (
            f'[devices.{key}]\nname = "{info.name}"\narch = "{info.arch}"\n'
            f"sm_count = {info.sm_count}\nboost_clock_mhz = {measured.sm_clock_mhz}\n"
            f"dram_gb_s = {measured.dram_gb_s}\ndram_bytes = {info.memory_bytes}\n"
            f"l2_bytes = {info.l2_bytes}\nfp32_tflops = {measured.fp32_tflops}\n"
            'source = "measured: gemm-lab devices --measure"\n'
        )
    kept = _without(text, f"devices.{key}.measured").rstrip("\n")
    parts = [part for part in (kept, entry.rstrip("\n"), render_measured(key, measured)) if part]
    _write(path, "\n\n".join(parts))
    load_devices(path)
    return key


def _fma(probes: Probes) -> tuple[float, float]:
    """TFLOP/s, and the clock in MHz while it ran."""
    blocks = probes.backend.sm_count * 8
    sink, clocks = probes.alloc(16), probes.alloc(16)

    def run(repeats: int) -> Callable[[], None]:
        arguments: list[Argument] = [
            probes.pointer(sink), probes.pointer(clocks), Scalar("float", 1.0009765625),
            Scalar("float", -0.5), int_argument(repeats),
        ]  # fmt: skip
        return probes.prepare("fma_rate", arguments, blocks=blocks, threads=256)

    repeats = _repeats(probes, run, 2000)
    ms = probes.median_ms(run(repeats))
    cycles, ns = probes.numbers(clocks, 2)
    flop_count = 2.0 * 128 * repeats * 256 * blocks
    return flop_count / ms / 1e9, cycles / max(ns, 1) * 1e3


def _smem_gb_s(probes: Probes) -> float:
    blocks = probes.backend.sm_count * 4
    sink = probes.alloc(16)

    def run(repeats: int) -> Callable[[], None]:
        arguments: list[Argument] = [probes.pointer(sink), int_argument(repeats)]
        return probes.prepare("smem_read", arguments, blocks=blocks, threads=256)

    repeats = _repeats(probes, run, 2000)
    moved = 16.0 * 32 * repeats * 256 * blocks
    return float(moved / probes.median_ms(run(repeats)) / 1e6)


def _l2_gb_s(probes: Probes) -> float:
    """Reads of a quarter of the cache, so that it lies there whatever else does."""
    blocks, threads = probes.backend.sm_count * 4, 512
    step = blocks * threads
    size = probes.backend.info.l2_bytes // 4
    count = max(size // 16 // step, 1) * step
    source, sink = probes.alloc(count * 16, 1), probes.alloc(16)

    def run(repeats: int) -> Callable[[], None]:
        arguments: list[Argument] = [
            probes.pointer(source), probes.pointer(sink), int_argument(count),
            int_argument(repeats),
        ]  # fmt: skip
        return probes.prepare("l2_read", arguments, blocks=blocks, threads=threads)

    repeats = _repeats(probes, run, 20)
    return float(16.0 * count * repeats / probes.median_ms(run(repeats)) / 1e6)


def _dram_gb_s(probes: Probes) -> float:
    size = min(_STREAM_BYTES, probes.backend.free_bytes() // 4)
    count = size // 16
    source, target = probes.alloc(count * 16, 1), probes.alloc(count * 16)
    arguments: list[Argument] = [
        probes.pointer(source),
        probes.pointer(target),
        long_argument(count),
    ]
    best = 0.0
    for blocks_per_sm in (4, 8, 16):
        run = probes.prepare(
            "stream", arguments, blocks=probes.backend.sm_count * blocks_per_sm, threads=256
        )
        best = max(best, 2.0 * 16 * count / probes.median_ms(run) / 1e6)
    return best


def _chase_cycles(probes: Probes, size_bytes: int, *, flush: bool) -> float:
    """Cycles of one dependent load; every line is touched once on a walk that nothing foresees."""
    import numpy

    lines = size_bytes // _LINE_BYTES
    steps = min(_CHASE_STEPS, lines)
    chosen = random.Random(1).sample(range(lines), steps)
    buffer = probes.alloc(lines * _LINE_BYTES)
    base = probes.backend.address(buffer)
    links = numpy.zeros(lines * _LINE_BYTES // 8, numpy.uint64)
    for here, there in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        links[here * (_LINE_BYTES // 8)] = base + there * _LINE_BYTES
    probes.backend.write(buffer, links)
    clocks = probes.alloc(16)
    arguments: list[Argument] = [
        long_argument(base + chosen[0] * _LINE_BYTES), probes.pointer(clocks), int_argument(steps),
    ]  # fmt: skip
    run = probes.prepare("chase", arguments, blocks=1, threads=1)
    other = probes.alloc(2 * probes.backend.info.l2_bytes) if flush else None
    found: list[float] = []
    for _ in range(4):
        if other is not None:
            probes.backend.fill(other, 0)
        run()
        found.append(probes.numbers(clocks, 1)[0] / steps)
    return min(found[1:])


def _smem_cycles(probes: Probes) -> float:
    clocks = probes.alloc(16)
    arguments: list[Argument] = [probes.pointer(clocks), int_argument(_CHASE_STEPS)]
    probes.prepare("smem_chase", arguments, blocks=1, threads=32)()
    return probes.numbers(clocks, 1)[0] / _CHASE_STEPS


def _repeats(probes: Probes, run: Callable[[int], Callable[[], None]], first: int) -> int:
    """Enough for a launch that lasts."""
    taken_ms = probes.median_ms(run(first), 3)
    return max(int(first * _LONG_MS / max(taken_ms, 1e-3)), 1)


def _without(text: str, table: str) -> str:
    """The text less a TOML table and its subtables."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines():
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if header:
            name = header[1].replace(" ", "")
            inside = name == table or name.startswith(f"{table}.")
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="--device-file FILE or GEMM_LAB_DEVICES names another one",
        ) from None
