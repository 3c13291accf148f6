"""How warm the drives were while they worked, arm beside arm."""

from __future__ import annotations

from statistics import median

import numpy as np

from wattload.core.power import Channel
from wattload.reports.blocks import Table, columns, row
from wattload.reports.load import Run
from wattload.reports.memo import once_each
from wattload.reports.quantity import MISSING
from wattload.reports.sections.drives import ABSOLUTE_ZERO_C
from wattload.reports.subject import Group, lettered


def temperature_table(group: Group) -> Table | None:
    """Return the highest temperature in timed phases by arm, the median over its runs.

    With two arms their difference in kelvin stands beside them. ``None`` where no drive told its
    temperature.
    """
    highest = {arm: [highest_k(run) for run in runs] for arm, runs in group.arms.items()}
    known = {arm: [k for k in values if k is not None] for arm, values in highest.items()}
    if not any(known.values()):
        return None
    medians_k = [median(values) if values else None for values in known.values()]
    cells = ["highest temperature", *(_celsius(kelvin) for kelvin in medians_k)]
    titles = [f"#{lettered(*pair)}" for pair in zip(group.letters, group.arms, strict=True)]
    if group.is_pair:
        titles.append("#B - A")
        first_k, second_k = medians_k
        cells.append(_difference(first_k, second_k))
    return Table(
        columns=columns("drive", *titles),
        rows=[row(*cells)],
        caption="Temperature of the drive under load",
        note=(
            "As the drive's own SMART log tells it, in whole kelvins, at its highest in the timed "
            "phases; the median over an arm's runs. Where a drive began warm, it is warmer."
        ),
    )


def _difference(first_k: float | None, second_k: float | None) -> str:
    return MISSING if first_k is None or second_k is None else f"{second_k - first_k:+g} K"


def _celsius(kelvin: float | None) -> str:
    return MISSING if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"


@once_each
def highest_k(run: Run) -> float | None:
    """Return the highest temperature that any drive told in a run's timed windows."""
    if run.closures is not None:  # a light run: it was asked before
        return run.highest_k
    power = run.traces.power
    found = []
    for signal in power.of(Channel.TEMPERATURE_K) if power is not None else ():
        for window in run.record.timed_windows():
            inside = (signal.time_ns >= window.start_ns) & (signal.time_ns <= window.end_ns)
            values = signal.value[inside & ~np.isnan(signal.value)]
            if values.size:
                found.append(float(values.max()))
    return max(found, default=None)
