"""What sources of one asked-for quantity share: a read is a question, and nothing is changed."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from wattload.core.errors import PowerError
from wattload.core.power import Channel, Counter, Sample, SourceFacts, WindowEnergy


class PolledSource(ABC):
    """One quantity of one device, asked for at every read.

    Joules where the sensor of the facts is a counter, else watts. ``is_slow`` says that an answer
    may take longer than a tick: the sampler then asks in a thread of its own, every ``period_s`` of
    the facts.
    """

    is_slow: ClassVar[bool] = False

    def __init__(self, facts: SourceFacts) -> None:
        """Take what is known of the source before it is opened."""
        self._facts = facts
        self._is_open = False

    @abstractmethod
    def _prepare(self) -> SourceFacts:
        """Find the device, ask it once and return the facts; raises ``PowerError``."""

    @abstractmethod
    def _ask(self) -> float | None:
        """Return joules or watts; ``None``, ``OSError``, ``ValueError``, ``PowerError``: no answer.

        A source may be asked after the device has gone.
        """

    def _release(self) -> None:  # noqa: B027 - most sources hold nothing
        """Give back what ``_prepare`` took; safe to call twice."""

    def facts(self) -> SourceFacts:
        """Return what the source is; the sensor is known after ``open``."""
        return self._facts

    def open(self) -> None:
        """Find the device; raises ``PowerError`` with one sentence when it can't be read."""
        try:
            self._facts = self._prepare()
        except BaseException:
            self._release()
            raise
        self._is_open = True

    def start(self) -> None:  # noqa: B027 - no such source has anything to do here
        """Nothing to begin: the sensor always measures."""

    def read(self) -> Sequence[Sample]:
        """Return one sample; without value where the device gave none."""
        if not self._is_open:
            raise PowerError(f"{self._facts.name} is read before it was opened")
        start_ns = time.monotonic_ns()
        value: float | None
        try:
            value = self._ask()
        except (OSError, ValueError, PowerError):
            value = None
        end_ns = time.monotonic_ns()
        sample = Sample(
            time_ns=(start_ns + end_ns) // 2,
            spread_ns=end_ns - start_ns,
            source=self._facts.name,
            device=self._facts.device,
            channel=self._channel(),
            value=value if value is not None and math.isfinite(value) else None,
            evidence=self._facts.evidence,
        )
        return (sample,)

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing: what it says is integrated from its samples."""
        return ()

    def restore(self) -> None:  # noqa: B027 - no such source has anything to do here
        """Nothing to undo: these sources only read."""

    def close(self) -> None:
        """Give the device back; safe to call twice."""
        self._is_open = False
        self._release()

    def _channel(self) -> Channel:
        is_counter = isinstance(self._facts.sensor, Counter)
        return Channel.ENERGY_J if is_counter else Channel.POWER_W
