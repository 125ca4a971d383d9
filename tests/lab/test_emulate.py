"""emulate: files as users have them, arguments, expectations, and what it catches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gemm_lab
from gemm_lab.emulator import BudgetFault, EmulatorFault, KernelAssertFault, MemoryFault
from gemm_lab.errors import CompileError, UsageError
from gemm_lab.lab.cuda_text import device_text
from gemm_lab.lab.emulate import Emulation, emulate
from gemm_lab.lab.expect import read_expectation
from gemm_lab.lab.kernel_arguments import ArrayArgument, ScalarArgument, read_arguments

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
TUTORIAL = KERNELS / "tutorial.cu"
DEFECTS = KERNELS / "defects.cu"


def sgemm(file: Path, entry: str, m: int, n: int, k: int, tile: int, **more: Any) -> Emulation:
    block = more.pop("block", (tile, tile))
    return emulate(
        file,
        entry=entry,
        grid=(-(-n // tile), -(-m // tile)),
        block=block,
        args=[
            f"M:i32={m}",
            f"N:i32={n}",
            f"K:i32={k}",
            f"A:fp32[{m},{k}]=uniform:0",
            f"B:fp32[{k},{n}]=uniform:1",
            f"C:fp32[{m},{n}]=nan",
        ],
        expect="C=A@B",
        **more,
    )


class TestAnOrdinaryFile:
    def test_a_template_among_host_code(self) -> None:
        found = sgemm(TUTORIAL, "sgemm_shared<16>", 100, 77, 50, 16)
        assert found.ok
        assert found.findings[0].size == 7700
        assert found.races == ()

    def test_old_values_and_factors(self) -> None:
        found = emulate(
            TUTORIAL,
            entry="sgemm_naive",
            grid=(2, 2),
            block=(32, 32),
            args=[
                "M:i32=37", "N:i32=41", "K:i32=5", "alpha:fp32=1.5", "A:fp32[37,5]=uniform:0",
                "B:fp32[5,41]=uniform:1", "beta:fp32=-0.5", "C:fp32[37,41]=uniform:2",
            ],
            expect=["C=alpha*(A@B) + beta*C", "A=A"],
        )  # fmt: skip
        assert found.ok

    def test_arrays_of_the_caller_take_the_result(self) -> None:
        a, b = np.eye(8, dtype=np.float32), np.arange(64, dtype=np.float32).reshape(8, 8)
        c = np.zeros((8, 8), np.float32)
        args = {"M": 8, "N": 8, "K": 8, "A": a, "B": b, "C": c}
        found = gemm_lab.emulate(TUTORIAL, entry="sgemm_shared<8>", block=(8, 8), args=args)
        np.testing.assert_array_equal(c, b)
        np.testing.assert_array_equal(found.arrays["C"], b)

    def test_printf_and_assert(self) -> None:
        args: list[Any] = [np.array([7, 8], np.int32), 2]
        found = emulate(TUTORIAL, entry="report", block=2, args=args)
        assert found.report.printf_output == ("first of 2: 7\n",)
        with pytest.raises(KernelAssertFault, match=r"tutorial\.cu:76"):
            emulate(TUTORIAL, entry="report", block=2, args=[np.array([7, -1], np.int32), 2])

    def test_a_fault_points_into_the_file(self) -> None:
        lines = TUTORIAL.read_text().splitlines()
        with pytest.raises(MemoryFault) as caught:
            emulate(
                TUTORIAL,
                entry="sgemm_shared<16>",
                block=(16, 16),
                args=["i32=16", "i32=16", "i32=16", "fp32[15,16]=ones", "fp32[16,16]=ones",
                      "fp32[16,16]=nan"],
            )  # fmt: skip
        where = caught.value.where
        assert where is not None
        assert where.file == str(TUTORIAL)
        assert where.line is not None
        assert "As[threadIdx.y]" in lines[where.line - 1]
        assert str(TUTORIAL) in str(caught.value)

    def test_a_local_include(self, tmp_path: Path) -> None:
        (tmp_path / "kernel.cuh").write_text(
            "#pragma once\n#include <vector>\ntemplate <int N>\n"
            "__global__ void fill(float* p) { p[threadIdx.x] = N; }\n"
        )
        main = tmp_path / "main.cu"
        main.write_text('#include "kernel.cuh"\nint main() { fill<3><<<1, 4>>>(nullptr); }\n')
        found = emulate(main, entry="fill<3>", block=4, args=["p:fp32[4]=nan"], expect="p=p*0+3")
        assert not found.ok  # NaN * 0
        assert found.arrays["p"].tolist() == [3.0] * 4

    def test_namespaces_macros_and_extern_c(self) -> None:
        text = """
namespace lab { namespace inner {
__constant__ float weights[2] = {2.f, 3.f};
__global__ void scale(float* p, int n) { if (threadIdx.x < n) p[threadIdx.x] *= weights[n > 2]; }
} }
extern "C" __global__ void one(float* p) { p[0] = WIDTH; }
#define KERNEL(name) __global__ void name(float* p)
KERNEL(spelt) { p[0] = 5.f; }
#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#error host
#endif
"""
        args = ["p:fp32[3]=ones"]
        found = emulate(text, entry="scale", block=4, args=[*args, "n:i32=3"], expect="p=3*p")
        assert found.ok
        assert emulate(text, entry="one", args=args, defines=["WIDTH=7"]).arrays["p"][0] == 7
        assert emulate(text, entry="spelt", args=args).arrays["p"][0] == 5

    def test_ptx_by_its_plain_name(self, tmp_path: Path) -> None:
        kernel = gemm_lab.kernel("naive", arch="sm_80")
        path = tmp_path / "naive.ptx"
        path.write_text(kernel.ptx)
        args: list[Any] = ["i32=8", "i32=8", "i32=8", "i32=1", "fp32=1", "A:fp32[8,8]=uniform:0",
                "i64=8", "i64=0", "B:fp32[8,8]=uniform:1", "i64=8", "i64=0", "fp32=0",
                "C:fp32[8,8]=nan", "i64=8", "i64=0"]  # fmt: skip
        found = emulate(path, entry="naive", block=(32, 32), args=args, expect="C=A@B")
        assert found.ok
        assert found.resources is None

    def test_halves(self) -> None:
        text = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void twice(const __half* a, __nv_bfloat16* b, double* c, unsigned char* d) {
    int i = threadIdx.x;
    b[i] = __float2bfloat16(2.f * __half2float(a[i]));
    c[i] = 2.0 * c[i];
    d[i] = d[i] * 2;
}
"""
        args = ["a:fp16[32]=uniform:3", "b:bf16[32]=nan", "c:fp64[32]=uniform:4", "d:u8[32]=arange"]
        found = emulate(text, block=32, args=args, expect=["b=2*a", "c=2*c", "d=2*d"])
        assert found.ok, found.findings

    def test_counters(self) -> None:
        found = sgemm(TUTORIAL, "sgemm_shared<32>", 64, 64, 64, 32, counters="all")
        counters = found.counters
        assert counters is not None
        assert counters["fma"] == 64**3
        assert counters["global_load_bytes"] == 2 * 64 * 64 * 2 * 4
        assert any(line.startswith("tutorial.cu:") for line in counters["lines"])


class TestPrintedDefects:
    def test_loads_and_barriers_behind_the_guard(self) -> None:
        with pytest.raises(EmulatorFault, match="uninitialised") as caught:
            sgemm(DEFECTS, "guarded_shared", 100, 77, 50, 32)
        assert caught.value.where is not None
        assert caught.value.where.line is not None
        assert "acc +=" in DEFECTS.read_text().splitlines()[caught.value.where.line - 1]
        assert sgemm(DEFECTS, "guarded_shared", 64, 96, 50, 32).ok

    def test_a_missing_barrier_is_a_race_and_no_wrong_result(self) -> None:
        found = sgemm(DEFECTS, "unfenced_shared", 64, 64, 64, 32)
        assert found.findings[0].ok
        assert not found.ok
        assert any("shared memory" in race and str(DEFECTS) in race for race in found.races)

    @pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 33), (32, 34, 32), (32, 35, 37)])
    def test_wide_loads_where_rows_are_not_whole_vectors(self, m: int, n: int, k: int) -> None:
        with pytest.raises(MemoryFault, match=r"misaligned|out of bounds"):
            sgemm(DEFECTS, "wide_loads<32>", m, n, k, 32, block=256)

    def test_wide_loads_past_the_row(self) -> None:
        with pytest.raises(MemoryFault, match="out of bounds"):
            sgemm(DEFECTS, "wide_loads<32>", 32, 32, 36, 32, block=256)
        assert sgemm(DEFECTS, "wide_loads<32>", 64, 32, 64, 32, block=256).ok

    def test_sixteen_wide_fills_part_of_its_tile(self) -> None:
        with pytest.raises(EmulatorFault, match="uninitialised"):
            sgemm(DEFECTS, "sixteen_wide", 16, 16, 16, 16)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"entry": None}, "has 3 kernels"),
            ({"entry": "sgemm_shard"}, "did you mean sgemm_shared"),
            ({"entry": "sgemm_shared"}, "is a template"),
            ({"args": ["i32=1"]}, "takes 6 arguments, 1 were given"),
            ({"args": ["i64=1", 1, 1, None, None, None]}, "argument 1, arg0, is int64 of 8 bytes"),
            ({"args": [1, 1, 1, "A:fp32=1", None, None]}, "argument 4, A, is float32 of 4 bytes"),
            ({"args": [1, 1, "A:fp32[4]=ones", None, None, None]}, "argument 3, A, is a pointer"),
            ({"expect": "C=A@D"}, "there is no argument C"),
        ],
    )
    def test_of_calls(self, change: dict[str, Any], message: str) -> None:
        call: dict[str, Any] = {"entry": "sgemm_shared<16>", "args": [1, 1, 1, None, None, None]}
        with pytest.raises(UsageError) as caught:
            emulate(TUTORIAL, **{**call, **change})
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        [
            "", "A", "A:", "A:fp32", "A:fp99[3]=ones", "A:fp32[3]", "A:fp32[a]=ones", "A:i8=300",
            "A:fp32[]=ones", "A:fp32[3]=ones:1", "A:fp32[3]=uniform:x", "A:i32=1.5", "A:fp32=x",
            "A:fp32[3]=nowhere.npy", "A:fp32[99999,99999,99]=ones", "A:u8=-1",
        ],
    )  # fmt: skip
    def test_of_argument_texts(self, text: str) -> None:
        with pytest.raises(UsageError):
            read_arguments([text])

    def test_of_names_given_twice(self) -> None:
        with pytest.raises(UsageError, match="two arguments are named A"):
            read_arguments(["A:i32=1", "A:i32=2"])

    def test_of_source(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            emulate(tmp_path / "none.cu")
        with pytest.raises(UsageError, match="has 0 kernels"):
            emulate("int main() {}")
        with pytest.raises(CompileError, match=r"kernel\.cu:2: .*undeclared"):
            emulate("__global__ void k(int* p) {\n  *p = undeclared;\n}", args=["p:i32[1]=zeros"])

    def test_of_a_kernel_without_end(self) -> None:
        text = "__global__ void k(volatile int* p) { while (*p == 0) {} }"
        with pytest.raises(BudgetFault):
            emulate(text, args=["p:i32[1]=zeros"], max_instructions=10_000)


class TestArguments:
    def test_contents(self) -> None:
        texts = [
            "a:fp32[2,3]=arange", "b:i8[2]=nan", "c:fp16[2]=1.5", "d:u64=0xff", "e:bf16=0.1",
            "f:null", "g:i32[2x2]=uniform:7", "u32=3", "h:fp64=inf",
        ]  # fmt: skip
        found = read_arguments(texts)
        a, b, c = found[:3]
        assert isinstance(a, ArrayArgument)
        assert a.before.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert isinstance(b, ArrayArgument)
        assert b.before.tolist() == [-1, -1]
        assert isinstance(c, ArrayArgument)
        assert c.before.dtype == np.float16
        values = [x.value for x in found if isinstance(x, ScalarArgument)]
        assert values[0] == 255
        assert values[0].nbytes == 8
        assert values[1].nbytes == 2
        assert values[2] is None
        assert found[7].name == "arg7"

    def test_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npy"
        np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
        (found,) = read_arguments([f"a:fp32[2,3]={path}"])
        assert isinstance(found, ArrayArgument)
        assert found.before[1, 2] == 5
        with pytest.raises(UsageError, match="holds float32"):
            read_arguments([f"a:fp32[3,2]={path}"])


class TestExpectations:
    def check(self, text: str, after: Any, **arrays: Any) -> bool:
        names = {name: np.asarray(value) for name, value in arrays.items()}
        return read_expectation(text, names).check(names, np.asarray(after)).ok

    def test_the_language(self) -> None:
        a = np.arange(6.0).reshape(2, 3)
        assert self.check("s=sum(a, 1)", [3.0, 12.0], a=a, s=0.0)
        assert self.check("s=sum(a)", 15.0, a=a, s=0.0)
        assert self.check("s=a.T@a", a.T @ a, a=a, s=0.0)
        assert self.check("s=-a/2+abs(a)-max(a)", -a / 2 + a - 5, a=a, s=0.0)
        assert self.check("s=exp(sqrt(a))", np.exp(np.sqrt(a)), a=a, s=0.0)

    def test_tolerances(self) -> None:
        generator = np.random.default_rng(0)
        a = generator.random((64, 256), np.float32) - np.float32(0.5)
        b = generator.random((256, 64), np.float32) - np.float32(0.5)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        single = a @ b
        half = (a.astype(np.float16).astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
        assert self.check("c=a@b", single, a=a, b=b, c=0.0)
        assert self.check("c=a@b", exact.astype(np.float32), a=a, b=b, c=0.0)
        assert not self.check("c=a@b", half, a=a, b=b, c=0.0)
        assert not self.check("c=a@b", np.zeros_like(single), a=a, b=b, c=0.0)
        wrong = single.copy()
        wrong[3, 4] = np.nan
        assert not self.check("c=a@b", wrong, a=a, b=b, c=0.0)
        wrong[3, 4] = single[3, 5]
        assert not self.check("c=a@b", wrong, a=a, b=b, c=0.0)

    def test_integers_are_exact(self) -> None:
        a = np.arange(4, dtype=np.int32).reshape(2, 2)
        assert self.check("c=a@a", a @ a, a=a, c=np.int32(0))
        assert not self.check("c=a@a", a @ a + 1, a=a, c=np.int32(0))

    @pytest.mark.parametrize(
        "text",
        [
            "c", "c=", "=a", "c==a", "c=a**a", "c=a[0]", "c=open('x')", "c=(lambda: 1)()",
            "c=a.__class__", "c=a.T()", "c=b", "c=sum()", "c=sum", "c=[a]", "c='a'",
            "c=a if a else a",
            "c=sum(a, axis=0)", "c=" + "(" * 300 + "a" + ")" * 300, "c=" + "a+" * 300 + "a",
        ],
    )  # fmt: skip
    def test_what_it_refuses(self, text: str) -> None:
        known = {"a": np.ones((2, 2)), "c": np.ones((2, 2))}
        with pytest.raises(UsageError):
            read_expectation(text, known).check(known, known["c"])


HARD = r"""
#pragma once
#include <cooperative_groups.h>
#include <string>
#include <functional>
namespace cg = cooperative_groups;
using std::string;
#if 0
void broken() { {
#endif
#ifdef USE_DOUBLE
template <class T> struct Id { __device__ double operator()(T a) {
#else
template <class T> struct Id { __device__ T operator()(T a) {
#endif
return a; } };
#define LAUNCH(k, g, b, ...) do { k<<<g, b>>>(__VA_ARGS__); } while (0)
enum class Mode { Sum, Max };
static const char* kText = R"(__global__ void nope() { )";
__constant__ float c_scale[4];
__device__ int d_count = 5;
template <typename T> struct Op {
    __host__ __device__ T operator()(T a, T b) const { return a + b; }
};
template <> struct Op<int> { __device__ int operator()(int a, int b) const { return a * b; } };
__host__ __device__ inline int ceil_div(int a, int b) { return (a + b - 1) / b; }
template <typename T, class F = Op<T>>
__global__ void reduce(const T* in, T* out, int n, F f = F()) {
    extern __shared__ unsigned char raw[];
    T* s = reinterpret_cast<T*>(raw);
    int t = threadIdx.x;
    s[t] = t < n ? Id<T>()(in[t]) : T(0);
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (t < stride) s[t] = f(s[t], s[t + stride]);
        __syncthreads();
    }
    if (t == 0) out[0] = s[0] + T(c_scale[0]) + T(d_count) + T(ceil_div(3, 2));
}
__global__ void grouped(float* x) { cg::this_thread_block().sync(); }
template __global__ void reduce<float>(const float*, float*, int, Op<float>);
auto run = [](int n) -> int { return n; };
struct Host { std::string name; std::function<void()> f; ~Host() { printf("x"); } };
auto main(int argc, char** argv) -> int {
    Host h{"}", [] {}};
    LAUNCH(grouped, 1, 32, nullptr);
    return 0;
}
"""


def test_a_file_with_everything_in_it() -> None:
    args = ["in:fp32[50]=uniform:1", "out:fp32[1]=nan", "n:i32=50", "f:u8=0"]
    call: dict[str, Any] = {"entry": "reduce<float>", "block": 64, "args": args}
    assert emulate(HARD, **call, smem_bytes=256, expect="out=sum(in)+7").ok
    with pytest.raises(MemoryFault, match="out of bounds: shared"):
        emulate(HARD, **call, smem_bytes=100)


def test_lines_keep_their_numbers() -> None:
    for entry in ("sgemm_naive", "sgemm_shared<8>", "report", None):
        text = TUTORIAL.read_text()
        made = device_text(text, entry)
        assert list(made.kernels) == ["sgemm_naive", "sgemm_shared", "report"]
        kept = made.source.split("\n")
        assert len(kept) == len(text.split("\n"))
        for line, before in zip(kept, text.split("\n"), strict=True):
            code = line.strip()
            assert not code or code in before or code.startswith("typedef")
        assert "<<<" not in made.source
        assert "main" not in made.source


@pytest.mark.parametrize("word", ["", "=3", "3=N", "-I/"])
def test_a_macro_without_a_name(word: str) -> None:
    with pytest.raises(UsageError, match="has no name"):
        emulate("__global__ void k(int* x) { x[0] = 1; }", defines=[word], args=["x:i32[1]=zeros"])


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("__global__ void k(int* x) { x[0] = 1; }", encoding="utf-8-sig")
    assert emulate(file, args=["x:i32[1]=zeros"]).arrays["x"][0] == 1
