"""How random writes are shown: rates by round, and a table of rates and steady state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wattload.core.power import Scope
from wattload.core.steady import SteadyVerdict
from wattload.core.units import Unit
from wattload.results.amplification import amplification, media_bytes
from wattload.results.facts import divided
from wattload.results.quantity import (
    MISSING,
    UNIT_SPACE,
    duration,
    duration_scale,
    number,
    percent,
    quantity,
    scale_for,
    scaled,
    with_unit,
)
from wattload.results.random_write.charts import drawn_runs, rate_charts, round_charts
from wattload.results.random_write.facts import (
    PHASE,
    Draw,
    Run,
    SteadyVerdicts,
    Until,
    WriteFacts,
    measured_phase,
    written_bytes,
)
from wattload.results.random_write.figures import (
    FILL_TIME,
    STEADY_RATE,
    fresh_over_steady,
    is_fill,
    pass_rates,
    steady_rate,
    write_rate,
)
from wattload.results.shapes import Grid, Row, Shape, Text, Word
from wattload.results.view import Condition, Shown, ShownRun, View

_PART = "A file was written: part of a drive has more spare area than the whole drive."
_RULES = (
    "Steady: over five rounds the rate ranges over at most 20\u00a0% of its mean, and a fitted "
    "line rises or falls by at most 10\u00a0%. Rounds are of a minute (SNIA PTS), or of a minute "
    "and 1/20 of the range, once the range was written at random. Steady figures need both."
)
_PASSES_SHOWN = 4
_NOTHING = Word(MISSING)

Written = ShownRun[WriteFacts]


def range_text(run: Run) -> str:
    """Return what was overwritten: ``the whole drive``, ``a file of 268 MB``."""
    facts = run.facts
    if facts.drive_bytes is None:
        return f"a file of {quantity(facts.range_bytes, Unit.BYTES, 3)}"
    if facts.covers_drive:
        return "the whole drive"
    return f"the first {percent(facts.range_bytes / facts.drive_bytes, 2)} of the drive"


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    """Return settings in a few words: ``16.4 kB at QD 32, any block, a file of 268 MB``."""
    facts, settings = shown[0].facts, shown[0].facts.settings
    drawn = "each block once per pass" if facts.draw is Draw.each_once else "any block"
    size = quantity(settings.block_bytes, Unit.BYTES, 3)
    return f"{size} at QD{UNIT_SPACE}{settings.queue_depth}, {drawn}, {range_text(shown[0])}"


def _settings(run: Run) -> Mapping[str, str]:
    return {
        "workload.draw": run.facts.draw.value,
        "workload.condition": run.facts.condition.value,
    }


def _conditions(run: Run) -> Iterator[Condition]:
    yield Condition(name="workload target", value="file" if run.facts.is_file else "raw drive")
    yield Condition(name="workload range", value=range_text(run))


def _closing(shown: Shown[WriteFacts]) -> Iterator[Shape]:
    if drawn := drawn_runs(shown):
        yield Row(list(round_charts(drawn)))
    runs = [traced.run for traced in shown.traced]
    if not runs:
        return
    rows = [(title, [cell(run) for run in runs]) for title, cell in _CELLS]
    titles = [f"#{each.title}" for each in shown.traced] if len(runs) > 1 else ["#value"]
    yield Grid(
        columns=["", *titles],
        rows=[[title, *cells] for title, cells in rows if any(cell != _NOTHING for cell in cells)],
        caption="Rates and steady state",
        note=_RULES if any(run.facts.steady is not None for run in runs) else "",
    )
    if any(run.facts.is_file for run in runs):
        yield Text(_PART, quiet=True)


def _fill(run: Written) -> Word:
    if not is_fill(run):
        return _NOTHING
    passes = len(run.facts.passes)
    return Word(duration(run.seconds(PHASE)), remark=f"{passes} times" if passes > 1 else "")


def _rate(value: Callable[[Run], float | None]) -> Callable[[Written], Word]:
    return lambda run: Word(quantity(value(run), Unit.BYTES_PER_SECOND, 3))


def _passes(run: Written) -> Word:
    """Return the rate of each pass in one unit; of many only the first and the last."""
    if run.facts.settings.until is Until.steady:
        return _NOTHING
    rates = pass_rates(run)
    scale = scale_for(Unit.BYTES_PER_SECOND, *rates)
    texts = [scaled(rate, scale, 3) for rate in rates]
    if len(texts) > _PASSES_SHOWN:
        return Word(with_unit(f"{texts[0]} … {texts[-1]}", scale))
    return Word(with_unit(", ".join(texts), scale))


def _verdict(of: Callable[[SteadyVerdicts], SteadyVerdict]) -> Callable[[Written], Word]:
    def cell(run: Written) -> Word:
        if run.facts.steady is None:
            return _NOTHING
        verdict = of(run.facts.steady)
        if verdict.window is None:
            return Word("not steady", "warn", verdict.reason)
        spread = verdict.window.spread
        ends = f"range {percent(spread.range_fraction)}, drift {percent(spread.excursion_fraction)}"
        return Word("steady", "good", ends)

    return cell


def _window(run: Written) -> Word:
    steady = run.facts.steady
    window = None if steady is None else steady.headline.window
    if window is None:
        return _NOTHING
    writes = written_bytes(run, measured_phase(run)) / run.facts.range_bytes
    scale = duration_scale(window.end_s)
    ends = [scaled(each, scale, 3) for each in (window.start_s, window.end_s)]
    return Word(with_unit(" to ".join(ends), scale), remark=f"{number(writes, 3)} drive writes")


def _energy(written: Callable[[Written], int | None]) -> Callable[[Written], Word]:
    """Return the cell of the window's energy per byte written."""

    def cell(run: Written) -> Word:
        energy_j = run.joules(Scope.DRIVE, measured_phase(run))
        return Word(quantity(divided(energy_j, written(run)), Unit.JOULES_PER_BYTE, 3))

    return cell


def _latency(name: str) -> Callable[[Written], Word]:
    def cell(run: Written) -> Word:
        found = run.latency(measured_phase(run), "write")
        return Word(quantity(found.percentiles_s[name] if found else None, Unit.SECONDS, 3))

    return cell


def _slowest(run: Run) -> float | None:
    return run.facts.slowest_second_bytes_per_s


_CELLS: Sequence[tuple[str, Callable[[Written], Word]]] = (
    ("time to write the range", _fill),
    ("rate, all writes", _rate(write_rate)),
    ("rate by pass", _passes),
    ("steady rate", _rate(steady_rate)),
    ("steady by minutes (SNIA PTS)", _verdict(lambda steady: steady.five_minutes)),
    ("steady by drive writes", _verdict(lambda steady: steady.drive)),
    ("steady window", _window),
    ("fresh \u00f7 steady", lambda run: Word(number(fresh_over_steady(run), 3))),
    ("slowest second", _rate(_slowest)),
    ("write amplification", lambda run: amplification(run, measured_phase(run))),
    (
        "energy in the window per GB from the host",
        _energy(lambda run: written_bytes(run, measured_phase(run))),
    ),
    (
        "energy in the window per GB on the media",
        _energy(lambda run: media_bytes(run, measured_phase(run))),
    ),
    ("p99.99 latency", _latency("p9999_s")),
    ("p99.999 latency", _latency("p99999_s")),
)

VIEW = View[WriteFacts](
    labels={
        FILL_TIME: "fill time",
        STEADY_RATE: "steady rate",
        "steady_write_iops": "steady IOPS",
        "fresh_over_steady": "fresh \u00f7 steady",
    },
    job=_job,
    times=(FILL_TIME, "written in"),
    has_size=False,
    settings=_settings,
    conditions=_conditions,
    not_work=frozenset({"range_bytes"}),
    over_time=rate_charts,
    closing=_closing,
    judges_steady=True,
)
