"""The two bases of every model in a record: frozen, and frozen with a reason for each gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

NOT_RECORDED = "the version that wrote the record did not record it"


class Frozen(BaseModel):
    """An immutable part of a record: no unknown field, no NaN, no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Observed(Frozen):
    """A part whose fields were read from the machine: a ``None`` has a reason in ``missing``.

    Missing is not zero and not silence: every optional field that is ``None`` must be explained,
    and no field that has a value may be. ``missing`` maps field name to one clause in plain words.
    A field whose default is ``None`` came later than its model: where it is left out, as in a
    record that an older version wrote, that is the reason.
    """

    missing: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _later_fields_are_explained(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        absent = [
            name
            for name, field in cls.model_fields.items()
            if not field.is_required() and field.default is None and name not in values
        ]
        missing = values.get("missing", {})
        if not absent or not isinstance(missing, Mapping):
            return values
        return {**values, "missing": {**dict.fromkeys(absent, NOT_RECORDED), **missing}}

    @model_validator(mode="after")
    def _every_gap_has_a_reason(self) -> Self:
        gaps = {name for name in type(self).model_fields if getattr(self, name) is None}
        explained = set(self.missing)
        if gaps - explained:
            raise ValueError(
                f"{type(self).__name__}: no reason given for {sorted(gaps - explained)}"
            )
        if explained - gaps:
            raise ValueError(
                f"{type(self).__name__}: {sorted(explained - gaps)} has both a value "
                "and a reason for being missing, or is no field"
            )
        return self
