"""One run as the sampler sees it: what was opened for it, sampled in it, and must be undone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.errors import PowerError, WattloadError
from wattload.core.power import PowerSource
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.sampler import SamplerRecord
from wattload.power.leftovers import undo_leftovers
from wattload.power.nvme.admin import DEVICE_NAME
from wattload.power.replay.staging import unstage
from wattload.power.sampler.blockcount import BlockCounter
from wattload.power.sampler.cost import CostMeter
from wattload.power.sampler.drive import Drive, apply_all, hold_all
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.peer import Peer, acting_as
from wattload.power.sampler.protocol import Open
from wattload.power.sampler.reading import Reading
from wattload.power.sampler.reports import (
    ControllerReading,
    FinishReport,
    OpenReport,
    OwnEnergy,
    StatusReport,
)
from wattload.power.sampler.runfolder import check_run_folder, create_samples
from wattload.power.sampler.schedule import Schedule
from wattload.power.samples import SampleFile

if TYPE_CHECKING:
    from wattload.core.record.run import Status
    from wattload.power.config import PowerConfig
    from wattload.power.sources import PowerDevice

_LOG = logging.getLogger(__name__)


class Recording:
    """The life of one run in the sampler: open, start, ticks, then finish or end.

    Whatever the order of calls, ``end`` leaves nothing set, locked or open.
    """

    def __init__(self, host: SamplerHost, peer: Peer, run_id: str) -> None:
        self._host = host
        self._peer = peer
        self.run_id = run_id
        with acting_as(peer):
            self._folder: Path = check_run_folder(
                host.runs, run_id, uid=peer.uid if host.is_service else None
            )
        self._stage = "greeted"
        self._period_s = 0.0
        self._drives: list[Drive] = []
        self._sources: Sequence[PowerSource] = ()
        self._counters: list[BlockCounter] = []
        self._not_counted: dict[str, str] = {}
        self._reading = Reading(())
        self._file: SampleFile | None = None
        self._schedule: Schedule | None = None
        self._cost: CostMeter | None = None

    @property
    def due_ns(self) -> int | None:
        """When the next tick is due, ``None`` while nothing is sampled."""
        return self._schedule.due_ns if self._schedule and self._stage == "sampling" else None

    def open(self, command: Open) -> OpenReport:
        """Undo what earlier runs left, set the power state, open the sources.

        Raises:
            PowerError: the request can't be met; everything is as it was before.
        """
        self._expect("greeted")
        try:
            report = self._open(command)
        except BaseException:
            self._release()
            raise
        self._stage = "open"
        return report

    def start(self) -> None:
        """Create the samples file and begin to sample."""
        self._expect("open")
        with acting_as(self._peer):
            descriptor = create_samples(self._folder / self._host.samples_name)
            self._file = SampleFile(descriptor, host=self._host.name, period_s=self._period_s)
        self._reading.start()
        self._cost = CostMeter(is_quiet=self._reading.is_quiet)
        self._schedule = Schedule(self._period_s, time.monotonic_ns())
        self._stage = "sampling"

    def tick(self) -> None:
        """Read every source and counter once and write what they say."""
        if self._file is None or self._schedule is None or self._cost is None:
            raise PowerError("the sampler has not started to sample")
        start_ns = time.monotonic_ns()
        samples = self._reading.read()
        for counter in self._counters:
            samples.extend(counter.read())
        with acting_as(self._peer):  # whose quota it is
            self._file.write(samples)
        end_ns = time.monotonic_ns()
        self._cost.add_tick(start_ns, end_ns)
        self._schedule.advance(end_ns)

    def quiet(self, *, is_on: bool) -> None:
        """Leave the drives alone, or read them again; meters outside of them are read all along."""
        self._expect("open", "sampling")
        if is_on and self._reading.end_integrals():
            self.tick()  # what samples tell is to reach as far as what the drive integrated
        self._reading.quiet(is_on=is_on)
        if self._cost is not None:
            self._cost.quiet(is_on=is_on)

    def status(self) -> StatusReport:
        """Return how far it is."""
        return StatusReport(
            state=self._stage,
            tick_count=self._schedule.tick_count if self._schedule else 0,
            missed_tick_count=self._schedule.missed_count if self._schedule else 0,
            sample_count=self._file.sample_count if self._file else 0,
            lost_sample_count=self._file.lost_count if self._file else 0,
            cpu_s=self._cost.cpu_s() if self._cost else 0.0,
        )

    def finish(self) -> FinishReport:
        """Take a last reading, read the controllers, restore, and give everything back."""
        from wattload.power.sampler.background import take_last_readings

        self._expect("open", "sampling")
        if self._stage == "sampling":
            self.quiet(is_on=False)
            self._reading.end_integrals()
            take_last_readings(self._sources)
            self.tick()
        status, cost = self.status(), self._cost_record()
        energies = self._reading.stop()
        controllers = self._read_controllers()
        sampled = self._file is not None
        self._release()
        return FinishReport(
            host=self._host.name,
            samples_file=self._host.samples_name if sampled else None,
            states=self._states(),
            controllers=controllers,
            own_energies=tuple(OwnEnergy(**asdict(energy)) for energy in energies),
            data_lost=self._reading.data_lost,
            cost=cost,
            **status.model_dump(exclude={"state"}),
        )

    def _cost_record(self) -> SamplerRecord | None:
        if self._cost is None or self._schedule is None or self._file is None:
            return None
        return self._cost.record(
            host=self._host.name,
            period_s=self._period_s,
            schedule=self._schedule,
            file=self._file,
        )

    def end(self) -> None:
        """Restore and give everything back; safe to call at any time and twice."""
        if self._stage != "ended":
            self._release()

    def write_record(self, status: Status, reason: str) -> None:
        """Write the record of a run that has none; what prevents it is logged."""
        from wattload.power.sampler.aftermath import finish_aborted

        states = self._states()
        told = " ".join(state.sentence for state in states if state.knob is not None)
        try:
            finish_aborted(
                self._folder,
                status,
                f"{reason.rstrip('.')}. {told}".strip(),
                states=states,
                rights=partial(acting_as, self._peer),
            )
        except (WattloadError, OSError, ValueError, RecursionError) as error:
            # Whatever a user has put into his run's folder, the sampler outlives it.
            _LOG.error("run %s has no record: %s", self.run_id, error)

    def _open(self, command: Open) -> OpenReport:
        from wattload.power.sampler.background import in_background
        from wattload.power.sampler.request import power_config, watch_states
        from wattload.power.selection import select

        config = power_config(command.request, command.devices, self._host)
        leftovers = undo_leftovers(self._host)
        self._open_drives(command, config)
        controllers = self._read_controllers()
        apply_all(self._drives, config, holds_system=self._host.holds_system)
        self._open_counters(command.block_devices)
        devices = self._power_devices(command)
        config = unstage(config, self._folder)
        selection = select(devices, config, host=self._host.name)
        watching = watch_states(selection, devices, config)
        self._sources = in_background([*selection.sources, *watching])
        self._reading = Reading(self._sources)
        self._period_s = config.period_s
        return OpenReport(
            host=self._host.name,
            choice=selection.choice,
            sources=selection.records,
            states=self._states(),
            controllers=controllers,
            leftovers=tuple(leftover.sentence for leftover in leftovers),
            not_counted=self._not_counted,
        )

    def _open_drives(self, command: Open, config: PowerConfig) -> None:
        """Open the run's drives and hold them: two runs at once would share speed and joules."""
        for name in command.devices:
            if not DEVICE_NAME.fullmatch(name):
                continue
            drive = Drive(
                name,
                serial=self._host.serial_of(name),
                journal=self._host.journal,
                run_id=self.run_id,
            )
            self._drives.append(drive)
            drive.open(self._host.open_device)
        hold_all(self._drives, needed=bool(config.changes))

    def _open_counters(self, names: Sequence[str]) -> None:
        for name in names:
            counter = BlockCounter(name)
            try:
                counter.open()
            except PowerError as error:
                self._not_counted[name] = str(error)
            else:
                self._counters.append(counter)

    def _power_devices(self, command: Open) -> list[PowerDevice]:
        serials = {drive.name: drive.serial for drive in self._drives}
        from wattload.power.sources import PowerDevice

        return [
            PowerDevice(
                key=serials.get(name, name),
                name=name,
                is_nvme=name in serials,
                journal=self._host.journal,
                run_id=self.run_id,
                rights=partial(acting_as, self._peer),
            )
            for name in command.devices
        ]

    def _read_controllers(self) -> dict[str, ControllerReading]:
        return {drive.name: drive.read() for drive in self._drives}

    def _states(self) -> tuple[PowerStateRecord, ...]:
        return tuple(drive.record(self._host.name) for drive in self._drives)

    def _release(self) -> None:
        """Undo and close in this order: power state first, for what follows may fail.

        Whatever breaks in one step, even a bug, keeps none of the others from being done.
        """
        self._stage = "ended"
        steps: list[Callable[[], None]] = [drive.restore for drive in self._drives]
        steps += [source.restore for source in self._sources]
        steps += [drive.close for drive in self._drives]
        steps += [source.close for source in self._sources]
        steps += [counter.close for counter in self._counters]
        if self._file is not None:
            steps.append(self._file.close)
        for step in steps:
            try:
                step()
            except (WattloadError, OSError) as error:
                _LOG.error("run %s: %s", self.run_id, error)
            except Exception:
                _LOG.exception("run %s: a bug as it was ended", self.run_id)

    def _expect(self, *stages: str) -> None:
        if self._stage not in stages:
            raise PowerError(
                f"this command belongs after {' or '.join(stages)}; the run is {self._stage}"
            )
