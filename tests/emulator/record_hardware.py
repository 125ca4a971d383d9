"""Run the hardware cases on this machine's card and keep their outputs.

    python tests/emulator/record_hardware.py

Arrays behind the kernel's own parameters (those that only tensor maps read) are not passed to it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cuda.bindings import nvrtc

sys.path.insert(0, str(Path(__file__).parent))
from emulator_helpers import header_options
from hardware_cases import CASES, RECORDED, Case, TensorMapOver

from gemm_lab.core.dtypes import scalar
from gemm_lab.core.kernel import TensorMapSpec
from gemm_lab.gpu.tensor_map import encode_tensor_map

SCALARS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3"}


def cubin_of(case: Case) -> bytes:
    """Machine code of a case."""
    _, program = nvrtc.nvrtcCreateProgram(case.source.encode(), b"/gemm_lab/test.cu", 0, [], [])
    options = [f"-arch={case.arch}", "-lineinfo", "-std=c++17", *header_options()]
    encoded = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if int(status):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.decode())
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    code = b" " * size
    nvrtc.nvrtcGetCUBIN(program, code)
    return code


def run(case: Case) -> dict[str, np.ndarray]:
    """Outputs of a case by `name/argument`, as bytes' own types."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin_of(case))
        file.flush()
        function = cupy.RawModule(path=file.name).get_function("k")
        if case.smem_bytes > 48 * 1024:
            function.max_dynamic_shared_size_bytes = case.smem_bytes
        device: dict[int, Any] = {
            n: cupy.asarray(np.ascontiguousarray(a).view(np.uint8))
            for n, a in enumerate(case.args)
            if isinstance(a, np.ndarray)
        }
        mapped = {a.argument for a in case.args if isinstance(a, TensorMapOver)}
        args: list[Any] = []
        for number, arg in enumerate(case.args):
            if isinstance(arg, TensorMapOver):
                array = case.args[arg.argument]
                spec = TensorMapSpec(
                    operand="a",
                    dtype=scalar(SCALARS[array.dtype.name]),
                    dims=(array.shape[1], array.shape[0]),
                    strides_bytes=(array.shape[1] * array.itemsize,),
                    box=arg.box,
                    swizzle=arg.swizzle,  # type: ignore[arg-type]
                )
                data = encode_tensor_map(spec, device[arg.argument].data.ptr)
                args.append(np.frombuffer(data, dtype="V128")[0])
            elif isinstance(arg, np.ndarray):
                if number not in mapped:
                    args.append(device[number])
            else:
                args.append(np.int32(arg))
        function((case.grid,), (case.block,), tuple(args), shared_mem=case.smem_bytes)
        cupy.cuda.Device().synchronize()
    return {f"{case.name}/{n}": cupy.asnumpy(device[n]) for n in case.outputs}


def main() -> None:
    """Record every case that this card can run."""
    major = int(cupy.cuda.Device().compute_capability)
    out: dict[str, np.ndarray] = {}
    for case in CASES:
        need = int(case.arch.strip("sm_a"))
        if need > major or (case.arch.endswith("a") and need != major):
            print(f"skipped: {case.name} needs {case.arch}")
            continue
        out.update(run(case))
        print(case.name)
    RECORDED.parent.mkdir(exist_ok=True)
    np.savez_compressed(RECORDED, **out)


if __name__ == "__main__":
    main()
