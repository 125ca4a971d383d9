"""Documents as Markdown, for a README or an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemm_lab.report.document import Document, Facts, Table

__all__ = ["markdown_table", "render_markdown"]


def render_markdown(document: Document) -> str:
    """The document, blocks apart by an empty line, ending in a newline."""
    parts: list[str] = []
    for block in document:
        if isinstance(block, Table):
            title = f"**{block.title}**\n\n" if block.title else ""
            parts.append(title + markdown_table(block.columns, block.rows, right=block.right))
        elif isinstance(block, Facts):
            lines = [f"- {f.name}: {f.text}" for f in block.facts]
            parts.append("\n".join([f"**{block.title}**\n", *lines] if block.title else lines))
        else:
            parts.append(block.text)
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[str] = frozenset()
) -> str:
    """A table; bars and line breaks inside cells are escaped, `right` columns stand right."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", r"\|").replace("\n", " ") for c in cells) + " |"

    rule = "|" + "|".join("---:" if name in right else "---" for name in header) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)]) + "\n"
