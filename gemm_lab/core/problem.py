"""The question: which product, of what, laid out how."""

from __future__ import annotations

from dataclasses import dataclass

from gemm_lab.core.dtypes import DType, Layout, ScalarType
from gemm_lab.errors import UsageError

__all__ = ["MAX_EXTENT", "Alignment", "GemmProblem", "Shape", "Strides"]

# Below 2^31 by more than any tile, so that an index past the edge cannot overflow an int.
MAX_EXTENT = 2**31 - 2**16


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Rows of A, columns of B, the length of the sum, and how many such products."""

    m: int
    n: int
    k: int
    batch: int = 1

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            value = getattr(self, name)
            if not 0 <= value <= MAX_EXTENT:
                raise UsageError(
                    f"{name} = {value} is out of range", hint=f"it must lie in 0 to {MAX_EXTENT}"
                )

    @property
    def flop_count(self) -> int:
        """2*m*n*k*batch: one multiplication and one addition a term."""
        return 2 * self.m * self.n * self.k * self.batch

    def __str__(self) -> str:
        text = f"{self.m}x{self.n}x{self.k}"
        return text if self.batch == 1 else f"{self.batch}x[{text}]"


@dataclass(frozen=True, kw_only=True)
class Strides:
    """Leading dimensions and batch strides, all in elements.

    `lda` is the distance between two rows of A as stored: of A[M,K] for layout n, of A[K,M] for t.
    """

    lda: int
    ldb: int
    ldc: int
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """The widest vector in elements (at most 16 bytes) with which each matrix may be read.

    A width v is allowed when the address, the leading dimension, the batch stride and the
    contiguous extent are all multiples of v elements: a vector then lies whole inside a row
    or whole outside. `tma_*` tells whether a tensor map can describe the matrix: address, leading
    dimension and batch stride are multiples of 16 bytes, whatever the extent.
    """

    vec_a: int = 1
    vec_b: int = 1
    vec_c: int = 1
    tma_a: bool = False
    tma_b: bool = False
    tma_c: bool = False


@dataclass(frozen=True, kw_only=True)
class GemmProblem:
    """C = epilogue(alpha * A @ B + beta * C), row-major, A and B stored as `layout` says.

    `epilogue` is the text of the expression or None; `bias` says whether a row vector of N
    elements of the output type goes with it.
    """

    shape: Shape
    dtype: DType
    out: ScalarType
    layout: Layout = "nn"
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: str | None = None
    bias: bool = False

    def packed_strides(self) -> Strides:
        """Strides of arrays without gaps."""
        s = self.shape
        return Strides(
            lda=max(s.k if self.layout[0] == "n" else s.m, 1),
            ldb=max(s.n if self.layout[1] == "n" else s.k, 1),
            ldc=max(s.n, 1),
            stride_a=s.m * s.k,
            stride_b=s.k * s.n,
            stride_c=s.m * s.n,
        )

    def alignment(
        self, strides: Strides, addresses: tuple[int, int, int] | None = None
    ) -> Alignment:
        """Widest vectors for these strides and addresses (bytes; None: aligned to 256)."""
        s = self.shape
        a, b, c = addresses or (0, 0, 0)
        size = self.dtype.storage.size_bytes
        contiguous_a = s.k if self.layout[0] == "n" else s.m
        contiguous_b = s.n if self.layout[1] == "n" else s.k
        batch = s.batch > 1
        out_size = self.out.size_bytes
        step_a, step_b, step_c = (
            (strides.stride_a, strides.stride_b, strides.stride_c) if batch else (0, 0, 0)
        )
        return Alignment(
            vec_a=_widest(size, a, strides.lda, contiguous_a, step_a),
            vec_b=_widest(size, b, strides.ldb, contiguous_b, step_b),
            vec_c=_widest(out_size, c, strides.ldc, s.n, step_c),
            tma_a=_widest(size, a, strides.lda, step_a) * size == 16,
            tma_b=_widest(size, b, strides.ldb, step_b) * size == 16,
            tma_c=_widest(out_size, c, strides.ldc, step_c) * out_size == 16,
        )


def _widest(size_bytes: int, address: int, *extents: int) -> int:
    """Largest power of two of elements, at most 16 bytes, that divides the address and extents."""
    width = 16 // size_bytes
    while width > 1 and (address % (width * size_bytes) or any(e % width for e in extents)):
        width //= 2
    return width
