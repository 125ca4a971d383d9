"""Tensor maps: 128 bytes that describe a tensor in global memory and a box of it.

The layout of the bytes is the emulator's own; a map that the driver encoded cannot be read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from gemm_lab.emulator.faults import LaunchFault, MemoryFault

__all__ = ["MAP_BYTES", "SWIZZLE_BYTES", "TensorMap", "decode_tensor_map", "encode_tensor_map"]

MAP_BYTES = 128
MAGIC = b"GLABTMA1"
FORMAT = struct.Struct("<8sQBBBBB5I4Q5I")
SWIZZLE_BYTES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
MAX_BOX = 256
KINDS = ("", "f16", "bf16", "f32", "f64", "i32", "u32", "i64", "u64")
# By the lab's names and by NumPy's.
ELEMENT_KINDS = {
    "fp16": "f16", "float16": "f16", "bf16": "bf16", "bfloat16": "bf16", "fp32": "f32",
    "float32": "f32", "float64": "f64", "int32": "i32", "uint32": "u32", "int64": "i64",
    "uint64": "u64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A decoded map. Dimensions are innermost first; `strides` are bytes of each dimension.

    `kind` is the type in which bulk reductions compute; "" for elements that are only moved.
    """

    address: int
    element_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    round_tf32: bool = False
    kind: str = ""

    @property
    def box_bytes(self) -> int:
        """Bytes of a box that move, and that an mbarrier is told of."""
        return self.inner_bytes * math.prod(self.box[1:])

    @property
    def inner_bytes(self) -> int:
        """Bytes of the box's innermost dimension."""
        return self.box[0] * self.element_bytes

    @property
    def pitch_bytes(self) -> int:
        """Bytes of shared memory from one row of the box to the next: a whole swizzle at least."""
        return max(self.inner_bytes, self.swizzle)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a box takes."""
        return self.pitch_bytes * math.prod(self.box[1:])


def encode_tensor_map(
    *,
    address: int,
    element: str,
    element_bytes: int,
    dims: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: str = "none",
    round_tf32: bool = False,
) -> bytes:
    """128 bytes for a kernel's `__grid_constant__ CUtensorMap` parameter.

    `round_tf32` asks for float32 elements rounded to tf32 on the way. LaunchFault where the
    driver would refuse: alignment, extents, a box wider than its swizzle.
    """
    rank = len(dims)
    span = SWIZZLE_BYTES.get(swizzle)

    def check(good: bool, what: str) -> None:
        if not good:
            raise LaunchFault("tensor map", f"{element}: {what}")

    check(1 <= rank <= 5 and len(box) == rank and len(strides_bytes) == rank - 1, "its rank")
    check(span is not None, f"swizzle {swizzle!r}")
    check(address % 16 == 0, f"address {address:#x} is no multiple of 16")
    check(all(0 < d < 1 << 32 for d in dims), f"dimensions {tuple(dims)}")
    check(all(s % 16 == 0 and 0 <= s < 1 << 40 for s in strides_bytes), f"strides {strides_bytes}")
    check(all(0 < b <= MAX_BOX for b in box), f"box {tuple(box)}: each extent is 1 to {MAX_BOX}")
    inner = box[0] * element_bytes
    check(inner % 16 == 0, f"{inner} bytes in the box's inner dimension, no multiple of 16")
    check(not span or inner <= span, f"{inner} bytes in the inner dimension, swizzle {swizzle}")
    pad = 5 - rank
    return FORMAT.pack(
        MAGIC,
        address,
        rank,
        element_bytes,
        span or 0,
        int(round_tf32),
        KINDS.index(ELEMENT_KINDS.get(element, "")),
        *dims,
        *[0] * pad,
        *strides_bytes,
        *[0] * (4 - len(strides_bytes)),
        *box,
        *[0] * pad,
    ).ljust(MAP_BYTES, b"\0")


def decode_tensor_map(data: bytes) -> TensorMap:
    """The map that 128 bytes hold; MemoryFault when they are none."""
    if len(data) < FORMAT.size or data[:8] != MAGIC:
        raise MemoryFault(
            "tensor map",
            "the address holds no tensor map of the emulator",
            hint="pass one made by encode_tensor_map, or a TensorMapArgument",
        )
    fields = FORMAT.unpack_from(data)
    address, rank, element_bytes, swizzle = fields[1:5]
    dims, strides, box = fields[7:12], fields[12:16], fields[16:21]
    return TensorMap(
        address,
        element_bytes,
        tuple(dims[:rank]),
        (element_bytes, *strides[: rank - 1]),
        tuple(box[:rank]),
        swizzle,
        bool(fields[5]),
        KINDS[fields[6]],
    )
