"""Views of arrays: addresses, strides, bounds, overlap; what needs no GPU of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemm_lab.core.dtypes import SCALARS
from gemm_lab.errors import UsageError
from gemm_lab.gpu import arrays
from gemm_lab.gpu.arrays import ArrayView, may_overlap, view


def elements(seen: ArrayView) -> set[int]:
    """Byte addresses of every element's bytes, by brute force."""
    found: set[int] = set()
    for index in np.ndindex(*seen.shape):
        start = seen.address + seen.itemsize * sum(
            i * s for i, s in zip(index, seen.strides, strict=True)
        )
        found.update(range(start, start + seen.itemsize))
    return found


@pytest.mark.parametrize(
    ("dtype", "scalar"),
    [
        ("float32", "fp32"),
        ("float16", "fp16"),
        (ml_dtypes.bfloat16, "bf16"),
        (ml_dtypes.float8_e4m3fn, "fp8_e4m3"),
        ("int8", "int8"),
        ("int32", "int32"),
        ("uint8", "uint8"),
        ("float64", "float64"),
    ],
)
def test_numpy_types(dtype: Any, scalar: str) -> None:
    seen = view(np.zeros((3, 5), dtype))
    assert (seen.scalar, seen.shape, seen.strides, seen.device) == (scalar, (3, 5), (5, 1), None)


def test_every_type_of_the_lab_has_a_name() -> None:
    assert set(arrays._LAB_NAMES.values()) == set(SCALARS)


slices = st.tuples(st.integers(0, 7), st.integers(0, 8), st.sampled_from([-3, -2, -1, 1, 2, 3]))


@given(rows=slices, columns=slices, transpose=st.booleans())
def test_bounds_are_those_of_the_elements(
    rows: tuple[int, int, int], columns: tuple[int, int, int], transpose: bool
) -> None:
    base = np.arange(56, dtype=np.float32).reshape(7, 8)
    part = base[slice(*rows), slice(*columns)]
    part = part.T if transpose else part
    seen = view(part)
    touched = elements(seen)
    if not touched:
        assert seen.high == seen.low
        return
    assert (seen.low, seen.high) == (min(touched), max(touched) + 1)
    assert seen.address == part.ctypes.data


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (np.s_[0:2], np.s_[2:4], False),
        (np.s_[0:3], np.s_[2:4], True),
        (np.s_[3::-1], np.s_[4:], False),
        (np.s_[4::-1], np.s_[4:], True),
        (np.s_[0:0], np.s_[0:4], False),
    ],
)
def test_overlap(first: Any, second: Any, expected: bool) -> None:
    base = np.zeros((6, 4), np.float32)
    assert may_overlap(view(base[first]), view(base[second])) is expected
    assert may_overlap(view(base[second]), view(base[first])) is expected


def test_broadcast_has_zero_stride_and_is_readonly() -> None:
    seen = view(np.broadcast_to(np.float32(1), (3, 4)))
    assert seen.strides == (0, 0)
    assert seen.readonly
    assert seen.high - seen.low == 4


def test_strides_inside_an_element() -> None:
    pairs = np.zeros((4, 3), np.dtype([("x", "<f4"), ("y", "<i2")]))
    with pytest.raises(UsageError, match=r"pass b\.copy\(\)"):
        view(pairs["x"], name="b")


def test_masked_elements_are_not_passed_over() -> None:
    with pytest.raises(UsageError, match="masked"):
        view(np.ma.masked_array([1.0, 2.0], mask=[False, True]))


def test_other_byte_order() -> None:
    with pytest.raises(UsageError, match="byte order"):
        view(np.zeros(3, ">f4"))


@pytest.mark.parametrize("what", [[1.0, 2.0], 3.0, None, "text"])
def test_not_an_array(what: object) -> None:
    with pytest.raises(UsageError, match=r"a is a .*, not an array"):
        view(what, name="a")


class Interface:
    def __init__(self, **entries: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (3, 4),
            "typestr": "<f4",
            "data": (4096, False),
            "version": 3,
            **entries,
        }


@pytest.fixture
def device_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_device_of", lambda address: 1)


@pytest.mark.usefixtures("device_one")
@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({}, {"strides": (4, 1), "scalar": "fp32", "device": 1, "stream": None}),
        ({"strides": (-32, 8)}, {"strides": (-8, 2), "address": 4096}),
        ({"strides": None, "stream": 2}, {"strides": (4, 1), "stream": 2}),
        ({"typestr": "<V2"}, {"scalar": "bf16", "itemsize": 2}),
        ({"typestr": "|u1", "data": (4096, True)}, {"scalar": "uint8", "readonly": True}),
        ({"shape": (0, 4)}, {"shape": (0, 4), "size": 0}),
    ],
)
def test_cuda_array_interface(entries: dict[str, Any], expected: dict[str, Any]) -> None:
    seen = view(Interface(**entries))
    assert {name: getattr(seen, name) for name in expected} == expected


@pytest.mark.usefixtures("device_one")
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"mask": object()}, "masked"),
        ({"typestr": ">f4"}, "big-endian"),
        ({"strides": (6, 4)}, "no multiples"),
    ],
)
def test_interface_that_cannot_be_used(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        view(Interface(**entries), name="a")


class OnHost:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any], kind: int = 1) -> None:
        self.array = array
        self.kind = kind

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)


def test_dlpack_on_the_host() -> None:
    array = np.zeros((3, 4), np.float32)
    assert view(OnHost(array)).address == array.ctypes.data
    with pytest.raises(UsageError, match="not CUDA"):
        view(OnHost(array, kind=10))
