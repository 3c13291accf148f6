"""One run in the sampler: what is requested, opened, sampled, and undone at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from wattload.core.errors import PowerError, WattloadError
from wattload.core.power import PowerSource, SourceFacts
from wattload.core.record.energy import PowerStateRecord
from wattload.power.config import PowerConfig
from wattload.power.control.undo import recover_changes
from wattload.power.nvme.admin import DEVICE_NAME
from wattload.power.registry import NONE
from wattload.power.sampler.drive import Drive, apply_all, hold_all
from wattload.power.sampler.host import SamplerHost, power_config, require_device_names
from wattload.power.sampler.polling import (
    BlockCounter,
    CostMeter,
    Schedule,
    SourceReader,
    WrittenCounter,
    in_background,
    take_last_readings,
)
from wattload.power.sampler.protocol import ControllerReading, FinishReply, OpenReply
from wattload.power.sampler.samples import BackgroundWriter, RoundTarget, SampleLines
from wattload.power.sources import replay
from wattload.power.sources.base import PassiveSource, PowerDevice
from wattload.power.sources.selection import select, watch_states

_LOG = logging.getLogger(__name__)


class Recording:
    """The life of one run in the sampler: open, start, ticks, then finish or end.

    After ``end`` nothing is set, locked or open, whatever the order of calls. ``make_target``
    returns where the samples go, for their period.
    """

    def __init__(
        self, host: SamplerHost, run_id: str, make_target: Callable[[float], RoundTarget]
    ) -> None:
        self.run_id = run_id
        self._host = host
        self._make_target = make_target
        self._stage = "created"
        self._period_s = 0.0
        self._drives: list[Drive] = []
        self._sources: Sequence[PowerSource] = ()
        self._counters: list[BlockCounter] = []
        self._written: list[WrittenCounter] = []
        self._reader = SourceReader(())
        self._lines = SampleLines()
        self._writer: BackgroundWriter | None = None
        self._schedule: Schedule | None = None
        self._cost: CostMeter | None = None

    @property
    def due_ns(self) -> int | None:
        """When the next tick is due; ``None`` unless the run is being sampled."""
        return self._schedule.due_ns if self._schedule and self._stage == "sampling" else None

    @property
    def states(self) -> tuple[PowerStateRecord, ...]:
        """The power states and settings of the drives, as far as they are known."""
        return tuple(drive.record(self._host.name) for drive in self._drives)

    def open(
        self,
        request: Mapping[str, Any],
        devices: Sequence[str],
        block_devices: Sequence[str],
        replayed: Mapping[str, Any] | None = None,
    ) -> OpenReply:
        """Undo what earlier runs left behind, set the power state, open the sources.

        ``replayed`` has the facts of a trace that the client of a service reads itself.

        Raises:
            PowerError: the request can't be met; nothing has changed.
        """
        self._expect("created")
        try:
            reply = self._open(request, devices, block_devices, replayed)
        except BaseException:
            self.end()
            raise
        self._stage = "open"
        return reply

    def start(self) -> None:
        self._expect("open")
        self._writer = BackgroundWriter(self._make_target(self._period_s))
        self._reader.start()
        self._cost = CostMeter(is_quiet=self._reader.is_quiet)
        self._schedule = Schedule(self._period_s, time.monotonic_ns())
        self._stage = "sampling"

    def tick(self) -> None:
        """Read every source and counter once and pass the samples on."""
        if self._schedule is None or self._cost is None or self._writer is None:
            raise PowerError("sampling has not started")
        start_ns = time.monotonic_ns()
        samples = self._reader.read()
        for counter in self._counters:
            samples.extend(counter.read())
        if not self._reader.is_quiet:
            for written in self._written:
                samples.extend(written.read())
        self._writer.write(self._lines.of(samples))
        end_ns = time.monotonic_ns()
        self._cost.add_tick(start_ns, end_ns)
        self._schedule.advance(end_ns)

    def quiet(self, *, is_on: bool) -> None:
        """Pause or resume reading the drives; meters outside of them are always read."""
        self._expect("open", "sampling")
        if is_on and self._reader.end_integrals():
            self.tick()  # the samples must cover the whole time of the drives' own measurements
        self._reader.quiet(is_on=is_on)
        if self._cost is not None:
            self._cost.quiet(is_on=is_on)

    def finish(self) -> FinishReply:
        """Take a last reading, read the controllers, restore, and release everything."""
        self._expect("open", "sampling")
        if self._stage == "sampling":
            self.quiet(is_on=False)
            self._reader.end_integrals()
            take_last_readings(self._sources)
            for written in self._written:
                written.finish()
            self.tick()
        cost = None
        if self._cost is not None and self._schedule is not None:
            cost = self._cost.record(
                host=self._host.name, period_s=self._period_s, schedule=self._schedule
            )
        energies = self._reader.stop()
        controllers = self._read_controllers()
        self._release()
        sample_count, lost_count = self._writer.close() if self._writer else (0, 0)
        reply = FinishReply(
            states=self.states,
            controllers=controllers,
            own_energies=tuple(energies),
            data_lost=self._reader.data_lost,
            cost=cost,
        )
        return reply.with_counts(sample_count, lost_count)

    def end(self) -> None:
        """Restore and release everything; safe to call at any time and twice."""
        if self._stage != "ended":
            self._release()
            if self._writer is not None:
                self._writer.close()

    def _open(
        self,
        request: Mapping[str, Any],
        names: Sequence[str],
        block_devices: Sequence[str],
        replayed: Mapping[str, Any] | None,
    ) -> OpenReply:
        require_device_names([*names, *block_devices])
        config = power_config(request, names, self._host)
        recoveries = recover_changes(self._host)
        self._open_drives(names, config)
        controllers = self._read_controllers()
        apply_all(self._drives, config, holds_system=self._host.holds_system)
        self._open_counters(block_devices)
        if config.source != NONE:
            self._open_written_counters()
        devices = self._power_devices(names)
        facts = [SourceFacts.model_validate(replayed)] if replayed else []
        traces = [PassiveSource(each) for each in facts]
        # A service opens no file that a run names.
        elsewhere = {replay.NAME: traces} if self._host.is_service else {}
        selection = select(devices, config, host=self._host.name, elsewhere=elsewhere)
        watchers = watch_states(selection, devices, config)
        self._sources = in_background([*selection.sources, *watchers])
        self._reader = SourceReader(self._sources)
        self._period_s = config.period_s
        return OpenReply(
            host=self._host.name,
            choice=selection.choice,
            sources=selection.records,
            states=self.states,
            controllers=controllers,
            recovered=tuple(each.sentence for each in recoveries if not each.in_use),
        )

    def _open_drives(self, names: Sequence[str], config: PowerConfig) -> None:
        """Open and lock the run's drives: concurrent runs would share bandwidth and energy."""
        for name in names:
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
        hold_all(self._drives, needed=bool(config.settings_text))

    def _open_counters(self, names: Sequence[str]) -> None:
        for name in names:
            counter = BlockCounter(name)
            with suppress(PowerError):  # a device without counters
                counter.open()
                self._counters.append(counter)

    def _open_written_counters(self) -> None:
        for drive in self._drives:
            written = WrittenCounter(
                drive.name, key=drive.serial, open_device=self._host.open_device
            )
            with suppress(PowerError):  # a drive that can't be read without harm
                written.open()
                self._written.append(written)

    def _power_devices(self, names: Sequence[str]) -> list[PowerDevice]:
        serials = {drive.name: drive.serial for drive in self._drives}
        return [
            PowerDevice(
                key=serials.get(name, name),
                name=name,
                is_nvme=name in serials,
                journal=self._host.journal,
                run_id=self.run_id,
            )
            for name in names
        ]

    def _read_controllers(self) -> dict[str, ControllerReading]:
        return {drive.name: drive.read() for drive in self._drives}

    def _release(self) -> None:
        """Undo and close everything, the power state first, because later steps may fail.

        A failure in one step, even a bug, does not prevent the others.
        """
        self._stage = "ended"
        steps: list[Callable[[], None]] = [drive.restore for drive in self._drives]
        steps += [source.restore for source in self._sources]
        steps += [drive.close for drive in self._drives]
        steps += [source.close for source in self._sources]
        steps += [counter.close for counter in self._counters]
        steps += [written.close for written in self._written]
        for step in steps:
            try:
                step()
            except (WattloadError, OSError) as error:
                _LOG.error("run %s: %s", self.run_id, error)
            except Exception:
                _LOG.exception("run %s: bug while ending it", self.run_id)

    def _expect(self, *stages: str) -> None:
        if self._stage not in stages:
            raise PowerError(
                f"this command belongs after {' or '.join(stages)}; the run is {self._stage}"
            )
