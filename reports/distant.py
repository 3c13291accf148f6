"""Traces that are read anew when they are asked for: those of a thousand runs are not held."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wattload.reports.traces import OperationTrace, PowerTrace, ThroughputTrace, Traces

Said = tuple[tuple[str, ...], Mapping[str, str]]


class DistantTraces(Traces):
    """The traces of one run, left on disk; only notes and digests are kept once they are known.

    ``read`` should remember the traces it read last: who asks for one mostly asks for all. ``said``
    are notes and digests, where they are known.
    """

    __slots__ = ("_read", "_said")
    _read: Callable[[], Traces]
    _said: Said | None

    def __init__(self, read: Callable[[], Traces], said: Said | None = None) -> None:
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_said", said)

    @property
    def throughput(self) -> ThroughputTrace | None:
        """The bytes over time."""
        return self._read().throughput

    @property
    def power(self) -> PowerTrace | None:
        """The samples of power and of what a drive says of itself."""
        return self._read().power

    @property
    def operations(self) -> OperationTrace | None:
        """The single operations that were sampled."""
        return self._read().operations

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing of the traces."""
        return self._kept()[0]

    @property
    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of each file."""
        return self._kept()[1]

    def _kept(self) -> Said:
        if self._said is not None:
            return self._said
        traces = self._read()
        said = (traces.notes, traces.digests)
        object.__setattr__(self, "_said", said)
        return said
