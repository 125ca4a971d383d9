"""Elements behind the 2^31st: an offset of 32 bits would be negative, and a fault."""

from __future__ import annotations

import numpy as np
import pytest
from fault_helpers import RUNGS, emulated, numbers

from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape, Strides
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.emulator.runtime.memory import Memory
from gemm_lab.lab.execute import Addresses
from gemm_lab.lab.prepare import Request, build_executor
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.variants import Catalogue

FAR = 2**31  # elements from the first row to the second


@pytest.mark.parametrize("far", ["a", "b", "c"])
@pytest.mark.parametrize("name", RUNGS)
def test_rows_two_to_the_31_apart(name: str, far: str) -> None:
    """Two rows of one operand lie 2^31 elements apart; only the pages in use take memory."""
    dtype = emulated(name)
    if dtype is None:
        pytest.skip(f"the emulator does not run {name} yet")
    variant = Catalogue().get(name)
    support = variant.support(dtype)
    arithmetic = dtype_named(dtype)
    size_bytes = (arithmetic.default_out if far == "c" else arithmetic.storage).size_bytes
    memory = Memory(limit_bytes=FAR * size_bytes + 2**24)
    if memory.limit_bytes < FAR * size_bytes:
        pytest.skip("this machine does not reserve so much address space")
    backend = EmulatorBackend(arch=choose_arch(support.arch, None, None), memory=memory)

    for layout in {support.layouts[0], support.layouts[-1]}:
        # The operand has two rows as stored, and four columns.
        rows = {"a": "m" if layout[0] == "n" else "k", "b": "k" if layout[1] == "n" else "n"}
        sizes = {"m": 4, "n": 4, "k": 4, rows.get(far, "m"): 2}
        problem = GemmProblem(
            shape=Shape(**sizes), dtype=arithmetic, out=arithmetic.default_out, layout=layout
        )
        packed = problem.packed_strides()
        strides = Strides(
            lda=FAR if far == "a" else packed.lda,
            ldb=FAR if far == "b" else packed.ldb,
            ldc=FAR if far == "c" else packed.ldc,
        )
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        a, b = numbers((m, k), dtype, 1), numbers((k, n), dtype, 2)
        stored = {
            "a": (a if layout[0] == "n" else a.T, strides.lda),
            "b": (b if layout[1] == "n" else b.T, strides.ldb),
            "c": (np.zeros((m, n), arithmetic.default_out.numpy()), strides.ldc),
        }
        buffers = {}
        for operand, (array, leading) in stored.items():
            item = array.itemsize
            span = ((array.shape[0] - 1) * leading + array.shape[1]) * item
            buffers[operand] = backend.alloc(span)
            raw = memory.raw(buffers[operand])
            for row in range(array.shape[0]):
                line = np.ascontiguousarray(array[row]).view(np.uint8)
                raw[row * leading * item : row * leading * item + line.size] = line
        where = [backend.address(buffers[x]) for x in "abc"]
        executor = build_executor(
            Workbench(), backend, Request.of(variant, dtype, {}), problem, strides,
            (where[0], where[1], where[2]),
        )  # fmt: skip
        executor(Addresses(*where))
        raw = memory.raw(buffers["c"]).view(arithmetic.default_out.numpy())
        got = np.stack([raw[r * strides.ldc : r * strides.ldc + n] for r in range(m)])
        wanted = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=1e-2, atol=1e-2)
        for buffer in buffers.values():
            raw = memory.raw(buffer)
            raw[: 2**12] = 0
        memory = Memory(limit_bytes=FAR * size_bytes + 2**24)
        backend = EmulatorBackend(arch=backend.arch, memory=memory)
