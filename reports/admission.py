"""Which runs a comparison counts, and what bars it: other work, other bytes, failed checks.

A user may force what is barred; what that let through is then said wherever it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wattload.core.units import Unit
from wattload.reports import energy as energies
from wattload.reports.conditions import unlike_bytes, unlike_runs, unlike_work
from wattload.reports.figures import Quantity
from wattload.reports.load import Run
from wattload.reports.quantity import counted, listed
from wattload.reports.subject import Group, Subject


def counts(subject: Subject, run: Run) -> bool:
    """Return whether a run is compared: no fault bars it, or one that a user may force.

    A warm-up and a run that did not finish have no figure to compare, whatever is forced.
    """
    if run.record.comparison.warm_up or run.record.status != "complete":
        return False
    return subject.forced or not subject.faults(run)


def counts_energy(subject: Subject, run: Run) -> bool:
    """Return whether a run's energy is compared."""
    return counts(subject, run) and (subject.forced or not subject.energy_faults(run))


def counted_group(subject: Subject, group: Group) -> Group:
    """Return a group with the runs that are compared; an arm may be left without any.

    What is not compared bars nothing, and is no witness that arms are alike.
    """
    arms = {
        arm: tuple(run for run in runs if counts(subject, run)) for arm, runs in group.arms.items()
    }
    return replace(group, arms=arms)


@dataclass(frozen=True, slots=True)
class Unlike:
    """In what the arms of a group are not alike: their work, or by phase the bytes they moved.

    ``mixed`` says in what the runs of one arm are no repeats of each other.
    """

    work: str
    mixed: str
    bytes_by_phase: Mapping[str, str]
    faulty: str
    faulty_energy: str

    def bars(self, quantity: Quantity) -> tuple[str, ...]:
        """Return why a quantity can't be compared: times and energies need the same bytes too."""
        found = [reason for reason in (self.work, self.mixed) if reason]
        if quantity.unit in (Unit.SECONDS, Unit.JOULES) and self.bytes_by_phase:
            if quantity.phase in ("", energies.ALL_PHASES):
                found.append(next(iter(self.bytes_by_phase.values())))
            elif quantity.phase in self.bytes_by_phase:
                found.append(self.bytes_by_phase[quantity.phase])
        return tuple(found)

    def forced(self, quantity: Quantity) -> str:
        """Return what bars a quantity where nothing is forced; empty if nothing does."""
        faulty = self.faulty_energy if quantity.is_energy else self.faulty
        return listed([*self.bars(quantity), *([faulty] if faulty else [])])


def unlike(subject: Subject, group: Group) -> Unlike:
    """Return in what the arms of a group are not alike, and how many runs are barred of each.

    It is of the runs that are compared alone.
    """
    compared = counted_group(subject, group)
    return Unlike(
        work=unlike_work(compared, subject.by),
        mixed=unlike_runs(compared),
        bytes_by_phase=unlike_bytes(compared),
        faulty=_faulty(subject, compared, of_energy=False),
        faulty_energy=_faulty(subject, compared, of_energy=True),
    )


def _faulty(subject: Subject, compared: Group, *, of_energy: bool) -> str:
    """Return how many runs count although a check bars them; empty for none."""
    found = [
        run
        for run in compared.runs
        if subject.faults(run) or (of_energy and subject.energy_faults(run))
    ]
    return f"{counted(len(found), 'run')} that checks bar" if found else ""
