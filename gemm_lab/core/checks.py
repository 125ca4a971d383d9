"""What `doctor` finds: one line of health, and the mend where something is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding. `mend` is the command or step that puts it right; empty when all is well."""

    name: str
    status: Literal["ok", "warning", "error", "absent"]
    detail: str
    mend: str = ""
