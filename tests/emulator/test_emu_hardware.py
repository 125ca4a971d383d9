"""The emulator against outputs that were recorded on a card."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - teaches NumPy its types
import numpy as np
import pytest
from emulator_helpers import run
from hardware_case import Case, TensorMapOver
from hardware_cases import CASES, RECORDED

from gemm_lab.emulator import Memory
from gemm_lab.emulator.tensor.maps import encode_tensor_map


def outputs(case: Case) -> dict[str, np.ndarray]:
    """What the emulator computes."""
    memory = Memory(64 << 20)
    mapped = {}
    for arg in case.args:
        if isinstance(arg, TensorMapOver):
            array = case.args[arg.argument]
            mapped[arg.argument] = memory.upload(np.ascontiguousarray(array).view(np.uint8))
    args = []
    arrays = {}
    for number, arg in enumerate(case.args):
        if isinstance(arg, TensorMapOver):
            array = case.args[arg.argument]
            args.append(
                encode_tensor_map(
                    address=mapped[arg.argument].address,
                    element=array.dtype.name,
                    element_bytes=array.itemsize,
                    dims=arg.extents(array),
                    strides_bytes=arg.strides_bytes(array),
                    box=arg.box,
                    swizzle=arg.swizzle,
                    round_tf32=arg.round_tf32,
                )
            )
        elif isinstance(arg, np.ndarray):
            if number not in mapped:
                arrays[number] = arg.copy()
                args.append(arrays[number])
        else:
            args.append(arg)
    run(
        case.source, *args, grid=(case.grid,), block=(case.block,), arch=case.arch, memory=memory,
        smem_bytes=case.smem_bytes, exact_fma=case.exact_fma,
    )  # fmt: skip
    out = {}
    for number in case.outputs:
        array = case.args[number]
        if number in mapped:
            raw = memory.download(mapped[number], np.uint8, (array.nbytes,))
            out[f"{case.name}/{number}"] = raw.view(array.dtype).reshape(array.shape)
        else:
            out[f"{case.name}/{number}"] = arrays[number]
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equal_to_the_card(case):
    got = outputs(case)
    if not RECORDED.exists():
        pytest.skip("no outputs were recorded; run record_hardware.py on a card")
    with np.load(RECORDED) as recorded:
        for name, value in got.items():
            if name not in recorded:
                pytest.skip("the card that was recorded could not run it")
            want = recorded[name].reshape(-1).view(value.dtype).reshape(value.shape)
            if case.tolerance == case.absolute == 0:
                np.testing.assert_array_equal(value.view(np.uint8), want.view(np.uint8))
            else:
                a, b = value.astype(np.float64), want.astype(np.float64)
                scale = np.maximum(np.abs(b), np.abs(b).max() * 1e-2)
                assert (np.abs(a - b) <= case.tolerance * scale + case.absolute).all()
