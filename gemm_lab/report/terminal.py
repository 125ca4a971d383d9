"""Documents on a terminal, through Rich; imported only where there is one."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gemm_lab.report.document import Block, Document, Facts, Style, Table

__all__ = ["print_document"]

MAX_WORD = 20
GAP = 2  # between two columns

_STYLES: dict[Style, str] = {
    "": "",
    "good": "bold green",
    "bad": "bold red",
    "warning": "yellow",
    "quiet": "dim",
    "strong": "bold",
}


def print_document(document: Document, file: TextIO | None = None) -> None:
    """Draw the document; Rich obeys NO_COLOR and the width of the terminal."""
    console = Console(file=file, highlight=False, soft_wrap=False)
    first = True
    for block in document:
        if not first:
            console.print()
        first = False
        _print(console, block)


def _print(console: Console, block: Block) -> None:
    if isinstance(block, Facts):
        if block.title:
            console.print(Text(block.title, style="bold"))
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for fact in block.facts:
            grid.add_row(Text(fact.name), Text(fact.text, style=_STYLES[fact.style]))
        console.print(grid)
    elif isinstance(block, Table):
        if block.title:  # Rich would wrap its own to the width of the table
            console.print(Text(block.title, style="bold"), soft_wrap=True)
        console.print(_table(block, console.width))
    else:
        console.print(Text(block.text, style=_STYLES[block.style]), soft_wrap=True)


def _table(table: Table, room: int) -> RichTable:
    drawn = RichTable(
        header_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column, width in zip(table.columns, _widths(table, room), strict=True):
        drawn.add_column(
            Text(column),
            justify="right" if column in table.right else "left",
            overflow="fold",
            width=width,
        )
    for index, row in enumerate(table.rows):
        style = _STYLES[table.styles[index]] if table.styles else ""
        drawn.add_row(*(Text(cell) for cell in row), style=style)
    return drawn


def _widths(table: Table, room: int) -> list[int]:
    """Columns as wide as their cells; where that is too much, no narrower than a word of theirs.

    Rich alone would narrow the widest column first, and break its words.
    """
    wanted, least = [], []
    for index, column in enumerate(table.columns):
        cells = [row[index] for row in table.rows]
        whole = index == 0 or column in table.right
        words = [*column.split(), *(w for c in cells for w in ([c] if whole else c.split()))]
        least.append(min(max(map(len, words), default=1), MAX_WORD))
        wanted.append(max(len(column), *map(len, cells), 1))
    space = room - GAP * len(wanted) - sum(least)
    widths = list(least)
    while space > 0 and widths != wanted:
        short = [i for i, width in enumerate(widths) if width < wanted[i]]
        if not short:
            break
        widths[max(short, key=lambda i: wanted[i] / widths[i])] += 1
        space -= 1
    return widths
