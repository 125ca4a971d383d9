"""The backend that stands for no device: everything up to the launch, and no launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["NoBackend"]


@dataclass(frozen=True, kw_only=True)
class NoBackend:
    """Takes kernels for `arch`, holds no memory and runs nothing.

    Plans are made for one multiprocessor: nobody knows how many there would be.
    """

    arch: str
    name: Literal["none"] = "none"
    device_name: str = "none"
    sm_count: int = 1

    def load(self, compiled: Any) -> None:
        """Nothing to load."""

    def prepare(self, loaded: Any, launch: Any, arguments: Any) -> _NoLaunch:
        """A launch that is never made."""
        return _NoLaunch()


class _NoLaunch:
    def launch(self, addresses: Any, stream: int | None = None) -> None:
        raise AssertionError("nothing can be launched without a device")
