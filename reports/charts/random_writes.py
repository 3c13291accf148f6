"""Charts of random writes: the rates of all arms on one axis, and what drives did by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Channel
from wattload.core.units import NS_PER_S, Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.arms import arms_legend
from wattload.reports.charts.plot import Axis, Frame, round_ticks
from wattload.reports.charts.themes import arm_role
from wattload.reports.charts.timeline import BINS_MAX, Track
from wattload.reports.runs.phases import CommonClock, stretches
from wattload.reports.runs.random_writes import (
    STEADY,
    RandomWrites,
    duration_scale,
    random_writes,
)
from wattload.reports.runs.rounds import PERCENTILES, Rounds, merged
from wattload.results.quantity import (
    DIRECTIONS,
    MISSING,
    Scale,
    listed,
    number,
    quantity,
    scale_for,
    scaled,
)

_HEIGHT = 190
_SMALL = 120
_HEADROOM = 1.12
_CUT = 1.8
"""Seconds faster than this many times the fastest round are cut off."""
_BAR = 0.03
"""Height of the bar of a steady window, as a share of the axis."""
_TABLE_ROWS = 24
_DASHES = {"p50_s": "", "p99_s": "6 3", "p9999_s": "2 2"}
_NAMES = {"p50_s": "p50", "p99_s": "p99", "p9999_s": "p99.99"}
_READINGS = 3
"""So many readings of a drive's counts per round are needed at least."""
_TICKS = 6
_LEAST_SPAN_C = 20.0
_ZERO_C_K = 273.15

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTrack:
    """One arm's run of random writes: its rounds, and the steady window on both axes.

    ``steady_s`` are seconds since the first write; it is ``None`` without a steady state.
    """

    track: Track
    writes: RandomWrites
    rounds: Rounds
    steady_s: tuple[float, float] | None

    @property
    def letter(self) -> str:
        return self.track.letter

    @property
    def role(self) -> str:
        return arm_role(self.letter)

    @property
    def rates(self) -> Array:
        """The rate of each round, in bytes per second."""
        rates: Array = self.rounds.written_bytes / self.rounds.seconds
        return rates

    @property
    def edges_writes(self) -> Array:
        """The drive writes up to each edge of a round."""
        edges: Array = self.rounds.edges_bytes / self.writes.range_bytes
        return edges

    @property
    def steady_writes(self) -> tuple[float, float] | None:
        if self.steady_s is None:
            return None
        first, last = np.interp(self.steady_s, self.rounds.edges_s, self.edges_writes)
        return float(first), float(last)


def write_tracks(tracks: Sequence[Track]) -> list[WriteTrack]:
    """Return the tracks of random writes whose rounds were kept."""
    found = []
    for track in tracks:
        record = track.run.record
        writes, rounds = random_writes(record), track.run.traces.rounds
        if writes is None or rounds is None:
            continue
        clock, start_ns = CommonClock(record), int(rounds.start_ns[0])
        start_s = clock.seconds(record.hosts[0].facts.name if record.hosts else "", start_ns)
        spans = [each.intervals_s[0] for each in stretches(record) if each.name == STEADY]
        found.append(
            WriteTrack(
                track=track,
                writes=writes,
                rounds=merged(rounds, BINS_MAX),
                steady_s=(spans[0][0] - start_s, spans[0][1] - start_s) if spans else None,
            )
        )
    return found


def write_figures(name: str, title: str, tracks: Sequence[WriteTrack]) -> list[Figure]:
    """Return the rate of all arms over time and over drive writes; nothing without rounds."""
    if not tracks:
        return []
    rate = scale_for(Unit.BYTES_PER_SECOND, max(float(each.rates.max()) for each in tracks))
    return [
        _rate_figure(name, title, tracks, rate, is_by_time=True),
        _rate_figure(f"{name}-writes", title, tracks, rate, is_by_time=False),
    ]


def _rate_figure(
    name: str, title: str, tracks: Sequence[WriteTrack], rate: Scale, *, is_by_time: bool
) -> Figure:
    time = _time_scale(tracks)
    ends = [_edges(each, time, is_by_time=is_by_time)[-1] for each in tracks]
    fastest = max(float(each.rates.max()) for each in tracks)
    tops = [float(np.nanmax(each.rounds.fastest, initial=0.0)) for each in tracks]
    frame = Frame(
        _axis(max(ends), time.unit if is_by_time else ""),
        Axis(
            low=0,
            high=rate.shown(min(max(tops), _CUT * fastest)) * _HEADROOM or 1.0,
            unit=rate.unit,
        ),
        height=_HEIGHT,
        x_title="" if is_by_time else "drive writes: bytes written ÷ bytes of the range",
    )
    has_bands = not any(each.rounds.are_seconds for each in tracks)
    words = []
    for place, each in enumerate(tracks):
        edges = _edges(each, time, is_by_time=is_by_time)
        span = each.steady_s if is_by_time else each.steady_writes
        if span is not None:
            factor = time.factor if is_by_time else 1.0
            low = np.array([place * _BAR * frame.y.high])
            bar = np.array(span) / factor
            frame.band(bar, low, low + 0.8 * _BAR * frame.y.high, each.role, 1.0)
        if has_bands:
            low, high = each.rounds.slowest / rate.factor, each.rounds.fastest / rate.factor
            frame.band(edges, low, high, each.role, 0.16)
        frame.steps(edges, each.rates / rate.factor, each.role, each.letter)
        words.append(
            f"{each.letter}: {quantity(float(np.mean(each.rates)), Unit.BYTES_PER_SECOND)}"
        )
    if len(tracks) > 1:
        for each in tracks:
            middle = each.rates.size // 2
            x = float(_edges(each, time, is_by_time=is_by_time)[middle])
            frame.label(x, rate.shown(float(each.rates[middle])), each.letter)
    over = "time" if is_by_time else "drive writes"
    return Figure(
        name=name,
        title=f"{title}: rate over {over}",
        svg=frame.svg(f"{title}: rate over {over}. {'; '.join(words)}", "time"),
        caption=_rate_caption(tracks, has_bands=has_bands) if is_by_time else "",
        table=_rate_table(tracks, rate, time),
        legend=_legend(tracks),
    )


def _rate_caption(tracks: Sequence[WriteTrack], *, has_bands: bool) -> str:
    parts = [f"{'Rounds of a minute' if has_bands else 'Rates of seconds'}"]
    if has_bands:
        parts[0] += "; bands are their slowest to fastest second"
    if any(each.steady_s is not None for each in tracks):
        parts.append("Bars on the axis: the steady window")
    return ". ".join([*parts, ""]).rstrip()


def round_figures(name: str, title: str, tracks: Sequence[WriteTrack]) -> list[Figure]:
    """Return what was measured by round: amplification, latency, power and temperature."""
    if not tracks:
        return []
    watts = {each.letter: _watts(each) for each in tracks}
    evidence = dict.fromkeys(
        line.evidence for each in tracks for line in each.track.timeline.watts if line.evidence
    )
    found = [
        _panel(
            f"{name}-amplification",
            f"{title}: write amplification by round",
            tracks,
            {each.letter: amplification(each) for each in tracks},
            Scale(1.0, ""),
            caption="Media bytes ÷ host bytes, by the drive's own counts.",
        ),
        _latency(f"{name}-percentiles", title, tracks),
        _panel(
            f"{name}-power",
            f"{title}: power by round",
            tracks,
            watts,
            _scale_of(Unit.WATTS, list(watts.values())),
            caption=f"Mean drive power: {listed(list(evidence))}.",
        ),
        _panel(
            f"{name}-temperature",
            f"{title}: temperature by round",
            tracks,
            {each.letter: _celsius(each) for each in tracks},
            Scale(1.0, "°C"),
            caption="The drive's own sensor.",
            least_span=_LEAST_SPAN_C,
        ),
    ]
    return [figure for figure in found if figure is not None]


def _panel(
    name: str,
    title: str,
    tracks: Sequence[WriteTrack],
    values: Mapping[str, Array | None],
    scale: Scale,
    *,
    caption: str,
    least_span: float = 0.0,
) -> Figure | None:
    """Return one line per arm over time; ``None`` if no arm has a value.

    The axis begins at 0, or with a ``least_span`` below the lowest value: it is at least so long.
    """
    time = _time_scale(tracks)
    known = {
        letter: own / scale.factor
        for letter, own in values.items()
        if own is not None and np.isfinite(own).any()
    }
    if not known:
        return None
    most = max(float(np.nanmax(own)) for own in known.values())
    least = min(float(np.nanmin(own)) for own in known.values()) if least_span else 0.0
    span = max(most - least, least_span) * _HEADROOM or 1.0
    low = max((most + least - span) / 2, 0.0) if least_span else 0.0
    frame = Frame(
        _axis(max(_edges(each, time)[-1] for each in tracks), time.unit),
        Axis(low=low, high=low + span, unit=scale.unit),
        height=_SMALL,
    )
    drawn = [each for each in tracks if each.letter in known]
    for each in drawn:
        frame.steps(_edges(each, time), known[each.letter], each.role, each.letter)
    words = "; ".join(
        f"{letter}: {number(float(np.nanmean(own)), 3)} {scale.unit}"
        for letter, own in known.items()
    )
    return Figure(
        name=name,
        title=title,
        svg=frame.svg(f"{title}. {words}", "time"),
        caption=caption,
        table=_panel_table(drawn, {"": known}, scale, time, title),
        legend=_legend(drawn),
    )


def _latency(name: str, title: str, tracks: Sequence[WriteTrack]) -> Figure | None:
    """Return the percentiles of each round on a logarithmic axis."""
    time = _time_scale(tracks)
    values = [own for each in tracks for own in each.rounds.percentiles_s.values()]
    every = np.concatenate(values)
    every = every[np.isfinite(every) & (every > 0)]
    if not every.size:
        return None
    scale = scale_for(Unit.SECONDS, float(np.median(every)))
    low, high = float(every.min()) / scale.factor, float(every.max()) / scale.factor
    frame = Frame(
        _axis(max(_edges(each, time)[-1] for each in tracks), time.unit),
        Axis(low=low / 1.5, high=high * 1.5, unit=scale.unit, log=True),
        height=_SMALL,
    )
    by_name: dict[str, dict[str, Array]] = {}
    for each in tracks:
        for key in PERCENTILES:
            own = each.rounds.percentiles_s[key] / scale.factor
            own = np.where(own > 0, own, np.nan)
            name_of = _NAMES[key]
            by_name.setdefault(name_of, {})[each.letter] = own
            line = f"{each.letter} {name_of}"
            frame.steps(_edges(each, time), own, each.role, line, _DASHES[key])
    heading = f"{title}: latency of writes by round"
    return Figure(
        name=name,
        title=heading,
        svg=frame.svg(f"{heading}, {scale.unit}, {DIRECTIONS['lower']}", "time"),
        caption="Solid p50, dashed p99, dotted p99.99; logarithmic axis.",
        table=_panel_table(tracks, by_name, scale, time, heading),
        legend=_legend(tracks),
    )


def amplification(track: WriteTrack) -> Array | None:
    """Return the write amplification of each round; ``None`` if the drive's counts lack it.

    Counts are interpolated at the edges of rounds, which must have several readings each.
    """
    power = track.track.run.traces.power
    if power is None:
        return None
    sums: dict[Channel, Array] = {}
    for channel in (Channel.HOST_WRITTEN_BYTES, Channel.MEDIA_WRITTEN_BYTES):
        signals = power.of(channel)
        for signal in signals:
            known = np.isfinite(signal.value)
            time_ns, value = signal.time_ns[known], signal.value[known]
            typical_s = float(np.median(track.rounds.seconds))
            if time_ns.size < _READINGS or (
                float(np.median(np.diff(time_ns))) / NS_PER_S > typical_s / _READINGS
            ):
                return None
            at = np.append(track.rounds.start_ns[:1], track.rounds.end_ns)
            counts = np.interp(at, time_ns, value, left=np.nan, right=np.nan)
            sums[channel] = sums.get(channel, np.zeros(at.size - 1)) + np.diff(counts)
    host = sums.get(Channel.HOST_WRITTEN_BYTES)
    media = sums.get(Channel.MEDIA_WRITTEN_BYTES)
    if host is None or media is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where((host > 0) & (media >= 0), media / host, np.nan)
    return found


def _watts(track: WriteTrack) -> Array | None:
    """Return the mean power of each round over all drives."""
    lines = track.track.timeline.watts
    if not lines:
        return None
    record = track.track.run.record
    host = record.hosts[0].facts.name if record.hosts else ""
    start_s = CommonClock(record).seconds(host, int(track.rounds.start_ns[0]))
    means = [_means(line.time_s - start_s, line.value, track.rounds.edges_s) for line in lines]
    total: Array = np.sum(means, axis=0)
    return total


def _celsius(track: WriteTrack) -> Array | None:
    """Return the mean temperature of each round, of the warmest drive."""
    power = track.track.run.traces.power
    signals = power.of(Channel.TEMPERATURE_K) if power is not None else ()
    start_ns = int(track.rounds.start_ns[0])
    means = [
        _means((each.time_ns - start_ns) / NS_PER_S, each.value, track.rounds.edges_s)
        for each in signals
    ]
    if not means:
        return None
    warmest: Array = np.fmax.reduce(means) - _ZERO_C_K
    return warmest


def _means(time_s: Array, value: Array, edges_s: Array) -> Array:
    """Return the mean of the values between edges, shape (edges - 1,); NaN where there is none."""
    known = np.isfinite(value)
    place = np.searchsorted(edges_s, time_s[known], side="right") - 1
    inside = (place >= 0) & (place < edges_s.size - 1)
    counts = np.bincount(place[inside], minlength=edges_s.size - 1)
    sums = np.bincount(place[inside], value[known][inside], minlength=edges_s.size - 1)
    with np.errstate(invalid="ignore"):
        means: Array = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def _edges(track: WriteTrack, time: Scale, *, is_by_time: bool = True) -> Array:
    return track.rounds.edges_s / time.factor if is_by_time else track.edges_writes


def _axis(end: float, unit: str) -> Axis:
    """Return a horizontal axis with few ticks: the chart has half the width of a page."""
    return Axis(low=0, high=float(end), unit=unit, at=round_ticks(0, float(end), _TICKS))


def _time_scale(tracks: Sequence[WriteTrack]) -> Scale:
    return duration_scale(max(float(each.rounds.edges_s[-1]) for each in tracks))


def _scale_of(unit: Unit, values: Sequence[Array | None]) -> Scale:
    known = [own for own in values if own is not None and np.isfinite(own).any()]
    return scale_for(unit, *(float(np.nanmax(own)) for own in known))


def _legend(tracks: Sequence[WriteTrack]) -> list[tuple[str, str]]:
    if len(tracks) < 2:  # noqa: PLR2004 - one arm needs no legend
        return []
    return arms_legend([each.track.name for each in tracks], [each.letter for each in tracks])


def _rate_table(tracks: Sequence[WriteTrack], rate: Scale, time: Scale) -> Table:
    rows = []
    for each in tracks:
        few = merged(each.rounds, _TABLE_ROWS)
        written = few.edges_bytes / each.writes.range_bytes
        rows += [
            row(
                each.letter,
                number(few.edges_s[index + 1] / time.factor, 3),
                number(float(written[index + 1]), 3),
                scaled(float(few.written_bytes[index] / few.seconds[index]), rate),
                scaled(float(few.slowest[index]), rate),
                scaled(float(few.fastest[index]), rate),
            )
            for index in range(few.end_ns.size)
        ]
    titles = (
        "arm",
        f"#until, {time.unit}",
        "#drive writes",
        f"#rate, {rate.unit}",
        "#slowest second",
        "#fastest second",
    )
    return Table(columns=columns(*titles), rows=rows, caption="Rates of successive rounds")


def _panel_table(
    tracks: Sequence[WriteTrack],
    values: Mapping[str, Mapping[str, Array]],
    scale: Scale,
    time: Scale,
    caption: str,
) -> Table:
    """Return the values of evenly chosen rounds, a column for each key of ``values``."""
    rows = []
    for each in tracks:
        count = each.rounds.end_ns.size
        kept = np.unique(np.linspace(0, count - 1, min(count, _TABLE_ROWS)).astype(np.int64))
        for index in kept.tolist():
            found = [float(of_name[each.letter][index]) for of_name in values.values()]
            rows.append(
                row(
                    each.letter,
                    number(float(each.rounds.edges_s[index + 1]) / time.factor, 3),
                    *(number(value, 3) if np.isfinite(value) else MISSING for value in found),
                )
            )
    titles = [f"#{name or 'value'}{', ' if scale.unit else ''}{scale.unit}" for name in values]
    return Table(
        columns=columns("arm", f"#until, {time.unit}", *titles), rows=rows, caption=caption
    )
