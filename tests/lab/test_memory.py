"""What cannot fit is refused before any of its data is made."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeGpu

from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.errors import GemmLabError, ResourceError, UsageError
from gemm_lab.lab import api, memory, trial
from gemm_lab.lab.memory import check_memory
from gemm_lab.lab.trial import aligned_strides

GIB = 2**30


def problem(
    m: int, n: int, k: int, dtype: str = "fp32", layout: Layout = "nn", **other: Any
) -> GemmProblem:
    arithmetic = dtype_named(dtype)
    return GemmProblem(
        shape=Shape(m=m, n=n, k=k), dtype=arithmetic, out=arithmetic.default_out, layout=layout,
        **other,
    )  # fmt: skip


def check(asked: GemmProblem, backend: Any = None, *, padded: str = "", **other: Any) -> None:
    facts = {"workspace_bytes": 0, "lent": False, **other}
    strides = aligned_strides(asked, frozenset(padded))
    check_memory(asked, strides, backend or FakeGpu(), **facts)


def test_the_device_has_too_little() -> None:
    small = problem(1024, 1024, 2048)  # 8 MiB, 8 MiB, 4 MiB of the fake card's 64
    check(small)
    check(small, workspace_bytes=44 * 2**20)
    with pytest.raises(ResourceError, match=r"scratch 0\.0 GiB\) and Fake GPU has 0\.1 GiB free"):
        check(small, workspace_bytes=45 * 2**20)
    with pytest.raises(ResourceError, match=r"64x64x600000 in fp32, layout nn needs 0\.3 GiB"):
        check(problem(64, 64, 600_000))
    check(problem(64, 64, 600_000), lent=True)


def test_padded_rows_count() -> None:
    thin = problem(3_000_000, 1, 1, "bf16")  # 6 MB of A, 48 with whole 16 bytes a row
    check(thin)
    with pytest.raises(ResourceError, match="in bf16"):
        check(thin, padded="ac")


def test_the_host_has_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_host_bytes", lambda: 40 * 2**20)
    asked = problem(1024, 1024, 2048)  # A, B, and a matrix as it is drawn
    check(asked)
    monkeypatch.setattr(memory, "_host_bytes", lambda: 20 * 2**20)
    with pytest.raises(UsageError, match="on the host and this machine has"):
        check(asked)
    monkeypatch.setattr(memory, "_host_bytes", lambda: 27 * 2**20)
    check(asked)
    with pytest.raises(UsageError, match="on the host"):
        check(problem(1024, 1024, 2048, beta=1.0))


def test_the_emulator_is_a_part_of_the_host() -> None:
    backend = EmulatorBackend(arch="sm_80")
    check(problem(512, 512, 512), backend)
    with pytest.raises(ResourceError, match=r"emulated sm_80 has 4\.0 GiB free"):
        check(problem(300_000_000, 1, 4), backend)
    held = backend.alloc(3 * GIB)
    with pytest.raises(ResourceError, match=r"has 1\.0 GiB free"):
        check(problem(100_000_000, 1, 2), backend)
    backend.free(held)
    check(problem(100_000_000, 1, 2), backend)


@pytest.mark.parametrize("shape", [(2**31 - 2**16, 1, 1), (2**20, 2**20, 1), (1, 1, 2**31 - 2**16)])
def test_no_data_is_made(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: Any, **__: Any) -> None:
        raise AssertionError("data was made")

    monkeypatch.setattr(trial, "uniform", made)
    with pytest.raises(GemmLabError, match="needs"):
        api.run("shared", shape=shape, backend="emulator")


def test_a_container_may_have_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path / "memory.max")
    whole = memory._host_bytes()
    (tmp_path / "memory.max").write_text("1048576\n")
    assert memory._host_bytes() == 2**20
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._host_bytes() == whole
