"""The small kernels: right on the emulator, their arithmetic on invented times, real on a card."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemm_lab.core.kernel import KernelLaunch
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.errors import UsageError
from gemm_lab.jit import Cache, compile_kernel
from gemm_lab.lab.ceilings import measure_ceilings, save_ceilings
from gemm_lab.lab.experiment import knee, occupancy_experiment
from gemm_lab.lab.probes import Probes, int_argument, long_argument, probe_source
from gemm_lab.model import MeasuredCeilings, find_device, load_devices

H200 = find_device("h200", load_devices())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("word_bytes", [4, 8, 16])
@pytest.mark.parametrize("unroll", [1, 4])
def test_a_copy_copies(cache: Cache, word_bytes: int, unroll: int) -> None:
    backend = EmulatorBackend(arch="sm_80")
    probes = Probes(backend, None, word_bytes=word_bytes, unroll=unroll, copy=True, cache=cache)
    count = 1117
    data = np.random.default_rng(1).integers(0, 2**32, count * word_bytes // 4, dtype=np.uint32)
    source, target = backend.upload(data), probes.alloc(count * word_bytes)
    arguments = [probes.pointer(source), probes.pointer(target), long_argument(count)]
    probes.prepare("stream", arguments, blocks=2, threads=256)()
    assert np.array_equal(backend.download(target, data.dtype, data.shape), data)
    probes.free()


def test_reads_leave_memory_alone(cache: Cache) -> None:
    backend = EmulatorBackend(arch="sm_80")
    probes = Probes(backend, None, word_bytes=4, unroll=2, copy=False, cache=cache)
    source, target = probes.alloc(4096, 1), probes.alloc(16, 7)
    arguments = [probes.pointer(source), probes.pointer(target), long_argument(1000)]
    probes.prepare("stream", arguments, blocks=1, threads=256)()
    words = [probes.pointer(source), probes.pointer(target), int_argument(256), int_argument(2)]
    probes.prepare("l2_read", words, blocks=1, threads=256)()
    few = [probes.pointer(target), int_argument(1)]
    probes.prepare("smem_read", few, blocks=1, threads=256)()
    assert set(backend.download(target, np.dtype(np.uint8), (16,))) == {7}
    probes.free()


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_kernels_keep_what_they_measure(cache: Cache, arch: str) -> None:
    rendered = probe_source(word_bytes=16, unroll=4, copy=True, arch=arch)
    compiled = compile_kernel(rendered, cache=cache)
    assert compiled.ptx.count("fma.rn.f32") >= 128
    assert compiled.ptx.count("ld.volatile.shared.v4.u32") == 32
    assert all(r.spill_store_bytes == 0 for r in compiled.resources.values())
    # Eight blocks of 256 threads must fit, or occupancy has nowhere to go.
    assert compiled.resources["stream"].registers_per_thread <= 32 or arch in ("sm_75", "sm_120")


class InventedGpu:
    """Launches cost nothing; the stopwatch beside it says how long each took."""

    name = "gpu"
    device = 0
    device_name = "NVIDIA H200"
    arch = "sm_90"
    sm_count = 132

    def __init__(self) -> None:
        self.info = SimpleNamespace(
            name="NVIDIA H200", arch="sm_90", sm_count=132, l2_bytes=1 << 20, memory_bytes=1 << 37
        )
        self.last: KernelLaunch | None = None
        self.arguments: list[Any] = []
        self.buffers = 0

    @contextlib.contextmanager
    def on_device(self, doing: str) -> Iterator[None]:
        yield

    def free_bytes(self) -> int:
        return 1 << 24

    def load(self, compiled: Any) -> str:
        return "loaded"

    def unload(self, loaded: str) -> None:
        assert loaded == "loaded"

    def alloc(self, size_bytes: int) -> int:
        self.buffers += 1
        return size_bytes

    def free(self, buffer: int) -> None:
        self.buffers -= 1

    def fill(self, buffer: int, byte: int) -> None:
        pass

    def write(self, buffer: int, array: Any) -> None:
        assert array.nbytes <= buffer

    def address(self, buffer: int) -> int:
        return 1 << 20

    def synchronize(self) -> None:
        pass

    def download(self, buffer: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        assert self.last is not None
        steps = self.arguments[-1].value
        found = {"fma_rate": [1980, 1000], "chase": [500 * steps, 0], "smem_chase": [23 * steps, 0]}
        return np.array(found[self.last.entry][: shape[0]], dtype)

    def prepare(self, loaded: str, launch: KernelLaunch, arguments: Any) -> Any:
        def run(addresses: Any) -> None:
            self.last, self.arguments = launch, list(arguments)

        return SimpleNamespace(launch=run)


class InventedWatch:
    """4,000 GB/s of DRAM, 8,000 of L2, 60 TFLOP/s; bandwidth grows up to half occupancy."""

    def __init__(self, card: InventedGpu) -> None:
        self.card = card

    def median_ms(self, run: Callable[[], None], repeats: int = 7) -> float:
        run()
        launch = self.card.last
        assert launch is not None
        last = self.card.arguments[-1].value
        threads = launch.grid[0] * launch.block[0]
        if launch.entry == "stream":
            share = min(1.0, threads / (132 * 1024))
            return last * 4 / (4000e9 * share) * 1e3
        work = {
            "fma_rate": threads * last * 256 / 60e12,
            "smem_read": threads * last * 512 / 30e12,
            "l2_read": last * self.card.arguments[2].value * 16 / 8000e9
            if launch.entry == "l2_read"
            else 0,
        }
        return work[launch.entry] * 1e3


def test_figures_follow_from_times_and_cycles(cache: Cache) -> None:
    card = InventedGpu()
    said: list[str] = []
    found = measure_ceilings(card, stopwatch=InventedWatch(card), cache=cache, progress=said.append)
    assert found.fp32_tflops == pytest.approx(60, rel=0.01)
    assert found.smem_gb_s == pytest.approx(30_000, rel=0.01)
    assert found.l2_gb_s == pytest.approx(8000, rel=0.01)
    # A copied word is 16 bytes read and 16 written; the watch counts 4.
    assert found.dram_gb_s == pytest.approx(8 * 4000, rel=0.01)
    assert found.sm_clock_mhz == 1980
    assert found.dram_latency_cycles == found.l2_latency_cycles == 500
    assert found.smem_latency_cycles == 23
    assert card.buffers == 0
    assert said == ["arithmetic", "shared memory", "L2", "DRAM", "latencies"]


def test_ceilings_go_to_the_device_file_and_leave_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "config" / "devices.toml"
    card = InventedGpu()
    measured = MeasuredCeilings(dram_gb_s=4275.0, source="here")
    assert save_ceilings(path, card, measured) == "h200"
    text = path.read_text()
    path.write_text(
        f"# mine\n[devices.h200]\npower_w = 600\n\n{text}\n[devices.h100_sxm]\npower_w = 1\n"
    )
    save_ceilings(path, card, MeasuredCeilings(dram_gb_s=4300.0, tensor_tflops={"fp16": 800.0}))
    again = path.read_text()
    assert again.startswith("# mine\n")
    assert again.count("[devices.h200.measured]") == 1
    devices = load_devices(path)
    assert devices["h200"].measured is not None
    assert devices["h200"].measured.dram_gb_s == 4300.0
    assert devices["h200"].power_w == 600
    assert devices["h100_sxm"].power_w == 1
    save_ceilings(path, card, measured)
    assert load_devices(path)["h200"].measured == measured


def test_an_unknown_card_is_added(tmp_path: Path) -> None:
    path = tmp_path / "devices.toml"
    card = InventedGpu()
    card.info.name = "NVIDIA Wonder 9000"
    measured = MeasuredCeilings(sm_clock_mhz=2000.0, dram_gb_s=9000.0, fp32_tflops=100.0)
    key = save_ceilings(path, card, measured)
    found = find_device("NVIDIA Wonder 9000", load_devices(path))
    assert (found.key, found.arch, found.fp32_tflops) == (key, "sm_90", 100.0)


def test_a_device_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        save_ceilings(tmp_path / "file" / "x.toml", InventedGpu(), MeasuredCeilings(dram_gb_s=1.0))


def test_more_warps_stop_helping_where_the_law_says(cache: Cache) -> None:
    narrow = occupancy_experiment(H200, cache=cache)
    wide = occupancy_experiment(H200, word_bytes=16, unroll=4, cache=cache)
    assert narrow.expected_knee is None or narrow.expected_knee > 0.9
    assert wide.expected_knee is not None
    assert wide.expected_knee < 0.15
    assert [p.blocks_per_sm for p in narrow.points] == [1, 2, 3, 4, 5, 6, 7, 8]
    rates = [p.predicted_gb_s or 0 for p in narrow.points]
    assert rates == sorted(rates)
    assert all(p.measured_gb_s is None for p in narrow.points)
    assert narrow.measured_knee is None
    copied = occupancy_experiment(H200, access="copy", cache=cache)
    assert copied.expected_knee == pytest.approx((narrow.expected_knee or 1.07) / 2, rel=0.05)


def test_measured_beside_predicted(cache: Cache) -> None:
    card = InventedGpu()
    found = occupancy_experiment(
        H200, backend=card, stopwatch=InventedWatch(card), cache=cache, paddings_bytes=None
    )
    assert found.measured_knee == 0.5
    assert found.points[-1].measured_gb_s == pytest.approx(4000, rel=0.01)
    assert found.points[0].measured_gb_s == pytest.approx(1000, rel=0.01)
    assert card.buffers == 0


def test_what_the_experiment_refuses(cache: Cache) -> None:
    with pytest.raises(UsageError, match="cannot be had"):
        occupancy_experiment(H200, word_bytes=12, cache=cache)
    with pytest.raises(UsageError, match="cannot be had"):
        occupancy_experiment(H200, unroll=17, cache=cache)
    with pytest.raises(UsageError, match="no block fits"):
        occupancy_experiment(H200, paddings_bytes=[10**6], cache=cache)
    assert knee([]) is None


@pytest.mark.gpu
def test_ceilings_of_the_card() -> None:
    from gemm_lab.gpu import GpuBackend

    backend = GpuBackend()
    found = measure_ceilings(backend)
    assert found.dram_gb_s is not None
    assert found.l2_gb_s is not None
    assert found.smem_gb_s is not None
    assert found.dram_gb_s < found.l2_gb_s < found.smem_gb_s
    assert found.smem_latency_cycles is not None
    assert found.l2_latency_cycles is not None
    assert found.dram_latency_cycles is not None
    assert found.smem_latency_cycles < found.l2_latency_cycles < found.dram_latency_cycles
    known = find_device(backend.device_name, load_devices())
    assert found.fp32_tflops is not None
    assert 0.8 * known.fp32_tflops < found.fp32_tflops < 1.02 * known.fp32_tflops
    assert 0.7 * known.dram_gb_s < found.dram_gb_s < known.dram_gb_s
    assert found.smem_gb_s < 1.02 * known.smem_gb_s


@pytest.mark.gpu
def test_occupancy_on_the_card() -> None:
    from gemm_lab.gpu import GpuBackend

    backend = GpuBackend()
    known = find_device(backend.device_name, load_devices())
    narrow = occupancy_experiment(known, backend=backend)
    wide = occupancy_experiment(known, backend=backend, word_bytes=16, unroll=4)
    assert narrow.measured_knee is not None
    assert wide.measured_knee is not None
    assert wide.measured_knee < narrow.measured_knee
