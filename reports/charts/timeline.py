"""Charts over time: rates, power and cumulative energy, of one run or of a run of each arm.

Lines are means over bins, of a second or more unless the run is short; the range of the values
within a bin is a band.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
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
from wattload.reports.charts.plot import Axis, Frame, share_of, text
from wattload.reports.charts.themes import arm_role, light
from wattload.reports.runs.energy import Energy, phase_energies, whole_energy
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, leading
from wattload.reports.runs.timeline import Band, Line, Timeline, host_rates, make_timeline
from wattload.reports.stats.subject import LETTERS
from wattload.results.labels import label
from wattload.results.quantity import Scale, counted, listed, number, quantity, scale_for, scaled
from wattload.results.reading import run_of, view_of

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
_STRIPS_MAX = 40
_OUTLINED_MAX = 6
"""The ends of more phases of a run would hide its line."""

_LANE, _LANE_GAP = 20, 8
"""Pixels of a run's strip with its words, and between the last one and the axes."""
_WORDED_MAX, _BARE_LANE, _BARE_STRIP = 3, 13, 10
"""The most runs with words under their strips; pixels of a lane without words, and its strip."""
_STRIP, _LETTERED_STRIP = 3, 12
"""Pixels of a strip, without and with words in it: initials of phases, or the name of a rest."""
_INITIAL_WIDTH, _NARROW_INITIAL_WIDTH = 0.012, 0.05
"""The share of the width that an initial needs in a strip, in a wide chart and in a narrow one."""
_LETTER_WIDTH = 0.0078
"""The share of the width that a letter of a phase's words needs, where a chart is wide."""
_RATE_HEIGHT = 150
_NAMED_PHASES = 3
"""With more phases only their sum is printed over a chart."""
_LONGEST_NAMES = 16
"""Characters of the names of phases that a narrow chart has room for."""
_TABLE_ROWS = 24
_HEADROOM = 1.12
_CUT = 1.8
"""Extremes beyond this many times the highest mean are cut off, so that means can be seen."""
_QUIET_WORDS = {"rest": "rest", "idle": "idle", "idle_after": "idle"}
"""The phases without work in which drives are measured, as a chart of power names them."""
_IDLE_SHARE = 0.2
"""The most of an idle time that is drawn, as a share of the timed part."""
_QUIET_LABEL = 0.05
"""The least share of the width that has room for the name of a quiet time."""
_DELAY_NAMED_S = 0.2
"""From this mean delay on, a reader sees that power begins and ends later than its phase."""
_DECLARED = "Watts declared by a data sheet or the user, not measured"
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One run of a chart over time: its arm's letter and name, and its series.

    ``zero_s`` is the start of its first timed phase, where the axis begins to count.
    """

    letter: str
    name: str
    run: Run
    timeline: Timeline
    zero_s: float
    phases: tuple[Phase, ...]

    @property
    def end_s(self) -> float:
        """The end of its last timed phase, from its start."""
        ends = [phase.intervals_s[-1][1] for phase in self.phases]
        return max(ends, default=self.timeline.end_s) - self.zero_s

    @property
    def quiet(self) -> list[tuple[float, float, str]]:
        """Its rest and idle times on the axis, in order, with their names; of long ones a part.

        Of an idle time before the timed part it is the end, of one after it the beginning.
        """
        most_s = max(_IDLE_SHARE * self.end_s, min(2.0, self.end_s))
        found = []
        for strip in self.timeline.strips:
            name = _QUIET_WORDS.get(strip.name, "")
            start_s, end_s = strip.start_s - self.zero_s, strip.end_s - self.zero_s
            if name == "idle":
                is_before = end_s <= 0
                start_s = max(start_s, end_s - most_s) if is_before else start_s
                end_s = end_s if is_before else min(end_s, start_s + most_s)
            if name:
                found.append((start_s, end_s, name))
        return sorted(found)

    @property
    def active_s(self) -> float:
        """How long its timed phases took in all."""
        return sum(phase.active_s for phase in self.phases)

    @property
    def work(self) -> str:
        """How many units of work its timed phases are, ``2 checkpoints``; empty for one."""
        view, run = view_of(self.run.record), run_of(self.run.record)
        if view.work is None or not view.has_size or run is None:
            return ""
        name, count = view.work(run, [phase.name for phase in self.phases]) or ("", 0.0)
        return counted(int(count), name) if count > 1 else ""

    @property
    def summary(self) -> str:
        """How long its timed phases took in all, and their energy, with their names."""
        energies = phase_energies(self.run.record)
        whole = whole_energy(self.run.record) or (energies[0] if len(self.phases) == 1 else None)
        names = self.work or _names(self.phases)
        return _spent(names if len(names) <= _LONGEST_NAMES else "in all", self.active_s, whole)

    @property
    def parts(self) -> tuple[str, ...]:
        energies = {energy.phase: energy for energy in phase_energies(self.run.record)}
        return tuple(
            _spent(label(phase.name), phase.active_s, energies.get(phase.name))
            for phase in self.phases
        )


def _names(phases: Sequence[Phase]) -> str:
    return listed([label(phase.name) for phase in phases])


def _spent(name: str, seconds: float, energy: Energy | None) -> str:
    words = f"{name} {quantity(seconds, Unit.SECONDS, 3)}"
    if energy is not None and energy.energy_j is not None:
        words += f", {quantity(energy.energy_j, Unit.JOULES, 3)} in the window"
    return words


def make_track(letter: str, name: str, run: Run) -> Track:
    phases = leading(run.record)
    timeline = make_timeline(run)
    zero_s = min((phase.start_s for phase in phases), default=timeline.start_s)
    return Track(letter=letter, name=name, run=run, timeline=timeline, zero_s=zero_s, phases=phases)


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


def has_power(track: Track) -> bool:
    """Return whether a run's power is known over time, as a line or as bounds."""
    return bool(track.timeline.watts or track.timeline.bands)


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
    frame = _frame(
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
    low_s, high_s = _span(tracks, quiet)
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
    frame = _frame(tracks, scale.shown(largest), scale.unit, quiet)
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
    return svg, _table(every, scale, frame.x), f"{bins}{_strips_caption(tracks, quiet)}"


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


def _frame(
    tracks: Sequence[Track],
    largest: float,
    unit: str,
    quiet: Sequence[tuple[float, float, str]] = (),
) -> Frame:
    """Return the axes of tracks, with their timed phases as lanes and shades.

    ``quiet`` are the rests and idle times that the axis has to show. Those of a single run are
    shaded and named.
    More than ``_WORDED_MAX`` have letters beside their strips, which no words are under.
    """
    low_s, high_s = _span(tracks, quiet)
    x = Axis(low=low_s, high=high_s, unit="s")
    y = Axis(low=0, high=(largest or 1.0) * _HEADROOM, unit=unit)
    initials = _initials(tracks)
    strip = _LETTERED_STRIP if initials or (quiet and len(tracks) > 1) else _STRIP
    is_worded = len(tracks) <= _WORDED_MAX
    lane = _LANE - _STRIP + strip if is_worded else _BARE_LANE
    frame = Frame(x, y, height=_RATE_HEIGHT, head=lane * len(tracks) + _LANE_GAP)
    if len(tracks) == 1:
        _shade_quiet(frame, quiet)
    elif quiet:
        for index, track in enumerate(tracks):
            height = strip if is_worded else _BARE_STRIP
            _draw_rests(frame, track, index * lane, height)
    if not is_worded:
        for index, track in enumerate(tracks):
            _draw_strip(frame, track, index * lane, _BARE_STRIP, initials)
            look = ' class="fixed" font-weight="700"'
            y_px = index * lane + _BARE_STRIP + 2
            role = arm_role(track.letter)
            frame.over(text("-6", y_px, track.letter, role=role, anchor="end", more=look))
        return frame
    phases = [list(_placed_parts(frame, track)) for track in tracks]
    has_room = all(
        right - left > _LETTER_WIDTH * len(words) for own in phases for words, left, right in own
    ) and all(one[2] <= other[1] for own in phases for one, other in itertools.pairwise(own))
    for index, (track, own) in enumerate(zip(tracks, phases, strict=True)):
        letter, top = track.letter if len(tracks) > 1 else "", index * lane
        _draw_strip(frame, track, top, strip, initials)
        _mark_phases(frame, track, is_alone=not letter)
        _draw_labels(frame, track, letter, top + 15 + strip, own if has_room else [])
    return frame


def _span(
    tracks: Sequence[Track], quiet: Sequence[tuple[float, float, str]]
) -> tuple[float, float]:
    """Return both ends of the axis in seconds: the timed parts and ``quiet``, with a margin."""
    end_s = max(track.end_s for track in tracks)
    margin_s = max(end_s * 0.05, min(1.0, end_s * 0.3))
    last_s = max(track.timeline.end_s - track.zero_s for track in tracks)
    high_s = max(min(last_s, end_s + margin_s), end_s, 1e-3)
    low_s = min([0.0, *(start_s for start_s, _, _ in quiet)])
    return low_s, max([high_s, *(end for _, end, _ in quiet)])


def _shade_quiet(frame: Frame, quiet: Sequence[tuple[float, float, str]]) -> None:
    """Shade rests and idle times in the area, and name those that have room."""
    for start_s, end_s, name in quiet:
        frame.shade(start_s, end_s, "device", 0.16 if name == "rest" else 0.08)
        left, right = frame.x.share(start_s), frame.x.share(end_s)
        if right - left >= _QUIET_LABEL:
            at = share_of((left + right) / 2)
            frame.over(
                text(at, frame.top + frame.height - 6, name, anchor="middle", more=' class="fixed"')
            )


def _draw_rests(frame: Frame, track: Track, top: float, height: float) -> None:
    """Draw the rests of one of several runs in its lane, as grey strips with their name in them."""
    for start_s, end_s, name in track.quiet:
        left, right = frame.x.share(start_s), frame.x.share(end_s)
        if name != "rest":
            continue
        frame.over(
            f'<rect class="fixed" x="{share_of(left)}" y="{top + 3:g}" '
            f'width="{share_of(right - left)}" height="{height:g}" fill="{light("untimed")}"/>'
        )
        if right - left >= _QUIET_LABEL:
            at, look = share_of((left + right) / 2), ' class="fixed wide" font-size="10"'
            frame.over(text(at, top + height, name, anchor="middle", more=look))


def _initials(tracks: Sequence[Track]) -> dict[str, str]:
    """Return the initial of each timed phase; none where two are alike or phases are too many."""
    names = dict.fromkeys(phase.name for track in tracks for phase in track.phases)
    found = {name: label(name)[:1].upper() for name in names}
    is_useful = 1 < len(found) <= _NAMED_PHASES and len(set(found.values())) == len(found)
    return found if is_useful else {}


def _strips_caption(tracks: Sequence[Track], quiet: Sequence[tuple[float, float, str]]) -> str:
    """Return what the initials in strips mean, and their grey parts."""
    keys = [f"{initial} is {label(name)}" for name, initial in _initials(tracks).items()]
    if len(tracks) > 1 and any(name == "rest" for _, _, name in quiet):
        keys.append("grey is rest")
    return f" In strips, {listed(keys)}." if keys else ""


def _spans(track: Track) -> list[tuple[float, float, str]]:
    """Return both ends of each timed phase on the axis, and its name; of many parts only once."""
    spans = [(*span, phase.name) for phase in track.phases for span in phase.intervals_s]
    if len(spans) > _STRIPS_MAX:
        spans = [(each.start_s, each.intervals_s[-1][1], each.name) for each in track.phases]
    return [(start_s - track.zero_s, end_s - track.zero_s, name) for start_s, end_s, name in spans]


def _draw_strip(
    frame: Frame, track: Track, top: float, height: float, initials: Mapping[str, str]
) -> None:
    """Draw a run's timed phases as a strip over the area.

    Args:
        frame: the axes.
        track: the run.
        top: the upper end of the strip, in pixels.
        height: that of the strip, in pixels.
        initials: of each phase, to print in its strips; empty for none.
    """
    role = arm_role(track.letter)
    for start_s, end_s, name in _spans(track):
        left = frame.x.share(start_s)
        width = max(frame.x.share(end_s) - left, 0.001)
        frame.over(
            f'<rect class="fixed" x="{share_of(left)}" y="{top + 3:g}" width="{share_of(width)}" '
            f'height="{height:g}" fill="{light(role)}"/>'
        )
        if name in initials and width >= _INITIAL_WIDTH:
            look = ' class="fixed"' if width >= _NARROW_INITIAL_WIDTH else ' class="fixed wide"'
            look += ' dx="4" font-size="10" font-weight="700"'
            y = top + height + 1
            frame.over(text(share_of(left), y, initials[name], role="surface", more=look))


def _mark_phases(frame: Frame, track: Track, *, is_alone: bool) -> None:
    """Shade a single run's timed phases in the area.

    Shades of several runs would mix: the ends of their phases are dotted.
    """
    role, spans = arm_role(track.letter), _spans(track)
    for start_s, end_s, _ in spans:
        if is_alone:
            frame.shade(start_s, end_s, role, 0.06)
        elif len(spans) <= _OUTLINED_MAX:
            for at_s in (start_s, end_s):
                frame.line([at_s] * 2, [frame.y.low, frame.y.high], role, dash="2 3", width=0.8)


def _draw_labels(
    frame: Frame, track: Track, letter: str, y: float, labels: Sequence[tuple[str, float, float]]
) -> None:
    """Print under a run's strip how long its phases took, and their energy.

    Args:
        frame: the axes.
        track: the run.
        letter: its arm's, printed before the words; empty where there is one arm.
        y: the base of the words, in pixels.
        labels: the words of each phase and both ends of it; empty where they have no room there.
    """
    first, look = share_of(frame.x.share(0.0)), ' class="fixed" font-weight="700"'
    if letter:
        frame.over(text(first, y, letter, role="strong", more=look))
    shift = 14 if letter else 0
    is_split = 1 < len(track.phases) <= _NAMED_PHASES
    look = f' class="fixed{" narrow" if labels or is_split else ""}" dx="{shift}"'
    frame.over(text(first, y, track.summary, role="strong", more=look))
    if is_split and not labels:
        look = f' class="fixed wide" dx="{shift}"'
        words = f"{track.work}: " if track.work else ""
        words += "; ".join(track.parts)
        frame.over(text(first, y, words, role="strong", more=look))
    for words, left, _ in labels:
        look = f' class="fixed wide" dx="{shift if left == labels[0][1] else 0}"'
        frame.over(text(share_of(left), y, words, role="strong", more=look))


def _placed_parts(frame: Frame, track: Track) -> Iterator[tuple[str, float, float]]:
    """Yield the words of each timed phase, and both of its ends on the axis."""
    for words, phase in zip(track.parts, track.phases, strict=True):
        ends = (phase.start_s - track.zero_s, phase.intervals_s[-1][1] - track.zero_s)
        yield words, frame.x.share(ends[0]), frame.x.share(ends[1])


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
