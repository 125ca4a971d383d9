"""Every way in which a variant file can be broken gets its own error, with file and line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemm_lab.core.dtypes import dtype
from gemm_lab.core.problem import Alignment, Shape, Strides
from gemm_lab.errors import UsageError, VariantError
from gemm_lab.variants import Catalogue, Facts, config_of, load_variant, make_spec, plan, render

GOOD = """\
/*---
title = "Mine"
idea  = "One thread an element."
[dtype.fp32]
layouts = ["nn"]
[tunables.TILE]
default = 16
doc     = "threads along each side"
[derived]
THREADS = "TILE * TILE"
[[rules]]
check = "THREADS <= MAX_THREADS"
say   = "too many threads"
[launch]
grid  = ["ceil_div(M, TILE) * ceil_div(N, TILE)"]
block = ["TILE", "TILE"]
---*/
//% include "lib/epilogue.cuh.j2"
extern "C" __global__ void ${entry}(${params}) {
    const int blocks_n = (N + TILE - 1) / TILE;
    const int row = blockIdx.x / blocks_n * TILE + threadIdx.y;
    const int col = blockIdx.x % blocks_n * TILE + threadIdx.x;
    if (row >= M || col >= N) return;
    acc_t acc = 0;
    for (int k = 0; k < K; ++k) acc += A[row * lda + k] * B[k * ldb + col];
    store_c(C, ldc, row, col, alpha, acc, beta, ${bias});
}
"""


def write(folder: Path, text: str, name: str = "mine.cu.j2") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def through_render(path: Path, **tunables: object) -> str:
    variant = load_variant(path)
    fp32 = dtype("fp32")
    facts = Facts(
        dtype=fp32, out=fp32.default_out, layout="nn", alignment=Alignment(), arch="sm_80"
    )
    spec = make_spec(variant, facts, config_of(variant, "fp32", tunables))
    shape = Shape(m=5, n=7, k=3)
    plan(variant, spec, shape, Strides(lda=3, ldb=7, ldc=7), 1)
    return render(variant, spec).source


def test_the_good_file_is_good(tmp_path: Path) -> None:
    source = through_render(write(tmp_path, GOOD))
    assert "constexpr int TILE = 16;" in source
    assert "mine(int M, int N, int K" in source


def test_any_file_name_gives_a_function_of_c(tmp_path: Path) -> None:
    assert "void k_rnel_2(int M" in through_render(write(tmp_path, GOOD, "kärnel 2.cu.j2"))


# (what is replaced, by what, words of the message, line)
BROKEN = {
    "no front matter": ("/*---\n", "", "no front matter", 1),
    "never ends": ("---*/", "", "never ends", 1),
    "toml": ('title = "Mine"', 'title = "Mine', "TOML", 2),
    "unknown key": ('title = "Mine"', 'title = "Mine"\ntitel = "x"', "unknown key 'titel'", 3),
    "unknown tunable key": ("default = 16", "default = 16\nserach = [1]", "'serach'", 8),
    "no title": ('title = "Mine"\n', "", "title", None),
    "unknown param": ("[dtype.fp32]", 'params = ["M", "Q"]\n[dtype.fp32]', "parameter 'Q'", 4),
    "param twice": ("[dtype.fp32]", 'params = ["M", "M"]\n[dtype.fp32]', "twice", 4),
    "bad expression": ('"TILE * TILE"', '"TILE *"', "cannot be read", 10),
    "power": ('"TILE * TILE"', '"TILE ** 2"', "** is not allowed", 10),
    "attribute": ('"TILE * TILE"', '"TILE.__class__"', "not allowed here", 10),
    "filter": ('"TILE * TILE"', '"TILE|string"', "not allowed here", 10),
    "call": ('"TILE * TILE"', '"range(TILE)"', "functions are", 10),
    "float result": ('"TILE * TILE"', '"TILE / 3"', "no whole number: divide with //", 10),
    "text result": ('"TILE * TILE"', '"DTYPE * 3"', "needs numbers", 10),
    "division by zero": ('"TILE * TILE"', '"TILE // (TILE - 16)"', "divides by zero", 10),
    "undefined name": ('"TILE * TILE"', '"TILE * TIEL"', "TIEL, which nothing defines", 10),
    "shape in derived": ('"TILE * TILE"', '"TILE * M"', "M, which nothing defines", 10),
    "undefined in grid": ("ceil_div(M, TILE) *", "ceil_div(MM, TILE) *", "MM, which nothing", 15),
    "zero default": ("default = 16", "default = 0", "TILE = 0", 7),
    "word default": ("default = 16", 'default = "x"', "needs choices", 7),
    "float default": ("default = 16", "default = 1.5", "default", 7),
    "missing dtype": ('[dtype.fp32]\nlayouts = ["nn"]\n', "", "[dtype.NAME]", None),
    "unknown dtype": ("[dtype.fp32]", "[dtype.fp31]", "unknown dtype 'fp31'", 4),
    "unknown layout": ('["nn"]', '["nx"]', "list out of nn", 5),
    "bad arch": ('["nn"]', '["nn"]\narch = "80"', "no architecture", 6),
    "lower-case tunable": ("[tunables.TILE]", "[tunables.tile]", "in capitals", 6),
    "lab's own name": ("[tunables.TILE]", "[tunables.VEC_A]", "no name of the lab", 6),
    "derived twice": ('THREADS = "TILE * TILE"', 'TILE = "3"', "new and written in capitals", 10),
    "no launch": ("[launch]", "[lunch]", "unknown key 'lunch'", 14),
    "no grid": ('grid  = ["ceil_div(M, TILE) * ceil_div(N, TILE)"]\n', "", "grid is needed", 14),
    "four axes": ('["TILE", "TILE"]', "[1, 1, 1, 1]", "one to three", 16),
    "entry": ("[launch]", '[launch]\nentry = "a b"', "no name of a C function", 15),
    "no body": (GOOD[GOOD.index("//%") :], "", "no CUDA", 17),
    "map without table": (
        "[dtype.fp32]", 'params = ["tma_a"]\n[dtype.fp32]', "[tensor_maps.a]", 4,
    ),
    "workspace without table": (
        "[dtype.fp32]", 'params = ["workspace"]\n[dtype.fp32]', "[workspace]", 4,
    ),
    "map over no workspace": (
        "[launch]",
        '[tensor_maps.a]\nbox = [1, 1]\ndims = [1, 1, 1]\nstrides = [16, 16]\n[launch]',
        "workspace needs", 14,
    ),
    "map without dims": (
        "[launch]", '[tensor_maps.a]\nbox = [1, 1]\nsource = "workspace"\n[launch]',
        "needs 3 dims", 14,
    ),
    "template syntax": ("//% include", "//% inclde", "unknown tag 'inclde'", 18),
    "template undefined": ("${bias}", "${biass}", "undefined name", 26),
    "template variable": ("${params}", "${params", "template", None),
    "no such include": ("lib/epilogue", "lib/eplogue", "lib/eplogue.cuh.j2", None),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_says_what_and_where(name: str, tmp_path: Path) -> None:
    old, new, words, line = BROKEN[name]
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(VariantError) as caught:
        through_render(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    if line is not None:
        assert caught.value.line == line, str(caught.value)


def test_errors_are_all_different(tmp_path: Path) -> None:
    texts = set()
    for name, (old, new, _, _) in BROKEN.items():
        path = write(tmp_path, GOOD.replace(old, new, 1))
        with pytest.raises(VariantError) as caught:
            through_render(path)
        texts.add((str(caught.value), name))
    assert len({text for text, _ in texts}) >= 30


def test_a_folder_of_rungs_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("[dtype", 'after = "two"\n[dtype', 1), "one.cu.j2")
    write(tmp_path, GOOD.replace("[dtype", 'after = "one"\n[dtype', 1), "two.cu.j2")
    found = Catalogue([tmp_path]).survey()
    assert set(found.broken) == {"one", "two"}
    assert "circle: one -> two -> one" in found.broken["one"].message


def test_one_broken_file_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, GOOD.replace("[dtype", 'after = "nobody"\n[dtype', 1), "astray.cu.j2")
    write(tmp_path, "no front matter", "broken.cu.j2")
    write(tmp_path, GOOD.replace("[dtype", 'after = "broken"\n[dtype', 1), "later.cu.j2")
    write(tmp_path, GOOD.replace("[dtype", 'after = "later"\n[dtype', 1), "last.cu.j2")
    write(tmp_path, GOOD, "sound.cu.j2")
    catalogue = Catalogue([tmp_path])
    found = catalogue.survey()
    assert set(found.broken) == {"astray", "broken", "later", "last"}
    assert "names no variant" in found.broken["astray"].message
    assert "cannot be read" in found.broken["later"].message
    with caplog.at_level("WARNING", logger="gemm_lab"):
        for _ in range(2):
            names = [v.name for v in catalogue.ladder()]
    assert names == [v.name for v in found.ladder]
    assert set(names) == {*Catalogue().names(), "sound"}
    assert len(caplog.records) == 4, "each is told once"
    with pytest.raises(VariantError):
        catalogue.get("broken")


def test_none_of_ours_is_broken() -> None:
    assert Catalogue().survey().broken == {}


def test_the_lab_s_names_are_taken(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "shared.cu.j2")
    with pytest.raises(VariantError, match="already a variant shared"):
        Catalogue([tmp_path])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match="cannot be read"):
        load_variant(tmp_path / "absent.cu.j2")
    (tmp_path / "binary.cu.j2").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(VariantError, match="not UTF-8"):
        load_variant(tmp_path / "binary.cu.j2")
    with pytest.raises(UsageError, match="no variant file"):
        Catalogue().get(str(tmp_path / "x.cu"))


def test_unknown_names_suggest_near_ones() -> None:
    with pytest.raises(UsageError, match="did you mean shared"):
        Catalogue().get("shard")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert load_variant(write(tmp_path, "\ufeff" + GOOD)).title == "Mine"


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cu.j2")
    with pytest.raises(VariantError, match="is no regular file"):
        load_variant(tmp_path / "pipe.cu.j2")


@pytest.mark.parametrize(
    "front", ["x = " + "[" * 5000 + "]" * 5000, f'[[rules]]\ncheck = "{"(" * 3000}1{")" * 3000}"']
)
def test_too_deep_a_front_matter_names_its_file(tmp_path: Path, front: str) -> None:
    with pytest.raises(VariantError, match="nests too deep") as caught:
        load_variant(write(tmp_path, GOOD.replace("[launch]", f"{front}\n[launch]")))
    assert "mine.cu.j2" in str(caught.value)


def test_a_template_that_calls_itself_names_its_file(tmp_path: Path) -> None:
    text = "<% macro f() %>${f()}<% endmacro %>${f()}\n"
    variant = load_variant(write(tmp_path, GOOD.replace("extern", text + "extern")))
    facts = Facts(
        dtype=dtype("fp32"), out=dtype("fp32").default_out, layout="nn",
        alignment=Alignment(
            vec_a=4, vec_b=4, vec_c=4, tma_a=True, tma_b=True, tma_c=True
        ),
        arch="sm_80",
    )  # fmt: skip
    spec = make_spec(variant, facts, config_of(variant, "fp32", {}))
    with pytest.raises(VariantError, match="RecursionError"):
        render(variant, spec)


def test_links_in_a_circle_are_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "one.cu.j2").symlink_to("two.cu.j2")
    (tmp_path / "two.cu.j2").symlink_to("one.cu.j2")
    write(tmp_path, GOOD)
    assert Catalogue([tmp_path, tmp_path]).get("mine").title == "Mine"


def test_a_name_that_is_no_text_can_be_rendered(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"mine\xff.cu.j2")
    path.write_text(GOOD, encoding="utf-8")
    assert load_variant(path).name == "mine\ufffd"
