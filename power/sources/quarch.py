"""A Quarch power module on the drive's rails, streamed by QIS: the reference among the sources.

Up to 250,000 readings a second of each rail become one figure per read period: the joules up to
its end, exactly, with the least and the greatest power in it. A module that drops readings has
lost joules: such a run fails.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from wattload.core.errors import ConfigError, PowerDataLostError, PowerError
from wattload.core.power import (
    Channel,
    Counter,
    Evidence,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
    WindowEnergy,
)
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.quarch.config import QuarchConfig
from wattload.power.quarch.header import Rail, StreamHeader
from wattload.power.quarch.qis import Qis
from wattload.power.quarch.stream import Stream, halt, read_header, record
from wattload.power.quarch.thinning import Interval
from wattload.power.sources import PowerDevice
from wattload.power.sources.onedevice import the_device

NAME = "quarch"

_REFUSALS = ("fail", "invalid", "no target")
"""Words of QIS's answer where a module can't be reached; its command then has no effect."""

_UNKNOWN_STEP_W = 1e-6
"""Stands for a resolution that the rails' names do not give: QIS computes power in microwatts."""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of the configured module, for the drive that it feeds.

    Raises:
        ConfigError: no module is named, or it is not clear which drive it feeds.
    """
    meter = config.quarch
    if meter is None:
        raise ConfigError("power=quarch needs power.quarch.module=, e.g. tcp::qtl1999-02-020")
    device = the_device(devices, meter.device, setting="power.quarch.device")
    return [QuarchSource(device, meter, period_s=config.period_s)]


class QuarchSource:
    """One module that feeds one drive: the drive's energy is the sum over its rails."""

    def __init__(self, device: PowerDevice, config: QuarchConfig, *, period_s: float) -> None:
        self._device = device
        self._config = config
        self._period_s = period_s
        self._qis: Qis | None = None
        self._header: StreamHeader | None = None
        self._rails: tuple[Rail, ...] = ()
        self._module_name = ""
        self._stream: Stream | None = None

    def facts(self) -> SourceFacts:
        """Return what the source is; valid after ``open``."""
        steps_w = [rail.resolution_w() for rail in self._rails]
        known_w = [step for step in steps_w if step is not None]
        resolution_w = sum(known_w) if known_w and len(known_w) == len(steps_w) else None
        period_ns = self._header.period_ns if self._header else 1
        return SourceFacts(
            name=NAME,
            device=self._device.key,
            device_name=self._device.name,
            scope=Scope.DRIVE,
            evidence=Evidence.MEASURED,
            sensor=Counter(quantum_j=(resolution_w or _UNKNOWN_STEP_W) * period_ns / NS_PER_S),
            period_s=self._period_s,
            resolution_w=resolution_w,
            accuracy_percent=self._config.accuracy_percent,
            detail=self._detail(),
        )

    def open(self) -> None:
        """Reach the module and learn from a short stream what it measures.

        Raises:
            PowerError: QIS or the module can't be reached, or it streams for somebody else.
            ConfigError: a rail is named that it does not measure.
        """
        self._config.check()
        self._qis = Qis(self._config.host, self._config.port, self._config.module)
        try:
            self._module_name = self._hello(self._qis)
            self._qis.ask("stream mode header v3")
            record(self._qis)
            try:
                self._header = read_header(self._qis)
            finally:
                halt(self._qis)
            self._rails = self._header.rails(self._config.rails)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Begin to stream.

        Raises:
            PowerError: the module refuses, or streams something else than at ``open``.
        """
        qis, header = self._opened()
        self._stream = Stream(qis, header, self._rails, period_s=self._period_s)
        if read_header(qis) != header:
            raise PowerError(f"{qis.module} was set to another stream since it was opened")

    def read(self) -> Sequence[Sample]:
        """Return what came since the last read, in periods that are complete.

        Raises:
            PowerDataLostError: the module dropped readings; what came before was returned.
        """
        self._opened()
        if self._stream is None:
            raise PowerError(f"{self._config.module} is read before its stream was started")
        try:
            intervals = self._stream.drain()
        except PowerDataLostError:
            raise
        except PowerError:
            return (self._sample(time.monotonic_ns(), 0, Channel.ENERGY_J, None),)
        return [
            sample for interval in intervals for sample in self._samples(self._stream, interval)
        ]

    def stop(self) -> Sequence[WindowEnergy]:
        """End the stream; what it measured is integrated from the samples.

        Raises:
            PowerDataLostError: the module dropped readings.
        """
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.finish()
        return ()

    def restore(self) -> None:
        """End a stream that is still running."""
        stream, self._stream = self._stream, None
        if stream is not None and self._qis is not None:
            halt(self._qis)

    def close(self) -> None:
        """Leave QIS; safe to call twice."""
        if self._qis is not None:
            self._qis.close()
            self._qis = None
        self._stream = None

    def _opened(self) -> tuple[Qis, StreamHeader]:
        if self._qis is None or self._header is None:
            raise PowerError(f"{self._config.module} is used before it was opened")
        return self._qis, self._header

    def _hello(self, qis: Qis) -> str:
        name = " ".join(qis.ask("hello?").split())
        if not name or any(word in name.lower() for word in _REFUSALS):
            listed = " ".join(qis.ask_server("$list").split())
            raise PowerError(
                f"QIS on {qis.place} can't reach module {self._config.module} "
                f"({name or 'silence'}); it lists: {listed or 'nothing'}"
            )
        state = qis.stream_state()
        if state.is_running:
            raise PowerError(
                f"{self._config.module} streams already, for somebody else; end that first "
                "(QPS: stop the stream)"
            )
        return name

    def _detail(self) -> str:
        if self._header is None:
            return f"module {self._config.module}, not reached yet"
        rails = " + ".join(rail.describe() for rail in self._rails)
        rate = NS_PER_S / self._header.period_ns
        accuracy = self._config.accuracy_percent
        stated = (
            f"accuracy {accuracy:g} %"
            if accuracy is not None
            else "accuracy not stated (power.quarch.accuracy_percent)"
        )
        return (
            f"{self._module_name} {self._config.module}: {rails} at {rate:,.0f} readings a second, "
            f"kept as joules, least and greatest watts per {self._period_s:g} s; {stated}"
        )

    def _samples(self, stream: Stream, interval: Interval) -> list[Sample]:
        """Return the count at the interval's end and the extremes at its middle."""
        end_ns, spread_ns = stream.host_ns(interval.end_ns), stream.spread_ns
        middle_ns = end_ns - (interval.end_ns - interval.start_ns) // 2
        return [
            self._sample(end_ns, spread_ns, Channel.ENERGY_J, interval.energy_j),
            self._sample(middle_ns, spread_ns, Channel.MIN_W, interval.min_w),
            self._sample(middle_ns, spread_ns, Channel.MAX_W, interval.max_w),
        ]

    def _sample(
        self, time_ns: int, spread_ns: int, channel: Channel, value: float | None
    ) -> Sample:
        return Sample(
            time_ns=time_ns,
            spread_ns=spread_ns,
            source=NAME,
            device=self._device.key,
            channel=channel,
            value=value,
            evidence=Evidence.MEASURED,
        )
