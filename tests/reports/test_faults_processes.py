"""Kernels and results between processes, devices and CUDA versions."""

from __future__ import annotations

import ast
import multiprocessing
import os
import pickle
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fault_helpers import MODES, numbers

import gemm_lab
from gemm_lab.core.kernel import Config
from gemm_lab.errors import LaunchError
from gemm_lab.gpu import loaded
from gemm_lab.gpu.faults import translate
from gemm_lab.jit import compile_count

SOURCES = sorted(Path(gemm_lab.__file__).parent.rglob("*.py"))


def _use(text: bytes, config: Config) -> tuple[str, str, int, bool, Any]:
    kernel = pickle.loads(text)
    compiled = compile_count()
    a, b = numbers((9, 5), "fp32", 1), numbers((5, 7), "fp32", 2)
    product = kernel(a, b, backend="emulator")
    alike = hash(config) == hash(Config(dict(config))) and config == Config(dict(config))
    return kernel.source, kernel.arch, compiled, alike, product


@pytest.mark.parametrize("name", ["shared", MODES])
def test_a_pickled_kernel_is_its_recipe(name: str) -> None:
    """A handle means nothing elsewhere; the other process finds the kernel in the cache."""
    kernel = gemm_lab.kernel(name, arch="sm_80", epilogue="relu(x)")
    text = pickle.dumps(kernel)
    assert len(text) < 4096
    assert kernel.cubin not in text
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        source, arch, compiled, alike, product = pool.apply(_use, (text, Config({"A": "x"})))
    assert (source, arch, compiled, alike) == (kernel.source, "sm_80", 0, True)
    a, b = numbers((9, 5), "fp32", 1), numbers((5, 7), "fp32", 2)
    np.testing.assert_allclose(product, np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)


def test_our_own_workers_are_never_forked() -> None:
    """A forked child shares its parent's CUDA context and cannot use it."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(n.name.startswith("multiprocessing") for n in node.names), path
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert not module.startswith("multiprocessing"), path
                assert not (
                    module == "concurrent.futures"
                    and any(n.name == "ProcessPoolExecutor" for n in node.names)
                ), path
            elif isinstance(node, ast.Attribute):
                assert node.attr not in ("fork", "forkpty", "ProcessPoolExecutor"), path


def test_a_forked_child_is_told_of_spawn() -> None:
    class NotStartedError(RuntimeError):
        status = 3

    error = translate(NotStartedError("initialization error"), "launch of gemm")
    assert isinstance(error, LaunchError)
    assert "spawn" in (error.hint or "")


@pytest.mark.parametrize("transient", [False, True])
def test_what_is_loaded_is_machine_code(transient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX of a newer NVRTC would need a driver as new; a cubin does not."""
    kernel = gemm_lab.kernel("naive", arch="sm_80")
    given: list[bytes] = []
    function = SimpleNamespace(ptr=1, kernel=SimpleNamespace(ptr=1))

    class Module:
        def load(self, code: bytes) -> None:
            given.append(code)

        def get_function(self, _: str) -> Any:
            return function

    class RawModule(Module):
        def __init__(self, *, path: str) -> None:
            given.append(Path(path).read_bytes())

    class Driver:
        def __getattr__(self, name: str) -> Any:
            return 0 if name.startswith("CU_") else lambda *_: 32

    fake = SimpleNamespace(
        module_class=Module, cupy=SimpleNamespace(RawModule=RawModule), driver=Driver()
    )
    monkeypatch.setattr(loaded, "cuda", lambda: fake)
    found = loaded.load_cubin(kernel.compiled, 0, transient=transient)
    assert given == [kernel.cubin]
    assert given[0].startswith(b"\x7fELF")
    found.release()
    with pytest.raises(LaunchError, match="unloaded"):
        found.function("naive")


def test_backends_of_two_devices_share_no_loaded_kernel() -> None:
    """A function handle belongs to the context of one device."""
    from gemm_lab.lab.workbench import Workbench

    loads: list[int] = []

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def load(self, _: Any) -> int:
            loads.append(self.index)
            return self.index

    bench = Workbench()
    compiled = gemm_lab.kernel("naive", arch="sm_80").compiled
    first, second = Device(0), Device(1)
    found = [bench.load(d, compiled) for d in (first, second, first, second)]  # type: ignore[arg-type]
    assert found == [0, 1, 0, 1]
    assert loads == [0, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_waits_for_the_compiler() -> None:
    """A child that inherited the compiler's lock would wait for ever for a thread it lacks."""
    from gemm_lab.jit import compiler

    held = threading.Event()

    def compile_slowly() -> None:
        with compiler._one_at_a_time:
            held.set()
            time.sleep(0.3)

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if compiler._one_at_a_time.acquire(timeout=5) else 1)
    _, status = os.waitpid(child, 0)
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert not compiler._one_at_a_time.locked()
