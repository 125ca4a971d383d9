"""What a kernel should have computed: a small language over its arguments.

    C = A @ B            C = alpha*(A @ B.T) + beta*C        S = sum(A, 1)

Names are the arguments as they were before the launch. Values are taken in float64 (integers
exactly), and beside each value goes the sum of the magnitudes of its terms, from which the
tolerance follows: u * (sqrt(terms) + 4) * 8 of it, with u of the arithmetic, and half a unit of the
result's own type.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gemm_lab.errors import UsageError
from gemm_lab.lab.expect_bound import Finding, bound_of, compare, is_whole

__all__ = ["Expectation", "read_expectation"]

Array = Any
_KNOWN = "names of arguments, numbers, + - * / @ .T ( ) sum(x) sum(x, axis) abs exp sqrt max"
_MOST_NODES = 200
_KEYWORD_PREFIX = "_the_argument_"


@dataclass(frozen=True, kw_only=True)
class _Value:
    """Value, magnitude of what was added up to it, and the length of the longest sum behind it."""

    value: Array
    magnitude: Array
    terms: int = 1


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """`target = expression`, read and checked against the names that there are."""

    text: str
    target: str
    tree: ast.expr
    names: frozenset[str]

    def check(
        self, before: Mapping[str, Array], after: Array, *, tolerance: float | None = None
    ) -> Finding:
        """Compare the target as the kernel left it.

        `tolerance` replaces the derived bound: a share of the terms' magnitude.
        """
        import numpy

        floating = [before[n] for n in self.names if not is_whole(before[n])]
        with numpy.errstate(all="ignore"):
            found = _evaluate(self.tree, before, whole=not floating and is_whole(after))
            try:
                expected = numpy.broadcast_to(found.value, after.shape)
                size = numpy.broadcast_to(found.magnitude, after.shape).astype(numpy.float64)
            except ValueError:
                raise UsageError(
                    f"--expect {self.text!r}: the right side is {list(numpy.shape(found.value))}, "
                    f"{self.target} is {list(after.shape)}",
                    hint="give both the same shape; .T turns a matrix",
                ) from None
            bound, reason = bound_of(size, found.terms, [*floating, after], after, tolerance)
            return compare(self.text, expected, bound, after, reason)


def read_expectation(text: str, known: Mapping[str, Any]) -> Expectation:
    """Parse `C=A@B`; UsageError for anything that the language does not have."""
    target, equals, expression = text.partition("=")
    target = target.strip()
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", target) or expression.startswith("="):
        raise UsageError(f"--expect {text!r} is no NAME=EXPRESSION", hint="as in C=A@B")
    if len(text) > 2000:
        raise UsageError("--expect is too long", hint="at most 2000 characters")
    try:
        tree = ast.parse(_without_keywords(expression, known).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(
            f"--expect {text!r} cannot be read", hint=f"it may have {_KNOWN}"
        ) from None
    names: set[str] = set()
    nodes = 0
    for node in ast.walk(tree):
        nodes += 1
        _check_node(node, text)
        if isinstance(node, ast.Name):
            node.id = node.id.removeprefix(_KEYWORD_PREFIX)
            if node.id not in _FUNCTIONS or node.id in known:
                names.add(node.id)
    if nodes > _MOST_NODES:
        raise UsageError(f"--expect {text!r} is too long", hint="split it into several")
    for name in (target, *sorted(names)):
        if name not in known:
            raise UsageError(
                f"--expect {text!r}: there is no argument {name}",
                hint=f"arguments: {', '.join(known) or 'none'}",
            )
    return Expectation(text=text.strip(), target=target, tree=tree, names=frozenset(names))


def _without_keywords(expression: str, known: Mapping[str, Any]) -> str:
    """Python would not read `in` as a name; kernels often have it."""
    for name in known:
        if keyword.iskeyword(name):
            expression = re.sub(rf"\b{name}\b", _KEYWORD_PREFIX + name, expression)
    return expression


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.MatMult: operator.matmul,
}
_FUNCTIONS = ("sum", "abs", "exp", "sqrt", "max")


def _check_node(node: ast.AST, text: str) -> None:
    allowed = (
        isinstance(node, ast.Name | ast.Load | ast.UnaryOp | ast.USub | ast.UAdd)
        or type(node) in _OPERATORS
        or (isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS)
        or (isinstance(node, ast.Constant) and type(node.value) in (int, float))
        or (isinstance(node, ast.Attribute) and node.attr == "T")
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _FUNCTIONS
            and not node.keywords
            and 1 <= len(node.args) <= (2 if node.func.id in ("sum", "max") else 1)
        )
    )
    if not allowed:
        raise UsageError(
            f"--expect {text!r}: {ast.unparse(node) if isinstance(node, ast.expr) else 'this'} "
            "is not understood",
            hint=f"it may have {_KNOWN}",
        )


def _evaluate(node: ast.expr, before: Mapping[str, Array], *, whole: bool) -> _Value:
    import numpy

    kind: Any = numpy.int64 if whole else numpy.float64
    if isinstance(node, ast.Constant):
        value = numpy.asarray(node.value, kind if isinstance(node.value, int) else numpy.float64)
        return _Value(value=value, magnitude=abs(value))
    if isinstance(node, ast.Name):
        if node.id not in before:
            raise UsageError(f"--expect: {node.id} stands alone", hint=f"it may have {_KNOWN}")
        value = before[node.id].astype(kind)
        return _Value(value=value, magnitude=abs(value))
    if isinstance(node, ast.Attribute):
        inner = _evaluate(node.value, before, whole=whole)
        return _Value(value=inner.value.T, magnitude=inner.magnitude.T, terms=inner.terms)
    if isinstance(node, ast.UnaryOp):
        inner = _evaluate(node.operand, before, whole=whole)
        value = -inner.value if isinstance(node.op, ast.USub) else inner.value
        return _Value(value=value, magnitude=inner.magnitude, terms=inner.terms)
    if isinstance(node, ast.BinOp):
        left = _evaluate(node.left, before, whole=whole)
        right = _evaluate(node.right, before, whole=whole)
        return _combine(node, left, right)
    assert isinstance(node, ast.Call)
    return _call(node, before, whole=whole)


def _combine(node: ast.BinOp, left: _Value, right: _Value) -> _Value:
    terms = max(left.terms, right.terms)
    apply = _OPERATORS[type(node.op)]
    try:
        value = apply(left.value, right.value)
        if isinstance(node.op, ast.Add | ast.Sub):
            magnitude = left.magnitude + right.magnitude
            terms += 1
        elif isinstance(node.op, ast.Div):
            magnitude = left.magnitude / abs(right.value)
        else:
            magnitude = apply(left.magnitude, right.magnitude)
        if isinstance(node.op, ast.MatMult):
            terms += left.value.shape[-1]
    except ValueError:
        raise UsageError(
            f"--expect: {ast.unparse(node)}: {list(left.value.shape)} and "
            f"{list(right.value.shape)} do not go together",
            hint="@ needs as many columns on the left as rows on the right; .T turns a matrix",
        ) from None
    return _Value(value=value, magnitude=magnitude, terms=terms)


def _call(node: ast.Call, before: Mapping[str, Array], *, whole: bool) -> _Value:
    import numpy

    assert isinstance(node.func, ast.Name)
    name = node.func.id
    inner = _evaluate(node.args[0], before, whole=whole)
    axis = None
    if len(node.args) == 2:
        at = node.args[1]
        if not (isinstance(at, ast.Constant) and type(at.value) is int):
            raise UsageError(f"--expect: {ast.unparse(node)}: the axis must be a number")
        axis = at.value
        if not 0 <= axis < inner.value.ndim:
            raise UsageError(f"--expect: {ast.unparse(node)}: there is no axis {axis}")
    if name == "sum":
        count = inner.value.size if axis is None else inner.value.shape[axis]
        return _Value(
            value=inner.value.sum(axis),
            magnitude=inner.magnitude.sum(axis),
            terms=inner.terms + count,
        )
    if name == "max":
        return _Value(
            value=inner.value.max(axis), magnitude=inner.magnitude.max(axis), terms=inner.terms
        )
    value = {"abs": numpy.abs, "exp": numpy.exp, "sqrt": numpy.sqrt}[name](inner.value)
    grown = abs(value) * (1 + inner.magnitude) if name == "exp" else abs(value)
    return _Value(
        value=value, magnitude=inner.magnitude if name == "abs" else grown, terms=inner.terms + 4
    )
