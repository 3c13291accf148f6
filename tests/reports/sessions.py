"""Sessions of synthetic runs, in memory: their order, and the speed of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tests.records import Scenario, make_run
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import Comparison, Interleave, RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import Traces
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.effects import Effect
from wattload.reports.stats.subject import make_subject

Value = TypeVar("Value")
EMPTY = Traces(throughput=None, power=None, notes=(), digests={})
BYTES = 3e9
"""What every run moves, whatever its rate."""
CHECKPOINT: dict[str, Any] = {"workload": "checkpoint", "seconds": 10.0, "virtual": False}


def checkpoint_record(**changes: Any) -> RunRecord:
    """Return the record of a measured checkpoint run, which has two phases."""
    values: dict[str, Any] = {"run_id": "run-1", "power": "measured"}
    made, _ = make_run(Scenario(**(CHECKPOINT | values | changes)))
    return made


def run(
    name: str,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    command: tuple[str, ...] = (),
    comparison: Comparison | None = None,
    **changes: Any,
) -> Run:
    """Return a run whose configuration has these groups beside its own."""
    values: dict[str, Any] = {"run_id": name, "seconds": 1.0} | changes
    record, _ = make_run(Scenario(**values))
    config = dict(record.config) | {
        group: {**record.config.get(group, {}), **own} for group, own in (settings or {}).items()
    }
    update: dict[str, Any] = {"config": config, "command": (*record.command, *command)}
    if comparison is not None:
        update["comparison"] = comparison
    return Run(record=record.model_copy(update=update), traces=EMPTY)


def turn(
    label: str,
    block: int,
    rate: float,
    *,
    session: str = "s1",
    interleave: Interleave = "abba",
    half: int = 0,
    warm_up: bool = False,
    **changes: Any,
) -> Run:
    """Return one run of a session; ``half`` is 1 or 2 where a setting took turns with itself."""
    place = Comparison(
        session_id=session,
        arm=f"{label}-{half}" if half else label,
        block=block,
        order=2 * block,
        interleave=interleave,
        warm_up=warm_up,
    )
    name = f"{session}-{place.arm}-{block}"
    values: dict[str, Any] = {
        "label": label,
        "order": max(block, 0),
        "rate_bytes_per_s": rate,
        "seconds": BYTES / rate,
        "seed": block + 2,
    }
    settings = changes.pop("settings", None)
    return run(changes.pop("name", name), settings, comparison=place, **(values | changes))


def session(rates: Mapping[str, Sequence[float]], **changes: Any) -> list[Run]:
    """Return the runs of a session, one per arm and block, at the given rates."""
    return [
        turn(label, block, rate, **changes)
        for label, of_arm in rates.items()
        for block, rate in enumerate(of_arm)
    ]


def simulated(a: Sequence[float], b: Sequence[float]) -> list[Run]:
    """Return a session of two simulated drives, at the given rates."""
    changes = {"model": "wattload virtual drive", "power": "measured", "virtual": False}
    return [
        *session({"A": a}, serial="VIRTUALA", **changes),
        *session({"B": b}, serial="VIRTUALB", **changes),
    ]


def against_itself(label: str, first: Sequence[float], second: Sequence[float]) -> list[Run]:
    """Return a session in which one setting took turns with itself."""
    return [
        turn(label, block, rate, session="aa", interleave="aa", half=half)
        for half, rates in ((1, first), (2, second))
        for block, rate in enumerate(rates)
    ]


def known(value: Value | None) -> Value:
    """Return a value that is not missing."""
    assert value is not None
    return value


def throughputs(runs: Sequence[Run], **keys: Any) -> list[Row]:
    """Return the rows of the rate of all bytes, by point; ``keys`` as in ``make_subject``."""
    subject = make_subject(runs, **keys)
    (group,) = subject.groups
    return [row for row in compare(subject, group) if row.quantity.key == "read_bytes_per_s"]


def throughput(runs: Sequence[Run], **keys: Any) -> Row:
    """Return the row of the rate of all bytes, at the first point."""
    return throughputs(runs, **keys)[0]


def effect_of(row: Row) -> Effect:
    """Return the effect of a row that has one."""
    return known(row.effect)


def timed_span(name: str, start_ns: int, seconds: float, **changes: Any) -> PhaseSpan:
    """Return a timed phase of one rank, in which nothing moved if ``changes`` do not say so."""
    values: dict[str, Any] = {
        "name": name,
        "parent": None,
        "host": "box",
        "rank": 0,
        "timed": True,
        "start_ns": start_ns,
        "end_ns": start_ns + round(seconds * NS_PER_S),
        "read_bytes": 0,
        "written_bytes": 0,
        "operations": 0,
        "cpu_s": 1.0,
    }
    return PhaseSpan(**(values | changes))


def metered(
    base: EnergyRecord, phase: str, seconds: float, watts: float, **changes: Any
) -> EnergyRecord:
    """Return the energy of a phase at constant power, known to one percent."""
    energy_j = watts * seconds
    values: dict[str, Any] = {
        "phase": phase,
        "seconds": float(seconds),
        "energy_j": energy_j,
        "mean_w": watts,
        "uncertainty_j": 0.01 * energy_j,
        "uncertainty_parts_j": {"gain": 0.01 * energy_j},
        "states": (),
        "statistics": None,
    }
    return base.model_copy(update=values | changes)


def placed(repeat: int, arm: str, session: str = "s1", interleave: str = "abba") -> dict[str, Any]:
    """Return when a run began, and its place in a session of two arms."""
    minute, second = divmod(repeat, 60)
    clock = f"2026-11-20T{20 + minute // 60}:{minute % 60:02d}:{second:02d}"
    place = Comparison(
        session_id=session,
        arm=arm,
        block=repeat // 2,
        order=repeat,
        interleave=interleave,
    )
    return {
        "started_utc": f"{clock}.000+00:00",
        "finished_utc": f"{clock}.900+00:00",
        "comparison": place,
    }
