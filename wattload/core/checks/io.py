"""Checks on bytes: whether independent counters agree, and whether files are on the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from wattload.core.checks.conditions import is_paced
from wattload.core.checks.verdicts import judged, of_host, unknown
from wattload.core.errors import DataError
from wattload.core.io import DIRECT_WORDS, KEPT_PAGES, QUEUE_WORDS, PathCounts
from wattload.core.record.energy import WrittenRecord
from wattload.core.record.phase import IoCounter, PhaseWindow
from wattload.core.record.results import PACED, Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.storage.file_system import extent_map
from wattload.core.units import compared_bytes, format_bytes

RATIO_LOW, RATIO_HIGH = 0.98, 1.02
"""Device bytes over application bytes that prove direct I/O (one plain device, no other load)."""

COUNT_TOLERANCE = 0.05
"""As far as the drive's count may be off at the edges of a phase (``WrittenRecord``)."""

DEPTH_SHARE = 0.5
DEPTH_EXCESS = 1.5
CACHED_LOW = 0.90
"""Lower limit for reads through the page cache: parts that are read again come from memory."""


def device_bytes(record: RunRecord) -> Sequence[Check]:
    """Compare the application's bytes with the block devices' bytes, per timed phase and host."""
    checks = []
    for window in _counted_windows(record):
        for direction in ("read", "written"):
            moved_bytes = window.read_bytes if direction == "read" else window.written_bytes
            if moved_bytes:
                checks.append(_device_check(record, window, direction, moved_bytes))
    return checks


def _device_check(
    record: RunRecord, window: PhaseWindow, direction: Literal["read", "written"], moved_bytes: int
) -> Check:
    name = f"device_bytes_{window.name}_{direction}{of_host(record, window.host)}"
    counters = _block_counters(record, window)
    device_bytes = _total(counters, direction)
    figures: dict[str, float | int | str | None] = {"application_bytes": moved_bytes}
    if device_bytes is None:
        sentence = "No block device under the target counts bytes, so the path is unverified."
        return unknown(name, sentence, figures=figures, mandatory=True)
    ratio = device_bytes / moved_bytes
    factor = _copies(record, window.host) if direction == "written" else 1.0
    figures |= {"device_bytes": device_bytes, "ratio": ratio, "expected_ratio": factor}
    if factor is None:
        sentence = (
            f"The device moved {ratio:.4f} of the bytes that the application counted; how many "
            "copies the layers below write of each byte is unknown."
        )
        return unknown(name, sentence, figures=figures, mandatory=True)
    return _judge_ratio(
        name,
        figures,
        ratio / factor,
        others=_other_load(record, window, counters),
        cached_low=_cached_low(record) if direction == "read" else RATIO_LOW,
    )


def _cached_low(record: RunRecord) -> float:
    """Return the least ratio of reads that does not fail: 0 where pages are kept on purpose."""
    paths = record.workload.paths
    if paths and all(path.path_requested == KEPT_PAGES for path in paths):
        return 0.0
    is_cached = all(path.path_requested != "o_direct" and path.counts is None for path in paths)
    return CACHED_LOW if is_cached else RATIO_LOW


def hosts_took_part(record: RunRecord) -> Sequence[Check]:
    """Fail a run of several hosts if one of them moved no bytes in timed phases, but others did.

    Its drive would stand in the result without having done any work.
    """
    if len(record.hosts) == 1 or record.status != "complete":
        return []
    moved = {host.facts.name: 0 for host in record.hosts}
    for window in record.timed_windows(parts=False):
        moved[window.host] = moved.get(window.host, 0) + window.read_bytes + window.written_bytes
    idle = [host for host, moved_bytes in moved.items() if not moved_bytes]
    if len(idle) == len(moved):
        return []
    return [
        judged(
            "hosts_took_part",
            f"{len(moved) - len(idle)} of {len(moved)} hosts moved bytes in timed phases",
            f", but not {', '.join(idle)}: give them work, or leave them out",
            holds=not idle,
            figures={f"{host}_bytes": moved_bytes for host, moved_bytes in moved.items()},
            worst="fail",
            mandatory=True,
        )
    ]


def _counted_windows(record: RunRecord) -> Sequence[PhaseWindow]:
    """Return the timed windows; none of a run that ended before its counters were collected."""
    return record.timed_windows() if record.counters or record.status == "complete" else ()


def _block_counters(record: RunRecord, window: PhaseWindow) -> Sequence[IoCounter]:
    return record.counters_by_phase.get((window.host, window.name), ())


def _total(counters: Sequence[IoCounter], direction: Literal["read", "written"]) -> int | None:
    """Return the devices' bytes, or ``None`` without devices or if one of them does not count."""
    counted = [
        counter.read_bytes if direction == "read" else counter.written_bytes for counter in counters
    ]
    known = [count for count in counted if count is not None]
    return sum(known) if known and len(known) == len(counted) else None


def _judge_ratio(
    name: str,
    figures: dict[str, float | int | str | None],
    ratio: float,
    *,
    others: str | None,
    cached_low: float,
) -> Check:
    """Judge ``ratio``, the device's bytes over the expected bytes.

    Other load can only add bytes: below the range, some never came from the device. A path through
    the page cache may have read again what is there, down to a ratio of ``cached_low``.
    """
    moved = f"The device moved {ratio:.4f} of the bytes expected from the application's count"
    if cached_low <= ratio < RATIO_LOW:
        verdict: Verdict = "warn"
        sentence = f"{moved}: the rest was read again from the page cache."
    elif ratio < RATIO_LOW:
        verdict = "fail"
        sentence = f"{moved}: the rest came from memory or never reached the device."
    elif ratio <= RATIO_HIGH and others is None:
        verdict, sentence = "pass", f"{moved}."
    elif ratio <= RATIO_HIGH:
        verdict, sentence = "warn", f"{moved}, which is no proof: {others}."
    else:
        verdict = "warn"
        sentence = (
            f"{moved}: its counters include {others or 'metadata, read-ahead or other load'}."
        )
    return Check(name=name, verdict=verdict, figures=figures, mandatory=True, sentence=sentence)


def _copies(record: RunRecord, host: str) -> float | None:
    """Return bytes written by a host's devices per application byte, ``None`` if targets differ."""
    stacks = [target.facts.stack for target in record.targets if target.facts.host == host]
    factors = {1.0 if stack is None else stack.written_factor() for stack in stacks}
    return factors.pop() if len(factors) == 1 else None


def _other_load(
    record: RunRecord, window: PhaseWindow, counters: Sequence[IoCounter]
) -> str | None:
    """Describe other load on the devices in the window; ``None`` if there is no sign of any.

    The sign is extra bytes in either direction, more than 2 % of all that the application moved.
    """
    allowed = (RATIO_HIGH - 1) * (window.read_bytes + window.written_bytes)
    extra_read = sum(c.read_bytes or 0 for c in counters) - window.read_bytes
    copies = _copies(record, window.host) or 1.0
    extra_written = sum(c.written_bytes or 0 for c in counters) - copies * window.written_bytes
    extra = max(extra_read, extra_written)
    if extra <= allowed:
        return None
    own = [target.facts for target in record.targets if target.facts.host == window.host]
    users = [name for facts in own for name in facts.shared_with]
    more = f" and {len(users) - 1} more" if len(users) > 1 else ""
    shared = f", shared with {users[0]}{more}" if users else ""
    return f"{format_bytes(extra)} of other traffic on the devices{shared}"


def initiator_of(counts: PathCounts) -> Literal["cpu", "gpu"]:
    """Return who asked for reads, as far as counts prove it."""
    return "gpu" if counts.word == "gpu_pull" else "cpu"


def path_check(
    counts: PathCounts, *, operations: int | None, block_bytes: int | None, must_be_direct: bool
) -> Check:
    """Judge a path by its counts, of so many timed reads of whole blocks."""
    word = counts.word
    asked = "path direct asked, " if must_be_direct else "path "
    taken = f"{asked}{word} taken by {counts.reads:,} of {counts.reads:,} reads"
    if word == "mixed" and counts.posix_reads:
        direct = counts.reads - counts.posix_reads
        taken = (
            f"{asked if must_be_direct else ''}{direct:,} of {counts.reads:,} reads by GPUDirect "
            f"Storage, {counts.posix_reads:,} through host memory"
        )
    if word in QUEUE_WORDS:
        taken += ": each block crossed host memory"
    if not _covers(counts, operations, block_bytes):
        verdict: Verdict = "fail"
        sentence = f"The counts do not cover the {operations} timed reads"
    elif counts.is_contradictory:
        verdict, sentence = "fail", "The counts of the path do not add up"
    elif word in DIRECT_WORDS or (
        not must_be_direct and (word == "host_bounce" or word in QUEUE_WORDS)
    ):
        verdict, sentence = "pass", taken
    elif word == "unverified":
        verdict = "fail" if must_be_direct else "not_checked"
        asked = "path direct asked, but " if must_be_direct else ""
        sentence = (
            f"{asked}no counter shows which path was taken"
            if counts.requester is None
            else "not every request was read and delivered, so its path is not proved"
        )
    elif must_be_direct:
        verdict, sentence = "fail", taken
    else:
        only = "only " if word == "mixed" else ""
        verdict, sentence = "warn", f"Not {only}GPUDirect Storage: {taken}"
    return Check(
        name="data_path",
        verdict=verdict,
        sentence=f"{sentence[:1].upper()}{sentence[1:]} ({counts.evidence}).",
        figures={
            "must_be_direct": int(must_be_direct),
            "operations": operations,
            "block_bytes": block_bytes,
            **counts.model_dump(),
        },
        mandatory=counts.requester is not None,
    )


def _covers(counts: PathCounts, operations: object, block_bytes: object) -> bool:
    """Return whether the counts are of all timed reads, and of whole blocks."""
    if not isinstance(operations, int) or not isinstance(block_bytes, int):
        return False
    return counts.reads >= operations and counts.read_bytes == counts.reads * block_bytes


def queue_depth(record: RunRecord) -> Sequence[Check]:
    """Compare the mean queue depth with the requested depth, in blocks of the requested size.

    A loader that waits for emulated accelerators has nothing to read, so its queue may be shallow.

    The block layer counts requests after splitting: a 64 MiB block may be 64 requests. Its mean
    depth (weighted time / busy time) is scaled by the mean request size and summed over the
    devices, which share the requested depth. Each host has the part of its ranks.
    """
    requested, block_bytes = record.workload.queue_depth_asked, record.workload.block_bytes_asked
    if not requested or not block_bytes:
        return []
    ranks = Counter(rank.host for rank in record.ranks)
    return [
        _depth_check(
            window,
            record,
            requested if len(ranks) < 2 else requested * ranks[window.host] // ranks.total(),  # noqa: PLR2004 - one host
            block_bytes,
        )
        for window in _counted_windows(record)
        if window.read_bytes + window.written_bytes
    ]


def _depth_check(window: PhaseWindow, record: RunRecord, requested: int, block_bytes: int) -> Check:
    name = f"queue_depth_{window.name}{of_host(record, window.host)}"
    counters = _block_counters(record, window)
    means = [mean for mean in (_mean_blocks(c, block_bytes) for c in counters) if mean is not None]
    if not means:
        sentence = "No block device under the target counted busy time."
        return unknown(name, sentence, figures={"asked": requested})
    mean = sum(means)
    low, high = DEPTH_SHARE * requested, DEPTH_EXCESS * requested
    figures = {"asked": requested, "mean": mean, "block_bytes": block_bytes}
    sentence = (
        f"{mean:.1f} blocks were in flight on average while the devices were busy, of {requested} "
        "requested"
    )
    if mean < low and is_paced(record, window.name):
        sentence += "; the emulated accelerator set the pace, so the queue need not be deep."
        return unknown(name, sentence, cause=PACED, figures=figures)
    lacking = "the rest waited in front of them, or was not asked for in time"
    return judged(
        name,
        sentence,
        f": {lacking if mean < low else 'other load on the device'}",
        holds=low <= mean <= high,
        figures=figures,
    )


def _mean_blocks(counter: IoCounter, block_bytes: int) -> float | None:
    """Return one device's mean depth in blocks of the requested size, ``None`` if not counted."""
    operations = (counter.read_operations or 0) + (counter.write_operations or 0)
    if not counter.busy_s or counter.weighted_s is None or not operations:
        return None
    request_bytes = ((counter.read_bytes or 0) + (counter.written_bytes or 0)) / operations
    return counter.weighted_s / counter.busy_s * min(request_bytes / block_bytes, 1.0)


def written_bytes(record: RunRecord) -> Sequence[Check]:
    """Warn if a drive counted other bytes than the block layer in a phase, or if its count fell.

    Another namespace, another host or another process writes too if the drive counted more. The
    drive can only be compared on a host with a single one.
    """
    return [_written_check(record, each) for each in record.power.written]


def _written_check(record: RunRecord, written: WrittenRecord) -> Check:
    name = f"written_bytes_{written.phase}_{written.device}{of_host(record, written.host)}"
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
    host_bytes, block_bytes = written.host_written_bytes, _drive_block_bytes(record, written)
    if host_bytes is None or block_bytes is None:
        why = reasons[0] if host_bytes is None else "the block layer did not count this drive alone"
        return unknown(
            name, f"The drive's own count of bytes was not compared in {written.phase}: {why}."
        )
    ratio = host_bytes / block_bytes if block_bytes else None
    by_drive, by_kernel = compared_bytes(host_bytes, block_bytes)
    return judged(
        name,
        f"In {written.phase} the drive counted {by_drive} written to it, the block layer "
        f"{by_kernel}",
        ": something else wrote to it, or one of both counts wrongly",
        holds=ratio is not None and abs(ratio - 1) <= COUNT_TOLERANCE,
        figures={"drive_bytes": host_bytes, "block_bytes": block_bytes, "ratio": ratio},
    )


def _drive_block_bytes(record: RunRecord, written: WrittenRecord) -> int | None:
    """Return the block layer's bytes of the phase; ``None`` if they are not this drive's alone."""
    drives = {each.device for each in record.power.written if each.host == written.host}
    counters = record.counters_by_phase.get((written.host, written.phase), ())
    counts = [counter.written_bytes for counter in counters]
    if len(drives) != 1 or len(counts) != 1:
        return None
    return counts[0]


def written_extents_check(paths: Iterable[Path], *, remedy: str) -> Check:
    """Return the check that files have neither holes nor unwritten extents, before a timed read.

    ``remedy`` ends the sentence of the error. The check is not made where the file system can't
    say.

    Raises:
        DataError: bytes of a file are on no device.
        OSError: a file can't be opened.
    """
    file_count = 0
    unknown: list[Path] = []
    for path in paths:
        file_count += 1
        unwritten_bytes = extent_map(path).unwritten_bytes
        if unwritten_bytes is None:
            unknown.append(path)
        elif unwritten_bytes:
            raise DataError(
                f"{path} has {format_bytes(unwritten_bytes)} in holes or unwritten blocks, which "
                f"would be read as zeros without the drive; {remedy}"
            )
    if unknown:
        return Check(
            name="written_extents",
            verdict="not_checked",
            sentence=(
                f"The file system of {unknown[0]} does not report unwritten extents (FIEMAP), so "
                "reads of them can't be excluded. The files have no holes."
            ),
            figures={"file_count": file_count, "unknown_count": len(unknown)},
        )
    return Check(
        name="written_extents",
        verdict="pass",
        sentence=(
            f"All bytes of {file_count} file{'s' * (file_count != 1)} were written to the device "
            "before the timed read: no holes, no unwritten extents."
        ),
        figures={"file_count": file_count, "unwritten_bytes": 0},
    )
