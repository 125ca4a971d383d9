"""Kinds of faults that show on a card alone."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_helpers import MODES, VARIANTS, judge, numbers

import gemm_lab
from gemm_lab.core.arch import arch_number
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.errors import GemmLabError, ResourceError, UsageError
from gemm_lab.jit import Cache
from gemm_lab.lab.bench import bench
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.station import StationPlan
from gemm_lab.lab.verify import Verdict
from gemm_lab.lab.workbench import Workbench, default_workbench
from gemm_lab.variants import Catalogue

pytestmark = pytest.mark.gpu

UNTIMED = RunSettings(time=False)
FAR = 2**31


@pytest.fixture(autouse=True)
def _free_memory() -> Iterator[None]:
    """The big tests must not find the memory of the ones before in CuPy's pool."""
    import cupy

    yield
    cupy.get_default_memory_pool().free_all_blocks()


def runs_here(name: str) -> list[str]:
    """Dtypes of a variant that this card does, the smallest elements first."""
    here = default_workbench().gpu().arch
    found = []
    for dtype, support in Catalogue().get(name).dtypes.items():
        exact = support.arch[-1].isalpha()
        low, have = arch_number(support.arch), arch_number(here)
        if low == have if exact else low <= have:
            found.append(dtype)
    if not found:
        pytest.skip(f"{name} does not run on {here}")
    return sorted(found, key=lambda d: dtype_named(d).default_out.size_bytes)


def on_card(array: Any) -> Any:
    """A CuPy copy of a host array; bf16 by way of its bits."""
    import cupy

    if array.dtype.name == "bfloat16":
        return cupy.asarray(array.view(np.uint16)).view(array.dtype)
    return cupy.asarray(array)


def to_host(array: Any) -> Any:
    """Back again."""
    import cupy

    if array.dtype.name == "bfloat16":
        return cupy.ascontiguousarray(array).view(np.uint16).get().view(array.dtype)
    return array.get()


def rows_of(array: Any, rows: Any) -> Any:
    """Some rows of a card's array, on the host; sliced, so that no index passes 32 bits."""
    return np.stack([to_host(array[int(r)]) for r in rows])


def repeated(rows: int, cols: int, dtype: str, seed: int) -> Any:
    """A large matrix on the card: its longer axis repeats some thousand rows or columns."""
    import cupy

    if rows >= cols:
        base = on_card(numbers((min(rows, 4093), cols), dtype, seed))
        whole = cupy.empty((rows, cols), base.dtype)
        for start in range(0, rows, 4093):
            part = whole[start : start + 4093]
            part[...] = base[: part.shape[0]]
        return whole
    base = on_card(numbers((rows, min(cols, 4093)), dtype, seed))
    whole = cupy.empty((rows, cols), base.dtype)
    for start in range(0, cols, 4093):
        part = whole[:, start : start + 4093]
        part[...] = base[:, : part.shape[1]]
    return whole


def multiply(a: Any, b: Any, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gemm_lab.CopyWarning)
        return gemm_lab.matmul(a, b, **keywords)


def sampled(m: int) -> Any:
    """The first rows, the last, and some between."""
    drawn = np.random.default_rng(m).integers(0, m, 12)
    return np.unique(np.concatenate([[0, 1, m // 2, m - 2, m - 1], drawn]).clip(0, m - 1))


def held(c: Any, a: Any, b: Any, dtype: str) -> Verdict:
    """The verdict on some rows of a tall C, or on some columns of a wide one."""
    m, n = c.shape
    if m >= n:
        rows = sampled(m)
        return judge(rows_of(c, rows), rows_of(a, rows), to_host(b), dtype=dtype, rows=rows, m=m)
    spans = [slice(0, 9), slice(n // 2, n // 2 + 9), slice(n - 9, n)]
    few_c, few_b = (np.concatenate([to_host(x[:, s]) for s in spans], axis=1) for x in (c, b))
    return judge(few_c, to_host(a), few_b, dtype=dtype)


# ---- size ----


@pytest.mark.parametrize("shape", [(46_349, 46_351, 7), (65_560, 32_768, 16)], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_an_output_of_more_than_two_to_the_31_elements(
    name: str, shape: tuple[int, int, int]
) -> None:
    dtype = runs_here(name)[0]
    m, n, k = shape
    assert m * n > FAR
    a, b = on_card(numbers((m, k), dtype, 1)), on_card(numbers((k, n), dtype, 2))
    c = multiply(a, b, variant=name, dtype=dtype)
    rows = sampled(m)
    found = judge(rows_of(c, rows), rows_of(a, rows), to_host(b), dtype=dtype, rows=rows, m=m)
    assert found.ok, found


@pytest.mark.parametrize("far", ["a", "b"])
@pytest.mark.parametrize("name", VARIANTS)
def test_an_operand_of_more_than_two_to_the_31_elements(name: str, far: str) -> None:
    dtype = min(runs_here(name), key=lambda d: dtype_named(d).storage.size_bytes)
    long, k = FAR // 64 + 100_001, 64
    m, n = (long, 3) if far == "a" else (3, long)
    a, b = repeated(m, k, dtype, 1), repeated(k, n, dtype, 2)
    assert max(a.size, b.size) > FAR
    found = held(multiply(a, b, variant=name, dtype=dtype), a, b, dtype)
    assert found.ok, found


@pytest.mark.parametrize("shape", [(1, 9_000_000, 5), (9_000_000, 1, 5)], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_nine_million_rows_or_columns(name: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for dtype in runs_here(name):
        a, b = repeated(m, k, dtype, 1), repeated(k, n, dtype, 2)
        found = held(multiply(a, b, variant=name, dtype=dtype), a, b, dtype)
        assert found.ok, (dtype, found)


@pytest.mark.parametrize("name", VARIANTS)
def test_seventy_thousand_products_at_once(name: str) -> None:
    dtype = runs_here(name)[0]
    a, b = numbers((70_000, 3, 8), dtype, 1), numbers((70_000, 8, 5), dtype, 2)
    c = to_host(multiply(on_card(a), on_card(b), variant=name, dtype=dtype))
    for index in (0, 1, 65_534, 65_535, 65_536, 69_999):
        assert judge(c[index], a[index], b[index], dtype=dtype).ok, index


# ---- BLAS ----


@pytest.mark.parametrize("name", VARIANTS)
def test_factors_of_0_read_nothing(name: str) -> None:
    for dtype in runs_here(name):
        arithmetic = dtype_named(dtype)
        a, b = numbers((130, 72), dtype, 1), numbers((72, 88), dtype, 2)
        kind = arithmetic.default_out.numpy()
        if arithmetic.default_out.unit_roundoff:
            out = on_card(np.full((130, 88), np.nan).astype(kind))
            multiply(on_card(a), on_card(b), out=out, beta=0.0, variant=name, dtype=dtype)
            assert judge(to_host(out), a, b, dtype=dtype).ok
            bad = np.full_like(a, 0x7F) if a.dtype == np.uint8 else np.full_like(a, np.nan)
            a, b = bad, np.full_like(b, bad[0, 0])
        before = numbers((130, 88), arithmetic.default_out, 3)
        out = on_card(before)
        multiply(on_card(a), on_card(b), out=out, alpha=0.0, beta=2.0, variant=name, dtype=dtype)
        np.testing.assert_array_equal(to_host(out), 2 * before)


@pytest.mark.parametrize("name", VARIANTS)
def test_sizes_of_0(name: str) -> None:
    for dtype in runs_here(name):
        out_type = dtype_named(dtype).default_out
        for m, n, k in ((0, 5, 3), (5, 0, 3), (0, 0, 0), (0, 5, 0)):
            a, b = on_card(numbers((m, k), dtype, 1)), on_card(numbers((k, n), dtype, 2))
            assert multiply(a, b, variant=name, dtype=dtype).shape == (m, n)
            found = gemm_lab.run(name, shape=(m, n, k), dtype=dtype, backend="gpu")
            assert (found.verified, found.samples_ms) == (True, ())
        before = numbers((33, 35), out_type, 3)
        out = on_card(before)
        a, b = on_card(numbers((33, 0), dtype, 1)), on_card(numbers((0, 35), dtype, 2))
        multiply(a, b, out=out, beta=1.0, variant=name, dtype=dtype)
        np.testing.assert_array_equal(to_host(out), before)


@pytest.mark.parametrize("factor", [1 / 3, 2, np.float32(0.1), np.float64(0.1)])
def test_a_python_float_arrives_as_a_float(factor: Any) -> None:
    a, b = numbers((65, 66), "fp32", 1), numbers((66, 67), "fp32", 2)
    before = numbers((65, 67), "fp32", 3)
    for _ in range(3):  # the third goes the warm road
        out = on_card(before)
        multiply(on_card(a), on_card(b), out=out, alpha=factor, beta=factor, variant="shared")
        got = to_host(out)
        assert judge(got, a, b, before=before, alpha=float(factor), beta=float(factor)).ok


# ---- arrays of other libraries ----


def test_torch_tensors_as_they_come() -> None:
    torch = pytest.importorskip("torch")
    a, b = numbers((61, 37), "fp32", 1), numbers((37, 53), "fp32", 2)
    x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    wide = torch.zeros(61, 80, device="cuda")
    wide[:, 5:42] = x
    views = {
        "plain": (x, y),
        "transposed": (x.t().contiguous().t(), y.t().contiguous().t()),
        "sliced": (wide[:, 5:42], y),
        "stepped": (x.repeat_interleave(2, 0)[::2], y.repeat_interleave(3, 1)[:, ::3]),
        "flipped": (x.flip(0).flip(0), y),
    }
    for kind, (left, right) in views.items():
        c = multiply(left, right, variant="shared")
        assert isinstance(c, torch.Tensor), kind
        assert judge(c.cpu().numpy(), a, b).ok, kind
    spread = x[:1].expand(61, 37)
    assert judge(multiply(spread, y, variant="tiled").cpu().numpy(), a[:1].repeat(61, 0), b).ok
    with pytest.raises(UsageError, match="share memory"):
        multiply(x, y, out=torch.zeros(1, 53, device="cuda").expand(61, 53), variant="shared")


def test_host_arrays_go_to_the_card_and_back() -> None:
    a, b = numbers((61, 37), "fp32", 1), numbers((37, 53), "fp32", 2)
    out = np.zeros((53, 61), np.float32).T
    assert multiply(a[::-1], b[:, ::-1], out=out, variant="shared", backend="gpu") is out
    assert judge(out, a[::-1], b[:, ::-1]).ok


# ---- streams, devices, threads, processes ----


def test_a_side_stream_is_kept_to() -> None:
    """The inputs are written late on that stream; on any other they would be read too early."""
    import cupy

    stall = cupy.RawKernel(
        'extern "C" __global__ void stall(long long cycles) {'
        "long long start = clock64(); while (clock64() - start < cycles) {} }",
        "stall",
    )
    a, b = numbers((200, 100), "fp32", 1), numbers((100, 150), "fp32", 2)
    x, y, out = cupy.zeros((200, 100), np.float32), on_card(b), cupy.zeros((200, 150), np.float32)
    late = on_card(a)
    multiply(x, y, out=out, variant="shared")
    cupy.cuda.Device().synchronize()
    for _ in range(3):
        x.fill(0)
        cupy.cuda.Device().synchronize()
        side = cupy.cuda.Stream(non_blocking=True)
        with side:
            stall((1,), (1,), (np.int64(500_000_000),))
            x[...] = late
            assert multiply(x, y, out=out, variant="shared") is out
            assert not side.done
        cupy.cuda.Stream.null.synchronize()
        assert not side.done
        side.synchronize()
        assert judge(out.get(), a, b).ok


def test_torch_s_stream_is_kept_to() -> None:
    torch = pytest.importorskip("torch")
    a, b = numbers((200, 100), "fp32", 1), numbers((100, 150), "fp32", 2)
    late, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    x = torch.zeros_like(late)
    multiply(x, y, variant="shared")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(500_000_000)
        x.copy_(late)
        c = multiply(x, y, variant="shared")
        assert not side.query()
    side.synchronize()
    assert judge(c.cpu().numpy(), a, b).ok


def test_a_device_that_is_not_the_current_one() -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    a, b = numbers((200, 100), "fp32", 1), numbers((100, 150), "fp32", 2)
    for device in (1, 0, 1):  # compiled once, loaded on each
        with cupy.cuda.Device(device):
            x, y, out = on_card(a), on_card(b), cupy.zeros((200, 150), np.float32)
        for current in (0, 1):
            with cupy.cuda.Device(current):
                for _ in range(3):
                    out.fill(0)
                    multiply(x, y, out=out, variant="shared")
                    made = multiply(x, y, variant="shared")
                assert cupy.cuda.runtime.getDevice() == current
            assert made.device.id == device
            with cupy.cuda.Device(device):
                cupy.cuda.Device(device).synchronize()
                assert judge(out.get(), a, b).ok
                assert judge(made.get(), a, b).ok
    with cupy.cuda.Device(1):
        x = on_card(a)
    with cupy.cuda.Device(0):
        y = on_card(b)
    with pytest.raises(UsageError, match="GPU 1 and b on GPU 0"):
        multiply(x, y, variant="shared")


def test_a_new_thread_and_many() -> None:
    import cupy

    a, b = numbers((70, 50), "fp32", 1), numbers((50, 60), "fp32", 2)
    x, y = on_card(a), on_card(b)
    outs = [cupy.zeros((70, 60), np.float32) for _ in range(8)]
    faults: list[BaseException] = []

    def work(out: Any) -> None:
        try:
            for _ in range(200):
                gemm_lab.matmul(x, y, out=out, variant="shared")
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    cupy.cuda.Device().synchronize()
    assert all(judge(out.get(), a, b).ok for out in outs)


FORKED = """
import os, sys
import numpy as np
import gemm_lab
a = np.ones((8, 8), np.float32)
gemm_lab.matmul(a, a, backend="gpu", variant="naive")
child = os.fork()
if child == 0:
    try:
        gemm_lab.matmul(a, a, backend="gpu", variant="naive")
    except gemm_lab.GemmLabError as error:
        print("refused:", error.message, "|", error.hint, flush=True)
        os._exit(0)
    os._exit(9)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), flush=True)
print(gemm_lab.matmul(a, a, backend="gpu", variant="naive")[0, 0])
"""


def test_a_forked_child_is_refused_and_its_parent_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("refused: "), done.stderr
    assert "spawn" in lines[0]
    assert lines[1:] == ["child 0", "8.0"], done.stderr


def _elsewhere(text: bytes) -> Any:
    kernel = pickle.loads(text)
    return kernel(numbers((9, 5), "fp32", 1), numbers((5, 7), "fp32", 2), backend="gpu")


def test_a_pickled_kernel_runs_in_a_spawned_process() -> None:
    kernel = gemm_lab.kernel("shared", BLOCK_SIZE=16)
    a, b = numbers((9, 5), "fp32", 1), numbers((5, 7), "fp32", 2)
    assert judge(kernel(a, b, backend="gpu"), a, b).ok
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert judge(pool.apply(_elsewhere, (pickle.dumps(kernel),)), a, b).ok


# ---- limits ----


def test_dynamic_memory_at_48_kib_and_at_the_limit() -> None:
    most = default_workbench().gpu().info.limits.smem_per_block_optin_bytes
    static = gemm_lab.kernel(MODES).resources["modes"].static_smem_bytes
    for smem in (48 * 1024 - 16, 48 * 1024, 48 * 1024 + 16, most - static):
        found = gemm_lab.run(MODES, shape=(9, 7, 5), backend="gpu", SMEM=smem, settings=UNTIMED)
        assert found.verified, smem
    # Smaller again, after the function was opted in to more.
    assert gemm_lab.run(MODES, shape=(9, 7, 5), backend="gpu", SMEM=1024, settings=UNTIMED).verified
    with pytest.raises(ResourceError, match=f"{most + 16} bytes"):
        gemm_lab.run(MODES, shape=(9, 7, 5), backend="gpu", SMEM=most - 1024, STATIC=1040)


def test_registers_times_threads_is_told_first() -> None:
    question = {"shape": (9, 7, 5), "backend": "gpu", "settings": UNTIMED, "MODE": "greedy"}
    registers = gemm_lab.kernel(MODES, MODE="greedy").resources["modes"].registers_per_thread
    assert 64 < registers <= 128
    with pytest.raises(ResourceError, match=f"1024 threads with {registers} registers") as caught:
        gemm_lab.run(MODES, THREADS=1024, **question)
    assert "launch bounds that keep it to 64 registers" in (caught.value.hint or "")
    assert gemm_lab.run(MODES, THREADS=512, **question).error is None
    assert gemm_lab.run(MODES, shape=(9, 7, 5), backend="gpu", settings=UNTIMED).verified


# ---- sweeps ----


def test_one_illegal_access_poisons_its_own_candidate_alone() -> None:
    found = gemm_lab.sweep(
        MODES,
        MODE=["right", "illegal", "lazy", "zeros", "nan", "last", "half"],
        SALT=[0, 1],
        shape=(300, 200, 100),
        backend="gpu",
        settings=RunSettings(min_rounds=5, max_rounds=10, max_seconds=0.5),
        progress=False,
    )
    assert len(found) == 14
    for m in found:
        mode = m.config["MODE"]
        if mode == "illegal":
            assert "poisoned" in (m.error or ""), m.error
        else:
            assert m.error is None, (mode, m.error)
            assert m.verified is (mode == "right"), mode
    assert len(found.failed) == 2
    assert gemm_lab.run(MODES, shape=64, backend="gpu", settings=UNTIMED).verified


def test_a_group_that_shares_its_rounds_loses_one_member_alone(tmp_path: Path) -> None:
    bad = tmp_path / "bad.cu.j2"
    bad.write_text(Path(MODES).read_text().replace('default = "right"', 'default = "illegal"'))
    found = bench(
        [str(bad), MODES, "shared"],
        shape=[(300, 200, 100)],
        backend="gpu",
        settings=RunSettings(min_rounds=5, max_rounds=10, max_seconds=0.5),
        progress=False,
    )
    assert {m.variant: m.verified for m in found if m.error is None} == {
        "modes": True, "shared": True,
    }  # fmt: skip
    assert [m.variant for m in found if m.error] == ["bad"]


def test_two_thousand_kernels_leave_nothing_behind(tmp_path: Path) -> None:
    """Loaded, verified and unloaded in one process: the card's free memory stays what it was."""
    import cupy

    plan = StationPlan(
        maker="gemm_lab.lab.station:gpu_station",
        arguments={"device": None, "cache_directory": str(tmp_path)},
    )
    work = Workbench(cache=Cache(tmp_path))

    def soak(salts: range) -> None:
        found = gemm_lab.sweep(
            MODES, SALT=salts, shape=(8, 8, 8), settings=UNTIMED, isolate=False, progress=False,
            workbench=work, station=plan,
        )  # fmt: skip
        assert len(found.right) == len(salts)

    def free_bytes() -> int:
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.cuda.Device().synchronize()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    soak(range(200))
    before = free_bytes()
    soak(range(200, 2200))
    assert before - free_bytes() < 16 * 2**20


# ---- figures ----


def test_a_kernel_that_its_launch_outlasts_is_labelled() -> None:
    quick = RunSettings(min_rounds=10, max_rounds=20, max_seconds=1.0, baseline=False)
    short = gemm_lab.run("shared", shape=32, backend="gpu", settings=quick)
    assert short.launch_bound is True
    assert short.median_ms is not None
    assert short.median_ms > 0
    long = gemm_lab.run("shared", shape=2048, backend="gpu", settings=quick)
    assert long.launch_bound is False


def test_a_poisoned_process_says_so_and_spares_the_others() -> None:
    script = (
        "import gemm_lab\n"
        f"path = {MODES!r}\n"
        "for mode in ('illegal', 'right'):\n"
        "    try:\n"
        "        gemm_lab.run(path, shape=8, backend='gpu', MODE=mode)\n"
        "    except gemm_lab.GemmLabError as error:\n"
        "        print('poisoned' in str(error), error.exit_code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines() == ["True 6", "True 6"], done.stderr
    with pytest.raises(GemmLabError):
        gemm_lab.run(MODES, shape=8, backend="gpu", SMEM=10**7)
    assert gemm_lab.run(MODES, shape=8, backend="gpu", settings=UNTIMED).verified
