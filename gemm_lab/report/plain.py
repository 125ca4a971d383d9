"""Documents as plain text: no escape bytes, columns aligned by spaces."""

from __future__ import annotations

from gemm_lab.report.document import Block, Document, Facts, Table

__all__ = ["render_plain"]


def render_plain(document: Document) -> str:
    """The document, blocks apart by an empty line, ending in a newline."""
    return "\n\n".join(text for block in document if (text := _block(block))) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Facts):
        width = max((len(fact.name) for fact in block.facts), default=0)
        lines = [f"{fact.name:<{width}}  {fact.text}".rstrip() for fact in block.facts]
        return "\n".join([block.title, *lines] if block.title else lines)
    if isinstance(block, Table):
        return _table(block)
    return block.text.rstrip("\n")


def _table(table: Table) -> str:
    cells = (table.columns, *table.rows)
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]

    def line(row: tuple[str, ...]) -> str:
        placed = (
            text.rjust(width) if column in table.right else text.ljust(width)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        )
        return "  ".join(placed).rstrip()

    lines = [line(row) for row in cells]
    return "\n".join([table.title, *lines] if table.title else lines)
