"""CUDA text to PTX without a GPU, and one call to run it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import nvrtc

from gemm_lab.emulator import LaunchReport, LoadedModule, Memory, Options, launch, load_ptx

HALF_HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


def header_options() -> list[str]:
    import nvidia

    return [f"-I{path}" for root in nvidia.__path__ for path in Path(root).glob("*/include")]


@functools.lru_cache(maxsize=512)
def ptx_of(source: str, arch: str = "sm_80") -> str:
    """PTX that NVRTC makes of a CUDA text; its log when it refuses."""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"/gemm_lab/test.cu", 0, [], [])
    options = [f"-arch={arch}", "-lineinfo", "-std=c++17", *header_options()]
    encoded = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if int(status):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.rstrip(b"\0").decode()


@functools.lru_cache(maxsize=512)
def module_of(source: str, arch: str = "sm_80") -> LoadedModule:
    """A loaded module of a CUDA text."""
    return load_ptx(ptx_of(source, arch), source=source)


def run(
    source: str | LoadedModule,
    *args: Any,
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    entry: str = "k",
    arch: str = "sm_80",
    smem_bytes: int = 0,
    memory: Memory | None = None,
    **options: Any,
) -> LaunchReport:
    """Launch a kernel; arrays among `args` are uploaded, and overwritten with the results."""
    module = module_of(source, arch) if isinstance(source, str) else source
    memory = memory or Memory(256 << 20)
    buffers = {}
    packed = []
    for number, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            name = f"argument {number}"
            buffers[number] = memory.upload(arg, name=name)
            packed.append(buffers[number])
        else:
            packed.append(arg)
    report = launch(
        module,
        entry,
        grid=grid,
        block=block,
        args=packed,
        memory=memory,
        smem_bytes=smem_bytes,
        options=Options(**options),
    )
    for number, buffer in buffers.items():
        array = args[number]
        array[...] = memory.download(buffer, array.dtype, array.shape)
    return report


def wrap(body: str, params: str, head: str = "") -> str:
    """A kernel `k` around a body."""
    start = f"{head}\n" if head else ""
    return f'{start}extern "C" __global__ void k({params}) {{\n{body}\n}}\n'


def ptx_kernel(body: str, params: str = ".param .u64 out", registers: str = "") -> str:
    """A hand-written PTX module with an entry `k`."""
    return (
        ".version 8.5\n.target sm_90a\n.address_size 64\n"
        f".visible .entry k({params})\n{{\n"
        ".reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n"
        f".reg .b64 %rd<20>;\n.reg .f64 %fd<9>;\n{registers}\n{body}\nret;\n}}\n"
    )
