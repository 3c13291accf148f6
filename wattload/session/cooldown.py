"""The cool-down between runs: start temperatures, and the wait for drives to cool.

The first compared run of a session sets each drive's reference temperature. Later runs wait until
the drive is at most ``ALLOWED_K`` warmer. They do not wait for a colder drive: rest won't warm it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from wattload.core.record.run import RunRecord, RunStart, StartTemperature
from wattload.core.storage.block_stack import controller_serial
from wattload.core.storage.controllers import controller_state, controllers_under
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE, Roots
from wattload.core.units import NS_PER_S
from wattload.run.process import ProcessContext

ALLOWED_K = 3.0
POLL_S = 5.0
"""Seconds between two readings; drives report whole kelvins and cool by one in several seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveTemperature:
    """A drive's current temperature, or the reason why it is unknown."""

    host: str
    serial: str
    temperature_k: int | None
    reason: str = ""


def read_temperatures(
    targets: Sequence[Target], host: str, roots: Roots = LIVE
) -> tuple[DriveTemperature, ...]:
    """Return the temperature of each NVMe controller under the targets, from the kernel's hwmon."""
    names = dict.fromkeys(name for target in targets for name in controllers_under(target))
    return tuple(_reading(name, host, roots) for name in names)


def _reading(name: str, host: str, roots: Roots) -> DriveTemperature:
    serial = controller_serial(roots.sys / "class/nvme" / name)
    smart = controller_state(name, roots).smart
    if smart is None:
        reason = f"the kernel has no temperature for {name} (it was built without NVME_HWMON)"
        return DriveTemperature(host=host, serial=serial, temperature_k=None, reason=reason)
    reason = smart.missing.get("temperature_k", "")
    return DriveTemperature(
        host=host, serial=serial, temperature_k=smart.temperature_k, reason=reason
    )


class Cooldown:
    """The reference temperatures of a session's drives (on rank 0), and the wait of all ranks.

    ``read`` returns the temperatures of the targets' drives; only each host's leader calls it.
    """

    def __init__(
        self,
        process: ProcessContext,
        limit_s: float,
        read: Callable[[Sequence[Target], str], Sequence[DriveTemperature]] = read_temperatures,
        poll_s: float = POLL_S,
    ) -> None:
        self._process = process
        self._world = process.communicator
        self._limit_s = limit_s
        self._read = read
        self._poll_s = poll_s
        self._reference_k: dict[tuple[str, str], int] = {}
        self._reported: set[str] = set()

    def recall(self, record: RunRecord) -> None:
        """Take the reference temperatures from a finished run of this session."""
        for drive in record.comparison.start.drives if record.comparison.start else ():
            if drive.reference_k is not None:
                self._reference_k.setdefault((drive.host, drive.serial), drive.reference_k)

    def wait(self, targets: Sequence[Target]) -> RunStart:
        """Wait until the drives are cool enough or the limit has passed, on every rank."""
        start_ns = time.monotonic_ns()
        has_waited = False
        while True:
            own = self._read(targets, self._process.host) if self._process.sampling else ()
            readings = [each for host in self._world.gather(own) for each in host]
            waited_s = (time.monotonic_ns() - start_ns) / NS_PER_S
            hot = list(self._too_warm(readings))
            is_over: bool = self._world.broadcast(not hot or waited_s >= self._limit_s)
            if is_over:
                break
            if not has_waited:
                self._process.note(f"{', '.join(hot)}: waiting, {self._limit_s:g} s at most")
                has_waited = True
            time.sleep(min(self._poll_s, max(0.0, self._limit_s - waited_s)))
        self._note_gaps(readings, hot)
        return RunStart(
            waited_s=waited_s if has_waited else 0.0,
            limit_s=self._limit_s,
            allowed_k=ALLOWED_K,
            drives=tuple(self._drive(reading) for reading in readings),
        )

    def _too_warm(self, readings: Sequence[DriveTemperature]) -> Iterator[str]:
        for each in readings:
            reference_k = self._reference_k.get((each.host, each.serial))
            if each.temperature_k is None or reference_k is None:
                continue
            above_k = each.temperature_k - reference_k
            if above_k > ALLOWED_K:
                yield f"drive {each.serial} is {above_k} °C warmer than at the session's first run"

    def _drive(self, reading: DriveTemperature) -> StartTemperature:
        """Return a drive's start temperature, which becomes its reference if it has none yet."""
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

    def _note_gaps(self, readings: Sequence[DriveTemperature], hot: Sequence[str]) -> None:
        """Report drives that are still too warm, and each unknown temperature once."""
        if hot:
            self._process.note(
                f"{', '.join(hot)} still: the limit of {self._limit_s:g} s has passed, continuing"
            )
        gaps = [f"drive {r.serial}: {r.reason}" for r in readings if r.temperature_k is None]
        if not readings:
            gaps = ["the target has no NVMe controller"]
        for gap in gaps:
            if gap not in self._reported:
                self._reported.add(gap)
                self._process.note(
                    f"start temperatures are unknown, so runs do not wait for drives to cool: {gap}"
                )
