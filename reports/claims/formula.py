"""Formulas of published figures, and arithmetic over a paper's own figures.

A formula is one arm's figure over the other's, ``b.time / a.time``, or that of one arm, ``a.iops``.
Arithmetic has names, numbers, ``+ - * /`` and parentheses. Python's parser reads it, nothing is
executed, and all other nodes are refused.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from wattload.core.record.results import Better
from wattload.core.units import Unit
from wattload.results.quantity import whole

_OPERATORS: Mapping[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
_BY_SIGN = dict(_OPERATORS.values())
_LARGEST = 1e300
_ALLOWED = "only names of figures, numbers, + - * / and parentheses are allowed"


@dataclass(frozen=True, slots=True)
class Number:
    """A literal number."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """A figure or a claim of the paper, by its id."""

    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands and the sign between them."""

    sign: str
    left: Term
    right: Term


Term = Number | Name | Binary


def parse_arithmetic(text: str) -> Term:
    """Return the tree of an expression.

    Raises:
        ValueError: the text has anything but names, numbers, ``+ - * /`` and parentheses.
    """
    try:
        return _term(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"invalid arithmetic {text!r}: {_ALLOWED}") from error


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Constant(value=int() | float() as value) if (
            not isinstance(value, bool) and abs(value) < _LARGEST
        ):
            return Number(float(value))
        case ast.Name(id=name):
            return Name(name)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return Binary(_OPERATORS[type(sign)][0], _term(left), _term(right))
    raise ValueError(f"unsupported expression {ast.unparse(node)!r}: {_ALLOWED}")


def names(term: Term) -> frozenset[str]:
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


Role = Literal["a", "b"]
"""An arm of a paper: ``a`` is the one that the paper promotes, ``b`` its reference."""


class Kind(StrEnum):
    """The kind of figure in a formula."""

    TIME = "time"
    RATE = "rate"
    ENERGY = "energy"
    RATE_PER_WATT = "rate_per_watt"
    LATENCY = "latency"
    OPERATIONS = "iops"


_UNITS: Mapping[Kind, Unit] = {
    Kind.TIME: Unit.SECONDS,
    Kind.RATE: Unit.BYTES_PER_SECOND,
    Kind.ENERGY: Unit.JOULES,
    Kind.RATE_PER_WATT: Unit.BYTES_PER_JOULE,
    Kind.LATENCY: Unit.SECONDS,
    Kind.OPERATIONS: Unit.SAMPLES_PER_SECOND,
}
_LOWER = frozenset({Kind.TIME, Kind.ENERGY, Kind.LATENCY})
_KINDS = "|".join(Kind)
_FIGURE = rf"(?P<{{arm}}>[ab])\.(?P<{{kind}}>{_KINDS})"
_FORM = re.compile(
    _FIGURE.format(arm="over", kind="kind")
    + rf"(?: / {_FIGURE.format(arm='under', kind='under_kind')})?"
)


@dataclass(frozen=True, slots=True)
class Formula:
    """One arm's figure, divided by the other's if ``under`` names one."""

    kind: Kind
    over: Role
    under: Role | None = None

    @property
    def better(self) -> Better:
        """Which direction of the figure itself is better, whatever its ratio."""
        return "lower" if self.kind in _LOWER else "higher"

    @property
    def unit(self) -> Unit:
        """The stored unit of a run's figure of this kind."""
        return _UNITS[self.kind]

    def __str__(self) -> str:
        top = f"{self.over}.{self.kind}"
        return top if self.under is None else f"{top} / {self.under}.{self.kind}"


def parse_formula(text: str) -> Formula:
    """Return a formula from its text.

    Raises:
        ValueError: the text has neither of the two forms, or divides different kinds of figures.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(
            "a formula must be like `b.time / a.time` or `a.iops`, with a or b and "
            f"one of {', '.join(Kind)}, got {text!r}"
        )
    over, under = match["over"], match["under"]
    if under is not None and (over == under or match["kind"] != match["under_kind"]):
        raise ValueError(f"a ratio must be of the same kind of figure in both arms, got {text!r}")
    return Formula(
        kind=Kind(match["kind"]),
        over="a" if over == "a" else "b",
        under=None if under is None else "a" if under == "a" else "b",
    )
