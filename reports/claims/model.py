"""What a file of published figures holds: one paper, its arms, its claims, and its own arithmetic.

Every model is frozen and refuses an unknown key. A paper also refuses to be held together wrongly:
an id twice, a name that nothing has, or a statement on its arithmetic that its own figures deny.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from wattload.core.record.base import Frozen
from wattload.reports.claims.arithmetic import Term, compute, names, parse_arithmetic
from wattload.reports.claims.formula import Formula, parse_formula

Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Words = Annotated[str, Field(min_length=1)]
FormulaText = Annotated[str, AfterValidator(lambda text: str(parse_formula(text)))]
Consistency = Literal["consistent", "inconsistent", "unchecked"]


class Reading(StrEnum):
    """How a printed figure is read as the value of its formula."""

    TIMES = "times"  # 6.4x: the ratio itself
    PERCENT_MORE = "percent_more"  # 151 % more, or better by (x / y) - 1: 1 + 1.51
    ABSOLUTE = "absolute"  # 6.92 million: the figure itself, times ``factor``


class Fact(StrEnum):
    """A condition that papers state and records hold."""

    DRIVE = "drive"
    LINK = "link"
    POWER_STATE = "power state"
    PROCESSOR = "processor"
    MEMORY = "memory"
    SYSTEM = "system"
    KERNEL = "kernel"
    ACCELERATOR = "accelerator"
    CHECKPOINT = "bytes of a checkpoint"


class Expected(Frozen):
    """A condition as printed, and what a record must hold to be alike.

    Texts are alike where one of ``found`` stands in the record's, whatever its case; numbers, in
    SI base units, where they are within 10 % of ``number``. With neither, as for a drive that a
    paper does not name, nothing can be told alike.
    """

    words: Words
    found: tuple[Words, ...] = ()
    number: float | None = None

    @model_validator(mode="after")
    def _is_compared_in_one_way(self) -> Self:
        if self.found and self.number is not None:
            raise ValueError("give found or number, not both: a record is compared in one way")
        return self


class Condition(Frozen):
    """One condition of both arms of a paper; ``b`` is like ``a`` where it is left out.

    ``workload`` limits it to one; empty stands for all.
    """

    fact: Fact
    workload: str = ""
    a: Expected
    b: Expected | None = None


class Pair(Frozen):
    """Two arms that a paper holds against each other, or one alone.

    ``between`` is what tells them apart: drives (or their power states), or the paths that bytes
    take.
    """

    between: Literal["drives", "paths"]
    a: Words
    b: Words | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def differ_in(self) -> str:
        """What the arms of a page must differ in to say anything of this pair."""
        return "drive or power state" if self.between == "drives" else "loader or path"


class Printed(Frozen):
    """A figure as printed: its number, how it is read, and few words of the paper.

    ``factor`` brings an absolute figure to SI base units; ``up_to`` is whether the paper calls it
    the largest of several.
    """

    value: float
    reading: Reading
    words: Words
    up_to: bool = False
    factor: float = 1.0

    @property
    def read(self) -> float:
        """The value of the formula, as a ratio or in SI base units."""
        if self.reading is Reading.PERCENT_MORE:
            return 1 + self.value / 100
        return self.value * self.factor


class At(Frozen):
    """Where on a sweep a claim was made: the last part of the swept key, and its value."""

    axis: Words
    value: float

    def __str__(self) -> str:
        return f"{self.axis} = {self.value:g}"


class Standing(Frozen):
    """Whether a claim agrees with the paper's other figures, and why that is said."""

    status: Consistency
    reason: Words


class Claim(Frozen):
    """One published figure. ``figure`` is the key of the page's row that answers it.

    A claim of no workload here has neither ``workload`` nor ``figure``; ``needs`` says what it
    would take to measure it.
    """

    id: Id
    pair: Id
    workload: Words | None = None
    figure: Words | None = None
    point: At | None = None
    formula: FormulaText
    printed: Printed
    consistency: Standing
    needs: Words
    remark: str = ""

    @cached_property
    def parsed(self) -> Formula:
        """The formula as a tree."""
        return parse_formula(self.formula)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.workload is None) != (self.figure is None):
            raise ValueError(f"{self.id}: give workload and figure, or neither")
        alone = self.parsed.under is None
        if alone != (self.printed.reading is Reading.ABSOLUTE):
            raise ValueError(
                f"{self.id}: a ratio is read as one, the figure of one arm as absolute"
            )
        if alone and self.workload is not None:
            raise ValueError(f"{self.id}: only a ratio of two arms can be held against a workload")
        return self


class Figure(Frozen):
    """A printed number that is no claim of its own, such as a stage's seconds."""

    id: Id
    value: float
    unit: str
    words: Words


class Closure(Frozen):
    """Two ways to the same quantity from what a paper prints, or one that it leaves unsaid.

    They close where left and right differ by no more than ``tolerance``, or where left is at most
    right. Without a ``right`` the left side only follows from what is printed.
    """

    id: Id
    left: str
    right: str | None = None
    relation: Literal["equal", "at_most"] = "equal"
    tolerance: float = Field(default=0.01, ge=0)
    closes: bool | None = None
    unit: str = ""
    says: Words

    @cached_property
    def sides(self) -> tuple[Term, Term | None]:
        """Both sides as trees."""
        right = None if self.right is None else parse_arithmetic(self.right)
        return parse_arithmetic(self.left), right

    @model_validator(mode="after")
    def _can_be_computed(self) -> Self:
        if (self.right is None) != (self.closes is None):
            raise ValueError(f"{self.id}: give right and closes, or neither")
        if not self.names:
            raise ValueError(f"{self.id}: neither side reads a figure of the paper")
        return self

    @property
    def names(self) -> frozenset[str]:
        """The figures and claims that it reads."""
        left, right = self.sides
        return names(left) | (names(right) if right is not None else frozenset())


class Paper(Frozen):
    """A paper: who wrote it on what, its set-up as printed, what it claims, and how that closes."""

    id: Annotated[str, Field(pattern=r"^P[1-9][0-9]*$")]
    name: Words
    publisher: Words
    setup: tuple[Words, ...]
    conditions: tuple[Condition, ...] = ()
    pairs: dict[Id, Pair]
    figures: tuple[Figure, ...] = ()
    claims: tuple[Claim, ...] = Field(min_length=1)
    closures: tuple[Closure, ...] = ()

    @cached_property
    def values(self) -> dict[str, float]:
        """Every printed number by id, claims as they are read."""
        read = {claim.id: claim.printed.read for claim in self.claims}
        return {figure.id: figure.value for figure in self.figures} | read

    def computed(self, closure: Closure) -> tuple[float, float | None]:
        """Return both sides of a closure, from the printed numbers alone."""
        left, right = closure.sides
        other = None if right is None else compute(right, self.values)
        return compute(left, self.values), other

    def closes(self, closure: Closure) -> bool | None:
        """Return whether the printed numbers close; ``None`` for what only follows from them."""
        left, right = self.computed(closure)
        if right is None:
            return None
        if closure.relation == "at_most":
            return left <= right
        return abs(left - right) <= closure.tolerance * max(abs(left), abs(right))

    def standing(self, claim: Claim) -> Consistency:
        """Return what the closures that read a claim come to."""
        found = [self.closes(each) for each in self.closures if claim.id in each.names]
        known = [closes for closes in found if closes is not None]
        if not known:
            return "unchecked"
        return "consistent" if all(known) else "inconsistent"

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        ids = [*(each.id for each in self.figures), *(each.id for each in self.claims)]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} stands for two figures")
        for closure in self.closures:
            if self.closes(closure) != closure.closes:
                raise ValueError(
                    f"closure {closure.id} says closes: {closure.closes}, but its sides are "
                    f"{self.computed(closure)}"
                )
        for claim in self.claims:
            self._accept(claim)
        return self

    def _accept(self, claim: Claim) -> None:
        """Refuse a claim of a pair that is not there, or one that says of itself what is not so."""
        pair = self.pairs.get(claim.pair)
        if pair is None:
            known = ", ".join(self.pairs)
            raise ValueError(f"claim {claim.id}: no pair {claim.pair!r}, there is {known}")
        if "b" in (claim.parsed.over, claim.parsed.under) and pair.b is None:
            raise ValueError(f"claim {claim.id}: its pair has no arm b")
        standing = self.standing(claim)
        if claim.consistency.status != standing:
            raise ValueError(
                f"claim {claim.id} is called {claim.consistency.status}, but the closures that "
                f"read it make it {standing}"
            )
