"""One kernel on disk: four files and a checksum of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gemm_lab.core.kernel import Resources

__all__ = ["BAD", "SCHEMA", "CachedKernel", "read_entry", "write_entry"]

SCHEMA = 1
FILES = ("kernel.cu", "kernel.ptx", "kernel.cubin")
# What reading an entry that is not whole may raise.
BAD = (
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    ValueError,
    KeyError,
    TypeError,
)


@dataclass(frozen=True, kw_only=True)
class CachedKernel:
    """An entry as it was read or is to be written; `folder` is where it lies."""

    source: str
    ptx: str
    cubin: bytes
    log: str
    resources: Mapping[str, Resources]
    arch: str
    options: tuple[str, ...]
    nvrtc_version: str
    header_set: str
    compile_ms: float
    folder: Path | None = None
    lowered_names: Mapping[str, str] = field(default_factory=dict)


def write_entry(folder: Path, key: str, kernel: CachedKernel) -> None:
    """Write an entry into a new folder; OSError when there is one or the disk is full."""
    contents = {
        "kernel.cu": kernel.source.encode(),
        "kernel.ptx": kernel.ptx.encode(),
        "kernel.cubin": kernel.cubin,
    }
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "key": key,
        "arch": kernel.arch,
        "options": list(kernel.options),
        "versions": {"nvrtc": kernel.nvrtc_version, "headers": kernel.header_set},
        "resources": {name: asdict(used) for name, used in kernel.resources.items()},
        "sha256": {name: _sha256(data) for name, data in contents.items()},
        "compile_ms": round(kernel.compile_ms, 3),
        "log": kernel.log,
    }
    if kernel.lowered_names:
        document["lowered_names"] = dict(kernel.lowered_names)
    document["check"] = _document_check(document)
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    (folder / "kernel.json").write_text(json.dumps(document, indent=1), encoding="ascii")


def read_entry(folder: Path, key: str) -> CachedKernel:
    """The entry, every checksum tried. ValueError says what is wrong."""
    document: Any = json.loads((folder / "kernel.json").read_bytes())
    if not isinstance(document, dict):
        raise ValueError("kernel.json holds no object")
    if document.pop("check", None) != _document_check(document):
        raise ValueError("kernel.json does not match its checksum")
    if document["schema"] != SCHEMA or document["key"] != key:
        raise ValueError("it belongs to another key")
    contents = {name: (folder / name).read_bytes() for name in FILES}
    for name, data in contents.items():
        if _sha256(data) != document["sha256"][name]:
            raise ValueError(f"{name} does not match its checksum")
    return CachedKernel(
        source=contents["kernel.cu"].decode(),
        ptx=contents["kernel.ptx"].decode(),
        cubin=contents["kernel.cubin"],
        log=document["log"],
        resources={n: Resources(**used) for n, used in document["resources"].items()},
        arch=document["arch"],
        options=tuple(document["options"]),
        nvrtc_version=document["versions"]["nvrtc"],
        header_set=document["versions"]["headers"],
        compile_ms=document["compile_ms"],
        folder=folder,
        lowered_names=document.get("lowered_names", {}),
    )


def _document_check(document: Mapping[str, Any]) -> str:
    return _sha256(json.dumps(document, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
