"""The backend on a real card."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gpu_helpers import TMA_SOURCE, compiled

from gemm_lab.core.backend import Argument, Pointer, Scalar, TensorMapArgument
from gemm_lab.core.dtypes import scalar
from gemm_lab.core.kernel import KernelLaunch, RenderedKernel, TensorMapSpec
from gemm_lab.errors import LaunchError, ResourceError
from gemm_lab.gpu import GpuBackend, LoadedKernel
from gemm_lab.jit import Cache, compile_kernel

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def backend() -> GpuBackend:
    return GpuBackend()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module", params=["RawModule", "transient"])
def loaded(
    request: pytest.FixtureRequest, backend: GpuBackend, cache: Cache
) -> Iterator[LoadedKernel]:
    kernel = backend.load(compiled(backend, cache), transient=request.param == "transient")
    yield kernel
    backend.unload(kernel)


def launch(entry: str, params: int, **changes: Any) -> KernelLaunch:
    values: dict[str, Any] = {"grid": (1, 1, 1), "block": (32, 1, 1), "smem_bytes": 0}
    names = tuple(f"p{i}" for i in range(params))
    return KernelLaunch(entry=entry, params=names, **{**values, **changes})


def test_arguments_arrive(backend: GpuBackend, loaded: LoadedKernel) -> None:
    a = backend.upload(np.array([2.5], np.float32))
    out = backend.alloc(40)
    arguments: list[Argument] = [
        Scalar("int", -7),
        Scalar("float", 1.5),
        Pointer(a.address),
        Scalar("long long", 2**40 + 1),
        Scalar("double", 0.1),
        Pointer(out.address),
    ]
    backend.launch(loaded, launch("arguments", 6), arguments)
    got = backend.download(out, np.dtype("float64"), (5,))
    assert got.tolist() == [-7, 1.5, 2.5, 2**40 + 1, 0.1]


@pytest.mark.parametrize("smem_bytes", [0, 1024, 48 * 1024 - 1, 48 * 1024, 48 * 1024 + 16, -1])
def test_dynamic_shared_memory(backend: GpuBackend, loaded: LoadedKernel, smem_bytes: int) -> None:
    if smem_bytes < 0:
        smem_bytes = backend.info.limits.smem_per_block_optin_bytes
    wrong = backend.upload(np.zeros(1, np.int32))
    backend.launch(
        loaded,
        launch("fill_smem", 2, smem_bytes=smem_bytes),
        [Scalar("int", smem_bytes), Pointer(wrong.address)],
    )
    assert backend.download(wrong, np.dtype("int32"), (1,))[0] == 0


def test_refusals_name_the_limit(backend: GpuBackend, loaded: LoadedKernel) -> None:
    arguments = [Scalar("int", 1), Pointer(0)]
    too_much = backend.info.limits.smem_per_block_optin_bytes + 1
    with pytest.raises(ResourceError, match=f"{too_much} bytes of shared memory"):
        backend.prepare(loaded, launch("fill_smem", 2, smem_bytes=too_much), arguments)
    with pytest.raises(LaunchError, match="grid y = 65536"):
        backend.prepare(loaded, launch("fill_smem", 2, grid=(1, 65536, 1)), arguments)
    with pytest.raises(LaunchError, match="no entry 'nothing'"):
        backend.prepare(loaded, launch("nothing", 2), arguments)


def test_driver_facts(backend: GpuBackend, loaded: LoadedKernel) -> None:
    facts = loaded.facts["add_one"]
    resources = loaded.compiled.resources["add_one"]
    assert facts.registers_per_thread == resources.registers_per_thread
    assert facts.static_smem_bytes == resources.static_smem_bytes
    assert f"sm_{facts.binary_version}" == backend.arch
    assert backend.occupancy_blocks(loaded, launch("add_one", 2, block=(256, 1, 1))) == 8


def test_prepared_launch_from_threads(backend: GpuBackend, loaded: LoadedKernel) -> None:
    count = 1000
    buffers = [backend.upload(np.zeros(count, np.float32)) for _ in range(4)]
    prepared = backend.prepare(
        loaded,
        launch("add_one", 2, grid=(4, 1, 1), block=(256, 1, 1)),
        [Pointer(0), Scalar("int", count)],
    )

    def work(address: int) -> None:
        for _ in range(500):
            prepared.launch((address,))

    threads = [threading.Thread(target=work, args=(b.address,)) for b in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backend.synchronize()
    for buffer in buffers:
        assert (backend.download(buffer, np.dtype("float32"), (count,)) == 500).all()


def test_callers_stream_is_used(backend: GpuBackend, loaded: LoadedKernel) -> None:
    import cupy

    side = cupy.cuda.Stream(non_blocking=True)
    x = backend.upload(np.zeros(32, np.float32))
    slow = backend.prepare(
        loaded, launch("spin", 2), [Scalar("long long", 200_000_000), Pointer(0)]
    )
    for road in ("handle", "current"):
        if road == "handle":
            slow.launch((x.address,), side.ptr)
        else:
            with side:
                slow.launch((x.address,))
        assert not side.done, road
        cupy.cuda.Stream.null.synchronize()
        assert not side.done, road
        side.synchronize()
    assert backend.download(x, np.dtype("float32"), (1,))[0] == 2


def test_unloaded_kernel_cannot_be_launched(backend: GpuBackend, cache: Cache) -> None:
    kernel = backend.load(compiled(backend, cache), transient=True)
    x = backend.upload(np.zeros(32, np.float32))
    held = backend.prepare(kernel, launch("add_one", 2), [Pointer(0), Scalar("int", 32)])
    backend.unload(kernel)
    with pytest.raises(LaunchError, match="unloaded"):
        backend.prepare(kernel, launch("add_one", 2), [Pointer(0), Scalar("int", 32)])
    held.launch((x.address,))  # what was prepared keeps its module
    assert backend.download(x, np.dtype("float32"), (1,))[0] == 1


def test_transient_kernels_leave_no_memory_behind(backend: GpuBackend, cache: Cache) -> None:
    kernel = compiled(backend, cache)
    for _ in range(50):
        backend.unload(backend.load(kernel, transient=True))
    before = backend.free_bytes()
    for _ in range(500):
        backend.unload(backend.load(kernel, transient=True))
    assert before - backend.free_bytes() < 8 * 2**20


def test_upload_download_round_trip(backend: GpuBackend) -> None:
    array = np.arange(60, dtype=np.float32).reshape(6, 10)[::-1, ::2]
    buffer = backend.upload(array)
    np.testing.assert_array_equal(backend.download(buffer, array.dtype, array.shape), array)
    backend.fill(buffer, 0xFF)
    assert np.isnan(backend.download(buffer, array.dtype, array.shape)).all()
    backend.free(buffer)
    with pytest.raises(LaunchError, match="freed"):
        _ = buffer.address


def test_out_of_memory(backend: GpuBackend) -> None:
    with pytest.raises(ResourceError, match="failed"):
        backend.alloc(2 * backend.info.memory_bytes)


@pytest.mark.min_arch(90)
def test_tensor_map(backend: GpuBackend, cache: Cache) -> None:
    rendered = RenderedKernel(
        name="tma", source=TMA_SOURCE, entries=("copy_box",), arch=f"{backend.arch}a"
    )
    kernel = backend.load(compile_kernel(rendered, cache=cache))
    rows, columns = 20, 64
    matrix = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    source = backend.upload(matrix)
    out = backend.alloc(32 * 8 * 4)
    spec = TensorMapSpec(
        operand="a",
        dtype=scalar("fp32"),
        dims=(columns, rows),
        strides_bytes=(columns * 4,),
        box=(32, 8),
    )
    for x, y in ((0, 0), (32, 8), (48, 16)):
        arguments: list[Argument] = [
            TensorMapArgument(spec, source.address),
            Scalar("int", x),
            Scalar("int", y),
            Pointer(out.address),
        ]
        backend.launch(kernel, launch("copy_box", 4, smem_bytes=32 * 8 * 4), arguments)
        got = backend.download(out, np.dtype("float32"), (8, 32))
        padded = np.zeros((rows + 8, columns + 32), np.float32)
        padded[:rows, :columns] = matrix
        np.testing.assert_array_equal(got, padded[y : y + 8, x : x + 32])


ILLEGAL = """
import sys
sys.path.insert(0, {tests!r})
from test_card_backend import *
from gemm_lab.gpu import GpuBackend
from gemm_lab.jit import Cache
backend = GpuBackend()
kernel = backend.load(compiled(backend, Cache({cache!r})))
x = backend.alloc(4096)
backend.launch(kernel, launch("illegal", 1), [Pointer(x.address)])
for attempt in range(2):
    try:
        backend.synchronize()
    except LaunchError as error:
        print("poisoned" in error.message)
"""


def test_illegal_access_says_the_process_is_done(cache: Cache) -> None:
    script = ILLEGAL.format(tests=__file__.rpartition("/")[0], cache=str(cache.directory))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == ["True", "True"], done.stderr
