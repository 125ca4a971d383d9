"""Marks that need a GPU, skipped with the reason or failed where one was promised; one cache."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

import pytest

from gemm_lab.core.arch import arch_number
from gemm_lab.gpu import GpuInfo, NoGpu, find_gpu

REQUIRE_GPU = "GEMM_LAB_REQUIRE_GPU"


@pytest.fixture(scope="session", autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one test compiles, others and other workers find; the caller's own cache is left alone.

    GEMM_LAB_CACHE_DIR keeps it from one run to the next.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "GEMM_LAB_CACHE_DIR" not in os.environ:
            base = tmp_path_factory.getbasetemp()
            shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
            patch.setenv("GEMM_LAB_CACHE_DIR", str(shared / "kernels"))
        yield


@functools.cache
def _gpu() -> GpuInfo | NoGpu:
    return find_gpu()


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs = item.get_closest_marker("min_arch")
    if needs is None and item.get_closest_marker("gpu") is None:
        return
    found = _gpu()
    if isinstance(found, NoGpu):
        _miss(f"needs an NVIDIA GPU: {found.reason}")
    elif needs is not None and arch_number(found.arch) < needs.args[0]:
        _miss(f"needs a GPU of sm_{needs.args[0]} or later, this is {found.arch}")


def _miss(reason: str) -> None:
    if os.environ.get(REQUIRE_GPU) == "1":
        pytest.fail(f"{reason} ({REQUIRE_GPU}=1)", pytrace=False)
    pytest.skip(reason)
