"""A check: two sides from different counters, the figures that decided it, one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from wattload.core.record.base import Frozen

Verdict = Literal["pass", "warn", "fail", "not_checked"]


class Check(Frozen):
    """The verdict on one claim of a run.

    ``figures`` are the numbers that decided it, named with their units. ``mandatory`` checks that
    were not made bar a comparison's verdict.
    """

    name: str
    verdict: Verdict
    sentence: str
    figures: Mapping[str, float | int | str | None] = Field(default_factory=dict)
    mandatory: bool = False

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if not self.sentence:
            raise ValueError(f"check {self.name}: a verdict needs its sentence")
        return self
