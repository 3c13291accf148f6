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

from wattload.core.power import Boxcar, Counter, Instant, Sensor


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


def declared_response(sensor: Sensor, update_s: float) -> Response:
    """Return the response of a sensor as declared, whose readings are held for ``update_s``.

    A mean over w seconds, held for u, is a mean over w and then, on average over the phase of the
    updates, one over u. Its delay is lag + (w + u) / 2.
    """
    window_s = sensor.window_s if isinstance(sensor, Boxcar) else 0.0
    lag_s = sensor.lag_s if isinstance(sensor, Boxcar | Instant | Counter) else 0.0
    long_s, short_s = max(window_s, update_s), min(window_s, update_s)
    # Two means in a row answer with a trapezoid of slope 1 / long and round ends of length short;
    # until its middle the integral is that of a mean over long, plus short^2 / (24 long).
    ramp_s = long_s / 8 + (short_s**2 / (24 * long_s) if long_s else 0.0)
    return Response(
        tau_s=lag_s + (window_s + update_s) / 2,
        kappa_s=ramp_s,
        settle_s=lag_s + window_s + update_s,
    )
