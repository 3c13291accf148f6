"""How a sensor answers a step of power: two numbers that conserve energy.

Let s(t) be the reading after a step of power from 0 to 1 W at t = 0. With R(t) the integral of the
readings and E(t) that of power, and power constant at P before a time a,

    E(a) = R(a) + tau P                          tau   = integral of (1 - s) over all time

and if power jumps by D at a and is constant until a + tau,

    E(a) = R(a + tau) - kappa D                  kappa = integral of s from 0 to tau

Both follow from R(T) = integral of P(t) s(T - t) dt. No shape of the response enters, only that it
is linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattload.core.power import Boxcar, Counter, Instant, Sensor
from wattload.core.record.energy import SensorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The response to a step, in seconds; uncertainties are standard ones (k = 1).

    ``settle_s`` is the time from a step until its reading is complete.
    """

    tau_s: float
    kappa_s: float
    settle_s: float
    tau_uncertainty_s: float = 0.0
    kappa_uncertainty_s: float = 0.0

    @classmethod
    def of(cls, sensor: SensorRecord) -> Response:
        """Return the response in a record, whose uncertainties are at k = 2."""
        return cls(
            tau_s=sensor.tau_s,
            kappa_s=sensor.kappa_s,
            settle_s=sensor.settle_s,
            tau_uncertainty_s=sensor.tau_uncertainty_s / 2,
            kappa_uncertainty_s=sensor.kappa_uncertainty_s / 2,
        )

    def window_s(self, update_s: float, read_s: float) -> float:
        """Return the window of the mean that has this ``kappa_s``, as ``declared_response``."""
        window_s = np.linspace(0.0, 8 * self.kappa_s, 200)
        kappa_s = [_ramp_s(each, update_s, read_s, read_s) for each in window_s.tolist()]
        return float(np.interp(self.kappa_s, kappa_s, window_s))


def declared_response(sensor: Sensor, update_s: float, read_s: float = 0.0) -> Response:
    """Return the response of a sensor as declared, whose readings are held for ``update_s``.

    A mean over w seconds, held for u, is a mean over w and then, on average over the phase of the
    updates, one over u. Its delay is lag + (w + u) / 2. Reads ``read_s`` apart that are joined by
    straight lines are two more means, which are not later.
    """
    window_s = sensor.window_s if isinstance(sensor, Boxcar) else 0.0
    lag_s = sensor.lag_s if isinstance(sensor, Boxcar | Instant | Counter) else 0.0
    return Response(
        tau_s=lag_s + (window_s + update_s) / 2,
        kappa_s=_ramp_s(window_s, update_s, read_s, read_s),
        settle_s=lag_s + window_s + update_s,
    )


def _ramp_s(*means_s: float) -> float:
    """Return the integral of the response of several means in a row until its middle.

    The longest one answers with a ramp of slope 1 / long, the others round its ends: that adds the
    sum of their squares / (24 long), exactly so for two.
    """
    long_s = max(means_s)
    if not long_s:
        return 0.0
    return long_s / 8 + (sum(each**2 for each in means_s) - long_s**2) / (24 * long_s)
