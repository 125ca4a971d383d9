"""One rendered kernel to cubin, PTX and log: a single NVRTC compilation gives all three."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from gemm_lab.core.kernel import RenderedKernel
from gemm_lab.errors import CompileError, UsageError
from gemm_lab.jit.forks import fork_safe_lock
from gemm_lab.jit.headers import VIRTUAL_ROOT, HeaderSet, included_names, resolve_includes
from gemm_lab.jit.log import LogMessage, first_error, numbered_source, ptx_source_line
from gemm_lab.jit.nvrtc import Nvrtc
from gemm_lab.jit.options import check_arch, compile_options, program_name
from gemm_lab.jit.probe import Toolchain
from gemm_lab.jit.toolchain import wheel_advice

__all__ = ["CompilerOutput", "compile_count", "run_compiler"]


# What the C++ standard library and C call theirs; none of it comes with NVRTC.
_HOST_HEADER = re.compile(
    r"(algorithm|array|atomic|bitset|cassert|cfloat|chrono|climits|cmath|complex|cstddef|cstdint"
    r"|cstdio|cstdlib|cstring|ctime|deque|exception|fstream|functional|initializer_list|iomanip"
    r"|iostream|iterator|limits|list|map|memory|mutex|numeric|optional|ostream|random|set|sstream"
    r"|stdexcept|string|string_view|thread|tuple|type_traits|unordered_map|unordered_set|utility"
    r"|variant|vector|(assert|ctype|float|limits|math|std\w+|string|time|unistd)\.h)$"
)

# NVRTC lets one ptxas run at a time, and its -v report goes to whoever asks first.
_one_at_a_time = fork_safe_lock()
_count = 0
_count_lock = threading.Lock()


def compile_count() -> int:
    """Kernels that this process and its workers have compiled; a warm cache leaves it at 0."""
    return _count


def add_to_count(number: int) -> None:
    """Count compilations."""
    global _count
    with _count_lock:
        _count += number


@dataclass(frozen=True, kw_only=True)
class CompilerOutput:
    """The three products, how long they took, and names of entries by their expressions."""

    cubin: bytes
    ptx: str
    log: str
    compile_ms: float
    lowered_names: Mapping[str, str] = field(default_factory=dict)


def run_compiler(rendered: RenderedKernel, toolchain: Toolchain) -> CompilerOutput:
    """Compile now, whatever the cache holds.

    UsageError: an arch or option that NVRTC does not know. CompileError: faulty source.
    """
    options = compile_options(rendered.arch, rendered.options)
    check_arch(rendered.arch, toolchain.arch_numbers, toolchain.nvrtc_version)
    source, headers = rendered.source, {}
    if toolchain.headers is not None and included_names(source):
        included = resolve_includes(source, toolchain.headers)
        source, headers = included.source, included.headers
    nvrtc = toolchain.nvrtc()
    name = program_name(rendered.name)
    begin = time.perf_counter()
    add_to_count(1)
    try:
        with _one_at_a_time:
            output = nvrtc.compile(
                source,
                program_name=name,
                options=(*options, *_no_cache(toolchain.nvrtc_version)),
                headers=headers,
                names=rendered.name_expressions,
            )
    except RuntimeError as error:
        raise CompileError(f"{name}: {error}", source=numbered_source(rendered.source)) from error
    compile_ms = (time.perf_counter() - begin) * 1e3
    if output.ok:
        return CompilerOutput(
            cubin=output.cubin,
            ptx=output.ptx,
            log=output.log.strip(),
            compile_ms=compile_ms,
            lowered_names=output.lowered_names,
        )
    if output.invalid_option:
        raise UsageError(
            f"NVRTC {toolchain.nvrtc_version} refuses an option: {_option_fault(output.log)}",
            hint="given: " + " ".join(options),
        )
    log = output.log or output.status_text
    fault = first_error(log)
    ptx = "" if fault.file else _ptx_only(nvrtc, source, name, options, headers)
    raise _error(rendered, toolchain, log, fault, ptx)


def _no_cache(nvrtc_version: str) -> tuple[str, ...]:
    """NVRTC 12.9 and later keep what they compiled, and then ptxas reports nothing."""
    major, minor = (int(part) for part in nvrtc_version.split(".")[:2])
    return ("--no-cache",) if (major, minor) >= (12, 9) else ()


def _option_fault(log: str) -> str:
    return first_error(log).text


def _ptx_only(
    nvrtc: Nvrtc, source: str, name: str, options: tuple[str, ...], headers: dict[str, bytes]
) -> str:
    """The PTX that ptxas refused, so that its line leads back to the source."""
    virtual = (options[0].replace("=sm_", "=compute_"), *options[1:])
    return nvrtc.compile(source, program_name=name, options=virtual, headers=headers).ptx


def _error(
    rendered: RenderedKernel, toolchain: Toolchain, log: str, fault: LogMessage, ptx: str
) -> CompileError:
    own = program_name(rendered.name)
    line = fault.line if fault.file == own else None
    place = own.rsplit("/", 1)[1]
    if ptx and fault.line is not None:
        line = ptx_source_line(ptx, fault.line)
    elif fault.file and fault.file != own:
        place = fault.file.removeprefix(VIRTUAL_ROOT)
    where = f"{place}:{line or fault.line}" if (line or fault.file) else place
    shown = [f"{where}: {fault.text}"]
    if line is not None:
        shown.append(numbered_source(rendered.source, line))
    if ptx and fault.line is not None:
        text = ptx.splitlines()[fault.line - 1 : fault.line]
        shown += [f"  PTX line {fault.line}: {t.strip()}" for t in text]
    return CompileError(
        "\n".join(shown),
        log=log,
        source=numbered_source(rendered.source),
        hint=_hint(rendered, toolchain, fault, log),
    )


def _hint(
    rendered: RenderedKernel, toolchain: Toolchain, fault: LogMessage, log: str
) -> str | None:
    major = toolchain.library.major
    if "NV_IF" in log or "nv/target" in log:
        wheel = "nvidia-cuda-cccl-cu12" if major <= 12 else "nvidia-cuda-cccl"
        return f"these CUDA headers need nv/target, from the wheel {wheel}: pip install {wheel}"
    if "open source file" in fault.text:
        name = fault.text.split('"')[1] if '"' in fault.text else ""
        if _HOST_HEADER.match(name):
            return (
                f"NVRTC has no host headers: take out #include <{name}>; device code needs no "
                "standard library (printf, math functions and fixed-width types are built in "
                "or one line to write)"
            )
        return f"{_missing_header(name, toolchain.headers)}: {wheel_advice(major)}"
    if "not supported on .target" in log or "requires .target" in log:
        number = rendered.arch.removeprefix("sm_")
        if number.isdigit() and int(number) >= 90:
            return (
                f"instructions of that chip alone need its own suffix: sm_{number}a instead of "
                f"{rendered.arch}; set `arch` in the variant's dtype table or give --arch"
            )
        return f"{rendered.arch} does not have this instruction; give a higher --arch"
    if "too much shared data" in fault.text:
        return "take smaller tiles, or dynamic shared memory (extern __shared__), which may be more"
    if "host variable" in fault.text:
        return "write constexpr, __constant__ or __device__ before it"
    # A variant's first line says what it was rendered for; a file of CUDA keeps its own lines.
    if rendered.source.startswith(f"// {rendered.name}: "):
        return "the line is one of the rendered source, which `gemm-lab show` prints"
    return None


def _missing_header(name: str, headers: HeaderSet | None) -> str:
    if headers is None:
        return f"no CUDA headers are installed, and {name} is one of them"
    if name.startswith("crt/"):
        return f"{name} is in the wheel nvidia-cuda-nvcc-cu12 (CUDA 12) or nvidia-cuda-crt (13)"
    return f"{name} is not in the header set ({headers.origin})"
