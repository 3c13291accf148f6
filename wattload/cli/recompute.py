"""``wattload check --recompute``: energies made again from a run's samples, beside the stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The energy of one phase and device by one source, stored and made again, if there is one."""

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
    def is_same(self) -> bool:
        """Whether both state the same, up to rounding."""
        if self.stored is None or self.again is None or self.stored.chosen != self.again.chosen:
            return False
        u_j = self.again.uncertainty_j
        slack_j = U_SHARE * (u_j or 0.0)
        return all(
            _close(getattr(self.stored, name), getattr(self.again, name), slack_j)
            for name in ("energy_j", "lower_j", "upper_j", "uncertainty_j")
        )


def _close(one: float | None, other: float | None, slack: float) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= max(slack, ROUNDING * abs(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """The energies of one run made again, or ``reason``: why not, or what contradicts them.

    ``models`` are the versions of the energy model, before and now. ``written`` is the name of the
    file that keeps the run's own record, empty if the record was not replaced.
    """

    run_id: str
    models: tuple[int, int] | None = None
    pairs: Sequence[Pair] = ()
    reason: str = ""
    written: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """What ``--json`` prints of it."""
        return {
            "energy_models": self.models,
            "reason": self.reason,
            "kept_as": self.written,
            "energies": [_document(pair) for pair in self.pairs],
        }

    def lines(self) -> Iterator[str]:
        """Yield what to print: of energies of one version only those that differ."""
        if self.models is None:
            yield f"{self.run_id}: energies not made again: {self.reason}"
            return
        before, now = self.models
        changed = [pair for pair in self.pairs if not pair.is_same]
        yield (
            f"{self.run_id}: {len(self.pairs)} energies made again by version {now} of the energy "
            f"model (stored: version {before}), {len(changed)} differ"
        )
        for pair in changed:
            each = pair.either
            yield (
                f"  {each.phase}, {each.device} by {each.source}: {_text(pair.stored)} -> "
                f"{_text(pair.again)}{_change(pair)}"
            )
        if self.reason:
            yield f"  {self.reason}"
        if self.written:
            yield f"  record.json now has the energies made again; {self.written} is the run's own"


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
    """Return each readable run's energies made again, by its id.

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
    pairs = _pairs(old, new)
    models = old.power.energy_model, new.power.energy_model
    reason = written = ""
    if models[0] == models[1] and not all(pair.is_same for pair in pairs):
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
    return Recomputed(run_id=old.run_id, models=models, pairs=pairs, reason=reason, written=written)


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
