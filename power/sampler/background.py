"""Slow sources beside fast ones: each is asked in a thread of its own, so that no tick waits.

A BMC takes tens of milliseconds to answer and seconds to fail; a drive sampled ten times a second
must not notice. The samples keep the times at which they were taken.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

from wattload.core.errors import PowerDataLostError
from wattload.core.power import PowerSource, Sample, SourceFacts, WindowEnergy
from wattload.core.units import NS_PER_S
from wattload.power.sampler.schedule import Schedule
from wattload.power.sources.polled import PolledSource

_LOG = logging.getLogger(__name__)

LAST_READING_S = 3.0
"""How long the end of a run waits for the last readings of all slow sources together."""


def in_background(sources: Iterable[PowerSource]) -> list[PowerSource]:
    """Return the sources, those that are slow wrapped so that ``read`` never waits."""
    return [
        BackgroundSource(source) if isinstance(source, PolledSource) and source.is_slow else source
        for source in sources
    ]


def take_last_readings(sources: Iterable[PowerSource], *, wait_s: float = LAST_READING_S) -> None:
    """Have each slow source read once more, so that its trace reaches over the end of the work."""
    slow = [source for source in sources if isinstance(source, BackgroundSource)]
    for source in slow:
        source.finish()
    deadline_s = time.monotonic() + wait_s
    for source in slow:
        source.wait(max(0.0, deadline_s - time.monotonic()))


class BackgroundSource:
    """A source that is read in a thread from ``start`` on, every ``period_s`` of its facts.

    ``read`` hands over what has been read since; where an answer hangs it returns nothing, and the
    trace has a hole. A thread that hangs at the end is left behind and closes its source itself.
    """

    def __init__(self, source: PowerSource) -> None:
        self._source = source
        self._samples: deque[Sample] = deque()
        self._trouble: PowerDataLostError | None = None
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._is_reading = False
        self._is_closing = False
        self._is_left_behind = False

    def facts(self) -> SourceFacts:
        """Return what the source is."""
        return self._source.facts()

    def open(self) -> None:
        """Open the source; this waits for it."""
        self._source.open()
        self._hurry.clear()
        self._is_closing = False

    def start(self) -> None:
        """Begin to read in the background."""
        self._source.start()
        self._is_reading = True
        self._thread = threading.Thread(target=self._run, name="slow power source", daemon=True)
        self._thread.start()

    def read(self) -> Sequence[Sample]:
        """Return the samples taken since the last call, which may be none; never waits.

        Raises:
            PowerDataLostError: as the source said, or it broke; it is read no more.
        """
        taken = [self._samples.popleft() for _ in range(len(self._samples))]
        if self._trouble is not None and not taken:
            trouble, self._trouble = self._trouble, None
            raise trouble
        return taken

    def finish(self) -> None:
        """Ask for one last reading, at once."""
        self._hurry.set()

    def wait(self, wait_s: float) -> None:
        """Wait for the last reading, no longer than ``wait_s``."""
        if self._thread is not None:
            self._thread.join(wait_s)

    def stop(self) -> Sequence[WindowEnergy]:
        """End the reading; returns what the source integrated, nothing where it hangs."""
        self.finish()
        return () if self._is_reading else self._source.stop()

    def restore(self) -> None:
        """Have the source undo what it changed."""
        self._source.restore()

    def close(self) -> None:
        """Close the source, or leave that to a thread that hangs; safe to call twice."""
        self._is_closing = True
        self._hurry.set()
        with self._lock:
            if self._is_reading:
                self._is_left_behind = True
                return
        self._source.close()

    def _run(self) -> None:
        is_last = False
        try:
            schedule = Schedule(self.facts().period_s, time.monotonic_ns())
            while not is_last and not self._is_closing:
                is_last = self._hurry.is_set()
                self._samples.extend(self._source.read())
                schedule.advance(time.monotonic_ns())
                self._hurry.wait(max(0.0, (schedule.due_ns - time.monotonic_ns()) / NS_PER_S))
        except PowerDataLostError as error:
            self._trouble = error
        except Exception as error:
            # Nobody else hears of it: untold, the trace would just end, and its source stay open.
            self._trouble = PowerDataLostError(self._broken(error))
            _LOG.exception("a bug ended the reading of a slow power source")
        finally:
            with self._lock:
                self._is_reading = False
                if self._is_left_behind:
                    self._source.close()

    def _broken(self, error: Exception) -> str:
        facts = self.facts()
        return (
            f"{facts.name} of {facts.device} is read no more, for its reading broke "
            f"({type(error).__name__}: {error}); the sampler's log says where"
        )
