"""Expressions of the front matter: Jinja syntax, whole numbers, names checked when a file is read.

Only arithmetic, comparison, and/or/not, `x if c else y` and a few functions are let through. `**`
is refused because one line of it can keep a machine busy for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.exceptions import UndefinedError
from jinja2.sandbox import SandboxedEnvironment

__all__ = ["FUNCTIONS", "Expression", "ExpressionError"]

Value = int | bool | str


class ExpressionError(ValueError):
    """An expression that cannot be read or evaluated; the caller adds file and key."""


def ceil_div(a: int, b: int) -> int:
    """Smallest whole number not under a/b."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """Smallest multiple of b not under a."""
    return ceil_div(a, b) * b


FUNCTIONS: dict[str, Callable[..., int]] = {
    "ceil_div": ceil_div,
    "round_up": round_up,
    "min": min,
    "max": max,
    "abs": abs,
}

_ALLOWED = (
    nodes.Template, nodes.Output, nodes.Const, nodes.Name, nodes.Add, nodes.Sub, nodes.Mul,
    nodes.FloorDiv, nodes.Div, nodes.Mod, nodes.Neg, nodes.Pos, nodes.Compare, nodes.Operand,
    nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.Call, nodes.Tuple, nodes.List,
)  # fmt: skip


class _Environment(SandboxedEnvironment):
    """Arithmetic is intercepted, so that a text times a number cannot fill the memory."""

    intercepted_binops = frozenset({"*", "+", "-", "/", "//", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for side in (left, right):
            if not isinstance(side, int | float):
                raise ExpressionError(f"{operator} needs numbers, got {side!r}")
        return super().call_binop(context, operator, left, right)


_ENVIRONMENT = _Environment(undefined=StrictUndefined)
_ENVIRONMENT.globals = dict(FUNCTIONS)


class Expression:
    """One expression: checked when it is made, compiled once, when it is first evaluated.

    `names` are the variables that it reads.
    """

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.names = _read(text)
        self._evaluate: Callable[..., Any] | None = None

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Names that the expression reads and nobody defines."""
        return sorted(self.names - set(known) - set(FUNCTIONS))

    def __call__(self, scope: Mapping[str, Value]) -> Value:
        """The value in a scope; ExpressionError when it is no whole number, truth value or word."""
        if self._evaluate is None:
            self._evaluate = _compiled(self.text)
        try:
            value = self._evaluate(scope)
        except ZeroDivisionError:
            raise ExpressionError(f"{self.text!r} divides by zero") from None
        except (TypeError, UndefinedError, OverflowError, ValueError) as error:
            raise ExpressionError(f"{self.text!r}: {error}") from None
        if isinstance(value, float):
            raise ExpressionError(
                f"{self.text!r} gives {value}, which is no whole number: divide with //"
            )
        if not isinstance(value, int | str):
            raise ExpressionError(f"{self.text!r} gives {value!r}, which is no whole number")
        return value

    def integer(self, scope: Mapping[str, Value]) -> int:
        """The value as a whole number."""
        value = self(scope)
        if isinstance(value, str):
            raise ExpressionError(f"{self.text!r} gives {value!r}, which is no whole number")
        return int(value)


@lru_cache(maxsize=4096)
def _read(text: str) -> frozenset[str]:
    """Variables of a text that is one expression of the small language; ExpressionError if not."""
    try:
        tree = _ENVIRONMENT.parse("{{ " + text + " }}")
    except TemplateSyntaxError as error:
        raise ExpressionError(f"{text!r} cannot be read: {error.message}") from None
    return frozenset(_names(tree, text))


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Callable[..., Any]:
    return _ENVIRONMENT.compile_expression(text, undefined_to_none=False)


def _names(tree: nodes.Node, text: str) -> set[str]:
    """Variables of a tree; refuses what is not in the small language."""
    found: set[str] = set()
    pending: list[nodes.Node] = [tree]
    if len(tree.find(nodes.Output).nodes if tree.find(nodes.Output) else ()) != 1:  # type: ignore[union-attr]
        raise ExpressionError(f"{text!r} is not one expression")
    while pending:
        node = pending.pop()
        if isinstance(node, nodes.Pow):
            raise ExpressionError(f"{text!r}: ** is not allowed; write the product")
        if not isinstance(node, _ALLOWED):
            raise ExpressionError(f"{text!r}: {type(node).__name__.lower()} is not allowed here")
        if isinstance(node, nodes.Call) and not (
            isinstance(node.node, nodes.Name) and node.node.name in FUNCTIONS
        ):
            raise ExpressionError(f"{text!r}: functions are {', '.join(FUNCTIONS)}")
        if isinstance(node, nodes.Name):
            found.add(node.name)
        pending.extend(node.iter_child_nodes())
    return found
