"""Header sets, the compiler's identity, the cache key, and what doctor says of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jit_helpers import PROJECT, SOURCE, needs_nvrtc, small_kernel

from gemm_lab.core.checks import Check
from gemm_lab.errors import CompileError
from gemm_lab.jit import Cache, checks, compile_kernel
from gemm_lab.jit import compile as compile_module
from gemm_lab.jit import probe as probe_module
from gemm_lab.jit.compile import kernel_key, toolchain
from gemm_lab.jit.doctor import header_checks, wheel_releases
from gemm_lab.jit.headers import HeaderSet, included_names, resolve_includes
from gemm_lab.jit.probe import find_toolchain, header_identity, select_headers
from gemm_lab.jit.toolchain import (
    Library,
    cupy_majors,
    find_header_sets,
    find_libraries,
    wheel_advice,
)

HALF = (
    "#include <cuda_fp16.h>\n#include <mma.h>\n"
    'extern "C" __global__ void twice(__half2* data) {'
    " data[1] = __hfma2(data[0], data[1], data[2]);"
    " nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> acc;"
    " nvcuda::wmma::fill_fragment(acc, 1.0f);"
    " nvcuda::wmma::store_matrix_sync((float*)data, acc, 16, nvcuda::wmma::mem_row_major); }\n"
)


def write_headers(folder: Path, *, release: int = 12090, body: str = "// fp16\n") -> HeaderSet:
    """A header set small enough to read here."""
    (folder / "crt").mkdir(parents=True)
    (folder / "cuda.h").write_text(f"#define CUDA_VERSION {release}\n")
    (folder / "cuda_fp16.h").write_text('#include "cuda_fp16.hpp"\n')
    (folder / "cuda_fp16.hpp").write_text(body)
    (folder / "cuda_bf16.h").write_text("#include <cuda_fp16.h>\n")
    (folder / "cuda_fp8.h").write_text("// fp8\n")
    (folder / "mma.h").write_text('#include "crt/mma.h"\n')
    (folder / "crt" / "mma.h").write_text('#include "mma.hpp"\n#include "../cuda_fp16.h"\n')
    (folder / "crt" / "mma.hpp").write_text("#include <nowhere.h>\n")
    return HeaderSet(origin="toolkit test", folders=(folder,))


def test_includes_are_taken_in_under_fixed_names(tmp_path: Path) -> None:
    found = resolve_includes(
        '# include <mma.h>\n#include "cuda_bf16.h"\nint x;', write_headers(tmp_path / "h")
    )
    root = "/gemm_lab/include/"
    assert found.source == f'# include "{root}mma.h"\n#include "{root}cuda_bf16.h"\nint x;'
    assert sorted(found.headers) == [
        root + name
        for name in (
            "crt/mma.h",
            "crt/mma.hpp",
            "cuda_bf16.h",
            "cuda_fp16.h",
            "cuda_fp16.hpp",
            "mma.h",
        )
    ]
    assert found.headers[root + "crt/mma.h"].decode().splitlines() == [
        f'#include "{root}crt/mma.hpp"',
        f'#include "{root}cuda_fp16.h"',
    ]
    assert found.headers[root + "crt/mma.hpp"] == b"#include <nowhere.h>\n"


def test_an_include_cannot_leave_the_set(tmp_path: Path) -> None:
    (tmp_path / "secret.h").write_text("// outside\n")
    found = resolve_includes('#include "../secret.h"\n', write_headers(tmp_path / "h"))
    assert found.headers == {}


def test_included_names() -> None:
    assert included_names(
        '#include <a.h>\n  #  include "b/c.h"\n// #include <d.h>\n#include <a.h>'
    ) == (
        "a.h",
        "b/c.h",
    )
    assert included_names(SOURCE) == ()


def test_header_identity_is_content_and_release_not_place(tmp_path: Path) -> None:
    first = header_identity(write_headers(tmp_path / "a"))
    assert first.startswith("12.9-")
    assert header_identity(write_headers(tmp_path / "b b")) == first
    assert header_identity(write_headers(tmp_path / "c", body="// other\n")) != first
    assert header_identity(write_headers(tmp_path / "d", release=12060)).startswith("12.6-")
    assert header_identity(None) == "none"


@needs_nvrtc
def test_the_key_changes_with_each_ingredient(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = toolchain(cache)
    base = small_kernel(HALF)
    keys = [
        kernel_key(base, tools),
        kernel_key(replace(base, source=HALF + " "), tools),
        kernel_key(replace(base, arch="sm_90"), tools),
        kernel_key(replace(base, arch="sm_90a"), tools),
        kernel_key(replace(base, name="other"), tools),
        kernel_key(replace(base, options=("-ftz=true",)), tools),
        kernel_key(replace(base, options=("-DA", "-DB")), tools),
        kernel_key(replace(base, options=("-DA -DB",)), tools),
        kernel_key(base, replace(tools, nvrtc_version="12.9.41")),
        kernel_key(base, replace(tools, header_set="12.8-0123456789abcdef")),
    ]
    monkeypatch.setattr(compile_module, "SCHEMA", 99)
    keys.append(kernel_key(base, tools))
    assert len(set(keys)) == len(keys)


@needs_nvrtc
def test_the_key_leaves_out_what_does_not_matter(cache: Cache) -> None:
    tools = toolchain(cache)
    assert tools.headers is not None
    elsewhere = replace(
        tools,
        library=replace(tools.library, path=Path("/elsewhere/libnvrtc.so.12")),
        headers=replace(tools.headers, folders=(Path("/elsewhere"),)),
    )
    assert kernel_key(small_kernel(HALF), elsewhere) == kernel_key(small_kernel(HALF), tools)
    other_headers = replace(tools, header_set="12.8-0123456789abcdef")
    assert kernel_key(small_kernel(), other_headers) == kernel_key(small_kernel(), tools)


@needs_nvrtc
def test_headers_elsewhere_give_the_same_bytes(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line table names headers: a cubin must not show where they lay."""
    tools = toolchain(cache)
    assert tools.headers is not None
    folders = []
    for number, folder in enumerate(tools.headers.folders):
        copy = tmp_path / "an other place" / str(number)
        copy.mkdir(parents=True)
        for path in folder.glob("*.h*"):
            shutil.copy(path, copy)
        if (folder / "crt").is_dir():
            shutil.copytree(folder / "crt", copy / "crt")
        folders.append(copy)
    made = compile_kernel(small_kernel(HALF), cache=cache)
    moved = replace(tools, headers=replace(tools.headers, folders=tuple(folders)))
    monkeypatch.setattr(compile_module, "toolchain", lambda cache: moved)
    other = compile_kernel(small_kernel(HALF), cache=Cache(tmp_path / "second cache"))
    assert not other.cache_hit
    assert other.ptx == made.ptx
    assert other.cubin_path.read_bytes() == made.cubin_path.read_bytes()
    assert "/gemm_lab/include/cuda_fp16.h" in made.ptx
    assert str(PROJECT).encode() not in made.cubin_path.read_bytes()
    assert b"site-packages" not in made.cubin_path.read_bytes()


@needs_nvrtc
def test_two_checkouts_give_the_same_bytes(python: Callable[..., str], tmp_path: Path) -> None:
    script = (
        "import sys, gemm_lab\n"
        "from gemm_lab.core.kernel import RenderedKernel\n"
        "from gemm_lab.jit import compile_kernel\n"
        "assert gemm_lab.__file__.startswith(sys.argv[2]), gemm_lab.__file__\n"
        "k = RenderedKernel(name='k', source=sys.argv[1], entries=('twice',), arch='sm_90')\n"
        "compile_kernel(k)\n"
    )
    caches = []
    for name in ("one", "the other one"):
        place = tmp_path / name
        for room in ("core", "jit"):
            shutil.copytree(PROJECT / "gemm_lab" / room, place / "gemm_lab" / room)
        for module in ("__init__.py", "errors.py"):
            shutil.copy(PROJECT / "gemm_lab" / module, place / "gemm_lab")
        caches.append(place / "cache")
        python(
            script,
            HALF,
            str(place),
            cwd=place,
            PYTHONPATH=str(place),
            GEMM_LAB_CACHE_DIR=str(caches[-1]),
        )
    first, second = (next(cache.glob("k-*")) for cache in caches)
    assert first.name == second.name
    for file in ("kernel.cu", "kernel.ptx", "kernel.cubin"):
        assert (first / file).read_bytes() == (second / file).read_bytes()


@needs_nvrtc
def test_the_note_is_read_and_a_bad_one_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    told = find_toolchain(notes)
    [note] = notes.iterdir()
    good = note.read_bytes()
    monkeypatch.setattr(probe_module, "_answers", {})
    asked: list[Library] = []
    ask = probe_module.probe_library

    def count(library: Library, headers: HeaderSet | None) -> probe_module.ProbeAnswer:
        asked.append(library)
        return ask(library, headers)

    monkeypatch.setattr(probe_module, "probe_library", count)
    assert find_toolchain(notes) == told
    assert asked == []
    for bad in (b"", good[:40], good.replace(b"12.", b"11.").replace(b"13.", b"11."), b"[]"):
        monkeypatch.setattr(probe_module, "_answers", {})
        note.write_bytes(bad)
        assert find_toolchain(notes) == told
        assert note.read_bytes() == good
    assert len(asked) == 4


@needs_nvrtc
def test_an_upgraded_file_is_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = write_headers(tmp_path / "h", release=find_libraries()[0].major * 1000)
    monkeypatch.setattr(probe_module, "select_headers", lambda library: headers)
    before = find_toolchain(tmp_path / "notes")
    (tmp_path / "h" / "cuda_fp16.hpp").write_text("// a new release of it\n")
    after = find_toolchain(tmp_path / "notes")
    assert before.header_set != after.header_set
    assert len(list((tmp_path / "notes").iterdir())) == 2


def test_headers_of_another_generation_are_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_headers(tmp_path / "cuda" / "include", release=11080)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    for major in (12, 13):
        folders = [folder for s in find_header_sets(major) for folder in s.folders]
        assert tmp_path / "cuda" / "include" not in folders
    [found] = [s for s in find_header_sets(11) if s.origin.endswith(str(tmp_path / "cuda"))]
    assert found.version == (11, 8)


def test_compiler_and_headers_come_from_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A toolkit's library takes the toolkit's headers though wheels are there too."""
    home = tmp_path / "cuda"
    headers = write_headers(home / "include", release=12040)
    (home / "lib64").mkdir()
    (home / "lib64" / "libnvrtc.so.12").write_bytes(b"")
    (home / "lib64" / "libnvrtc-builtins.so.12.4").write_bytes(b"")
    monkeypatch.setenv("CUDA_HOME", str(home))
    [library] = [x for x in find_libraries() if x.path.is_relative_to(home)]
    assert library.major == 12
    chosen = select_headers(library)
    assert chosen is not None
    assert chosen.folders == headers.folders


def test_wheels_of_cupy_s_generation_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        Library(path=Path("/t/libnvrtc.so.12"), major=12, origin="toolkit /t"),
        Library(path=Path("/w/libnvrtc.so.12"), major=12, origin="wheel nvidia-cuda-nvrtc"),
        Library(path=Path("/w/libnvrtc.so.13"), major=13, origin="wheel nvidia-cuda-nvrtc"),
    ]
    monkeypatch.setattr("gemm_lab.jit.toolchain._libraries", lambda: iter(wanted))
    for majors, first in (((12,), "/w/libnvrtc.so.12"), ((13,), "/w/libnvrtc.so.13")):
        monkeypatch.setattr("gemm_lab.jit.toolchain.cupy_majors", lambda m=majors: m)
        assert find_libraries()[0].path == Path(first)


def test_cupy_is_recognised_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cupy").mkdir()
    for name in ("cupy_cuda12x-14.2.0.dist-info", "cupy_cuda13x-14.2.0.dist-info"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("gemm_lab.jit.toolchain._package_folders", lambda name: [tmp_path / "cupy"])
    assert cupy_majors() == (12, 13)


def by_name(found: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in found}


@needs_nvrtc
def test_doctor_finds_all_well(cache: Cache) -> None:
    found = by_name(checks(arch="sm_80", cache=cache))
    assert [check.status for check in found.values()].count("ok") >= 4
    assert {"NVRTC", "CUDA headers", "architectures", "kernel cache"} <= set(found)
    assert toolchain(cache).nvrtc_version in found["NVRTC"].detail
    assert not cache.directory.is_dir() or cache.entries() == []


@needs_nvrtc
def test_doctor_names_each_fault_with_its_mend(cache: Cache, tmp_path: Path) -> None:
    tools = toolchain(cache)
    [none] = header_checks(replace(tools, headers=None))
    assert none.status == "error"
    assert "pip install" in none.mend

    partial = write_headers(tmp_path / "partial")
    (tmp_path / "partial" / "crt" / "mma.h").unlink()
    [missing] = header_checks(replace(tools, headers=partial))
    assert missing.status == "error"
    assert "crt/mma.h" in missing.detail
    assert "wheel nvidia-cuda-" in missing.detail

    older = write_headers(tmp_path / "older", release=12010)
    _, mixed = header_checks(replace(tools, headers=older))
    assert mixed.status == "warning"
    assert "12.1" in mixed.detail
    assert tools.nvrtc_version in mixed.detail
    assert mixed.mend

    (tmp_path / "file").write_text("")
    unwritable = by_name(checks(cache=Cache(tmp_path / "file" / "cache")))["kernel cache"]
    assert unwritable.status == "warning"
    assert "GEMM_LAB_CACHE_DIR" in unwritable.mend

    unknown = by_name(checks(arch="sm_20", cache=cache))["architectures"]
    assert unknown.status == "error"
    assert "cu12" in unknown.mend


def test_doctor_without_nvrtc(monkeypatch: pytest.MonkeyPatch, cache: Cache) -> None:
    monkeypatch.setattr(probe_module, "find_libraries", tuple)
    found = by_name(checks(cache=cache))
    assert found["NVRTC"].status == "error"
    assert "pip install" in found["NVRTC"].mend
    assert found["kernel cache"].status == "ok"
    with pytest.raises(CompileError):
        toolchain(cache)


@needs_nvrtc
def test_wheels_of_two_releases_are_mixed(cache: Cache, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    folder = site / "nvidia" / "cuda_runtime" / "include"
    tools = replace(
        toolchain(cache),
        library=Library(path=Path("x"), major=12, origin="wheel"),
        nvrtc_version="12.9.86",
    )
    headers = replace(write_headers(folder), origin="wheels of CUDA 12")
    for name in ("runtime_cu12-12.9.79", "nvcc_cu12-12.4.131", "nvrtc_cu12-12.9.86"):
        (site / f"nvidia_cuda_{name}.dist-info").mkdir()
    assert wheel_releases(folder, 12)["nvidia-cuda-nvcc-cu12"] == (12, 4, 131)
    _, mixed = header_checks(replace(tools, headers=headers))
    assert "different releases" in mixed.detail
    assert "nvidia-cuda-nvcc-cu12 12.4.131" in mixed.detail
    os.rename(
        site / "nvidia_cuda_nvcc_cu12-12.4.131.dist-info",
        site / "nvidia_cuda_nvcc_cu12-12.9.86.dist-info",
    )
    assert len(list(header_checks(replace(tools, headers=headers)))) == 1


def test_advice_is_one_header_set() -> None:
    assert wheel_advice(12).count("cu12<13") == 3
    assert "nvidia-cuda-crt" in wheel_advice(13)
