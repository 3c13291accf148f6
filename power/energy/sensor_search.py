"""The search for the sensors that explain some readings: shape, window and lag.

For each kind of sensor, the lag, the window and the rates of the walk of power maximise a
likelihood: first on a coarse grid, then by a simplex. Around each maximum, other lags and windows
are weighted by their likelihood.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wattload.power.energy.least_squares import LeastSquares, Solution, Walk
from wattload.power.energy.observations import Observations, Response, Shape
from wattload.power.energy.trace import Values

LAG_MAX_S = 3.5
"""The longest lag of the search."""
LAG_NATS = 5.0
"""The penalty in log likelihood per second of lag. It decides only between lags that fit alike."""
DECLARED_NATS = 6.0
"""The advantage of the declared sensor over any other, in log likelihood."""
TEMPER, JUMP_TEMPER, TEMPER_MAX = 2.0, 0.25, 20.0
"""Weights use the log likelihood divided by ``TEMPER``, as no real sensor has exactly one of the
shapes. If power jumps at unknown times, the walk fits badly and the likelihood is less reliable:
the divisor is then ``JUMP_TEMPER`` times the squared largest step in standard deviations, up to
``TEMPER_MAX``. It is that where the traffic turns."""
EXTENT_MAX_S = 2.0
"""Delays and logarithms of windows farther than this from the likeliest are left out."""
BELOW_ZERO, BELOW_ZERO_NATS = 0.02, 1000.0
"""A filter that is too long makes power negative after a fall, which no drive has. Beyond
``BELOW_ZERO`` of the readings' range, this costs ``BELOW_ZERO_NATS`` per range."""
OTHER_PEAK_S = 0.2
"""Lags farther apart are two peaks of the likelihood, not one."""
FAR_NATS = 25.0
"""A kind of sensor that fits worse than the best by this after a first climb is dropped."""
WALK_MAX = 20.0
"""The largest absolute logarithm in a walk: beyond it, power is constant or free."""
WALKS = (Walk(-1.0, 1.0), Walk(4.0, 3.0), Walk(12.0, 3.0))
"""First guesses, from steady to changing power."""
_LAGS_S = (0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0)
_WINDOWS_S = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
_RC_S = (0.25, 1.0)
_IMPOSSIBLE = -1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A maximum of the likelihood; ``score`` includes the preference for the declared sensor."""

    score: float
    response: Response
    walk: Walk
    is_declared: bool
    has_free_window: bool


class Candidate(NamedTuple):
    """A sensor and a walk that explain the readings, with a weight."""

    weight: float
    response: Response
    walk: Walk


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelySensors:
    """The likeliest sensor, and all ``candidates`` that explain the readings about as well.

    ``may_be_undelayed``: no lag explains the readings about as well, too.
    """

    best: Mode
    candidates: Sequence[Candidate]
    may_be_undelayed: bool


_Likelihood = Callable[[Response, Walk], float]


def declared_sensor(declared: Response) -> LikelySensors:
    """Return the declared sensor as the only one, for readings that show nothing of a sensor."""
    mode = Mode(
        score=0.0, response=declared, walk=WALKS[0], is_declared=True, has_free_window=False
    )
    candidate = Candidate(1.0, declared, mode.walk)
    return LikelySensors(best=mode, candidates=[candidate], may_be_undelayed=True)


def likely_sensors(
    problem: LeastSquares, observed: Observations, declared: Response, *, longest_s: float
) -> LikelySensors:
    """Return the sensors that explain the readings of a problem, by windows up to ``longest_s``.

    ``observed`` are all readings of the sensor.
    """
    likelihood = _likelihood(problem, observed, longest_s)
    modes = _modes(likelihood, observed, declared)
    best = modes[0]
    solved = problem.solve(best.response, best.walk)
    temper = TEMPER if solved is None else _temper(solved, problem)
    undelayed = likelihood(replace(best.response, lag_s=0.0), best.walk)
    return LikelySensors(
        best=best,
        candidates=[
            Candidate(weight * math.exp((mode.score - best.score) / temper), response, mode.walk)
            for mode in modes
            if mode.score > best.score - 10 * temper
            for weight, response in _spread(likelihood, mode, temper)
        ],
        may_be_undelayed=best.score - undelayed - DECLARED_NATS * best.is_declared <= 3 * temper,
    )


def is_likelier(
    problem: LeastSquares, observed: Observations, mode: Mode, *, by: float, longest_s: float
) -> bool:
    """Return whether a problem explains the readings better than one of the same readings did.

    ``mode`` is the likeliest sensor of that one. Its own score has to be exceeded ``by`` so much.
    """
    if mode.response.shape == "instant":
        return False
    likelihood = _likelihood(problem, observed, longest_s)
    walk = max((mode.walk, *WALKS), key=lambda walk: likelihood(mode.response, walk))
    found = _climb(likelihood, mode.response, walk, is_declared=mode.is_declared, count=50)
    return found.score > mode.score + by


def _temper(solution: Solution, problem: LeastSquares) -> float:
    """Return what log likelihoods near a solution are divided by in weights."""
    pieces = problem.pieces
    if pieces.has_turns:
        return TEMPER_MAX
    is_walk = ~pieces.is_part
    walks = pieces.walks[is_walk]
    steps_w = solution.watts[walks] - solution.watts[walks - 1]
    sd_w = np.sqrt(math.exp(solution.walk.log_rate) * pieces.walk_s[is_walk] * solution.variance)
    largest = float(np.max((steps_w / sd_w) ** 2, initial=0.0))
    return min(max(TEMPER, JUMP_TEMPER * largest), TEMPER_MAX)


def _likelihood(problem: LeastSquares, observed: Observations, longest_s: float) -> _Likelihood:
    """Return the log likelihood with its penalties; ``_IMPOSSIBLE`` outside the search."""
    slack_s, range_w = observed.slack_s, float(np.ptp(observed.watts))
    least_w = min(float(observed.watts.min()), 0.0) - BELOW_ZERO * range_w

    @functools.cache
    def value(response: Response, walk: Walk) -> float:
        is_possible = (
            -slack_s <= response.lag_s <= LAG_MAX_S
            and response.window_s <= longest_s
            and max(abs(walk.log_rate), abs(walk.log_spread)) <= WALK_MAX
        )
        solved = problem.solve(response, walk) if is_possible else None
        if solved is None or not math.isfinite(solved.log_likelihood):
            return _IMPOSSIBLE
        below_w = max(least_w - float(solved.watts.min()), 0.0)
        score = solved.log_likelihood - LAG_NATS * max(response.lag_s, 0.0)
        return score - (BELOW_ZERO_NATS * below_w / range_w if below_w else 0.0)

    return value


def _modes(likelihood: _Likelihood, observed: Observations, declared: Response) -> list[Mode]:
    """Return the best fits of each kind of sensor that may explain the readings, best first."""
    kinds: dict[tuple[Shape, bool], Sequence[float]]
    if declared.shape == "mean" or observed.is_tumbling:
        kinds = {(declared.shape, True): (declared.window_s,)}
    else:
        kinds = {
            ("instant", declared.shape == "instant"): (0.0,),
            ("boxcar", False): (*_WINDOWS_S, *([declared.window_s] if declared.window_s else [])),
            ("rc", False): _RC_S,
        }
        if declared.shape == "boxcar":
            kinds["boxcar", True] = (declared.window_s,)
    peaks = [
        peak
        for (shape, is_declared), windows_s in kinds.items()
        for peak in _peaks(
            likelihood, shape, windows_s, slack_s=observed.slack_s, is_declared=is_declared
        )
    ]
    highest = max(peak.score for peak in peaks)
    modes = [
        _climb(likelihood, peak.response, peak.walk, is_declared=peak.is_declared, count=100)
        for peak in peaks
        if peak.score > highest - FAR_NATS or peak.is_declared
    ]
    if declared.shape == "instant":
        # Power itself may settle exponentially. So an RC filter is at most as likely as the best
        # other sensor.
        others = (mode.score for mode in modes if mode.response.shape != "rc")
        most = max(others, default=math.inf)
        modes = [
            replace(mode, score=min(mode.score, most)) if mode.response.shape == "rc" else mode
            for mode in modes
        ]
    return sorted(modes, key=lambda mode: (mode.score, mode.is_declared), reverse=True)


def _peaks(
    likelihood: _Likelihood,
    shape: Shape,
    windows_s: Sequence[float],
    *,
    slack_s: float,
    is_declared: bool,
) -> list[Mode]:
    """Return the maxima of one kind of sensor after a first climb, at different lags."""
    lags_s = (0.0,) if shape == "mean" else (0.0, -slack_s, *_LAGS_S)
    tried = [
        (likelihood(response, walk), response, walk)
        for lag_s in lags_s
        for window_s in windows_s
        for response in [Response(shape=shape, window_s=window_s, lag_s=lag_s)]
        for walk in WALKS
    ]
    # A fast walk explains most of the misfit of a wrong sensor, so its likelihood has many peaks.
    # That of a steady walk has few, but is only right for steady power.
    likeliest = [
        max((each for each in tried if each[2] == walk), key=lambda each: each[0]) for walk in WALKS
    ]
    likeliest.sort(key=lambda each: each[0])
    if is_declared and all(response.lag_s for _, response, _ in likeliest):
        # The likelihood may have a second peak where nothing is late.
        likeliest.append(max(tried[: len(WALKS)], key=lambda each: each[0]))
    starts = {response: walk for _, response, walk in likeliest}
    peaks = [
        _climb(likelihood, response, walk, is_declared=is_declared, count=50)
        for response, walk in starts.items()
    ]
    best = max(peaks, key=lambda mode: mode.score)
    return [
        mode
        for mode in peaks
        if mode is best or abs(mode.response.lag_s - best.response.lag_s) > OTHER_PEAK_S
    ]


def _climb(
    likelihood: _Likelihood, response: Response, walk: Walk, *, is_declared: bool, count: int
) -> Mode:
    """Return the maximum near a guess, by Nelder and Mead's simplex of ``count`` steps."""
    from scipy.optimize import minimize

    has_free_window = response.shape in ("boxcar", "rc") and not is_declared
    has_free_lag = response.shape != "mean"

    def at(place: Values) -> tuple[Response, Walk]:
        found = Response(
            shape=response.shape,
            window_s=math.exp(min(place[3], 5.0)) if has_free_window else response.window_s,
            lag_s=float(place[2]) if has_free_lag else response.lag_s,
        )
        return found, Walk(float(place[0]), float(place[1]))

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
    return Mode(
        score=-float(found.fun) + (DECLARED_NATS if is_declared else 0.0),
        response=best,
        walk=best_walk,
        is_declared=is_declared,
        has_free_window=has_free_window,
    )


def _spread(likelihood: _Likelihood, mode: Mode, temper: float) -> list[tuple[float, Response]]:
    """Return responses around a mode with their weights, which sum to 1.

    They are a grid over the delay and the logarithm of the window, which are nearly independent, as
    far as the likelihood has not fallen by ``3 * temper``.
    """
    if mode.response.shape == "mean":
        return [(1.0, mode.response)]
    top = likelihood(mode.response, mode.walk)

    def at(delay_s: float, log_factor: float) -> Response:
        window_s = mode.response.window_s * math.exp(log_factor)
        moved = Response(shape=mode.response.shape, window_s=window_s, lag_s=0.0)
        return replace(moved, lag_s=mode.response.delay_s + delay_s - moved.delay_s)

    def fall(delay_s: float, log_factor: float) -> float:
        return top - likelihood(at(delay_s, log_factor), mode.walk)

    def axis(along: Callable[[float], float], half: int) -> Values:
        before = _extent(lambda length: along(-length), 3 * temper)
        share = np.linspace(0, 1, half + 1)[1:]
        return np.concatenate((-before * share[::-1], [0.0], _extent(along, 3 * temper) * share))

    delays = axis(lambda delay_s: fall(delay_s, 0.0), 4)
    log_factors = np.zeros(1)
    if mode.has_free_window:
        log_factors = axis(lambda log_factor: fall(0.0, log_factor), 3)
    widths = (np.gradient(delays), np.gradient(log_factors) if log_factors.size > 1 else np.ones(1))
    found = [
        (
            float(delay_w * factor_w) * math.exp(-max(fall(delay, log_factor), -20.0) / temper),
            at(delay, log_factor),
        )
        for delay, delay_w in zip(delays.tolist(), widths[0], strict=True)
        for log_factor, factor_w in zip(log_factors.tolist(), widths[1], strict=True)
        if fall(delay, log_factor) < 10 * temper
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
