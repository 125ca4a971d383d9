"""From a specification to CUDA C++: constants once at the top, then the body of the file.

Deterministic: the text depends on the specification and the templates alone.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import FileSystemLoader, StrictUndefined, TemplateNotFound, TemplateSyntaxError
from jinja2.exceptions import TemplateError, UndefinedError

from gemm_lab.core.kernel import KernelSpec, RenderedKernel, TunableValue
from gemm_lab.core.params import PARAMS
from gemm_lab.core.problem import Shape
from gemm_lab.errors import UsageError, VariantError
from gemm_lab.variants.epilogue import parse_epilogue
from gemm_lab.variants.paths import template_root
from gemm_lab.variants.resolve import kernel_params, spec_scope
from gemm_lab.variants.sandbox import BoundedEnvironment, budget
from gemm_lab.variants.variant import Variant

__all__ = ["render"]

_TENSOR_MAP = "struct alignas(64) TensorMap { unsigned char opaque[128]; };  // CUtensorMap"


def render(variant: Variant, spec: KernelSpec) -> RenderedKernel:
    """The source of one specification; VariantError when the template has a fault.

    UsageError when an epilogue or bias is asked of a variant that does not store through
    lib/epilogue.
    """
    scope = spec_scope(variant, spec)
    epilogue = _EpilogueUse(spec)
    context: dict[str, Any] = {
        **scope,
        "in_t": spec.dtype.storage.c_type,
        "acc_t": spec.dtype.accumulator.c_type,
        "out_t": spec.out.c_type,
        "compute_t": spec.dtype.compute,
        "dtype": spec.dtype.name,
        "layout": spec.layout,
        "out": spec.out.name,
        "entry": _PerEntry({s.entry: s.entry for s in variant.launches}),
        "params": _PerEntry({s.entry: _signature(spec, s.params) for s in variant.launches}),
        "bias": "bias" if spec.bias else "nullptr",
        "epilogue": epilogue,
    }
    environment = _environment(variant.path.parent, template_root())
    try:
        with budget():
            body = environment.from_string(variant.body).render(context)
    except (TemplateError, TypeError, ArithmeticError, ValueError, RecursionError) as error:
        _fail(variant, error)
    if (spec.epilogue or spec.bias) and not epilogue.used:
        raise UsageError(
            f"{variant.name} does not store through lib/epilogue, so it takes no epilogue or bias",
            hint='include "lib/epilogue.cuh.j2" and store with it, or call without',
        )
    return RenderedKernel(
        name=variant.name,
        source=_prelude(variant, spec, scope, body) + body.lstrip("\n"),
        entries=tuple(step.entry for step in variant.launches),
        arch=spec.arch,
    )


class _PerEntry:
    """`${params}` of a kernel in one step, `${params.reduce}` of one in several."""

    def __init__(self, by_entry: Mapping[str, str]) -> None:
        self._by_entry = dict(by_entry)

    def __getattr__(self, name: str) -> str:
        try:
            return self.__dict__["_by_entry"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        return next(iter(self._by_entry.values()))


class _EpilogueUse:
    """What lib/epilogue needs; remembers whether it was asked."""

    def __init__(self, spec: KernelSpec) -> None:
        self.used = False
        self._spec = spec
        self._parsed = parse_epilogue(spec.epilogue) if spec.epilogue else None
        if self._parsed and "bias" in self._parsed.names and not spec.bias:
            raise UsageError(
                f"epilogue {spec.epilogue!r} reads bias, and no bias was given",
                hint="pass bias=..., a vector of N elements",
            )

    @property
    def code(self) -> str:
        """The expression in CUDA, or x."""
        self.used = True
        return self._parsed.cuda(self._spec.dtype.compute) if self._parsed else "x"

    @property
    def functions(self) -> frozenset[str]:
        """Names of functions that the expression calls; gelu and silu need others of the lib."""
        return self._parsed.functions if self._parsed else frozenset()

    @property
    def adds_bias(self) -> bool:
        """Whether the bias is added before the expression."""
        named = self._parsed is not None and "bias" in self._parsed.names
        return self._spec.bias and not named

    @property
    def reads_bias(self) -> bool:
        """Whether the bias is read at all."""
        return self._spec.bias

    @property
    def reads_c(self) -> bool:
        """Whether the expression itself needs the old C."""
        return self._parsed is not None and "c" in self._parsed.names

    @property
    def trivial(self) -> bool:
        """True when y is just alpha * acc + beta * c."""
        self.used = True
        return self._parsed is None and not self._spec.bias


def _signature(spec: KernelSpec, declared: tuple[str, ...]) -> str:
    """The parameter list in C; sizes that are baked in lose their names."""
    baked = {"M", "N", "K"} if spec.specialize else set()
    words = {
        "in_t": "in_t",
        "out_t": "out_t",
        "compute_t": "compute_t",
    }
    parts = []
    for name in kernel_params(spec, declared):
        text = PARAMS[name].declaration.format(**words)
        parts.append("int" if name in baked else text)
    return ", ".join(parts)


def _prelude(
    variant: Variant, spec: KernelSpec, scope: Mapping[str, TunableValue], body: str
) -> str:
    """Types, and the constants that the body reads."""
    headers = sorted({t.header for t in (spec.dtype.storage, spec.out) if t.header})
    uses_map = any(PARAMS[p].kind == "tensor_map" for s in variant.launches for p in s.params)
    lines = [
        f"// {variant.name}: {spec.dtype.name} -> {spec.out.name}, layout {spec.layout}",
        *(f"#include <{header}>" for header in headers),
        f"using in_t = {spec.dtype.storage.c_type};",
        f"using acc_t = {spec.dtype.accumulator.c_type};",
        f"using out_t = {spec.out.c_type};",
        f"using compute_t = {spec.dtype.compute};",
        *([_TENSOR_MAP] if uses_map else []),
    ]
    words = set(re.findall(r"\w+", body))
    known = (*variant.tunables, *variant.derived, "VEC_A", "VEC_B", "VEC_C")
    named = [n for n in known if n in words]
    lines += [_constant(n, scope[n]) for n in named if not isinstance(scope[n], str)]
    lines += [f"// {n} = {scope[n]}" for n in variant.tunables if isinstance(scope[n], str)]
    lines += _baked(spec.specialize)
    return "\n".join(lines) + "\n\n"


def _baked(shape: Shape | None) -> list[str]:
    if shape is None:
        return []
    return [_constant(n, v) for n, v in (("M", shape.m), ("N", shape.n), ("K", shape.k))]


def _constant(name: str, value: TunableValue) -> str:
    if isinstance(value, bool):
        return f"constexpr bool {name} = {str(value).lower()};"
    kind = "int" if -(2**31) <= int(value) < 2**31 else "long long"
    return f"constexpr {kind} {name} = {value};"


@lru_cache(maxsize=32)
def _environment(*folders: Path) -> BoundedEnvironment:
    return BoundedEnvironment(
        loader=FileSystemLoader([str(folder) for folder in folders]),
        undefined=StrictUndefined,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="${",
        variable_end_string="}",
        comment_start_string="<#",
        comment_end_string="#>",
        line_statement_prefix="//%",
        line_comment_prefix="//#",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _fail(variant: Variant, error: Exception) -> NoReturn:
    """Tell a template's fault with its file and line."""
    file, line = str(variant.path), None
    if isinstance(error, TemplateSyntaxError):
        file, line = error.filename or file, error.lineno
        message = f"template: {error.message}"
    elif isinstance(error, TemplateNotFound):
        message = f"template: no file {error.name!r} beside it or in the lab's templates"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.endswith((".j2", "<template>")):
                line = frame.lineno
                file = file if frame.filename == "<template>" else frame.filename
        kind = "undefined name" if isinstance(error, UndefinedError) else type(error).__name__
        message = f"template: {kind}: {error}"
    raise VariantError(message, file=file, line=line) from None
