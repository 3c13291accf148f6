"""Arithmetic over a paper's own figures: names, numbers, ``+ - * /`` and parentheses.

Python's parser reads the text and nothing of it is executed: every node that is not one of these is
refused.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wattload.reports.quantity import whole

_OPERATORS: Mapping[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
_LARGEST = 1e300
_BY_SIGN = dict(_OPERATORS.values())


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it stands."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """A figure or a claim of the paper, by its id."""

    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    """Two parts and the sign between them."""

    sign: str
    left: Term
    right: Term


Term = Number | Name | Binary


def parse_arithmetic(text: str) -> Term:
    """Return the tree of an expression.

    Raises:
        ValueError: the text holds anything but names, numbers, ``+ - * /`` and parentheses.
    """
    try:
        return _term(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is no arithmetic: {_ALLOWED}") from error


_ALLOWED = "names of figures, numbers, + - * / and parentheses are all that is allowed"


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Constant(value=int() | float() as value) if _is_finite(value):
            return Number(float(value))
        case ast.Name(id=name):
            return Name(name)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return Binary(_OPERATORS[type(sign)][0], _term(left), _term(right))
    raise ValueError(f"{ast.unparse(node)!r} can't be computed with: {_ALLOWED}")


def _is_finite(value: float) -> bool:
    return not isinstance(value, bool) and abs(value) < _LARGEST


def names(term: Term) -> frozenset[str]:
    """Return the names that an expression reads."""
    match term:
        case Name(name):
            return frozenset({name})
        case Binary(_, left, right):
            return names(left) | names(right)
    return frozenset()


def compute(term: Term, values: Mapping[str, float]) -> float:
    """Return the value of an expression.

    Raises:
        ValueError: a name is unknown, or something is divided by zero.
    """
    match term:
        case Number(value):
            return value
        case Name(name):
            if name not in values:
                known = ", ".join(sorted(values))
                raise ValueError(f"{name!r} is no figure or claim of this paper; it has {known}")
            return values[name]
        case Binary(sign, left, right):
            try:
                return _BY_SIGN[sign](compute(left, values), compute(right, values))
            except ZeroDivisionError as error:
                raise ValueError(f"{text_of(term)} divides by zero") from error


def text_of(term: Term) -> str:
    """Return an expression as people read it, every inner one in parentheses."""
    match term:
        case Number(value):
            return whole(value) if value == int(value) else f"{value:g}"
        case Name(name):
            return name
        case Binary(sign, left, right):
            shown = {"*": "×", "/": "÷", "-": "−"}.get(sign, sign)  # noqa: RUF001 - for reading
            return f"{_inner(left)} {shown} {_inner(right)}"


def _inner(term: Term) -> str:
    return f"({text_of(term)})" if isinstance(term, Binary) else text_of(term)
