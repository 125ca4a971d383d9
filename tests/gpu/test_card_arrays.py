"""Arrays of every library on a real card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemm_lab.core.dtypes import scalar
from gemm_lab.gpu.arrays import empty_output, may_overlap, packed, quick_looker, view
from gemm_lab.gpu.streams import on_stream, wait_for

pytestmark = pytest.mark.gpu

CUTS = {
    "whole": np.s_[:, :],
    "slice": np.s_[1:5, 2:7],
    "reversed": np.s_[::-1, ::-2],
    "steps": np.s_[::2, ::3],
    "empty": np.s_[2:2, :],
}


def host(seen: Any) -> np.ndarray[Any, Any]:
    """The elements of a packed view, padding cut off."""
    import cupy

    return cupy.asnumpy(seen.owner)[..., : seen.shape[-1]]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("row_multiple", [1, 16])
def test_packed_copy(cut: str, dtype: str, transpose: bool, row_multiple: int) -> None:
    import cupy

    base = np.arange(72).astype(dtype).reshape(8, 9)
    part, expected = cupy.asarray(base)[CUTS[cut]], base[CUTS[cut]]
    if transpose:
        part, expected = part.T, expected.T
    seen = view(part)
    assert seen.shape == expected.shape
    assert seen.address == part.data.ptr
    copy = packed(seen, row_multiple=row_multiple)
    assert copy.strides[-1] == 1
    assert copy.strides[0] % row_multiple == 0
    carried = expected.view({1: "u1", 2: "u2", 4: "u4"}[expected.itemsize])
    np.testing.assert_array_equal(host(copy), carried)
    if seen.size:
        assert not may_overlap(seen, copy)
        assert may_overlap(seen, view(part))


def test_broadcast() -> None:
    import cupy

    seen = view(cupy.broadcast_to(cupy.asarray([1, 2, 3], np.float32), (4, 3)))
    assert seen.strides == (0, 1)
    assert host(packed(seen)).view("f4").tolist() == [[1, 2, 3]] * 4


def test_quick_look_tells_apart_what_differs() -> None:
    import cupy

    look = quick_looker()
    a, b, c = (cupy.zeros((4, 8), np.float32) for _ in range(3))
    found = look(a, b, c)
    assert found is not None
    assert found[1] == (a.data.ptr, b.data.ptr, c.data.ptr)
    same = look(c, a, b)
    assert same is not None
    assert same[0] == found[0]
    for other in (a.T.copy(), a[:, ::2], a.astype(np.float16), cupy.zeros(40, np.float32)[1:33]):
        changed = look(other.reshape(4, 8) if other.ndim == 1 else other, b, c)
        assert changed is not None
        assert changed[0] != found[0]
    assert look(a, np.zeros((4, 8)), c) is None


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int8", "float8_e4m3fn"])
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24, device="cuda").reshape(4, 6).to(getattr(torch, name))
    seen = view(tensor.T[1:4:2])
    names = {
        "float32": "fp32",
        "float16": "fp16",
        "bfloat16": "bf16",
        "int8": "int8",
        "float8_e4m3fn": "fp8_e4m3",
    }
    assert (seen.scalar, seen.shape, seen.strides) == (names[name], (2, 4), (2, 6))
    assert seen.address == tensor.data_ptr() + tensor.element_size()
    assert seen.device == tensor.device.index
    assert seen.stream == torch.cuda.current_stream().cuda_stream
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    expected = tensor.view(bits).T[1:4:2].cpu().numpy()
    got = host(packed(seen)).view(expected.dtype)
    np.testing.assert_array_equal(got, expected)


def test_torch_output_and_host_tensors() -> None:
    torch = pytest.importorskip("torch")
    like = torch.zeros(2, device="cuda")
    for name in ("fp32", "fp16", "bf16", "int32"):
        made = empty_output((3, 5), scalar(name), device=like.device.index, like=like)
        assert isinstance(made, torch.Tensor)
        assert view(made).scalar == name
    on_host = view(torch.zeros(3, 4, dtype=torch.bfloat16))
    assert (on_host.device, on_host.scalar) == (None, "bf16")


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "int32"])
def test_cupy_output(name: str) -> None:
    import cupy

    if name == "bf16" and int(cupy.__version__.partition(".")[0]) < 14:
        pytest.skip(f"CuPy {cupy.__version__} has no bfloat16")
    made = empty_output((3, 5), scalar(name), device=0)
    seen = view(made)
    assert (seen.scalar, seen.strides, seen.device) == (name, (5, 1), 0)


class Speaks:
    """Hides an array behind one protocol."""

    def __init__(self, array: Any, protocol: str) -> None:
        if protocol == "cuda_array_interface":
            self.__cuda_array_interface__ = array.__cuda_array_interface__
        else:
            self._array = array

    def __getattr__(self, name: str) -> Any:
        if name in ("__dlpack__", "__dlpack_device__") and "_array" in self.__dict__:
            return getattr(self._array, name)
        raise AttributeError(name)


@pytest.mark.parametrize("protocol", ["cuda_array_interface", "dlpack"])
def test_protocols(protocol: str) -> None:
    import cupy

    array = cupy.arange(48, dtype=np.float32).reshape(6, 8)[1:5, ::2]
    seen = view(Speaks(array, protocol))
    direct = view(array)
    assert (seen.address, seen.shape, seen.strides) == (
        direct.address,
        direct.shape,
        direct.strides,
    )
    assert (seen.scalar, seen.device) == ("fp32", direct.device)


def test_waiting_orders_streams() -> None:
    import cupy

    producer, consumer = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    big = cupy.zeros(2**28, np.float32)
    cupy.cuda.Device().synchronize()
    for _ in range(5):
        with on_stream(producer.ptr, 0):
            for _ in range(20):
                big += 1
        wait_for(producer.ptr, consumer.ptr)
        with on_stream(consumer.ptr, 0):
            last = big[-1:].copy()
        consumer.synchronize()
        assert producer.done
        assert float(last[0]) % 20 == 0
