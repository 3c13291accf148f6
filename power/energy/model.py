"""The energy model: power between known edges, seen through a sensor with a window and a lag.

A reading is a weighted mean of the power before it. The weights are the sensor's: a window of
``window_s`` seconds (a boxcar, an RC filter, or none) that ends ``lag_s`` before the reading. What
is declared of a sensor is a prior; the readings may overrule it.

Power is constant on short pieces. The host knows when each phase began and ended, so power may jump
there, by any amount; elsewhere it is a random walk. A delay that shifts onsets and ends alike is
the sensor's lag. A late end alone is work of the drive, for which the walk is faster after work.

All is fitted by regularised least squares, which is Gaussian process regression with a banded
precision (Rue and Held, Gaussian Markov Random Fields, 2005, 2.4). The rates of the walk, the lag
and the window maximise the restricted likelihood. The energy of a window is the integral of the
posterior mean, averaged over the lags and windows that explain the readings as well. Its variance
is that of the posterior plus the spread between these (law of total variance).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded
from scipy.optimize import minimize

from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import Times, Values

Shape = Literal["instant", "boxcar", "rc", "mean"]
"""How a sensor weighs the past; ``mean`` is over each observation's own window (a counter)."""

LAG_MAX_S = 3.5
LAG_NATS = 5.0
"""What a second of lag costs in log likelihood, where readings hardly tell one lag from another."""
WINDOW_MAX_S, WINDOW_FACTOR = 5.0, 1.5
"""Windows are searched up to 5 s, or 1.5 times the declared one. A best lag or window in the last
tenth of its range may be longer, and explains nothing."""
DECLARED_NATS = 6.0
"""How much better, in log likelihood, readings must fit another sensor than the declared one."""
TEMPER, JUMP_TEMPER, TEMPER_MAX = 2.0, 0.25, 20.0
"""Log likelihoods are divided by the first in weights, as no sensor has exactly one of the shapes.
Where power jumps at times that nobody knows, the walk fits badly, and its likelihood tells less:
they are divided by the second times the square of the largest step in standard deviations, up to
the third."""
SETTLE_S, SETTLE_FACTOR = 4.0, 1000.0
"""For so long after work, the variance of the walk is so many times that in work (destaging)."""
IDLE_FACTOR = 0.01
"""The same for other idle time: what moves in work, such as bursts, does not move before it."""
EDGES_MAX = 8
"""The most edges that the search for the sensor uses, spread over the run."""
BEFORE_EDGE_S, AFTER_EDGE_S = 3.0, 8.0
"""Readings from so long before an edge to so long after it are used to find the sensor."""
READINGS_MIN = 4
"""With fewer readings there is nothing to fit."""
SOLUTIONS_MAX = 8
"""So many sensors that explain the readings are solved for the whole run."""
EXTENT_MAX_S = 2.0
"""Lags and windows this far from the likeliest ones are left out, whatever their likelihood."""
BELOW_ZERO, BELOW_ZERO_NATS = 0.02, 1000.0
"""A filter that is too long turns a fall of power into one below zero, which no drive has: what
exceeds this share of the readings' range costs so much log likelihood per range."""
NOISE_MAX = 0.1
"""The most noise of a sensor, as a share of its readings' range: what moves more is power."""
PIECE_READINGS = 4
"""So many readings per piece are enough to find the sensor."""
NEAR_EDGE_S = 0.5
"""An edge shows in readings for its lag, its window and so long more."""
MISFIT_FACTOR = 5.0
"""Readings may be this many times farther from the fit near edges than elsewhere."""
KNOWN_LAG_S = 0.5
"""A lag with a larger uncertainty is unknown if it may be none. Then power is that without a lag,
and the energies for the other lags are part of the uncertainty."""
SAME_EDGE_S = 0.01
"""Edges closer than this are one."""

PIECE_S = 0.1
"""Power is constant on pieces of this length, or of ``PIECE_READS`` reads if these are rarer."""
PIECE_READS = 0.5
_LAGS_S = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)
_WINDOWS_S = (0.25, 0.5, 1.0, 2.0, 3.0)
_RC_S = (0.25, 1.0)
_WALKS = ((-1.0, 1.0), (4.0, 3.0), (12.0, 3.0))
"""First guesses of the logarithms of ``_Walk``: a steady and a moving power."""
WALK_MAX = 20.0
"""The largest logarithm of either: beyond it power is constant, or free."""
_RIDGE = 1e-12
OTHER_PEAK_S = 0.2
"""Lags farther apart are two peaks of the likelihood, not one."""
FAR_NATS = 25.0
"""A kind of sensor that fits worse by this after a first climb is out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """An interval in which work of one kind ran, in ns of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observations:
    """Readings without failed ones, in time order; all arrays have shape (n,).

    ``window_s`` are the lengths of the windows of a counter, else ``None``. ``slack_s`` is how far
    the true times may be before the given ones (the phase of a held reading's clock).
    ``is_tumbling``: readings are replaced once per declared window, which confirms it.
    """

    time_ns: Times
    watts: Values
    window_s: Values | None = None
    slack_s: float = 0.0
    resolution_w: float = 0.0
    is_tumbling: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A sensor's response: its shape, its window (an RC filter's time constant) and its lag."""

    shape: Shape
    window_s: float
    lag_s: float

    @property
    def delay_s(self) -> float:
        """The mean age of the power in a reading."""
        return self.lag_s + self.window_s * (0.5 if self.shape == "boxcar" else 1.0)


_Walk = tuple[float, float]
"""Logarithms: of the walk's variance per second, and of the spread of equal phases' first power.

The first in units of the readings' variance, the second of their standard deviation.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grid:
    """Pieces of time: edges (n + 1,) in seconds; the class of power that begins at each piece.

    ``starts`` are the first pieces after an edge, by class; ``free_count`` more begin anywhere.
    ``walks`` are the pieces that continue the one before, ``walk_s`` the time between both
    middles, in seconds of an ordinary walk.
    """

    edge_s: Values
    starts: Sequence[NDArray[np.intp]]
    free_count: int
    walks: NDArray[np.intp]
    walk_s: Values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Unknowns:
    """What is solved for: y (n,), of which power is ``own * y[j] + before * y[j - 1]``.

    For an RC filter, y are its outputs at the ends of the pieces, so that a reading depends on two
    of them rather than on the power of many time constants; else y is the power itself.
    """

    own: Values
    before: Values

    @classmethod
    def of(cls, response: Response, edge_s: Values) -> _Unknowns:
        length_s = np.diff(edge_s)
        own, before = np.ones(length_s.size), np.zeros(length_s.size)
        if response.shape == "rc":
            # Before the first piece, power was that of the first piece.
            gone = np.exp(-length_s[1:] / response.window_s)
            own[1:], before[1:] = 1 / (1 - gone), -gone / (1 - gone)
        return cls(own=own, before=before)

    def watts(self, unknown: Values) -> Values:
        watts = self.own * unknown
        watts[1:] += self.before[1:] * unknown[:-1]
        return watts

    def transposed(self, weight: Values) -> Values:
        """Return weights of the unknowns (n,) or (n, k) from weights of power."""
        shape = (-1, *[1] * (weight.ndim - 1))
        found: Values = self.own.reshape(shape) * weight
        found[:-1] += self.before[1:].reshape(shape) * weight[1:]
        return found

    def precision(self, own: Values, next_: Values) -> Values:
        """Return the lower band (3, n) of T' Q T, for Q with diagonal (n,) and lower one (n - 1,).

        T is the matrix of ``watts``.
        """
        band = np.zeros((3, own.size))
        band[0] = self.own**2 * own
        band[0, :-1] += self.before[1:] * (2 * self.own[:-1] * next_ + self.before[1:] * own[1:])
        band[1, :-1] = self.own[1:] * (self.own[:-1] * next_ + self.before[1:] * own[1:])
        band[1, :-2] += self.before[2:] * self.before[1:-1] * next_[1:]
        band[2, :-2] = self.own[2:] * self.before[1:-1] * next_[1:]
        return band


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Solution:
    """A fit for one response and walk; ``factor``, ``ties`` and ``schur`` give its covariance."""

    response: Response
    walk: _Walk
    log_likelihood: float
    variance: float
    watts: Values
    residual: Values
    unknowns: _Unknowns = field(repr=False)
    factor: Values = field(repr=False)
    ties: Values = field(repr=False)
    schur: Values = field(repr=False)

    def temper(self, grid: _Grid) -> float:
        """Return what log likelihoods near this fit are divided by in weights."""
        steps_w = self.watts[grid.walks] - self.watts[grid.walks - 1]
        sd_w = np.sqrt(math.exp(self.walk[0]) * grid.walk_s * self.variance)
        largest = float(np.max((steps_w / sd_w) ** 2, initial=0.0))
        return min(max(TEMPER, JUMP_TEMPER * largest), TEMPER_MAX)

    def variance_j2(self, seconds: Values) -> float:
        """Return the variance of the energy in ``seconds`` (n,) of each piece, in J^2."""
        weight = self.unknowns.transposed(seconds)
        solved = cho_solve_banded((self.factor, True), weight, check_finite=False)
        tied = self.ties.T @ weight
        return self.variance * float(weight @ solved + tied @ np.linalg.solve(self.schur, tied))


class _Problem:
    """The least squares of one set of readings on one grid, for any response and walk."""

    def __init__(self, grid: _Grid, time_s: Values, observed: Observations) -> None:
        self.grid = grid
        self._time_s = time_s
        self._observed = observed
        self._size = grid.edge_s.size - 1
        self._level_w = float(observed.watts.mean())
        self._piece_s = float(np.median(np.diff(grid.edge_s)))
        least_w2 = observed.resolution_w**2 / 12 + 1e-8
        noise_w = max(NOISE_MAX * float(np.ptp(observed.watts)), observed.resolution_w)
        self._variances_w2 = least_w2, max(least_w2, noise_w**2)
        self._rows: dict[Response, tuple[NDArray[np.intp], Values, Values, Values]] = {}

    def solve(self, response: Response, walk: _Walk) -> _Solution | None:
        """Return the fit, ``None`` if its matrix is singular.

        At the ends of the search numbers may overflow: such a fit has no finite likelihood.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self._solve(response, walk)

    def _solve(self, response: Response, walk: _Walk) -> _Solution | None:
        at, weight, normal, right = self._weights(response)
        grid, size = self.grid, self._size
        tie = math.exp(-2 * walk[1])
        step = 1 / (math.exp(walk[0]) * grid.walk_s)
        precision = self._precision(response, rate=min(math.exp(walk[0]), 1e9))
        unknowns = _Unknowns.of(response, grid.edge_s)
        next_ = np.zeros(size - 1)
        next_[grid.walks - 1] = -step
        own = np.zeros(size)
        own[grid.walks] = step
        own[grid.walks - 1] += step
        border = np.zeros((size, len(grid.starts)))
        for column, starts in enumerate(grid.starts):
            own[starts] += tie
            border[starts, column] = -tie
        border = unknowns.transposed(border)
        band = precision * normal
        band[:3] += unknowns.precision(own, next_)
        band[0] += _RIDGE
        try:
            factor = cholesky_banded(band, lower=True, check_finite=False)
        except LinAlgError:
            return None
        solved = cho_solve_banded(
            (factor, True), np.column_stack((precision * right, border)), check_finite=False
        )
        ties = solved[:, 1:]
        count = np.array([starts.size for starts in grid.starts], dtype=np.float64)
        schur = np.diag(count * tie) - border.T @ ties
        try:
            mean_w = np.linalg.solve(schur, -(border.T @ solved[:, 0]))
        except LinAlgError:
            return None
        unknown = solved[:, 0] - ties @ mean_w
        watts = unknowns.watts(unknown)
        residual = self._observed.watts - self._level_w - (weight * unknown[at]).sum(axis=0)
        squares = precision * float(residual @ residual)
        squares += float(step @ (watts[grid.walks] - watts[grid.walks - 1]) ** 2)
        for starts, start_w in zip(grid.starts, mean_w, strict=True):
            squares += tie * float(((watts[starts] - start_w) ** 2).sum())
        freedom = max(self._time_s.size - grid.free_count - len(grid.starts), 1)
        variance = float(np.clip(squares / freedom, *self._variances_w2))
        log_determinant = 2 * float(np.log(factor[0] / unknowns.own).sum())
        log_determinant += float(np.linalg.slogdet(schur)[1])
        log_prior = float(np.log(step).sum() + count.sum() * math.log(tie))
        log_prior += residual.size * math.log(precision)
        return _Solution(
            response=response,
            walk=walk,
            log_likelihood=-0.5
            * (freedom * math.log(variance) + squares / variance + log_determinant - log_prior),
            variance=variance,
            watts=watts + self._level_w,
            residual=residual,
            unknowns=unknowns,
            factor=factor,
            ties=ties,
            schur=schur,
        )

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
            return 1 / (1 + rate * self._piece_s / 6)
        return 1 / (1 + rate * self._piece_s**3 / (45 * response.window_s**2))

    def _weights(self, response: Response) -> tuple[NDArray[np.intp], Values, Values, Values]:
        """Return each reading's unknowns and weights (k, m), and the normal equations' band."""
        if response in self._rows:
            return self._rows[response]
        edge_s, size = self.grid.edge_s, self._size
        to_s = self._time_s - response.lag_s
        length_s: Values | float = response.window_s
        if response.shape == "mean" and self._observed.window_s is not None:
            length_s = self._observed.window_s
        from_s = to_s - length_s
        first = np.clip(np.searchsorted(edge_s, from_s, "right") - 1, 0, size - 1)
        last = np.clip(np.searchsorted(edge_s, to_s, "left") - 1, 0, size - 1)
        if response.shape == "instant":
            first = last = np.clip(np.searchsorted(edge_s, to_s, "right") - 1, 0, size - 1)
        elif response.shape == "rc":
            first = np.maximum(last - 1, 0)
        spread = np.arange(int((last - first).max()) + 1)[:, None]
        at = np.minimum(first + spread, size - 1)
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
            low_s, high_s = np.maximum(edge_s[at], from_s), np.minimum(edge_s[at + 1], to_s)
            weight = np.maximum(high_s - low_s, 0.0) * (first + spread < size)
            weight /= np.maximum(weight.sum(axis=0), 1e-12)
        normal = np.zeros((max(spread.size, 3), size))
        for apart in range(spread.size):
            product = weight[: spread.size - apart] * weight[apart:]
            normal[apart] = np.bincount(at[: spread.size - apart].ravel(), product.ravel(), size)
        watts = self._observed.watts - self._level_w
        right = np.bincount(at.ravel(), (weight * watts).ravel(), size).astype(np.float64)
        if len(self._rows) >= len(_WALKS):
            self._rows.clear()
        self._rows[response] = (at, weight, normal, right)
        return self._rows[response]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """A time in seconds between two edges; ``names`` are the kinds of work in it."""

    start_s: float
    end_s: float
    names: frozenset[str]


def _stretches(
    activity: Iterable[Activity], origin_ns: int, start_s: float, end_s: float
) -> list[_Stretch]:
    """Return the time from ``start_s`` to ``end_s``, divided where work begins or ends."""
    changes: dict[float, list[tuple[str, int]]] = {}
    for each in activity:
        for moment_ns, step in ((each.start_ns, 1), (each.end_ns, -1)):
            moment_s = (moment_ns - origin_ns) / NS_PER_S
            changes.setdefault(moment_s, []).append((each.name, step))
    found: list[_Stretch] = []
    active: dict[str, int] = {}
    since_s = start_s
    for moment_s in [*sorted(changes), math.inf]:
        until_s = min(max(moment_s, start_s), end_s)
        names = frozenset(name for name, count in active.items() if count > 0)
        if until_s - since_s > SAME_EDGE_S:
            if found and found[-1].names == names:
                since_s = found.pop().start_s
            found.append(_Stretch(start_s=since_s, end_s=until_s, names=names))
            since_s = until_s
        for name, step in changes.get(moment_s, ()):
            active[name] = active.get(name, 0) + step
    if found and found[-1].end_s < end_s:
        last = found.pop()
        found.append(_Stretch(start_s=last.start_s, end_s=end_s, names=last.names))
    return found


def _grid(spans: Sequence[Sequence[_Stretch]], piece_s: float) -> _Grid:
    """Return the pieces of some spans of a run; what is between two spans is one piece."""
    edges: list[float] = []
    starts: dict[frozenset[str], list[int]] = {}
    is_free: list[bool] = []
    is_walk: list[bool] = []
    factors: list[float] = []
    for span in spans:
        for index, stretch in enumerate(span):
            count = max(1, round((stretch.end_s - stretch.start_s) / piece_s))
            begins = np.linspace(stretch.start_s, stretch.end_s, count + 1)[:-1].tolist()
            if index:
                starts.setdefault(stretch.names, []).append(len(edges))
            is_settling = bool(index) and not stretch.names
            factors += [
                1.0
                if stretch.names
                else SETTLE_FACTOR
                if is_settling and begin - stretch.start_s < SETTLE_S
                else IDLE_FACTOR
                for begin in begins
            ]
            is_walk += [False] + [True] * (len(begins) - 1)
            is_free += [not index] + [False] * (len(begins) - 1)
            edges += begins
        edges.append(span[-1].end_s)
        is_walk.append(False)
        is_free.append(True)
        factors.append(1.0)
    # The last entry is no piece but the end. A start with no equal is free: its mean is its own.
    edge_s = np.array(edges)
    shared = [np.array(each) for each in starts.values() if len(each) > 1]
    single_count = sum(len(each) == 1 for each in starts.values())
    walks = np.flatnonzero(is_walk)
    middle_s = (edge_s[1:] + edge_s[:-1]) / 2
    factor = np.array(factors)[walks]
    return _Grid(
        edge_s=edge_s,
        starts=shared,
        free_count=sum(is_free) - 1 + single_count,
        walks=walks,
        walk_s=(middle_s[walks] - middle_s[walks - 1]) * factor,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mode:
    """A maximum of the likelihood; ``score`` includes the preference for what is declared."""

    score: float
    response: Response
    walk: _Walk
    is_declared: bool
    has_free_window: bool


_Likelihood = Callable[[Response, _Walk], float]
_IMPOSSIBLE = -1e12


def _likelihood(problem: _Problem, observed: Observations, longest_s: float) -> _Likelihood:
    slack_s, range_w = observed.slack_s, float(np.ptp(observed.watts))
    least_w = min(float(observed.watts.min()), 0.0) - BELOW_ZERO * range_w

    def value(response: Response, walk: _Walk) -> float:
        is_possible = (
            -slack_s <= response.lag_s <= LAG_MAX_S
            and response.window_s <= longest_s
            and max(abs(walk[0]), abs(walk[1])) <= WALK_MAX
        )
        solved = problem.solve(response, walk) if is_possible else None
        if solved is None or not math.isfinite(solved.log_likelihood):
            return _IMPOSSIBLE
        below_w = max(least_w - float(solved.watts.min()), 0.0)
        score = solved.log_likelihood - LAG_NATS * max(response.lag_s, 0.0)
        return score - (BELOW_ZERO_NATS * below_w / range_w if below_w else 0.0)

    return value


def _modes(
    likelihood: _Likelihood, declared: Response, *, is_tumbling: bool, slack_s: float
) -> list[_Mode]:
    """Return the best fit of each kind of sensor that may explain the readings."""
    kinds: dict[tuple[Shape, bool], Sequence[float]]
    if declared.shape == "mean" or is_tumbling:
        kinds = {(declared.shape, True): (declared.window_s,)}
    else:
        kinds = {
            ("instant", declared.shape == "instant"): (0.0,),
            ("boxcar", False): (*_WINDOWS_S, *([declared.window_s] if declared.window_s else [])),
            ("rc", False): _RC_S,
        }
        if declared.shape == "boxcar":
            kinds["boxcar", True] = (declared.window_s,)
    modes = []
    for (shape, is_declared), windows in kinds.items():
        lags_s = (0.0,) if shape == "mean" else (0.0, -slack_s, *_LAGS_S)
        tried = [
            (likelihood(response, walk), response, walk)
            for lag_s in lags_s
            for window_s in windows
            for response in [Response(shape=shape, window_s=window_s, lag_s=lag_s)]
            for walk in _WALKS
        ]
        starts = [max(tried, key=lambda each: each[0])]
        if is_declared and starts[0][1].lag_s:
            # The likelihood may have a second peak where nothing is late.
            starts.append(max(tried[: len(_WALKS)], key=lambda each: each[0]))
        peaks = [
            _climb(likelihood, response, walk, is_declared=is_declared, count=50)
            for _, response, walk in starts
        ]
        best = max(peaks, key=lambda mode: mode.score)
        modes += [
            mode
            for mode in peaks
            if mode is best or abs(mode.response.lag_s - best.response.lag_s) > OTHER_PEAK_S
        ]
    highest = max(mode.score for mode in modes)
    return [
        _climb(likelihood, mode.response, mode.walk, is_declared=mode.is_declared, count=100)
        for mode in modes
        if mode.score > highest - FAR_NATS or mode.is_declared
    ]


def _believed(modes: Sequence[_Mode], declared: Response) -> list[_Mode]:
    """Return the modes, best first.

    An RC filter does not overrule a declared reading of the moment, but stands beside it: power
    itself may settle exponentially.
    """
    most = math.inf
    if declared.shape == "instant":
        most = max((mode.score for mode in modes if mode.response.shape != "rc"), default=math.inf)
    believed = [
        replace(mode, score=min(mode.score, most)) if mode.response.shape == "rc" else mode
        for mode in modes
    ]
    return sorted(believed, key=lambda mode: (mode.score, mode.is_declared), reverse=True)


def _as_declared(declared: Response) -> _Mode:
    return _Mode(
        score=0.0, response=declared, walk=_WALKS[0], is_declared=True, has_free_window=False
    )


def _climb(
    likelihood: _Likelihood, response: Response, walk: _Walk, *, is_declared: bool, count: int
) -> _Mode:
    """Return the maximum near a guess, by Nelder and Mead's simplex of ``count`` steps."""
    has_free_window = response.shape in ("boxcar", "rc") and not is_declared
    has_free_lag = response.shape != "mean"

    def at(place: Values) -> tuple[Response, _Walk]:
        found = Response(
            shape=response.shape,
            window_s=math.exp(min(place[3], 5.0)) if has_free_window else response.window_s,
            lag_s=float(place[2]) if has_free_lag else response.lag_s,
        )
        return found, (float(place[0]), float(place[1]))

    start = list(walk)
    if has_free_lag:
        start.append(response.lag_s)
    if has_free_window:
        start.append(math.log(response.window_s))
    step = np.diag([2.0, 1.0, 0.1, 0.2][: len(start)])
    simplex = np.vstack((start, np.array(start) + step))
    found = minimize(
        lambda place: -likelihood(*at(place)),
        start,
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "maxfev": count, "xatol": 2e-3, "fatol": 0.02},
    )
    best, best_walk = at(found.x)
    return _Mode(
        score=-float(found.fun) + (DECLARED_NATS if is_declared else 0.0),
        response=best,
        walk=best_walk,
        is_declared=is_declared,
        has_free_window=has_free_window,
    )


def _spread(likelihood: _Likelihood, mode: _Mode, temper: float) -> list[tuple[float, Response]]:
    """Return responses around a mode with their weights, which sum to 1.

    They are a grid over the delay and the logarithm of the window, which are nearly independent, as
    far as the likelihood has not fallen by ``3 * temper``.
    """
    if mode.response.shape == "mean":
        return [(1.0, mode.response)]
    top = likelihood(mode.response, mode.walk)

    def at(delay_s: float, stretch: float) -> Response:
        window_s = mode.response.window_s * math.exp(stretch)
        moved = Response(shape=mode.response.shape, window_s=window_s, lag_s=0.0)
        lag_s = mode.response.delay_s + delay_s - moved.delay_s
        return Response(shape=moved.shape, window_s=window_s, lag_s=lag_s)

    def fall(delay_s: float, stretch: float) -> float:
        return top - likelihood(at(delay_s, stretch), mode.walk)

    def axis(along: Callable[[float], float], half: int) -> Values:
        before = _extent(lambda length: along(-length), 3 * temper)
        share = np.linspace(0, 1, half + 1)[1:]
        return np.concatenate((-before * share[::-1], [0.0], _extent(along, 3 * temper) * share))

    delays = axis(lambda delay_s: fall(delay_s, 0.0), 4)
    stretches = np.zeros(1)
    if mode.has_free_window:
        stretches = axis(lambda stretch: fall(0.0, stretch), 3)
    widths = (np.gradient(delays), np.gradient(stretches) if stretches.size > 1 else np.ones(1))
    found = [
        (
            float(delay_w * stretch_w) * math.exp(-max(fall(delay, stretch), -20.0) / temper),
            at(delay, stretch),
        )
        for delay, delay_w in zip(delays.tolist(), widths[0], strict=True)
        for stretch, stretch_w in zip(stretches.tolist(), widths[1], strict=True)
        if fall(delay, stretch) < 10 * temper
    ]
    total = sum(weight for weight, _ in found)
    return [(weight / total, response) for weight, response in found]


def _extent(fall: Callable[[float], float], most: float) -> float:
    """Return how far a fall stays under ``most``, from 4 ms to ``EXTENT_MAX_S``."""
    near, far = 0.0, 0.004
    while far < EXTENT_MAX_S and fall(far) <= most:
        near, far = far, 2 * far
    for _ in range(4):
        middle = (near + far) / 2
        near, far = (near, middle) if fall(middle) > most else (middle, far)
    return far


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSensor:
    """What the readings show of a sensor; see ``core.record.energy.SensorRecord``.

    ``is_known``: the readings show when they are late; flat power does not.
    """

    response: Response
    lag_u_s: float
    window_u_s: float
    is_declared: bool
    is_known: bool
    edge_residual_w: float | None
    residual_w: float
    is_explained: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedPower:
    """Power over time: constant on pieces with edges ``edge_ns`` (n + 1,), ``watts`` (n,).

    ``noise_w`` is the standard deviation of successive readings, by the median of their changes, so
    that steps of power do not count.
    """

    edge_ns: Times
    watts: Values
    noise_w: float
    sensor: FoundSensor
    _solutions: Sequence[tuple[float, _Solution]]

    def variances_j2(self, windows_ns: Iterable[tuple[int, int]]) -> tuple[float, float]:
        """Return the variances of the energy in some windows together, in J^2.

        The first is of the fit, for a known sensor, the second of what is unknown of the sensor.
        """
        seconds = np.zeros(self.watts.size)
        for start_ns, end_ns in windows_ns:
            low = np.maximum(self.edge_ns[:-1], start_ns)
            high = np.minimum(self.edge_ns[1:], end_ns)
            seconds += np.maximum(high - low, 0) / NS_PER_S
        mean_j = float(seconds @ self.watts)
        between = sum(
            weight * (float(seconds @ each.watts) - mean_j) ** 2 for weight, each in self._solutions
        )
        likely = sorted(self._solutions, key=lambda each: -each[0])[:3]
        total = sum(weight for weight, _ in likely)
        within = sum(weight / total * each.variance_j2(seconds) for weight, each in likely)
        return within, between


def fit_power(
    observed: Observations, declared: Response, activity: Sequence[Activity]
) -> FittedPower | None:
    """Return the power that explains the readings; ``None`` for fewer than ``READINGS_MIN``."""
    if observed.time_ns.size < READINGS_MIN:
        return None
    origin_ns = int(observed.time_ns[0])
    time_s = (observed.time_ns - origin_ns) / NS_PER_S
    ends_ns = [each.end_ns for each in activity]
    last_s = max((max(ends_ns, default=0) - origin_ns) / NS_PER_S, float(time_s[-1])) + 1e-3
    piece_s = max(PIECE_S, PIECE_READS * float(np.median(np.diff(time_s))))
    longest_s = max(WINDOW_MAX_S, WINDOW_FACTOR * declared.window_s)
    reach_s = longest_s + LAG_MAX_S + 0.5
    stretches = _stretches(activity, origin_ns, -reach_s, last_s)
    local = _local(stretches, time_s, observed, piece_s, reach_s)
    likelihood = _likelihood(local, observed, longest_s)
    # Constant readings show nothing of a sensor.
    is_flat = bool(np.ptp(observed.watts) <= observed.resolution_w)
    modes = (
        [_as_declared(declared)]
        if is_flat
        else _believed(
            _modes(
                likelihood, declared, is_tumbling=observed.is_tumbling, slack_s=observed.slack_s
            ),
            declared,
        )
    )
    best = local.solve(modes[0].response, modes[0].walk)
    temper = TEMPER if best is None else best.temper(local.grid)
    points = (
        [(1.0, declared, _WALKS[0])]
        if is_flat
        else [
            (weight * math.exp((mode.score - modes[0].score) / temper), response, mode.walk)
            for mode in modes
            if mode.score > modes[0].score - 10 * temper
            for weight, response in _spread(likelihood, mode, temper)
        ]
    )
    whole = _Problem(_grid([stretches], piece_s), time_s, observed)
    solutions = [
        (share, found)
        for share, response, walk in _quantiles(points)
        if (found := whole.solve(response, walk)) is not None
    ]
    if not solutions:
        return None
    total = sum(share for share, _ in solutions)
    solutions = [(share / total, found) for share, found in solutions]
    likeliest = max(solutions, key=lambda each: each[0])[1]
    undelayed = replace(modes[0].response, lag_s=0.0)
    may_be_undelayed = (
        is_flat
        or modes[0].score
        - (likelihood(undelayed, modes[0].walk) + (DECLARED_NATS if modes[0].is_declared else 0.0))
        <= 3 * temper
    )
    sensor = _found(
        modes[0],
        points,
        likeliest,
        may_be_undelayed=may_be_undelayed,
        longest_s=longest_s,
        time_s=time_s,
        stretches=stretches,
        observed=observed,
    )
    watts = np.sum([share * found.watts for share, found in solutions], axis=0)
    if not sensor.is_known:
        as_declared = whole.solve(declared, likeliest.walk)
        watts = watts if as_declared is None else as_declared.watts
    return FittedPower(
        edge_ns=origin_ns + np.rint(whole.grid.edge_s * NS_PER_S).astype(np.int64),
        watts=watts,
        noise_w=float(np.median(np.abs(np.diff(observed.watts)))) / (0.6745 * math.sqrt(2)),
        sensor=sensor,
        _solutions=solutions,
    )


_Point = tuple[float, Response, _Walk]
"""A sensor and a walk that explain the readings, with a weight."""


def _quantiles(points: Sequence[_Point]) -> list[_Point]:
    """Return up to ``SOLUTIONS_MAX`` points for all, with shares that sum to 1.

    They stand in equal shares of the weight, in order of the delay, by which energies differ most.
    """
    ordered = sorted(points, key=lambda each: each[1].delay_s)
    reached = np.cumsum([weight for weight, _, _ in ordered])
    wanted = (np.arange(SOLUTIONS_MAX) + 0.5) / SOLUTIONS_MAX * reached[-1]
    index, count = np.unique(np.searchsorted(reached, wanted), return_counts=True)
    return [
        (n / SOLUTIONS_MAX, *ordered[at][1:])
        for at, n in zip(index.tolist(), count.tolist(), strict=True)
    ]


def _found(
    best: _Mode,
    points: Sequence[_Point],
    likeliest: _Solution,
    *,
    may_be_undelayed: bool,
    longest_s: float,
    time_s: Values,
    stretches: Sequence[_Stretch],
    observed: Observations,
) -> FoundSensor:
    own = [(weight, each) for weight, each, _ in points if each.shape == best.response.shape]
    weight = np.array([each for each, _ in own])
    weight /= weight.sum()
    lag_s = np.array([each.lag_s for _, each in own])
    window_s = np.array([each.window_s for _, each in own])
    mean_s = float(weight @ lag_s), float(weight @ window_s)
    since_s = np.full(time_s.size, np.inf)
    for stretch in stretches[1:]:
        after_s = time_s - stretch.start_s
        since_s = np.where(after_s >= 0, after_s, since_s)
    is_edge = since_s <= mean_s[0] + mean_s[1] + NEAR_EDGE_S
    edge_w, elsewhere_w = (
        float(np.sqrt(np.mean(likeliest.residual[part] ** 2))) if part.any() else None
        for part in (is_edge, ~is_edge)
    )
    is_at_bound = best.response.lag_s > 0.9 * LAG_MAX_S or (
        best.has_free_window and best.response.window_s > 0.9 * longest_s
    )
    # Without an edge, or without a change of power, any lag explains the readings.
    lag_u_s = LAG_MAX_S
    if len(stretches) > 1 and np.ptp(observed.watts) > observed.resolution_w:
        lag_u_s = 2 * math.sqrt(float(weight @ (lag_s - mean_s[0]) ** 2))
    return FoundSensor(
        response=Response(shape=best.response.shape, lag_s=mean_s[0], window_s=mean_s[1]),
        lag_u_s=lag_u_s,
        is_known=lag_u_s <= KNOWN_LAG_S or not may_be_undelayed,
        window_u_s=2 * math.sqrt(float(weight @ (window_s - mean_s[1]) ** 2)),
        is_declared=best.is_declared,
        edge_residual_w=edge_w,
        residual_w=elsewhere_w or 0.0,
        # A count is right whatever the power was.
        is_explained=best.response.shape == "mean"
        or (
            (not is_at_bound or may_be_undelayed)
            and (
                edge_w is None
                or edge_w <= MISFIT_FACTOR * max(elsewhere_w or edge_w, observed.resolution_w)
            )
        ),
    )


def _local(
    stretches: Sequence[_Stretch],
    time_s: Values,
    observed: Observations,
    piece_s: float,
    reach_s: float,
) -> _Problem:
    """Return the problem near up to ``EDGES_MAX`` edges; all of the run if it has few."""
    edges = np.array([each.start_s for each in stretches[1:]])
    if edges.size > EDGES_MAX:
        groups = np.linspace(0, edges.size - EDGES_MAX // 4, 4).astype(np.intp)
        edges = edges[np.unique(groups[:, None] + np.arange(EDGES_MAX // 4))]
    spans: list[tuple[float, float]] = []
    for edge_s in edges.tolist():
        start_s, end_s = edge_s - BEFORE_EDGE_S - reach_s, edge_s + AFTER_EDGE_S
        if spans and start_s <= spans[-1][1]:
            start_s = spans.pop()[0]
        spans.append((start_s, end_s))
    clipped = [
        [
            _Stretch(start_s=max(e.start_s, low), end_s=min(e.end_s, high), names=e.names)
            for e in stretches
            if min(e.end_s, high) - max(e.start_s, low) > SAME_EDGE_S
        ]
        for low, high in spans
    ]
    clipped = [span for span in clipped if span]
    near = np.zeros(time_s.size, np.bool_)
    for span in clipped:
        from_s = span[0].start_s + (reach_s if span[0].start_s > stretches[0].start_s else 0.0)
        near |= (time_s >= from_s) & (time_s <= span[-1].end_s)
    if np.count_nonzero(near) < READINGS_MIN:
        near[:], clipped = True, [list(stretches)]
    each_s = float(np.median(np.diff(time_s)))
    used = np.flatnonzero(near)[:: max(1, int(piece_s / (PIECE_READINGS * max(each_s, 1e-9))))]
    windows = observed.window_s
    return _Problem(
        _grid(clipped, piece_s),
        time_s[used],
        Observations(
            time_ns=observed.time_ns[used],
            watts=observed.watts[used],
            window_s=None if windows is None else windows[used],
            resolution_w=observed.resolution_w,
        ),
    )
