"""Regularised least squares for the power that a known sensor saw.

Power is constant on pieces of time. Within an interval of work or of idle time it is a random walk
from piece to piece. Intervals of equal work, or their parts, begin at powers that scatter around an
unknown mean. This is Gaussian process regression with a banded precision (Rue and Held, Gaussian
Markov Random Fields, 2005, 2.4): the fit is the posterior mean, and its matrix gives the
posterior's covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.power.energy.activity import Pieces
from wattload.power.energy.observations import Observations, Response
from wattload.power.energy.trace import Values

NOISE_MAX = 0.1
"""The largest standard deviation of a sensor's noise, as a share of its readings' range."""
_RIDGE = 1e-12


class Walk(NamedTuple):
    """How power varies: logarithms of two ratios to the noise of a reading.

    ``log_rate``: the variance of power per second of the walk, to the noise's variance.
    ``log_spread``: the standard deviation of the starts of equal intervals, to the noise's.
    """

    log_rate: float
    log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unknowns:
    """The unknowns y (n,) of the equations; power is ``own[j] * y[j] + before[j] * y[j - 1]``.

    For an RC filter, y are its outputs at the ends of the pieces, so that a reading depends on two
    of them rather than on the power of many time constants. Else y is the power itself: ``own`` is
    1, and ``before`` is ``None``.
    """

    own: Values
    before: Values | None

    @classmethod
    def of(cls, response: Response, edge_s: Values) -> Unknowns:
        """Return the unknowns for a sensor, on pieces with these edges (n + 1,)."""
        length_s = np.diff(edge_s)
        own, before = np.ones(length_s.size), None
        if response.shape == "rc":
            # Before the first piece, power was that of the first piece.
            gone = np.exp(-length_s[1:] / response.window_s)
            own[1:] = 1 / (1 - gone)
            before = np.append(0.0, -gone / (1 - gone))
        return cls(own=own, before=before)

    def watts(self, unknown: Values) -> Values:
        """Return the power of each piece (n,) from the unknowns (n,)."""
        if self.before is None:
            return unknown
        watts = self.own * unknown
        watts[1:] += self.before[1:] * unknown[:-1]
        return watts

    def transposed(self, weight: Values) -> Values:
        """Return weights of the unknowns (n,) or (n, k) from weights of power."""
        if self.before is None:
            return weight
        shape = (-1, *[1] * (weight.ndim - 1))
        found: Values = self.own.reshape(shape) * weight
        found[:-1] += self.before[1:].reshape(shape) * weight[1:]
        return found

    def precision(self, own: Values, next_: Values) -> Values:
        """Return the lower band (3, n) of T' Q T, for Q with diagonal (n,) and lower one (n - 1,).

        T is the matrix of ``watts``.
        """
        band = np.zeros((3, own.size))
        if self.before is None:
            band[0], band[1, :-1] = own, next_
            return band
        band[0] = self.own**2 * own
        band[0, :-1] += self.before[1:] * (2 * self.own[:-1] * next_ + self.before[1:] * own[1:])
        band[1, :-1] = self.own[1:] * (self.own[:-1] * next_ + self.before[1:] * own[1:])
        band[1, :-2] += self.before[2:] * self.before[1:-1] * next_[1:]
        band[2, :-2] = self.own[2:] * self.before[1:-1] * next_[1:]
        return band


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Covariance:
    """The posterior covariance of the power of n pieces.

    ``factor`` is the band of the Cholesky factor of the unknowns' precision for known mean starts,
    ``ties`` (n, m) are the unknowns' weights of the m mean starts, and ``schur`` (m, m) is the
    precision of these.
    """

    variance: float
    unknowns: Unknowns
    factor: Values
    ties: Values
    schur: Values

    def energy_j2(self, seconds: Values) -> float:
        """Return the variance of the energy in ``seconds`` (n,) of each piece, in J^2."""
        from scipy.linalg.blas import dtbsv

        weight = self.unknowns.transposed(seconds)
        tied = self.ties.T @ weight
        # The forward substitution of the zeros before the first weight is zero.
        first = int(np.argmax(weight != 0))
        band = self.factor[:, first:]
        solved = dtbsv(band.shape[0] - 1, band, weight[first:], lower=1)
        return self.variance * float(solved @ solved + tied @ np.linalg.solve(self.schur, tied))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """A fit for one response and walk: power (n,), residuals (m,) of the readings, and variance.

    ``log_likelihood`` is restricted: the unknown levels of power are integrated out. ``variance``
    is that of a reading's noise, in W^2.
    """

    walk: Walk
    log_likelihood: float
    variance: float
    watts: Values
    residual: Values
    covariance: Covariance


def typical_change_w(watts: Values) -> float:
    """Return the standard deviation of a reading, by the median change between readings (n,).

    Steps of power hardly affect it.
    """
    return float(np.median(np.abs(np.diff(watts)))) / (0.6745 * math.sqrt(2))


class LeastSquares:
    """The least squares of some readings on some pieces of time, for any response and walk."""

    def __init__(self, pieces: Pieces, time_s: Values, observed: Observations) -> None:
        self.pieces = pieces
        self._time_s = time_s
        self._observed = observed
        self._size = pieces.edge_s.size - 1
        self._level_w = float(observed.watts.mean())
        least_w2 = observed.resolution_w**2 / 12 + 1e-8
        range_w = float(np.ptp(observed.watts))
        noise_w = max(NOISE_MAX * range_w, observed.resolution_w)
        self._variances_w2 = least_w2, max(least_w2, noise_w**2)
        # A part of work differs from the next by anything up to the readings' range.
        change_w = max(typical_change_w(observed.watts), math.sqrt(least_w2))
        self._part_precision = (change_w / max(range_w, change_w)) ** 2
        self._latest: tuple[Response, _Rows] | None = None

    def solve(self, response: Response, walk: Walk) -> Solution | None:
        """Return the fit, ``None`` if its matrix is singular.

        At the ends of the search numbers may overflow: such a fit has no finite likelihood.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self._solve(response, walk)

    def _solve(self, response: Response, walk: Walk) -> Solution | None:
        from scipy.linalg.lapack import dpbtrf, dpbtrs

        pieces, rows = self.pieces, self._rows(response)
        rate, tie = math.exp(walk.log_rate), math.exp(-2 * walk.log_spread)
        precision = self._precision(response, rate=min(rate, 1e9))
        step = np.where(pieces.is_part, self._part_precision, 1 / (rate * pieces.walk_s))
        prior, border = self._prior(rows.unknowns, step, tie)
        band = precision * rows.normal
        for row in range(3):
            band[row] += prior[row]
        band[0] += _RIDGE
        factor, failed = dpbtrf(band, lower=1, overwrite_ab=1)
        if failed:
            return None
        right = np.vstack((precision * rows.right, border.T)).T
        solved = dpbtrs(factor, right, lower=1, overwrite_b=1)[0]
        ties = solved[:, 1:]
        count = np.array([starts.size for starts in pieces.starts], dtype=np.float64)
        schur = np.diag(count * tie) - border.T @ ties
        try:
            mean_w = np.linalg.solve(schur, -(border.T @ solved[:, 0]))
        except np.linalg.LinAlgError:
            return None
        unknown = solved[:, 0] - ties @ mean_w
        watts = rows.unknowns.watts(unknown)
        residual = self._observed.watts - self._level_w
        residual = residual - (rows.weight * unknown[rows.at]).sum(axis=0)
        squares = precision * float(residual @ residual)
        squares += float(step @ (watts[pieces.walks] - watts[pieces.walks - 1]) ** 2)
        for starts, start_w in zip(pieces.starts, mean_w, strict=True):
            squares += tie * float(((watts[starts] - start_w) ** 2).sum())
        freedom = max(self._time_s.size - pieces.free_count - len(pieces.starts), 1)
        variance = float(np.clip(squares / freedom, *self._variances_w2))
        log_determinant = 2 * float(np.log(factor[0] / rows.unknowns.own).sum())
        log_determinant += float(np.linalg.slogdet(schur)[1])
        log_prior = float(np.log(step).sum() + count.sum() * math.log(tie))
        log_prior += residual.size * math.log(precision)
        return Solution(
            walk=walk,
            log_likelihood=-0.5
            * (freedom * math.log(variance) + squares / variance + log_determinant - log_prior),
            variance=variance,
            watts=watts + self._level_w,
            residual=residual,
            covariance=Covariance(
                variance=variance, unknowns=rows.unknowns, factor=factor, ties=ties, schur=schur
            ),
        )

    def _prior(self, unknowns: Unknowns, step: Values, tie: float) -> tuple[Values, Values]:
        """Return the prior's precision of the unknowns (3, n), and of them with mean starts (n, m).

        ``step`` is the precision of each step of the walk, ``tie`` that of a start.
        """
        pieces = self.pieces
        # Power may jump between pieces that no walk connects.
        steps = np.zeros(self._size - 1)
        steps[pieces.walks - 1] = step
        own = np.zeros(self._size)
        own[1:] = steps
        own[:-1] += steps
        border = np.zeros((self._size, len(pieces.starts)))
        for column, starts in enumerate(pieces.starts):
            own[starts] += tie
            border[starts, column] = -tie
        return unknowns.precision(own, -steps), unknowns.transposed(border)

    def _precision(self, response: Response, rate: float) -> float:
        """Return the weight of a reading's square: less where power moves within a piece.

        A window that ends at a share f of a piece of length h sees a random walk of variance
        ``rate`` per second, not its mean. The error of its integral has the variance
        rate * h^3 * f^2 * (1 - f)^2 / 3, which for any f is on average rate * h^3 / 90 at each end.
        A reading of one moment differs from the mean of its piece by rate * h / 6 on average.
        """
        if response.shape == "mean":
            return 1.0
        if response.shape == "instant":
            return 1 / (1 + rate * self.pieces.piece_s / 6)
        return 1 / (1 + rate * self.pieces.piece_s**3 / (45 * response.window_s**2))

    def _rows(self, response: Response) -> _Rows:
        """Return the equations of all readings; those of the latest response are kept."""
        if self._latest is None or self._latest[0] != response:
            self._latest = None  # An hour of readings takes megabytes.
            self._latest = response, self._normal(response, *self._weights(response))
        return self._latest[1]

    def _weights(self, response: Response) -> tuple[NDArray[np.intp], Values]:
        """Return each reading's unknowns and their weights, shape (k, m)."""
        edge_s, size = self.pieces.edge_s, self._size
        to_s = self._time_s - response.lag_s
        side: Literal["left", "right"] = "right" if response.shape == "instant" else "left"
        last = np.clip(np.searchsorted(edge_s, to_s, side) - 1, 0, size - 1)
        first = last
        if response.shape == "rc":
            first = np.maximum(last - 1, 0)
        elif response.shape != "instant":
            length_s: Values | float = response.window_s
            if response.shape == "mean" and self._observed.window_s is not None:
                length_s = self._observed.window_s
            from_s = to_s - length_s
            first = np.clip(np.searchsorted(edge_s, from_s, "right") - 1, 0, size - 1)
        near = first + np.arange(int((last - first).max()) + 2)[:, None]
        at = np.minimum(near[:-1], size - 1)
        if response.shape == "instant":
            weight = np.ones(at.shape)
        elif response.shape == "rc":
            # The output decays from that at the start of the piece towards the piece's power.
            since_s = np.maximum(to_s - edge_s[last], 0.0)
            share = np.expm1(-since_s / response.window_s)
            share /= np.expm1(-(edge_s[last + 1] - edge_s[last]) / response.window_s)
            weight = np.stack((1 - share, share))
            weight[:, last == 0] = [[1.0], [0.0]]
        else:
            near_s = np.clip(edge_s[np.minimum(near, size)], from_s, to_s)
            weight = np.diff(near_s, axis=0)
            weight /= np.maximum(weight.sum(axis=0), 1e-12)
        return at, weight

    def _normal(self, response: Response, at: NDArray[np.intp], weight: Values) -> _Rows:
        """Return the normal equations of readings with these unknowns and weights."""
        width, size = at.shape[0], self._size
        # In the order of LAPACK, which otherwise copies it.
        normal = np.zeros((size, max(width, 3))).T
        for apart in range(width):
            product = weight[: width - apart] * weight[apart:]
            normal[apart] = np.bincount(at[: width - apart].ravel(), product.ravel(), size)
        watts = self._observed.watts - self._level_w
        right = np.bincount(at.ravel(), (weight * watts).ravel(), size).astype(np.float64)
        return _Rows(
            unknowns=Unknowns.of(response, self.pieces.edge_s),
            at=at,
            weight=weight,
            normal=normal,
            right=right,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """The indices ``at`` (k, m) of m readings' unknowns, their weights, and the normal equations.

    ``normal`` is the lower band of the matrix, with at least three rows; ``right`` (n,) is the
    right-hand side.
    """

    unknowns: Unknowns
    at: NDArray[np.intp]
    weight: Values
    normal: Values
    right: Values
