"""What cannot be launched is told before anything is compiled, with the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fault_helpers import MODES

import gemm_lab
from gemm_lab.core.arch import arch_limits
from gemm_lab.core.kernel import KernelLaunch
from gemm_lab.errors import GemmLabError, ResourceError, RuleError
from gemm_lab.gpu import loaded
from gemm_lab.gpu.device import DeviceLimits
from gemm_lab.gpu.limits import FunctionFacts, check_launch
from gemm_lab.jit import Cache, compile_count
from gemm_lab.lab.api import kernel_spec
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Catalogue

H200 = DeviceLimits(
    max_threads_per_block=1024,
    max_block_x=1024,
    max_block_y=1024,
    max_block_z=64,
    max_grid_x=2**31 - 1,
    max_grid_y=65535,
    max_grid_z=65535,
    smem_per_block_bytes=49152,
    smem_per_block_optin_bytes=232448,
    registers_per_block=65536,
)
SM_80 = arch_limits("sm_80").smem_per_block_optin_bytes


def emulate(**tunables: Any) -> gemm_lab.Measurement:
    return gemm_lab.run(MODES, shape=(9, 7, 5), backend="emulator", arch="sm_80", **tunables)


@pytest.mark.parametrize("smem_bytes", [48 * 1024 - 16, 48 * 1024, 48 * 1024 + 1, SM_80 - 16])
def test_dynamic_memory_up_to_the_last_byte(smem_bytes: int) -> None:
    assert emulate(SMEM=smem_bytes).verified


@pytest.mark.parametrize(
    ("tunables", "message"),
    [
        ({"SMEM": SM_80 - 15}, f"{SM_80 + 1} bytes of shared memory"),
        ({"SMEM": SM_80 - 1024, "STATIC": 1040}, f"{SM_80 + 16} bytes of shared memory"),
        ({"STATIC": 48 * 1024 + 16}, "49168 bytes of static shared memory; the limit is 49152"),
        ({"smem_pad_bytes": SM_80 + 1}, f"{SM_80 + 1} bytes of dynamic shared memory"),
        ({"THREADS": 1025}, "1025 threads a block"),
    ],
)
def test_too_much_is_refused_before_a_compile(tunables: dict[str, int], message: str) -> None:
    before = compile_count()
    with pytest.raises(ResourceError, match=message) as caught:
        emulate(**tunables, SALT=12345)
    assert compile_count() == before
    assert caught.value.exit_code == 6
    assert caught.value.hint


def test_registers_times_threads_is_checked_with_the_number_that_would_fit() -> None:
    """128 registers leave room for 512 threads in a register file of 65536."""
    with pytest.raises(ResourceError, match="128 registers x 1024 threads") as caught:
        emulate(MODE="greedy", THREADS=1024)
    assert "512 fit" in (caught.value.hint or "")
    assert emulate(MODE="greedy", THREADS=512).verified is False  # it runs, and is no product


@pytest.mark.parametrize("registers", [65, 80, 96, 128, 168, 255])
@pytest.mark.parametrize("threads", [288, 512, 768, 1000, 1024])
def test_the_driver_s_answer_is_foreseen(registers: int, threads: int) -> None:
    each = -(-registers // 8) * 8
    most = min(65536 // (each * 32) * 32, 1024)
    facts = FunctionFacts(
        entry="gemm",
        registers_per_thread=registers,
        static_smem_bytes=0,
        local_bytes=0,
        max_threads_per_block=most,
        binary_version=90,
    )
    launch = KernelLaunch(
        entry="gemm", grid=(1, 1, 1), block=(threads, 1, 1), smem_bytes=0, params=()
    )
    if threads <= most:
        check_launch(launch, facts, H200)
        return
    with pytest.raises(ResourceError, match=f"at most {most} threads") as caught:
        check_launch(launch, facts, H200)
    fitting = 65536 // (-(-threads // 32) * 32) // 8 * 8
    assert f"keep it to {fitting} registers" in (caught.value.hint or "")


def test_launch_bounds_are_not_called_registers() -> None:
    facts = FunctionFacts(
        entry="gemm",
        registers_per_thread=20,
        static_smem_bytes=0,
        local_bytes=0,
        max_threads_per_block=128,
        binary_version=90,
    )
    launch = KernelLaunch(entry="gemm", grid=(1, 1, 1), block=(256, 1, 1), smem_bytes=0, params=())
    check_launch(replace(launch, block=(128, 1, 1)), facts, H200)
    with pytest.raises(ResourceError, match="256 threads, and the kernel was compiled for at most"):
        check_launch(launch, facts, H200)


def test_the_opt_in_is_asked_for_whatever_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 KiB less the static part is the default; a function keeps the most that it was given."""
    asked: list[tuple[int, int]] = []
    driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        funcSetAttribute=lambda function, _, value: asked.append((function, value)),
    )
    monkeypatch.setattr(loaded, "cuda", lambda: SimpleNamespace(driver=driver))
    monkeypatch.setattr(loaded, "_smem_allowed", {})
    for function, smem_bytes in ((1, 1024), (1, 49152), (1, 2048), (2, 49152), (1, 0), (1, 65536)):
        loaded.allow_smem(0, function, smem_bytes)
    assert asked == [(1, 1024), (1, 49152), (2, 49152), (1, 65536)]


@pytest.mark.parametrize("released", [True, False])
def test_a_handle_that_comes_again_is_opted_in_again(
    released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver gives a new kernel the handle of one that left, whoever let go of it."""
    asked: list[tuple[int, int]] = []
    driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        funcSetAttribute=lambda function, _, value: asked.append((function, value)),
    )
    monkeypatch.setattr(loaded, "cuda", lambda: SimpleNamespace(driver=driver))
    monkeypatch.setattr(loaded, "_smem_allowed", {})
    for handle in (7, 7):
        kernel = loaded.LoadedKernel(
            compiled=None,  # type: ignore[arg-type]
            device=0,
            functions={"k": handle},
            facts={},
            module=object(),
            transient=True,
        )
        loaded.allow_smem(0, kernel.function("k"), 81920)
        loaded.allow_smem(0, kernel.function("k"), 81920)
        if released:
            kernel.release()
        del kernel
    assert asked == [(7, 81920), (7, 81920)]


@pytest.mark.parametrize(
    ("name", "values", "fit"),
    [
        ("shared", {"BLOCK_SIZE": [8, 16, 33, 64]}, 2),
        ("tiled", {"TILE": [3, 4, 64], "BK": [8]}, None),
        (MODES, {"SMEM": [0, 1024, 10**6], "THREADS": [32, 2048]}, 2),
    ],
)
def test_configs_that_cannot_fit_are_counted_and_not_compiled(
    name: str, values: dict[str, list[int]], fit: int | None, tmp_path: Any
) -> None:
    before = compile_count()
    found = gemm_lab.sweep(
        name,
        shape=(9, 7, 5),
        backend="emulator",
        workbench=Workbench(cache=Cache(tmp_path)),
        **values,
    )
    every = 1
    for axis in values.values():
        every *= len(axis)
    assert len(found) + len(found.pruned) == every
    assert len(found) == (fit or len(found)) > 0
    assert len(found.pruned) > 0
    assert all(p.reason for p in found.pruned)
    assert (
        compile_count() - before
        == len(found)
        == len(list(tmp_path.glob("*-*"))) - len(list(tmp_path.glob("toolchain-*")))
    )


@pytest.mark.parametrize("variant", Catalogue().ladder(), ids=lambda v: v.name)
def test_search_values_that_break_a_limit_break_a_rule(variant: Any) -> None:
    """Whatever a tuner may try alone is either planned, or refused in words and without NVRTC."""
    before = compile_count()
    hints: list[str | None] = []
    for dtype, support in variant.dtypes.items():
        for tunable in variant.tunables.values():
            for value in tunable.candidates:
                try:
                    kernel_spec(
                        Workbench(), variant, dtype=dtype, arch=support.arch,
                        tunables={tunable.name: value},
                    )  # fmt: skip
                except (RuleError, ResourceError) as error:
                    hints.append(error.hint)
    assert all(hints)
    assert compile_count() == before


def test_a_grid_past_the_y_axis_is_refused_with_the_axis(tmp_path: Any) -> None:
    path = tmp_path / "tall.cu.j2"
    text = Path(MODES).read_text()
    path.write_text(
        text.replace('["ceil_div(M * N, THREADS)", 1,', '[1, "ceil_div(M * N, THREADS)",')
    )
    with pytest.raises(GemmLabError, match="65535 in y and z") as caught:
        gemm_lab.run(str(path), shape=(9_000_000, 1, 1), backend="emulator")
    assert "x" in (caught.value.hint or "")
