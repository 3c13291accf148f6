"""The section of random writes: their charts, rates and steady state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wattload.core.record.energy import WrittenRecord
from wattload.core.record.results import Latency
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Cell, Figure, FigureRow, Paragraph, Table, columns, row
from wattload.reports.charts.random_writes import (
    WriteTrack,
    round_figures,
    write_figures,
    write_tracks,
)
from wattload.reports.charts.timeline import Track
from wattload.reports.runs.energy import Energy, phase_energies
from wattload.reports.runs.random_writes import (
    FILL_TIME,
    STEADY_RATE,
    Judged,
    RandomWrites,
    duration,
    duration_scale,
    measured_phase,
    random_writes,
)
from wattload.reports.stats.subject import lettered
from wattload.results.quantity import (
    MISSING,
    number,
    percent,
    quantity,
    scale_for,
    scaled,
    with_unit,
)

_PART = "A file was written: part of a drive has more spare area than the whole drive."
_RULES = (
    "Steady: over five rounds the rate ranges over at most 20\u00a0% of its mean, and a fitted "
    "line rises or falls by at most 10\u00a0%. Rounds are of a minute (SNIA PTS), or of a minute "
    "and 1/20 of the range, once the range was written at random. Steady figures need both."
)
_PASS = "pass_"
_PASSES_SHOWN = 4

Value = Callable[[RunRecord, RandomWrites], Cell]


def rate_figures(name: str, title: str, tracks: Sequence[Track]) -> list[Figure]:
    """Return the rate over time and over drive writes; nothing if no run kept its rounds."""
    return write_figures(name, title, write_tracks(tracks))


def write_blocks(name: str, title: str, tracks: Sequence[Track]) -> list[Block]:
    """Return what was measured by round, and a table of the rates of each arm's drawn run."""
    drawn: list[WriteTrack] = write_tracks(tracks)
    blocks: list[Block] = []
    if figures := round_figures(name, title, drawn):
        blocks.append(FigureRow(figures))
    known = [
        (track, writes)
        for track in tracks
        if (writes := random_writes(track.run.record)) is not None
    ]
    if known:
        blocks.append(_table(known))
    if any(writes.is_file for _, writes in known):
        blocks.append(Paragraph(_PART, quiet=True))
    return blocks


def _table(known: Sequence[tuple[Track, RandomWrites]]) -> Table:
    """Return a row per figure that an arm has, a column per arm."""
    made = [
        (title, [value(track.run.record, writes) for track, writes in known])
        for title, value in _values()
    ]
    alone = len(known) == 1
    names = ["#value"] if alone else [f"#{lettered(t.letter, t.name)}" for t, _ in known]
    judged = any(writes.drive is not None for _, writes in known)
    return Table(
        columns=columns("", *names),
        rows=[
            row(title, *cells)
            for title, cells in made
            if any(cell.text != MISSING or cell.remark for cell in cells)
        ],
        caption="Rates and steady state",
        note=_RULES if judged else "",
    )


def _values() -> Iterator[tuple[str, Value]]:
    """Yield each figure's title, and how to get it."""
    yield "time to write the range", lambda record, _: _fill(record)
    yield "rate, all writes", _metric("write_bytes_per_s")
    yield "rate by pass", lambda record, _: _passes(record)
    yield "steady rate", _metric(STEADY_RATE)
    yield "steady by minutes (SNIA PTS)", lambda _, writes: _verdict(writes.five_minutes)
    yield "steady by drive writes", lambda _, writes: _verdict(writes.drive)
    yield "steady window", _window
    yield "fresh \u00f7 steady", _metric("fresh_over_steady", as_ratio=True)
    yield "slowest second", _metric("slowest_second_bytes_per_s")
    yield "write amplification", lambda record, _: _amplification(record)
    yield "energy per GB from the host", lambda record, _: _energy(record, of_media=False)
    yield "energy per GB on the media", lambda record, _: _energy(record, of_media=True)
    yield "p99.99 latency", lambda record, _: _latency(record, "p9999_s")
    yield "p99.999 latency", lambda record, _: _latency(record, "p99999_s")


def _passes(record: RunRecord) -> Cell:
    """Return the rate of each pass in one unit; of many only the first and the last."""
    rates = [
        metric.value
        for metric in record.metrics
        if metric.name.startswith(_PASS)
        and metric.unit is Unit.BYTES_PER_SECOND
        and metric.value is not None
    ]
    if not rates:
        return Cell(MISSING)
    scale = scale_for(Unit.BYTES_PER_SECOND, *rates)
    texts = [scaled(rate, scale, 3) for rate in rates]
    if len(texts) > _PASSES_SHOWN:
        texts = [texts[0], "…", texts[-1]]
    return Cell(with_unit(", ".join(texts).replace(", …,", " …"), scale))


def _metric(name: str, *, as_ratio: bool = False) -> Value:
    def value(record: RunRecord, writes: RandomWrites) -> Cell:
        found = record.metric(name)
        if found is None or found.value is None:
            return Cell(MISSING)
        return Cell(number(found.value, 3) if as_ratio else quantity(found.value, found.unit, 3))

    return value


def _fill(record: RunRecord) -> Cell:
    found = record.metric(FILL_TIME)
    if found is None or found.value is None:
        return Cell(MISSING)
    passes = record.workload.details.get("passes_begun")
    times = f"{passes} times" if isinstance(passes, int) and passes > 1 else ""
    return Cell(duration(found.value), remark=times)


def _verdict(judged: Judged | None) -> Cell:
    if judged is None:
        return Cell(MISSING)
    if judged.reason:
        return Cell("not steady", "warn", remark=judged.reason)
    ends = f"range {percent(judged.range_fraction)}, drift {percent(judged.excursion_fraction)}"
    return Cell("steady", "good", remark=ends)


def _window(record: RunRecord, writes: RandomWrites) -> Cell:
    judged = writes.headline
    if judged is None or judged.reason:
        return Cell(MISSING)
    phase = measured_phase(record)
    written = phase.written_bytes / writes.range_bytes if phase is not None else None
    remark = f"{number(written, 3)} drive writes" if written else ""
    scale = duration_scale(judged.end_s)
    ends = [scaled(each, scale, 3) for each in (judged.start_s, judged.end_s)]
    return Cell(with_unit(" to ".join(ends), scale), remark=remark)


def _written(record: RunRecord) -> list[WrittenRecord]:
    phase = measured_phase(record)
    return [each for each in record.power.written if phase and each.phase == phase.name]


def _amplification(record: RunRecord) -> Cell:
    """Return media bytes ÷ host bytes of all drives in the window, or why they are unknown."""
    own = _written(record)
    host = [each.host_written_bytes for each in own]
    media = [each.media_written_bytes for each in own]
    if not own or None in host or None in media:
        reasons = [reason for each in own for reason in each.missing.values()]
        return Cell(MISSING, remark=next(iter(reasons), ""))
    host_bytes = sum(filter(None, host))
    return Cell(number(sum(filter(None, media)) / host_bytes, 3) if host_bytes else MISSING)


def _energy(record: RunRecord, *, of_media: bool) -> Cell:
    """Return the energy of the window per GB: of the host's bytes, or of those on the media."""
    phase = measured_phase(record)
    energies: dict[str, Energy] = {each.phase: each for each in phase_energies(record)}
    energy = energies.get(phase.name) if phase is not None else None
    if phase is None or energy is None or energy.energy_j is None:
        return Cell(MISSING)
    written: int | None = phase.written_bytes
    if of_media:
        media = [each.media_written_bytes for each in _written(record)]
        written = sum(filter(None, media)) if media and None not in media else None
    if not written:
        return Cell(MISSING)
    return Cell(quantity(energy.energy_j / written, Unit.JOULES_PER_BYTE, 3))


def _latency(record: RunRecord, name: str) -> Cell:
    phase = measured_phase(record)
    rows: list[Latency] = [
        each for each in record.merged_latencies if phase is not None and each.phase == phase.name
    ]
    values = [each.percentiles_s[name] for each in rows]
    return Cell(quantity(values[0], Unit.SECONDS, 3)) if values else Cell(MISSING)
