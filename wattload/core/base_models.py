"""The two base classes of all pydantic models: frozen, and frozen with a reason for each gap.

Also JSON that is strictly read, and what is wrong with a document that does not fit a model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

ValueOrReason = tuple[float | None, str]
"""A value, and the reason if it is ``None``."""

_NOT_KEPT: set[str] = set()


class Frozen(BaseModel):
    """An immutable part of a record: no unknown field, no NaN, no infinity."""

    # Validators are built when a model is first used: a command uses few of them.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def model_post_init(self, context: object, /) -> None:
        """Drop the set of given fields: it is unused and takes 40 % of a record's memory."""
        object.__setattr__(self, "__pydantic_fields_set__", _NOT_KEPT)


class Observed(Frozen):
    """A part whose fields were read from the machine; each ``None`` has a reason in ``missing``.

    Missing is neither zero nor silent: every field that is ``None`` must be explained, and no field
    with a value may be. ``missing`` maps the field's name to one clause in plain words.
    """

    missing: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _every_gap_has_a_reason(self) -> Self:
        gaps = {name for name, value in self.__dict__.items() if value is None}
        if gaps == self.missing.keys():
            return self
        explained = set(self.missing)
        if gaps - explained:
            raise ValueError(
                f"{type(self).__name__}: no reason given for {sorted(gaps - explained)}"
            )
        raise ValueError(
            f"{type(self).__name__}: {sorted(explained - gaps)} has both a value "
            "and a reason for being missing, or is not a field"
        )


def fields_of(figures: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    """Return figures as fields of an ``Observed`` part, with the reason of each missing one."""
    missing = {name: reason for name, (value, reason) in figures.items() if value is None}
    return {"missing": missing} | {name: value for name, (value, _) in figures.items()}


def first_fault(error: ValidationError) -> tuple[str, str, object]:
    """Return the place of the first invalid value, what is wrong with it, and the value."""
    first = error.errors()[0]
    return ".".join(str(part) for part in first["loc"]), first["msg"], first["input"]


def strict_json(content: bytes) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: the text is not strict JSON, or no object, or has a key twice.
    """
    try:
        found = json.loads(content, object_pairs_hook=_unique, parse_constant=_not_json)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if type(found) is not dict:
        raise ValueError("not a JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twin = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twin!r} appears twice in one object")
    return found


def _not_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")
