"""Cubin, PTX, log and resources of one compilation; options and architectures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jit_helpers import SOURCE, compile_failure, needs_nvrtc, small_kernel

from gemm_lab.core.kernel import CompiledKernel
from gemm_lab.errors import CompileError, UsageError
from gemm_lab.jit import Cache, compile_count, compile_kernel, compile_many, supported_arches
from gemm_lab.jit.compile import PROCESS_THRESHOLD, toolchain
from gemm_lab.jit.options import FIXED_OPTIONS, compile_options, safe_name
from gemm_lab.jit.toolchain import find_libraries

pytestmark = needs_nvrtc

SPILLING = """\
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* data) {
    float part[48];
    #pragma unroll
    for (int i = 0; i < 48; ++i) part[i] = data[i * blockDim.x + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 48; ++i) data[threadIdx.x + i * 7] = part[i] * part[(i * 5 + 1) % 48];
}
"""

ALL_HEADERS = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void twice(float* c, const __half* a, __nv_bfloat16* b, __nv_fp8_e4m3* f) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> frag_a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> frag_b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    wmma::load_matrix_sync(frag_a, a, 16);
    wmma::load_matrix_sync(frag_b, a + 256, 16);
    wmma::mma_sync(acc, frag_a, frag_b, acc);
    wmma::store_matrix_sync(c, acc, 16, wmma::mem_row_major);
    b[0] = __float2bfloat16(c[1]) * b[1];
    f[0] = __nv_fp8_e4m3(c[2]);
}
"""


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90", "sm_90a", "sm_120"])
@pytest.mark.parametrize("source", [SOURCE, ALL_HEADERS], ids=["plain", "all-headers"])
def test_every_arch_compiles_without_a_gpu(arch: str, source: str, cache: Cache) -> None:
    if int(arch[3:].rstrip("a")) < toolchain(cache).arch_numbers[0]:
        pytest.skip(f"NVRTC {toolchain(cache).nvrtc_version} does not know {arch}")
    compiled = compile_kernel(small_kernel(source, arch=arch), cache=cache)
    assert compiled.cubin_path.read_bytes().startswith(b"\x7fELF")
    assert f".target {arch}" in compiled.ptx
    assert '.file\t1 "/gemm_lab/twice.cu"' in compiled.ptx
    assert compiled.options[0] == f"--gpu-architecture={arch}"
    assert set(compiled.resources) == {"twice"}
    assert 0 < compiled.resources["twice"].registers_per_thread <= 255
    assert not compiled.cache_hit
    assert compiled.compile_ms is not None


def test_the_exact_build_is_that_of_the_ptx(cache: Cache) -> None:
    compiled = compile_kernel(small_kernel(), cache=cache)
    assert f"V{compiled.nvrtc_version}" in compiled.ptx
    assert compiled.nvrtc_version.count(".") == 2


def test_one_compilation_gives_all(cache: Cache) -> None:
    before = compile_count()
    compile_kernel(small_kernel(), cache=cache)
    assert compile_count() == before + 1
    assert compile_kernel(small_kernel(), cache=cache).cache_hit
    assert compile_count() == before + 1


def test_resources_and_spills_are_read(cache: Cache) -> None:
    plain = compile_kernel(small_kernel(), cache=cache).resources["twice"]
    assert plain.static_smem_bytes == 64 * 4
    assert plain.spill_store_bytes == plain.spill_load_bytes == 0
    spilling = compile_kernel(small_kernel(SPILLING, name="spilling"), cache=cache)
    used = spilling.resources["spilling"]
    assert used.registers_per_thread <= 32
    assert used.spill_store_bytes > 0
    assert used.spill_load_bytes > 0


def test_the_caller_s_options_are_used_and_recorded(cache: Cache) -> None:
    unbounded = SPILLING.replace("__launch_bounds__(1024, 2)", "")
    rendered = small_kernel(unbounded, options=("-maxrregcount=24", "-DUNUSED=1"))
    compiled = compile_kernel(rendered, cache=cache)
    assert compiled.resources["spilling"].registers_per_thread <= 24
    assert compiled.options == (
        "--gpu-architecture=sm_80",
        *FIXED_OPTIONS,
        "-maxrregcount=24",
        "-DUNUSED=1",
    )


def test_denormals_are_kept_unless_asked_otherwise(cache: Cache) -> None:
    compiled = compile_kernel(small_kernel(), cache=cache)
    assert not [o for o in compiled.options if "ftz" in o or "fast" in o]
    assert "mul.f32" in compiled.ptx or "add.f32" in compiled.ptx
    flushed = compile_kernel(small_kernel(options=("-ftz=true",)), cache=cache)
    assert ".ftz.f32" in flushed.ptx


@pytest.mark.parametrize(
    "option",
    [
        "-arch=sm_80",
        "--gpu-architecture=compute_80",
        "-arch",
        "-gencode=arch=compute_80,code=sm_80",
        "-I/usr/include",
        "--include-path=/usr/include",
        "-include=x.h",
        "--pre-include=x.h",
        "-dlto",
        "-rdc=true",
    ],
)
def test_options_that_would_break_a_promise_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match=option.split("=")[0]):
        compile_options("sm_80", (option,))


def test_another_standard_replaces_ours() -> None:
    assert "--std=c++17" not in compile_options("sm_80", ("--std=c++20",))


def test_an_option_that_nvrtc_does_not_know(cache: Cache) -> None:
    with pytest.raises(UsageError, match=r"refuses an option.*no-such"):
        compile_kernel(small_kernel(options=("--no-such",)), cache=cache)


@pytest.mark.parametrize("arch", ["sm_20", "sm_999", "sm_999a"])
def test_an_unknown_arch_lists_the_known(arch: str, cache: Cache) -> None:
    with pytest.raises(UsageError, match=f"does not know {arch}") as caught:
        compile_kernel(small_kernel(arch=arch), cache=cache)
    assert "sm_80, " in str(caught.value.hint)
    assert ("CUDA 12" in str(caught.value.hint)) == (arch == "sm_20")


@pytest.mark.parametrize("arch", ["80", "sm80", "compute_80", "sm_80x"])
def test_what_is_no_arch_at_all(arch: str, cache: Cache) -> None:
    with pytest.raises(UsageError, match="is no architecture"):
        compile_kernel(small_kernel(arch=arch), cache=cache)


def test_a_suffix_that_does_not_exist(cache: Cache) -> None:
    with pytest.raises(UsageError, match="sm_80a does not exist") as caught:
        compile_kernel(small_kernel(arch="sm_80a"), cache=cache)
    assert caught.value.hint == "write sm_80"


def test_supported_arches_rise() -> None:
    arches = supported_arches()
    assert {"sm_80", "sm_90"} <= set(arches)
    numbers = [int(arch[3:]) for arch in arches]
    assert numbers == sorted(numbers)


def test_many_keep_order_and_errors(cache: Cache) -> None:
    good = small_kernel()
    bad = small_kernel("not CUDA", name="bad")
    wrong_arch = small_kernel(arch="sm_20")
    seen: list[tuple[int, int]] = []
    before = compile_count()
    results = compile_many(
        [good, bad, good, wrong_arch],
        cache=cache,
        workers=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert results[0] is results[2]
    assert [type(r).__name__ for r in results] == [
        "CompiledKernel",
        "CompileError",
        "CompiledKernel",
        "UsageError",
    ]
    assert compile_count() == before + 2
    assert seen[-1] == (4, 4)
    assert compile_many([], cache=cache) == []


def test_more_than_a_handful_goes_to_processes(cache: Cache) -> None:
    kernels = [small_kernel(SOURCE + f"// {n}\n") for n in range(PROCESS_THRESHOLD)]
    kernels[2] = small_kernel("not CUDA", name="bad")
    compile_kernel(kernels[0], cache=cache)
    before = compile_count()
    results = compile_many(kernels, cache=cache, workers=2)
    assert compile_count() == before + len(kernels) - 2
    error = results[2]
    assert isinstance(error, CompileError)
    assert error.log
    assert error.message.startswith("bad.cu:1")
    for kernel, result in zip(kernels, results, strict=True):
        if isinstance(result, CompiledKernel):
            assert result.rendered == kernel
            assert result.cache_hit == (kernel is kernels[0])
            assert result.cubin_path.exists()
    again = compile_many(kernels, cache=cache, workers=2)
    assert all(isinstance(r, CompileError) or r.cache_hit for r in again)


@pytest.mark.parametrize("executable", ["/bin/false", "/no/such/python"])
def test_processes_that_do_not_start_are_done_without(
    executable: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    kernels = [small_kernel(SOURCE + f"// {n}\n") for n in range(PROCESS_THRESHOLD)]
    results = compile_many(kernels, cache=cache, workers=2)
    assert all(isinstance(result, CompiledKernel) for result in results)


def test_processes_without_a_cache_to_share(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kernels = [small_kernel(SOURCE + f"// {n}\n") for n in range(PROCESS_THRESHOLD)]
    results = compile_many(kernels, cache=Cache(tmp_path / "file" / "cache"), workers=2)
    for result in results:
        assert isinstance(result, CompiledKernel)
        assert result.cubin_path.exists()


def test_a_name_becomes_a_safe_word() -> None:
    assert safe_name("my idea/..\\ü 1") == "my_idea_.._1"
    assert safe_name("...") == "kernel"
    assert len(safe_name("x" * 500)) == 64


def test_no_nvrtc_says_which_wheels(monkeypatch: pytest.MonkeyPatch, cache: Cache) -> None:
    monkeypatch.setattr("gemm_lab.jit.probe.find_libraries", tuple)
    error = compile_failure(small_kernel(), cache)
    assert "not installed" in error.message
    assert "nvidia-cuda-nvrtc-cu12" in str(error.hint)
    assert isinstance(compile_many([small_kernel()], cache=cache)[0], CompileError)


def test_a_library_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, cache: Cache, tmp_path: Path
) -> None:
    library = find_libraries()[0]
    broken = tmp_path / library.path.name
    broken.write_bytes(b"no library")
    monkeypatch.setattr(
        "gemm_lab.jit.probe.find_libraries", lambda: (replace(library, path=broken),)
    )
    assert "cannot be used" in compile_failure(small_kernel(), cache).message


def test_importing_the_room_loads_no_compiler(python: Callable[..., str]) -> None:
    script = (
        "import sys, gemm_lab.jit;"
        "print([m for m in ('cupy', 'cuda.bindings', 'numpy', 'platformdirs') if m in sys.modules])"
    )
    assert python(script).strip() == "[]"


def test_an_entry_that_is_not_in_the_source_is_told(cache: Cache) -> None:
    rendered = replace(small_kernel(), entries=("absent",))
    with pytest.raises(CompileError, match="says nothing of absent"):
        compile_kernel(rendered, cache=cache)
