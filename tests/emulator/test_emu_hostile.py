"""Broken and malicious PTX: an EmulatorFault each, never a traceback, never a hang."""

# ruff: noqa: E501 - CUDA and PTX one-liners read better whole

from __future__ import annotations

import random

import numpy as np
import pytest
from emulator_helpers import ptx_kernel, ptx_of
from emulator_kernels import SHARED

from gemm_lab.emulator import EmulatorFault, Memory, Options, launch, load_ptx

MUTATIONS = 1000


def try_ptx(text: str, arrays: list[np.ndarray]) -> str:
    """Load and run on a small problem; the fault's kind or "ran"."""
    memory = Memory(16 << 20)
    try:
        module = load_ptx(text)
        entry = next(iter(module.entries), "k")
        buffers = [memory.upload(array) for array in arrays]
        launch(
            module,
            entry,
            grid=(2, 1),
            block=(32, 32),
            args=[33, 20, 9, *buffers],
            memory=memory,
            options=Options(max_instructions=3000),
        )
    except EmulatorFault as fault:
        return fault.kind if str(fault) else "silent"
    return "ran"


@pytest.fixture(scope="module")
def arrays():
    return [np.ones((40, 40), np.float32) for _ in range(3)]


@pytest.fixture(scope="module")
def source():
    return ptx_of(SHARED.replace("T = 32", "T = 32").replace("#pragma unroll", "#pragma unroll 2"))


def mutate(text: str, rng: random.Random) -> str:
    """One to three small damages: bytes, tokens, lines."""
    for _ in range(rng.randint(1, 3)):
        choice = rng.randrange(7)
        at = rng.randrange(len(text))
        if choice == 0:
            text = text[:at] + chr(rng.randrange(32, 127)) + text[at + 1 :]
        elif choice == 1:
            text = text[:at] + text[at + rng.randint(1, 40) :]
        elif choice == 2:
            lines = text.split("\n")
            del lines[rng.randrange(len(lines))]
            text = "\n".join(lines)
        elif choice == 3:
            lines = text.split("\n")
            one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[one], lines[other] = lines[other], lines[one]
            text = "\n".join(lines)
        elif choice == 4:
            words = [
                "%r1",
                "%rd3",
                "%f9",
                "%p1",
                "-1",
                "4294967296",
                "0f7FC00000",
                "$L__BB0_3",
                "_",
                "{",
                "]",
                "99999999999",
            ]
            text = text[:at] + rng.choice(words) + text[at:]
        elif choice == 5:
            swaps = [
                ("s32", "f64"),
                ("add", "sub"),
                ("f32", "u8"),
                ("shared", "global"),
                ("lt", "ge"),
                (".u64", ".u32"),
                ("ld", "st"),
                ("bar.sync", "bar.arrive"),
                ("%r", "%rd"),
                ("4", "3"),
            ]
            old, new = rng.choice(swaps)
            spots = [i for i in range(len(text)) if text.startswith(old, i)]
            if spots:
                spot = rng.choice(spots)
                text = text[:spot] + new + text[spot + len(old) :]
        else:
            text = (
                text[:at] + chr(rng.choice([0, 9, 10, 34, 39, 92, 123, 125, 255, 8232])) + text[at:]
            )
    return text


def test_a_thousand_mutations(source, arrays):
    rng = random.Random(20240607)
    kinds: dict[str, int] = {}
    for _ in range(MUTATIONS):
        kind = try_ptx(mutate(source, rng), arrays)
        kinds[kind] = kinds.get(kind, 0) + 1
    assert kinds["ran"] > 10
    assert sum(kinds.values()) - kinds["ran"] > 100


def test_truncations(source, arrays):
    for cut in range(0, len(source), 97):
        try_ptx(source[:cut], arrays)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no ptx at all",
        "\0" * 100,
        "{" * 10000,
        "." * 10000,
        ".version 8.0\n.target sm_80\n" + ".entry k() {" + "{" * 5000,
        ".version 8.0\n.target sm_80\n.entry k(" + "(" * 3000,
        ".version 8.0\n.target sm_80\n.entry k() { .reg .b32 %r<99999999999999>; mov.u32 %r9999999, 1; ret; }",
        ".version 8.0\n.target sm_80\n.global .b8 huge[99999999999999];",
        ".version 8.0\n.target sm_80\n.entry k() { .shared .b8 s[999999999]; mov.u32 %r1, s; ret; }",
        ".version 8.0\n.target sm_80\n.entry k() { .local .align 8 .b8 l[999999999]; ret; }",
        '.version 8.0\n.target sm_80\n.file 1 "' + "x" * 100000,
        "/*" * 10000,
    ],
)
def test_strange_texts(text, arrays):
    try_ptx(text, arrays)


def test_names_never_become_code(arrays):
    nasty = "a$__import__$os$"
    body = f".reg .b32 {nasty};\nmov.u32 {nasty}, 1;\nbra lambda;\nlambda: mov.u32 {nasty}, %tid.x;"
    module = load_ptx(ptx_kernel(body))
    launch(module, "k", grid=(1,), block=(32,), args=[0], memory=Memory(1 << 20))
    for text in module.code("k", watch=False, exact_fma=False).text.values():
        assert "import" not in text
        assert "lambda" not in text
    for name in ("x'); import os; (", "%r1; import os", "__builtins__"):
        with pytest.raises(EmulatorFault):
            load_ptx(ptx_kernel(f"mov.u32 {name}, 1;"))


def test_deep_calls_do_not_explode():
    functions = ".func f0() { ret; }\n" + "".join(
        f".func f{i}() {{ call f{i - 1}; call f{i - 1}; call f{i - 1}; call f{i - 1}; ret; }}\n"
        for i in range(1, 14)
    )
    text = ptx_kernel("call f13;").replace(".visible", functions + ".visible")
    with pytest.raises(EmulatorFault, match="instructions"):
        load_ptx(text)
