"""run and kernel: the lab's road for one question, from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.kernel import CompiledKernel, KernelSpec, Resources
from gemm_lab.core.measurement import Measurement
from gemm_lab.core.problem import Alignment
from gemm_lab.lab.choose import EMULATED_SIZE, GPU_SIZE, Asked, run_chosen
from gemm_lab.lab.matmul import matmul
from gemm_lab.lab.measure import RunSettings, measure
from gemm_lab.lab.prepare import Request, merge_tunables
from gemm_lab.lab.question import as_shape
from gemm_lab.lab.workbench import (
    LOWEST_USUAL_ARCH,
    BackendName,
    Workbench,
    choose_arch,
    default_workbench,
)
from gemm_lab.variants import Facts, Variant, config_of, make_spec, parse_epilogue, render

if TYPE_CHECKING:
    from gemm_lab.lab.check import CheckReport

__all__ = ["EMULATED_SIZE", "GPU_SIZE", "Kernel", "as_shape", "kernel", "run", "variants"]


def variants(workbench: Workbench | None = None) -> list[Variant]:
    """Every variant of the catalogue, each after the rung that it improves on."""
    return (workbench or default_workbench()).catalogue.ladder()


def run(
    variant: str | Path | Variant | None = None,
    *,
    shape: Any = None,
    dtype: str = "fp32",
    out_dtype: str | None = None,
    layout: Layout | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    epilogue: str | None = None,
    bias: bool = False,
    arch: str | None = None,
    device: int | None = None,
    backend: BackendName = "auto",
    smem_pad_bytes: int = 0,
    specialize: bool = False,
    settings: RunSettings | None = None,
    config: Mapping[str, Any] | None = None,
    workbench: Workbench | None = None,
    **tunables: Any,
) -> Measurement:
    """Run one kernel on seeded data, verify it, and on a GPU time it beside the library.

    Args:
        variant: a name or file; None lets the lab choose rung and tunables, see lab.choose.
        shape: see as_shape; 4096^3 on a GPU and 512^3 on the emulator when None.
        arch: compile for it, verbatim; the emulator then stands for it.
        smem_pad_bytes: dynamic shared memory added to each launch, to lower occupancy by hand.
        specialize: bake M, N and K into the source.

    Returns a Measurement; a wrong result is told in it (`verified`), not raised.
    """
    bench = workbench or default_workbench()
    arithmetic = dtype_named(dtype)
    if epilogue is not None:
        parse_epilogue(epilogue)
    asked = Asked(
        arithmetic=arithmetic,
        out=arithmetic.out(out_dtype),
        shape=None if shape is None else as_shape(shape),
        layout=layout,
        alpha=alpha,
        beta=beta,
        epilogue=epilogue,
        bias=bias,
        arch=arch,
        tunables=merge_tunables(config, tunables),
    )
    settings = settings or RunSettings()
    if variant is None:
        place = bench.choose_backend(
            backend, lowest_arch=LOWEST_USUAL_ARCH, arch=arch, device=device
        )
        return run_chosen(bench, place.backend, asked, smem_pad_bytes, specialize, settings)
    chosen = bench.variant(variant)
    support = chosen.support(dtype)
    place = bench.choose_backend(backend, lowest_arch=support.arch, arch=arch, device=device)
    request = Request.of(
        chosen,
        dtype,
        asked.tunables,
        arch=arch,
        specialize=specialize,
        smem_pad_bytes=smem_pad_bytes,
    )
    problem = asked.problem(place.backend.name, layout or support.layouts[0])
    return measure(bench, place.backend, request, problem, settings)


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its texts, its resources, and a call.

    Pickling keeps the recipe, not the handle: the other side compiles (or finds) it again.
    """

    variant: Variant
    spec: KernelSpec
    compiled: CompiledKernel

    @property
    def source(self) -> str:
        """The rendered CUDA C++."""
        return self.compiled.rendered.source

    @property
    def ptx(self) -> str:
        """NVRTC's PTX."""
        return self.compiled.ptx

    @property
    def cubin(self) -> bytes:
        """Machine code for `arch`; made again when the cache was cleared in between."""
        compiled = self.compiled
        if not compiled.cubin_path.exists():
            compiled = default_workbench().compile(self.variant, self.spec)
        return compiled.cubin_path.read_bytes()

    @property
    def resources(self) -> Mapping[str, Resources]:
        """Registers, shared memory and spills by entry."""
        return self.compiled.resources

    @property
    def arch(self) -> str:
        """The architecture that it was compiled for."""
        return self.spec.arch

    def __call__(self, a: Any, b: Any, **keywords: Any) -> Any:
        """matmul with this variant, dtype, output type, epilogue and tunables."""
        keywords.setdefault("epilogue", self.spec.epilogue)
        return matmul(
            a,
            b,
            variant=self.variant,
            dtype=self.spec.dtype.name,
            out_dtype=self.spec.out.name,
            config=self.spec.config,
            **keywords,
        )

    def check(self, *, shapes: Sequence[Any] = (), seed: int = 0) -> CheckReport:
        """Races, faults and wrong results on small problems, on the emulator; see lab.check."""
        from gemm_lab.lab.check import check_variant

        return check_variant(
            default_workbench(),
            self.variant,
            dtype=self.spec.dtype.name,
            out_dtype=self.spec.out.name,
            layout=self.spec.layout,
            tunables=self.spec.config,
            arch=self.spec.arch,
            shapes=[as_shape(shape) for shape in shapes],
            epilogue=self.spec.epilogue,
            bias=self.spec.bias,
            seed=seed,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_remake, (os.fspath(self.variant.path), self.spec))


def _remake(path: str, spec: KernelSpec) -> Kernel:
    bench = default_workbench()
    variant = bench.variant(path)
    return Kernel(variant, spec, bench.compile(variant, spec))


def kernel(
    variant: str | Path | Variant,
    *,
    dtype: str = "fp32",
    out_dtype: str | None = None,
    layout: Layout | None = None,
    arch: str | None = None,
    epilogue: str | None = None,
    bias: bool = False,
    alignment: Alignment | None = None,
    specialize: Any = None,
    config: Mapping[str, Any] | None = None,
    workbench: Workbench | None = None,
    **tunables: Any,
) -> Kernel:
    """Render and compile one kernel; needs no GPU.

    `alignment` defaults to the widest vectors. `arch` None takes the GPU at hand, else the
    greater of the variant's lowest and sm_80.
    """
    bench = workbench or default_workbench()
    found = bench.variant(variant)
    spec = kernel_spec(
        bench,
        found,
        dtype=dtype,
        out_dtype=out_dtype,
        layout=layout,
        arch=arch,
        epilogue=epilogue,
        bias=bias,
        alignment=alignment,
        specialize=specialize,
        tunables=merge_tunables(config, tunables),
    )
    return Kernel(found, spec, bench.compile(found, spec))


def kernel_spec(
    bench: Workbench,
    variant: Variant,
    *,
    dtype: str,
    tunables: Mapping[str, Any],
    out_dtype: str | None = None,
    layout: Layout | None = None,
    arch: str | None = None,
    epilogue: str | None = None,
    bias: bool = False,
    alignment: Alignment | None = None,
    specialize: Any = None,
) -> KernelSpec:
    """The checked specification behind `kernel` and `show`."""
    support = variant.support(dtype)
    arithmetic = support.dtype
    out = arithmetic.out(out_dtype)
    widest = 16 // arithmetic.storage.size_bytes
    return make_spec(
        variant,
        Facts(
            dtype=arithmetic,
            out=out,
            layout=layout or support.layouts[0],
            alignment=alignment
            or Alignment(
                vec_a=widest, vec_b=widest, vec_c=16 // out.size_bytes,
                tma_a=True, tma_b=True, tma_c=True,
            ),
            arch=choose_arch(support.arch, arch, bench.detected_arch()),
            epilogue=epilogue,
            bias=bias,
            specialize=None if specialize is None else as_shape(specialize),
        ),
        config_of(variant, dtype, tunables),
    )  # fmt: skip


def source(bench: Workbench, variant: Variant, spec: KernelSpec) -> str:
    """The rendered text alone; needs no compiler."""
    return render(variant, spec).source
