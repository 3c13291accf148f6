"""The least difference of two runs, against the differences that simulated meters show."""

from __future__ import annotations

import numpy as np
import pytest

from wattload.core.power_resolution import least_difference_w

UPDATE_S, RUNS = 0.5, 4000


def simulated(step_w: float, noise_w: float, seconds: float) -> tuple[float, float]:
    """Return the noise of a meter's readings, and how far a difference of two runs' means is off.

    Both are standard deviations in watts; runs are of constant powers that fall anywhere in a step.
    """
    rng = np.random.default_rng(42)
    power_w = rng.uniform(200, 300, (2, RUNS, 1))
    read_w = power_w + rng.normal(0, noise_w, (2, RUNS, round(seconds / UPDATE_S)))
    shown_w = np.round(read_w / step_w) * step_w if step_w else read_w
    off_w = shown_w.mean(axis=2) - power_w[..., 0]
    return float(np.sqrt(shown_w.var(axis=2, ddof=1).mean())), float((off_w[0] - off_w[1]).std())


@pytest.mark.parametrize("seconds", [10.0, 60.0])
@pytest.mark.parametrize(
    ("step_w", "noise_w"),
    [(1.0, 0.0), (10.0, 0.0), (0.0, 2.0), (0.01, 2.0), (1.0, 2.0), (4.0, 2.0)],
)
def test_the_least_difference_is_twice_the_spread_of_simulated_differences(
    step_w: float, noise_w: float, seconds: float
) -> None:
    reading_w, spread_w = simulated(step_w, noise_w, seconds)
    least_w = least_difference_w(
        step_w=step_w, noise_w=reading_w, update_s=UPDATE_S, seconds=seconds
    )
    assert least_w == pytest.approx(2 * spread_w, rel=0.05)


def test_noise_below_the_step_never_makes_the_least_difference_too_small() -> None:
    for noise_w in (0.5, 1.0, 2.0):
        reading_w, spread_w = simulated(10.0, noise_w, 60.0)
        least_w = least_difference_w(
            step_w=10.0, noise_w=reading_w, update_s=UPDATE_S, seconds=60.0
        )
        assert 0.95 * 2 * spread_w < least_w < 1.6 * 2 * spread_w
