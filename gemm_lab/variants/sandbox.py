"""Jinja for files of strangers: no reach into Python, and an end to time and memory.

Whoever renders opens a `budget`. Every turn of a loop, every call and every text that is put out or
put together takes from it what it costs; single numbers and texts have a size of their own that
they may not pass. Only filters and methods whose cost is bounded by what goes in are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

__all__ = ["BoundedEnvironment", "budget"]

# Steps and characters of one rendering: 80 times what the longest kernel here takes.
_BUDGET = 2**22
_STEP, _CALL = 16, 64
_MOST_CHARACTERS = 2**20
_MOST_BITS = 256
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{4,}|\*)")
_FILTERS = {
    "abs", "count", "default", "d", "first", "float", "int", "items", "last", "length",
    "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "select",
    "selectattr", "sort", "string", "sum", "title", "trim", "unique", "upper",
}  # fmt: skip
_TEXT_METHODS = {
    "capitalize", "count", "endswith", "find", "index", "isdigit", "islower", "isupper", "lower",
    "lstrip", "removeprefix", "removesuffix", "rstrip", "split", "splitlines", "startswith",
    "strip", "title", "upper",
}  # fmt: skip

_left: ContextVar[list[int] | None] = ContextVar("budget", default=None)


@contextmanager
def budget() -> Iterator[None]:
    """What one rendering may take; SecurityError inside when it takes more."""
    token = _left.set([_BUDGET])
    try:
        yield
    finally:
        _left.reset(token)


def _spend(cost: int) -> None:
    left = _left.get()
    if left is None:  # while a template is compiled
        return
    left[0] -= cost
    if left[0] < 0:
        raise SecurityError(
            f"it takes more than {_BUDGET:,} steps and characters: a loop that is too long?"
        )


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | range | dict) else 1


def _checked(value: Any) -> Any:
    """The value, if it is no longer than a value may be."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise SecurityError(f"a number has more than {_MOST_BITS} bits")
    if isinstance(value, str | list | tuple) and len(value) > _MOST_CHARACTERS:
        raise SecurityError(f"a text or list is longer than {_MOST_CHARACTERS:,}")
    return value


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with what could take for ever or fill the memory counted or left out."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, **settings: Any) -> None:
        super().__init__(finalize=_put_out, **settings)
        self.filters = {name: _counted(self.filters[name]) for name in sorted(_FILTERS)}
        self.filters |= {"join": _join, _CONCAT: _concat, _TURN: _turn, _WEIGH: _weigh}
        del self.globals["lipsum"]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic, refused before its result can be too large."""
        if operator == "**":
            bits = left.bit_length() * right if isinstance(left, int) else 0
            if not isinstance(right, int) or bits > _MOST_BITS:
                raise SecurityError(f"** gives more than {_MOST_BITS} bits")
        elif operator == "*":
            for text, count in ((left, right), (right, left)):
                sized = isinstance(text, str | list | tuple) and isinstance(count, int)
                if sized and len(text) * count > _MOST_CHARACTERS:
                    raise SecurityError(f"* gives more than {_MOST_CHARACTERS:,} characters")
        elif operator == "%" and isinstance(left, str) and _WIDE.search(left):
            raise SecurityError(f"a width in {left!r} is too large")
        return _checked(super().call_binop(context, operator, left, right))

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call; methods of texts that could make long ones are not there."""
        _spend(_CALL)
        return super().call(__context, __obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of texts only the methods that make no long ones."""
        if isinstance(obj, str):
            return attr in _TEXT_METHODS
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """str.format is no method that can be had here, so it needs no care of its own."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Counting().visit(super()._parse(source, name, filename))
        tree.body.insert(0, _turn_node(tree, 1))
        tree.set_environment(self)
        return tree


# ---- what is counted: turns of loops, bodies of macros and blocks, comparisons, texts, output ----

_TURN, _CONCAT, _WEIGH = "turn ", "concat ", "weigh "  # no file can write a name with a space


@pass_context  # and so never evaluated while a template is compiled
def _turn(_context: Context, cost: int) -> bool:
    _spend(cost)
    return True


@pass_context
def _weigh(_context: Context, value: Any) -> Any:
    _spend(_size(value))
    return value


@pass_context
def _concat(_context: Context, parts: list[Any]) -> str:
    found = "".join(str(_checked(part)) for part in parts)
    _spend(len(found))
    return str(_checked(found))


@pass_context
def _join(_context: Context, value: Any, between: str = "") -> str:
    found, size = [], 0
    for part in value:
        found.append(str(_checked(part)))
        size += len(found[-1]) + len(between)
        _spend(_STEP)
        if size > _MOST_CHARACTERS:
            raise SecurityError(f"join gives more than {_MOST_CHARACTERS:,} characters")
    _spend(size)
    return between.join(found)


@pass_context
def _put_out(_context: Context, value: Any) -> Any:
    _spend(len(value) if isinstance(value, str) else _STEP)
    return _checked(value)


def _counted(function: Any) -> Any:
    """A filter that costs as much as what it is given, and what it gives, is long."""

    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        _spend(sum(map(_size, args)))
        found = function(*args, **kwargs)
        _spend(_size(found))
        return _checked(found)

    return filtered


def _turn_node(body: nodes.Node, line: int) -> nodes.ExprStmt:
    """A statement that spends what the fixed text of a body costs, and a step."""
    cost = _STEP + sum(len(x.data) for x in body.find_all(nodes.TemplateData))
    return nodes.ExprStmt(_spending(nodes.Const(cost), _TURN), lineno=line)


def _spending(value: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None)


class _Counting(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.test is not None:  # items that it passes over are looked at all the same
            node.test = nodes.And(_spending(nodes.Const(_STEP), _TURN), node.test)
        return self._body(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._body(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:
        return self._body(node)

    def _body(self, node: Any) -> nodes.Node:
        found: Any = self.generic_visit(node)
        found.body.insert(0, _turn_node(found, node.lineno))
        return found  # type: ignore[no-any-return]

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        found: Any = self.generic_visit(node)
        for operand in found.ops:
            operand.expr = _spending(operand.expr, _WEIGH)
        return found  # type: ignore[no-any-return]

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        parts: nodes.Concat = self.generic_visit(node)  # type: ignore[assignment]
        return _spending(nodes.List(parts.nodes, lineno=node.lineno), _CONCAT)
