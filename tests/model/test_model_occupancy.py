"""Occupancy: the textbook's figures, and the hardware rule against NVIDIA's own calculator."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from gemm_lab.core.arch import ARCHES, ArchLimits, arch_limits
from gemm_lab.errors import UsageError
from gemm_lab.model import (
    BlockResources,
    Limiter,
    hardware_occupancy,
    load_devices,
    next_steps,
    textbook_occupancy,
    what_if,
)

# Every card of the table, and every architecture that core knows.
CASES = {key: d.limits for key, d in load_devices().items()} | {a.arch: a for a in ARCHES.values()}
# In the order in which the oracle prints them.
COMPARED = (
    Limiter.WARPS,
    Limiter.BLOCKS,
    Limiter.REGISTERS,
    Limiter.SMEM,
    Limiter.BARRIERS,
)
INT_MAX = 2**31 - 1


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    spec = importlib.util.find_spec("nvidia.cuda_runtime")
    if compiler is None or spec is None or not spec.submodule_search_locations:
        pytest.skip("needs g++ and the nvidia-cuda-runtime wheel with cuda_occupancy.h")
    include = Path(spec.submodule_search_locations[0]) / "include"
    program = tmp_path_factory.mktemp("oracle") / "occupancy"
    source = Path(__file__).with_name("occupancy_oracle.cpp")
    subprocess.run(
        [compiler, "-O1", "-w", f"-I{include}", str(source), "-o", str(program)], check=True
    )
    return program


def random_block(rng: random.Random, limits: ArchLimits) -> BlockResources:
    most = limits.smem_per_block_optin_bytes
    threads = rng.choice([rng.randint(1, 1056), 32 * rng.randint(1, 32), 2 ** rng.randint(5, 10)])
    smem = rng.choice(
        [0, rng.randint(0, 4096), rng.randint(0, most + 2048), 1024 * rng.randint(0, most // 1024)]
    )
    fixed = rng.choice([0, smem, rng.randint(0, min(smem, 49152))])
    return BlockResources(
        threads=threads,
        registers_per_thread=rng.choice([0, rng.randint(1, 255), 8 * rng.randint(1, 32)]),
        static_smem_bytes=fixed,
        dynamic_smem_bytes=smem - fixed,
        barriers=rng.choice([1, 1, 1, 0, rng.randint(2, 16)]),
    )


@pytest.mark.parametrize("case", CASES)
def test_hardware_rule_equals_the_calculator(case: str, oracle: Path) -> None:
    limits = CASES[case]
    rng = random.Random(f"occupancy {case}")
    blocks = [random_block(rng, limits) for _ in range(1000)]
    lines = [
        f"{limits.number // 10} {limits.number % 10} {b.threads} {b.registers_per_thread} "
        f"{b.static_smem_bytes} {b.dynamic_smem_bytes} {b.barriers} "
        f"{limits.max_threads_per_block} {limits.max_warps_per_sm * limits.warp_size} "
        f"{limits.registers_per_block} {limits.registers_per_sm} {limits.smem_per_block_bytes} "
        f"{limits.smem_per_sm_bytes} {limits.smem_per_block_optin_bytes} "
        f"{limits.reserved_smem_per_block_bytes}"
        for b in blocks
    ]
    answer = subprocess.run(
        [str(oracle)], input="\n".join(lines), text=True, capture_output=True, check=True
    )
    rows = [[int(x) for x in line.split()] for line in answer.stdout.splitlines()]
    assert len(rows) == len(blocks)
    for block, (error, resident, registers, smem, *each) in zip(blocks, rows, strict=True):
        ours = hardware_occupancy(limits, block)
        assert error == 0, block
        assert ours.blocks_per_sm == resident, block
        assert ours.allocated_registers_per_block == registers, block
        assert ours.allocated_smem_bytes_per_block == smem, block
        allowed = [ours.limits[name] for name in COMPARED]
        if ours.limits[Limiter.THREADS] == 0:
            allowed[0] = 0  # the calculator counts it under warps
        assert [INT_MAX if a is None else a for a in allowed] == each, block


@pytest.mark.parametrize(
    ("smem", "textbook", "percent", "hardware"),
    [(1_000, 24, 100.0, 24), (10_000, 10, 41.7, 9), (30_000, 3, 12.5, 3)],
)
def test_both_rules_on_the_rtx_4000_ada(
    smem: int, textbook: int, percent: float, hardware: int
) -> None:
    limits = arch_limits("sm_89")
    block = BlockResources(threads=64, dynamic_smem_bytes=smem)
    book = textbook_occupancy(limits, block)
    assert book.blocks_per_sm == textbook
    assert book.warps_per_sm == 2 * textbook
    assert round(100 * book.fraction, 1) == percent
    assert hardware_occupancy(limits, block).blocks_per_sm == hardware


def test_limiters_are_named() -> None:
    limits = arch_limits("sm_90a")
    cases = {
        Limiter.WARPS: BlockResources(threads=1024),
        Limiter.BLOCKS: BlockResources(threads=32),
        Limiter.REGISTERS: BlockResources(threads=256, registers_per_thread=255),
        Limiter.SMEM: BlockResources(threads=128, dynamic_smem_bytes=200_000),
        Limiter.BARRIERS: BlockResources(threads=64, barriers=16),
    }
    for limiter, block in cases.items():
        assert hardware_occupancy(limits, block).limiters == (limiter,)


def test_a_block_that_cannot_run() -> None:
    limits = arch_limits("sm_80")
    for block in (
        BlockResources(threads=1025),
        BlockResources(threads=1024, registers_per_thread=128),
        BlockResources(threads=32, dynamic_smem_bytes=limits.smem_per_block_optin_bytes + 1),
    ):
        found = hardware_occupancy(limits, block)
        assert found.blocks_per_sm == 0
        assert found.fraction == 0.0
        assert found.limiters


def test_bad_resources_are_refused() -> None:
    with pytest.raises(UsageError, match="threads"):
        BlockResources(threads=0)
    with pytest.raises(UsageError, match="dynamic_smem_bytes"):
        BlockResources(threads=32, dynamic_smem_bytes=-1)


def test_what_if_holds_the_block_itself() -> None:
    limits = arch_limits("sm_90a")
    block = BlockResources(threads=256, registers_per_thread=100, static_smem_bytes=33_000)
    rows = what_if(limits, block)
    for changed in ("registers", "shared memory", "threads"):
        mine = [r for r in rows if r.changed == changed]
        assert [r.value for r in mine] == sorted(r.value for r in mine)
        current = [r for r in mine if r.current]
        assert len(current) == 1
        assert current[0].hardware.blocks_per_sm == hardware_occupancy(limits, block).blocks_per_sm


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_89", "sm_90a", "sm_120a"])
@pytest.mark.parametrize("threads", [64, 96, 256, 1024])
def test_next_steps_are_the_edges(arch: str, threads: int) -> None:
    limits = arch_limits(arch)
    for step in next_steps(limits, BlockResources(threads=threads)):
        if step.most_registers_per_thread is not None:
            at = BlockResources(
                threads=threads, registers_per_thread=step.most_registers_per_thread
            )
            assert hardware_occupancy(limits, at).blocks_per_sm >= step.blocks_per_sm
            if step.most_registers_per_thread < limits.max_registers_per_thread:
                over = BlockResources(
                    threads=threads, registers_per_thread=step.most_registers_per_thread + 1
                )
                assert hardware_occupancy(limits, over).blocks_per_sm < step.blocks_per_sm
        if step.most_smem_bytes is not None:
            at = BlockResources(threads=threads, dynamic_smem_bytes=step.most_smem_bytes)
            assert hardware_occupancy(limits, at).blocks_per_sm >= step.blocks_per_sm
