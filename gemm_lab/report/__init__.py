"""Text and tables from Measurements: documents as data, drawn plain or on a terminal."""

from gemm_lab.report.document import Block, Document, Fact, Facts, Paragraph, Table
from gemm_lab.report.plain import render_plain
from gemm_lab.report.run import run_document

__all__ = [
    "Block",
    "Document",
    "Fact",
    "Facts",
    "Paragraph",
    "Table",
    "render_plain",
    "run_document",
]
