"""Papers and the content of their files: arms, claims, and the consistency of their figures.

There is one YAML file per paper next to this module. Every model is frozen and refuses unknown
keys. A paper also refuses duplicate ids, unknown names, and statements on its arithmetic that its
own figures contradict.
"""

from __future__ import annotations

import json
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from wattload.core.base_models import Frozen
from wattload.core.errors import ConfigError
from wattload.reports.claims.formula import (
    Formula,
    Term,
    compute,
    names,
    parse_arithmetic,
    parse_formula,
)
from wattload.results.quantity import block_text

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

    An absolute figure is shown next to that of this page's arm, without a verdict: it is of another
    machine.

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
    def sides(self) -> tuple[Term, Term | None]:
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
    from omegaconf import OmegaConf
    from yaml import YAMLError

    try:
        tree: Any = OmegaConf.to_container(OmegaConf.create(text))
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
