"""The stations of the road: specification, rendered source, compiled kernel, launch plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gemm_lab.core.dtypes import DType, Layout, ScalarType
from gemm_lab.core.problem import Alignment, Shape

__all__ = [
    "SWIZZLES",
    "CompiledKernel",
    "Config",
    "KernelLaunch",
    "KernelSpec",
    "LaunchPlan",
    "RenderedKernel",
    "Resources",
    "TensorMapSpec",
    "TunableValue",
    "format_config",
    "format_value",
    "heaviest_launch",
]

TunableValue = int | str | bool
Swizzle = Literal["none", "32B", "64B", "128B"]
SWIZZLES: tuple[Swizzle, ...] = ("none", "32B", "64B", "128B")


class Config(Mapping[str, TunableValue]):
    """Values of a variant's tunables: immutable, hashable, in the order of the file."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, TunableValue]) -> None:
        self._values = dict(values)
        self._hash = hash(tuple(sorted((k, repr(v)) for k, v in self._values.items())))

    def __getitem__(self, name: str) -> TunableValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(other) == self._values

    def __reduce__(self) -> tuple[type[Config], tuple[dict[str, TunableValue]]]:
        # Hashes of text differ from process to process: the other side makes its own.
        return (Config, (self._values,))

    def __repr__(self) -> str:
        return f"Config({self})"

    def __str__(self) -> str:
        """BM=128 BN=128, as -p takes each."""
        return format_config(self._values)


def format_config(values: Mapping[str, TunableValue]) -> str:
    """BM=128 BN=128, as -p takes each."""
    return " ".join(f"{name}={format_value(value)}" for name, value in values.items())


def format_value(value: TunableValue) -> str:
    """true/false for switches, else the value itself: what -p reads back."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """All that the compiled code depends on. A new shape makes a new one only by its alignment."""

    variant: str
    config: Config
    dtype: DType
    out: ScalarType
    layout: Layout
    alignment: Alignment
    arch: str
    epilogue: str | None = None
    bias: bool = False
    specialize: Shape | None = None


@dataclass(frozen=True, kw_only=True)
class RenderedKernel:
    """CUDA C++ text and how to compile it.

    `name` is a readable word for folders and messages; `options` are NVRTC's, without the arch.
    `name_expressions` are C++ names of entries, "kernel<32>", whose mangled names are wanted.
    """

    name: str
    source: str
    entries: tuple[str, ...]
    arch: str
    options: tuple[str, ...] = ()
    name_expressions: tuple[str, ...] = ()

    @property
    def source_sha256(self) -> str:
        """Of the source, in hexadecimal."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What ptxas reports of one entry; bytes a block for shared memory, a thread for spills."""

    registers_per_thread: int
    static_smem_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """Machine code on disk, ready for any backend.

    `cubin_path` lies in the cache (or a temporary folder); `ptx` is what the emulator runs.
    `lowered_names` maps each name expression to its name in the PTX.
    """

    rendered: RenderedKernel
    cubin_path: Path
    ptx: str
    log: str
    resources: Mapping[str, Resources]
    options: tuple[str, ...]
    nvrtc_version: str
    header_set: str
    cache_hit: bool
    compile_ms: float | None = None
    lowered_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def ptx_hash(self) -> str:
        """SHA-256 of the PTX, in hexadecimal."""
        return hashlib.sha256(self.ptx.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class TensorMapSpec:
    """A TMA tensor map, before it has an address.

    `dims` are elements, innermost first; `strides_bytes` are those of dims 1 and up; `box` is
    the tile that one instruction moves, in elements. Out-of-bounds elements read as zero.
    `round_tf32` asks the copy engine to round fp32 to tf32 on the way. A map with a
    `workspace_offset_bytes` lies over the call's workspace, from there on, not over the operand.
    """

    operand: Literal["a", "b", "c"]
    dtype: ScalarType
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Swizzle = "none"
    round_tf32: bool = False
    workspace_offset_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """One launch: its entry, geometry (x, y, z), dynamic shared memory and parameter names."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    params: tuple[str, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Every launch of one call, in order, with what the host must prepare."""

    launches: tuple[KernelLaunch, ...]
    workspace_bytes: int = 0
    workspace_zero: bool = False
    tensor_maps: Mapping[str, TensorMapSpec] = field(default_factory=dict)


def heaviest_launch(
    launches: Sequence[KernelLaunch], resources: Mapping[str, Resources]
) -> KernelLaunch:
    """The launch that does the work: that of most registers a block, then of most shared memory.

    Helpers (copies before it, sums of pieces behind it) need less. `resources` may lack entries.
    """

    def need(launch: KernelLaunch) -> tuple[int, int, int]:
        x, y, z = launch.block
        found = resources.get(launch.entry)
        registers = 0 if found is None else found.registers_per_thread
        static = 0 if found is None else found.static_smem_bytes
        return (registers * x * y * z, static + launch.smem_bytes, x * y * z)

    return max(launches, key=need)
