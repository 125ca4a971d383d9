"""Rendering: deterministic, golden, and free of what would differ between two machines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gemm_lab.core.dtypes import dtype
from gemm_lab.core.problem import Alignment, Shape
from gemm_lab.errors import UsageError
from gemm_lab.variants import Catalogue, Facts, Variant, config_of, make_spec, render

GOLDEN = Path(__file__).parent / "golden"
CATALOGUE = Catalogue()
CASES = [(variant, name) for variant in CATALOGUE.ladder() for name in variant.dtypes]
FIRST = [(variant, next(iter(variant.dtypes))) for variant in CATALOGUE.ladder()]


def source(variant: Variant, name: str, **more: object) -> str:
    support, found = variant.support(name), dtype(name)
    wide = 16 // found.storage.size_bytes
    values: dict[str, object] = {
        "layout": support.layouts[0],
        "alignment": Alignment(
            vec_a=wide, vec_b=wide, vec_c=16 // found.default_out.size_bytes,
            tma_a=True, tma_b=True, tma_c=True,
        ),
        **more,
    }  # fmt: skip
    facts = Facts(dtype=found, out=found.default_out, arch=support.arch, **values)  # type: ignore[arg-type]
    return render(variant, make_spec(variant, facts, config_of(variant, name, {}))).source


@pytest.mark.parametrize(("variant", "name"), FIRST, ids=lambda x: getattr(x, "name", x))
def test_golden(variant: Variant, name: str) -> None:
    """A change of a template is seen in review; GEMM_LAB_UPDATE_GOLDEN=1 writes it anew."""
    text = source(variant, name)
    path = GOLDEN / f"{variant.name}.{name}.cu"
    if os.environ.get("GEMM_LAB_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), "run once with GEMM_LAB_UPDATE_GOLDEN=1"
    assert text == path.read_text()


def test_every_golden_file_has_its_variant() -> None:
    written = {path.name for path in GOLDEN.glob("*.cu")}
    assert written == {f"{variant.name}.{name}.cu" for variant, name in FIRST}


@pytest.mark.parametrize(("variant", "name"), CASES, ids=lambda x: getattr(x, "name", x))
def test_text_is_plain(variant: Variant, name: str) -> None:
    text = source(variant, name)
    assert not re.search(r"\$\{|<%|//%|//#", text)
    assert str(Path.home()) not in text
    assert str(variant.path.parent) not in text
    assert text.endswith("}\n")


def test_another_process_and_hash_seed_render_the_same() -> None:
    program = (
        "from gemm_lab.lab.api import kernel_spec, source\n"
        "from gemm_lab.lab.workbench import Workbench\n"
        "b = Workbench(); v = b.variant('shared')\n"
        "print(source(b, v, kernel_spec(b, v, dtype='fp32', arch='sm_80', tunables={})))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_specialising_bakes_the_sizes() -> None:
    text = source(CATALOGUE.get("naive"), "fp32", specialize=Shape(m=3, n=5, k=7))
    assert "constexpr int M = 3;" in text
    assert "naive(int, int, int, int batch" in text


def test_a_bias_travels_behind_the_parameters() -> None:
    text = source(CATALOGUE.get("naive"), "fp32", bias=True, epilogue="relu")
    assert "long long stride_c, const out_t* __restrict__ bias)" in text
    assert "x += bias;" in text


def test_the_epilogue_needs_what_it_reads() -> None:
    with pytest.raises(UsageError, match="no bias was given"):
        source(CATALOGUE.get("naive"), "fp32", epilogue="x * bias")


def test_a_kernel_without_the_lib_takes_no_epilogue(tmp_path: Path) -> None:
    text = CATALOGUE.get("naive").text.replace('//% include "lib/epilogue.cuh.j2"\n', "")
    text = text.replace("store_c(C, ldc, row, col, alpha, acc, beta, ${bias});", "C[0] = acc;")
    path = tmp_path / "bare.cu.j2"
    path.write_text(text)
    bare = Catalogue().get(str(path))
    assert "C[0] = acc" in source(bare, "fp32")
    with pytest.raises(UsageError, match="does not store through lib/epilogue"):
        source(bare, "fp32", epilogue="relu")
