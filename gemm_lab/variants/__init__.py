"""Variant files: front matter, expressions, rules, the catalogue, rendering."""

from gemm_lab.variants.catalogue import Catalogue
from gemm_lab.variants.epilogue import Epilogue, parse_epilogue
from gemm_lab.variants.frontmatter import load_variant
from gemm_lab.variants.render import render
from gemm_lab.variants.resolve import Facts, config_of, make_spec, plan, spec_scope
from gemm_lab.variants.variant import Variant

__all__ = [
    "Catalogue",
    "Epilogue",
    "Facts",
    "Variant",
    "config_of",
    "load_variant",
    "make_spec",
    "parse_epilogue",
    "plan",
    "render",
    "spec_scope",
]
