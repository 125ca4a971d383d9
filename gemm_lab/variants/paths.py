"""Where the lab's own templates lie: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

__all__ = ["template_root"]


def template_root() -> Path:
    """The folder with the lab's variants and lib/."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"
