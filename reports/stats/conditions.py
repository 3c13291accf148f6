"""The conditions of runs, how the arms of a group differ in them, and what excludes a comparison.

A user may force an excluded comparison; the report then states what was forced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wattload.core.power import Scope
from wattload.core.record.results import NO_SENSOR
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerRecord
from wattload.core.units import Unit, format_percent
from wattload.reports.runs import energy as energies
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import leading, overlap
from wattload.reports.stats.figures import Quantity
from wattload.reports.stats.subject import (
    CAPS,
    LOAD,
    Group,
    Subject,
    load_name,
    power_state_text,
    settings,
)
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import counted, listed, quantity
from wattload.results.reading import asked, view_named, view_of
from wattload.results.view import Condition, Served

_WORK_PREFIXES = (
    "workload",
    "scale",
    "accelerator",
    "processes",
    "data set",
    "config workload.",
    "config accelerator.",
)
"""What defines the work: in a paced job also the number and step time of accelerators."""

NO_VALID_RUN = "no valid run"
NOT_MEASURED = "not measured"
_NOT_RECORDED = "not recorded"
_NO_LIMIT = "none seen"
_PATH = "config target.path"
_LOAD = f"config {LOAD}"
_SETUP_PARTS: Mapping[str, frozenset[str]] = {
    "host": frozenset({"host", "processor", "kernel", "governor"}),
    "drive": frozenset({"drive", "serial", "firmware", "link", "logical block", _PATH}),
    "file system": frozenset({"file system", "I/O scheduler"}),
    "loader": frozenset({"loader"}),
    "power state": frozenset({"power state", *(f"config {key}" for key in ("power.state", *CAPS))}),
    "limits": frozenset({"CPU quota", "memory limit", "I/O limits"}),
    "wattload": frozenset({"wattload", "commit"}),
}
"""The conditions that change together with one part of the set-up, by its name."""

REST_TOLERANCE = 0.05
"""Rests that differ by less are alike: they begin when the last rank ends, up to 1 s later."""
BYTES_TOLERANCE = 0.01
"""Runs whose bytes in a phase differ by more did different work in it."""

_CONSTANT_IN_ARM = (
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
    "rest",
    "meter",
)
"""Conditions that should be constant within an arm: otherwise its runs are not repeats."""

_EXCLUDING = frozenset({"loader", "host", "drive", "serial", "firmware", "power state", "data set"})
"""Those that exclude a comparison: an arm of two drives, or two firmwares, is not an arm."""


_OF_DRIVES = frozenset({"drive", "serial", "firmware", "power state"})
"""Conditions in which the arms of a comparison of drives differ."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One condition that is not the same in both arms; values by arm, each once."""

    name: str
    values: Mapping[str, str]
    is_work: bool


@cache_by_identity
def conditions(record: RunRecord) -> dict[str, str]:
    """Return the conditions of a run by name; what could not be read is left out."""
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
    yield "rest", rest_text(record)
    yield "meter", meter_basis(record)
    yield from ((each.name, each.value) for each in own_conditions(record))
    for key, value in settings(record).items():
        yield f"config {key}", value
    yield from _hosts(record)
    yield from _targets(record)
    yield from _controllers(record)


@cache_by_identity
def own_conditions(record: RunRecord) -> tuple[Condition, ...]:
    """Return the conditions that a workload adds to those of settings and machine."""
    return tuple(asked(record, view_of(record).conditions, ()))


def rest_text(record: RunRecord) -> str:
    """Return how long the drives rested after the job, such as ``30 s``."""
    return f"{record.power.rest_s:g} s"


def meter_basis(record: RunRecord) -> str:
    """Return whether the drives' meters were calibrated or as declared; empty without meters."""
    found = {
        source.sensor.basis
        for source in record.power.sources
        if source.used
        and source.sensor is not None
        and source.facts is not None
        and source.facts.scope is Scope.DRIVE
    }
    return listed(sorted(found))


def _hosts(record: RunRecord) -> Iterator[tuple[str, str]]:
    for host in record.hosts:
        facts = host.facts
        yield "host", facts.name
        yield "processor", str(facts.cpu_model)
        yield "kernel", facts.kernel
        yield "governor", str(facts.governor)
        cpus, memory_bytes = facts.cgroup_cpu_limit, facts.cgroup_memory_limit_bytes
        io = [f"{name} {limit:,}" for name, limit in (facts.cgroup_io_limits or {}).items()]
        yield "CPU quota", _NO_LIMIT if cpus is None else f"{cpus:g} CPUs"
        yield (
            "memory limit",
            _NO_LIMIT if memory_bytes is None else quantity(memory_bytes, Unit.BYTES, 3),
        )
        yield "I/O limits", listed(io) or _NO_LIMIT


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
            yield "file system fill", f"{format_percent(fill)}"


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
    """Return a PCIe link as ``16 GT/s x4``."""
    if speed_gt_per_s is None or width is None:
        return "unknown"
    return f"{speed_gt_per_s:g} GT/s x{width}"


def links(controller: ControllerRecord) -> tuple[str, str]:
    """Return a drive's PCIe link as it ran, and the best that the drive supports."""
    state = controller.before or controller.after
    now = link_text(state.link_speed_gt_per_s, state.link_width) if state else "unknown"
    facts = controller.facts
    return now, link_text(facts.link_speed_max_gt_per_s, facts.link_width_max)


def slow_link(controller: ControllerRecord) -> str:
    """Return how a drive's PCIe link is below what the drive supports; empty if it is not."""
    now, best = links(controller)
    if now == best or "unknown" in (now, best):
        return ""
    return f"{now}, the drive supports {best}"


def differences(group: Group, by: str = "") -> tuple[Difference, ...]:
    """Return the conditions in which the arms of a group differ, those that define the work first.

    The setting ``by`` that defines the arms differs, but is not counted as other work. An arm
    without a run differs in nothing.
    """
    by_arm = {arm: _values(runs) for arm, runs in group.arms.items()}
    full = [arm for arm, runs in group.arms.items() if runs]
    names = dict.fromkeys(name for values in by_arm.values() for name in values)
    own = [each for run in group.runs for each in own_conditions(run.record)]
    not_work = view_named(group.workload).not_work | {each.name for each in own if not each.is_work}
    found = []
    for name in names:
        values = {arm: of_arm.get(name, ()) for arm, of_arm in by_arm.items()}
        if len({values[arm] for arm in full}) > 1:
            shown = {
                arm: (listed([*values[arm]]) or _NOT_RECORDED) if arm in full else NO_VALID_RUN
                for arm in values
            }
            is_of_load = name == _LOAD or name.startswith(f"{_LOAD}.")
            is_work = is_of_load or name.startswith(_WORK_PREFIXES)
            if (
                name.removeprefix("config workload.") in not_work
                or name == f"config {by}"
                or (is_of_load and _is_of_loads(group, by))
            ):
                is_work = False
            found.append(Difference(name, shown, is_work))
    if any(each.name == _LOAD for each in found):  # the settings of a load go with it
        found = [each for each in found if not each.name.startswith(f"{_LOAD}.")]
    return tuple(sorted(found, key=lambda difference: not difference.is_work))


def _is_of_loads(group: Group, by: str) -> bool:
    """Return whether the load is what the arms of a group are compared in."""
    return by.partition(".")[0] == LOAD or all(
        load_name(run.record) == arm for arm, runs in group.arms.items() for run in runs
    )


def _values(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    values: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        for name, value in conditions(run.record).items():
            values[name].add(value)
    return {name: tuple(sorted(texts)) for name, texts in values.items()}


def changed_together(group: Group, by: str = "") -> tuple[str, ...]:
    """Return the parts of the set-up that differ between the arms if several do; otherwise nothing.

    If only one part changed, the ratio is due to it. Differences in the work exclude a comparison
    anyway. The setting ``by`` that defines the arms is a part of its own unless it belongs to
    another.
    """
    names = {item.name for item in differences(group, by) if not item.is_work}
    if any("serial" in conditions(run.record) for run in group.runs):
        parts = names - {_PATH}  # with serials known, two folders of one drive count as one drive
    else:
        parts = names
    found = [name for name in _SETUP_PARTS if any(_is_part(name, each) for each in parts)]
    compared = _PATH if by == "target" else f"config {by}"
    if compared in names and not any(_is_part(name, compared) for name in found):
        found.append(by.removesuffix(".name").rpartition(".")[2])
    return tuple(found) if len(found) > 1 else ()


def _is_part(name: str, condition: str) -> bool:
    """Return whether a condition, or a setting, changes with a part of the set-up."""
    return condition in _SETUP_PARTS[name] or condition.startswith(f"config {name}.")


def different_work(group: Group, by: str = "") -> str:
    """Return why the arms did different work; empty if they did the same."""
    found = [difference for difference in differences(group, by) if difference.is_work]
    load = next((each for each in found if each.name == _LOAD), None)
    worded = {
        each.name: each for run in group.runs for each in own_conditions(run.record) if each.differs
    }
    names = [each.name for each in found if each is not load and each.name not in worded]
    parts = []
    for each in found:
        if each.name in worded:
            own = worded[each.name]
            values = [value for value in dict.fromkeys(each.values.values()) if value != own.usual]
            parts.append(own.differs.format(listed(values)))
    if names:
        parts.append(f"different work: {listed(names)} differ{'s' * (len(names) == 1)}")
    if load is not None:
        parts.append(f"different load: {listed([*dict.fromkeys(load.values.values())])}")
    return "; ".join(parts)


def different_loads(group: Group, by: str = "") -> str:
    """Return which arms ran under which load where they differ in it: ``none (A) and busy (B)``.

    It is empty where the load is what the arms are compared in.
    """
    load = next((each for each in differences(group, by) if each.name == _LOAD), None)
    if load is None or not load.is_work:
        return ""
    arms: dict[str, list[str]] = {}
    names = group.letters if len(group.letters) == len(group.arms) else tuple(group.arms)
    for name, (arm, runs) in zip(names, group.arms.items(), strict=True):
        if runs:
            arms.setdefault(load.values[arm], []).append(name)
    return listed([f"{value} ({', '.join(own)})" for value, own in arms.items()])


def shared_drives(compared: Group) -> str:
    """Return the drives of two arms on different paths of the same drives; empty otherwise."""
    targets = [
        [target.facts for run in runs for target in run.record.targets]
        for runs in compared.arms.values()
    ]
    paths = [{facts.path for facts in own} for own in targets]
    drives = [
        {(facts.host, name) for facts in own for name in facts.controllers or facts.devices}
        for own in targets
    ]
    if len(targets) != 2 or not drives[0]:  # noqa: PLR2004 - A and B
        return ""
    if paths[0] & paths[1] or drives[0] != drives[1]:
        return ""
    return listed(sorted(name for _, name in drives[0]))


def mixtures(group: Group) -> tuple[str, ...]:
    """Return a sentence for each condition that varies within an arm."""
    return tuple(
        f"The runs of {arm} differ in {name}: {listed(list(values))}."
        for arm, name, values in _mixed(group)
    )


def mixed_runs(group: Group) -> str:
    """Return how the runs of one arm differ, so that they are not repeats; empty if they are.

    This concerns the runs of one point: swept settings differ between the points of the group.
    """
    mixed = [(arm, name) for arm, name, _ in _mixed(group) if name in _EXCLUDING]
    if not mixed:
        return ""
    names = listed([*dict.fromkeys(name for _, name in mixed)])
    arms = listed([*dict.fromkeys(arm for arm, _ in mixed)])
    return f"not repeats of one configuration: the runs of {arms} differ in {names}"


def _mixed(group: Group) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield arm, condition and values where the runs of an arm differ; unrecorded is a value."""
    for arm, runs in group.arms.items():
        found = [conditions(run.record) for run in runs]
        for name in _CONSTANT_IN_ARM:
            values = tuple(sorted({of_run.get(name, _NOT_RECORDED) for of_run in found}))
            if len(values) > 1:
                yield arm, name, values


def different_bytes(group: Group) -> dict[str, str]:
    """Return the leading phases in which two runs moved different bytes, to a sentence on it.

    All runs are compared with each other, not the medians of the arms: a few runs with different
    work do not change a median. A run without a phase moved nothing in it. Where the bytes that a
    drive moves are a result, those that equal work has count.
    """
    moved = {
        arm: [
            {
                phase.name: phase.moved_bytes if payload is None else payload
                for payload in [_payload_bytes(run.record)]
                for phase in leading(run.record)
            }
            for run in runs
        ]
        for arm, runs in group.arms.items()
        if runs
    }
    found = {}
    for name in dict.fromkeys(name for runs in moved.values() for run in runs for name in run):
        arms = [[run.get(name, 0) for run in runs] for runs in moved.values()]
        every = [value for values in arms for value in values]
        if max(every) - min(every) > BYTES_TOLERANCE * max(every):
            found[name] = f"different bytes in {name}: {listed([_range(each) for each in arms])}"
    return found


def _payload_bytes(record: RunRecord) -> int | None:
    payload = view_of(record).payload_bytes
    return None if payload is None else asked(record, payload, None)


def _range(values: Sequence[int]) -> str:
    low, high = (quantity(value, Unit.BYTES, 3) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def is_compared(subject: Subject, run: Run) -> bool:
    """Return whether a run is compared: it has no fault, or only faults that a user may force.

    A warm-up and an unfinished run have no figures to compare, even if forced.
    """
    if run.record.comparison.warm_up or run.record.status != "complete":
        return False
    return subject.forced or not subject.faults(run)


def is_energy_compared(subject: Subject, run: Run) -> bool:
    return is_compared(subject, run) and (subject.forced or not subject.energy_faults(run))


def has_excluded_energy(subject: Subject, run: Run) -> bool:
    """Return whether a compared run has an energy, or bounds of one, that is not compared."""
    if not is_compared(subject, run) or is_energy_compared(subject, run):
        return False
    known = energies.phase_energies(run.record)
    return any(each.energy_j is not None or each.upper_j is not None for each in known)


def no_energy(records: Sequence[RunRecord], phase: str, *, is_excluded: bool) -> str:
    """Return why runs that are compared have no energy of a phase that is.

    ``is_excluded`` is whether they have one that is not compared.
    """
    if not records:
        return NO_VALID_RUN
    known = [each for record in records for each in energies.phase_energies(record)]
    if is_excluded:
        is_replayed = any(each.replayed for each in known)
        checks = "checks of power failed or were not made"
        return f"excluded: {f'power was {energies.REPLAYED}' if is_replayed else checks}"
    powers = [record.power for record in records if not served_of(record).instead]
    if all(power.requested == "none" for power in powers):
        return f"{NOT_MEASURED}: {'power=none' if powers else served_of(records[0]).instead}"
    if any(part.scope is Scope.DRIVE for power in powers for part in power.energy):
        is_whole = phase in (energies.ALL_PHASES, "")
        of_phase = [each for each in known if is_whole or each.phase == phase]
        reasons = [each.reason for each in of_phase if each.reason]
        if reasons:
            return f"{NOT_MEASURED}: {reasons[0].partition(';')[0].rstrip('.')}"
        if phase == energies.ALL_PHASES and any(overlap(leading(each)) for each in records):
            return f"{NOT_MEASURED}: the phases overlap in time"
    return f"{NOT_MEASURED}: {NO_SENSOR}"


def compared_group(subject: Subject, group: Group) -> Group:
    """Return a group with the runs that are compared; an arm may become empty.

    Excluded runs neither prevent a comparison nor show that the arms are the same.
    """
    arms, ceilings = (
        {
            name: tuple(run for run in runs if is_compared(subject, run))
            for name, runs in of_group.items()
        }
        for of_group in (group.arms, group.ceilings)
    )
    return replace(group, arms=arms, ceilings=ceilings)


@dataclass(frozen=True, slots=True)
class Exclusions:
    """What excludes comparisons of a group: different work, or by phase different bytes.

    ``illustrates`` is whether simulated drives are compared with each other, or with themselves in
    another power state. ``simulated`` states that only some drives are. ``watches`` states how the
    runs differ in what energies for the work depend on. ``mixed`` states how the runs of one arm
    differ from each other.
    ``failures`` states in how many runs operations failed, ``from_memory`` which arms were served
    from memory.
    ``faulty`` and ``faulty_energy`` count runs that only count because they were forced.
    """

    work: str
    mixed: str
    bytes_by_phase: Mapping[str, str]
    illustrates: bool
    simulated: str
    watches: str
    faulty: str
    faulty_energy: str
    failures: str = ""
    from_memory: str = ""
    is_fixed_time: bool = False

    def reasons(self, quantity: Quantity) -> tuple[str, ...]:
        """Return why a quantity is not compared: times and energies need equal bytes too."""
        found = [reason for reason in self._of_all if reason]
        if quantity.is_for_work and self.watches:
            found.append(self.watches)
        # Of reads for a given time, seconds are those of a read, which do not depend on the bytes.
        is_latency = quantity.unit is Unit.SECONDS and self.is_fixed_time
        is_total = quantity.unit in (Unit.SECONDS, Unit.JOULES) and not is_latency
        if is_total and self.bytes_by_phase:
            if quantity.phase in ("", energies.ALL_PHASES):
                found.append(next(iter(self.bytes_by_phase.values())))
            elif quantity.phase in self.bytes_by_phase:
                found.append(self.bytes_by_phase[quantity.phase])
        return tuple(found)

    @property
    def _of_all(self) -> tuple[str, ...]:
        return self.work, self.mixed, self.simulated, self.failures, self.from_memory

    def forced(self, quantity: Quantity) -> str:
        """Return what would exclude a quantity if nothing were forced; empty for nothing."""
        faulty = self.faulty_energy if quantity.is_energy else self.faulty
        return listed([*self.reasons(quantity), *([faulty] if faulty else [])])


def exclusions(subject: Subject, group: Group) -> Exclusions:
    """Return what excludes comparisons of a group, from the compared runs alone."""
    compared = compared_group(subject, group)
    simulated = {energies.is_simulated(run.record) for run in compared.runs}
    return Exclusions(
        work=different_work(compared, subject.by),
        mixed=mixed_runs(compared),
        bytes_by_phase=different_bytes(compared),
        illustrates=simulated == {True} and _is_of_drives(compared),
        simulated="only some drives are simulated" if len(simulated) > 1 else "",
        watches=different_watches(compared),
        faulty=_faulty(subject, compared, of_energy=False),
        faulty_energy=_faulty(subject, compared, of_energy=True),
        failures=_failures_text(compared),
        from_memory=served_from_memory(compared),
        is_fixed_time=view_named(compared.workload).is_fixed_time,
    )


def _failures_text(compared: Group) -> str:
    """Return how many operations failed in how many runs; empty if none did."""
    known = [count for run in compared.runs if (count := failed_operations(run.record))]
    if not known:
        return ""
    operation = view_named(compared.workload).operation
    return f"{counted(sum(known), operation)} failed in {counted(len(known), 'run')}"


def failed_operations(record: RunRecord) -> int:
    return asked(record, view_of(record).failed, 0)


def served_of(record: RunRecord) -> Served:
    """Return what answered the reads of a run in place of drives."""
    return asked(record, view_of(record).served, Served())


def served_from_memory(compared: Group) -> str:
    """Return which arms memory served, where it did not serve others; empty otherwise.

    Such a rate is memory's, and not that of a path to the drive.
    """
    names = dict(zip(compared.arms, compared.letters, strict=False))
    texts = [
        f"{text} of {names.get(arm, arm)}"
        for arm, runs in compared.arms.items()
        if (text := next(filter(None, (served_of(run.record).from_memory for run in runs)), ""))
    ]
    is_same = len(texts) == sum(map(bool, compared.arms.values()))
    return "" if is_same else listed(texts)


def _is_of_drives(compared: Group) -> bool:
    """Return whether the arms are different drives, or power states of one."""
    return any(item.name in _OF_DRIVES for item in differences(compared))


def different_watches(compared: Group) -> str:
    """Return why energies for the work are not compared: these include the tail in the rest.

    It is empty if all runs with energies rested for as long, after the job and behind each phase
    that has a tail in them, with meters of one kind. Energies in
    the window, their mean power and efficiency are compared all the same.
    """
    measured = [run.record for run in compared.runs if run.record.power.energy]
    rests = list(dict.fromkeys(map(rest_text, measured)))
    meters = list(dict.fromkeys(filter(None, map(meter_basis, measured))))
    if len(rests) > 1:
        why = f"the drives rested for {listed(rests)} after the job"
    elif tails := _different_rests(measured):
        why = tails
    elif len(meters) > 1:
        names = dict(zip(compared.arms, compared.letters, strict=False))
        found = [
            f"the meter of {names.get(arm, arm)} is {basis.replace('declared', 'as declared')}"
            for arm, runs in compared.arms.items()
            for basis in dict.fromkeys(meter_basis(run.record) for run in runs)
            if basis
        ]
        why = listed(found)
    else:
        return ""
    return f"{why}, so energy is compared in the window only"


def _different_rests(records: Iterable[RunRecord]) -> str:
    """Return the first phase whose tails are of rests of different lengths, and these lengths."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        for each in energies.phase_energies(record):
            if each.tail_j is not None:
                found[each.phase].append(each.rest_s)
    for phase, rests_s in found.items():
        low_s, high_s = min(rests_s), max(rests_s)
        if high_s - low_s > REST_TOLERANCE * high_s:
            shown = [quantity(each, Unit.SECONDS, 3) for each in (low_s, high_s)]
            return f"the drives rested for {listed(shown)} behind {phase}"
    return ""


def _faulty(subject: Subject, compared: Group, *, of_energy: bool) -> str:
    """Return how many runs are compared despite a failed or missing check; empty for none."""
    found = [
        run
        for run in compared.runs
        if subject.faults(run) or (of_energy and subject.energy_faults(run))
    ]
    return f"{counted(len(found), 'run')} with a failed or missing check" if found else ""
