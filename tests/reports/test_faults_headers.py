"""Macros of headers that are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemm_lab.core.kernel import RenderedKernel
from gemm_lab.errors import CompileError
from gemm_lab.jit import Cache, compile_kernel

# NVRTC of 12.9 brings NV_IF_ELSE_TARGET itself; a macro that it does not have fails as it did.
BODY = """
extern "C" __global__ void choose(int* out) {
    NV_IF_ELSE_LATER_TARGET(NV_PROVIDES_SM_80, (out[0] = 1;), (out[0] = 2;))
}
"""


@pytest.mark.parametrize("lead", ["", "#include <nv/target_that_is_not_there>\n"])
def test_a_macro_of_a_missing_header_names_the_wheel(lead: str, tmp_path: Path) -> None:
    rendered = RenderedKernel(name="choose", source=lead + BODY, entries=("choose",), arch="sm_80")
    with pytest.raises(CompileError) as caught:
        compile_kernel(rendered, cache=Cache(tmp_path))
    assert "nvidia-cuda-cccl" in (caught.value.hint or "")
    assert "pip install" in (caught.value.hint or "")
