"""Kernel arguments to the bytes of the parameter block."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemm_lab.emulator.faults import LaunchFault
from gemm_lab.emulator.module import EntryInfo
from gemm_lab.emulator.ptx.ir import Param
from gemm_lab.emulator.runtime.memory import Buffer

__all__ = ["pack_arguments"]


def pack_arguments(info: EntryInfo, args: Sequence[Any]) -> bytes:
    """Each argument in its parameter's place. LaunchFault for a wrong count or size."""
    if len(args) != len(info.params):
        raise LaunchFault(
            "arguments", f"{info.name} takes {len(info.params)}, {len(args)} were given"
        )
    size = max((p.offset + p.size_bytes for p in info.params), default=0)
    block = bytearray(size)
    for number, (param, arg) in enumerate(zip(info.params, args, strict=True)):
        data = _encode(param, arg, number)
        if len(data) != param.size_bytes:
            raise LaunchFault(
                "arguments",
                f"argument {number} has {len(data)} bytes, the kernel wants {param.size_bytes}",
            )
        block[param.offset : param.offset + len(data)] = data
    return bytes(block)


def _encode(param: Param, arg: Any, number: int) -> bytes:
    if isinstance(arg, Buffer):
        return struct.pack("<Q", arg.address)
    if isinstance(arg, bytes | bytearray | memoryview):
        return bytes(arg)
    if isinstance(arg, np.ndarray):
        return arg.tobytes()
    if isinstance(arg, np.generic):
        if arg.nbytes == param.size_bytes:
            return arg.tobytes()
        arg = arg.item()
    if isinstance(arg, bool | int):
        if param.type in ("f32", "f64"):
            return _float(param, float(arg))
        return (int(arg) & ((1 << 8 * param.size_bytes) - 1)).to_bytes(param.size_bytes, "little")
    if isinstance(arg, float):
        return _float(param, arg)
    raise LaunchFault("arguments", f"argument {number} is a {type(arg).__name__}")


def _float(param: Param, value: float) -> bytes:
    # NVRTC 13 declares floats as .b32, so the size decides.
    dtype = {8: np.float64, 4: np.float32, 2: np.float16}.get(param.size_bytes)
    if dtype is None:
        raise LaunchFault("arguments", f"a number for a parameter of {param.size_bytes} bytes")
    with np.errstate(over="ignore"):
        return np.array([value], dtype=dtype).tobytes()
