"""How large the records are: a normal distribution cut off below, met exactly by its files.

A size is the payload of a record in bytes, as DLIO's ``record_length_bytes`` means it; the file is
larger by its header (128 bytes for npy, 487 for npz).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError

DLIO_SEED = 10
"""DLIO's generators call ``np.random.seed(10)`` before they draw the dimensions."""

MINIMUM_COUNT = 8
"""With fewer files mean and stdev are no description of a distribution."""

PAIRS = 512
"""How many pairs of sides are tried for a record, from the square one on."""

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Payload bytes of a record: mean and stdev as realised, and the least there may be."""

    mean_bytes: float
    stdev_bytes: float
    minimum_bytes: int

    def check(self) -> None:
        """Raise ``ConfigError`` unless such records can exist."""
        if not 1 <= self.minimum_bytes <= self.mean_bytes or self.stdev_bytes < 0:
            raise ConfigError(
                f"records need 1 <= minimum <= mean and stdev >= 0 bytes, got minimum "
                f"{self.minimum_bytes}, mean {self.mean_bytes}, stdev {self.stdev_bytes}"
            )


def matched_shapes(distribution: Distribution, count: int, seed: int) -> tuple[Shape, ...]:
    """Return the shapes of ``count`` records whose mean and stdev are those asked for.

    The sizes are the quantiles ``(i + 0.5) / count`` of a normal distribution that is cut off at
    the minimum, with its two parameters chosen so that the sizes themselves (stdev with divisor
    ``count``) have the moments asked for: a finite sample of the plain distribution would miss them
    by percents, and cutting it off would move both. Every seed gives the same sizes, dealt to the
    files in another order, so that runs with different seeds move the same bytes.

    Raises:
        ConfigError: fewer than 8 records, or a stdev too large for the distance from the minimum.
    """
    distribution.check()
    if count < MINIMUM_COUNT:
        raise ConfigError(
            f"file_count must be {MINIMUM_COUNT} or more for records of a given mean and stdev, "
            f"got {count}; sizes=dlio takes any count"
        )
    sizes = _matched_sizes(distribution, count)
    np.random.default_rng(seed).shuffle(sizes)
    return tuple(_shape(size, distribution.minimum_bytes) for size in sizes.tolist())


def dlio_shapes(distribution: Distribution, count: int) -> tuple[Shape, ...]:
    """Return the shapes of ``count`` records as DLIO draws them; the minimum plays no part.

    Both dimensions are drawn from N(isqrt(mean), stdev / 2 / sqrt(mean)) after
    ``np.random.seed(10)``, so the realised stdev is 1/sqrt(2) of the one asked for (48.9 MB instead
    of 68.3). Source: DLIO ``data_generator.py`` (``get_dimension``), ``utils/config.py``.
    """
    distribution.check()
    scale = distribution.stdev_bytes / 2.0 / math.sqrt(distribution.mean_bytes)
    dimension = math.isqrt(int(distribution.mean_bytes))
    drawn = np.random.RandomState(DLIO_SEED).normal(dimension, scale, 2 * count)
    sides = np.maximum(drawn.astype(np.int64), 1).reshape(count, 2)
    return tuple((first, second, 1) for first, second in sides.tolist())


def payload_bytes(shape: Shape) -> int:
    """Return the bytes of a uint8 record of that shape."""
    return math.prod(shape)


def _matched_sizes(distribution: Distribution, count: int) -> NDArray[np.float64]:
    """Return sizes in bytes, shape ``(count,)``, ascending, with exactly the moments asked for.

    With the cut at ``a`` standard deviations from the centre, let ``t_i(a) >= 0`` be the quantiles'
    distances from the cut. Sizes ``minimum + scale * t_i`` have the right mean for one ``scale``,
    and the right stdev too where mean(t) / stdev(t) equals (mean - minimum) / stdev. That ratio is
    continuous in ``a`` and grows without bound towards -infinity, where nothing is cut off, so
    bisection finds ``a`` whenever the ratio at the other end, an exponential tail, is smaller.
    """
    above_bytes = distribution.mean_bytes - distribution.minimum_bytes
    if distribution.stdev_bytes == 0:
        return np.full(count, distribution.mean_bytes)
    wanted = above_bytes / distribution.stdev_bytes
    low, high = -4.0 - 2.0 * wanted, 30.0
    if _ratio(high, count) > wanted:
        raise ConfigError(
            f"record_stdev_bytes {distribution.stdev_bytes:.0f} is too large for records of mean "
            f"{distribution.mean_bytes:.0f} and at least {distribution.minimum_bytes} bytes; "
            f"at most {above_bytes / _ratio(high, count):.0f} is possible"
        )
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _ratio(middle, count) > wanted else (low, middle)
    distances = _distances(low, count)
    return distribution.minimum_bytes + distances * (above_bytes / float(distances.mean()))


def _ratio(cut: float, count: int) -> float:
    distances = _distances(cut, count)
    return float(distances.mean() / distances.std())


def _distances(cut: float, count: int) -> NDArray[np.float64]:
    """Return the quantiles of a standard normal beyond ``cut``, as distances from it, ascending."""
    from scipy.special import ndtr, ndtri

    # By the upper tail, where small probabilities keep their digits.
    above = (np.arange(count, 0, -1) - 0.5) / count * ndtr(-cut)
    return np.asarray(-ndtri(above) - cut)


def _shape(size: float, minimum_bytes: int) -> Shape:
    """Return two nearly equal sides, as DLIO's, and one sample: a product next to ``size``.

    The product is never under the minimum. Of some 500 pairs of sides the nearest is taken, so that
    a record of 100 kB, too, is off by a byte or so.
    """
    root = math.isqrt(int(size))
    first = np.arange(root, max(root - PAIRS, root // 2), -1)
    second = np.rint(size / first).astype(np.int64)
    second += first * second < minimum_bytes
    nearest = int(np.argmin(np.abs(first * second - size)))
    return (int(first[nearest]), int(second[nearest]), 1)
