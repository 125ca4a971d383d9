"""Refusals before a launch, maps before they are encoded, CUDA's numbers in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_gpu_checks import LIMITS

from gemm_lab.core.dtypes import scalar
from gemm_lab.core.kernel import KernelLaunch, TensorMapSpec
from gemm_lab.errors import GemmLabError, LaunchError, NoGpuError, ResourceError, UsageError
from gemm_lab.gpu.faults import POISONING, translate
from gemm_lab.gpu.limits import FunctionFacts, check_launch
from gemm_lab.gpu.tensor_map import check_tensor_map

FACTS = FunctionFacts(
    entry="gemm",
    registers_per_thread=128,
    static_smem_bytes=1024,
    local_bytes=0,
    max_threads_per_block=512,
    binary_version=90,
)
LAUNCH = KernelLaunch(entry="gemm", grid=(8, 8, 1), block=(256, 1, 1), smem_bytes=0, params=())


def test_what_fits_passes() -> None:
    check_launch(LAUNCH, FACTS, LIMITS)
    most = LIMITS.smem_per_block_optin_bytes - FACTS.static_smem_bytes
    check_launch(replace(LAUNCH, smem_bytes=most), FACTS, LIMITS)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"grid": (8, 65536, 1)}, LaunchError, "grid y = 65536, the device allows 65535"),
        ({"grid": (0, 1, 1)}, LaunchError, "below 1"),
        ({"block": (1, 1, 65)}, ResourceError, "block z = 65, the device allows 64"),
        ({"block": (64, 32, 1)}, ResourceError, "2048 threads a block, the device allows 1024"),
        ({"block": (1024, 1, 1)}, ResourceError, "keep it to 64 registers"),
        ({"smem_bytes": 232448}, ResourceError, "233472 bytes of shared memory in all"),
    ],
)
def test_what_does_not_fit(changes: dict[str, Any], kind: type[GemmLabError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        check_launch(replace(LAUNCH, **changes), FACTS, LIMITS)
    assert "launch of gemm: grid" in str(caught.value)
    assert caught.value.hint


MAP = TensorMapSpec(
    operand="a",
    dtype=scalar("fp16"),
    dims=(512, 256),
    strides_bytes=(1024,),
    box=(64, 128),
    swizzle="128B",
)


def test_map_that_keeps_the_rules() -> None:
    check_tensor_map(MAP, 4096)


@pytest.mark.parametrize(
    ("changes", "address", "message"),
    [
        ({}, 4104, "no.* multiple of 16|not a multiple of 16"),
        ({"strides_bytes": (1000,)}, 4096, "stride of 1000 bytes"),
        ({"box": (128, 128)}, 4096, "inner 256 bytes exceed the swizzle's 128"),
        ({"box": (4, 128)}, 4096, "no multiple of 16"),
        ({"box": (64, 257)}, 4096, "1 to 256"),
        ({"dims": (512, 0)}, 4096, "must lie in 1 to"),
        ({"box": (64,)}, 4096, "as many box sizes"),
        ({"dims": (1,) * 6}, 4096, "6 dimensions"),
    ],
)
def test_map_that_breaks_a_rule(changes: dict[str, Any], address: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_tensor_map(replace(MAP, **changes), address)


class FakeCudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (1, LaunchError, "launching gemm failed"),
        (2, ResourceError, "out of memory"),
        (35, NoGpuError, "launching gemm failed"),
        (209, LaunchError, "another architecture"),
        (701, ResourceError, "registers or threads"),
        (700, LaunchError, "context of this process is poisoned"),
        (12345, LaunchError, "CUDA error 12345"),
    ],
)
def test_numbers_in_words(status: int, kind: type[GemmLabError], message: str) -> None:
    translated = translate(FakeCudaError(status), "launching gemm")
    assert type(translated) is kind
    assert message in translated.message
    assert translated.hint


@pytest.mark.parametrize("status", POISONING)
def test_every_sticky_error_says_that_the_process_is_done(status: int) -> None:
    assert "poisoned" in translate(FakeCudaError(status), "waiting").message
