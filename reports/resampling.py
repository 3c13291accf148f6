"""The BCa bootstrap (Efron 1987) of a mean, or of the difference of two.

Samples of equal sizes are resampled by the same draws: a page of many runs has one size of arm and
dozens of figures, and to draw anew for each took most of its time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Draws = NDArray[np.uint16]

_BATCH = 1000
_KEPT_DRAWS = 16_000_000
"""So many draws are kept, of 2 bytes each; larger samples are drawn anew each time."""


def bca_ends(
    samples: tuple[tuple[float, ...], ...], confidence: float, *, resamples: int, seed: int
) -> tuple[float, float]:
    """Return the ends for the mean of one sample, or for the first's mean less the second's.

    Args:
        samples: one or two of three values or more, one of which varies.
        confidence: from 0 to 1, of the whole interval.
        resamples: how many are drawn.
        seed: of the random numbers; equal arguments give equal ends.
    """
    import numpy as np
    from scipy.special import ndtr, ndtri

    means = _means(samples, resamples, seed)
    seen = _statistic([np.mean(np.array(sample)) for sample in samples])
    below = (np.count_nonzero(means < seen) + np.count_nonzero(means <= seen)) / (2 * means.size)
    bias, bend = float(ndtri(below)), _acceleration(samples)
    tail = float(ndtri((1 - confidence) / 2))
    shares = []
    for z in (tail, -tail):
        shifted = bias + z
        shares.append(float(ndtr(bias + shifted / (1 - bend * shifted))))
    low, high = np.percentile(means, [100 * share for share in shares])
    return float(low), float(high)


@lru_cache(maxsize=64)
def _means(samples: tuple[tuple[float, ...], ...], resamples: int, seed: int) -> Floats:
    """Return the statistic of every resample, sorted."""
    import numpy as np

    arrays = [np.array(sample) for sample in samples]
    sizes = tuple(len(sample) for sample in samples)
    found: list[Floats] = [
        _statistic([array[drawn].mean(axis=-1) for array, drawn in zip(arrays, draws, strict=True)])
        for draws in _draws(sizes, resamples, seed)
    ]
    return np.sort(np.concatenate(found))


def _statistic(means: list[Floats]) -> Floats:
    return means[0] if len(means) == 1 else means[0] - means[1]


def _draws(sizes: tuple[int, ...], resamples: int, seed: int) -> Iterator[tuple[Draws, ...]]:
    if sum(sizes) * resamples <= _KEPT_DRAWS:
        return iter(_kept_draws(sizes, resamples, seed))
    return _drawn(sizes, resamples, seed)


@lru_cache(maxsize=4)
def _kept_draws(sizes: tuple[int, ...], resamples: int, seed: int) -> tuple[tuple[Draws, ...], ...]:
    return tuple(_drawn(sizes, resamples, seed))


def _drawn(sizes: tuple[int, ...], resamples: int, seed: int) -> Iterator[tuple[Draws, ...]]:
    """Yield batches of resamples: for each sample which of its values each resample has."""
    import numpy as np

    random = np.random.default_rng(seed)
    for start in range(0, resamples, _BATCH):
        rows = min(_BATCH, resamples - start)
        yield tuple(
            random.integers(0, size, (rows, size)).astype(np.min_scalar_type(size))
            for size in sizes
        )


def _acceleration(samples: tuple[tuple[float, ...], ...]) -> float:
    """Return how the standard error changes with the mean, by the jackknife.

    To leave one value out of n moves the mean by its distance from it over n - 1.
    """
    import numpy as np

    cubes = squares = 0.0
    for sign, sample in zip((1, -1), samples, strict=False):
        values = np.array(sample)
        apart = sign * (values - values.mean())
        cubes += float((apart**3).sum()) / len(sample) ** 3
        squares += float((apart**2).sum()) / len(sample) ** 2
    return cubes / (6 * math.pow(squares, 1.5)) if squares > 0 else 0.0
