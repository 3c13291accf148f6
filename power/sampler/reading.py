"""The sources of a run while it is sampled: who is read, who is left alone, who has lost data."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.errors import PowerDataLostError
from wattload.core.power import Integral, PowerSource, Sample, WindowEnergy


class Reading:
    """Starts, reads and stops the sources.

    What a drive integrates by itself covers the time in which it is read as well: it begins after
    a quiet at the start and ends before one at the end, so that both can be compared. It begins
    only once every drive was read: the first command after a quiet must be the read that tells it.
    """

    def __init__(self, sources: Sequence[PowerSource]) -> None:
        self._sampled = [each for each in sources if not isinstance(each.facts().sensor, Integral)]
        self._integrals = [each for each in sources if isinstance(each.facts().sensor, Integral)]
        self._left_alone: frozenset[int] = frozenset()
        self._is_quiet = self._has_started = self._is_integrating = self._is_due = False
        self._energies: list[WindowEnergy] = []
        self._lost: dict[int, str] = {}

    @property
    def is_quiet(self) -> bool:
        """Whether drives are left alone."""
        return self._is_quiet

    @property
    def data_lost(self) -> tuple[str, ...]:
        """A sentence for each source that said it dropped readings; it is read no more."""
        return tuple(self._lost.values())

    def start(self) -> None:
        """Begin; a quiet that was asked for before has begun then too."""
        self._has_started = True
        for source in self._sampled:
            source.start()
        if not self._is_quiet:
            self._integrate()

    def quiet(self, *, is_on: bool) -> None:
        """Leave the drives alone, or read them again; meters outside of them are read all along."""
        self._is_quiet = is_on
        self._is_due = self._has_started and not is_on
        asking = [source for source in self._sampled if source.facts().asks_drive]
        self._left_alone = frozenset(map(id, asking)) if is_on else frozenset()
        if is_on:
            self.end_integrals()

    def end_integrals(self) -> bool:
        """End what integrates by itself; returns whether anything did. That may take a second."""
        if not self._is_integrating:
            return False
        self._is_integrating = False
        for source in self._integrals:
            self._energies += self._stopped(source)
        return True

    def read(self) -> list[Sample]:
        """Return what every source has to say that is to be read."""
        samples: list[Sample] = []
        for source in self._sampled:
            if id(source) in self._lost or id(source) in self._left_alone:
                continue
            try:
                samples.extend(source.read())
            except PowerDataLostError as error:
                self._lost[id(source)] = str(error)
        if self._is_due:
            self._is_due = False
            self._integrate()
        return samples

    def stop(self) -> Sequence[WindowEnergy]:
        """End; returns what sources have integrated by themselves."""
        for source in self._sampled:
            self._energies += self._stopped(source)
        self.end_integrals()
        return self._energies

    def _integrate(self) -> None:
        """Begin what integrates by itself; once only, for it is of one window."""
        if not self._is_integrating and not self._energies:
            self._is_integrating = bool(self._integrals)
            for source in self._integrals:
                source.start()

    def _stopped(self, source: PowerSource) -> Sequence[WindowEnergy]:
        try:
            return source.stop()
        except PowerDataLostError as error:
            self._lost.setdefault(id(source), str(error))
            return ()
