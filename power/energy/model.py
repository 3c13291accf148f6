"""The energy model: the sensor and the power that explain a source's readings.

A reading is a weighted mean of earlier power. The weights are the sensor's: even over a window of
``window_s`` seconds (boxcar), exponential (RC filter) or a single moment, and ``lag_s`` late. Power
may jump by any amount where a phase begins or ends. Elsewhere it is a random walk.

A delay shared by beginnings and ends is the sensor's lag. A late end alone is work of the drive,
such as destaging, so the walk is faster after work. It is as fast where the drive's own counters of
bytes show that it began or stopped to read or write: a host may compute for seconds within a phase,
which would look like a lag. What a source declares of its sensor is
preferred unless the readings clearly contradict it.

If readings of a mean clearly show it, power has another course. Work may vary more than the idle
time after it. And a drive may draw another power at the start and the end of work than in between:
files are opened, queues fill, the last blocks are awaited. Then the first and the last tenth of a
second of work have powers of their own, alike in equal work.

The rates of the walk, the lag and the window maximise a likelihood near some edges
(``sensor_search``). With these, power is the solution of least squares over the whole run
(``least_squares``), averaged over all sensors that explain the readings about as well. The
variance of an energy is that of the solution plus the variance between these sensors (law of total
variance).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wattload.core.record.energy import WINDOW_SHARE, SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.activity import (
    SAME_EDGE_S,
    Activity,
    ActivityInterval,
    Pieces,
    activity_intervals,
    traffic_turns,
)
from wattload.power.energy.least_squares import (
    Covariance,
    LeastSquares,
    Solution,
    typical_change_w,
)
from wattload.power.energy.observations import Observations, Response
from wattload.power.energy.sensor_search import (
    LAG_MAX_S,
    Candidate,
    LikelySensors,
    declared_sensor,
    is_likelier,
    likely_sensors,
)
from wattload.power.energy.trace import Times, Trace, Values

READINGS_MIN = 4
"""With fewer readings there is nothing to fit."""
PIECE_S, PIECE_READS = 0.1, 0.5
"""The length of pieces of constant power: in seconds, or in reads if that is longer."""
PIECES_MAX = 250_000
"""The pieces of a whole run: from 7 hours on they are longer, since each takes some 200 bytes."""
PIECE_READINGS = 4
"""The readings per piece that the search for the sensor uses."""
WINDOW_MAX_S, WINDOW_FACTOR = 5.0, 1.5
"""Windows are searched up to 5 s, or 1.5 times the declared one."""
BOUND_SHARE = 0.9
"""The best lag or window beyond this share of its range may really be longer, so the sensor does
not explain the readings."""
CLEAR_NATS = 20.0
"""A course of power other than the usual one is taken if its log likelihood is higher by this."""
EDGES_MAX = 8
"""The most edges that the search for the sensor uses, spread over the run."""
BEFORE_EDGE_S, AFTER_EDGE_S = 3.0, 8.0
"""Readings from so long before an edge to so long after it are used to find the sensor."""
SOLUTIONS_MAX = 8
"""The number of likely sensors that are solved for the whole run."""
COVARIANCES_MAX = 3
"""The number of these, by weight, whose covariance gives the variance of the fit."""
NEAR_EDGE_S = 0.5
"""An edge shows in the readings for the lag, the window and this time."""
MISFIT_FACTOR = 5.0
"""How many times larger the residuals near edges may be than those elsewhere."""
NOISE_FACTOR = 1.5
"""Residuals near edges up to so many times the noise are noise."""
NOISE_READINGS = 8
"""The fewest readings that show noise."""
EDGE_MISFIT = 0.25
"""So large a share of the readings' range is no misfit: on a busy host a drive begins and ends its
work up to a quarter of a second away from its phase, which shows in a mean of a second by a quarter
of the step. The uncertainty includes it."""
KNOWN_LAG_S = 0.5
"""A lag is unknown if its uncertainty is larger than this and it may be zero. Then power is the
solution for the declared sensor, and the energies for other lags are part of the uncertainty."""


class EdgeMisfit(NamedTuple):
    """The root mean square of what readings after an edge show beyond the fit and noise."""

    time_ns: int
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedPower:
    """Power over time: constant on pieces with edges ``edge_ns`` (n + 1,), ``watts`` (n,).

    ``noise_w`` is the standard deviation of a reading, by the median change between readings, which
    steps of power hardly affect. ``_solved_w`` are the powers (n,) for all likely sensors.
    """

    edge_ns: Times
    watts: Values
    noise_w: float
    sensor: SensorRecord
    _solved_w: Sequence[tuple[float, Values]]
    _covariances: Sequence[tuple[float, Covariance]]
    _misfits: Sequence[EdgeMisfit]

    def fit_variance_j2(self, windows_ns: Iterable[tuple[int, int]]) -> float:
        """Return the variance of the energy in some windows, for a known sensor, in J^2."""
        seconds = self._seconds(windows_ns)
        total = sum(weight for weight, _ in self._covariances)
        return sum(
            weight / total * covariance.energy_j2(seconds)
            for weight, covariance in self._covariances
        )

    def sensor_variance_j2(self, windows_ns: Iterable[tuple[int, int]]) -> float:
        """Return the variance of that energy between all likely sensors, in J^2."""
        seconds = self._seconds(windows_ns)
        mean_j = float(seconds @ self.watts)
        return sum(
            weight * (float(seconds @ watts) - mean_j) ** 2 for weight, watts in self._solved_w
        )

    def misfit_j(self, windows_ns: Iterable[tuple[int, int]]) -> float:
        """Return the joules at the edges of some windows that the fit does not explain.

        Equal edges are taken to be misjudged alike, so their errors add up. Readings of the moment,
        and counters, have no window in which an edge would show.
        """
        near_ns = round(NEAR_EDGE_S * NS_PER_S)
        at_ns = np.array([each.time_ns for each in self._misfits])
        total_w = 0.0
        for border_ns in itertools.chain.from_iterable(windows_ns):
            near = slice(*np.searchsorted(at_ns, (border_ns - near_ns, border_ns + near_ns)))
            total_w += max((each.watts for each in self._misfits[near]), default=0.0)
        return total_w * self.sensor.window_s

    def _seconds(self, windows_ns: Iterable[tuple[int, int]]) -> Values:
        """Return how long each piece is in the windows, shape (n,)."""
        seconds = np.zeros(self.watts.size)
        for start_ns, end_ns in windows_ns:
            first = max(int(np.searchsorted(self.edge_ns, start_ns, "right")) - 1, 0)
            last = int(np.searchsorted(self.edge_ns, end_ns))
            edge_ns = np.clip(self.edge_ns[first : last + 1], start_ns, end_ns)
            seconds[first:last] += np.diff(edge_ns) / NS_PER_S
        return seconds


def fit_power(
    observed: Observations,
    declared: Response,
    activity: Sequence[Activity],
    moved: Iterable[Trace] = (),
) -> FittedPower | None:
    """Return the power that explains the readings; ``None`` for fewer than ``READINGS_MIN``.

    ``moved`` are the counters of bytes of the drive.
    """
    if observed.time_ns.size < READINGS_MIN:
        return None
    run = _Run.of(observed, declared, activity, moved)
    if run.is_flat:
        return _fitted(run, declared_sensor(declared))
    sensors = likely_sensors(_near_edges(run), observed, declared, longest_s=run.longest_s)
    run, sensors = _likelier(run, sensors, replace(run, is_steady=True))
    run, sensors = _likelier(run, sensors, replace(run, has_parts=True))
    return _fitted(run, sensors)


def _likelier(run: _Run, sensors: LikelySensors, other: _Run) -> tuple[_Run, LikelySensors]:
    """Return the other course of power with its sensors if it is clearly likelier."""
    near = _near_edges(other)
    observed, longest_s = run.observed, run.longest_s
    if not is_likelier(near, observed, sensors.best, by=CLEAR_NATS, longest_s=longest_s):
        return run, sensors
    found = likely_sensors(near, observed, run.declared, longest_s=longest_s)
    # What the few edges of the search show need not hold for the others.
    whole = [
        _whole(each).solve(likely.best.response, likely.best.walk)
        for each, likely in ((run, sensors), (other, found))
    ]
    if whole[0] and whole[1] and whole[1].log_likelihood < whole[0].log_likelihood:
        return run, sensors
    return other, found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """The readings of a source and the known work, in seconds since the first reading.

    ``longest_s`` is the longest window of the search, ``reach_s`` how long before a reading power
    matters to it. ``turns_s`` (k, 2) are when the drive's traffic turned. ``has_parts``: work
    begins and ends at other powers, and ``is_steady``: power after work varies no more than during
    it; see ``Pieces``.
    """

    observed: Observations
    declared: Response
    time_s: Values
    intervals: Sequence[ActivityInterval]
    turns_s: Values
    piece_s: float
    longest_s: float
    reach_s: float
    has_parts: bool = False
    is_steady: bool = False

    @classmethod
    def of(
        cls,
        observed: Observations,
        declared: Response,
        activity: Sequence[Activity],
        moved: Iterable[Trace],
    ) -> _Run:
        origin_ns = int(observed.time_ns[0])
        time_s = (observed.time_ns - origin_ns) / NS_PER_S
        longest_s = max(WINDOW_MAX_S, WINDOW_FACTOR * declared.window_s)
        reach_s = longest_s + LAG_MAX_S + 0.5
        last_ns = max((each.end_ns for each in activity), default=0)
        last_s = max((last_ns - origin_ns) / NS_PER_S, float(time_s[-1])) + 1e-3
        return cls(
            observed=observed,
            declared=declared,
            time_s=time_s,
            intervals=activity_intervals(activity, origin_ns, -reach_s, last_s),
            turns_s=(traffic_turns(moved, activity) - origin_ns) / NS_PER_S,
            piece_s=max(PIECE_S, PIECE_READS * float(np.median(np.diff(time_s)))),
            longest_s=longest_s,
            reach_s=reach_s,
        )

    def pieces(self, spans: Sequence[Sequence[ActivityInterval]]) -> Pieces:
        """Return the pieces of some spans of the run, by its course of power."""
        return Pieces.of(
            spans,
            self.piece_s,
            turns_s=self.turns_s,
            has_parts=self.has_parts,
            is_steady=self.is_steady,
        )

    @property
    def is_flat(self) -> bool:
        """Whether readings are constant: then they show nothing of a sensor."""
        return bool(np.ptp(self.observed.watts) <= self.observed.resolution_w)


def _near_edges(run: _Run) -> LeastSquares:
    """Return the problem near up to ``EDGES_MAX`` edges; all of the run if it has few."""
    edges = np.array([each.start_s for each in run.intervals[1:]])
    if edges.size > EDGES_MAX:
        groups = np.linspace(0, edges.size - EDGES_MAX // 4, 4).astype(np.intp)
        edges = edges[np.unique(groups[:, None] + np.arange(EDGES_MAX // 4))]
    spans: list[tuple[float, float]] = []
    for edge_s in edges.tolist():
        start_s, end_s = edge_s - BEFORE_EDGE_S - run.reach_s, edge_s + AFTER_EDGE_S
        if spans and start_s <= spans[-1][1]:
            start_s = spans.pop()[0]
        spans.append((start_s, end_s))
    clipped = [
        [
            ActivityInterval(start_s=max(e.start_s, low), end_s=min(e.end_s, high), names=e.names)
            for e in run.intervals
            if min(e.end_s, high) - max(e.start_s, low) > SAME_EDGE_S
        ]
        for low, high in spans
    ]
    clipped = [span for span in clipped if span]
    near = np.zeros(run.time_s.size, np.bool_)
    for span in clipped:
        is_first = span[0].start_s <= run.intervals[0].start_s
        from_s = span[0].start_s + (0.0 if is_first else run.reach_s)
        near |= (run.time_s >= from_s) & (run.time_s <= span[-1].end_s)
    if np.count_nonzero(near) < READINGS_MIN:
        near[:], clipped = True, [list(run.intervals)]
    each_s = float(np.median(np.diff(run.time_s)))
    # Readings may come almost at once; a few must be left.
    most = np.count_nonzero(near) // READINGS_MIN
    stride = max(1, min(most, int(run.piece_s / (PIECE_READINGS * max(each_s, 1e-9)))))
    used = np.flatnonzero(near)[::stride]
    observed, windows_s = run.observed, run.observed.window_s
    return LeastSquares(
        run.pieces(clipped),
        run.time_s[used],
        replace(
            observed,
            time_ns=observed.time_ns[used],
            watts=observed.watts[used],
            window_s=None if windows_s is None else windows_s[used],
        ),
    )


def _whole(run: _Run) -> LeastSquares:
    whole_s = run.intervals[-1].end_s - run.intervals[0].start_s
    coarser = replace(run, piece_s=max(run.piece_s, whole_s / PIECES_MAX))
    return LeastSquares(coarser.pieces([run.intervals]), run.time_s, run.observed)


def _fitted(run: _Run, sensors: LikelySensors) -> FittedPower | None:
    """Return the power in the whole run by these sensors; ``None`` if it cannot be solved."""
    observed = run.observed
    whole = _whole(run)
    solved_w: list[tuple[float, Values]] = []
    likely: list[tuple[float, Solution]] = []
    for each in sorted(_quantiles(sensors.candidates), key=lambda each: -each.weight):
        solution = whole.solve(each.response, each.walk)
        if solution is not None:
            solved_w.append((each.weight, solution.watts))
            # A covariance takes some megabytes for an hour of readings.
            likely += [(each.weight, solution)] * (len(likely) < COVARIANCES_MAX)
    if not solved_w:
        return None
    total = sum(weight for weight, _ in solved_w)
    likeliest = likely[0][1]
    sensor = _found_sensor(run, sensors, likeliest.residual)
    watts = np.sum([weight / total * each_w for weight, each_w in solved_w], axis=0)
    if not sensor.is_known:
        as_declared = whole.solve(run.declared, likeliest.walk)
        watts = watts if as_declared is None else as_declared.watts
    edge_ns = np.rint(whole.pieces.edge_s * NS_PER_S).astype(np.int64)
    return FittedPower(
        edge_ns=int(observed.time_ns[0]) + edge_ns,
        watts=watts,
        noise_w=typical_change_w(observed.watts),
        sensor=sensor,
        _solved_w=[(weight / total, each_w) for weight, each_w in solved_w],
        _covariances=[(weight, solution.covariance) for weight, solution in likely],
        _misfits=_misfits(run, sensor, likeliest.residual),
    )


def _misfits(run: _Run, sensor: SensorRecord, residual: Values) -> list[EdgeMisfit]:
    """Return what the residuals (m,) after each edge show beyond noise, alike for equal edges.

    Noise is what readings of work show away from edges. Without ``NOISE_READINGS`` of these it is
    the scatter of the residuals at one time since equal edges, else the residuals elsewhere.
    """
    lag_s = max(sensor.lag_s, 0.0)
    first_s = max(lag_s - NEAR_EDGE_S, 0.0)
    after_s = lag_s + sensor.window_s + NEAR_EDGE_S
    begin_s = np.array([interval.start_s for interval in run.intervals])
    at = np.searchsorted(begin_s, run.time_s, "right") - 1
    is_away = run.time_s - begin_s[at] > after_s
    of_work = residual[is_away & np.array([bool(each.names) for each in run.intervals])[at]]
    kinds: defaultdict[tuple[frozenset[str], ...], list[float]] = defaultdict(list)
    for before, after in itertools.pairwise(run.intervals):
        kinds[before.names, after.names].append(after.start_s)
    start_ns = int(run.observed.time_ns[0])
    found: list[EdgeMisfit] = []
    for edges_s in kinds.values():
        spans = np.searchsorted(run.time_s, np.add.outer(edges_s, (first_s, after_s)))
        near = np.concatenate([np.arange(*span) for span in spans])
        square_w2 = float(residual[near] @ residual[near])
        noise_w2 = sensor.residual_w**2
        if of_work.size >= NOISE_READINGS:
            noise_w2 = float(np.mean(of_work**2))
        elif len(edges_s) > 1 and near.size:
            since_s = run.time_s[near] - np.repeat(edges_s, np.diff(spans)[:, 0])
            bins = (since_s / run.piece_s).astype(np.intp)
            count, total_w = np.bincount(bins), np.bincount(bins, residual[near])
            freedom = near.size - np.count_nonzero(count)
            between_w2 = float((total_w[count > 0] ** 2 / count[count > 0]).sum())
            if freedom >= NOISE_READINGS:
                noise_w2 = (square_w2 - between_w2) / freedom
        beyond_w2 = square_w2 / max(near.size, 1) - NOISE_FACTOR**2 * noise_w2
        watts = math.sqrt(max(beyond_w2, 0.0)) if noise_w2 else 0.0
        found += [EdgeMisfit(start_ns + round(edge_s * NS_PER_S), watts) for edge_s in edges_s]
    return sorted(found)


def _quantiles(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return up to ``SOLUTIONS_MAX`` candidates for all, with weights that sum to 1.

    They are the quantiles of the weight in order of delay, by which energies differ most.
    """
    ordered = sorted(candidates, key=lambda each: each.response.delay_s)
    reached = np.cumsum([each.weight for each in ordered])
    wanted = (np.arange(SOLUTIONS_MAX) + 0.5) / SOLUTIONS_MAX * reached[-1]
    index, count = np.unique(np.searchsorted(reached, wanted), return_counts=True)
    return [
        ordered[at]._replace(weight=n / SOLUTIONS_MAX)
        for at, n in zip(index.tolist(), count.tolist(), strict=True)
    ]


def _found_sensor(run: _Run, sensors: LikelySensors, residual: Values) -> SensorRecord:
    """Return the sensor with its uncertainty, and how well it explains the readings (n,)."""
    best, undelayed = sensors.best, sensors.may_be_undelayed
    shape = best.response.shape
    own = [each for each in sensors.candidates if each.response.shape == shape]
    weight = np.array([each.weight for each in own])
    weight /= weight.sum()
    lag_s = np.array([each.response.lag_s for each in own])
    window_s = np.array([each.response.window_s for each in own])
    mean_lag_s, mean_window_s = float(weight @ lag_s), float(weight @ window_s)
    window_u_s = 2 * math.sqrt(float(weight @ (window_s - mean_window_s) ** 2))
    allowed_s = WINDOW_SHARE * run.declared.window_s
    apart_s = abs(mean_window_s - run.declared.window_s) - min(window_u_s, allowed_s)
    is_close = shape == run.declared.shape and apart_s <= allowed_s
    # Without an edge, or without a change of power, any lag explains the readings.
    lag_u_s = LAG_MAX_S
    if len(run.intervals) > 1 and not run.is_flat:
        lag_u_s = 2 * math.sqrt(float(weight @ (lag_s - mean_lag_s) ** 2))
    edge_w, elsewhere_w = _residuals_w(run, residual, mean_lag_s + mean_window_s + NEAR_EDGE_S)
    allowed_w = math.inf
    if edge_w is not None:
        allowed_w = max(
            MISFIT_FACTOR * max(elsewhere_w or edge_w, run.observed.resolution_w),
            EDGE_MISFIT * float(np.ptp(run.observed.watts)),
        )
    is_at_bound = (best.response.lag_s > BOUND_SHARE * LAG_MAX_S and not undelayed) or (
        best.has_free_window and best.response.window_s > BOUND_SHARE * run.longest_s
    )
    return SensorRecord(
        shape=shape,
        window_s=mean_window_s,
        window_uncertainty_s=window_u_s,
        lag_s=mean_lag_s,
        lag_uncertainty_s=lag_u_s,
        is_known=lag_u_s <= KNOWN_LAG_S or not undelayed,
        is_declared=best.is_declared or is_close,
        edge_residual_w=edge_w,
        residual_w=elsewhere_w or 0.0,
        # A count is right whatever the power was.
        is_explained=shape == "mean" or (not is_at_bound and (edge_w or 0.0) <= allowed_w),
    )


def _residuals_w(
    run: _Run, residual: Values, after_edge_s: float
) -> tuple[float | None, float | None]:
    """Return the root mean square residuals up to so long after an edge, and elsewhere.

    Either is ``None`` without such readings.
    """
    edge_s = np.array([-math.inf, *(interval.start_s for interval in run.intervals[1:])])
    since_s = run.time_s - edge_s[np.searchsorted(edge_s, run.time_s, "right") - 1]
    is_edge = since_s <= after_edge_s
    edge_w, elsewhere_w = (
        float(np.sqrt(np.mean(residual[part] ** 2))) if part.any() else None
        for part in (is_edge, ~is_edge)
    )
    return edge_w, elsewhere_w
