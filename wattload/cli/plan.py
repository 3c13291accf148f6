"""``wattload plan``: bytes, time, space and energy of a run, before it is made.

A checkpoint that is too large for this host is planned by ``checkpoint_plan``.
"""

from __future__ import annotations

import argparse
import difflib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING

from wattload.cli.checkpoint_plan import (
    KEYS,
    OVERHEAD,
    line,
    number_in,
    print_plan,
    settings_in,
)
from wattload.cli.meters import node_meters
from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage.content import Content
from wattload.core.storage.guard import Guard
from wattload.core.storage.targets import Target
from wattload.core.units import (
    Unit,
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
)
from wattload.core.workload import Outline, WorkloadPlan
from wattload.results.quantity import counted, quantity
from wattload.run.compose import compose, lacks_target, workload_class
from wattload.run.config import RunConfig
from wattload.run.config_groups import groups, options
from wattload.run.preflight import (
    exceeds_limit,
    lacking_bytes,
    preflight,
    require_controllers,
    require_trace,
    space_of,
    waits_text,
    writes_of,
)

if TYPE_CHECKING:
    from wattload.run.lifecycle import Preview

WORKLOAD = "checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workload", metavar="WORKLOAD", nargs="?", default="", help="what to plan, e.g. unet3d"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="as of wattload run, e.g. target.path=/mnt/ssd scale=full; rate=GB/s and power_w=W of "
        "the target. A checkpoint of any size, without a target: model=405b [ranks=8]; rate=GB/s "
        "and power_w=W of one drive, or record=RUN for both from a run; interval_s=S between "
        f"checkpoints, overhead={OVERHEAD}, the allowed share of stalls",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--hosts", metavar="HOST[:N],...", help="plan a run on several hosts, as of wattload run"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the plan and return 0.

    Raises:
        ConfigError: no workload is named, a setting is unknown, missing or out of range, or the
            run would be refused. Or as for ``launch``.
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
    if arguments.hosts is not None:
        from wattload.cli.hosts import launch

        flags = ["--json"] if arguments.json else []
        words = ["plan", *flags, arguments.workload, *arguments.overrides]
        return launch(arguments.hosts, words, only_prints=False)
    keys = {word.partition("=")[0] for word in arguments.overrides}
    if arguments.workload != WORKLOAD or not keys <= set(KEYS):
        return _plan_run(arguments)
    print_plan(arguments.overrides, as_json=arguments.json)
    return 0


def _plan_run(arguments: argparse.Namespace) -> int:
    """Print what a run would take, on rank 0, then raise what its preflight would raise."""
    from wattload.cli.outcome import Printer
    from wattload.session.loop import plan_run

    own = [word for word in arguments.overrides if word.partition("=")[0] in ("rate", "power_w")]
    overrides = [word for word in arguments.overrides if word not in own]
    _refuse_near_own(overrides)
    given = settings_in(own)
    rate, power_w = number_in(given, "rate"), number_in(given, "power_w")
    overrides = [f"workload={arguments.workload}", *overrides]
    if lacks_target(overrides) and _prints_outline(arguments, overrides, rate, power_w):
        return 0
    preview = plan_run(overrides, Printer())
    if preview is None:
        return 0
    config, targets, plan, drives = preview.config, preview.targets, preview.plan, preview.drives
    estimated = RunTime.of(plan, rate * 1e9) if rate is not None else None
    meant = _at_rate(config, rate, power_w)
    if arguments.json:
        seconds = asdict(estimated) if estimated else None
        lacking = {str(t.path): lacking_bytes(t, plan, len(targets)) for t in targets}
        document = {**asdict(plan), "lacking_bytes": lacking, "time": seconds, "power_w": power_w}
        document["load"] = {"name": config.load.name, "expected_s": config.load.expected_s}
        document["hosts"] = preview.hosts
        document |= meant.figures
        if drives:
            document["drives"] = [
                drive_document(target, drives[target.index], plan) for target in targets
            ]
        print(json.dumps(document, indent=1))
    else:
        print(_run_line(config, arguments.workload))
        hosts = [line("hosts", preview.hosts)] if preview.hosts else []
        lines = run_lines(targets, plan, estimated, power_w, preview.shares)
        print("\n".join([*hosts, *lines, *starmap(line, meant.lines)]))
        if config.load.expected_s:
            print(line("load", _load_text(config)))
        if waits := waits_text(config.power, targets):
            print(line("waits", waits))
        for text in node_meters(config):
            print(line("meter", text))
        for target in targets:
            if target.index in drives:
                print("\n".join(drive_lines(target, drives[target.index], plan)))
        if drives and not any(found.is_final for found in drives.values()):
            print(line("run it", raw_command(config, overrides, targets, drives, plan)))
    require_possible(preview)
    return 0


def _prints_outline(
    arguments: argparse.Namespace,
    overrides: Sequence[str],
    rate: float | None,
    power_w: float | None,
) -> bool:
    """Print what a workload says of its runs without a target; return whether it says anything."""
    config, _ = compose([*overrides, "target.path=."])  # nothing looks at it
    outlined = getattr(workload_class(config), "outline", None)
    if outlined is None:
        return False
    outline, meant = outlined(config.workload, seed=config.seed), _at_rate(config, rate, power_w)
    if arguments.json:
        print(json.dumps({**outline.figures, **meant.figures}, indent=1))
        return True
    given = "not given; add rate=GB/s" if rate is None else f"{format_rate(rate * 1e9)}, given"
    at_rate = [("rate", given)] if hasattr(workload_class(config), "at_rate") else []
    lines = (*outline.lines, *at_rate, *meant.lines)
    print("\n".join([_run_line(config, arguments.workload), *starmap(line, lines)]))
    return True


def _at_rate(config: RunConfig, rate: float | None, power_w: float | None) -> Outline:
    """Return what a rate in GB/s and a power mean for a workload; empty if it does not say."""
    at_rate = getattr(workload_class(config), "at_rate", None)
    if at_rate is None or rate is None:
        return Outline(lines=(), figures={})
    found: Outline = at_rate(config.workload, rate_bytes_per_s=rate * 1e9, power_w=power_w)
    return found


def _run_line(config: RunConfig, workload: str) -> str:
    loader = f", loader {config.loader.name}" if workload_class(config).needs else ""
    return line("run", f"{workload}{loader}, scale {config.scale.name}")


def require_possible(preview: Preview) -> None:
    """Raise what the preflight of a run would raise, with its processes and writes permitted."""
    config, targets, plan, drives = preview.config, preview.targets, preview.plan, preview.drives
    require_controllers(config.power, targets)
    require_trace(config.power)
    for inspection in drives.values():
        for refusal in inspection.refusals:
            if not refusal.can_be_lifted:
                raise TargetError(refusal.sentence)
    if drives:
        permitted = replace(config.target, max_write_bytes=writes_of(plan))
        config = replace(config, target=permitted)
    preflight(config, targets, plan, max(plan.minimum_ranks, 1))


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
    """Seconds that a run takes at a given rate; idle baselines and the rest come on top.

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
    targets: Sequence[Target],
    plan: WorkloadPlan,
    time: RunTime | None,
    power_w: float | None,
    shares: float = 1.0,
) -> Iterator[str]:
    for target in targets:
        if target.device is None:
            yield line("target", target_text(target, plan, len(targets)))
    if all(target.device is not None for target in targets):
        prepared = (
            f"{format_bytes(plan.prepare_bytes)} to prepare the drive, "
            if plan.prepare_bytes
            else ""
        )
        yield line("writes", f"{prepared}at most {format_bytes(plan.run_bytes)} in timed phases")
    else:
        yield line("data", _data_text(plan))
        for_s = f"as many bytes as the target delivers in {format_seconds(plan.reading_s)}"
        yield line("reads", for_s if plan.reading_s else _moved_text(plan.read_bytes, shares))
        yield line("writes", _moved_text(plan.run_bytes, shares))
        yield line("space", f"at most {format_bytes(plan.peak_bytes)} at once")
    for name, text in plan.lines:
        yield line(name, text)
    yield line("memory", f"{format_bytes(plan.memory_bytes_per_rank)} per process")
    if time is None:
        computing = (
            f"at least {format_seconds(plan.computing_s)}, the emulated computation; "
            if plan.computing_s
            else ""
        )
        yield line("time", f"{computing}add rate=GB/s of the target for an estimate")
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
    yield line(
        "time",
        f"{total} = {format_seconds(time.generate_s)} to generate data, "
        f"{format_seconds(time.io_s)} of I/O{computing}; idle times and the rest come on top",
    )
    if power_w is not None:
        least, most = (quantity(s * power_w, Unit.JOULES) for s in (least_s, most_s))
        yield line("energy", f"{least}{'' if most == least else f' to {most}'} at {power_w:g} W")


def target_text(target: Target, plan: WorkloadPlan, target_count: int) -> str:
    """Return a directory, the devices under it, and whether the run fits there."""
    space, lacking = space_of(target), lacking_bytes(target, plan, target_count)
    devices = ", ".join(target.facts.devices) or "no block device"
    free = f"{format_bytes(space.available_bytes)} of {format_bytes(space.total_bytes)} free"
    fits = f"; too small by {format_bytes(lacking)}, as 5 % must stay free" if lacking else ""
    return f"{target.path} on {devices}, {free}{fits}"


def drive_lines(target: Target, found: Guard, plan: WorkloadPlan) -> Iterator[str]:
    """Yield the lines on a drive that a run would overwrite."""
    size_bytes = space_of(target).total_bytes
    writes_bytes = writes_of(plan)
    yield line("drive", f"{target.path} is {found.words}")
    if found.content is not None:
        untouched = f"; {found.untouched}" if found.untouched else ""
        yield line("holds", f"{_content_text(found.content)}{untouched}")
    yield line(
        "wear",
        f"{format_bytes(writes_bytes)} in all, {writes_bytes / size_bytes:.2g} drive writes; "
        f"{endurance_text(found)}",
    )
    for refusal in found.refusals:
        yield line("needs" if refusal.can_be_lifted else "refused", refusal.sentence)
    if not found.refusals:
        yield line("guard", "the run is allowed: no check of the drive refused it")


def _content_text(content: Content) -> str:
    listed = ", ".join(dict.fromkeys(each.name for each in content.signatures))
    return f"{listed or 'no signature'}; sampled blocks: {content.counts_text}"


def endurance_text(found: Guard) -> str:
    """Return what the drive and this host know of its use."""
    used = "endurance used: unknown"
    if found.nvme is not None:
        left = max(0, 100 - found.nvme.percentage_used)
        used = f"{found.nvme.percentage_used} % of its endurance is used, {left} % left"
    if found.log is None or not found.log.begins:
        return f"{used}; no earlier run on this host"
    earlier = format_bytes(found.log.written_bytes)
    return f"{used}; {counted(len(found.log.begins), 'earlier run')} on this host wrote {earlier}"


def drive_document(target: Target, found: Guard, plan: WorkloadPlan) -> dict[str, object]:
    """Return the same as ``drive_lines`` as plain data."""
    content = found.content
    return {
        "path": str(target.path),
        "drive": found.words,
        "findings": found.findings,
        "untouched": found.untouched,
        "blank_count": None if content is None else len(content.blank),
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
    drives: Mapping[int, Guard],
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


def _moved_text(moved_bytes: int, shares: float) -> str:
    """Return the bytes of one of the shares that timed phases move, and of all."""
    total = f"; {format_bytes(round(shares * moved_bytes))} over all hosts" if shares > 1 else ""
    return f"{format_bytes(moved_bytes)} in the timed phases{total if moved_bytes else ''}"


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
