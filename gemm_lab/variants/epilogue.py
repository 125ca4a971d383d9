"""The epilogue language: one expression that becomes CUDA for the kernel and NumPy for the check.

`x` is alpha * (A @ B) + beta * C (plus the bias, unless the expression names `bias` itself);
`c` is the old element of C, `row` and `col` its place. There are + - * /, comparisons, numbers,
where(condition, a, b), min, max, exp, tanh, erf, abs, sqrt and the names relu, gelu, silu, which
stand alone or are called. `gelu` is the exact one, x/2 * (1 + erf(x / sqrt 2)).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gemm_lab.errors import UsageError

__all__ = ["Epilogue", "parse_epilogue"]

_VARIABLES = ("x", "bias", "c", "row", "col")
_UNARY = ("exp", "tanh", "erf", "abs", "sqrt", "relu", "gelu", "silu")
_ARITY = {**dict.fromkeys(_UNARY, 1), "min": 2, "max": 2, "where": 3}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_MAX_TEXT = 1000
_MAX_DEPTH = 50

Node = ast.expr
Array = Any


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """A parsed expression. `names` are the variables it reads."""

    text: str
    tree: ast.expr
    names: frozenset[str]
    functions: frozenset[str]

    def cuda(self, compute: str) -> str:
        """The expression in CUDA C++, in float or double."""
        return _cuda(self.tree, compute)

    def __call__(self, values: Mapping[str, Array]) -> Array:
        """The expression in float64, on arrays."""
        import numpy

        with numpy.errstate(all="ignore"):
            return _numpy(self.tree, values)


@lru_cache(maxsize=256)
def parse_epilogue(text: str) -> Epilogue:
    """Parse an expression; UsageError says what is not in the language."""
    if not isinstance(text, str):
        raise UsageError(f"epilogue {text!r} is no text", hint="as in 'relu(x)' or 'x + 0.5 * c'")
    if len(text) > _MAX_TEXT:
        raise UsageError(f"the epilogue is longer than {_MAX_TEXT} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refuse(text, getattr(error, "msg", None) or "cannot be read") from None
    names: set[str] = set()
    _check(tree, text, names, 0)
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Epilogue(
        text=text,
        tree=tree,
        names=frozenset(names),
        functions=frozenset(words & set(_ARITY)),
    )


def _refuse(text: str, why: str) -> UsageError:
    return UsageError(
        f"epilogue {text!r}: {why}",
        hint="x bias c row col, numbers, + - * /, comparisons, where(c, a, b), min, max, exp, "
        "tanh, erf, abs, sqrt, relu, gelu, silu",
    )


def _check(node: Node, text: str, names: set[str], depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise _refuse(text, "is nested too deep")
    children: list[Node] = []
    match node:
        case ast.Constant(value=bool()) | ast.Constant(value=complex()):
            raise _refuse(text, f"{node.value!r} is no number of the language")
        case ast.Constant(value=int() | float() as value):
            if not math.isfinite(float(value)) if abs(value) < 1e300 else True:
                raise _refuse(text, f"{value!r} is no finite number")
        case ast.Name(id=name) if name in _VARIABLES:
            names.add(name)
        case ast.Name(id=name) if name in ("relu", "gelu", "silu"):
            names.add("x")
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            children = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            children = [operand]
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if (
            type(operator) in _OPERATORS
        ):
            children = [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _ARITY:
            if len(arguments) != _ARITY[name]:
                raise _refuse(text, f"{name} takes {_ARITY[name]} arguments")
            children = list(arguments)
        case ast.Name(id=name):
            raise _refuse(text, f"{name!r} is not known")
        case _:
            raise _refuse(text, f"{ast.unparse(node)!r} is not in the language")
    for child in children:
        _check(child, text, names, depth + 1)


def _cuda(node: Node, compute: str) -> str:
    def go(child: Node) -> str:
        return _cuda(child, compute)

    match node:
        case ast.Constant(value=value):
            number = repr(float(value))  # type: ignore[arg-type]
            return f"{number}f" if compute == "float" else number
        case ast.Name(id="row" | "col" as name):
            return f"double({name})"
        case ast.Name(id="relu" | "gelu" | "silu" as name):
            return f"epilogue_{name}(x)"
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=operator, right=right):
            return f"({go(left)} {_OPERATORS[type(operator)]} {go(right)})"
        case ast.UnaryOp(op=operator, operand=operand):
            return f"({'-' if isinstance(operator, ast.USub) else '+'}{go(operand)})"
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return f"({go(left)} {_OPERATORS[type(operator)]} {go(right)})"
        case ast.Call(func=ast.Name(id="where"), args=[condition, yes, no]):
            return f"(({go(condition)}) ? ({go(yes)}) : ({go(no)}))"
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return f"epilogue_{name}({', '.join(go(a) for a in arguments)})"
    raise AssertionError(ast.dump(node))


def _erf(values: Array) -> Array:
    """erf in float64 from its series of positive terms, Abramowitz and Stegun 7.1.6.

    On NumPy and CuPy arrays alike; from 5.9 on the result rounds to 1.
    """
    import numpy as np

    x = np.clip(values, -5.9, 5.9)
    term = total = x + 0.0
    for n in range(1, 160):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return np.where(np.isnan(values), values, 2 / math.sqrt(math.pi) * np.exp(-x * x) * total)


def _functions() -> dict[str, Callable[..., Array]]:
    import numpy as np

    return {
        "exp": np.exp,
        "tanh": np.tanh,
        "erf": _erf,
        "abs": np.abs,
        "sqrt": np.sqrt,
        "min": np.minimum,
        "max": np.maximum,
        "relu": lambda x: np.maximum(x, 0.0),
        "gelu": lambda x: 0.5 * x * (1.0 + _erf(x * math.sqrt(0.5))),
        "silu": lambda x: x / (1.0 + np.exp(-x)),
        "where": np.where,
    }


def _numpy(node: Node, values: Mapping[str, Array]) -> Array:
    import numpy as np

    operators: dict[type[ast.AST], Callable[[Array, Array], Array]] = {
        ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide,
        ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal,
        ast.Eq: np.equal, ast.NotEq: np.not_equal,
    }  # fmt: skip

    def go(child: Node) -> Array:
        return _numpy(child, values)

    match node:
        case ast.Constant(value=value):
            return float(value)  # type: ignore[arg-type]
        case ast.Name(id="relu" | "gelu" | "silu" as name):
            return _functions()[name](values["x"])
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=operator, right=right):
            return operators[type(operator)](go(left), go(right))
        case ast.UnaryOp(op=operator, operand=operand):
            return -go(operand) if isinstance(operator, ast.USub) else go(operand)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return operators[type(operator)](go(left), go(right)) * 1.0
        case ast.Call(func=ast.Name(id="where"), args=[condition, yes, no]):
            return np.where(go(condition) != 0, go(yes), go(no))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _functions()[name](*(go(a) for a in arguments))
    raise AssertionError(ast.dump(node))
