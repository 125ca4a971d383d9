"""Arguments and options that several commands share; each is declared here once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gemm_lab.cli import completion
from gemm_lab.cli.values import finite, shapes_of
from gemm_lab.core.dtypes import DTYPES, Layout
from gemm_lab.errors import UsageError

if TYPE_CHECKING:
    from gemm_lab.core.problem import Shape

__all__ = [
    "Alpha",
    "ArchName",
    "BackendChoice",
    "Batch",
    "Beta",
    "Bias",
    "Counters",
    "DTypeName",
    "Device",
    "Epilogue",
    "Json",
    "K",
    "LayoutName",
    "M",
    "N",
    "NoBaseline",
    "NoTime",
    "NoVerify",
    "OutDType",
    "Params",
    "Seed",
    "Shapes",
    "Sizes",
    "SmemPad",
    "Specialize",
    "Square",
    "Squares",
    "Templates",
    "Terms",
    "VariantArgument",
    "VariantArguments",
    "VariantOption",
    "VariantOptions",
    "one_variant",
    "optional_variant",
    "several_variants",
]  # fmt: skip

_VARIANT_HELP = "A variant's name, or the path of a .cu.j2 file."

VariantArgument = Annotated[
    str | None,
    typer.Argument(metavar="[VARIANT]", help=_VARIANT_HELP, autocompletion=completion.variants),
]
VariantArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[VARIANT]...",
        help="Variants, by name or by the path of a .cu.j2 file.",
        autocompletion=completion.variants,
    ),
]
VariantOption = Annotated[
    str | None,
    typer.Option(
        "--variant",
        metavar="VARIANT",
        help="The same as the argument.",
        autocompletion=completion.variants,
    ),
]
VariantOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="VARIANT",
        help="The same as the argument; may be repeated.",
        autocompletion=completion.variants,
    ),
]
Templates = Annotated[
    list[Path] | None,
    typer.Option(
        "--templates",
        metavar="DIR",
        help="A folder with variants of your own; may be repeated.",
    ),
]
M = Annotated[int | None, typer.Option("-m", metavar="M", help="Rows of A and C.")]
N = Annotated[int | None, typer.Option("-n", metavar="N", help="Columns of B and C.")]
K = Annotated[int | None, typer.Option("-k", metavar="K", help="Length of the sum.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="MxNxK", help="A shape; may be repeated where several fit."),
]
Square = Annotated[
    int | None, typer.Option("--square", metavar="N", help="M = N = K = this number.")
]
Squares = Annotated[
    list[int] | None,
    typer.Option(
        "--square", metavar="N", help="M = N = K = this number; may be repeated where several fit."
    ),
]
Batch = Annotated[int, typer.Option("--batch", metavar="COUNT", help="Number of products.")]
Counters = Annotated[
    bool,
    typer.Option(
        "--counters",
        help="On the emulator: traffic and instructions of all blocks, by source line.",
    ),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--param",
        metavar="NAME=VALUE",
        help="A tunable of the variant; may be repeated. Sweeps take 64,128 and start:stop:step.",
        autocompletion=completion.tunables,
    ),
]
DTypeName = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help=f"The arithmetic: {' '.join(DTYPES)}.",
        autocompletion=completion.dtypes,
    ),
]
OutDType = Annotated[
    str | None,
    typer.Option(
        "--out-dtype",
        metavar="DTYPE",
        help="Element type of C; that of the inputs when left out.",
        autocompletion=completion.out_dtypes,
    ),
]
LayoutName = Annotated[
    Layout | None,
    typer.Option(
        "--layout",
        help="Row-major: A then B; n as in A[M,K] B[K,N], t stored transposed. "
        "The variant's first when left out.",
        autocompletion=completion.layouts,
    ),
]
ArchName = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="sm_NN",
        help="Compile for this architecture, verbatim.",
        autocompletion=completion.arches,
    ),
]
Device = Annotated[
    int | None,
    typer.Option("--device", metavar="INDEX", help="Which GPU; the current one when left out."),
]
BackendChoice = Annotated[
    Literal["auto", "gpu", "emulator", "none"],
    typer.Option(
        "--backend",
        help="auto takes the GPU if there is one, else the emulator; none compiles only.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the inputs.")]
Json = Annotated[bool, typer.Option("--json", help="JSON alone on stdout.")]
Alpha = Annotated[float, typer.Option("--alpha", metavar="X", help="Factor of A @ B.")]
Beta = Annotated[float, typer.Option("--beta", metavar="X", help="Factor of the old C.")]
Epilogue = Annotated[
    str | None,
    typer.Option(
        "--epilogue",
        metavar="EXPRESSION",
        help="Applied to every element of the result, as in 'relu(x)' or 'x + 0.5 * c'.",
    ),
]
Bias = Annotated[bool, typer.Option("--bias", help="Add a row vector of N; `bias` in an epilogue.")]
Specialize = Annotated[bool, typer.Option("--specialize", help="Bake M, N and K into the kernel.")]
SmemPad = Annotated[
    int,
    typer.Option(
        "--smem-pad",
        metavar="BYTES",
        min=0,
        help="Dynamic shared memory added to each launch, to lower occupancy by hand.",
    ),
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Do not hold C against a reference.")]
NoTime = Annotated[bool, typer.Option("--no-time", help="Do not time.")]
NoBaseline = Annotated[bool, typer.Option("--no-baseline", help="Do not time cuBLAS beside it.")]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Which products."""

    shape: Shapes = None
    square: Squares = None
    m: M = None
    n: N = None
    k: K = None
    batch: Batch = 1

    def shapes(self) -> tuple[Shape, ...]:
        """All that were asked for."""
        return shapes_of(
            shape=self.shape or (), square=self.square or (), m=self.m, n=self.n, k=self.k,
            batch=self.batch,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What becomes of A @ B, and where."""

    alpha: Alpha = 1.0
    beta: Beta = 0.0
    epilogue: Epilogue = None
    bias: Bias = False
    arch: ArchName = None
    device: Device = None

    def facts(self) -> dict[str, Any]:
        """Arguments of `run`, `sweep` and `bench`; UsageError for a factor that is not finite."""
        return {
            **vars(self),
            "alpha": finite("--alpha", self.alpha),
            "beta": finite("--beta", self.beta),
        }


def optional_variant(argument: str | None, option: str | None) -> str | None:
    """The variant given either way; UsageError when the two ways disagree."""
    if argument is not None and option is not None and argument != option:
        raise UsageError(
            f"two variants: {argument} and --variant {option}", hint="name it once, either way"
        )
    return argument if argument is not None else option


def one_variant(argument: str | None, option: str | None) -> str:
    """The variant given either way; UsageError when there is none."""
    found = optional_variant(argument, option)
    if found is None:
        raise UsageError("which variant?", hint="name one; `gemm-lab list` shows them")
    return found


def several_variants(arguments: list[str] | None, options: list[str] | None) -> tuple[str, ...]:
    """Variants given either way, each once, in order."""
    return tuple(dict.fromkeys((*(arguments or ()), *(options or ()))))
