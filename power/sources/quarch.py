"""A Quarch power module on the drive's rails, streamed by QIS: the reference among the sources.

Up to 250,000 readings per second of each rail are reduced to a few figures per read period: the
exact joules up to its end, and the least and greatest power in it. If the module drops readings,
energy is missing and the run fails.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wattload.core.errors import PowerDataLostError, PowerError
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
from wattload.power.config import PowerConfig, QuarchConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PassiveSource, PowerDevice, single_device

if TYPE_CHECKING:  # both need NumPy, which a sampler without this meter does not load
    from wattload.power.sources.quarch_protocol import Qis, Rail, StreamHeader
    from wattload.power.sources.quarch_stream import Interval, Stream

METER = Meter(
    scope=Scope.DRIVE,
    settings="power.quarch.module=tcp::qtl1999-02-020",
    measures="the power of a drive at its rails",
)

NAME = "quarch"

_REFUSALS = ("fail", "invalid", "no target")
"""Words in QIS's answer if a module can't be reached; the command then has no effect."""

_UNKNOWN_STEP_W = 1e-6
"""The resolution if the rails' names don't give it: QIS computes power in microwatts."""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of the configured module, for the drive that it feeds.

    Raises:
        ConfigError: no module is configured, or the drive that it feeds is not clear.
    """
    meter = config.quarch
    meter.check()
    device = single_device(devices, meter.device, setting="power.quarch.device")
    return [QuarchSource(device, meter, period_s=config.period_s)]


class QuarchSource(PassiveSource):
    """One module that feeds one drive: the drive's energy is the sum over its rails."""

    def __init__(self, device: PowerDevice, config: QuarchConfig, *, period_s: float) -> None:
        super().__init__(
            SourceFacts(
                name=NAME,
                device=device.key,
                device_name=device.name,
                scope=Scope.DRIVE,
                evidence=Evidence.MEASURED,
                sensor=Counter(quantum_j=_UNKNOWN_STEP_W / NS_PER_S),
                period_s=period_s,
                accuracy=config.accuracy.stated,
                range_w=config.range_w,
                detail=f"module {config.module}, not opened yet",
                meter=config.module,
            )
        )
        self._config = config
        self._qis: Qis | None = None
        self._header: StreamHeader | None = None
        self._rails: tuple[Rail, ...] = ()
        self._stream: Stream | None = None

    def open(self) -> None:
        """Connect to the module and find out from a short stream what it measures.

        Raises:
            PowerError: QIS or the module can't be reached, or another client streams from it.
            ConfigError: a configured rail is not in the stream.
        """
        from wattload.power.sources.quarch_protocol import Qis
        from wattload.power.sources.quarch_stream import halt, read_header, record

        self._qis = Qis(self._config.host, self._config.port, self._config.module)
        try:
            module_name = self._identify(self._qis)
            self._qis.command("stream mode header v3")
            record(self._qis)
            try:
                self._header = read_header(self._qis)
            finally:
                halt(self._qis)
            self._rails = self._header.rails(self._config.rails)
            self._facts = self._facts_of(module_name, self._header)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start streaming.

        Raises:
            PowerError: the module refuses, or its stream has changed since ``open``.
        """
        from wattload.power.sources.quarch_stream import Stream, read_header

        qis, header = self._opened()
        self._stream = Stream(qis, header, self._rails, period_s=self._facts.period_s)
        if read_header(qis) != header:
            raise PowerError(
                f"the stream settings of {qis.module} were changed after it was opened"
            )

    def read(self) -> Sequence[Sample]:
        """Return the complete periods since the last read.

        Raises:
            PowerDataLostError: the module dropped readings; earlier calls returned those before.
        """
        self._opened()
        if self._stream is None:
            raise PowerError(f"{self._config.module} was read before its stream was started")
        try:
            intervals = self._stream.drain()
        except PowerDataLostError:
            raise
        except PowerError:
            return (self._sample(Channel.ENERGY_J, None, time.monotonic_ns()),)
        return [
            sample for interval in intervals for sample in self._samples(self._stream, interval)
        ]

    def stop(self) -> Sequence[WindowEnergy]:
        """Stop the stream; its energy is integrated from the samples.

        Raises:
            PowerDataLostError: the module dropped readings.
        """
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.finish()
        return ()

    def restore(self) -> None:
        from wattload.power.sources.quarch_stream import halt

        stream, self._stream = self._stream, None
        if stream is not None and self._qis is not None:
            halt(self._qis)

    def close(self) -> None:
        """Disconnect from QIS; safe to call twice."""
        if self._qis is not None:
            self._qis.close()
            self._qis = None
        self._stream = None

    def _opened(self) -> tuple[Qis, StreamHeader]:
        if self._qis is None or self._header is None:
            raise PowerError(f"{self._config.module} was used before it was opened")
        return self._qis, self._header

    def _identify(self, qis: Qis) -> str:
        name = " ".join(qis.command("hello?").split())
        if not name or any(word in name.lower() for word in _REFUSALS):
            listed = " ".join(qis.server_command("$list").split())
            raise PowerError(
                f"QIS on {qis.place} can't reach module {self._config.module} "
                f"({name or 'no answer'}); it lists: {listed or 'nothing'}"
            )
        state = qis.stream_state()
        if state.is_running:
            raise PowerError(
                f"another client already streams from {self._config.module}; stop that stream "
                "first (in QPS: stop the stream)"
            )
        return name

    def _facts_of(self, module_name: str, header: StreamHeader) -> SourceFacts:
        """Return the facts of the source with those of the module's stream."""
        steps_w = [rail.resolution_w() for rail in self._rails]
        known_w = [step for step in steps_w if step is not None]
        resolution_w = sum(known_w) if known_w and len(known_w) == len(steps_w) else None
        quantum_j = (resolution_w or _UNKNOWN_STEP_W) * header.period_ns / NS_PER_S
        rails = " + ".join(rail.describe() for rail in self._rails)
        accuracy = self._config.accuracy.stated
        stated = (
            f"accuracy {accuracy.text}"
            if accuracy is not None
            else "accuracy not stated (power.quarch.accuracy)"
        )
        detail = (
            f"{module_name} {self._config.module}: {rails} at {NS_PER_S / header.period_ns:,.0f} "
            f"readings per second, kept as joules, least and greatest watts per "
            f"{self._facts.period_s:g} s; {stated}"
        )
        return self._facts.model_copy(
            update={
                "sensor": Counter(quantum_j=quantum_j),
                "resolution_w": resolution_w,
                "detail": detail,
            }
        )

    def _samples(self, stream: Stream, interval: Interval) -> list[Sample]:
        """Return the count at the end of the interval, and the extremes at its middle."""
        end_ns, spread_ns = stream.host_ns(interval.end_ns), stream.spread_ns
        middle_ns = end_ns - (interval.end_ns - interval.start_ns) // 2
        extremes = {Channel.MIN_W: interval.min_w, Channel.MAX_W: interval.max_w}
        return [
            self._sample(Channel.ENERGY_J, interval.energy_j, end_ns, spread_ns),
            *(
                self._sample(channel, watts, middle_ns, spread_ns)
                for channel, watts in extremes.items()
            ),
        ]
