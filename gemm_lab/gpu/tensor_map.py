"""TMA tensor maps: the 128 opaque bytes that a kernel takes by value."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from gemm_lab.core.kernel import TensorMapSpec
from gemm_lab.errors import LaunchError, UsageError

__all__ = ["TENSOR_MAP_BYTES", "check_tensor_map", "encode_tensor_map"]

TENSOR_MAP_BYTES = 128

_DATA_TYPES = {
    "fp32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
    "fp16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
    "bf16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    "fp8_e4m3": "CU_TENSOR_MAP_DATA_TYPE_UINT8",
    "int8": "CU_TENSOR_MAP_DATA_TYPE_UINT8",
    "int32": "CU_TENSOR_MAP_DATA_TYPE_INT32",
}
_ROUND_TF32 = "CU_TENSOR_MAP_DATA_TYPE_TFLOAT32"
_SWIZZLES = {"none": "NONE", "32B": "32B", "64B": "64B", "128B": "128B"}
_SWIZZLE_BYTES = {"32B": 32, "64B": 64, "128B": 128}


def check_tensor_map(spec: TensorMapSpec, address: int) -> None:
    """UsageError that names the rule of cuTensorMapEncodeTiled which the map breaks.

    Rules: CUDA Driver API, "Tensor Map Object Management".
    """
    what = f"tensor map of {spec.operand}"
    size = spec.dtype.size_bytes
    if not 1 <= len(spec.dims) <= 5:
        raise UsageError(f"{what}: {len(spec.dims)} dimensions, 1 to 5 are possible")
    if len(spec.box) != len(spec.dims) or len(spec.strides_bytes) != len(spec.dims) - 1:
        raise UsageError(
            f"{what}: {len(spec.dims)} dims need as many box sizes and one stride fewer, "
            f"got {len(spec.box)} and {len(spec.strides_bytes)}"
        )
    if address % 16:
        raise UsageError(
            f"{what}: address {address:#x} is not a multiple of 16 bytes",
            hint="copy the operand to an aligned buffer",
        )
    for stride in spec.strides_bytes:
        if stride % 16 or not 0 <= stride < 2**40:
            raise UsageError(
                f"{what}: stride of {stride} bytes is not a multiple of 16 below 2^40",
                hint="copy the operand to rows of a multiple of 16 bytes",
            )
    if any(not 1 <= d <= 2**32 for d in spec.dims):
        raise UsageError(f"{what}: dims {spec.dims} must lie in 1 to 2^32")
    if any(not 1 <= b <= 256 for b in spec.box):
        raise UsageError(f"{what}: box {spec.box} must lie in 1 to 256 elements")
    inner_bytes = spec.box[0] * size
    if inner_bytes % 16:
        raise UsageError(f"{what}: the box's inner {inner_bytes} bytes are no multiple of 16")
    most = _SWIZZLE_BYTES.get(spec.swizzle)
    if most is not None and inner_bytes > most:
        raise UsageError(
            f"{what}: the box's inner {inner_bytes} bytes exceed the swizzle's {most}",
            hint=f"a box of at most {most // size} elements, or several copies",
        )


@functools.lru_cache(maxsize=4096)
def encode_tensor_map(spec: TensorMapSpec, address: int) -> bytes:
    """The map of `spec` over device memory at `address` (bytes), out-of-bounds reads as zero.

    Needs a driver (CUDA 12.0 and up) and no device memory; remembered by spec and address.
    """
    check_tensor_map(spec, address)
    driver = _bindings()
    rank = len(spec.dims)
    status, tensor_map = driver.cuTensorMapEncodeTiled(
        getattr(
            driver.CUtensorMapDataType,
            _ROUND_TF32 if spec.round_tf32 else _DATA_TYPES[spec.dtype.name],
        ),
        rank,
        address,
        [driver.cuuint64_t(d) for d in spec.dims],
        # A map of one dimension has no strides, yet the driver refuses a null pointer to them,
        # which is what the bindings make of an empty list.
        [driver.cuuint64_t(s) for s in spec.strides_bytes or (16,)],
        [driver.cuuint32_t(b) for b in spec.box],
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[spec.swizzle]}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if int(status) != 0:
        raise LaunchError(
            f"the driver refused the tensor map of {spec.operand} ({status!s}): dims {spec.dims}, "
            f"strides {spec.strides_bytes} bytes, box {spec.box}, swizzle {spec.swizzle}",
            hint="tensor maps need a device of sm_90 and a driver of CUDA 12",
        )
    return ctypes.string_at(tensor_map.getPtr(), TENSOR_MAP_BYTES)


def _bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as fault:
        raise LaunchError(
            f"tensor maps need cuda-bindings, which cannot be imported: {fault}",
            hint="pip install cuda-bindings, of the same major version as CUDA",
        ) from fault
    return driver
