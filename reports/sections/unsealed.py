"""What is said of records that have no seal, wherever their figures are compared."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.reports.blocks import Notice
from wattload.reports.quantity import counted
from wattload.reports.subject import Group

NO_SEAL = "the record has no seal, so nothing says whether it was edited"
"""A record of version 1 never had one; one whose seal was taken out can pass for such a record."""


def unsealed(group: Group) -> Iterator[Notice]:
    """Yield how many runs of each arm have no seal, and that their figures are compared."""
    found = [
        f"{arm}: {sum(run.is_unsealed for run in runs)} of {counted(len(runs), 'run')}, for which "
        "nothing says whether the record was edited. The figures are compared all the same."
        for arm, runs in group.arms.items()
        if any(run.is_unsealed for run in runs)
    ]
    if found:
        yield Notice("Compared without a seal", found, "warn")
