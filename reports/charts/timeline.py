"""Charts over time: rates, power and cumulative energy, of one run or of a run of each arm.

Lines are means over bins, of a second or more unless the run is short; the range of the values
within a bin is a band.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Scope
from wattload.core.record.energy import SensorRecord
from wattload.core.record.run import RunRecord
from wattload.core.record.sensor_text import delay_text
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.captions import is_declared
from wattload.reports.charts.plot import Axis, Frame
from wattload.reports.charts.strips import axis_ends, strips_caption, track_frame
from wattload.reports.charts.themes import arm_role
from wattload.reports.charts.tracks import Track, has_power
from wattload.reports.runs.timeline import Band, Line, host_rates
from wattload.reports.stats.subject import LETTERS
from wattload.results.quantity import Scale, listed, number, quantity, scale_for, scaled
from wattload.results.reading import view_of

BINS_MAX = 600
"""The most bins of a line: more would not be seen."""

_BINS_MIN = 5
"""Fewer bins of a second are made finer: they would not show how a short run went."""
_BANDED_MIN = 20
"""Bands of fewer bins would cover all of the chart."""
_BRIEF_S = 0.5
"""Shorter phases have too few bins of the trace: each is drawn with its mean rate."""
_BRIEF_BINS = 2.0
"""Phases of fewer bins of a chart would alias with these, so they are drawn in the same way."""
_TEETH_MAX = BINS_MAX // 4
"""More phases can't be seen: means over many of them are drawn instead."""
_PERIODS = 10
"""How many phases of a run such a mean is over."""
_WIDTHS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600, 7200, 14400)
_TABLE_ROWS = 24
_CUT = 1.8
"""Extremes beyond this many times the highest mean are cut off, so that means can be seen."""
_DELAY_NAMED_S = 0.2
"""From this mean delay on, a reader sees that power begins and ends later than its phase."""
_DECLARED = "Watts declared by a data sheet or the user, not measured"
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """One line: times are seconds from the track's start; ``dash`` for what is not measured.

    Lines of the parts of one run have no bands, which would hide each other.
    """

    name: str
    role: str
    time_s: Array
    value: Array
    dash: str = ""
    is_part: bool = False


def power_figure(name: str, title: str, tracks: Sequence[Track]) -> Figure | None:
    """Return power over time, arms over each other from their timed start; ``None`` without it."""
    drawn = [track for track in tracks if has_power(track)]
    if not drawn:
        return None
    series = [_power_series(track, is_alone=len(drawn) == 1) for track in drawn]
    svg, table, bins = _chart(drawn, series, Unit.WATTS, "Power")
    caption = _power_caption(drawn, bins)
    several = [own for own in series if len(own) > 1] if len(drawn) == 1 else []
    legend = [(each.role, each.name) for own in several for each in own]
    return Figure(name=name, title=title, svg=svg, caption=caption, table=table, legend=legend)


def rate_figure(name: str, title: str, tracks: Sequence[Track]) -> Figure | None:
    """Return the rate of the workload over time; ``None`` where no trace of bytes was kept.

    Of one run, reads, writes and the traffic of devices are lines of their own.
    """
    drawn = [track for track in tracks if track.timeline.rates]
    if not drawn:
        return None
    bin_s = None
    if any(_is_brief(track) for track in drawn):
        bin_s = max(track.end_s for track in drawn) / BINS_MAX
        series = [_phase_rates(track, bin_s, is_alone=len(drawn) == 1) for track in drawn]
    else:
        series = [_own_rates(drawn[0])] if len(drawn) == 1 else [_moved(track) for track in drawn]
    legend = [(each.role, each.name) for each in series[0]] if len(drawn) == 1 else []
    svg, table, bins = _chart(drawn, series, Unit.BYTES_PER_SECOND, "Rate", bin_s)
    computes = any(view_of(track.run.record).emulates_accelerators for track in drawn)
    ahead = "; the loader reads them ahead of the computation" if computes else ""
    caption = f"Bytes that the workload moved{ahead}. {bins}"
    return Figure(name=name, title=title, svg=svg, caption=caption, table=table, legend=legend)


def hosts_figure(name: str, title: str, track: Track) -> Figure | None:
    """Return the rate of each host of a run over time; ``None`` for one host, and for very many.

    ``None``, too, if most of its phases are too short for the bins of the trace.
    """
    lines = host_rates(track.run)
    if not 1 < len(lines) <= len(LETTERS) or _is_brief(track):
        return None
    series = [
        _Series(
            name=line.name,
            role=arm_role(letter),
            time_s=line.time_s - track.zero_s,
            value=line.value,
            is_part=True,
        )
        for letter, line in zip(LETTERS, lines, strict=False)
    ]
    svg, table, bins = _chart([track], [series], Unit.BYTES_PER_SECOND, "Rate by host")
    legend = [(each.role, each.name) for each in series]
    caption = f"Bytes that the ranks of each host moved. {bins}"
    return Figure(name=name, title=title, svg=svg, caption=caption, table=table, legend=legend)


def energy_figure(name: str, title: str, tracks: Sequence[Track]) -> Figure | None:
    """Return the energy used since the timed start; ``None`` where no power is known over time.

    Only timed phases count. The end of a line is the integral of the trace; the energies of the
    record, which also correct the ends of phases, are printed above it.
    """
    curves = [(track, curve) for track in tracks if (curve := _cumulative(track)) is not None]
    if not curves:
        return None
    scale = scale_for(Unit.JOULES, max(float(curve.value[-1]) for _, curve in curves))
    frame = track_frame(
        [track for track, _ in curves],
        max(scale.shown(float(curve.value[-1])) for _, curve in curves),
        scale.unit,
    )
    rows = []
    edges = np.linspace(0, max(track.end_s for track, _ in curves), _TABLE_ROWS + 1)
    for track, curve in curves:
        frame.line(
            curve.time_s.tolist(), (curve.value / scale.factor).tolist(), curve.role, track.letter
        )
        rows.append([scaled(float(v), scale) for v in np.interp(edges, curve.time_s, curve.value)])
    titles = [f"#{track.letter}, {scale.unit}" for track, _ in curves]
    table = Table(
        columns=columns("#seconds", *titles),
        rows=[
            row(number(edge, 3), *[cells[index] for cells in rows])
            for index, edge in enumerate(edges.tolist())
        ],
        caption="Energy since the timed start",
    )
    words = "; ".join(f"{track.letter}: {track.summary}" for track, _ in curves)
    return Figure(
        name=name,
        title=title,
        svg=frame.svg(f"{title}. {words}", "time"),
        caption="Power integrated over the timed phases; the slope of a line is its power.",
        table=table,
    )


def _cumulative(track: Track) -> _Series | None:
    """Return the energy of a track's timed phases at every sample, in joules.

    That of a drive is of the times in which its own host was in a phase, as in the record.
    """
    found = [line for line in track.timeline.watts if line.role == "power"]
    if not found or not track.phases:
        return None
    intervals = sorted(span for phase in track.phases for span in phase.intervals_s)
    times = np.unique(
        np.concatenate([line.time_s for line in found] + [np.array(span) for span in intervals])
    )
    times = times[(times >= track.zero_s) & (times <= track.zero_s + track.end_s)]
    middles, lengths = (times[1:] + times[:-1]) / 2, np.diff(times)
    steps_j = np.zeros_like(middles)
    for line in found:
        known = ~np.isnan(line.value)
        if not known.any():
            return None
        watts = np.interp(times, line.time_s[known], line.value[known])
        inside = np.zeros(middles.shape, dtype=np.bool_)
        own = [phase.of_hosts_s.get(line.drive[0], ()) for phase in track.phases]
        for start, end in itertools.chain.from_iterable(own):
            inside |= (middles >= start) & (middles <= end)
        steps_j += lengths * (watts[1:] + watts[:-1]) / 2 * inside
    joules = np.concatenate(([0.0], np.cumsum(steps_j)))
    kept = np.unique(np.linspace(0, times.size - 1, min(times.size, BINS_MAX)).astype(np.int64))
    return _Series(
        name=track.letter,
        role=arm_role(track.letter),
        time_s=times[kept] - track.zero_s,
        value=joules[kept],
    )


def _power_series(track: Track, *, is_alone: bool) -> list[_Series]:
    """Return a run's power: of a single run a line for each drive, if there are not too many.

    Beside other runs, and of many drives, it is their sum.
    """
    lines: Sequence[Line] = track.timeline.watts
    if len(lines) > 1 and not (is_alone and len(lines) <= len(LETTERS)):
        lines = _summed(lines)
    is_one = len(lines) == 1
    return [
        _Series(
            name=track.letter
            if is_one
            else line.name
            if is_alone
            else f"{track.letter} {line.name}",
            role=arm_role(LETTERS[index] if is_alone and not is_one else track.letter),
            time_s=line.time_s - track.zero_s,
            value=line.value,
            dash="6 4" if line.role == "declared" else "",
            is_part=not is_one,
        )
        for index, line in enumerate(lines)
    ]


def _summed(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the sum of lines at even steps, with gaps where one has none.

    Lines of one drive by several sources, and some that are declared, are no parts of a sum.
    """
    if len({line.drive for line in lines}) < len(lines) or len({line.role for line in lines}) > 1:
        return lines
    apart_s = max(float(np.median(np.diff(line.time_s))) for line in lines)
    starts, ends = ([line.time_s[at] for line in lines] for at in (0, -1))
    time_s = np.arange(min(starts), max(ends), apart_s)
    value = np.zeros_like(time_s)
    for line in lines:
        at = np.searchsorted(line.time_s, time_s, side="right") - 1
        outside = (at < 0) | (time_s > line.time_s[-1])
        value += np.where(outside, np.nan, line.value[at])
    return [replace(lines[0], name=f"{len(lines)} drives", time_s=time_s, value=value)]


def _own_rates(track: Track) -> list[_Series]:
    """Return a run's rates by direction, as far as its timed part has any, and its devices'."""
    names = {"read": "read", "write": "written"}
    return [
        _Series(
            name=names.get(line.name, f"{line.name}, all traffic"),
            role=line.role,
            time_s=line.time_s - track.zero_s,
            value=line.value,
        )
        for line in track.timeline.rates
        if line.name not in names or line.value[line.time_s >= track.zero_s].any()
    ]


def _moved(track: Track) -> list[_Series]:
    own = [line for line in track.timeline.rates if line.role in ("read", "write")]
    if not own:
        return []
    return [
        _Series(
            name=track.letter,
            role=arm_role(track.letter),
            time_s=own[0].time_s - track.zero_s,
            value=np.sum([line.value for line in own], axis=0),
        )
    ]


def _is_brief(track: Track) -> bool:
    """Return whether most of a run's timed phases are too short for the bins of its trace."""
    lengths = [end - start for phase in track.phases for start, end in phase.intervals_s]
    if not lengths or not (length_s := float(np.median(lengths))) > 0:
        return False
    bin_s = min(1.0, track.end_s / _BINS_MIN) if len(lengths) > 1 else 0.0
    return length_s < max(_BRIEF_S, _BRIEF_BINS * bin_s) and len(lengths) <= _TEETH_MAX


def _phase_rates(track: Track, bin_s: float, *, is_alone: bool) -> list[_Series]:
    """Return the mean rate of each timed phase while it lasts; of a single run by direction."""
    time_s = np.arange(bin_s / 2, track.end_s, bin_s)
    read, written = np.zeros_like(time_s), np.zeros_like(time_s)
    for phase in (each for each in track.phases if each.active_s > 0):
        for start_s, end_s in phase.intervals_s:
            inside = (time_s >= start_s - track.zero_s) & (time_s < end_s - track.zero_s)
            read[inside] += phase.read_bytes / phase.active_s
            written[inside] += phase.written_bytes / phase.active_s
    if not is_alone:
        role = arm_role(track.letter)
        return [_Series(name=track.letter, role=role, time_s=time_s, value=read + written)]
    own = (("read", "read", read), ("written", "write", written))
    return [
        _Series(name=name, role=role, time_s=time_s, value=value)
        for name, role, value in own
        if value.any()
    ]


def _bins_caption(width_s: float, *, has_bands: bool) -> str:
    means = f"Lines are means over {quantity(width_s, Unit.SECONDS, 1)}"
    bands = "; bands show lowest to highest, cut off at the top" if has_bands else ""
    return f"{means}{bands}."


def _power_caption(tracks: Sequence[Track], bins: str) -> str:
    lines = [line.evidence for track in tracks for line in track.timeline.watts]
    lines += [band.evidence for track in tracks for band in track.timeline.bands]
    known = list(dict.fromkeys(lines))
    if known and all(map(is_declared, known)):
        return f"{_DECLARED}."
    periods_s = [
        float(np.median(np.diff(line.time_s)))
        for track in tracks
        for line in track.timeline.watts
        if line.time_s.size > 1
    ]
    what = "Bounds of the drive's power"
    if not any(track.timeline.bands for track in tracks):
        what = "Drive power, in phases, the rest and idle times"
        if not any(track.quiet for track in tracks):
            what = "Drive power"
    if periods_s:
        what += f", read every {quantity(max(periods_s), Unit.SECONDS, 2)}"
    parts = [f"{what}: {'; '.join(known)}. Strips are timed phases."]
    delays = {track.letter: found for track in tracks if (found := _delay_text(track))}
    if delays:
        late = listed([f"{text} ({letter})" for letter, text in delays.items()])
        if len({*delays.values()}) == 1 and len(delays) == len(tracks):
            late = delays[tracks[0].letter]
        parts.append(f"Readings appear {late} late; energies correct for this.")
    if periods_s:
        parts.append(bins)
    return " ".join(parts)


def _delay_text(track: Track) -> str:
    """Return how late a run's meters are, as a range where they differ; empty if hardly."""
    sensors = sorted(_sensors(track.run.record), key=lambda each: each.tau_s)
    if not sensors or sensors[-1].tau_s < _DELAY_NAMED_S:
        return ""
    first, last = sensors[0], sensors[-1]
    if delay_text(first) == delay_text(last):
        return delay_text(last)
    return f"{first.tau_s:.2f} to {last.tau_s:.2f} s"


def _sensors(record: RunRecord) -> Iterator[SensorRecord]:
    """Yield the sensor of each meter whose energy of a drive was chosen."""
    chosen = {
        (energy.host, energy.source, energy.device)
        for energy in record.power.energy
        if energy.chosen and energy.scope is Scope.DRIVE
    }
    for source in record.power.sources:
        if source.sensor is not None and (source.host, source.name, source.device) in chosen:
            yield source.sensor


def _chart(
    tracks: Sequence[Track],
    series: Sequence[Sequence[_Series]],
    unit: Unit,
    what: str,
    bin_s: float | None = None,
) -> tuple[str, Table, str]:
    """Return the picture of the series of each track, their means, and what lines and bands are.

    ``bin_s`` is the period of series that are means of phases and have no bins.
    """
    every = [each for own in series for each in own]
    bands = (
        [band for track in tracks for band in track.timeline.bands] if unit is Unit.WATTS else []
    )
    width_s = bin_s or _bin_s(tracks, every, unit)
    binned = [_binned(each, width_s) for each in every]
    end_s = max(track.end_s for track in tracks)
    quiet = [span for track in tracks for span in track.quiet] if unit is Unit.WATTS else []
    low_s, high_s = axis_ends(tracks, quiet)
    has_bands = (
        bin_s is None and end_s >= _BANDED_MIN * width_s and not any(each.is_part for each in every)
    )
    # What else a device moved does not flatten the workload's own lines: it is cut off.
    has_own = any(each.role != "device" for each in every)
    tops = [
        _top(bins, end_s, _inside(bins[0], low_s, high_s), has_bands=has_bands)
        for each, bins in zip(every, binned, strict=True)
        if each.role != "device" or not has_own
    ]
    tops += [float(np.nanmax(band.upper)) for band in bands if np.isfinite(band.upper).any()]
    largest = max(tops, default=0.0) or 1.0
    scale = scale_for(unit, largest)
    frame = track_frame(tracks, scale.shown(largest), scale.unit, quiet)
    for track in tracks:
        for band in track.timeline.bands if unit is Unit.WATTS else ():
            _draw_band(frame, track, band, scale)
    for each, (edges, mean, low, high) in zip(every, binned, strict=True):
        inside = _inside(edges, frame.x.low, frame.x.high)
        own = edges[inside.start : inside.stop + 1]
        if has_bands and each.role != "device":
            lowest, highest = low[inside] / scale.factor, high[inside] / scale.factor
            frame.band(own, lowest, highest, each.role, 0.14)
        frame.steps(own, mean[inside] / scale.factor, each.role, each.name, dash=each.dash)
    words = "; ".join(f"{track.letter}: {track.summary}" for track in tracks)
    svg = frame.svg(f"{what} over time. {words}", "time")
    bins = "Lines are means of each phase."
    if bin_s is None:
        bins = _bins_caption(width_s, has_bands=has_bands)
    return svg, _table(every, scale, frame.x), f"{bins}{strips_caption(tracks, quiet)}"


def _top(
    binned: tuple[Array, Array, Array, Array], end_s: float, drawn: slice, *, has_bands: bool
) -> float:
    """Return the highest value of the axis: no drawn mean is above it, but extremes may be.

    These have room only where bands show them.

    ``end_s`` is the end of the timed part, ``drawn`` are the bins that the axis shows.
    """
    edges, mean, _, high = binned
    means = mean[drawn]
    line = float(np.nanmax(means)) if np.isfinite(means).any() else 0.0
    timed = slice(*np.searchsorted(edges[:-1], (0.0, end_s)))
    own = timed if np.isfinite(mean[timed]).any() else slice(None)
    if not has_bands or not np.isfinite(mean[own]).any():
        return line
    return max(line, float(min(np.nanmax(high[own]), _CUT * np.nanmax(mean[own]))))


def _inside(edges: Array, start_s: float, end_s: float) -> slice:
    """Return the bins that the axis shows, in whole or in part."""
    first = max(int(np.searchsorted(edges, start_s, side="right")) - 1, 0)
    last = int(np.searchsorted(edges, end_s))
    return slice(first, max(first, min(last, edges.size - 1)))


def _draw_band(frame: Frame, track: Track, band: Band, scale: Scale) -> None:
    times = np.clip(band.time_s - track.zero_s, frame.x.low, frame.x.high)
    if times.size < 2:  # noqa: PLR2004 - no width
        return
    lower = band.lower if band.lower is not None else np.zeros_like(band.upper)
    kept = np.unique(np.linspace(0, times.size - 1, min(times.size, BINS_MAX)).astype(np.int64))
    role = arm_role(track.letter)
    edges = times[kept]
    frame.band(
        edges, lower[kept][:-1] / scale.factor, band.upper[kept][:-1] / scale.factor, role, 0.16
    )
    frame.steps(
        edges, band.upper[kept][:-1] / scale.factor, role, f"{track.letter} at most", dash="5 3"
    )
    if band.lower is not None:
        frame.steps(
            edges, lower[kept][:-1] / scale.factor, role, f"{track.letter} at least", dash="5 3"
        )


def _bin_s(tracks: Sequence[Track], series: Sequence[_Series], unit: Unit) -> float:
    """Return the width of bins in seconds.

    It is a second, the slowest sensor's period, more for long runs, or less for short ones.
    """
    periods_s = [float(np.median(np.diff(each.time_s))) for each in series if each.time_s.size > 1]
    counts = [sum(len(phase.intervals_s) for phase in track.phases) for track in tracks]
    periods_s += [
        _PERIODS * track.end_s / count
        for track, count in zip(tracks, counts, strict=True)
        if count > _TEETH_MAX and unit is Unit.BYTES_PER_SECOND
    ]
    span_s = max(track.timeline.end_s - track.timeline.start_s for track in tracks)
    short_s = max(track.end_s for track in tracks) / _BINS_MIN
    least_s = max([*periods_s, span_s / BINS_MAX, min(1.0, short_s)])
    return next((float(each) for each in _WIDTHS_S if each >= least_s - 1e-6), least_s)


def _binned(series: _Series, width_s: float) -> tuple[Array, Array, Array, Array]:
    """Return the edges of bins, shape (n + 1,), and the mean, lowest and highest value of each.

    The last bin ends with the series.
    """
    first = int(np.floor(series.time_s[0] / width_s)) if series.time_s.size else 0
    place = np.floor(series.time_s / width_s).astype(np.int64) - first
    count = int(place[-1]) + 1 if place.size else 0
    edges = (np.arange(count + 1, dtype=np.float64) + first) * width_s
    if series.time_s.size > 1:
        bin_s = float(np.median(np.diff(series.time_s)))
        edges[-1] = min(edges[-1], series.time_s[-1] + bin_s)
    known = ~np.isnan(series.value)
    place, value = place[known], series.value[known]
    counts = np.bincount(place, minlength=count)
    sums = np.bincount(place, weights=value, minlength=count)
    with np.errstate(invalid="ignore"):
        mean = np.where(counts > 0, sums / counts, np.nan)
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    if place.size:
        found, starts = np.unique(place, return_index=True)
        low[found] = np.minimum.reduceat(value, starts)
        high[found] = np.maximum.reduceat(value, starts)
    return edges, mean, low, high


def _table(series: Sequence[_Series], scale: Scale, x: Axis) -> Table:
    edges = np.linspace(x.low, x.high, _TABLE_ROWS + 1)
    cells = [list(_means(each, edges, scale)) for each in series]
    rows = [
        row(
            f"{number(start, 3)} to {number(end, 3)}",
            *[own[index] for own in cells],
        )
        for index, (start, end) in enumerate(itertools.pairwise(edges.tolist()))
    ]
    titles = [f"#{each.name}, {scale.unit}" for each in series]
    return Table(
        columns=columns("seconds", *titles), rows=rows, caption="Means over equal parts of the time"
    )


def _means(series: _Series, edges: Array, scale: Scale) -> Iterator[str]:
    bounds = np.searchsorted(series.time_s, edges)
    for start, end in itertools.pairwise(bounds):
        inside = series.value[start:end]
        known = inside[~np.isnan(inside)]
        yield scaled(float(known.mean()) if known.size else None, scale)
