"""Automatic choice by the rule: any legal product gets a kernel that can do it."""

from __future__ import annotations

import ast
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from choice_helpers import A100, H200, HEAD, CardBench, choose, question

import gemm_lab
import gemm_lab.lab
from gemm_lab.core.dtypes import DTYPES, LAYOUTS, Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.errors import CompileError, GemmLabError, UsageError
from gemm_lab.gpu.array_view import ArrayView
from gemm_lab.lab.candidates import checked_spec
from gemm_lab.lab.choice import Basis, Choice
from gemm_lab.lab.choice_prospects import _tunables_behind
from gemm_lab.lab.choice_questions import question_of_arrays
from gemm_lab.lab.choice_records import Records
from gemm_lab.lab.chooser import Chooser, RefusedError
from gemm_lab.lab.operands import matrix
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Catalogue

BENCH = Workbench()
CHOOSER = Chooser(BENCH, Records())
# Compiles, and no emulator of ours knows it.
UNKNOWN = 'asm volatile("{ .reg .b64 p; createpolicy.fractional.L2::evict_last.b64 p; }");'
CARDS = {"h200": H200, "a100": A100, "unknown": None}
SHAPES = (
    (4096, 4096, 4096), (64, 4096, 16384), (1, 1, 1), (7, 4095, 33), (128, 128, 65536),
    (0, 5, 3), (5, 3, 0), (1, 8192, 8192), (33, 65, 129, 12),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMM_LAB_RESULTS", "")


def checks(choice: Choice) -> None:
    """Every alternative keeps its rules for the operands as they would lie."""
    q = choice.question
    for a in choice.alternatives:
        variant = BENCH.variant(a.variant)
        problem = q.problem(a.layout)
        spec, _ = checked_spec(Request(variant=variant, config=a.config), problem, a.arch)
        assert spec.arch == a.arch
        assert set(a.config) == set(variant.tunables)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_product_that_some_variant_does_gets_one(dtype: str, card: str) -> None:
    known = CARDS[card]
    for layout in LAYOUTS:
        for shape in SHAPES:
            asked = question(
                shape, dtype=dtype, layout=layout, card=known, arch=None if known else "sm_86",
                device=None if known else "Card of Tomorrow",
            )  # fmt: skip
            able = [
                v for v in Catalogue().ladder()
                if dtype in v.dtypes and layout in v.dtypes[dtype].layouts
                and (v.dtypes[dtype].arch in ("sm_70", "sm_80") or known is H200)
            ]  # fmt: skip
            if not able:
                with pytest.raises(UsageError, match="no variant does"):
                    CHOOSER.choose(asked)
                continue
            choice = CHOOSER.choose(asked)
            checks(choice)
            assert choice.reason
            assert json.dumps(choice.to_dict(), allow_nan=False)


def test_copies_that_nobody_can_price_come_last() -> None:
    asked = question((4095, 4095, 4095), card=None, arch="sm_90a", device="Card of Tomorrow")
    choice = choose(asked)
    copies = [bool(a.copies) for a in choice.alternatives]
    assert copies == sorted(copies)
    assert not choice.chosen.copies
    assert any(copies), "the highest rung needs aligned rows and comes last"
    assert all(a.copies_ms is None for a in choice.alternatives)


@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32"])
def test_copies_count_by_their_time(dtype: str, layout: Layout) -> None:
    """Large: the tensor cores are worth it. Small: the copies would take longer than the rest."""
    large = choose(question((4095, 4097, 4093), dtype=dtype, layout=layout))
    assert large.chosen.copies == ("a", "b")
    assert large.chosen.copies_ms
    without = [a for a in large.alternatives if not a.copies]
    assert large.chosen.estimated_ms < min(a.estimated_ms or 9e9 for a in without)
    assert "a, b copied first, " in large.reason
    assert large.to_dict()["alternatives"][0]["copies_ms"] == large.chosen.copies_ms
    assert not choose(question((129, 129, 129), dtype=dtype, layout=layout)).chosen.copies
    aligned = choose(question((4096, 4096, 4096), dtype=dtype, layout=layout)).chosen
    assert (aligned.copies, aligned.copies_ms) == ((), None)
    assert aligned.estimated_ms < large.chosen.estimated_ms - 0.9 * large.chosen.copies_ms


def test_layouts_done_by_a_launch_of_the_kernel_itself_are_no_copies() -> None:
    """A transposing launch is part of the kernel's time, and it is worth it."""
    choice = choose(question((4096, 4096, 4096), dtype="tf32", layout="nn"))
    assert BENCH.variant(choice.variant).dtypes["tf32"].arch == H200.arch
    direct = choose(question((4096, 4096, 4096), dtype="tf32", layout="nt"))
    assert direct.chosen.estimated_ms < choice.chosen.estimated_ms
    assert not choice.chosen.copies


def test_a_large_product_takes_the_highest_rung() -> None:
    ladder = [v for v in Catalogue().ladder() if "bf16" in v.dtypes]
    by_name = {v.name: v for v in ladder}
    exact = [v.name for v in ladder if v.dtypes["bf16"].arch == H200.arch]
    choice = choose(question((8192, 8192, 8192)))
    assert choice.variant in exact
    assert choice.chosen.basis is Basis.RULE
    assert choice.chosen.estimated_ms
    assert by_name[choice.variant].dtypes["bf16"].arch == "sm_90a"


@pytest.mark.parametrize("shape", [(64, 64, 65536), (128, 256, 32768)])
@pytest.mark.parametrize(("dtype", "layout"), [("bf16", "nn"), ("fp32", "nn"), ("int8", "nt")])
def test_few_tiles_and_a_long_sum_are_split(
    shape: tuple[int, ...], dtype: str, layout: Layout
) -> None:
    choice = choose(question(shape, dtype=dtype, layout=layout, card=A100))
    variant = BENCH.variant(choice.variant)
    names = _tunables_behind(variant, "split_k")
    assert any(int(choice.config[n]) > 1 for n in names), str(choice.config)


def test_a_small_product_takes_small_tiles() -> None:
    def tile(shape: tuple[int, ...]) -> int:
        choice = choose(question(shape, dtype="fp32", layout="nn", card=A100))
        names = _tunables_behind(BENCH.variant(choice.variant), "block_m", "block_n")
        product = 1
        for name in names:
            product *= int(choice.config[name])
        return product

    assert tile((256, 256, 256)) < tile((8192, 8192, 8192))


def test_tunables_of_the_caller_are_kept() -> None:
    asked = question((4096, 4096, 4096), card=A100, tunables={"BM": "64", "STAGES": 2})
    for a in choose(asked).alternatives:
        assert (a.config["BM"], a.config["STAGES"]) == (64, 2)
    with pytest.raises(UsageError, match="no variant for bf16 has the tunables NOTHING"):
        choose(question((64, 64, 64), tunables={"NOTHING": 1}))
    with pytest.raises(UsageError, match="cannot be used"):
        choose(question((64, 64, 64), tunables={"BM": "wide"}))


def test_answers_are_kept_and_new_ones_take_milliseconds() -> None:
    first = CHOOSER.choose(question((1000, 1000, 1000)))
    assert CHOOSER.choose(question((1000, 1000, 1000))) is first
    taken = []
    for k in range(512, 1024, 64):
        asked = question((512, 768, k))
        start = time.process_time()
        CHOOSER.choose(asked)
        taken.append(time.process_time() - start)
    assert sorted(taken)[len(taken) // 2] < 0.1


def test_no_variant_is_named_in_the_code() -> None:
    names = set(Catalogue().names())
    folder = Path(gemm_lab.lab.__file__).parent
    files = [*folder.glob("choice*.py"), *folder.glob("choose*.py")]
    assert len(files) > 5
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Constant) and node.value in names), path


# ---- arrays ----


def device_view(shape: tuple[int, int], ld: int, *, turned: bool = False) -> ArrayView:
    strides = (1, ld) if turned else (ld, 1)
    return matrix(
        ArrayView(
            address=1 << 20, shape=shape, strides=strides, scalar="bf16", itemsize=2, device=0,
            owner=None,
        ),
        "a",
    )  # fmt: skip


@pytest.mark.parametrize("ld", [512, 513])
@pytest.mark.parametrize("turned", [False, True])
def test_layout_and_alignment_come_from_the_arrays(ld: int, turned: bool) -> None:
    bf16 = dtype_named("bf16")
    asked = question_of_arrays(
        GemmProblem(shape=Shape(m=256, n=256, k=256), dtype=bf16, out=bf16.default_out),
        device_view((256, 256), ld), device_view((256, 256), ld, turned=turned),
        device_view((256, 256), ld),
        arch=H200.arch, device=H200.name, sm_count=H200.sm_count, emulated=False, tunables={},
    )  # fmt: skip
    first = asked.arrangements[0]
    assert first.layout == ("nt" if turned else "nn")
    assert first.alignment.tma_a is (ld % 8 == 0)
    assert [bool(x.copied) for x in asked.arrangements] == [False, True, True, True]
    choice = choose(asked)
    assert choice.layout == first.layout
    assert not choice.chosen.copies


# ---- on the emulator, and what does not work ----


def variant(folder: Path, name: str, body: str) -> Path:
    text = f'extern "C" __global__ void ${{entry}}(${{params}}) {{ {body} }}\n'
    (folder / f"{name}.cu.j2").write_text(HEAD + text)
    return folder


def halves() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    return (
        generator.uniform(-1, 1, (19, 23)).astype(np.float32),
        generator.uniform(-1, 1, (23, 29)).astype(np.float32),
    )


@pytest.mark.parametrize("dtype", ["fp32", "tf32"])
def test_the_emulator_takes_what_is_cheap(dtype: str) -> None:
    a, b = halves()
    c = gemm_lab.matmul(a, b, dtype=dtype, backend="emulator")
    assert np.allclose(c, a @ b, rtol=0, atol=1e-5 if dtype == "fp32" else 0.02)
    choice = gemm_lab.explain_choice(shape=(19, 29, 23), dtype=dtype, backend="emulator")
    assert choice.chosen.basis is Basis.LADDER
    depths = [v.name for v in Catalogue().ladder() if dtype in v.dtypes]
    assert choice.variant == depths[0]


@pytest.mark.parametrize("body", ["no_such_thing();", UNKNOWN])
def test_a_kernel_that_cannot_be_made_is_passed_over(
    tmp_path: Path, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Workbench([variant(tmp_path, "a_broken", body)])
    a, b = halves()
    with caplog.at_level(logging.INFO, logger="gemm_lab"):
        for _ in range(2):
            c = gemm_lab.matmul(a, b, backend="emulator", workbench=bench)
            assert np.allclose(c, a @ b, rtol=0, atol=1e-5)
    assert sum("a_broken" in r.message for r in caplog.records) == 1
    choice = gemm_lab.explain_choice(shape=(8, 8, 8), backend="emulator", workbench=bench)
    assert choice.variant != "a_broken"
    assert [p.variant for p in choice.passed_over] == ["a_broken"]
    told = gemm_lab.run(shape=8, backend="emulator", workbench=bench)
    assert told.verified
    assert told.variant == choice.variant


def test_run_tells_what_was_passed_over(tmp_path: Path) -> None:
    bench = Workbench([variant(tmp_path, "a_broken", "no_such_thing();")])
    told = gemm_lab.run(shape=8, backend="emulator", workbench=bench)
    assert told.verified
    assert any(w.startswith("a_broken  was passed over") or "a_broken" in w for w in told.warnings)


def test_when_nothing_works_the_first_error_is_raised_and_the_next_call_tries_anew() -> None:
    chooser = Chooser(BENCH, Records())
    asked = question((64, 64, 64), card=A100, dtype="fp16", layout="nn")
    tried: list[str] = []

    def attempt(chosen: Any) -> None:
        tried.append(chosen.variant)
        raise RefusedError(CompileError(f"{len(tried)}"))

    for _ in range(2):
        with pytest.raises(CompileError, match=r"^1$"):
            chooser.first_that_works(asked, attempt)
        names = {v.name for v in Catalogue().ladder() if "fp16" in v.dtypes}
        assert set(tried) == {n for n in names if BENCH.variant(n).dtypes["fp16"].arch != "sm_90a"}
        tried.clear()


def test_other_errors_go_up() -> None:
    def attempt(chosen: Any) -> None:
        raise GemmLabError("a launch broke off")

    with pytest.raises(GemmLabError, match="a launch broke off"):
        CHOOSER.first_that_works(question((64, 64, 64)), attempt)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_road_of_a_card(dtype: str) -> None:
    bench = CardBench(A100)
    kind = dtype_named(dtype).storage.numpy()
    a, b = (x.astype(kind) for x in halves())
    wide = a.astype(np.float64) @ b.astype(np.float64)
    for other in (b, b.T.copy().T):
        c = gemm_lab.matmul(a, other, backend="gpu", workbench=bench)
        assert np.allclose(c.astype(np.float64), wide, rtol=0.01, atol=0.02)


def test_a_users_variant_takes_part(tmp_path: Path) -> None:
    bench = Workbench([variant(tmp_path, "mine", "")])
    asked = question((64, 64, 64), dtype="fp32", layout="nn", card=A100)
    assert "mine" in {a.variant for a in choose(asked, bench=bench).alternatives}


def test_explain_refuses_what_is_not_there() -> None:
    with pytest.raises(UsageError, match="unknown GPU"):
        gemm_lab.explain_choice(gpu="no such card")
    with pytest.raises(UsageError, match="no variant does fp8_e4m3 on sm_80"):
        gemm_lab.explain_choice(gpu="A100 SXM", dtype="fp8_e4m3")
    with pytest.raises(UsageError, match="unknown dtype"):
        gemm_lab.explain_choice(gpu="H200", dtype="fp64")
