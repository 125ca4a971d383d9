"""matmul, run and verification on the emulator, over NumPy arrays."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_tunables import small_requests

import gemm_lab
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator import PtxError
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.errors import ResourceError, RuleError, UsageError
from gemm_lab.lab.findings import watching
from gemm_lab.lab.inputs import decode, uniform
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.trial import make_executor, make_trial
from gemm_lab.lab.verify import Matrices, Verdict, verify
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.variants import Catalogue

ARCH = "sm_80"
PRIMES = (1, 2, 3, 5, 7, 11, 17, 23, 29, 37, 41, 67)
# One table, so that few kernels are compiled: NVRTC takes longer than a small product.
SHAPES = ((37, 41, 29), (64, 72, 40), (7, 67, 17), (67, 1, 5), (1, 23, 66), (130, 11, 3))
# Epilogue, and whether a bias goes with it.
ENDS = ((None, False), (None, False), ("relu(x)", True), ("where(x > row - col, x, c / 4)", False))
QUICK = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Rung:
    """A variant in one arithmetic."""

    name: str
    dtype: str


@functools.cache
def small_config(name: str, dtype: str) -> dict[str, Any] | None:
    """Tunables with small tiles; None when the emulator does not run the variant."""
    variant = Catalogue().get(name)
    backend = EmulatorBackend(arch=choose_arch(variant.support(dtype).arch, None, None))
    try:
        (request,) = small_requests(variant, dtype, backend, most=1)
    except PtxError:
        return None
    return dict(request.config)


RUNGS = [
    Rung(v.name, d)
    for v in Catalogue().ladder()
    for d, support in v.dtypes.items()
    if not support.arch[-1].isalpha() and "fp32" in v.dtypes
]
IDS = [f"{rung.name}-{rung.dtype}" for rung in RUNGS]


def need(rung: Rung) -> dict[str, Any]:
    """Small tunables of a rung that the emulator runs; else the test is skipped."""
    config = small_config(rung.name, rung.dtype)
    if config is None:
        pytest.skip(f"{rung.name} in {rung.dtype}: the emulator lacks an instruction")
    return config


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    return uniform(shape, dtype_named(dtype).storage, seed=seed)


def verdict(
    c: Any, a: Any, b: Any, *, before: Any = None, bias: Any = None, **question: Any
) -> Verdict:
    """The lab's own verification of a result; operands [m, k] or [batch, m, k]."""
    arithmetic = dtype_named(question.pop("dtype", "fp32"))
    out = arithmetic.out(question.pop("out_dtype", None))
    a, b, c = (x if x.ndim == 3 else x[None] for x in (a, b, c))
    batch = max(a.shape[0], b.shape[0])
    a, b = (np.broadcast_to(x, (batch, *x.shape[1:])) for x in (a, b))
    problem = GemmProblem(
        shape=Shape(m=a.shape[1], n=b.shape[2], k=a.shape[2], batch=batch),
        dtype=arithmetic,
        out=out,
        bias=bias is not None,
        **question,
    )
    old = None if before is None else (before if before.ndim == 3 else before[None])
    return verify(
        problem,
        Matrices(
            a=lambda rows: decode(a[:, rows], arithmetic.storage),
            b=lambda: decode(b, arithmetic.storage),
            c_after=lambda rows: decode(c[:, rows], out),
            c_before=None if old is None else lambda rows: decode(old[:, rows], out),
            bias=None if bias is None else decode(bias, out),
        ),
    )


def multiply(a: Any, b: Any, **keywords: Any) -> Any:
    return gemm_lab.matmul(a, b, backend="emulator", **keywords)


@st.composite
def views(draw: st.DrawFn, rows: int, cols: int, dtype: str) -> Any:
    """A matrix of that shape: packed, turned, sliced, reversed, strided or broadcast."""
    kind = draw(st.sampled_from(("packed", "turned", "sliced", "reversed", "strided", "zero")))
    seed = draw(st.integers(0, 100))
    if kind == "turned":
        return numbers((cols, rows), dtype, seed).T
    if kind == "sliced":
        return numbers((rows + 3, cols + 5), dtype, seed)[2 : 2 + rows, 1 : 1 + cols]
    if kind == "reversed":
        return numbers((rows, cols), dtype, seed)[::-1, ::-1]
    if kind == "strided":
        return numbers((2 * rows, 3 * cols), dtype, seed)[::2, ::3]
    if kind == "zero":
        return np.broadcast_to(numbers((1, cols), dtype, seed), (rows, cols))
    return numbers((rows, cols), dtype, seed)


class TestProperties:
    @pytest.mark.parametrize("rung", RUNGS, ids=IDS)
    @QUICK
    @given(data=st.data())
    def test_any_arrays_factors_and_epilogue(self, rung: Rung, data: st.DataObject) -> None:
        config = need(rung)
        arithmetic = dtype_named(rung.dtype)
        m, n, k = data.draw(st.sampled_from(SHAPES))
        a = data.draw(views(m, k, rung.dtype))
        b = data.draw(views(k, n, rung.dtype))
        alpha = data.draw(st.sampled_from((1.0, 1.0, -0.75, 0.0)))
        beta = data.draw(st.sampled_from((0.0, 1.0, 2.5)))
        epilogue, with_bias = data.draw(st.sampled_from(ENDS))
        out = uniform((m, n), arithmetic.default_out, seed=9)
        if data.draw(st.booleans()):
            out = np.asfortranarray(out)
        bias = uniform((n,), arithmetic.default_out, seed=5) if with_bias else None
        reads = beta != 0 or (epilogue is not None and "c" in epilogue)
        if not reads and arithmetic.default_out.unit_roundoff:
            out[...] = np.nan
        before = out.copy()
        with _quiet():
            got = multiply(
                a, b, out=out, alpha=alpha, beta=beta, bias=bias, epilogue=epilogue,
                variant=rung.name, config=config,
            )  # fmt: skip
        assert got is out
        found = verdict(
            out, a, b, before=before if reads else None, bias=bias, dtype=rung.dtype,
            alpha=alpha, beta=beta, epilogue=epilogue,
        )  # fmt: skip
        assert found.ok, found

    @QUICK
    @given(
        rung=st.sampled_from([r for r in RUNGS if r.dtype == "fp32"]),
        shape=st.tuples(*[st.sampled_from((0, *PRIMES))] * 3),
        batch=st.sampled_from((None, 1, 2, 3)),
        shared=st.sampled_from(("neither", "a", "b")),
        beta=st.sampled_from((0.0, 1.5)),
    )
    def test_any_shape_and_batch(
        self, rung: Rung, shape: tuple[int, int, int], batch: int | None, shared: str, beta: float
    ) -> None:
        config = small_config(rung.name, rung.dtype)
        if config is None:
            return
        m, n, k = shape
        lead = () if batch is None else (batch,)
        a = numbers((*lead, m, k), "fp32", 1)
        b = numbers((*lead, k, n), "fp32", 2)
        if batch and shared == "a":
            a = np.broadcast_to(a[:1], a.shape)
        if batch and shared == "b":
            b = b[:1]
        out = numbers((*lead, m, n), "fp32", 3)
        before = out.copy()
        with _quiet():
            multiply(a, b, out=out, beta=beta, variant=rung.name, config=config)
        if 0 in (m, n):
            assert out.size == 0
            return
        assert verdict(out, a, b, before=before if beta else None, beta=beta).ok

    @pytest.mark.parametrize("rung", RUNGS, ids=IDS)
    def test_output_types(self, rung: Rung) -> None:
        config = need(rung)
        arithmetic = dtype_named(rung.dtype)
        a, b = numbers((37, 29), rung.dtype, 1), numbers((29, 41), rung.dtype, 2)
        for out in arithmetic.outs:
            if out.name not in Catalogue().get(rung.name).support(rung.dtype).outs:
                continue
            c = multiply(a, b, variant=rung.name, config=config, out_dtype=out.name)
            assert c.dtype == out.numpy()
            assert verdict(c, a, b, dtype=rung.dtype, out_dtype=out.name).ok


class TestCorners:
    VARIANT = "shared"

    def test_beta_0_never_reads_out(self) -> None:
        a, b = numbers((17, 5), "fp32", 1), numbers((5, 19), "fp32", 2)
        out = np.full((17, 19), np.nan, np.float32)
        assert verdict(multiply(a, b, out=out, variant=self.VARIANT), a, b).ok

    def test_alpha_0_never_reads_a_and_b(self) -> None:
        a = np.full((17, 5), np.nan, np.float32)
        b = np.full((5, 19), np.inf, np.float32)
        out = numbers((17, 19), "fp32", 3)
        before = out.copy()
        multiply(a, b, out=out, alpha=0.0, beta=2.0, variant=self.VARIANT)
        np.testing.assert_array_equal(out, 2 * before)

    def test_nothing_to_sum(self) -> None:
        a, b = np.zeros((5, 0), np.float32), np.zeros((0, 7), np.float32)
        assert multiply(a, b, variant=self.VARIANT).tolist() == np.zeros((5, 7)).tolist()
        out = numbers((5, 7), "fp32", 3)
        before = out.copy()
        multiply(a, b, out=out, beta=-1.0, variant=self.VARIANT)
        np.testing.assert_array_equal(out, -before)

    def test_empty_results(self) -> None:
        for m, n in ((0, 3), (3, 0), (0, 0)):
            a, b = np.ones((m, 4), np.float32), np.ones((4, n), np.float32)
            assert multiply(a, b, variant=self.VARIANT).shape == (m, n)
        batch = multiply(np.ones((0, 2, 4), np.float32), np.ones((0, 4, 3), np.float32))
        assert batch.shape == (0, 2, 3)

    def test_nan_and_infinity_come_through_by_place(self) -> None:
        a, b = numbers((33, 35), "fp32", 1), numbers((35, 37), "fp32", 2)
        a[3, 4], a[30, 34] = np.nan, np.inf
        c = multiply(a, b, variant=self.VARIANT)
        assert np.isnan(c[3]).all()
        assert np.isinf(c[30]).all()
        assert np.isfinite(np.delete(c, (3, 30), axis=0)).all()
        assert verdict(c, a, b).ok

    def test_overlaps_are_refused(self) -> None:
        whole = numbers((40, 40), "fp32", 1)
        for out in (whole, whole[::-1], whole.T, whole[:20, :20]):
            a = whole[: out.shape[0], : out.shape[1]]
            with pytest.raises(UsageError, match="overlaps"):
                multiply(a, np.eye(out.shape[1], dtype=np.float32), out=out, variant=self.VARIANT)
        square = numbers((8, 8), "fp32", 1)
        with pytest.raises(UsageError, match="overlaps bias"):
            multiply(square.copy(), square.copy(), out=square, bias=square[0])

    def test_neighbours_in_one_array_do_not_overlap(self) -> None:
        whole = numbers((8, 24), "fp32", 1)
        a, b, out = whole[:, :8], whole[:, 8:16], whole[:, 16:]
        multiply(a, b, out=out, variant=self.VARIANT)
        assert verdict(out, a, b).ok

    def test_out_of_its_own_strides_keeps_its_surroundings(self) -> None:
        whole = np.full((30, 60), 7, np.float32)
        a, b = numbers((10, 4), "fp32", 1), numbers((4, 20), "fp32", 2)
        multiply(a, b, out=whole[5:25:2, 50:10:-2], variant=self.VARIANT)
        assert verdict(whole[5:25:2, 50:10:-2], a, b).ok
        whole[5:25:2, 50:10:-2] = 7
        assert (whole == 7).all()

    def test_bf16_and_fp8_names(self) -> None:
        a = numbers((9, 8), "bf16", 1)
        assert a.dtype == ml_dtypes.bfloat16
        assert multiply(a, a.T.copy(), variant=self.VARIANT).dtype == ml_dtypes.bfloat16


class TestVerification:
    """What verification must refuse, on results of the emulator."""

    @staticmethod
    def product(dtype: str = "fp32", k: int = 96) -> tuple[Any, Any, Any]:
        a, b = numbers((61, k), dtype, 1), numbers((k, 53), dtype, 2)
        return multiply(a, b, variant="shared"), a, b

    @pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
    def test_right(self, dtype: str) -> None:
        c, a, b = self.product(dtype)
        assert verdict(c, a, b, dtype=dtype).ok

    @pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8"])
    def test_zeros_and_one_element(self, dtype: str) -> None:
        c, a, b = self.product(dtype)
        assert not verdict(np.zeros_like(c), a, b, dtype=dtype).ok
        wrong = c.copy()
        wrong[60, 52] = c[60, 51]  # an index off by one
        found = verdict(wrong, a, b, dtype=dtype)
        assert (found.ok, found.wrong_count) == (False, 1)
        assert found.max_error is not None
        assert found.max_error.index == (60, 52)

    @pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
    def test_nan_and_infinity(self, dtype: str) -> None:
        c, a, b = self.product(dtype)
        for value in (np.nan, np.inf):
            wrong = c.copy()
            wrong[0, 0] = value
            assert not verdict(wrong, a, b, dtype=dtype).ok

    @pytest.mark.parametrize(
        ("dtype", "lower"),
        [("fp32", "tf32"), ("fp32", "fp16"), ("fp16", "bf16"), ("bf16", "fp8_e4m3")],
    )
    @pytest.mark.parametrize("k", [1, 16, 96, 512])
    def test_the_next_lower_precision(self, dtype: str, lower: str, k: int) -> None:
        c, a, b = self.product(dtype, k)
        assert verdict(c, a, b, dtype=dtype).ok
        low = _rounded(a, lower).astype(np.float64) @ _rounded(b, lower).astype(np.float64)
        assert not verdict(low.astype(c.dtype), a, b, dtype=dtype).ok

    def test_a_missing_term_and_a_swap(self) -> None:
        c, a, b = self.product(k=64)
        short = (a[:, :63].astype(np.float64) @ b[:63].astype(np.float64)).astype(np.float32)
        assert not verdict(short, a, b).ok
        assert not verdict(c[::-1], a, b).ok
        assert not verdict(c * np.float32(1 + 1e-4), a, b).ok


def _rounded(array: Any, dtype: str) -> Any:
    """float32 values as the narrower type holds them."""
    wide = array.astype(np.float32)
    if dtype == "tf32":
        bits = wide.view(np.uint32)
        return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint32(0x1FFF)).view(np.float32)
    kinds = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8_e4m3": ml_dtypes.float8_e4m3fn}
    return wide.astype(kinds[dtype]).astype(np.float32)


def _quiet() -> Any:
    import warnings

    found = warnings.catch_warnings()
    warnings.simplefilter("ignore", gemm_lab.CopyWarning)
    return found


class TestRun:
    @pytest.mark.parametrize("rung", RUNGS, ids=IDS)
    def test_defaults_on_ragged_shapes(self, rung: Rung) -> None:
        need(rung)
        support = Catalogue().get(rung.name).support(rung.dtype)
        for number, layout in enumerate(support.layouts):
            shape = ((131, 67, 37), (64, 136, 72), (29, 150, 5), (1, 7, 129))[number % 4]
            found = gemm_lab.run(
                rung.name,
                dtype=rung.dtype,
                layout=layout,
                shape=shape,
                backend="emulator",
                settings=RunSettings(seed=3),
            )
            assert found.verified, found
            assert found.backend == "emulator"
            assert found.median_ms is None
            assert found.counters is not None
            assert found.counters["global_store_bytes"] > 0
            assert not [w for w in found.warnings if "race" in w]

    @pytest.mark.parametrize("name", dict.fromkeys(r.name for r in RUNGS))
    def test_random_tunables(self, name: str) -> None:
        """As drawn by the variant's name; every rule kept, everything right."""
        variant = Catalogue().get(name)
        dtype = next(r.dtype for r in RUNGS if r.name == name)
        need(Rung(name, dtype))
        generator = random.Random(name)
        right = 0
        for _ in range(200):
            config = {t.name: generator.choice(t.candidates) for t in variant.tunables.values()}
            try:
                found = gemm_lab.run(
                    variant, dtype=dtype, shape=(67, 73, 41), backend="emulator", config=config
                )
            except (RuleError, ResourceError):
                continue
            assert found.verified, found
            right += 1
            if right == 3:
                break
        assert right > 0

    def test_arch_is_taken_verbatim(self) -> None:
        found = gemm_lab.run("naive", shape=16, backend="emulator", arch="sm_75")
        assert (found.arch, found.verified) == ("sm_75", True)

    def test_a_variant_by_the_path_of_its_file(self) -> None:
        path = Catalogue().get("naive").path
        for known in (path, str(path)):
            assert gemm_lab.run(known, shape=(5, 7, 3), backend="emulator").verified
        a = numbers((5, 3), "fp32", 1)
        assert verdict(multiply(a, a.T, variant=path), a, a.T).ok

    def test_reports_are_kept_for_those_who_ask_alone(self) -> None:
        backend = EmulatorBackend(arch=ARCH)
        request = Request.of(Catalogue().get("naive"), "fp32", {})
        problem = GemmProblem(
            shape=Shape(m=5, n=7, k=3), dtype=dtype_named("fp32"), out=dtype_named("fp32").storage
        )
        executor, _ = make_executor(Workbench(), backend, request, problem)
        trial = make_trial(backend, executor, problem, seed=0)
        assert trial.check().ok
        assert backend.reports is None
        with watching(backend, races="all") as reports:
            trial.check()
        assert len(reports) == 1
        assert backend.reports is None
        trial.free()

    def test_a_broken_variant_is_told_and_not_raised(self, tmp_path: Any) -> None:
        text = Catalogue().get("naive").path.read_text()
        path = tmp_path / "broken.cu.j2"
        path.write_text(text.replace("acc +=", "acc -=", 1))
        found = gemm_lab.run(str(path), shape=(5, 7, 3), backend="emulator")
        assert found.verified is False
        assert found.max_error is not None


def test_check_finds_nothing_in_a_right_kernel_and_something_in_a_wrong_one(tmp_path: Any) -> None:
    report = gemm_lab.kernel("shared", arch=ARCH, BLOCK_SIZE=16).check()
    assert report.ok
    assert report.exit_code == 0
    text = Catalogue().get("shared").path.read_text()
    for name, old, code in (
        ("unfenced", "__syncthreads();  // nobody reads them any more", 3),
        ("wrong", "acc +=", 3),
    ):
        path = tmp_path / f"{name}.cu.j2"
        assert old in text
        path.write_text(text.replace(old, "acc -=" if name == "wrong" else ";"))
        found = gemm_lab.kernel(str(path), arch=ARCH, BLOCK_SIZE=16).check(shapes=[(17, 19, 40)])
        assert found.exit_code == code
        assert {f.kind for f in found.findings} == {"race" if name == "unfenced" else "wrong"}
    path = tmp_path / "past.cu.j2"
    path.write_text(text.replace("if (row < M && col < N) store_c", "store_c"))
    found = gemm_lab.kernel(str(path), arch=ARCH, BLOCK_SIZE=16).check(shapes=[(17, 19, 40)])
    assert (found.exit_code, found.findings[0].kind) == (6, "fault")
    assert "past.cu:" in found.findings[0].text


def test_a_measurement_survives_json() -> None:
    from gemm_lab.core.measurement import Measurement, to_json

    found = gemm_lab.run("shared", shape=(33, 34, 35), backend="emulator")
    import json

    back = Measurement.from_dict(json.loads(to_json(found.to_dict())))
    assert back.counters == found.counters
    assert replace(back, samples_ms=()) == replace(found, samples_ms=())


def test_an_epilogue_that_reads_c_needs_out() -> None:
    a = np.ones((3, 3), np.float32)
    with pytest.raises(UsageError, match="reads c, the old out, and none was given"):
        gemm_lab.matmul(a, a, epilogue="x + c")
    out = np.full((3, 3), 2, np.float32)
    assert (gemm_lab.matmul(a, a, out=out, epilogue="x + c", variant="naive") == 5).all()


def test_a_numpy_matrix_is_read_as_its_array() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4).view(np.matrix)
    assert (gemm_lab.matmul(a, a.T, variant="naive") == np.asarray(a @ a.T)).all()


@pytest.mark.filterwarnings("error")
def test_a_factor_past_the_kernel_s_type_is_infinite_without_a_word() -> None:
    a = np.ones((3, 3), np.float32)
    assert np.isinf(gemm_lab.matmul(a, a, alpha=1e300, variant="naive")).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": None}, {"alpha": 1j}, {"alpha": 10**400}, {"beta": [1.0, 2.0]}, {"variant": 3},
        {"variant": b"naive"}, {"epilogue": 3}, {"epilogue": b"x"}, {"config": "BM"},
    ],
)  # fmt: skip
def test_values_of_another_kind_are_refused(wrong: dict[str, Any]) -> None:
    a = np.ones((3, 3), np.float32)
    with pytest.raises(UsageError):
        gemm_lab.matmul(a, a, **wrong)
