"""Values of the front matter: texts, tables, expressions, each refused with its place."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemm_lab.core.params import PARAMS
from gemm_lab.errors import VariantError
from gemm_lab.variants.expressions import FUNCTIONS, Expression, ExpressionError
from gemm_lab.variants.lines import line_in

__all__ = ["Reader"]


class Reader:
    """A variant file split into TOML and CUDA; reads values and says where one is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        lines = text.splitlines()
        if not lines or lines[0].strip() != "/*---":
            raise VariantError(
                "no front matter",
                file=str(path),
                line=1,
                hint="the file begins with a line /*---, TOML, and a line ---*/",
            )
        ends = [i for i, line in enumerate(lines) if line.strip() == "---*/"]
        if not ends:
            raise VariantError("the front matter never ends", file=str(path), line=1,
                               hint="close it with a line ---*/")  # fmt: skip
        self.front = lines[1 : ends[0]]
        # The body keeps its line numbers, so that Jinja's errors point into the file.
        self.body = "\n" * (ends[0] + 1) + "\n".join(lines[ends[0] + 1 :]) + "\n"
        try:
            self.data: dict[str, Any] = tomllib.loads("\n".join(self.front))
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"at line (\d+)", str(error))
            line = int(place[1]) + 1 if place else ends[0]
            raise VariantError(f"TOML: {error}", file=str(path), line=line) from None
        if not "".join(lines[ends[0] + 1 :]).strip():
            raise VariantError("no CUDA after the front matter", file=str(path), line=ends[0] + 1)

    def fail(self, key: str, message: str, hint: str | None = None) -> VariantError:
        """The error of a key, with its line."""
        return VariantError(
            message, file=str(self.path), line=line_in(self.text, key), key=key, hint=hint
        )

    def table(self, value: Any, key: str, allowed: set[str]) -> dict[str, Any]:
        """A table without other keys than the allowed ones."""
        if not isinstance(value, dict):
            raise self.fail(key, f"must be a table, not {type(value).__name__}")
        for name in value:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, 1)
                raise self.fail(
                    f"{key}.{name}" if key else name,
                    f"unknown key {name!r}",
                    f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(allowed))}",
                )
        return value

    def table_of(self, value: Any, key: str) -> dict[str, Any]:
        """A table whose keys are names that its author gave."""
        if not isinstance(value, dict):
            raise self.fail(key, f"must be a table, not {type(value).__name__}")
        return value

    def string(self, table: Mapping[str, Any], name: str, key: str, default: str | None) -> str:
        """A text; without a default it is needed and not empty."""
        value = table.get(name, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self.fail(f"{key}.{name}".lstrip("."), "must be a text and is needed")
        return value

    def expression(self, text: Any, key: str, known: set[str]) -> Expression:
        """An expression that reads nothing but known names."""
        if isinstance(text, bool) or not isinstance(text, str | int):
            raise self.fail(key, f"must be a text or a whole number, not {text!r}")
        try:
            expression = Expression(str(text))
        except ExpressionError as error:
            raise self.fail(key, str(error)) from None
        unknown = expression.unknown(known)
        if unknown:
            near = difflib.get_close_matches(unknown[0], known, 1)
            raise self.fail(
                key,
                f"{text!r} reads {unknown[0]}, which nothing defines",
                f"did you mean {near[0]}?"
                if near
                else f"known here: {', '.join(sorted(known))}; functions {', '.join(FUNCTIONS)}",
            )
        return expression

    def triple(
        self, value: Any, key: str, known: set[str]
    ) -> tuple[Expression, Expression, Expression]:
        """One to three expressions as (x, y, z); what is left out is 1."""
        if not isinstance(value, list) or not 1 <= len(value) <= 3:
            raise self.fail(key, "must be a list of one to three expressions: [x, y, z]")
        padded = [*value, 1, 1][:3]
        x, y, z = (self.expression(item, key, known) for item in padded)
        return x, y, z

    def params(self, value: Any, key: str) -> tuple[str, ...]:
        """Names of the vocabulary of kernel parameters, each once."""
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fail(key, "must be a list of parameter names")
        for name in value:
            if name not in PARAMS:
                near = difflib.get_close_matches(name, PARAMS, 1)
                raise self.fail(
                    key,
                    f"unknown parameter {name!r}",
                    f"did you mean {near[0]}?" if near else f"known: {', '.join(PARAMS)}",
                )
        if len(set(value)) != len(value):
            raise self.fail(key, "names a parameter twice")
        return tuple(value)

    def word(
        self,
        table: Mapping[str, Any],
        name: str,
        key: str,
        default: str,
        words: Sequence[str],
        known: set[str],
    ) -> Expression:
        """One of some words as it stands, or an expression that gives one."""
        text = self.string(table, name, key, default)
        return self.expression(f"'{text}'" if text in words else text, f"{key}.{name}", known)
