"""``wattload run --plan``: what a session will do, and whether its runs suffice for a verdict.

The bytes and times of its runs are those that ``wattload plan`` prints of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from wattload.cli.meters import node_meters
from wattload.cli.outcome import Printer, rough_time
from wattload.cli.plan import RunTime, endurance_text, target_text
from wattload.cli.terminal import Line, print_lines
from wattload.core.errors import PowerError
from wattload.core.record.run import WARM_UP_BLOCK
from wattload.core.storage.block_stack import controllers_in, walk
from wattload.core.units import GB, Unit, format_rate
from wattload.power.nvme.admin import open_with_timeout
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.logs import read_rated_bytes
from wattload.power.registry import NONE
from wattload.results.quantity import counted, listed, number, quantity
from wattload.run.compose import workload_class
from wattload.run.preflight import drives_of, possible_waits, space_of
from wattload.session.loop import plan_all

if TYPE_CHECKING:
    from wattload.core.storage.guard import Guard
    from wattload.core.storage.targets import Target
    from wattload.session.forecast import Part
    from wattload.session.loop import SessionPreview
    from wattload.session.schedule import Point

RATE_BYTES_PER_S, START_S = GB, 5.0
"""For the order of magnitude: a drive moves 0.5 to 14 GB/s, and what a run does besides its job,
such as checks and ceilings, takes some seconds."""

MOST_SHOWN = 24
"""Runs and targets that are listed; of more, their number is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What the runs of a session that are left take; ``estimated_s`` is without ``waiting_s``.

    ``clocked_s`` is how long they read as many bytes as the targets deliver, and ``waiting_s`` how
    long they wait where a drive's power is measured.
    """

    data_bytes: int
    read_bytes: float
    written_bytes: float
    clocked_s: float
    computing_s: float
    estimated_s: float
    waiting_s: float

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Totals:
        plans = [(part, part.preview.plan) for part in parts]
        times = [(part, RunTime.of(plan, RATE_BYTES_PER_S)) for part, plan in plans]
        waits = [possible_waits(p.preview.config.power, p.preview.targets) for p in parts]
        return cls(
            data_bytes=sum(part.prepared_bytes for part in parts),
            read_bytes=sum(p.runs * plan.read_bytes * p.preview.shares for p, plan in plans),
            written_bytes=sum(p.runs * plan.run_bytes * p.preview.shares for p, plan in plans),
            clocked_s=sum(part.runs * plan.reading_s for part, plan in plans),
            computing_s=sum(part.runs * plan.computing_s for part, plan in plans),
            estimated_s=sum(
                part.preparations * time.generate_s
                + part.runs * (START_S + time.io_s + time.computing_s)
                for part, time in times
            ),
            waiting_s=sum(
                part.runs * each.total_s for part, each in zip(parts, waits, strict=True) if each
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wear:
    """The most that a session writes to a drive, in its capacities.

    ``rated_share`` is the share of the bytes that the drive says it takes in its life.
    """

    drive_writes: float
    rated_share: float | None
    guard: Guard | None

    @property
    def text(self) -> str:
        parts = [f"{number(self.drive_writes, 1)} drive writes"]
        if self.rated_share is not None:
            parts.append(f"{number(self.rated_share * 100, 1)} % of its rated writes")
        if self.guard is not None:
            parts.append(endurance_text(self.guard))
        return "; ".join(parts)


def print_session(overrides: Sequence[str], *, multirun: bool, as_json: bool) -> int:
    """Print what the runs of a command will do, on rank 0, and return 0.

    Raises:
        WattloadError: the settings are invalid, or the session would be refused.
    """
    found = plan_all(overrides, multirun=multirun, reporter=Printer())
    if found is None:
        return 0
    totals = Totals.of(found.parts)
    if as_json:
        document = {
            "runs": [point.name for point in found.points],
            "finished": found.finished,
            "left_s": found.left_s,
            **asdict(totals),
            "wear": {
                name: {"drive_writes": wear.drive_writes, "rated_share": wear.rated_share}
                for name, wear in _wear(found).items()
            },
            "verdict": asdict(found.outlook),
            "warnings": found.warnings,
        }
        print(json.dumps(document, indent=1))
    else:
        print_lines(_heading(found), list(_lines(found, totals)))
    if found.refusal is not None:
        raise found.refusal
    return 0


def _heading(found: SessionPreview) -> str:
    runs = counted(len(found.points), "run")
    if kinds := dict.fromkeys(
        f"{workload_class(config).name}, scale {config.scale.name}"
        for config in (part.preview.config for part in found.parts)
    ):
        runs += f" of {listed([*kinds])}"
    if not found.finished:
        return runs
    return f"{runs}; {found.finished} finished and not repeated"


def _lines(found: SessionPreview, totals: Totals) -> Iterator[Line]:
    if any(point.name for point in found.points):
        yield Line("order", _order(found.points))
    targets = _targets(found)
    for part, target in list(targets.values())[:MOST_SHOWN]:
        text = str(target.path)
        if target.device is None:
            text = target_text(target, part.preview.plan, len(part.preview.targets))
        yield Line("target", text)
    if len(targets) > MOST_SHOWN:
        yield Line("", f"and {len(targets) - MOST_SHOWN} more")
    if found.parts:
        yield from _totals_lines(found, totals)
        for text in node_meters(found.parts[0].preview.config):
            yield Line("meter", text)
    yield Line(
        "verdict", f"{'possible' if found.outlook.can_decide else 'no'}: {found.outlook.words}"
    )
    for warning in found.warnings:
        yield Line("warning", warning, "yellow")


def _totals_lines(found: SessionPreview, totals: Totals) -> Iterator[Line]:
    """Yield what the runs that are left take together."""
    data = f"{_about(totals.data_bytes)} to generate" if totals.data_bytes else "none to generate"
    yield Line("data", data)
    reads = [_about(totals.read_bytes)] if totals.read_bytes or not totals.clocked_s else []
    if totals.clocked_s:
        reads.append(f"as many bytes as the targets deliver in {rough_time(totals.clocked_s)}")
    yield Line("reads", " and ".join(reads))
    yield Line("writes", f"{_about(totals.written_bytes)} besides the data")
    for name, wear in _wear(found).items():
        if wear.drive_writes:
            yield Line("wear", f"{name}: at most {wear.text}, data included")
    if found.left_s is not None:
        yield Line("time", f"about {rough_time(found.left_s)}, at the pace of the finished runs")
        return
    computing = f", emulated computation {rough_time(totals.computing_s)}"
    yield Line(
        "time",
        f"about {rough_time(totals.estimated_s)}: I/O at {format_rate(RATE_BYTES_PER_S)}"
        f"{computing if totals.computing_s else ''}, {START_S:g} s a run for what is around it",
    )
    if totals.waiting_s:
        yield Line("waits", f"{rough_time(totals.waiting_s)} more if a drive's power is measured")
    elif all(part.preview.config.power.source == NONE for part in found.parts):
        yield Line("energy", "not measured: power=none")


def _about(count: float) -> str:
    return quantity(count, Unit.BYTES, 2)


def _order(points: Sequence[Point]) -> str:
    """Return the names of the runs in order; warm-ups are in parentheses."""
    names = [
        f"({each.arm})" if each.repetition == WARM_UP_BLOCK else each.name or "run"
        for each in points
    ]
    joint = " " if not any(" " in name for name in names) else "; "
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    note = "; in parentheses: warm-ups, not compared" if names[0].startswith("(") else ""
    return f"{joint.join(names[:MOST_SHOWN])}{more}{note}"


def _targets(found: SessionPreview) -> dict[str, tuple[Part, Target]]:
    """Return each target, by path, with the runs on it that need the most space."""
    every = sorted(found.parts, key=lambda part: part.preview.plan.peak_bytes)
    return {str(t.path): (part, t) for part in every for t in part.preview.targets}


def _wear(found: SessionPreview) -> dict[str, Wear]:
    """Return the wear of each drive by its device, or by the target's path where none is known."""
    wear = {}
    for part, target in _targets(found).values():
        stack = target.facts.stack
        nodes = {} if stack is None else {node.name: node for node in walk(stack)}
        for drive in drives_of(target.facts):
            node = nodes.get(drive)
            asked = [each for leaf in controllers_in(node) if (each := _endurance(leaf.name))]
            known = [each.capacity_bytes for each in asked] + [node.size_bytes if node else None]
            capacity_bytes = next(filter(None, known), None) or space_of(target).total_bytes
            rated = [each.rated_bytes for each in asked if each.rated_bytes]
            written_bytes = found.writes.charged_bytes(drive)
            wear[drive] = Wear(
                drive_writes=written_bytes / max(capacity_bytes, 1),
                rated_share=written_bytes / min(rated) if rated else None,
                guard=part.preview.drives.get(target.index),
            )
    return wear


class _Endurance(NamedTuple):
    capacity_bytes: int | None
    rated_bytes: int | None


def _endurance(controller: str) -> _Endurance | None:
    """Return what a drive says that it holds and takes, ``None`` where it can't be asked."""
    try:
        device = open_with_timeout(controller)
    except PowerError:
        return None
    try:
        identity = identify_controller(device)
        return _Endurance(identity.capacity_bytes, read_rated_bytes(device, identity))
    except PowerError:
        return None
    finally:
        device.close()
