"""Check a drive's own count of the bytes written to it against the block layer's."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.energy import WrittenRecord
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import format_bytes

TOLERANCE = 0.05
"""As far as the drive's count may be off at the edges of a phase (``WrittenRecord``)."""


def written_bytes(record: RunRecord) -> Sequence[Check]:
    """Warn if a drive counted other bytes than the block layer in a phase, or if its count fell.

    Another namespace, another host or another process writes too if the drive counted more. The
    drive can only be compared on a host with a single one.
    """
    return [_check(record, each) for each in record.power.written]


def _check(record: RunRecord, written: WrittenRecord) -> Check:
    name = f"written_bytes_{written.phase}_{written.device}"
    reasons = [
        written.missing[each]
        for each in ("host_written_bytes", "media_written_bytes")
        if each in written.missing
    ]
    fell = next((reason for reason in reasons if reason.startswith("it fell")), None)
    if fell is not None:
        return Check(
            name=name,
            verdict="warn",
            sentence=(
                f"A drive's count of bytes written can't be used in {written.phase}: {fell}, so it "
                "was reset or wrapped."
            ),
        )
    host_bytes, block_bytes = written.host_written_bytes, _block_bytes(record, written)
    if host_bytes is None or block_bytes is None:
        why = reasons[0] if host_bytes is None else "the block layer did not count this drive alone"
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"The drive's own count of bytes was not compared in {written.phase}: {why}.",
        )
    ratio = host_bytes / block_bytes if block_bytes else None
    agree = ratio is not None and abs(ratio - 1) <= TOLERANCE
    return Check(
        name=name,
        verdict="pass" if agree else "warn",
        sentence=(
            f"In {written.phase} the drive counted {format_bytes(host_bytes)} written to it, the "
            f"block layer {format_bytes(block_bytes)}"
            + ("." if agree else ": something else wrote to it, or one of both counts wrongly.")
        ),
        figures={"drive_bytes": host_bytes, "block_bytes": block_bytes, "ratio": ratio},
    )


def _block_bytes(record: RunRecord, written: WrittenRecord) -> int | None:
    """Return the block layer's bytes of the phase; ``None`` if they are not this drive's alone."""
    drives = {each.device for each in record.power.written if each.host == written.host}
    counts = [
        counter.written_bytes
        for counter in record.counters
        if (counter.source, counter.host, counter.phase) == ("block", written.host, written.phase)
    ]
    if len(drives) != 1 or len(counts) != 1:
        return None
    return counts[0]
