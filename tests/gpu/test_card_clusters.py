"""How many clusters fit at once, by the driver of a real card."""

from __future__ import annotations

import pytest

from gemm_lab.core.kernel import KernelLaunch, RenderedKernel
from gemm_lab.gpu import GpuBackend
from gemm_lab.jit import Cache, compile_kernel

pytestmark = pytest.mark.gpu

SOURCE = """
extern "C" __global__ void __cluster_dims__({size}, 1, 1) k(int *p) {{
    extern __shared__ int s[];
    if (p) p[0] = s[threadIdx.x];
}}
"""


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_clusters_at_once(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    """Shared memory for one block a multiprocessor: whole clusters, as many as have room."""
    backend = GpuBackend()
    if int(backend.arch.removeprefix("sm_").rstrip("af")) < 90:
        pytest.skip("clusters begin with sm_90")
    source = SOURCE.format(size=size)
    rendered = RenderedKernel(name="clusters", source=source, entries=("k",), arch=backend.arch)
    made = compile_kernel(rendered, cache=Cache(tmp_path_factory.mktemp("cache")))
    loaded = backend.load(made, transient=True)
    launch = KernelLaunch(
        entry="k", grid=(size, 1, 1), block=(128, 1, 1), cluster=(size, 1, 1),
        smem_bytes=200_000, params=("p",),
    )  # fmt: skip
    found = backend.resident_clusters(loaded, launch)
    backend.unload(loaded)
    assert 1 <= found <= backend.sm_count // size
    if size == 1:
        assert found == backend.sm_count
    if size == 2:  # two multiprocessors are a TPC
        assert found == backend.sm_count // 2
