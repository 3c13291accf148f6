"""When a drive may have restarted in a run: a counter that fell or rose there did not count on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.core.power import Sample
from wattload.life.powering import PowerReport
from wattload.power.sampler.reports import ControllerReading


def resets_ns(report: PowerReport, samples: Sequence[Sample]) -> Mapping[str, Sequence[int]]:
    """Return the moments at which drives may have been reset, in ns, by serial.

    A drive whose power cycles (SMART bytes 112 to 127) grew in the run was away at least once, and
    answers nothing meanwhile: it was in one of the stretches in which its reads failed.
    """
    if report.finished is None:
        return {}
    before = {each.serial: _power_cycles(each) for each in report.opened.controllers.values()}
    after = {each.serial: _power_cycles(each) for each in report.finished.controllers.values()}
    failed: dict[str, list[int]] = {
        serial: [] for serial, cycles in after.items() if _has_grown(before.get(serial), cycles)
    }
    for sample in samples:
        if sample.value is None and sample.device in failed:
            failed[sample.device].append(sample.time_ns)
    return failed


def _has_grown(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _power_cycles(reading: ControllerReading) -> int | None:
    smart = reading.fields.get("smart")
    cycles = smart.get("power_cycles") if isinstance(smart, Mapping) else None
    return cycles if isinstance(cycles, int) else None
