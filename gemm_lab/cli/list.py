"""gemm-lab list"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gemm_lab.cli.options import Json, Templates
from gemm_lab.cli.output import is_terminal, print_document, print_json
from gemm_lab.core.kernel import format_value
from gemm_lab.core.measurement import SCHEMA
from gemm_lab.report.document import Document, Fact, Facts, Table
from gemm_lab.variants.catalogue import Catalogue, Survey
from gemm_lab.variants.variant import Variant

__all__ = ["list_variants"]


def list_variants(
    templates: Templates = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Ideas, and what each tunable means.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The ladder: every kernel, what it can do, its tunables with their defaults.

    Kernels of your own folders are included; a file that cannot be read is listed as broken.
    """
    found = Catalogue(templates or ()).survey()
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "variants": [_data(v) for v in found.ladder],
                "broken": [
                    {"name": name, "error": error.message, "hint": error.hint}
                    for name, error in found.broken.items()
                ],
            }
        )
    else:
        print_document(_verbose(found) if verbose else _brief(found))


def _data(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "title": variant.title,
        "idea": variant.idea,
        "after": variant.after,
        "path": str(variant.path),
        "dtypes": {
            name: {
                "layouts": support.layouts,
                "arch": support.arch,
                "outs": support.outs,
                "defaults": dict(support.defaults),
            }
            for name, support in variant.dtypes.items()
        },
        "tunables": {
            t.name: {
                "default": t.default,
                "kind": t.kind,
                "candidates": t.candidates,
                "minimum": t.minimum if t.kind == "integer" else None,
                "doc": t.doc,
            }
            for t in variant.tunables.values()
        },
    }


def _brief(found: Survey) -> Document:
    rows = tuple(
        (
            v.name,
            v.title,
            " ".join(v.dtypes),
            " ".join(dict.fromkeys(x for s in v.dtypes.values() for x in s.layouts)),
            " ".join(dict.fromkeys(s.arch for s in v.dtypes.values())),
            " ".join(f"{t.name}={format_value(t.default)}" for t in v.tunables.values()),
        )
        for v in found.ladder
    )
    if is_terminal():  # none is wide enough for every tunable of a row
        stacked = tuple(
            Fact(
                name=name,
                text="\n".join(filter(None, (title, f"{dtypes}; {layouts}; {arch}", tunables))),
            )
            for name, title, dtypes, layouts, arch, tunables in rows
        )
        return (Facts(facts=stacked), *_broken(found))
    table = Table(
        columns=("variant", "title", "dtypes", "layouts", "from", "tunables and defaults"),
        rows=rows,
    )
    return (table, *_broken(found))


def _verbose(found: Survey) -> Document:
    return (*(_whole(variant) for variant in found.ladder), *_broken(found))


def _whole(variant: Variant) -> Facts:
    facts = [Fact(name="idea", text=variant.idea)]
    if variant.after:
        facts.append(Fact(name="after", text=variant.after))
    facts.append(Fact(name="file", text=str(variant.path), style="quiet"))
    for name, support in variant.dtypes.items():
        own = " ".join(f"{k}={format_value(v)}" for k, v in support.defaults.items())
        text = f"layouts {' '.join(support.layouts)}, from {support.arch}"
        text += f", writes {' '.join(support.outs)}"
        facts.append(Fact(name=name, text=text + (f", with {own}" if own else "")))
    for t in variant.tunables.values():
        tried = " ".join(format_value(c) for c in t.candidates)
        facts.append(
            Fact(name=f"{t.name}={format_value(t.default)}", text=f"{t.doc} (tried: {tried})")
        )
    return Facts(title=f"{variant.name}: {variant.title}", facts=tuple(facts))


def _broken(found: Survey) -> tuple[Facts, ...]:
    if not found.broken:
        return ()
    facts = tuple(
        Fact(name=name, text=error.message, style="bad") for name, error in found.broken.items()
    )
    return (Facts(title="broken", facts=facts),)
