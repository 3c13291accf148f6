"""The conditions of runs as name and text, and where two arms differ in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattload.core.record.controller import ControllerRecord
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.load import Run
from wattload.reports.memo import once_each
from wattload.reports.phases import leading
from wattload.reports.quantity import listed, quantity
from wattload.reports.subject import CAPS, Group, power_state_text

_VARIES = frozenset({"_target_", "label", "runs", "seed", "repeat", "scales"})
"""Settings that name a run or a class and not its work, and tables that hold every scale's."""

_WORK = (
    "workload",
    "scale",
    "accelerator",
    "processes",
    "data set",
    "config workload.",
    "config accelerator.",
)
"""A paced job asks for as much as its accelerators' number and step time make it ask."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One condition that is not the same in both arms; values by arm, each once."""

    name: str
    values: Mapping[str, str]
    is_work: bool


@once_each
def conditions(record: RunRecord) -> dict[str, str]:
    """Return what a run ran under, by name; what could not be read is left out."""
    found: dict[str, list[str]] = {}
    for name, value in _all(record):
        if value not in ("", "None") and value not in found.setdefault(name, []):
            found[name].append(value)
    return {name: listed(values) for name, values in found.items() if values}


def _all(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield "workload", record.workload.name
    yield "scale", record.workload.scale
    yield "accelerator", record.workload.accelerator
    yield "processes", str(record.workload.rank_count)
    yield "loader", record.workload.loader
    if record.workload.data is not None:
        yield "data set", record.workload.data.key
    yield "wattload", record.software.wattload
    yield "commit", str(record.software.git_commit)[:12]
    for key, value in settings(record.config).items():
        yield f"config {key}", value
    yield from _hosts(record)
    yield from _targets(record)
    yield from _controllers(record)


def settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration as dotted keys and texts, without what names a run, not its work."""
    return dict(_flat(config))


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        for name, part in value.items():
            if name not in _VARIES:
                yield from _flat(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, str(value)


def _hosts(record: RunRecord) -> Iterator[tuple[str, str]]:
    for host in record.hosts:
        facts = host.facts
        yield "host", facts.name
        yield "processor", str(facts.cpu_model)
        yield "kernel", facts.kernel
        yield "governor", str(facts.governor)


def _targets(record: RunRecord) -> Iterator[tuple[str, str]]:
    for target in record.targets:
        system = target.facts.file_system
        if system is not None:
            yield "file system", f"{system.type} ({', '.join(system.mount_options)})"
        queue = target.facts.stack.queue if target.facts.stack else None
        if queue is not None:
            yield "I/O scheduler", str(queue.scheduler)
        fill = target.before.fill_fraction if target.before else None
        if fill is not None:
            yield "file system fill", f"{fill:.0%}"


def _controllers(record: RunRecord) -> Iterator[tuple[str, str]]:
    for controller in record.controllers:
        yield "drive", str(controller.facts.model)
        yield "serial", controller.facts.serial
        yield from _drive_state(controller)
    for state in record.power.states:
        yield "power state", power_state_text(record, state)


def _drive_state(controller: ControllerRecord) -> Iterator[tuple[str, str]]:
    state = controller.before
    if state is None:
        return
    yield "firmware", str(state.firmware)
    yield "logical block", f"{state.lba_bytes} B"
    yield "link", link_text(state.link_speed_gt_per_s, state.link_width)
    yield "write cache", str(state.volatile_write_cache)
    if state.smart is not None and state.smart.temperature_k is not None:
        yield "temperature at start", f"{state.smart.temperature_k - 273} °C"


def link_text(speed_gt_per_s: float | None, width: int | None) -> str:
    """Return a PCIe link as people write it: ``16 GT/s x4``."""
    if speed_gt_per_s is None or width is None:
        return "unknown"
    return f"{speed_gt_per_s:g} GT/s x{width}"


def differences(group: Group, by: str = "") -> tuple[Difference, ...]:
    """Return the conditions in which the arms of a group differ, what sets the work first.

    What runs are told apart ``by`` is what is compared: it differs and sets no other work. An arm
    without a run differs in nothing.
    """
    by_arm = {arm: _values(runs) for arm, runs in group.arms.items()}
    full = [arm for arm, runs in group.arms.items() if runs]
    names = dict.fromkeys(name for values in by_arm.values() for name in values)
    found = []
    for name in names:
        values = {arm: of_arm.get(name, ()) for arm, of_arm in by_arm.items()}
        if len({values[arm] for arm in full}) > 1:
            shown = {arm: _shown(values[arm]) if arm in full else _NO_RUN for arm in values}
            is_work = name.startswith(_WORK) and name != f"config {by}"
            found.append(Difference(name, shown, is_work))
    return tuple(sorted(found, key=lambda difference: not difference.is_work))


_NO_RUN = "no run that counts"
_NOT_RECORDED = "not recorded"


def _shown(values: Sequence[str]) -> str:
    return listed(list(values)) or _NOT_RECORDED


def _values(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    values: dict[str, set[str]] = {}
    for run in runs:
        for name, value in conditions(run.record).items():
            values.setdefault(name, set()).add(value)
    return {name: tuple(sorted(texts)) for name, texts in values.items()}


_PATH = "config target.path"
_APART: Mapping[str, frozenset[str]] = {
    "host": frozenset({"host", "processor", "kernel", "governor"}),
    "drive": frozenset({"drive", "serial", "firmware", "link", "logical block", _PATH}),
    "file system": frozenset({"file system", "I/O scheduler"}),
    "loader": frozenset({"loader"}),
    "power state": frozenset({"power state", *(f"config {key}" for key in ("power.state", *CAPS))}),
    "wattload": frozenset({"wattload", "commit"}),
}
"""What one change of a set-up changes together, by its name."""


def changed_together(group: Group, by: str = "") -> tuple[str, ...]:
    """Return what of their set-up the arms differ in, if it is more than one thing; else nothing.

    With one thing changed a ratio is of that thing. What sets other work bars it anyhow. What the
    arms are told apart ``by`` is one of the things, if it is not part of another.
    """
    names = {item.name for item in differences(group, by) if not item.is_work}
    if any("serial" in conditions(run.record) for run in group.runs):
        parts = names - {_PATH}  # serials tell drives: two folders of one drive are no two drives
    else:
        parts = names
    found = [name for name in _APART if any(_is_part(name, each) for each in parts)]
    compared = _PATH if by == "target" else f"config {by}"
    if compared in names and not any(_is_part(name, compared) for name in found):
        found.append(by.removesuffix(".name").rpartition(".")[2])
    return tuple(found) if len(found) > 1 else ()


def _is_part(name: str, condition: str) -> bool:
    """Return whether a condition, or a setting, changes with a thing of a set-up."""
    return condition in _APART[name] or condition.startswith(f"config {name}.")


def unlike_work(group: Group, by: str = "") -> str:
    """Return why the arms did not do the same work, or an empty string where they did."""
    unlike = [difference.name for difference in differences(group, by) if difference.is_work]
    return f"not the same work: {listed(unlike)} differ" if unlike else ""


BYTES_TOLERANCE = 0.01
"""Runs whose bytes in a phase are further apart did not do the same work in it."""


_OF_ONE_ARM = (
    "loader",
    "wattload",
    "commit",
    "host",
    "processor",
    "kernel",
    "drive",
    "serial",
    "firmware",
    "power state",
    "data set",
)
"""What the runs of one arm should have in common, or they are no repeats of each other."""

_BARRING = frozenset({"loader", "host", "drive", "serial", "firmware", "power state", "data set"})
"""What of it makes them runs of something else: an arm of two drives, or firmwares, is no arm."""


def mixtures(group: Group) -> tuple[str, ...]:
    """Return a sentence for each condition that is not one within an arm."""
    return tuple(
        f"The runs of {arm} differ in {name}: {listed(list(values))}."
        for arm, name, values in _mixed(group)
    )


def unlike_runs(group: Group) -> str:
    """Return in what the runs of one arm are no repeats of each other; empty where all are.

    What was swept is told apart by the group's points: this is of the runs of one point.
    """
    mixed = [(arm, name) for arm, name, _ in _mixed(group) if name in _BARRING]
    if not mixed:
        return ""
    names = listed([*dict.fromkeys(name for _, name in mixed)])
    arms = listed([*dict.fromkeys(arm for arm, _ in mixed)])
    return f"no repeats: the runs of {arms} differ in {names}"


def _mixed(group: Group) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield arm, condition and values where an arm's runs differ; nothing recorded is a value."""
    for arm, runs in group.arms.items():
        found = [conditions(run.record) for run in runs]
        for name in _OF_ONE_ARM:
            values = tuple(sorted({of_run.get(name, _NOT_RECORDED) for of_run in found}))
            if len(values) > 1:
                yield arm, name, values


def unlike_bytes(group: Group) -> dict[str, str]:
    """Return the leading phases in which any two runs moved different bytes, to a sentence on it.

    It is all runs against each other and not the arms' medians: a few runs of other work leave a
    median as it is. A run without a phase moved nothing in it.
    """
    moved = {
        arm: [{phase.name: phase.moved_bytes for phase in leading(run.record)} for run in runs]
        for arm, runs in group.arms.items()
        if runs
    }
    found = {}
    for name in dict.fromkeys(name for runs in moved.values() for run in runs for name in run):
        arms = [[run.get(name, 0) for run in runs] for runs in moved.values()]
        every = [value for values in arms for value in values]
        if max(every) - min(every) > BYTES_TOLERANCE * max(every):
            found[name] = f"not the same bytes in {name}: {listed([_range(each) for each in arms])}"
    return found


def _range(values: Sequence[int]) -> str:
    low, high = (quantity(value, Unit.BYTES, 3) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
