"""Packing and repeating a launch, against a driver that writes down what it is told."""

from __future__ import annotations

import ctypes
import struct
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from gemm_lab.core.backend import Argument, Pointer, Scalar, TensorMapArgument
from gemm_lab.core.dtypes import scalar
from gemm_lab.core.kernel import KernelLaunch, TensorMapSpec
from gemm_lab.errors import LaunchError, UsageError
from gemm_lab.gpu import tensor_map
from gemm_lab.gpu.launch import ArgumentLayout, LaunchCalls, PreparedLaunch, prepare_launch

C_TYPES = {"int": "i", "long long": "q", "float": "f", "double": "d"}
MAP = TensorMapSpec(
    operand="a", dtype=scalar("fp16"), dims=(64, 64), strides_bytes=(128,), box=(64, 64)
)


class FakeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class FakeDriver:
    """Reads the arguments back through the address array, as the driver would."""

    def __init__(self, arguments: list[Argument]) -> None:
        self.arguments = arguments
        self.seen: list[list[object]] = []
        self.launches: list[tuple[int, ...]] = []
        self.devices: list[int] = []
        self.failures: list[int] = []
        self.bound: list[int] = []
        self.device = 0
        self.inside = 0

    def launch_kernel(self, function: int, *rest: int) -> None:
        if self.failures:
            raise FakeError(self.failures.pop(0))
        *geometry, stream, params, extra = rest
        assert extra == 0
        addresses = (ctypes.c_uint64 * len(self.arguments)).from_address(params)
        values: list[object] = []
        for address, argument in zip(addresses, self.arguments, strict=True):
            if isinstance(argument, Pointer):
                values.append(struct.unpack("Q", ctypes.string_at(address, 8))[0])
            elif isinstance(argument, TensorMapArgument):
                assert address % 64 == 0
                values.append(ctypes.string_at(address, 128))
            else:
                code = C_TYPES[argument.c_type]
                size = struct.calcsize(code)
                values.append(struct.unpack(code, ctypes.string_at(address, size))[0])
        self.seen.append(values)
        self.launches.append((function, *geometry, stream))

    def use_device(self, device: int) -> nullcontext[None]:
        self.devices.append(device)
        return nullcontext()

    def calls(self) -> LaunchCalls:
        return LaunchCalls(
            launch_kernel=self.launch_kernel,
            current_stream=lambda: SimpleNamespace(ptr=77),
            current_device=lambda: self.device,
            use_device=self.use_device,
            bind_context=self.bound.append,
            encode_tensor_map=lambda spec, address: struct.pack("Q", address) * 16,
            errors=(FakeError,),
            translate=lambda fault, doing: LaunchError(f"{doing}: {fault}"),
        )


def prepared(driver: FakeDriver, params: tuple[str, ...]) -> PreparedLaunch:
    launch = KernelLaunch(
        entry="gemm", grid=(3, 2, 1), block=(32, 4, 1), smem_bytes=1024, params=params
    )
    return prepare_launch(
        function=99,
        launch=launch,
        arguments=driver.arguments,
        device=0,
        calls=driver.calls(),
        description="launch of gemm",
    )


def plain() -> tuple[FakeDriver, PreparedLaunch]:
    driver = FakeDriver(
        [
            Scalar("int", 7),
            Scalar("float", 1.5),
            Pointer(0),
            Scalar("long long", 2**40 + 1),
            Pointer(0),
            Scalar("double", 0.1),
            Pointer(0),
        ]
    )
    return driver, prepared(driver, ("M", "alpha", "A", "lda", "B", "beta", "C"))


def test_arguments_arrive_in_order_and_type() -> None:
    driver, launch = plain()
    launch.launch((10, 20, 2**63))
    assert driver.seen == [[7, 1.5, 10, 2**40 + 1, 20, 0.1, 2**63]]
    assert driver.launches == [(99, 3, 2, 1, 32, 4, 1, 1024, 77)]
    assert launch.pointer_params == ("A", "B", "C")


def test_only_addresses_change_between_calls() -> None:
    driver, launch = plain()
    launch.launch((1, 2, 3))
    launch.launch([4, 5, 6], 123)
    assert driver.seen[1] == [7, 1.5, 4, 2**40 + 1, 5, 0.1, 6]
    assert driver.launches[1][-1] == 123


def test_stream_zero_is_the_null_stream_not_the_current_one() -> None:
    driver, launch = plain()
    launch.launch((1, 2, 3), 0)
    assert driver.launches[0][-1] == 0


def test_tensor_maps_follow_their_address() -> None:
    driver = FakeDriver(
        [Scalar("int", 1), TensorMapArgument(MAP, 0), Pointer(0), TensorMapArgument(MAP, 0)]
    )
    launch = prepared(driver, ("M", "tma_a", "C", "tma_b"))
    launch.launch((512, 8, 1024))
    assert driver.seen[0] == [1, struct.pack("Q", 512) * 16, 8, struct.pack("Q", 1024) * 16]
    with pytest.raises(LaunchError, match="3 addresses are needed"):
        launch.launch((1, 2))


@pytest.mark.parametrize("addresses", [(1, 2), (1, 2, 3, 4), (1, 2, -3), (1, 2, 2**64)])
def test_wrong_addresses_are_refused(addresses: tuple[int, ...]) -> None:
    driver, launch = plain()
    with pytest.raises(LaunchError, match="wrong addresses"):
        launch.launch(addresses)
    assert driver.launches == []


@pytest.mark.parametrize(
    ("c_type", "value"), [("int", 2**31), ("long long", 2**63), ("float", 1e39)]
)
def test_scalar_that_does_not_fit(c_type: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"does not fit the kernel's {c_type}"):
        ArgumentLayout.of([Scalar(c_type, value)])  # type: ignore[arg-type]


def test_long_long_is_exact() -> None:
    driver = FakeDriver([Scalar("long long", 2**62 + 1)])
    prepared(driver, ("lda",)).launch(())
    assert driver.seen == [[2**62 + 1]]


def test_another_current_device_is_left_for_the_launch() -> None:
    driver, launch = plain()
    driver.device = 1
    launch.launch((1, 2, 3))
    assert driver.devices == [0]


def test_thread_without_context_gets_one_and_tries_again() -> None:
    driver, launch = plain()
    driver.failures = [201]
    launch.launch((1, 2, 3))
    assert driver.bound == [0]
    assert len(driver.launches) == 1


def test_failures_are_translated_and_the_block_comes_back() -> None:
    driver, launch = plain()
    driver.failures = [700, 201, 201]
    for _ in range(2):
        with pytest.raises(LaunchError, match="launch of gemm: status"):
            launch.launch((1, 2, 3))
    launch.launch((4, 5, 6))
    assert driver.seen == [[7, 1.5, 4, 2**40 + 1, 5, 0.1, 6]]


def test_threads_never_share_a_block() -> None:
    driver, launch = plain()
    wrong: list[object] = []
    lock = threading.Lock()

    def checked(function: int, *rest: int) -> None:
        me = threading.get_ident()
        before = ctypes.string_at((ctypes.c_uint64 * 7).from_address(rest[-2])[2], 8)
        threading.Event().wait(0.0001)
        after = ctypes.string_at((ctypes.c_uint64 * 7).from_address(rest[-2])[2], 8)
        if not before == after == struct.pack("Q", me):
            with lock:
                wrong.append((me, before, after))

    driver.launch_kernel = checked  # type: ignore[method-assign]
    launch = prepared(driver, ("M", "alpha", "A", "lda", "B", "beta", "C"))

    def work() -> None:
        me = threading.get_ident()
        for _ in range(50):
            launch.launch((me, me, me))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_map_of_one_dimension_has_strides_to_point_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bindings make a null pointer of an empty list, and the driver refuses it."""
    driver = pytest.importorskip("cuda.bindings.driver")
    strides: list[int] = []

    def encode(*args: object) -> tuple[int, object]:
        strides.extend(int(s) for s in args[4])  # type: ignore[attr-defined]
        return 0, driver.CUtensorMap()

    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", encode)
    spec = TensorMapSpec(
        operand="a", dtype=scalar("fp32"), dims=(200,), strides_bytes=(), box=(64,)
    )
    assert len(tensor_map.encode_tensor_map.__wrapped__(spec, 0x1000)) == 128
    assert strides
