"""A launch: arguments packed, limits checked, blocks run in batches."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemm_lab.core.arch import ArchLimits
from gemm_lab.emulator.arguments import pack_arguments
from gemm_lab.emulator.async_races import AsyncRaceDetector
from gemm_lab.emulator.counters import Counter
from gemm_lab.emulator.faults import EmulatorFault, LaunchFault
from gemm_lab.emulator.findings import Counters, Race
from gemm_lab.emulator.global_races import GlobalRaces
from gemm_lab.emulator.limits import check_limits, find_limits
from gemm_lab.emulator.module import EntryInfo, LoadedModule
from gemm_lab.emulator.options import Options
from gemm_lab.emulator.race_log import RaceLog, granule_of
from gemm_lab.emulator.races import RaceDetector
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.budget import Budget
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.memory import Memory
from gemm_lab.emulator.runtime.scheduler import Scheduler
from gemm_lab.emulator.runtime.setup import Setup

__all__ = ["LaunchReport", "launch"]

Dim3 = tuple[int, int, int]
MIN_BATCH_LANES, MAX_BATCH_LANES = 1 << 14, 1 << 18
# Registers times lanes that still fit a cache; measured on the rungs of the ladder.
BATCH_VALUES = 1 << 23
MAX_SPINNING_LANES = 1 << 20
WATCHED_LANES, WATCHED_BYTES = 1 << 15, 1 << 28
MAX_BATCH_BYTES = 1 << 30
MAX_BLOCKS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class LaunchReport:
    """What a launch did.

    Attributes:
        instructions_executed: by all threads together. issued: by the emulator.
        printf_output: one text a call, in order.
        races: findings of the race detector; counters: None when they were off.
        blocks_run: how many blocks; watched_blocks: linear numbers of those watched.
    """

    instructions_executed: int
    instructions_issued: int
    blocks_run: int
    printf_output: tuple[str, ...]
    races: tuple[Race, ...] = ()
    counters: Counters | None = None
    watched_blocks: tuple[int, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def launch(
    module: LoadedModule,
    entry: str,
    *,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    memory: Memory,
    smem_bytes: int = 0,
    cluster: Sequence[int] = (1, 1, 1),
    limits: ArchLimits | None = None,
    options: Options | None = None,
    sm_count: int = 132,
) -> LaunchReport:
    """Run an entry over a grid. Faults are EmulatorFault; results are in `memory`.

    `args` are numbers, NumPy scalars, bytes, or buffers, in the kernel's order. `limits` are those
    of the module's architecture unless given.
    """
    options = options or Options()
    info = module.entries.get(entry)
    if info is None:
        known = ", ".join(module.entries) or "none"
        raise LaunchFault("unknown entry", f"{entry!r}; the module has: {known}")
    where = find_limits(module.arch, limits)
    shape = check_limits(info, grid, block, cluster, smem_bytes, where)
    symbols = _place_variables(module, memory)
    params = pack_arguments(info, args)
    param_buffer = memory.alloc(max(len(params), 1), name="parameters", constant=True)
    try:
        memory.write(param_buffer, np.frombuffer(params, dtype=np.uint8))
        symbols["%param"] = param_buffer.address
        setup = _setup(module, info, shape, memory, options, params, symbols, smem_bytes)
        setup.sm_count = sm_count
        return _run(module, entry, setup)
    finally:
        memory.free(param_buffer)


def _setup(
    module: LoadedModule,
    info: EntryInfo,
    shape: Any,
    memory: Memory,
    options: Options,
    params: bytes,
    symbols: dict[str, int],
    smem_bytes: int,
) -> Setup:
    program = module.programs[info.name]
    align = program.flat.dynamic_align
    static = info.static_smem_bytes
    total = -(-static // align) * align + smem_bytes if smem_bytes else static
    source_file = None
    if module.source is not None:
        files = [ins.loc.file for b in program.blocks for ins in b.instrs if ins.loc]
        source_file = max(set(files), key=files.count) if files else None
    return Setup(
        program=module.code(info.name, watch=False, exact_fma=options.exact_fma),
        memory=memory,
        options=options,
        budget=Budget(options, info.name),
        grid=shape.grid,
        block=shape.block,
        cluster=shape.cluster,
        smem_bytes=smem_bytes,
        smem_total_bytes=total,
        local_bytes=info.local_bytes,
        param_block=params,
        symbols=symbols,
        source_lines=(module.source or "").splitlines(),
        source_file=source_file,
    )


def _place_variables(module: LoadedModule, memory: Memory) -> dict[str, int]:
    """Module variables live in the memory that first launches the module."""
    placed = memory.module_variables.get(module.number)
    if placed is None:
        placed = {}
        for variable in module.module.variables.values():
            if variable.space not in ("global", "const"):
                continue
            buffer = memory.alloc(
                variable.size_bytes, name=variable.name, constant=variable.space == "const"
            )
            if variable.init:
                memory.write(buffer, np.frombuffer(variable.init, dtype=np.uint8))
            placed[variable.name] = buffer
        for variable in module.module.variables.values():
            for offset, name in variable.pointers.items():
                target = placed.get(name)
                if target is not None:
                    raw = memory.raw(placed[variable.name])
                    address = np.array([target.address], dtype=np.int64)
                    raw[offset : offset + 8] = address.view(np.uint8)
        memory.module_variables[module.number] = placed
    return {name: buffer.address for name, buffer in placed.items()}


def _selected(setup: Setup) -> Array:
    total = setup.grid[0] * setup.grid[1] * setup.grid[2]
    if setup.options.blocks is not None:
        chosen = np.array(sorted(set(setup.options.blocks)), dtype=np.int64)
        if len(chosen) and (chosen.min() < 0 or chosen.max() >= total):
            raise LaunchFault("block selection", f"blocks must lie in [0, {total})")
        return _whole_clusters(setup, chosen, total)
    if total > MAX_BLOCKS:
        raise LaunchFault(
            "grid",
            f"{total} blocks; the emulator runs at most {MAX_BLOCKS}",
            hint="choose a smaller problem, or Options.blocks",
        )
    return _by_cluster(setup, np.arange(total, dtype=np.int64))


def _whole_clusters(setup: Setup, chosen: Array, total: int) -> Array:
    """The chosen blocks with the others of their clusters."""
    size = setup.cluster[0] * setup.cluster[1] * setup.cluster[2]
    if size == 1:
        return chosen
    ordered = _by_cluster(setup, np.arange(total, dtype=np.int64)).reshape(-1, size)
    return ordered[np.isin(ordered, chosen).any(axis=1)].reshape(-1)


def _by_cluster(setup: Setup, blocks: Array) -> Array:
    """Blocks of one cluster next to each other, by rank."""
    cx, cy, cz = setup.cluster
    if (cx, cy, cz) == (1, 1, 1):
        return blocks
    gx, gy, _ = setup.grid
    x, y, z = blocks % gx, blocks // gx % gy, blocks // (gx * gy)
    cluster = x // cx + gx // cx * (y // cy + gy // cy * (z // cz))
    rank = x % cx + cx * (y % cy + cy * (z % cz))
    ordered: Array = blocks[np.lexsort((rank, cluster))]
    return ordered


def batch_size(setup: Setup) -> int:
    """Blocks that run together: enough lanes to pay for a call, few enough for the cache."""
    threads = setup.threads
    live = max(setup.program.max_live, 1)
    lanes = setup.options.batch_lanes or min(
        max(BATCH_VALUES // live, MIN_BATCH_LANES), MAX_BATCH_LANES
    )
    bytes_a_block = setup.smem_total_bytes * 2 + setup.local_bytes * threads
    if setup.program.spinning and setup.options.batch_lanes is None:
        # Blocks may wait for each other, as split-K semaphores do: they must all be in flight.
        lanes = MAX_SPINNING_LANES
    blocks = max(1, lanes // threads)
    if bytes_a_block:
        blocks = max(1, min(blocks, MAX_BATCH_BYTES // bytes_a_block))
    per_cluster = setup.cluster[0] * setup.cluster[1] * setup.cluster[2]
    return max(1, blocks // per_cluster) * per_cluster


def _watched(setup: Setup, blocks: Array) -> tuple[set[int], set[int]]:
    """Block numbers that the race detector and the counters watch."""
    size = setup.cluster[0] * setup.cluster[1] * setup.cluster[2]
    first = len(blocks) // 2 // size * size
    middle = set(blocks[first : first + size].tolist())
    everyone = set(blocks.tolist())
    pick: dict[str, set[int]] = {"off": set(), "sampled": middle, "all": everyone}
    return pick[setup.options.races], pick[setup.options.counters]


def _batches(setup: Setup, blocks: Array, chosen: set[int]) -> list[tuple[Array, bool]]:
    """Blocks cut into batches; those that are watched run apart from the others."""
    size = batch_size(setup)
    cluster = setup.cluster[0] * setup.cluster[1] * setup.cluster[2]
    # The race detector keeps three numbers for each granule of shared memory and warp.
    per_block = max(setup.smem_total_bytes * 3 * (setup.threads // 32 + 20), 1)
    watched = min(WATCHED_LANES // setup.threads, WATCHED_BYTES // per_block)
    out: list[tuple[Array, bool]] = []
    is_watched = np.isin(blocks, np.array(sorted(chosen), dtype=np.int64))
    start = 0
    while start < len(blocks):
        flag = bool(is_watched[start])
        end = start
        limit = size if not flag else max(1, min(size, watched))
        limit = max(1, limit // cluster) * cluster
        while end < len(blocks) and end - start < limit and bool(is_watched[end]) == flag:
            end += 1
        out.append((blocks[start:end], flag))
        start = end
    return out


def _run(module: LoadedModule, entry: str, setup: Setup) -> LaunchReport:
    blocks = _selected(setup)
    raced, counted = _watched(setup, blocks)
    plain = setup.program
    watching = None
    log, counter = RaceLog(), Counter()
    world: GlobalRaces | None = None
    granule = 4
    if raced or counted:
        watching = module.code(entry, watch=True, exact_fma=setup.options.exact_fma)
        granule = granule_of(plain.program.blocks)
        world = GlobalRaces(
            setup.memory, across_blocks=setup.options.races == "all", granule_bytes=granule
        )
    issued = executed = 0
    setup.budget.blocks = len(blocks)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch, watched in _batches(setup, blocks, raced | counted):
            context = Context(setup, batch)
            context.steps = issued
            code = plain
            if watched and watching is not None and world is not None:
                code = context.code = watching
                if int(batch[0]) in raced:
                    detector = AsyncRaceDetector if plain.asynchronous else RaceDetector
                    context.races = detector(context, log, world, granule)
                if int(batch[0]) in counted:
                    context.counters = counter
                    counter.blocks += len(batch)
            _run_batch(Scheduler(context, code))
            if world is not None:
                world.step()
            issued = context.steps
            executed += context.thread_instructions
            setup.budget.blocks_done += len(batch)
    return LaunchReport(
        instructions_executed=executed,
        instructions_issued=issued,
        blocks_run=len(blocks),
        printf_output=tuple(setup.printf_output),
        races=log.races(),
        counters=counter.finish(plain.program) if counted else None,
        watched_blocks=tuple(sorted(raced | counted)),
    )


def _run_batch(scheduler: Scheduler) -> None:
    """Run; what Python itself refuses (types that don't fit, no memory) becomes a fault."""
    try:
        scheduler.run()
    except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise EmulatorFault(
            "cannot be executed",
            f"the emulator failed in a basic block: {error}",
            where=scheduler.code.where_of(max(scheduler.current, 0), scheduler.x),
            hint="malformed PTX, or a gap of the emulator",
        ) from error
    except MemoryError as error:
        raise EmulatorFault(
            "out of memory", "a batch of blocks does not fit", hint="set Options.batch_lanes lower"
        ) from error
