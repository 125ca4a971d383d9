"""What the cache promises: whole entries or none, whoever reads, writes, dies or fills the disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jit_helpers import SOURCE, needs_nvrtc, small_kernel

from gemm_lab.core.kernel import CompiledKernel
from gemm_lab.errors import CompileError
from gemm_lab.jit import (
    Cache,
    compile_count,
    compile_kernel,
    default_cache,
    places,
    prepare_cupy_environment,
)
from gemm_lab.jit.cache import LEFTOVER_S
from gemm_lab.jit.compile import kernel_key, toolchain

pytestmark = needs_nvrtc

FILES = ("kernel.cu", "kernel.ptx", "kernel.cubin", "kernel.json")

# Compiles the kernels named on the command line and tells what that took.
SCRIPT = """
import sys
from gemm_lab.core.kernel import RenderedKernel
from gemm_lab.jit import compile_count, compile_kernel, default_cache
source = sys.argv[1]
for name in sys.argv[2:]:
    rendered = RenderedKernel(name=name, source=source, entries=("twice",), arch="sm_80")
    compiled = compile_kernel(rendered)
    assert compiled.cubin_path.read_bytes().startswith(b"\\x7fELF")
print(compile_count(), "cupy" in sys.modules, "gemm_lab.jit.nvrtc" in sys.modules and bool(
    sys.modules["gemm_lab.jit.nvrtc"]._loaded))
"""


def entry_folder(compiled: CompiledKernel) -> Path:
    return compiled.cubin_path.parent


def names_in(cache: Cache) -> list[str]:
    return sorted(p.name for p in cache.directory.iterdir() if not p.name.startswith("toolchain-"))


def test_one_folder_a_kernel_with_four_files(cache: Cache) -> None:
    compiled = compile_kernel(small_kernel(name="my idea"), cache=cache)
    folder = entry_folder(compiled)
    key = kernel_key(small_kernel(name="my idea"), toolchain(cache))
    assert folder == cache.directory / f"my_idea-{key[:16]}"
    assert sorted(p.name for p in folder.iterdir()) == sorted(FILES)
    assert (folder / "kernel.cu").read_text() == SOURCE
    assert (folder / "kernel.ptx").read_text() == compiled.ptx
    document = json.loads((folder / "kernel.json").read_text())
    assert {"schema", "key", "arch", "options", "versions", "resources", "sha256", "log"} <= set(
        document
    )
    assert sorted(document["sha256"]) == sorted(FILES[:3])
    assert document["versions"]["nvrtc"] == compiled.nvrtc_version


def test_a_hit_gives_what_the_compilation_gave(cache: Cache) -> None:
    made = compile_kernel(small_kernel(), cache=cache)
    found = compile_kernel(small_kernel(), cache=Cache(cache.directory))
    assert found.cache_hit
    assert replace(found, cache_hit=False, compile_ms=made.compile_ms) == made


def test_a_second_process_compiles_nothing_and_loads_no_compiler(
    python: Callable[..., str], tmp_path: Path
) -> None:
    place = str(tmp_path / "shared")
    cold = python(SCRIPT, SOURCE, "one", "two", GEMM_LAB_CACHE_DIR=place)
    assert cold.split() == ["2", "False", "True"]
    warm = python(SCRIPT, SOURCE, "one", "two", GEMM_LAB_CACHE_DIR=place)
    assert warm.split() == ["0", "False", "False"]


def test_sixteen_processes_at_once_leave_one_good_entry_each(
    python: Callable[..., str], tmp_path: Path
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    place = tmp_path / "cold"
    names = ("one", "two", "three")

    def start(_: int) -> str:
        return python(SCRIPT, SOURCE, *names, GEMM_LAB_CACHE_DIR=str(place))

    with ThreadPoolExecutor(16) as pool:
        counts = [int(out.split()[0]) for out in pool.map(start, range(16))]
    assert sum(counts) >= len(names)
    cache = Cache(place)
    assert len(names_in(cache)) == len(names)
    before = compile_count()
    for name in names:
        assert compile_kernel(small_kernel(name=name), cache=cache).cache_hit
    assert compile_count() == before


def test_sixteen_processes_meet_a_bad_entry(python: Callable[..., str], tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    cache = Cache(tmp_path / "bad")
    folder = entry_folder(compile_kernel(small_kernel(name="one"), cache=cache))
    (folder / "kernel.cubin").write_bytes(b"short")
    with ThreadPoolExecutor(16) as pool:
        jobs = [
            pool.submit(python, SCRIPT, SOURCE, "one", GEMM_LAB_CACHE_DIR=str(cache.directory))
            for _ in range(16)
        ]
        for job in jobs:
            job.result()
    assert names_in(cache) == [folder.name]
    assert compile_kernel(small_kernel(name="one"), cache=cache).cache_hit


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("fault", ["empty", "truncated", "flipped", "missing", "folder"])
def test_a_damaged_entry_is_rebuilt(name: str, fault: str, cache: Cache) -> None:
    made = compile_kernel(small_kernel(), cache=cache)
    path = entry_folder(made) / name
    data = bytearray(path.read_bytes())
    if fault == "flipped":
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    elif fault in ("missing", "folder"):
        path.unlink()
        if fault == "folder":
            path.mkdir()
    else:
        path.write_bytes(data[: len(data) // 2] if fault == "truncated" else b"")
    again = compile_kernel(small_kernel(), cache=cache)
    assert not again.cache_hit
    assert again.cubin_path == made.cubin_path
    assert names_in(cache) == [entry_folder(made).name]
    third = compile_kernel(small_kernel(), cache=cache)
    assert third.cache_hit
    assert third.ptx == made.ptx


def test_every_single_bit_of_the_description_matters(cache: Cache) -> None:
    made = compile_kernel(small_kernel(), cache=cache)
    key = kernel_key(small_kernel(), toolchain(cache))
    path = entry_folder(made) / "kernel.json"
    good = path.read_bytes()
    for place in range(0, len(good), 29):
        data = bytearray(good)
        data[place] ^= 1 << (place % 8)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        found = cache.get("twice", key)
        # A space that became another blank changes nothing that is said.
        assert found is None or found.log == made.log
        if found is None:
            assert not path.parent.exists()
            compile_kernel(small_kernel(), cache=cache)
            good = path.read_bytes()


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"check": 3}', "\ud83d"])
def test_json_that_says_nothing(content: str, cache: Cache) -> None:
    made = compile_kernel(small_kernel(), cache=cache)
    data = content.encode(errors="surrogatepass")
    (entry_folder(made) / "kernel.json").write_bytes(data)
    assert not compile_kernel(small_kernel(), cache=cache).cache_hit
    assert compile_kernel(small_kernel(), cache=cache).cache_hit


def test_a_file_where_the_entry_should_be(cache: Cache) -> None:
    folder = entry_folder(compile_kernel(small_kernel(), cache=cache))
    cache.clear()
    folder.write_text("in the way")
    assert compile_kernel(small_kernel(), cache=cache).cubin_path == folder / "kernel.cubin"
    assert compile_kernel(small_kernel(), cache=cache).cache_hit


def test_the_loser_of_a_race_takes_the_winner_s_entry(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner = compile_kernel(small_kernel(), cache=cache)
    monkeypatch.setattr(Cache, "get", lambda self, name, key: None)
    loser = compile_kernel(small_kernel(), cache=cache)
    assert not loser.cache_hit
    assert loser.cubin_path == winner.cubin_path
    assert loser.log == winner.log
    assert names_in(cache) == [entry_folder(winner).name]


def test_an_entry_replaced_under_our_eyes_stays(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We saw a bad entry; before we move it away another process has put a good one there."""
    made = compile_kernel(small_kernel(), cache=cache)
    key = kernel_key(small_kernel(), toolchain(cache))
    cache._discard_bad(entry_folder(made), key, "as it was a moment ago")
    assert compile_kernel(small_kernel(), cache=cache).cache_hit


def test_too_many_open_files_says_nothing_of_the_entry(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compile_kernel(small_kernel(), cache=cache)

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("gemm_lab.jit.cache.read_entry", refuse)
        key = kernel_key(small_kernel(), toolchain(cache))
        assert cache.get("twice", key) is None
    assert made.cubin_path.exists()


def test_a_killed_process_leaves_nothing_that_blocks(
    python: Callable[..., str], cache: Cache
) -> None:
    script = (
        "import os, sys, gemm_lab.jit.cache as c\n"
        "write = c.write_entry\n"
        "def die(folder, key, kernel):\n"
        "    write(folder, key, kernel)\n"
        "    (folder / 'kernel.cubin').write_bytes(b'half')\n"
        "    os._exit(0)\n"
        "c.write_entry = die\n" + SCRIPT
    )
    python(script, SOURCE, "twice", GEMM_LAB_CACHE_DIR=str(cache.directory))
    [left] = names_in(cache)
    assert left.startswith("tmp-")
    assert cache.info().leftover_count == 1
    assert cache.entries() == []
    assert not compile_kernel(small_kernel(), cache=cache).cache_hit
    assert len(names_in(cache)) == 2
    cache.prune()
    assert left in names_in(cache), "it may be in use for an hour"
    old = time.time() - LEFTOVER_S - 1
    os.utime(cache.directory / left, (old, old))
    cache.prune()
    assert len(names_in(cache)) == 1


@pytest.mark.parametrize("kind", ["file", "proc", "dangling"])
def test_a_cache_that_cannot_be_written_warns_once_and_works(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file in the folder's place stops root too, whom permission bits do not."""
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    place = {
        "file": tmp_path / "file" / "cache",
        "proc": Path("/proc/gemm-lab/cache"),
        "dangling": tmp_path / "dangling",
    }[kind]
    cache = Cache(place)
    with caplog.at_level(logging.WARNING, logger="gemm_lab"):
        first = compile_kernel(small_kernel(), cache=cache)
        second = compile_kernel(small_kernel(name="other"), cache=cache)
        again = compile_kernel(small_kernel(), cache=cache)
    [record] = caplog.records
    assert str(place) in record.getMessage()
    assert "GEMM_LAB_CACHE_DIR" in record.getMessage()
    assert first.cubin_path.exists()
    assert second.cubin_path.exists()
    assert again.cache_hit, "within the process the temporary folder serves"
    assert again.cubin_path == first.cubin_path
    assert not cache.info().writable
    assert cache.entries() == []
    assert cache.clear().entry_count == 0


@pytest.mark.skipif(sys.platform == "win32", reason="HOME is a POSIX matter")
def test_home_and_cache_unwritable_in_a_whole_process(
    python: Callable[..., str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.write_text("no folder")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {"HOME": str(home), "GEMM_LAB_CACHE_DIR": "", "XDG_CACHE_HOME": ""}
    out = python(SCRIPT, SOURCE, "one", "two", TMPDIR=str(scratch), **env)
    assert out.splitlines()[0] == "2 False True"
    assert out.count("cannot be written") == 1
    assert list(scratch.iterdir()) == [], "the temporary folder goes with the process"


def test_a_read_only_cache_still_serves(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = compile_kernel(small_kernel(), cache=cache)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("mkdir", "rename", "utime"):
        monkeypatch.setattr(os, name, refuse)
    found = compile_kernel(small_kernel(), cache=cache)
    assert found.cache_hit
    assert found.cubin_path == made.cubin_path
    assert not caplog.records


def test_a_full_disk_warns_once_and_works(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.is_relative_to(cache.directory) and path.name == "kernel.cubin":
            write(path, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    for name in ("one", "two"):
        compiled = compile_kernel(small_kernel(name=name), cache=cache)
        assert compiled.cubin_path.read_bytes().startswith(b"\x7fELF")
        assert not compiled.cubin_path.is_relative_to(cache.directory)
    [record] = caplog.records
    assert "No space left" in record.getMessage()
    assert names_in(cache) == []


def test_no_room_anywhere_is_a_clear_error(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CompileError, match="no place to write") as caught:
        compile_kernel(small_kernel(), cache=cache)
    assert "TMPDIR" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["with spaces", "größe λ 行列", "-dash"])
def test_any_folder_name_even_in_the_c_locale(
    name: str, python: Callable[..., str], tmp_path: Path
) -> None:
    place = str(tmp_path / name)
    source = SOURCE + "// α·A·B\n"
    for expected in ("1", "0"):
        env = {"GEMM_LAB_CACHE_DIR": place, "LC_ALL": "C", "PYTHONUTF8": "1"}
        assert python(SCRIPT, source, "one", **env).split()[0] == expected


def test_the_c_locale_without_utf8_mode(python: Callable[..., str], tmp_path: Path) -> None:
    """Every file is written and read with its encoding named."""
    script = SCRIPT.replace("source = sys.argv[1]", 'source = sys.argv[1] + "// \\u03b1\\n"')
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for expected in ("1", "0"):
        out = python(script, SOURCE, "one", GEMM_LAB_CACHE_DIR=str(tmp_path / "größe"), **env)
        assert out.split()[0] == expected


def test_a_relative_folder_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEMM_LAB_CACHE_DIR", "here")
    assert default_cache().directory == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GEMM_LAB_CACHE_DIR", "~/kernels")
    assert default_cache().directory == tmp_path / "home" / "kernels"


def test_without_a_home_the_cache_is_temporary(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GEMM_LAB_CACHE_DIR")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: "~/.cache/gemm-lab")
    assert default_cache().directory == default_cache().directory == places.made_fallback()
    assert len(caplog.records) == 1


def test_entries_prune_and_clear(cache: Cache) -> None:
    now = time.time()
    for age, name in enumerate(("new", "middle", "old")):
        compiled = compile_kernel(small_kernel(name=name), cache=cache)
        os.utime(entry_folder(compiled) / "kernel.json", (now - 1000 * age, now - 1000 * age))
    entries = cache.entries()
    assert [entry.variant for entry in entries] == ["new", "middle", "old"]
    assert all(len(entry.hash) == 16 and entry.arch == "sm_80" for entry in entries)
    info = cache.info()
    assert (info.entry_count, info.writable, info.directory) == (3, True, cache.directory)
    assert info.size_bytes == sum(entry.size_bytes for entry in entries) > 10_000

    result = cache.prune(older_than_s=1500)
    assert (result.entry_count, result.freed_bytes) == (1, entries[2].size_bytes)
    assert cache.prune(max_bytes=entries[0].size_bytes).entry_count == 1
    assert [entry.variant for entry in cache.entries()] == ["new"]
    assert cache.prune().entry_count == 0
    assert cache.clear().entry_count == 1
    assert list(cache.directory.iterdir()) == []


def test_clear_touches_nothing_that_is_not_ours(cache: Cache) -> None:
    compile_kernel(small_kernel(), cache=cache)
    mine = cache.directory / "thesis-0123456789abcdef"
    mine.mkdir()
    (mine / "chapter.txt").write_text("years of work")
    (cache.directory / "tmp-notes").mkdir()
    (cache.directory / "toolchain-notes.json").write_text("{}")
    cache.clear()
    assert names_in(cache) == ["thesis-0123456789abcdef", "tmp-notes"]
    assert (mine / "chapter.txt").exists()
    assert (cache.directory / "toolchain-notes.json").exists()


def test_use_makes_an_entry_young(cache: Cache) -> None:
    compiled = compile_kernel(small_kernel(), cache=cache)
    os.utime(entry_folder(compiled) / "kernel.json", (0, 0))
    assert cache.entries()[0].age_s > 1e6
    compile_kernel(small_kernel(), cache=cache)
    assert cache.entries()[0].age_s < 60


def test_cupy_gets_a_folder_that_it_can_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUPY_CACHE_DIR", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare_cupy_environment()
    assert os.environ["CUPY_CACHE_DIR"] == ""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    prepare_cupy_environment()
    assert os.environ["CUPY_CACHE_DIR"] == str(tmp_path / "default" / "cupy")
    monkeypatch.setenv("CUPY_CACHE_DIR", "/chosen")
    prepare_cupy_environment()
    assert os.environ["CUPY_CACHE_DIR"] == "/chosen"
    monkeypatch.setenv("CUPY_CACHE_DIR", "")
    monkeypatch.setenv("GEMM_LAB_CACHE_DIR", str(tmp_path / "file" / "x"))
    prepare_cupy_environment()
    assert places.writable(Path(os.environ["CUPY_CACHE_DIR"]))
