"""The uncertainty of an energy: gain, offset, noise, edges and gaps, at k = 2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wattload.core.power import SourceFacts
from wattload.core.record.energy import SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.edges import Edges
from wattload.power.energy.profile import Profile
from wattload.power.energy.sensor import usual_s
from wattload.power.energy.trace import Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Joules at k = 2. If a part is unknown, ``total_j`` is ``None`` and ``reason`` says why."""

    total_j: float | None
    parts_j: Mapping[str, float]
    reason: str | None


class Noise:
    """The uncertainty of the mean of readings within windows: their noise, and what they miss.

    A trapezoid follows slow power exactly. The changes d between successive readings show what it
    does not follow: noise and bursts faster than the reads change sign from one d to the next, with
    the covariance -r; single steps between two reads, of variance q = E[d^2] - 2r, do not. Over n
    readings s apart, the energy has the variance n (r s^2 + q g^2), where g is how far a step's
    time varies with the phase of the reads.

    A mean whose windows leave no time out misses nothing: r counts for the share of time in none.
    """

    def __init__(self, whole: Profile, sensor: SensorRecord, edges: Edges) -> None:
        """Prepare the sums of all readings."""
        time_ns, watts = whole.end_ns, whole.end_w
        if sensor.update_s > usual_s(time_ns):
            is_new = np.diff(watts, prepend=np.nan) != 0
            time_ns, watts = time_ns[is_new], watts[is_new]
        self._time_ns = time_ns
        change_w = np.diff(watts, prepend=watts[:1])
        self._squares = np.concatenate(([0.0], np.cumsum(change_w**2)))
        self._products = np.concatenate(([0.0, 0.0], np.cumsum(change_w[1:] * change_w[:-1])))
        self._spacing_s, self._phase_s = edges.spacing_s, edges.phase_s
        # The longer windows overlap, the less it matters that reads are unevenly spaced.
        overlap = min(1.0, edges.spacing_s / max(edges.window_s, 1e-9))
        self._uneven_s = overlap * edges.uneven_s
        self._missed = max(0.0, 1 - edges.window_s / max(edges.spacing_s, 1e-9))
        # The changes by which a mean shows a step have this share of its square, as their sum.
        self._step_share = edges.spacing_s / max(edges.spacing_s + edges.window_s, 1e-9)
        self._noise_w = sensor.noise_w

    def variance_j2(self, read_ns: Times) -> float:
        """Return the variance of the energy of readings from some times to others, shape (n, 2)."""
        first, last = np.searchsorted(self._time_ns, read_ns, "right").T
        count = int((last - first).sum())
        squares = float((self._squares[last] - self._squares[first]).sum())
        products = float((self._products[last] - self._products[np.minimum(first + 1, last)]).sum())
        quiet_w2, opposed_w2 = self._noise_w**2, max(0.0, -products / max(count, 1))
        noise_w2 = quiet_w2 + self._missed * max(0.0, opposed_w2 - quiet_w2)
        steps_w2 = max(0.0, squares - 2 * count * noise_w2) / self._step_share
        seconds = float(np.diff(read_ns).sum()) / NS_PER_S
        uneven_j2 = squares * self._uneven_s**2 / self._step_share
        return seconds * self._spacing_s * noise_w2 + steps_w2 * self._phase_s**2 + uneven_j2


def stated_parts(
    facts: SourceFacts, energy_j: float, seconds: float
) -> tuple[Mapping[str, float], str]:
    """Return gain and offset at k = 2 by the accuracy that the meter states, or why not.

    The offset of ``seconds`` of readings is the same in all of them.
    """
    accuracy = facts.accuracy
    if accuracy is None or accuracy.model_dump(exclude_none=True) == {}:
        return {}, f"the gain uncertainty of {facts.name} is unknown"
    range_w = 0.0
    if accuracy.range_percent is not None:
        if facts.range_w is None:
            return {}, f"the accuracy of {facts.name} is a share of its range, which is unknown"
        range_w = accuracy.range_percent / 100 * facts.range_w
    return {
        "gain": abs(energy_j) * (accuracy.reading_percent or 0.0) / 100,
        "offset": (range_w + (accuracy.watts or 0.0)) * seconds,
    }, ""


def total(parts_j: Mapping[str, float], reason: str) -> Uncertainty:
    """Return the uncertainty of some parts, which add in quadrature, unless there is a reason."""
    whole_j = None if reason else math.hypot(*parts_j.values())
    return Uncertainty(total_j=whole_j, parts_j=parts_j, reason=reason or None)
