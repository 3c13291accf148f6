"""Papers and the content of their files: arms, claims, and the consistency of their figures.

There is one YAML file per paper next to this module. Every model is frozen and refuses unknown
keys. A paper also refuses duplicate ids, unknown names, and statements on its arithmetic that its
own figures contradict. A formula is one arm's figure over the other's, ``b.time / a.time``, or that
of one arm, ``a.iops``. Arithmetic has names, numbers, ``+ - * /`` and parentheses.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from wattload.core.base_models import Frozen
from wattload.core.errors import ConfigError
from wattload.core.units import Unit
from wattload.results.quantity import block_text, whole

_SIGNS: Mapping[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("−", operator.sub),  # noqa: RUF001 - for reading
    ast.Mult: ("×", operator.mul),  # noqa: RUF001 - for reading
    ast.Div: ("÷", operator.truediv),
}
_LARGEST = 1e300
_ALLOWED = "only names of figures, numbers, + - * / and parentheses are allowed"


def parse_arithmetic(text: str) -> ast.expr:
    """Return the tree of an expression. Python's parser reads it, and nothing is executed.

    Raises:
        ValueError: the text has anything but names, numbers, ``+ - * /`` and parentheses.
    """
    try:
        term = ast.parse(text, mode="eval").body
        for node in ast.walk(term):
            if not _is_arithmetic(node):
                raise ValueError(f"unsupported expression {ast.unparse(node)!r}: {_ALLOWED}")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"invalid arithmetic {text!r}: {_ALLOWED}") from error
    return term


def _is_arithmetic(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=int() | float() as value):
            return not isinstance(value, bool) and abs(value) < _LARGEST
        case ast.BinOp(op=sign):
            return type(sign) in _SIGNS
    return isinstance(node, ast.Name | ast.operator | ast.expr_context)


def names(term: ast.expr) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(term) if isinstance(node, ast.Name))


def compute(term: ast.expr, values: Mapping[str, float]) -> float:
    """Return the value of an expression.

    Raises:
        ValueError: a name is unknown, or something is divided by zero.
    """
    match term:
        case ast.Name(id=name):
            if name not in values:
                known = ", ".join(sorted(values))
                raise ValueError(f"{name!r} is no figure or claim of this paper; it has {known}")
            return values[name]
        case ast.BinOp(left=left, op=sign, right=right):
            try:
                return _SIGNS[type(sign)][1](compute(left, values), compute(right, values))
            except ZeroDivisionError as error:
                raise ValueError(f"{text_of(term)} divides by zero") from error
    return float(ast.literal_eval(term))


def text_of(term: ast.expr) -> str:
    """Return an expression as people read it, every inner one in parentheses."""
    match term:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=sign, right=right):
            return f"{_inner(left)} {_SIGNS[type(sign)][0]} {_inner(right)}"
    value = float(ast.literal_eval(term))
    return whole(value) if value.is_integer() else f"{value:g}"


def _inner(term: ast.expr) -> str:
    return f"({text_of(term)})" if isinstance(term, ast.BinOp) else text_of(term)


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


Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Text = Annotated[str, Field(min_length=1)]
FormulaText = Annotated[str, AfterValidator(lambda text: str(parse_formula(text)))]
Consistency = Literal["consistent", "inconsistent", "unchecked"]


class Notation(StrEnum):
    """How a printed figure is read as the value of its formula."""

    TIMES = "times"  # 6.4x: the ratio itself
    PERCENT_MORE = "percent_more"  # 151 % more, or better by (x / y) - 1: 1 + 1.51
    ABSOLUTE = "absolute"  # 6.92 million: the figure itself, times ``factor``


class Fact(StrEnum):
    """A condition that papers state and records have."""

    DRIVE = "drive"
    LINK = "link"
    POWER_STATE = "power state"
    PROCESSOR = "processor"
    MEMORY = "memory"
    SYSTEM = "system"
    KERNEL = "kernel"
    ACCELERATOR = "accelerator"
    MEMORY_TRAFFIC = "memory traffic"


class Expected(Frozen):
    """A condition as printed, and the matching value in a record.

    Texts match if the record's contains one of ``found``, in any case. Numbers, in SI base units,
    match within 10 % of ``number``. With neither, for example for a drive that a paper does not
    name, nothing matches.
    """

    words: Text
    found: tuple[Text, ...] = ()
    number: float | None = None

    @model_validator(mode="after")
    def _is_compared_in_one_way(self) -> Self:
        if self.found and self.number is not None:
            raise ValueError("give found or number, not both")
        return self


class Condition(Frozen):
    """One condition of both arms of a paper; ``b`` is like ``a`` if it is omitted.

    ``workload`` limits it to one workload; empty means all. ``fact`` is any name if ``place`` is a
    dotted place under ``facts`` or ``config``, where a list of numbers counts as their sum.
    """

    fact: Annotated[Fact | Text, Field(union_mode="left_to_right")]
    place: str = ""
    workload: str = ""
    a: Expected
    b: Expected | None = None

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        if not self.place and not isinstance(self.fact, Fact):
            raise ValueError(f"unknown fact {self.fact!r}; give its place, or use one of "
                             f"{', '.join(Fact)}")  # fmt: skip
        return self


class Requirement(Frozen):
    """What runs of an arm must be to measure a pair's claims, or those on some ``figures``.

    ``what`` is ``path``, ``loader``, or a dotted place under ``facts`` or ``config``. Its values in
    each run must be among ``values``, or not among ``excluded``. ``absolute`` is whether absolute
    figures need it too.
    """

    arm: Literal["a", "b", "both"] = "both"
    what: Text
    values: tuple[Text, ...] = ()
    excluded: tuple[Text, ...] = ()
    figures: tuple[Text, ...] = ()
    absolute: bool = False
    reason: Text

    @model_validator(mode="after")
    def _has_one_list(self) -> Self:
        if bool(self.values) == bool(self.excluded):
            raise ValueError(f"{self.what}: give values or excluded, and not both")
        return self


class Pair(Frozen):
    """Two arms that a paper compares, or a single one.

    ``between`` is how they differ: in drives (or their power states), or in the path of the bytes.
    ``remark`` is printed with their claims, and ``unlike`` if no arm is as ``a`` has to be.
    """

    between: Literal["drives", "paths"]
    a: Text
    b: Text | None = None
    conditions: tuple[Condition, ...] = ()
    requires: tuple[Requirement, ...] = ()
    remark: str = ""
    unlike: str = ""

    @property
    def differ_in(self) -> str:
        """How the arms of a page must differ to measure this pair."""
        return "drive or power state" if self.between == "drives" else "loader or path"


class Printed(Frozen):
    """A figure as printed: its number, its notation, and a short quote of the paper.

    ``factor`` converts an absolute figure to SI base units; ``up_to`` is whether the paper calls it
    the largest of several.
    """

    value: float
    reading: Notation
    words: Text
    up_to: bool = False
    factor: float = 1.0

    @property
    def read(self) -> float:
        """The value of the formula, as a ratio or in SI base units."""
        if self.reading is Notation.PERCENT_MORE:
            return 1 + self.value / 100
        return self.value * self.factor


class StatedConsistency(Frozen):
    """Whether a claim agrees with the paper's other figures, and the reason."""

    status: Consistency
    reason: Text


def axis_text(axis: str) -> str:
    """Return the name of a setting that defines a point."""
    return "block size" if axis == "block_bytes" else axis


def value_text(axis: str, text: str) -> str:
    """Return the value of such a setting as printed: ``4 KiB`` for 4096 ``block_bytes``."""
    try:
        number = float(text)
    except ValueError:
        return text
    if axis == "block_bytes":
        return block_text(number)
    return str(int(number)) if number.is_integer() else text


class Claim(Frozen):
    """One published figure. ``figure`` is the key of the page's row that measures it.

    ``point`` is where it was made: the last parts of swept keys, and their values. Of a figure that
    is ``up_to``, the largest ratio of the points that it leaves open counts.

    An absolute figure is shown next to the figure of this page's arm, without a verdict: it was
    measured on another machine.

    A claim without a workload here has neither ``workload`` nor ``figure``; ``needs`` then states
    what would be needed to measure it. With a workload it is optional.
    """

    id: Id
    pair: Id
    workload: Text | None = None
    figure: Text | None = None
    point: dict[Text, float | Text] = Field(default_factory=dict)
    formula: FormulaText
    printed: Printed
    consistency: StatedConsistency
    needs: str = ""
    remark: str = ""

    @property
    def point_text(self) -> str:
        """The point: ``threads = 2048, load = busy``; empty for a claim on all points."""
        return ", ".join(
            f"{axis_text(axis)} = {value_text(axis, str(value))}"
            for axis, value in self.point.items()
        )

    @cached_property
    def parsed(self) -> Formula:
        return parse_formula(self.formula)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.workload is None) != (self.figure is None):
            raise ValueError(f"{self.id}: give workload and figure, or neither")
        if self.workload is None and not self.needs:
            raise ValueError(f"{self.id}: without a workload, needs has to say what is missing")
        alone = self.parsed.under is None
        if alone != (self.printed.reading is Notation.ABSOLUTE):
            raise ValueError(f"{self.id}: use a relative reading for a ratio, absolute for one arm")
        return self


class PaperFigure(Frozen):
    """A printed number that is not a claim, such as a stage's seconds."""

    id: Id
    value: float
    unit: str
    words: Text


class Closure(Frozen):
    """Two ways to compute the same quantity from the printed figures, or an implied figure.

    They close if left and right differ by no more than ``tolerance``, or if left is at most right.
    Without a ``right`` the left side is a figure that follows from the printed ones.
    """

    id: Id
    left: str
    right: str | None = None
    relation: Literal["equal", "at_most"] = "equal"
    tolerance: float = Field(default=0.01, ge=0)
    closes: bool | None = None
    unit: str = ""
    says: Text

    @cached_property
    def sides(self) -> tuple[ast.expr, ast.expr | None]:
        right = None if self.right is None else parse_arithmetic(self.right)
        return parse_arithmetic(self.left), right

    @model_validator(mode="after")
    def _can_be_computed(self) -> Self:
        if (self.right is None) != (self.closes is None):
            raise ValueError(f"{self.id}: give right and closes, or neither")
        if not self.names:
            raise ValueError(f"{self.id}: neither side uses a figure of the paper")
        return self

    @property
    def names(self) -> frozenset[str]:
        left, right = self.sides
        return names(left) | (names(right) if right is not None else frozenset())


class Paper(Frozen):
    """A paper: publisher, set-up as printed, claims, and the closures of its figures."""

    id: Annotated[str, Field(pattern=r"^P[1-9][0-9]*$")]
    name: Text
    publisher: Text
    setup: tuple[Text, ...]
    conditions: tuple[Condition, ...] = ()
    pairs: dict[Id, Pair]
    figures: tuple[PaperFigure, ...] = ()
    claims: tuple[Claim, ...] = Field(min_length=1)
    closures: tuple[Closure, ...] = ()

    @cached_property
    def values(self) -> dict[str, float]:
        """Every printed number by id; claims as they are read."""
        read = {claim.id: claim.printed.read for claim in self.claims}
        return {figure.id: figure.value for figure in self.figures} | read

    def computed(self, closure: Closure) -> tuple[float, float | None]:
        """Return both sides of a closure, from the printed numbers alone."""
        left, right = closure.sides
        other = None if right is None else compute(right, self.values)
        return compute(left, self.values), other

    def closes(self, closure: Closure) -> bool | None:
        """Return whether the printed numbers close; ``None`` for an implied figure."""
        left, right = self.computed(closure)
        if right is None:
            return None
        if closure.relation == "at_most":
            return left <= right
        return abs(left - right) <= closure.tolerance * max(abs(left), abs(right))

    def consistency_of(self, claim: Claim) -> Consistency:
        """Return whether the closures that use a claim are consistent."""
        found = [self.closes(each) for each in self.closures if claim.id in each.names]
        known = [closes for closes in found if closes is not None]
        if not known:
            return "unchecked"
        return "consistent" if all(known) else "inconsistent"

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        ids = [*(each.id for each in self.figures), *(each.id for each in self.claims)]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"duplicate id {twice[0]}; give each figure and claim its own")
        for closure in self.closures:
            if self.closes(closure) != closure.closes:
                raise ValueError(
                    f"closure {closure.id} has closes: {closure.closes}, but its sides are "
                    f"{self.computed(closure)}"
                )
        for claim in self.claims:
            self._check_claim(claim)
        return self

    def _check_claim(self, claim: Claim) -> None:
        """Refuse a claim of an unknown pair, or one whose stated consistency is wrong."""
        pair = self.pairs.get(claim.pair)
        if pair is None:
            known = ", ".join(self.pairs)
            raise ValueError(f"claim {claim.id}: unknown pair {claim.pair!r}; use one of {known}")
        if "b" in (claim.parsed.over, claim.parsed.under) and pair.b is None:
            raise ValueError(f"claim {claim.id}: its pair has no arm b")
        status = self.consistency_of(claim)
        if claim.consistency.status != status:
            raise ValueError(
                f"claim {claim.id} has the status {claim.consistency.status}, but its closures "
                f"make it {status}"
            )


@lru_cache(maxsize=1)
def papers() -> tuple[Paper, ...]:
    """Return the papers in order of their ids.

    Raises:
        ConfigError: a file is invalid, or two have the same id.
    """
    folder = files(__package__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    found = [read_paper((folder / name).read_text(encoding="utf-8"), name) for name in names]
    by_id: dict[str, Paper] = {}
    for name, paper in zip(names, found, strict=True):
        if paper.id in by_id:
            raise ConfigError(f"{name}: duplicate id {paper.id}; give each file its own")
        by_id[paper.id] = paper
    return tuple(sorted(found, key=lambda paper: int(paper.id[1:])))


def read_paper(text: str, name: str) -> Paper:
    """Return the paper in a file's text; ``name`` is the name of the file, for messages.

    Raises:
        ConfigError: the text is not YAML, has a duplicate or unknown key, or an invalid value. The
            message is one sentence and names the key.
    """
    from omegaconf._utils import get_yaml_loader  # it refuses a key that is there twice
    from yaml import YAMLError, load

    try:
        tree: Any = load(text, get_yaml_loader())
    except (YAMLError, ValueError, RecursionError) as error:
        first = " ".join(str(error).split())
        raise ConfigError(f"{name} is not valid YAML: {first}") from error
    try:
        return Paper.model_validate_json(json.dumps(tree), strict=True)
    except ValidationError as error:
        raise ConfigError(f"{name}: {_sentence(error)}") from error


def _sentence(error: ValidationError) -> str:
    """Return the first fault: the key, what is wrong, and the value."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the whole"
    if first["type"] == "extra_forbidden":
        return f"unknown key {key}; see docs/claims.md for the valid keys"
    message = first["msg"].removeprefix("Value error, ")
    got = first["input"]
    return f"{key}: {message}" + (f", got {got!r}" if isinstance(got, str | int | float) else "")
