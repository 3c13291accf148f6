"""How warm drives are when a run begins, and the wait until they have cooled to where they began.

A drive's first compared run of a session sets its reference. Later ones wait until it is at most
``ALLOWED_K`` above that. One that is colder is not waited for: rest does not warm a drive.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from wattload.core.blockstack import controller_serial
from wattload.core.nvme_sysfs import controller_state, controllers_under
from wattload.core.record.run import RunRecord, RunStart, StartTemperature
from wattload.core.sysfs import LIVE, Roots
from wattload.core.target import Target
from wattload.core.units import NS_PER_S
from wattload.core.workload import Communicator

ALLOWED_K = 3.0
LOOK_S = 5.0
"""Between two looks; a drive reports whole kelvins and cools by one in several seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A drive's temperature now, or why it is not known."""

    host: str
    serial: str
    temperature_k: int | None
    reason: str = ""


def read_temperatures(
    targets: Sequence[Target], host: str, roots: Roots = LIVE
) -> tuple[Reading, ...]:
    """Return what the kernel shows of each NVMe controller under the targets, each once."""
    names = dict.fromkeys(name for target in targets for name in controllers_under(target))
    return tuple(_reading(name, host, roots) for name in names)


def _reading(name: str, host: str, roots: Roots) -> Reading:
    serial = controller_serial(roots.sys / "class/nvme" / name)
    smart = controller_state(name, roots).smart
    if smart is None:
        reason = f"the kernel shows no temperature of {name} (it was built without NVME_HWMON)"
        return Reading(host=host, serial=serial, temperature_k=None, reason=reason)
    reason = smart.missing.get("temperature_k", "")
    return Reading(host=host, serial=serial, temperature_k=smart.temperature_k, reason=reason)


class Warmth:
    """The references of one session's drives, on rank 0, and the wait that all ranks take part in.

    ``read`` gives the temperatures of this rank's host, or nothing where another rank tells them.
    """

    def __init__(
        self,
        world: Communicator,
        limit_s: float,
        read: Callable[[Sequence[Target]], Sequence[Reading]],
        look_s: float = LOOK_S,
    ) -> None:
        self._world = world
        self._limit_s = limit_s
        self._read = read
        self._look_s = look_s
        self._reference_k: dict[tuple[str, str], int] = {}
        self._told: set[str] = set()

    def recall(self, record: RunRecord) -> None:
        """Take the references of a run that an earlier part of the session has made."""
        for drive in record.comparison.start.drives if record.comparison.start else ():
            if drive.reference_k is not None:
                self._reference_k.setdefault((drive.host, drive.serial), drive.reference_k)

    def wait(self, targets: Sequence[Target]) -> RunStart:
        """Wait until the drives are cool enough, or for the limit; every rank must call it."""
        start_ns = time.monotonic_ns()
        is_told = False
        while True:
            readings = [each for host in self._world.gather(self._read(targets)) for each in host]
            waited_s = (time.monotonic_ns() - start_ns) / NS_PER_S
            hot = list(self._too_warm(readings))
            goes_on: bool = self._world.broadcast(not hot or waited_s >= self._limit_s)
            if goes_on:
                break
            if not is_told:
                self._say(f"{', '.join(hot)}: waiting, {self._limit_s:g} s at most")
                is_told = True
            time.sleep(min(self._look_s, max(0.0, self._limit_s - waited_s)))
        self._tell(readings, hot)
        return RunStart(
            waited_s=waited_s if is_told else 0.0,
            limit_s=self._limit_s,
            allowed_k=ALLOWED_K,
            drives=tuple(self._drive(reading) for reading in readings),
        )

    def _too_warm(self, readings: Sequence[Reading]) -> Iterator[str]:
        for each in readings:
            reference_k = self._reference_k.get((each.host, each.serial))
            if each.temperature_k is None or reference_k is None:
                continue
            above_k = each.temperature_k - reference_k
            if above_k > ALLOWED_K:
                yield f"drive {each.serial} is {above_k} °C warmer than at the session's first run"

    def _drive(self, reading: Reading) -> StartTemperature:
        """Return a drive's start, which is its reference where it has none yet."""
        key = (reading.host, reading.serial)
        if reading.temperature_k is not None:
            self._reference_k.setdefault(key, reading.temperature_k)
        reference_k = self._reference_k.get(key)
        gaps = {"temperature_k": reading.temperature_k, "reference_k": reference_k}
        return StartTemperature(
            host=reading.host,
            serial=reading.serial,
            temperature_k=reading.temperature_k,
            reference_k=reference_k,
            missing={name: reading.reason for name, value in gaps.items() if value is None},
        )

    def _tell(self, readings: Sequence[Reading], hot: Sequence[str]) -> None:
        """Say what was waited for in vain, and once what is not known."""
        if hot:
            self._say(f"{', '.join(hot)} still: the limit of {self._limit_s:g} s is over, going on")
        gaps = [f"drive {r.serial}: {r.reason}" for r in readings if r.temperature_k is None]
        if not readings:
            gaps = ["no NVMe controller lies under the target"]
        for gap in gaps:
            if gap not in self._told:
                self._told.add(gap)
                self._say(f"start temperatures are not known, so none is waited for: {gap}")

    def _say(self, text: str) -> None:
        if self._world.rank == 0:
            print(text, file=sys.stderr)
