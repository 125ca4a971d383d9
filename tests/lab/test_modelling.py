"""[model] tables: read, checked, evaluated, for every variant that has one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from gemm_lab.core.dtypes import dtype
from gemm_lab.core.model_keys import MODEL_KEYS, MODEL_OPERAND_KEYS, MODEL_OPERANDS, MODEL_WORDS
from gemm_lab.core.problem import GemmProblem, Layout, Shape
from gemm_lab.errors import CompileError, UsageError, VariantError
from gemm_lab.lab.modelling import variant_shape
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.model import KernelShape, SharedOperand, find_device, load_devices, predict
from gemm_lab.model.kernel_shape import Staging, Unit
from gemm_lab.variants import Catalogue, Variant

RESOURCES = {"registers_per_thread", "static_smem_bytes", "dynamic_smem_bytes"}
MODELLED = [v for v in Catalogue().ladder() if v.model]
HEAD = """/*---
title = "t"
idea = "i"
[dtype.fp32]
[tunables.BM]
default = 32
doc = "rows"
[launch]
grid = ["ceil_div(M, BM)", "ceil_div(N, BM)", 1]
block = ["BM", "BM", 1]
static_smem = "BM * 4"
"""
BODY = """---*/
extern "C" __global__ void ${entry}(${params}) { if (M == 0) C[0] = 0; }
"""


def product(name: str = "fp32", layout: Layout = "nn", size: int = 1024) -> GemmProblem:
    arithmetic = dtype(name)
    return GemmProblem(
        shape=Shape(m=size, n=size, k=size),
        dtype=arithmetic,
        out=arithmetic.out(None),
        layout=layout,
    )


def written(folder: Path, table: str) -> Variant:
    path = folder / "mine.cu.j2"
    path.write_text(HEAD + table + BODY)
    return Workbench().variant(str(path))


def test_the_names_are_those_of_the_model() -> None:
    assert {f.name for f in fields(KernelShape)} - RESOURCES == set(MODEL_KEYS)
    assert {f.name for f in fields(SharedOperand)} == set(MODEL_OPERAND_KEYS)
    assert set(MODEL_OPERANDS) <= set(MODEL_KEYS)
    assert MODEL_WORDS["unit"] == get_args(Unit)
    assert MODEL_WORDS["staging"] == get_args(Staging)


@pytest.mark.parametrize("variant", MODELLED, ids=lambda v: v.name)
def test_every_table_gives_a_shape_that_can_be_predicted(variant: Variant) -> None:
    bench = Workbench()
    h200 = find_device("h200", load_devices())
    for number, (name, support) in enumerate(variant.dtypes.items()):
        for layout in support.layouts if number == 0 else support.layouts[:1]:
            problem = product(name, layout)
            arch = choose_arch(support.arch, None, "sm_90")
            shape = variant_shape(bench, variant, problem=problem, tunables={}, arch=arch)
            assert shape.registers_per_thread > 0
            found = predict(h200, shape, problem)
            assert found.time_ms > 0
            assert found.share_of_peak <= 1


def test_facts_follow_the_tunables() -> None:
    bench = Workbench()
    problem = product()
    shape = variant_shape(
        bench, bench.variant("shared"), problem=problem, tunables={"BLOCK_SIZE": 8},
        arch="sm_80", smem_pad_bytes=1000,
    )  # fmt: skip
    assert (shape.block_m, shape.threads, shape.lanes_m, shape.lanes_n) == (8, 64, 4, 8)
    assert shape.staging == "registers"
    assert shape.shared_a == SharedOperand(k_contiguous=True, vector_elements=4)
    assert shape.static_smem_bytes == 2 * 64 * 4
    assert shape.dynamic_smem_bytes == 1000


def test_without_a_compiler_shared_memory_is_what_the_file_declares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Workbench()

    def none(*_: object) -> None:
        raise CompileError("NVRTC is not installed")

    monkeypatch.setattr(bench, "compile", none)
    shape = variant_shape(
        bench, bench.variant("shared"), problem=product(), tunables={}, arch="sm_70"
    )
    assert (shape.registers_per_thread, shape.static_smem_bytes) == (0, 2 * 1024 * 4)


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        ("[model]\nblok_m = 'BM'\n", 13, "unknown key 'blok_m'"),
        ("[model]\nunit = 'cuda_core'\nblock_m = 'BN'\n", 14, "reads BN, which nothing defines"),
        ("[model]\nblock_m = 'BM ** 2'\n", 13, "is not allowed"),
        ("[model]\nblock_m = 1.5\n", 13, "must be a text or a whole number"),
        ("[model]\nshared_a = { wide = 4 }\n", 13, "unknown key 'wide'"),
        ("[model]\nstaging = 'tam'\n", 13, "reads tam, which nothing defines"),
        ("model = 3\n", 12, "TOML|unknown key|table"),
    ],
)
def test_a_faulty_table_is_told_with_its_line(
    tmp_path: Path, table: str, line: int, message: str
) -> None:
    with pytest.raises(VariantError, match=message) as told:
        written(tmp_path, table)
    assert told.value.line == line


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[model]\nunit = 'cuda_core'\n", "the model needs block_m, block_n, block_k"),
        ("[model]\nunit='tensor'\nblock_m='BM'\nblock_n='BM'\nblock_k='BM // 64'\n", "too small"),
        ("[model]\nunit='cuda_core'\nblock_m='BM // 0'\n", "divides by zero"),
        (
            "[model]\nunit='cuda_core'\nblock_m=1\nblock_n=1\nblock_k=1\nlanes_m=3\n",
            "a warp has 32 lanes",
        ),
    ],
)
def test_facts_that_make_no_kernel(tmp_path: Path, table: str, message: str) -> None:
    variant = written(tmp_path, table)
    with pytest.raises(VariantError, match=message) as told:
        variant_shape(Workbench(), variant, problem=product(), tunables={}, arch="sm_80")
    assert told.value.file.endswith("mine.cu.j2")
    assert told.value.line is not None


def test_a_variant_without_a_table_says_what_to_add(tmp_path: Path) -> None:
    variant = written(tmp_path, "")
    with pytest.raises(UsageError, match="does not say how the model shall see it") as told:
        variant_shape(Workbench(), variant, problem=product(), tunables={}, arch="sm_80")
    assert "[model]" in (told.value.hint or "")


@pytest.mark.parametrize("name", ["async_copy", "wgmma"])
def test_the_model_sees_the_launch_that_does_the_work(name: str) -> None:
    """Not the copies of operands before it, nor the sums of pieces behind it."""
    variant = Catalogue().get(name)
    seen = [
        variant_shape(
            Workbench(),
            variant,
            problem=product("tf32", "tn"),
            tunables={"SPLIT_K": pieces},
            arch=choose_arch(variant.support("tf32").arch, None, None),
        )
        for pieces in (1, 2)
    ]
    for found in seen:
        assert found.dynamic_smem_bytes > 16384
        assert found.registers_per_thread is not None
        assert found.registers_per_thread > 64
