"""What is to be shown, before anybody draws it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Block", "Document", "Fact", "Facts", "Paragraph", "Style", "Table"]

Style = Literal["", "good", "bad", "warning", "quiet", "strong"]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A name and what is known of it."""

    name: str
    text: str
    style: Style = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts, one a line, the texts in one column."""

    facts: tuple[Fact, ...]
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns with a heading each; `right` names those that are numbers.

    `styles` are those of the rows, "" for each when left out.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    title: str = ""
    styles: tuple[Style, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells under {len(self.columns)} columns: {row}")


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """Text as it stands; lines are kept."""

    text: str
    style: Style = ""


Block = Facts | Table | Paragraph
Document = tuple[Block, ...]
