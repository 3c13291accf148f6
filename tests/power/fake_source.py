"""A power source whose answers and failures a test chooses."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.errors import PowerDataLostError
from wattload.core.power import (
    Channel,
    Evidence,
    Integral,
    Sample,
    SourceFacts,
    WindowEnergy,
)


class FakeSource:
    """Returns one sample per read and records its calls.

    ``refusal`` is its error at ``open``; at its ``lost_at``-th read it loses its data, at its end
    if that is 0.
    """

    def __init__(
        self, facts: SourceFacts, *, refusal: Exception | None = None, lost_at: int = -1
    ) -> None:
        self.calls: list[str] = []
        self._facts = facts
        self._refusal = refusal
        self._lost_at = lost_at

    @property
    def is_open(self) -> bool:
        return self.calls.count("open") > self.calls.count("close")

    def facts(self) -> SourceFacts:
        return self._facts

    def open(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.calls.append("open")

    def start(self) -> None:
        self.calls.append("start")

    def read(self) -> Sequence[Sample]:
        self.calls.append("read")
        if self.calls.count("read") == self._lost_at:
            raise PowerDataLostError(f"{self._facts.name} overran")
        return [
            Sample(
                time_ns=len(self.calls),
                spread_ns=0,
                source=self._facts.name,
                device=self._facts.device,
                channel=Channel.POWER_W,
                value=1.0,
                evidence=self._facts.evidence,
            )
        ]

    def stop(self) -> Sequence[WindowEnergy]:
        self.calls.append("stop")
        if self._lost_at == 0:
            raise PowerDataLostError(f"{self._facts.name} lost its end")
        if not isinstance(self._facts.sensor, Integral):
            return ()
        return [
            WindowEnergy(
                source=self._facts.name,
                device=self._facts.device,
                start_ns=0,
                end_ns=1,
                energy_j=1.0,
                evidence=Evidence.SELF_REPORTED,
            )
        ]

    def restore(self) -> None:
        self.calls.append("restore")

    def close(self) -> None:
        self.calls.append("close")
