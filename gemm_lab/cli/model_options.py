"""What `devices` and `model` share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemm_lab.cli import completion
from gemm_lab.errors import UsageError

if TYPE_CHECKING:
    from gemm_lab.model.devices import Device

__all__ = ["DeviceFile", "GpuName", "card_named", "device_table", "user_device_file"]

DeviceFile = Annotated[
    Path | None,
    typer.Option(
        "--device-file",
        metavar="FILE",
        help="TOML with cards of your own; else GEMM_LAB_DEVICES, else devices.toml in the "
        "configuration folder.",
    ),
]
GpuName = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        help="A card of `gemm-lab devices`; the GPU at hand when left out.",
        autocompletion=completion.gpus,
    ),
]


def user_device_file() -> Path:
    """Where a user's cards and measured ceilings are kept unless a file is named."""
    named = os.environ.get("GEMM_LAB_DEVICES")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_config_dir("gemm-lab", appauthor=False)) / "devices.toml"


def device_table(file: Path | None) -> dict[str, Device]:
    """The table with the user's additions; a file that was named must exist."""
    from gemm_lab.model.device_file import load_devices

    if file is not None and not file.is_file():
        raise UsageError(f"{file} is no file", hint="--device-file takes a TOML file")
    return load_devices(file or user_device_file())


def card_named(name: str | None, table: dict[str, Device]) -> Device:
    """The card of that name, or the GPU at hand."""
    from gemm_lab.gpu import NoGpu, find_gpu
    from gemm_lab.model.devices import find_device

    if name is None:
        found = find_gpu()
        if isinstance(found, NoGpu):
            raise UsageError(
                f"which card? there is none here: {found.reason}",
                hint=f"--gpu NAME, one of {', '.join(table)}",
            )
        name = found.name
    return find_device(name, table)
