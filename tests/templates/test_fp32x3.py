"""fp32 from three tf32 products: no spills, no warnings; its rules; the arithmetic of its split."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gemm_lab
from gemm_lab.core.dtypes import DTYPES, LAYOUTS
from gemm_lab.core.kernel import CompiledKernel, KernelSpec, RenderedKernel
from gemm_lab.core.problem import Alignment, Shape, Strides
from gemm_lab.errors import RuleError, UsageError
from gemm_lab.jit import compile_many
from gemm_lab.variants import Facts, Variant, config_of, load_variant, make_spec, plan, render
from gemm_lab.variants.paths import template_root

Float = NDArray[np.float32]

# Name -> layout, tunables, and facts that differ.
KERNELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    **{f"default-{lay}": (lay, {}, {}) for lay in LAYOUTS},
    **{f"cluster-{lay}": (lay, {"CLUSTER_M": 2}, {}) for lay in LAYOUTS},
    "promote-64": ("nt", {"PROMOTE": 64}, {}),
    "promote-128": ("nn", {"PROMOTE": 128, "TURNS": True}, {}),
    "turns": ("nt", {"TURNS": True}, {}),
    "deep": ("nt", {"BN": 64, "BK": 64, "PROMOTE": 64}, {}),
    "deep-transposed": ("tn", {"BN": 64, "BK": 64, "PROMOTE": 128}, {}),
    "narrow": ("nt", {"BN": 96, "CLUSTER_M": 2}, {}),
    "one-consumer": ("nt", {"BM": 64}, {}),
    "one-converter": ("tn", {"CONVERTERS": 1}, {}),
    "direct": ("nt", {"EPILOGUE_STORE": "direct"}, {}),
    "unaligned-c": ("nt", {}, {"vec_c": 1}),
    "epilogue": ("nt", {}, {"epilogue": "gelu", "bias": True}),
    "epilogue-nn": ("nn", {}, {"epilogue": "gelu", "bias": True}),
}


@pytest.fixture(scope="module")
def variant() -> Variant:
    return load_variant(template_root() / "fp32x3.cu.j2")


def spec_of(
    variant: Variant,
    layout: str,
    tunables: dict[str, Any],
    *,
    vec_c: int = 4,
    tma_a: bool = True,
    arch: str = "sm_90a",
    epilogue: str | None = None,
    bias: bool = False,
) -> KernelSpec:
    kind = DTYPES["fp32x3"]
    facts = Facts(
        dtype=kind,
        out=kind.default_out,
        layout=layout,  # type: ignore[arg-type]
        alignment=Alignment(
            vec_a=4, vec_b=4, vec_c=vec_c, tma_a=tma_a, tma_b=True, tma_c=vec_c == 4
        ),
        arch=arch,
        epilogue=epilogue,
        bias=bias,
    )
    return make_spec(variant, facts, config_of(variant, "fp32x3", tunables))


@pytest.fixture(scope="module")
def compiled(variant: Variant) -> dict[str, CompiledKernel]:
    rendered: dict[str, RenderedKernel] = {
        name: render(variant, spec_of(variant, layout, tunables, **facts))
        for name, (layout, tunables, facts) in KERNELS.items()
    }
    done = compile_many(rendered.values(), workers=2)
    for name, result in zip(rendered, done, strict=True):
        assert isinstance(result, CompiledKernel), f"{name}: {result}"
    return dict(zip(rendered, done, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", KERNELS)
def test_no_spills_and_no_warnings_of_ptxas(compiled: dict[str, CompiledKernel], name: str) -> None:
    kernel = compiled[name]
    resources = kernel.resources["fp32x3"]
    spills = (resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes)
    assert spills == (0, 0, 0)
    # C7508: setmaxnreg ignored; C7510, C7517 and their like: wgmma serialised, waits injected.
    assert not re.search(r"C7\d{3}|serializ", kernel.log)
    assert "k8.f32.tf32.tf32" in kernel.ptx
    assert "fence.proxy.async.shared::cta" in kernel.ptx


@pytest.mark.parametrize(
    ("layout", "tunables", "word"),
    [
        ("nt", {"BM": 192}, "64 rows each"),
        ("nt", {"BN": 40}, "32 columns"),
        ("nt", {"BN": 192}, "a consumer thread"),
        ("nt", {"BK": 64}, "a consumer thread"),
        ("nt", {"BK": 16}, "32 deep"),
        ("nt", {"PROMOTE": 48}, "whole stages"),
        ("nt", {"PROMOTE": 256}, "whole stages"),
        ("nt", {"CONVERTERS": 3}, "warps share"),
        ("nt", {"BM": 64, "TURNS": True}, "two consumers"),
        ("nt", {"CLUSTER_M": 3}, "one or two blocks"),
    ],
)
def test_rules_refuse(variant: Variant, layout: str, tunables: dict[str, Any], word: str) -> None:
    with pytest.raises(RuleError, match=word):
        spec_of(variant, layout, tunables)


def test_what_tma_cannot_read_is_refused(variant: Variant) -> None:
    with pytest.raises(RuleError, match="multiples of 16 bytes"):
        spec_of(variant, "nt", {}, tma_a=False)


def test_other_chips_are_refused(variant: Variant) -> None:
    with pytest.raises(UsageError, match="sm_90a") as told:
        spec_of(variant, "nt", {}, arch="sm_80")
    assert "one for sm_80 is taken" in (told.value.hint or "")


@pytest.mark.parametrize("shared", [False, True])
def test_copies_of_b_in_batches(shared: bool) -> None:
    """tn, B of every product or one for all, rows that are no whole 16 bytes."""
    rng = np.random.default_rng(2)
    a = rng.uniform(-1, 1, (3, 70, 66)).astype(np.float32)  # [batch][K][M]
    b = rng.uniform(-1, 1, (1 if shared else 3, 70, 41)).astype(np.float32)
    c = gemm_lab.matmul(
        a.transpose(0, 2, 1), b[0] if shared else b, variant="fp32x3", dtype="fp32x3",
        backend="emulator",
    )  # fmt: skip
    truth = a.transpose(0, 2, 1).astype(np.float64) @ b
    assert np.abs(c - truth).max() < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_maps_and_grid(variant: Variant, layout: str) -> None:
    """Boxes are 32 elements wide, nothing rounds on the way; nn forms C transposed, tn copies B."""
    spec = spec_of(variant, layout, {"BN": 96})
    m, n, k = 1000, 520, 264
    strides = Strides(lda=k if layout[0] == "n" else m, ldb=n if layout[1] == "n" else k, ldc=n)
    launch_plan = plan(variant, spec, Shape(m=m, n=n, k=k), strides, 132)
    maps = launch_plan.tensor_maps
    a_rows, b_rows = (96, 128) if layout == "nn" else (128, 96)
    assert maps["a"].box == (32, a_rows if layout[0] == "n" else 32, 1)
    assert maps["b"].box == (32, 32 if layout == "nn" else b_rows, 1)
    assert not any(tensor_map.round_tf32 for tensor_map in maps.values())
    *copies, launch = launch_plan.launches
    assert [c.entry for c in copies] == (["fp32x3_transpose"] if layout == "tn" else [])
    assert launch_plan.workspace_bytes == (4 * n * k if layout == "tn" else 0)
    if layout == "tn":
        assert (maps["b"].workspace_offset_bytes, maps["b"].dims) == (0, (k, n, 1))
    blocks = -(-m // a_rows) * -(-n // b_rows)
    assert launch.grid == (blocks, 1, 1)
    assert launch.smem_bytes <= 227 * 1024


def cut(x: Float) -> Float:
    """What the tensor core sees of an operand."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def low_part(x: Float) -> Float:
    """As lib/hopper_split makes it, and as the tensor core then sees it."""
    lo = x - cut(x)
    return cut((lo.view(np.uint32) + np.uint32(0x1000)).view(np.float32))


def test_the_split_keeps_22_bits() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 100_000).astype(np.float32)
    x *= np.exp2(rng.integers(-60, 60, x.size)).astype(np.float32)
    x[:2] = np.finfo(np.float32).max, np.finfo(np.float32).tiny
    lost = np.abs(cut(x).astype(np.float64) + low_part(x) - x)
    assert (lost <= 2.0**-22 * np.abs(x)).all()
    edges = np.array([0.0, -0.0, 1.0, -1.0, 1 + 2.0**-20], np.float32)
    assert (cut(edges).astype(np.float64) + low_part(edges) == edges).all(), "few bits: exact"


def toward_zero(x: NDArray[np.float64]) -> Float:
    near = x.astype(np.float32)
    return np.where(
        np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, np.float32(0)), near
    )


def simulated(a: Float, b: Float, promote: int) -> Float:
    """The kernel on a tensor core that truncates its accumulator after every 8 of K."""
    operands = {"hi": (cut(a), cut(b)), "lo": (low_part(a), low_part(b))}
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    acc = np.zeros_like(total)
    for k_tile in range(0, a.shape[1], 32):
        for left, right in (("hi", "lo"), ("lo", "hi"), ("hi", "hi")):
            for k in range(k_tile, k_tile + 32, 8):
                x, y = operands[left][0][:, k : k + 8], operands[right][1][k : k + 8]
                acc = toward_zero(acc + x.astype(np.float64) @ y.astype(np.float64))
        if (k_tile + 32) % promote == 0:
            total, acc = total + acc, np.zeros_like(acc)
    return total + acc


@pytest.mark.parametrize("magnitudes", [0, 10])
def test_promotion_beats_a_chain_in_fp32(magnitudes: int) -> None:
    rng = np.random.default_rng(1)
    a, b = (
        (rng.uniform(-1, 1, s) * np.exp2(rng.integers(-magnitudes, magnitudes + 1, s))).astype(
            np.float32
        )
        for s in ((16, 2048), (2048, 16))
    )
    truth = a.astype(np.float64) @ b
    chain = np.zeros(truth.shape, np.float32)
    for k in range(a.shape[1]):
        exact = chain + a[:, k : k + 1].astype(np.float64) * b[k : k + 1]
        chain = exact.astype(np.float32)

    def error(c: Float) -> float:
        return float(np.linalg.norm(c - truth) / np.linalg.norm(truth))

    assert error(simulated(a, b, 32)) < 0.5 * error(chain)
    assert error(simulated(a, b, 4096)) > 2 * error(chain)  # never promoted
