"""The log: resources, warnings, and errors against the numbered source."""

from __future__ import annotations

import dataclasses

import pytest
from jit_helpers import SOURCE, compile_failure, needs_nvrtc, small_kernel

from gemm_lab.core.kernel import Resources
from gemm_lab.jit import Cache, compile_kernel, log_warnings, numbered_source, parse_resources
from gemm_lab.jit.compile import toolchain
from gemm_lab.jit.headers import HeaderSet
from gemm_lab.jit.log import first_error, ptx_source_line

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum \
register requirements.
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, \
1024+0 bytes smem, 568 bytes cmem[0]
ptxas info    : Compile time = 4.2 ms
ptxas info    : Function properties for _Z6helperf
ptxas         .     0 bytes stack frame, 100 bytes spill stores, 200 bytes spill loads
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_resources_of_two_entries_and_a_function() -> None:
    assert parse_resources(LOG) == {
        "second": Resources(
            registers_per_thread=168,
            static_smem_bytes=1024,
            stack_bytes=16,
            spill_store_bytes=108,
            spill_load_bytes=212,
        ),
        "first": Resources(
            registers_per_thread=10, static_smem_bytes=0, spill_store_bytes=0, spill_load_bytes=0
        ),
    }


@pytest.mark.parametrize("log", ["", "nothing of ptxas", LOG[:240]])
def test_a_log_without_resources(log: str) -> None:
    assert parse_resources(log) == {}


def test_warnings_of_a_good_compilation() -> None:
    found = log_warnings(LOG)
    assert len(found) == 2
    assert "setmaxnreg" in found[0]
    assert found[1].startswith("second: registers spill to local memory, 108 bytes stored")
    assert log_warnings("ptxas info    : 0 bytes gmem\n") == ()


@needs_nvrtc
def test_warnings_of_the_compiler_reach_the_log(cache: Cache) -> None:
    source = SOURCE.replace("    int index", "#warning look here\n    int unused; int index", 1)
    compiled = compile_kernel(small_kernel(source), cache=cache)
    [warning] = log_warnings(compiled.log)
    assert warning.startswith("/gemm_lab/twice.cu(3): warning #1105-D")
    again = compile_kernel(small_kernel(source), cache=cache)
    assert again.cache_hit
    assert again.log == compiled.log


def test_numbered_source_about_a_line() -> None:
    source = "\n".join(f"line {n}" for n in range(1, 13))
    assert numbered_source(source, 3, around=1) == "   2 | line 2\n>  3 | line 3\n   4 | line 4"
    assert numbered_source(source, 1, around=1).splitlines()[0] == ">  1 | line 1"
    assert numbered_source(source, 12, around=1).splitlines()[-1] == "> 12 | line 12"
    assert len(numbered_source(source).splitlines()) == 12
    assert numbered_source("a\n\nb").splitlines()[1] == "  2 |"


@needs_nvrtc
def test_a_syntax_error_is_shown_against_the_source(cache: Cache) -> None:
    source = SOURCE.replace("__syncthreads();", "__syncthreads()")
    error = compile_failure(small_kernel(source, name="my variant"), cache)
    assert error.exit_code == 5
    assert error.message.startswith("my_variant.cu:6: expected a")
    assert "> 6 | " in error.message
    assert "/gemm_lab/my_variant.cu(6): error" in error.log
    assert error.source.splitlines()[0].startswith("  1 | extern")
    assert len(error.source.splitlines()) == len(source.splitlines())


@needs_nvrtc
def test_the_first_of_many_errors_leads(cache: Cache) -> None:
    source = SOURCE.replace("data[index] :", "nothing_here :").replace("2.0f *", "2.0f ** 'x")
    error = compile_failure(small_kernel(source), cache)
    assert error.message.startswith('twice.cu:4: identifier "nothing_here" is undefined')
    assert "2 errors" in error.log or "3 errors" in error.log


@needs_nvrtc
@pytest.mark.parametrize("name", ["cstdio", "vector", "stdint.h", "type_traits", "iostream"])
def test_host_headers_are_told(name: str, cache: Cache) -> None:
    error = compile_failure(small_kernel(f"#include <{name}>\n{SOURCE}"), cache)
    assert "NVRTC has no host headers" in str(error.hint)
    assert f"> 1 | #include <{name}>" in error.message


@needs_nvrtc
def test_instructions_of_one_chip_name_the_suffix(cache: Cache) -> None:
    source = SOURCE.replace("__syncthreads();", 'asm volatile("wgmma.fence.sync.aligned;");')
    error = compile_failure(small_kernel(source, arch="sm_90"), cache)
    assert "sm_90a instead of sm_90" in str(error.hint)
    assert error.message.startswith("twice.cu:5: Instruction 'wgmma.fence'")
    assert "> 5 | " in error.message
    assert "PTX line" in error.message
    error = compile_failure(small_kernel(source, arch="sm_80"), cache)
    assert "give a higher --arch" in str(error.hint)
    assert compile_kernel(small_kernel(source, arch="sm_90a"), cache=cache).resources


@needs_nvrtc
def test_too_much_static_shared_memory_is_an_error(cache: Cache) -> None:
    error = compile_failure(small_kernel(SOURCE.replace("tile[64]", "tile[40000]")), cache)
    assert "uses too much shared data" in error.message
    assert "dynamic shared memory" in str(error.hint)


@needs_nvrtc
def test_a_fault_of_the_compiler_itself_is_a_compile_error(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain(cache)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("NVRTC: NVRTC_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr("gemm_lab.jit.nvrtc.Nvrtc.compile", fail)
    assert "OUT_OF_MEMORY" in compile_failure(small_kernel(), cache).message


@needs_nvrtc
def test_a_host_variable_gets_a_hint(cache: Cache) -> None:
    error = compile_failure(small_kernel("int counter = 3;\n" + SOURCE), cache)
    assert "constexpr" in str(error.hint)


@needs_nvrtc
def test_a_kernel_without_headers_needs_none(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = dataclasses.replace(toolchain(cache), headers=None, header_set="none")
    monkeypatch.setattr("gemm_lab.jit.compile.toolchain", lambda cache: bare)
    assert compile_kernel(small_kernel(), cache=cache).header_set == "none"
    error = compile_failure(small_kernel("#include <mma.h>\n" + SOURCE), cache)
    assert "no CUDA headers are installed" in str(error.hint)
    assert "nvidia-cuda-" in str(error.hint)


@needs_nvrtc
def test_a_missing_part_of_the_headers_names_its_wheel(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    tools = toolchain(cache)
    assert tools.headers is not None
    whole = tools.headers

    class WithoutCrt(HeaderSet):
        """The runtime wheel alone."""

    folders = tuple(f for f in whole.folders if not (f / "crt" / "mma.h").is_file())
    if not folders:
        pytest.skip("this header set is one folder")
    partial = WithoutCrt(origin=whole.origin, folders=folders)
    monkeypatch.setattr(
        "gemm_lab.jit.compile.toolchain", lambda cache: dataclasses.replace(tools, headers=partial)
    )
    error = compile_failure(small_kernel("#include <mma.h>\n" + SOURCE), cache)
    assert "nvidia-cuda-nvcc-cu12" in str(error.hint)
    assert "pip install" in str(error.hint)


def test_first_error_of_odd_logs() -> None:
    assert first_error("").text == "NVRTC gave no message"
    assert first_error("something odd\n").text == "something odd"
    assert first_error("ptxas fatal   : Memory allocation failure").text.startswith("Memory")
    found = first_error('a.cu(3): error #20: identifier "x" is undefined\n')
    assert (found.file, found.line) == ("a.cu", 3)


def test_a_line_of_ptx_leads_to_its_source() -> None:
    ptx = '.file 1 "/gemm_lab/k.cu"\n.loc 1 7 3\nadd;\n.loc 2 99 1\nmul;\nsub;\n'
    assert ptx_source_line(ptx, 3) == 7
    assert ptx_source_line(ptx, 5) is None
    assert ptx_source_line(ptx, 1) is None
