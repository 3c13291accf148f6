"""The host of a run.

Its facts and targets, and their state before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattload.core.clock import ClockAnchor, anchor
from wattload.core.host.cgroups import group_state
from wattload.core.host.counters import host_state
from wattload.core.host.facts import host_facts
from wattload.core.record.host import ClockOffset, HostRecord, HostState
from wattload.core.record.target import (
    ControllerFacts,
    ControllerRecord,
    ControllerState,
    DriveHistory,
    TargetRecord,
    TargetState,
)
from wattload.core.storage.controllers import (
    controller_facts,
    controller_state,
    controllers_under,
    difference,
)
from wattload.core.storage.targets import Target, TargetKind, counting_devices, target_state
from wattload.core.sysfs import with_values
from wattload.power.sampler.protocol import ControllerReading


def devices_under(targets: Sequence[Target]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for target in targets for name in counting_devices(target)))


class HasHistory(Protocol):
    """A drive that tells what was done to it."""

    def history(self) -> DriveHistory:
        """Return what this host did to the drive."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReport:
    """A host's parts of the record."""

    host: HostRecord
    targets: tuple[TargetRecord, ...]
    controllers: tuple[ControllerRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The state of host, targets and controllers at one moment; controllers by name."""

    host: HostState
    targets: tuple[TargetState, ...]
    controllers: Mapping[str, ControllerState]


class HostCapture:
    """Reads one host's facts once, and its states before and after the run."""

    def __init__(
        self,
        targets: Sequence[Target],
        host: str,
        drives: Mapping[int, HasHistory] | None = None,
    ) -> None:
        """Read facts and the state before the run; ``drives`` are those of block targets."""
        self._drives = drives or {}
        self._histories: dict[int, DriveHistory] = {}
        self.read_histories()
        names = [name for target in targets for name in controllers_under(target)]
        self._targets = targets
        self.controller_names = tuple(dict.fromkeys(names))
        self.block_devices = devices_under(targets)
        self._host_facts = host_facts(self.block_devices)
        self._facts: dict[str, ControllerFacts] = {
            name: controller_facts(name, host=host) for name in self.controller_names
        }
        self._before = self._read(())
        self._after: Moment | None = None
        self._clocks: list[ClockAnchor] = []
        self._offsets: list[ClockOffset] = []

    def _read(self, data_files: Sequence[Path]) -> Moment:
        return Moment(
            host=host_state().model_copy(update={"group": group_state()}),
            targets=tuple(_target_state(target, data_files) for target in self._targets),
            controllers={name: controller_state(name) for name in self.controller_names},
        )

    def add_before(self, readings: Mapping[str, ControllerReading]) -> None:
        """Add what the admin queues of the controllers returned before the run, by name."""
        for name, reading in readings.items():
            self._facts[name] = _with_power_states(self._facts[name], reading)
        self._before = _with_readings(self._before, readings)

    def read_histories(self) -> None:
        """Read what was done to each drive; once more after the preparation, which adds to it."""
        self._histories = {index: drive.history() for index, drive in self._drives.items()}

    def read_clocks(self) -> None:
        """Read the clocks during the run, so that a step of one can be told from another rate."""
        self._clocks.append(anchor())

    def add_offset(self, offset: ClockOffset | None) -> None:
        """Add how far this host's clock is ahead of the first host's; the first one has none."""
        if offset is not None:
            self._offsets.append(offset)

    def finish(self, data_files: Sequence[Path], readings: Mapping[str, ControllerReading]) -> None:
        """Read the state after the run, including what the admin queues returned."""
        self._after = _with_readings(self._read(data_files), readings)

    def report(self) -> CaptureReport:
        """Return the host's parts of the record, as far as they are known."""
        before, after = self._before, self._after
        return CaptureReport(
            host=HostRecord(
                facts=self._host_facts,
                before=before.host,
                after=after.host if after else None,
                clocks=tuple(self._clocks),
                offsets=tuple(self._offsets),
            ),
            targets=tuple(
                TargetRecord(
                    facts=target.facts,
                    before=before.targets[index],
                    after=after.targets[index] if after else None,
                    history=self._histories.get(target.index, DriveHistory()),
                )
                for index, target in enumerate(self._targets)
            ),
            controllers=tuple(self._controller(name) for name in self.controller_names),
        )

    def _controller(self, name: str) -> ControllerRecord:
        before = self._before.controllers[name]
        after = self._after.controllers[name] if self._after else None
        return ControllerRecord(
            facts=self._facts[name],
            before=before,
            after=after,
            difference=difference(before, after) if after is not None else None,
        )


def _target_state(target: Target, data_files: Sequence[Path]) -> TargetState:
    """Return the target's state with the extents of its own data files."""
    if target.kind is TargetKind.BLOCK:
        return target_state(target, ())
    own = [path for path in data_files if path.is_relative_to(target.data_folder)]
    state = target_state(target, own)
    if own or state.extents_per_file is None:
        return state
    reason = "the target has no data file of the run any more"
    missing = {**state.missing, "extents_per_file": reason}
    return state.model_copy(update={"extents_per_file": None, "missing": missing})


def _with_readings(moment: Moment, readings: Mapping[str, ControllerReading]) -> Moment:
    merged = {
        name: with_values(state, readings[name].fields, readings[name].missing)
        if name in readings
        else state
        for name, state in moment.controllers.items()
    }
    return Moment(host=moment.host, targets=moment.targets, controllers=merged)


def _with_power_states(facts: ControllerFacts, reading: ControllerReading) -> ControllerFacts:
    names = ("nvme_version", "power_states", "power")
    return with_values(facts, {name: getattr(reading, name) for name in names})
