"""Run the hardware cases on this machine's card and keep their outputs.

    python tests/emulator/record_hardware.py                 # all of them
    python tests/emulator/record_hardware.py "wgmma f16*"    # some, kept beside those recorded
    python tests/emulator/record_hardware.py --missing       # those that were not recorded yet
    python tests/emulator/record_hardware.py --out FILE.npz

Cases run in a process of their own, which is ended and started anew when a case fails, dies or
takes too long: an illegal instruction spoils a CUDA context, not the other cases. What succeeded
is kept; the exit status is 1 when anything failed.

Arrays behind the kernel's own parameters (those that only tensor maps read) are not passed to it.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from hardware_case import Case, TensorMapOver
from hardware_cases import CASES, RECORDED

from gemm_lab import jit
from gemm_lab.core.backend import Argument, Pointer, Scalar, TensorMapArgument
from gemm_lab.core.dtypes import scalar
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch, RenderedKernel, TensorMapSpec
from gemm_lab.errors import GemmLabError

SCALARS = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
    "int8": "int8",
    "int32": "int32",
}
CASE_TIMEOUT_S = 60
START_TIMEOUT_S = 120


def rendered(case: Case, arch: str) -> RenderedKernel:
    """The case as the lab's compiler takes it, for a card of this architecture.

    Machine code runs on its own generation alone: only PTX is taken from the case's lowest.
    """
    target = case.arch if case.arch[-1] in "af" else arch.rstrip("af")
    return RenderedKernel(name="hardware", source=case.source, entries=("k",), arch=target)


def tensor_map(over: TensorMapOver, array: np.ndarray, address: int) -> TensorMapArgument:
    """The argument that makes a map on the card."""
    spec = TensorMapSpec(
        operand="a",
        dtype=scalar(SCALARS[array.dtype.name]),
        dims=over.extents(array),
        strides_bytes=over.strides_bytes(array),
        box=over.box,
        swizzle=over.swizzle,  # type: ignore[arg-type]
        round_tf32=over.round_tf32,
    )
    return TensorMapArgument(spec, address)


def run(backend: Any, case: Case, compiled: CompiledKernel) -> dict[str, np.ndarray]:
    """Outputs of a case by `name/argument`, as bytes."""
    buffers = {
        number: backend.upload(np.ascontiguousarray(arg).view(np.uint8))
        for number, arg in enumerate(case.args)
        if isinstance(arg, np.ndarray)
    }
    mapped = {a.argument for a in case.args if isinstance(a, TensorMapOver)}
    arguments: list[Argument] = []
    for number, arg in enumerate(case.args):
        if isinstance(arg, TensorMapOver):
            array, address = case.args[arg.argument], buffers[arg.argument].address
            arguments.append(tensor_map(arg, array, address))
        elif number in buffers:
            if number not in mapped:
                arguments.append(Pointer(buffers[number].address))
        else:
            arguments.append(Scalar("int", arg))
    launch = KernelLaunch(
        entry="k",
        grid=(case.grid, 1, 1),
        block=(case.block, 1, 1),
        smem_bytes=case.smem_bytes,
        params=tuple(f"argument {i}" for i in range(len(arguments))),
    )
    loaded = backend.load(compiled, transient=True)
    backend.launch(loaded, launch, arguments)
    backend.synchronize()
    backend.unload(loaded)
    return {
        f"{case.name}/{n}": backend.download(buffers[n], np.dtype(np.uint8), (case.args[n].nbytes,))
        for n in case.outputs
    }


# ---- the process that has the card ----
def serve() -> int:
    """[case, file] on stdin, one a line; for each a line of JSON, {"done"} or {"error"}."""
    from gemm_lab.gpu import GpuBackend

    backend = GpuBackend()
    print(json.dumps({"device": backend.device_name, "arch": backend.arch}), flush=True)
    by_name = {case.name: case for case in CASES}
    for line in sys.stdin:
        name, path = json.loads(line)
        case = by_name[name]
        try:
            outputs = run(backend, case, jit.compile_kernel(rendered(case, backend.arch)))
            np.savez(path, **outputs)
            print(json.dumps({"done": True}), flush=True)
        except Exception as fault:  # a context may be spoilt: the parent starts another process
            print(json.dumps({"error": f"{type(fault).__name__}: {fault}"}), flush=True)
            return 1
    return 0


class Server:
    """The process that runs cases, started when it is needed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.device: dict[str, str] = {}

    def ask(self, name: str, path: Path) -> str:
        """Run a case; an empty text, or what went wrong."""
        try:
            self.start()
            assert self.process is not None
            process = self.process
            assert process.stdin is not None
            process.stdin.write(json.dumps([name, str(path)]) + "\n")
            process.stdin.flush()
            answer = self._line(CASE_TIMEOUT_S)
        except (OSError, RuntimeError) as fault:
            self.stop()
            return str(fault)
        if "error" in answer:
            self.stop()
            return str(answer["error"])
        return ""

    def start(self) -> dict[str, str]:
        """Facts of the card: device, arch. RuntimeError when there is none."""
        if self.process is None:
            command = [sys.executable, __file__, "--serve"]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            try:
                self.device = self._line(START_TIMEOUT_S)
            except RuntimeError:
                self.stop()
                raise
        return self.device

    def _line(self, timeout_s: float) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                raise RuntimeError(f"no answer within {timeout_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process died, exit status {self.process.wait(10)}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.kill()
        process.wait()


def fits(case: Case, arch: str) -> bool:
    """Whether a card of this architecture runs it."""
    need, have = (int(a.removeprefix("sm_").rstrip("af")) for a in (case.arch, arch))
    return need == have if case.arch.endswith("a") else need <= have


def main() -> int:
    """Record every case that this card can run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("patterns", nargs="*", metavar="pattern", help="names, with * and ?")
    parser.add_argument("--missing", action="store_true", help="cases that FILE does not hold")
    parser.add_argument("--out", type=Path, default=RECORDED)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    wanted = options.patterns or ["*"]
    chosen = [c for c in CASES if any(fnmatch.fnmatchcase(c.name, p) for p in wanted)]
    if options.missing:
        held = recorded_at(options.out)
        chosen = [c for c in chosen if any(f"{c.name}/{n}" not in held for n in c.outputs)]
    failures: dict[str, str] = {}
    outputs: dict[str, np.ndarray] = {}
    server = Server()
    try:
        arch = server.start()["arch"]
    except (OSError, RuntimeError) as fault:
        print(f"no process with a card: {fault}")
        return 1
    for case in [c for c in chosen if not fits(c, arch)]:
        print(f"skipped: {case.name} needs {case.arch}, the card is {arch}", flush=True)
        chosen.remove(case)
    print(f"compiling {len(chosen)} cases", flush=True)
    kernels = jit.compile_many(rendered(case, arch) for case in chosen)
    with tempfile.TemporaryDirectory() as folder:
        for number, (case, kernel) in enumerate(zip(chosen, kernels, strict=True)):
            path = Path(folder) / f"{number}.npz"
            unusable = isinstance(kernel, GemmLabError)
            fault_text = f"not compiled: {kernel}" if unusable else server.ask(case.name, path)
            if fault_text:
                failures[case.name] = fault_text
                print(f"FAILED {case.name}: {fault_text}", flush=True)
                continue
            with np.load(path) as made:
                outputs.update({key: made[key] for key in made.files})
            print(case.name, flush=True)
    server.stop()
    keep(options.out, outputs, whole=not (options.patterns or options.missing))
    print(f"{len(outputs)} outputs of {server.device.get('device')}; {len(failures)} cases failed")
    for name, text in failures.items():
        print(f"  {name}: {text.splitlines()[0]}")
    return 1 if failures or not outputs else 0


def recorded_at(path: Path) -> dict[str, np.ndarray]:
    """Outputs that a file holds."""
    if not path.exists():
        return {}
    with np.load(path) as recorded:
        return {name: recorded[name] for name in recorded.files}


def keep(path: Path, outputs: dict[str, np.ndarray], *, whole: bool) -> None:
    """Write the outputs; a part of the cases is laid beside those recorded before."""
    if not outputs:
        return
    before = {} if whole else recorded_at(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{**before, **outputs})


if __name__ == "__main__":
    sys.exit(main())
