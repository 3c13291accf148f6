"""``wattload check --recompute``: energies recomputed from a run's samples, beside the stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattload.core.errors import RecordError, WattloadError

if TYPE_CHECKING:
    from wattload.core.record.energy import EnergyRecord
    from wattload.core.record.file import StoredRecord
    from wattload.core.record.run import RunRecord

ROUNDING = 1e-6
"""A share of an energy that another processor or library may round differently."""
U_SHARE = 0.01
"""A share of U: a fit on another processor may stop at another point of a flat maximum."""
SLACK_W, SLACK_S = 1e-4, 1e-3
"""Power and lag that such a fit may change by where no U is stated."""
FIT_SHARE = 0.01
"""A share of what such a fit finds besides energies."""

RECOMPUTED = ("choice", "idle_s", "tail_s", "sources", "idle", "polling", "throttling", "written")
"""The parts of the section that follow from the samples, besides the energies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The energy of one phase and device by one source, stored and recomputed, if there is one."""

    stored: EnergyRecord | None
    again: EnergyRecord | None

    @property
    def either(self) -> EnergyRecord:
        """One of both, for what they have in common."""
        found = self.again or self.stored
        assert found is not None
        return found

    @property
    def difference(self) -> float | None:
        """The change as a share of the stored energy, ``None`` if one of both is missing."""
        stored_j = None if self.stored is None else self.stored.energy_j
        again_j = None if self.again is None else self.again.energy_j
        if stored_j is None or again_j is None or stored_j == 0:
            return None
        return again_j / stored_j - 1

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of the figures that differ by more than rounding; none if one of both lacks."""
        if self.stored is None or self.again is None:
            return ()
        slacks = {"_j": _slack_j(self.again), "_w": _slack_w(self.again)}
        one, other = (each.model_dump(mode="json") for each in (self.stored, self.again))
        return tuple(dict.fromkeys(_differing(one, other, slacks, ROUNDING)))

    @property
    def is_same(self) -> bool:
        """Whether both state the same, up to rounding."""
        return self.stored is not None and self.again is not None and not self.differing


def _slack_j(energy: EnergyRecord) -> float:
    """Return how far an energy may be from the stored one.

    A source without a stated gain has no U, but the other parts of one.
    """
    uncertainty_j = math.hypot(*energy.uncertainty_parts_j.values())
    return max(U_SHARE * uncertainty_j, SLACK_W * energy.seconds)


def _slack_w(energy: EnergyRecord) -> float:
    return max(SLACK_W, _slack_j(energy) / energy.seconds if energy.seconds > 0 else 0.0)


def _differing(
    one: object, other: object, slacks: Mapping[str, float], share: float, name: str = ""
) -> Iterator[str]:
    """Yield the names of the parts of two JSON values that differ, without indices.

    Numbers may differ by a ``share``, or by a slack for the end of a part of their name: the unit.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            path = f"{name}.{key}" if name else key
            yield from _differing(one.get(key), other.get(key), slacks, share, path)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for each, again in zip(one, other, strict=True):
            yield from _differing(each, again, slacks, share, name)
    elif isinstance(one, float) and isinstance(other, float):
        units = (unit for unit in slacks if any(part.endswith(unit) for part in name.split(".")))
        slack = slacks.get(next(units, ""), 0.0)
        if abs(one - other) > max(slack, share * abs(other)):
            yield name
    # Why a figure is missing may name another one, which is rounded.
    elif one != other and not (one and other and "missing" in name.split(".")):
        yield name


def _section_differs(old: RunRecord, new: RunRecord) -> tuple[str, ...]:
    """Return what else differs that follows from the samples: sensors and idle power."""
    one, other = (
        record.power.model_dump(mode="json", include=set(RECOMPUTED)) for record in (old, new)
    )
    slacks = {"_w": SLACK_W, "_s": SLACK_S}
    return tuple(dict.fromkeys(_differing(one, other, slacks, FIT_SHARE)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """The energies of one run recomputed, or ``reason``: why not, or what contradicts them.

    ``models`` are the versions of the energy model, before and now. ``others`` are the names of
    what differs besides energies. ``written`` is the name of the file that keeps the run's own
    record, empty if the record was not replaced.
    """

    run_id: str
    models: tuple[int, int] | None = None
    pairs: Sequence[Pair] = ()
    others: Sequence[str] = ()
    reason: str = ""
    written: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """What ``--json`` prints of it."""
        return {
            "energy_models": self.models,
            "reason": self.reason,
            "kept_as": self.written,
            "others": list(self.others),
            "energies": [_document(pair) for pair in self.pairs],
        }

    def lines(self) -> Iterator[str]:
        """Yield what to print: of energies of one version only those that differ."""
        if self.models is None:
            yield f"{self.run_id}: energies not recomputed: {self.reason}"
            return
        before, now = self.models
        changed = [pair for pair in self.pairs if not pair.is_same]
        yield (
            f"{self.run_id}: {len(self.pairs)} energies recomputed by version {now} of the energy "
            f"model (stored: version {before}), {len(changed)} differ"
        )
        for pair in changed:
            each = pair.either
            yield (
                f"  {each.phase}, {each.device} by {each.source}: {_text(pair.stored)} -> "
                f"{_text(pair.again)}{_change(pair)}"
                + (f"; differs in {', '.join(pair.differing)}" if before == now else "")
            )
        if self.others and before == now:
            yield f"  also: {', '.join(self.others)}"
        if self.reason:
            yield f"  {self.reason}"
        if self.written:
            yield f"  record.json now has the energies recomputed; {self.written} is the run's own"


def _document(pair: Pair) -> dict[str, Any]:
    each = pair.either
    figures = ("energy_j", "lower_j", "upper_j", "uncertainty_j", "chosen")
    return {
        "host": each.host,
        "phase": each.phase,
        "device": each.device,
        "source": each.source,
        "stored": pair.stored and pair.stored.model_dump(mode="json", include=set(figures)),
        "recomputed": pair.again and pair.again.model_dump(mode="json", include=set(figures)),
        "difference": pair.difference,
        "is_same": pair.is_same,
        "differing": list(pair.differing),
    }


def _text(energy: EnergyRecord | None) -> str:
    if energy is None:
        return "none"
    if energy.energy_j is not None:
        u_j = energy.uncertainty_j
        text = f"{energy.energy_j:.6g}" + ("" if u_j is None else f" ± {u_j:.2g}") + " J"
    elif energy.upper_j is not None:
        text = f"{energy.lower_j or 0:.6g} to {energy.upper_j:.6g} J"
    else:
        text = f"none ({energy.missing.get('energy_j', 'no reason is stored')})"
    return text + (", chosen" if energy.chosen else "")


def _change(pair: Pair) -> str:
    return "" if pair.difference is None else f" ({100 * pair.difference:+.3f} %)"


def recompute(files: Sequence[Path], *, write: bool) -> dict[str, Recomputed]:
    """Return each readable run's energies recomputed, by its id.

    With ``write``, a record of an older energy model is replaced; the run's own stays beside it.
    """
    from wattload.core.record.file import read_stored

    found: dict[str, Recomputed] = {}
    for file in files:
        try:
            stored = read_stored(file)
        except RecordError:
            continue  # left out, with this reason, by the checks
        if stored.record.run_id not in found:  # a second record of a run is left out
            found[stored.record.run_id] = _of_run(stored, file.parent, write=write)
    return found


def _of_run(stored: StoredRecord, folder: Path, *, write: bool) -> Recomputed:
    from wattload.run.record import replace_record, with_recomputed_energies

    old = stored.record
    try:
        new = with_recomputed_energies(stored, folder)
    except WattloadError as error:
        return Recomputed(run_id=old.run_id, reason=str(error))
    pairs, others = _pairs(old, new), _section_differs(old, new)
    models = old.power.energy_model, new.power.energy_model
    reason = written = ""
    if models[0] == models[1] and (others or not all(pair.is_same for pair in pairs)):
        reason = (
            "The stored energies are not those of the samples: the record was changed, or made by "
            "another edition of this version."
        )
    elif write and models[0] != models[1]:
        try:
            written = replace_record(stored, new, folder)
        except WattloadError as error:
            reason = f"The record is not replaced: {error}"
        except OSError as error:
            reason = f"The record is not replaced: {error.filename or folder}: {error.strerror}"
    return Recomputed(
        run_id=old.run_id,
        models=models,
        pairs=pairs,
        others=others,
        reason=reason,
        written=written,
    )


def _pairs(old: RunRecord, new: RunRecord) -> list[Pair]:
    by_key = [
        {
            (each.host, each.phase, each.device, each.source, each.start_ns, each.end_ns): each
            for each in (*record.power.energy, *record.power.whole_run)
        }
        for record in (old, new)
    ]
    return [
        Pair(stored=by_key[0].get(key), again=by_key[1].get(key))
        for key in dict.fromkeys([*by_key[0], *by_key[1]])
    ]
