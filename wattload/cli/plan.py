"""``wattload plan``: bytes, time, space and energy of a run, before it is made.

Of a checkpoint that is too large for this host, it calculates the same from its model; rate and
power are given, or come from the write phase of a recorded run.
"""

from __future__ import annotations

import argparse
import difflib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wattload.core.errors import ConfigError, RecordError, TargetError
from wattload.core.power import Scope, weakest
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.file import RECORD_FILE
from wattload.core.storage.content import Content
from wattload.core.storage.guard import Inspection
from wattload.core.storage.targets import Target
from wattload.core.units import (
    GIB,
    Unit,
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
)
from wattload.core.workload import WorkloadPlan
from wattload.results.checkpoint.facts import WRITE_PHASE
from wattload.results.quantity import bounded_quantity, quantity
from wattload.results.reading import read_judged
from wattload.run.compose import groups, options, workload_class
from wattload.run.config import RunConfig
from wattload.run.preflight import exceeds_limit, lacking_bytes, space_of, writes_of
from wattload.workloads.checkpoint import estimate
from wattload.workloads.checkpoint.estimate import Drives, Shape, drives_needed
from wattload.workloads.checkpoint.models import NAMES

WORKLOAD = "checkpoint"
KEYS = ("model", "ranks", "rate", "record", "power_w", "interval_s", "overhead")

OVERHEAD = 0.05

MIN_VALUE, MAX_VALUE = 1e-6, 1e12
"""The allowed range of numbers: wider than any drive or job, and no result overflows."""

RATE_METRIC = "write_bytes_per_s"

_PARTIAL = ("shrunken", "sliced")
"""How remarks begin on a checkpoint run that wrote less than its ranks' full shards."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workload", metavar="WORKLOAD", nargs="?", default="", help="what to plan, e.g. unet3d"
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="KEY=VALUE",
        help="as of wattload run, e.g. target.path=/mnt/ssd scale=full; rate=GB/s and power_w=W of "
        "the target. A checkpoint of any size, without a target: model=405b [ranks=8]; rate=GB/s "
        "and power_w=W of one drive, or record=RUN for both from a run; interval_s=S between "
        f"checkpoints, overhead={OVERHEAD}, the allowed share of stalls",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan and return 0.

    Raises:
        ConfigError: no workload is named, a setting is unknown, missing or out of range, or the
            run would be refused.
        TargetError: the target can't be used.
        RecordError: the record is missing, unfinished, or has no write rate.
    """
    if not arguments.workload:
        listed = ", ".join(options("workload"))
        raise ConfigError(f"no workload given; use wattload plan WORKLOAD with one of {listed}")
    if "=" in arguments.workload:  # workload=unet3d, as for a run
        key, _, name = arguments.workload.partition("=")
        if key != "workload":
            raise ConfigError(f"the workload comes first, before {key}=; e.g. wattload plan unet3d")
        arguments.workload = name
    keys = {word.partition("=")[0] for word in arguments.settings}
    if arguments.workload != WORKLOAD or not keys <= set(KEYS):
        return _plan_run(arguments)
    given = _settings(arguments.settings)
    shape = estimate.shape(_model(given), _count(given, "ranks"))
    rates = _rates(given)
    drives = _drives_needed(given, shape.total_bytes, rates)
    seconds = energy_j = None
    if rates.rate_bytes_per_s is not None:
        seconds = shape.total_bytes / rates.rate_bytes_per_s
        energy_j = rates.power_w.times(seconds) if rates.power_w else None
    if arguments.json:
        document = {
            **asdict(shape),
            **asdict(rates),
            "seconds": seconds,
            "energy_j": asdict(energy_j) if energy_j else None,
            "drives": asdict(drives) if drives else None,
        }
        print(json.dumps(document, indent=1))
    else:
        print("\n".join(plan_lines(shape, rates, seconds, energy_j, drives)))
    return 0


def _plan_run(arguments: argparse.Namespace) -> int:
    """Print what a run would take, then raise what its preflight would raise."""
    from wattload.cli.outcome import Printer
    from wattload.run.preflight import preflight, require_controllers
    from wattload.session.loop import plan_run

    own = [word for word in arguments.settings if word.partition("=")[0] in ("rate", "power_w")]
    overrides = [word for word in arguments.settings if word not in own]
    _refuse_near_own(overrides)
    given = _settings(own)
    rate, power_w = _number(given, "rate"), _number(given, "power_w")
    overrides = [f"workload={arguments.workload}", *overrides]
    preview = plan_run(overrides, Printer())
    config, targets, plan, drives = preview.config, preview.targets, preview.plan, preview.drives
    estimated = RunTime.of(plan, rate * 1e9) if rate is not None else None
    if arguments.json:
        seconds = asdict(estimated) if estimated else None
        lacking = {str(t.path): lacking_bytes(t, plan, len(targets)) for t in targets}
        document = {**asdict(plan), "lacking_bytes": lacking, "time": seconds, "power_w": power_w}
        document["load"] = {"name": config.load.name, "expected_s": config.load.expected_s}
        if drives:
            document["drives"] = [
                drive_document(target, drives[target.index], plan) for target in targets
            ]
        print(json.dumps(document, indent=1))
    else:
        loader = f", loader {config.loader.name}" if workload_class(config).needs else ""
        print(_line("run", f"{arguments.workload}{loader}, scale {config.scale.name}"))
        print("\n".join(run_lines(targets, plan, estimated, power_w)))
        if config.load.expected_s:
            print(_line("load", _load_text(config)))
        for target in targets:
            if target.index in drives:
                print("\n".join(drive_lines(target, drives[target.index], plan)))
        if drives and not any(found.is_final for found in drives.values()):
            print(_line("run it", raw_command(config, overrides, targets, drives, plan)))
    require_controllers(config.power, targets)
    for inspection in drives.values():
        for refusal in inspection.refusals:
            if not refusal.can_be_lifted:
                raise TargetError(refusal.sentence)
    if drives:  # the command that was printed permits it
        permitted = replace(config.target, max_write_bytes=writes_of(plan))
        config = replace(config, target=permitted)
    preflight(config, targets, plan, max(plan.minimum_ranks, 1))
    return 0


def _load_text(config: RunConfig) -> str:
    """Return what keeps the host busy, and the time that it adds."""
    load = config.load
    shares = ""
    if hasattr(load, "cpu_share"):
        shares = (
            f", {format_percent(load.cpu_share)} of CPU time and "
            f"{format_percent(load.memory_share)} of memory traffic"
        )
    return f"{load.name}{shares}; adds about {format_seconds(load.expected_s)} to the run"


def _refuse_near_own(overrides: Sequence[str]) -> None:
    """Refuse a setting that is misspelt but nearer to one of a plan than to any of a run."""
    for word in overrides:
        key, equals, _ = word.partition("=")
        near = difflib.get_close_matches(key, ("rate", "power_w"), n=1, cutoff=0.7)
        if equals and near and key not in groups():
            raise ConfigError(f"unknown setting {key}; did you mean {near[0]}?")


@dataclass(frozen=True, slots=True)
class RunTime:
    """Seconds that a run takes at a given rate; idle baselines and the tail come on top.

    Emulated computation may overlap with I/O: a run takes from the longer of both to their sum.
    """

    generate_s: float
    io_s: float
    computing_s: float

    @classmethod
    def of(cls, plan: WorkloadPlan, rate_bytes_per_s: float) -> RunTime:
        """Return the times of a plan at one rate for reads and writes."""
        return cls(
            generate_s=plan.prepare_bytes / rate_bytes_per_s,
            io_s=(plan.read_bytes + plan.run_bytes) / rate_bytes_per_s + plan.reading_s,
            computing_s=plan.computing_s,
        )

    @property
    def range_s(self) -> tuple[float, float]:
        """The least and the most seconds, with the time to generate data."""
        least = max(self.io_s, self.computing_s)
        return self.generate_s + least, self.generate_s + self.io_s + self.computing_s


def run_lines(
    targets: Sequence[Target], plan: WorkloadPlan, time: RunTime | None, power_w: float | None
) -> Iterator[str]:
    for target in targets:
        space = space_of(target)
        devices = ", ".join(target.facts.devices) or "no block device"
        if target.device is not None:
            continue
        free = f"{format_bytes(space.available_bytes)} of {format_bytes(space.total_bytes)} free"
        lacking = lacking_bytes(target, plan, len(targets))
        fits = f"; too small by {format_bytes(lacking)}, as 5 % must stay free" if lacking else ""
        yield _line("target", f"{target.path} on {devices}, {free}{fits}")
    if all(target.device is not None for target in targets):
        prepared = (
            f"{format_bytes(plan.prepare_bytes)} to prepare the drive, "
            if plan.prepare_bytes
            else ""
        )
        yield _line("writes", f"{prepared}at most {format_bytes(plan.run_bytes)} in timed phases")
    else:
        yield _line("data", _data_text(plan))
        reads = format_seconds(plan.reading_s) if plan.reading_s else format_bytes(plan.read_bytes)
        yield _line("reads", f"{reads} in the timed phases")
        yield _line("writes", f"{format_bytes(plan.run_bytes)} in the timed phases")
        yield _line("space", f"at most {format_bytes(plan.peak_bytes)} at once")
    for name, text in plan.lines:
        yield _line(name, text)
    yield _line("memory", f"{format_bytes(plan.memory_bytes_per_rank)} per process")
    if time is None:
        computing = (
            f"at least {format_seconds(plan.computing_s)}, the emulated computation; "
            if plan.computing_s
            else ""
        )
        yield _line("time", f"{computing}add rate=GB/s of the target for an estimate")
        return
    least_s, most_s = time.range_s
    total = format_seconds(least_s)
    if format_seconds(most_s) != total:
        total += f" to {format_seconds(most_s)}"
    computing = (
        f" and {format_seconds(time.computing_s)} of emulated computation, which may overlap"
        if time.computing_s
        else ""
    )
    yield _line(
        "time",
        f"{total} = {format_seconds(time.generate_s)} to generate data, "
        f"{format_seconds(time.io_s)} of I/O{computing}; idle baselines come on top",
    )
    if power_w is not None:
        least, most = (quantity(s * power_w, Unit.JOULES) for s in (least_s, most_s))
        yield _line("energy", f"{least}{'' if most == least else f' to {most}'} at {power_w:g} W")


def drive_lines(target: Target, found: Inspection, plan: WorkloadPlan) -> Iterator[str]:
    """Yield the lines on a drive that a run would overwrite."""
    size_bytes = space_of(target).total_bytes
    writes_bytes = writes_of(plan)
    yield _line("drive", f"{target.path} is {found.words}")
    if found.content is not None:
        yield _line("holds", _content_text(found.content))
    yield _line(
        "wear",
        f"{format_bytes(writes_bytes)} in all, {writes_bytes / size_bytes:.2g} drive writes; "
        f"{_endurance_text(found)}",
    )
    for refusal in found.refusals:
        yield _line("needs" if refusal.can_be_lifted else "refused", refusal.sentence)
    if not found.refusals:
        yield _line("guard", "nothing that this command can see prevents the run")


def _content_text(content: Content) -> str:
    counts = {
        "blank": content.blank_count,
        "stamped by wattload": content.own_count,
        "unknown": len(content.unknown),
    }
    sampled = ", ".join(f"{count:,} {words}" for words, count in counts.items() if count)
    listed = ", ".join(dict.fromkeys(each.name for each in content.signatures))
    return f"{listed or 'no signature'}; sampled blocks: {sampled}"


def _endurance_text(found: Inspection) -> str:
    """Return what the drive and this host know of its use."""
    used = "endurance used: unknown"
    if found.nvme is not None:
        left = max(0, 100 - found.nvme.percentage_used)
        used = f"{found.nvme.percentage_used} % of its endurance is used, {left} % left"
    if found.log is None or not found.log.begins:
        return f"{used}; no earlier run of this host"
    earlier = format_bytes(found.log.written_bytes)
    return f"{used}; {earlier} in {len(found.log.begins)} earlier runs of this host"


def drive_document(target: Target, found: Inspection, plan: WorkloadPlan) -> dict[str, object]:
    """Return the same as ``drive_lines`` as plain data."""
    content = found.content
    return {
        "path": str(target.path),
        "drive": found.words,
        "findings": found.findings,
        "blank_count": None if content is None else content.blank_count,
        "own_count": None if content is None else content.own_count,
        "unknown_count": None if content is None else len(content.unknown),
        "drive_writes": writes_of(plan) / space_of(target).total_bytes,
        "percentage_used": None if found.nvme is None else found.nvme.percentage_used,
        "earlier_bytes": None if found.log is None else found.log.written_bytes,
        "refusals": [asdict(each) for each in found.refusals],
    }


def raw_command(
    config: RunConfig,
    overrides: Sequence[str],
    targets: Sequence[Target],
    drives: Mapping[int, Inspection],
    plan: WorkloadPlan,
) -> str:
    """Return the command of the run, with all that a user has to name; never a serial number."""
    words = list(overrides)

    def put(key: str, text: str) -> None:
        words[:] = [word for word in words if word.partition("=")[0] != key]
        words.append(f"{key}={text}")

    if not config.target.serials():
        put("target.serial", "SERIAL" if len(drives) == 1 else "[SERIAL,SERIAL]")
    names = dict.fromkeys(name for found in drives.values() for name in found.findings)
    if not names.keys() <= config.target.overwritten():
        put("target.overwrite", f"[{','.join(names)}]")
    if any(found.is_shared for found in drives.values()):
        put("target.shared", "true")
    writes_bytes = writes_of(plan)
    if any(exceeds_limit(config, target, writes_bytes) for target in targets):
        put("target.max_write_bytes", str(writes_bytes))
    return shlex.join(["wattload", "run", *words])


def _data_text(plan: WorkloadPlan) -> str:
    """Return the size of the data set that the runs read, and how much of it is missing."""
    if not plan.data_bytes:
        return "none is needed before the run"
    if plan.prepare_bytes > plan.data_bytes:  # it is written several times over
        written = format_bytes(plan.prepare_bytes)
        return f"{format_bytes(plan.data_bytes)}, prepared by writing {written} first"
    missing = (
        f"of which {format_bytes(plan.prepare_bytes)} must be generated first"
        if plan.prepare_bytes
        else "already on the target"
    )
    return f"{format_bytes(plan.data_bytes)}, {missing}"


def _settings(words: Sequence[str]) -> dict[str, str]:
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


def _model(given: dict[str, str]) -> str:
    if "model" not in given:
        raise ConfigError(
            f"model has no value; add model= and one of {', '.join(NAMES)}, or target.path= to "
            "plan a run on this host"
        )
    return given["model"]


def _number(given: dict[str, str], key: str) -> float | None:
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


def _count(given: dict[str, str], key: str) -> int | None:
    value = _number(given, key)
    if value is not None and not value.is_integer():
        raise ConfigError(f"{key} must be a whole number, got {given[key]}")
    return None if value is None else int(value)


def _drives_needed(given: dict[str, str], total_bytes: int, rates: Rates) -> Drives | None:
    interval_s, overhead = _number(given, "interval_s"), _number(given, "overhead")
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
    rate, power_w = _number(given, "rate"), _number(given, "power_w")
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
    energies = [
        energy
        for energy in record.power.energy
        if energy.chosen and energy.scope is Scope.DRIVE and energy.phase == WRITE_PHASE
    ]
    # The lowest block devices under the targets; not all are NVMe controllers.
    facts = [target.facts for target in record.targets]
    devices = {(each.host, device) for each in facts for device in each.devices}
    drive_count = max(1, len(energies), len(record.controllers), len(devices))
    power = _power_of(energies) if len(energies) == drive_count else None
    if power_w is not None:
        power, source = Bounded(power_w * drive_count), "given"
    elif power is not None:
        source = f"{weakest(energy.evidence for energy in energies)}, {record.run_id}"
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


def _power_of(energies: Sequence[EnergyRecord]) -> Bounded | None:
    """Return the power of all drives together, ``None`` if a part is missing."""

    def total(parts: list[float | None]) -> float | None:
        known = [part for part in parts if part is not None]
        return sum(known) if known and len(known) == len(parts) else None

    mean_w = total([energy.mean_w for energy in energies])
    if mean_w is not None:
        return Bounded(mean_w)
    lower_w = total([_over(energy.lower_j, energy.seconds) for energy in energies])
    upper_w = total([_over(energy.upper_j, energy.seconds) for energy in energies])
    return None if upper_w is None else Bounded(None, lower_w, upper_w)


def _over(energy_j: float | None, seconds: float) -> float | None:
    return energy_j / seconds if energy_j is not None and seconds else None


def plan_lines(
    shape: Shape,
    rates: Rates,
    seconds: float | None,
    energy_j: Bounded | None,
    drives: Drives | None,
) -> Iterator[str]:
    yield from _size(shape)
    if rates.rate_bytes_per_s is None or seconds is None:
        yield _line("rate", "not given; add rate=GB/s of one drive, or record=RUN")
        return
    unit = _unit(rates)
    yield _line("rate", f"{format_rate(rates.rate_bytes_per_s)} of {unit}, {rates.rate_source}")
    yield _line("time", f"{format_seconds(seconds)} on {unit} = bytes / rate")
    if rates.power_w is None or energy_j is None:
        yield _line("energy", f"unknown: power is {rates.power_source}")
    else:
        yield _line("power", f"{rates.power_w.text(Unit.WATTS)} of {unit}, {rates.power_source}")
        per_checkpoint = "per checkpoint = power x time, the same for any number of drives"
        yield _line("energy", f"{energy_j.text(Unit.JOULES)} {per_checkpoint}")
    if drives is not None:
        yield from _drives_line(drives, rates, shape)
    for remark in rates.remarks:
        yield _line("caveat", f"that run was {remark}")
    if rates.failed_checks:
        yield _line("warning", f"that run failed {', '.join(rates.failed_checks)}")
    if rates.warned_checks:
        yield _line("warning", f"that run had warnings: {', '.join(rates.warned_checks)}")


def _size(shape: Shape) -> Iterator[str]:
    part = (
        f"all {shape.ranks} ranks"
        if shape.ranks == shape.model_ranks
        else f"the first {shape.ranks} of {shape.model_ranks} ranks"
    )
    least, most = format_bytes(shape.rank_min_bytes), format_bytes(shape.rank_max_bytes)
    each = f"{least} each" if least == most else f"{least} to {most} each"
    yield _line("model", f"{shape.model}, {shape.parameters:,} parameters")
    yield _line("shards", f"{part}, {each}")
    if shape.file_count is None:
        why = f"; {shape.file_count_missing}" if shape.file_count_missing else ""
        yield _line("files", f"{shape.ranks} with loader=direct, one a rank{why}")
    else:
        yield _line(
            "files",
            f"{shape.file_count:,} as DLIO lays them out; {shape.ranks} with loader=direct",
        )
    total = f"{format_bytes(shape.total_bytes)} = {shape.total_bytes / GIB:,.3f} GiB"
    yield _line("total", f"{total}; published {shape.published}")


def _drives_line(drives: Drives, rates: Rates, shape: Shape) -> Iterator[str]:
    each = f"{format_bytes(shape.total_bytes)} / ({format_rate(rates.rate_bytes_per_s or 0)}"
    interval = f"{drives.interval_s:g} s"
    yield _line(
        "sync",
        f"{_many(drives.sync_count, rates)}, as n >= bytes / (rate x overhead x interval) = "
        f"{each} x {drives.overhead:g} x {interval}); the stall is "
        f"{format_seconds(drives.stall_s)}, {format_percent(drives.lost_share, 2)} of the interval",
    )
    yield _line(
        "async",
        f"{_many(drives.async_count, rates)}, as n >= bytes / (rate x interval) = "
        f"{each} x {interval}); the drain takes {format_seconds(drives.drain_s)}, without the "
        "snapshot",
    )


def _many(count: int, rates: Rates) -> str:
    each = "drive" if rates.drive_count == 1 else "target"
    of = "" if rates.drive_count == 1 else f" of {rates.drive_count} drives each"
    return f"{count} {each}{'' if count == 1 else 's'}{of}"


def _unit(rates: Rates) -> str:
    return "one drive" if rates.drive_count == 1 else f"one target of {rates.drive_count} drives"


def _line(name: str, text: str) -> str:
    return f"{name:<8}{text}"
