"""What a meter can't show: the rounding of its readings, and the least difference between runs."""

from __future__ import annotations

import math


def rounding_w(step_w: float, noise_w: float) -> float:
    """Return the standard uncertainty in watts of a mean of readings rounded to ``step_w``.

    ``noise_w`` is the standard deviation of rounded readings. Without noise, all readings of one
    power have the same error: step / sqrt(12). Gaussian noise before the rounding leaves a sum of
    harmonics k of the power, of amplitude step / (pi k) * exp(-2 pi^2 k^2 (noise / step)^2)
    (Widrow and Kollar, Quantization Noise, 2008, chapter 19).
    """
    if not step_w:
        return 0.0
    before_w2 = max(noise_w**2 - step_w**2 / 12, 0.0)
    harmonics = sum(
        math.exp(-((2 * math.pi * k / step_w) ** 2) * before_w2) / k**2 for k in range(1, 100)
    )
    return step_w / math.pi * math.sqrt(harmonics / 2)


def least_difference_w(*, step_w: float, noise_w: float, update_s: float, seconds: float) -> float:
    """Return the least difference of two runs' mean powers that one meter shows, at k = 2.

    Each run is ``seconds`` of constant power, read every ``update_s`` (at most ``seconds``) in
    steps of ``step_w`` with a standard deviation of ``noise_w``. The meter's gain and offset are
    the same in both runs. What differs is the rounding r of a mean and the noise s, averaged over
    the readings of a run: 2 sqrt(2) sqrt(r^2 + s^2 update_s / seconds), by the law of propagation
    of uncertainty for independent runs (JCGM 100:2008, 5.1.2). Power that varies by itself adds to
    it.
    """
    mean_w = math.hypot(rounding_w(step_w, noise_w), noise_w * math.sqrt(update_s / seconds))
    return 2 * math.sqrt(2) * mean_w
