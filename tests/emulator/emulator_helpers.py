"""CUDA text to PTX without a GPU, and one call to run it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemm_lab.emulator import LaunchReport, LoadedModule, Memory, Options, launch, load_ptx
from gemm_lab.jit.compile import toolchain
from gemm_lab.jit.headers import resolve_includes

HALF_HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


@functools.lru_cache(maxsize=512)
def ptx_of(source: str, arch: str = "sm_80") -> str:
    """PTX that the lab's NVRTC makes of a CUDA text; its log when it refuses."""
    tools = toolchain()
    included = resolve_includes(source, tools.headers) if tools.headers else None
    output = tools.nvrtc().compile(
        included.source if included else source,
        program_name="/gemm_lab/test.cu",
        options=(f"--gpu-architecture={arch}", "--std=c++17", "-lineinfo"),
        headers=included.headers if included else {},
    )
    if not output.ok:
        raise AssertionError(output.log)
    return output.ptx


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
