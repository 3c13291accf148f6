"""The plan of a checkpoint of any size: bytes, files, time, energy and drives by arithmetic.

Nothing is measured: rate and power are given, or come from the write phase of a recorded run. The
time is bytes divided by rate. It ignores that the rate changes as a drive fills, and any network.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wattload.core.errors import ConfigError, RecordError
from wattload.core.record.file import RECORD_FILE
from wattload.core.units import (
    GIB,
    Unit,
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
)
from wattload.reports.runs.energy import Energy, phase_energies
from wattload.results.checkpoint.facts import WRITE_PHASE
from wattload.results.quantity import bounded_quantity, counted
from wattload.results.reading import read_judged
from wattload.workloads.checkpoint.models import (
    MODELS,
    NAMES,
    SERVER_NAME,
    SUBSETS,
    file_count,
    model_named,
    rank_count,
    shard_of,
)

KEYS = ("model", "ranks", "rate", "record", "power_w", "interval_s", "overhead")

OVERHEAD = 0.05

MIN_VALUE, MAX_VALUE = 1e-6, 1e12
"""The allowed range of numbers: wider than any drive or job, and no result overflows."""

RATE_METRIC = "write_bytes_per_s"

_PARTIAL = ("shrunken", "sliced")
"""How remarks begin on a checkpoint run that wrote less than its ranks' full shards."""
_DIGITS = 9
"""Decimals kept before a number of drives is rounded up: 4.0000000000001 drives are 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a checkpoint; ``file_count`` is that of DLIO's layout, ``None`` without one.

    ``file_count_missing`` is the reason for ``None``. ``ranks`` are the first of ``model_ranks``.
    """

    model: str
    parameters: int
    ranks: int
    model_ranks: int
    rank_min_bytes: int
    rank_max_bytes: int
    total_bytes: int
    file_count: int | None
    file_count_missing: str
    published: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drives:
    """The drives needed for an interval, and the training time that is still lost.

    ``stall_s`` is the time of a synchronous checkpoint on ``sync_count`` drives, and ``lost_share``
    its share of the interval. ``drain_s`` is the time of a drain on ``async_count`` drives.
    """

    interval_s: float
    overhead: float
    sync_count: int
    stall_s: float
    lost_share: float
    async_count: int
    drain_s: float


def print_plan(words: Sequence[str], *, as_json: bool) -> None:
    """Print the plan for settings such as ``model=405b rate=6.3``.

    Raises:
        ConfigError: a setting is unknown, missing or out of range.
        RecordError: the record is missing, unfinished, or has no write rate.
    """
    given = settings_in(words)
    if "model" not in given:
        raise ConfigError(
            f"model has no value; add model= and one of {', '.join(NAMES)}, or target.path= to "
            "plan a run on this host"
        )
    ranks = number_in(given, "ranks")
    if ranks is not None and not ranks.is_integer():
        raise ConfigError(f"ranks must be a whole number, got {given['ranks']}")
    found = shape(given["model"], None if ranks is None else int(ranks))
    rates = _rates(given)
    drives = _drives(given, found.total_bytes, rates)
    seconds = energy_j = None
    if rates.rate_bytes_per_s is not None:
        seconds = found.total_bytes / rates.rate_bytes_per_s
        energy_j = rates.power_w.times(seconds) if rates.power_w else None
    if as_json:
        document = {
            **asdict(found),
            **asdict(rates),
            "seconds": seconds,
            "energy_j": asdict(energy_j) if energy_j else None,
            "drives": asdict(drives) if drives else None,
        }
        print(json.dumps(document, indent=1))
    else:
        print("\n".join(_plan_lines(found, rates, seconds, energy_j, drives)))


def line(name: str, text: str) -> str:
    return f"{name:<8}{text}"


def settings_in(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise ConfigError(f"settings are KEY=VALUE, e.g. model=405b; got {word!r}")
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown setting {key}{meant}; a plan has {', '.join(KEYS)}")
        if key in found:
            raise ConfigError(f"{key} is given twice, as {found[key]} and {value}")
        found[key] = value
    return found


def number_in(given: dict[str, str], key: str) -> float | None:
    """Return a setting from ``MIN_VALUE`` to ``MAX_VALUE``, ``None`` if it is not given."""
    if key not in given:
        return None
    try:
        value = float(given[key])
    except ValueError as error:
        raise ConfigError(f"{key} must be a number, got {given[key]!r}") from error
    if not MIN_VALUE <= value <= MAX_VALUE:
        raise ConfigError(f"{key} must be from {MIN_VALUE:g} to {MAX_VALUE:g}, got {given[key]}")
    return value


def _drives(given: dict[str, str], total_bytes: int, rates: Rates) -> Drives | None:
    interval_s, overhead = number_in(given, "interval_s"), number_in(given, "overhead")
    if overhead is not None and overhead >= 1:
        raise ConfigError(
            f"overhead is a fraction of training time and must be below 1, got {overhead:g}"
        )
    if interval_s is None:
        if overhead is not None:
            raise ConfigError("overhead is a fraction of the interval; add interval_s=")
        return None
    if rates.rate_bytes_per_s is None:
        raise ConfigError(
            "the number of drives depends on the rate of one drive; add rate= or record="
        )
    return drives_needed(
        total_bytes,
        rates.rate_bytes_per_s,
        interval_s=interval_s,
        overhead=OVERHEAD if overhead is None else overhead,
    )


def shape(model: str, ranks: int | None = None) -> Shape:
    """Return the size of a model's checkpoint, or of the shards of its first ``ranks``.

    Raises ``ConfigError`` for an unknown model or a number of ranks out of range.
    """
    found, whole = model_named(model), rank_count(model)
    if ranks is not None and not 1 <= ranks <= whole:
        raise ConfigError(f"ranks must be 1 to {whole} for model {model}, got {ranks}")
    count = ranks or whole
    missing = _no_files(model, is_whole=count == whole)
    sizes = [shard_of(model, rank).size_bytes for rank in range(count)]
    return Shape(
        model=model,
        parameters=found.parameters,
        ranks=count,
        model_ranks=whole,
        rank_min_bytes=min(sizes),
        rank_max_bytes=max(sizes),
        total_bytes=sum(sizes),
        file_count=None if missing else file_count(model),
        file_count_missing=missing,
        published=_published(model),
    )


def drives_needed(
    total_bytes: int, rate_bytes_per_s: float, *, interval_s: float, overhead: float
) -> Drives:
    """Return the drives that keep the lost share of training time, stall / interval, in bounds.

    Synchronous: the stall is bytes / (n x rate), so n is at least bytes / (rate x overhead x
    interval). Asynchronous: the drain has to end within the interval, so n is at least bytes /
    (rate x interval). The snapshot does not depend on drives and is ignored.
    """
    one_s = total_bytes / rate_bytes_per_s
    sync_count = _whole(one_s / (overhead * interval_s))
    async_count = _whole(one_s / interval_s)
    return Drives(
        interval_s=interval_s,
        overhead=overhead,
        sync_count=sync_count,
        stall_s=one_s / sync_count,
        lost_share=one_s / sync_count / interval_s,
        async_count=async_count,
        drain_s=one_s / async_count,
    )


def _whole(drives: float) -> int:
    return max(1, math.ceil(round(drives, _DIGITS)))


def _no_files(model: str, *, is_whole: bool) -> str:
    """Return why DLIO has no file count, empty if it has one."""
    if model == SERVER_NAME:
        return f"DLIO has no layout for {model}"
    return "" if is_whole else "DLIO's layout covers all ranks"


def _published(model: str) -> str:
    if model == SERVER_NAME:
        return "415 GB, derivation unpublished"
    if model in SUBSETS:
        return f"{SUBSETS[model].published_gb} GB, means GiB"
    return f"{MODELS[model].published}: {MODELS[model].published_remark}"


@dataclass(frozen=True, slots=True)
class Bounded:
    """A mean, or bounds, or only an upper bound."""

    mean: float | None
    lower: float | None = None
    upper: float | None = None

    def times(self, factor: float) -> Bounded:
        parts = (self.mean, self.lower, self.upper)
        return Bounded(*(None if part is None else part * factor for part in parts))

    def text(self, unit: Unit) -> str:
        return bounded_quantity(self.mean, self.lower, self.upper, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The write rate of a drive in B/s, its power meanwhile, and the sources of both.

    Rate and power are of ``drive_count`` drives together, because a run may have several.
    ``remarks`` describe how that run was shrunken or sliced; ``failed_checks`` and
    ``warned_checks`` name its checks that failed or warned.
    """

    rate_bytes_per_s: float | None
    rate_source: str
    drive_count: int = 1
    power_w: Bounded | None = None
    power_source: str
    remarks: tuple[str, ...] = ()
    failed_checks: tuple[str, ...] = ()
    warned_checks: tuple[str, ...] = ()


def _rates(given: dict[str, str]) -> Rates:
    """Return what is given, or what a run had.

    Raises:
        ConfigError: a value is invalid, or there are two rates.
        RecordError: the record is missing, of an unfinished run, or has no write rate.
    """
    rate, power_w = number_in(given, "rate"), number_in(given, "power_w")
    if "record" not in given:
        return Rates(
            rate_bytes_per_s=rate * 1e9 if rate is not None else None,
            rate_source="given" if rate is not None else "not given",
            power_w=Bounded(power_w) if power_w is not None else None,
            power_source="given" if power_w is not None else "not given",
        )
    if rate is not None:
        raise ConfigError("give either rate= or record=: power belongs to one rate")
    return _rates_of_record(Path(given["record"]), power_w)


def _rates_of_record(path: Path, power_w: float | None) -> Rates:
    """Return a run's write rate, and its drives' power in that phase unless it is given.

    ``power_w`` is the power of one drive; each of the run's drives draws it.
    """
    record = read_judged(path / RECORD_FILE if path.is_dir() else path).record
    if record.status != "complete":
        raise RecordError(f"the run in {path} is {record.status}; a plan needs a complete run")
    rate = next((m.value for m in record.metrics if m.name == RATE_METRIC), None)
    if not rate:
        raise RecordError(
            f"{path} has no {RATE_METRIC}; a plan needs a run of workload=checkpoint, got one of "
            f"{record.workload.name}"
        )
    energy = next(each for each in phase_energies(record) if each.phase == WRITE_PHASE)
    # The lowest block devices under the targets; not all are NVMe controllers.
    facts = [target.facts for target in record.targets]
    devices = {(each.host, device) for each in facts for device in each.devices}
    drives = {record.drive_of(each.facts.host, each.facts.serial) for each in record.controllers}
    drive_count = max(1, len(energy.keys), len(drives), len(devices))
    power = _power_of(energy) if len(energy.keys) == drive_count else None
    if power_w is not None:
        power, source = Bounded(power_w * drive_count), "given"
    elif power is not None:
        source = f"{energy.evidence}, {record.run_id}"
    else:
        source = (
            f"{record.run_id} has no power of all its drives ({record.power.choice}); add power_w="
        )
    return Rates(
        rate_bytes_per_s=rate,
        rate_source=record.run_id,
        drive_count=drive_count,
        power_w=power,
        power_source=source,
        remarks=tuple(r for r in record.workload.remarks if r.startswith(_PARTIAL)),
        failed_checks=tuple(c.name for c in record.checks if c.verdict == "fail"),
        warned_checks=tuple(c.name for c in record.checks if c.verdict == "warn"),
    )


def _power_of(energy: Energy) -> Bounded | None:
    if energy.mean_w is not None:
        return Bounded(energy.mean_w)
    return None if energy.upper_w is None else Bounded(None, energy.lower_w, energy.upper_w)


def _plan_lines(
    shape: Shape,
    rates: Rates,
    seconds: float | None,
    energy_j: Bounded | None,
    drives: Drives | None,
) -> Iterator[str]:
    yield from _size(shape)
    if rates.rate_bytes_per_s is None or seconds is None:
        yield line("rate", "not given; add rate=GB/s of one drive, or record=RUN")
        return
    unit = _unit(rates)
    yield line("rate", f"{format_rate(rates.rate_bytes_per_s)} of {unit}, {rates.rate_source}")
    yield line("time", f"{format_seconds(seconds)} on {unit} = bytes / rate")
    if rates.power_w is None or energy_j is None:
        yield line("energy", f"unknown: power is {rates.power_source}")
    else:
        yield line("power", f"{rates.power_w.text(Unit.WATTS)} of {unit}, {rates.power_source}")
        per_checkpoint = "per checkpoint = power x time, the same for any number of drives"
        yield line("energy", f"{energy_j.text(Unit.JOULES)} {per_checkpoint}")
    if drives is not None:
        yield from _drives_line(drives, rates, shape)
    for remark in rates.remarks:
        yield line("caveat", f"that run was {remark}")
    if rates.failed_checks:
        yield line("warning", f"that run failed {', '.join(rates.failed_checks)}")
    if rates.warned_checks:
        yield line("warning", f"that run had warnings: {', '.join(rates.warned_checks)}")


def _size(shape: Shape) -> Iterator[str]:
    part = (
        f"all {shape.ranks} ranks"
        if shape.ranks == shape.model_ranks
        else f"the first {shape.ranks} of {shape.model_ranks} ranks"
    )
    least, most = format_bytes(shape.rank_min_bytes), format_bytes(shape.rank_max_bytes)
    each = f"{least} each" if least == most else f"{least} to {most} each"
    yield line("model", f"{shape.model}, {shape.parameters:,} parameters")
    yield line("shards", f"{part}, {each}")
    if shape.file_count is None:
        why = f"; {shape.file_count_missing}" if shape.file_count_missing else ""
        yield line("files", f"{shape.ranks} with loader=direct, one a rank{why}")
    else:
        yield line(
            "files",
            f"{shape.file_count:,} as DLIO lays them out; {shape.ranks} with loader=direct",
        )
    total = f"{format_bytes(shape.total_bytes)} = {shape.total_bytes / GIB:,.3f} GiB"
    yield line("total", f"{total}; published {shape.published}")


def _drives_line(drives: Drives, rates: Rates, shape: Shape) -> Iterator[str]:
    each = f"{format_bytes(shape.total_bytes)} / ({format_rate(rates.rate_bytes_per_s or 0)}"
    interval = f"{drives.interval_s:g} s"
    yield line(
        "sync",
        f"{_many(drives.sync_count, rates)}, as n >= bytes / (rate x overhead x interval) = "
        f"{each} x {drives.overhead:g} x {interval}); the stall is "
        f"{format_seconds(drives.stall_s)}, {format_percent(drives.lost_share, 2)} of the interval",
    )
    yield line(
        "async",
        f"{_many(drives.async_count, rates)}, as n >= bytes / (rate x interval) = "
        f"{each} x {interval}); the drain takes {format_seconds(drives.drain_s)}, without the "
        "snapshot",
    )


def _many(count: int, rates: Rates) -> str:
    if rates.drive_count == 1:
        return counted(count, "drive")
    return f"{counted(count, 'target')} of {rates.drive_count} drives each"


def _unit(rates: Rates) -> str:
    return "one drive" if rates.drive_count == 1 else f"one target of {rates.drive_count} drives"
