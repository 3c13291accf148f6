"""What a run could not measure and why: the sentences that its page opens with."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.power import Evidence, Scope
from wattload.core.record.run import RunRecord


def limits_of(record: RunRecord) -> tuple[str, ...]:
    """Return the run's limits, a sentence each, most important first and none twice."""
    found = (*_of_power(record), *_of_targets(record), *_of_checks(record))
    return tuple(dict.fromkeys(found))


def _of_power(record: RunRecord) -> Iterator[str]:
    drive = [e for e in record.power.energy if e.chosen and e.scope is Scope.DRIVE]
    if not drive:
        yield f"Drive energy was not measured: {record.power.choice}"
    weak = {e.evidence for e in drive} & {Evidence.BOUNDS, Evidence.DECLARED}
    for evidence in sorted(weak):
        what = {"bounds": "the drive's power state table", "declared": "a data sheet"}[evidence]
        yield f"Drive energy comes from {what}, not from a measurement; it ranks nothing."
    if not record.controllers:
        yield (
            "No NVMe controller lies under the target: power state, link, temperature and SMART "
            "counters are unknown."
        )


def _of_targets(record: RunRecord) -> Iterator[str]:
    for target in record.targets:
        yield from (f"{text[:1].upper()}{text[1:]}." for text in target.facts.warnings)


def _of_checks(record: RunRecord) -> Iterator[str]:
    for check in record.checks:
        if check.verdict == "not_checked" and check.mandatory and check.name != "power_coverage":
            yield f"Not checked, {check.name}: {check.sentence}"
