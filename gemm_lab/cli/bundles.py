"""Options that belong together, declared once: the fields of a dataclass.

    @dataclass(frozen=True, kw_only=True)
    class Form:
        as_json: Json = False
        as_md: Markdown = False

    @spread
    def command(*, file: File, form: Form) -> None: ...

Typer sees a command with FILE, --json and --md; the function is called with a Form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

__all__ = ["spread"]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its bundles in their place; all are keyword-only."""
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    bundles: dict[str, Any] = {name: hints[name] for name in own if is_dataclass(hints[name])}
    seen: list[inspect.Parameter] = []
    for name, parameter in own.items():
        if name not in bundles:
            seen.append(parameter.replace(annotation=hints[name]))
            continue
        types = get_type_hints(bundles[name], include_extras=True)
        seen += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=types[field.name],
            )
            for field in fields(bundles[name])
        ]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field.name: given.pop(field.name) for field in fields(bundle)})
        command(**given)

    called.__annotations__ = {p.name: p.annotation for p in seen}
    called.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    return called
