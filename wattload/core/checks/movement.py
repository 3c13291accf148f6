"""Checks on bytes: who counted them, and whether the counts agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from wattload.core.record.check import Check
from wattload.core.record.phase import IoCounter, PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.units import format_bytes

RATIO_LOW, RATIO_HIGH = 0.98, 1.02
"""Device sectors over application bytes that prove direct I/O (one plain device, no other load)."""

CLOSURE_TOLERANCE = 0.02
DEPTH_SHARE = 0.5
READ_AHEAD_HIGH = 1.10
"""Up to here a path through the page cache may be over: read-ahead and metadata."""


def bytes_add_up(record: RunRecord) -> Sequence[Check]:
    """Compare the ranks' own sums with the windows and with the totals."""
    of_ranks = sum(s.read_bytes + s.written_bytes for s in record.spans if s.timed)
    of_windows = sum(w.read_bytes + w.written_bytes for w in record.timed_windows())
    total = next((t.value for t in record.totals if t.name == "moved_bytes"), None)
    agree = of_ranks == of_windows and (total is None or total == of_windows)
    return [
        Check(
            name="bytes_add_up",
            verdict="pass" if agree else "fail",
            sentence=(
                f"The ranks counted {format_bytes(of_ranks)}, the phases {format_bytes(of_windows)}"
                + (", the total agrees." if agree else ": these must be the same bytes.")
            ),
            figures={"ranks_bytes": of_ranks, "windows_bytes": of_windows, "total_bytes": total},
            mandatory=True,
        )
    ]


def rate_closure(record: RunRecord) -> Sequence[Check]:
    """Recompute every rate that names its phase from that phase's bytes and seconds."""
    checks = []
    for metric in record.metrics:
        if metric.unit != "B/s" or not metric.phase or metric.value is None:
            continue
        if not metric.name.endswith("_bytes_per_s") or metric.name.split("_")[0] not in (
            "throughput",
            "write",
            "read",
        ):
            continue
        windows = [w for w in record.timed_windows() if w.name == metric.phase]
        if not windows:
            continue
        checks.append(_closure(metric.name, metric.value, windows))
    return checks


def _closure(name: str, value: float, windows: Sequence[PhaseWindow]) -> Check:
    moved_bytes = sum(w.read_bytes + w.written_bytes for w in windows)
    active_s = max(w.active_s for w in windows)
    whole_s = max(w.seconds for w in windows)
    over_active = moved_bytes / max(active_s, 1e-12)
    over_window = moved_bytes / max(whole_s, 1e-12)
    apart = min(abs(value / rate - 1) for rate in (over_active, over_window) if rate)
    holds = apart <= CLOSURE_TOLERANCE
    return Check(
        name=f"closure_{name}",
        verdict="pass" if holds else "fail",
        sentence=(
            f"{name} is {value:.6g} B/s; the phase's own counters give {over_active:.6g} over its "
            f"active time and {over_window:.6g} from first start to last end"
            + ("." if holds else ": it is neither.")
        ),
        figures={"value": value, "over_active": over_active, "over_window": over_window},
    )


def device_bytes(record: RunRecord) -> Sequence[Check]:
    """Compare what the application counted with what the block devices counted, per timed phase."""
    checks = []
    for window in record.timed_windows():
        for direction in ("read", "written"):
            moved_bytes = window.read_bytes if direction == "read" else window.written_bytes
            if moved_bytes:
                checks.append(_device_check(record, window, direction, moved_bytes))
    return checks


def _device_check(
    record: RunRecord, window: PhaseWindow, direction: Literal["read", "written"], moved_bytes: int
) -> Check:
    name = f"device_bytes_{window.name}_{direction}"
    counters = [
        c
        for c in record.counters
        if c.source == "block" and c.phase == window.name and c.host == window.host
    ]
    counted = [c.read_bytes if direction == "read" else c.written_bytes for c in counters]
    figures: dict[str, float | int | str | None] = {"application_bytes": moved_bytes}
    if not counters or any(count is None for count in counted):
        return Check(
            name=name,
            verdict="not_checked",
            figures=figures,
            mandatory=True,
            sentence="No block device under the target counts bytes, so the path is unproved.",
        )
    device = sum(count for count in counted if count is not None)
    figures |= {"device_bytes": device, "ratio": device / moved_bytes}
    return _judge_ratio(record, name, figures, device / moved_bytes)


def _judge_ratio(
    record: RunRecord, name: str, figures: dict[str, float | int | str | None], ratio: float
) -> Check:
    shared = _shared_reason(record)
    direct = any(path.path_requested == "o_direct" for path in record.workload.paths)
    if RATIO_LOW <= ratio <= RATIO_HIGH:
        return Check(
            name=name,
            verdict="pass",
            figures=figures,
            mandatory=True,
            sentence=f"The device moved {ratio:.4f} of the bytes that the application counted.",
        )
    if not direct and RATIO_LOW <= ratio <= READ_AHEAD_HIGH:
        return Check(
            name=name,
            verdict="pass",
            figures=figures,
            mandatory=True,
            sentence=(
                f"The device moved {ratio:.4f} of the application's bytes through the page cache, "
                "which may read ahead."
            ),
        )
    if not direct:
        return Check(
            name=name,
            verdict="warn",
            figures=figures,
            mandatory=True,
            sentence=(
                f"The device moved {ratio:.4f} of the application's bytes: this path goes through "
                "the page cache and may read ahead, compress or be served from memory."
            ),
        )
    return Check(
        name=name,
        verdict="warn" if shared else "fail",
        figures=figures,
        mandatory=True,
        sentence=(
            f"The device moved {ratio:.4f} of the application's bytes, outside "
            f"{RATIO_LOW} to {RATIO_HIGH}" + (f"; {shared}." if shared else ": not a direct path.")
        ),
    )


def _shared_reason(record: RunRecord) -> str | None:
    """Return why other bytes may be among the device's, or ``None`` where they may not."""
    for target in record.targets:
        file_system = target.facts.file_system
        if file_system is not None and file_system.is_root:
            return "the device also holds the root file system, whose traffic is counted with it"
        factor = 1.0 if target.facts.stack is None else target.facts.stack.written_factor()
        if factor is None:
            return "how many copies the levels below write of each byte is not known"
        if factor != 1:
            return f"the levels below write {factor:g} copies of each byte"
    return None


def queue_depth(record: RunRecord) -> Sequence[Check]:
    """Compare the mean queue depth (weighted time over busy time) with the depth asked for."""
    asked = record.workload.queue_depth_asked
    if not asked:
        return []
    checks = []
    for window in record.timed_windows():
        if not window.read_bytes + window.written_bytes:
            continue
        for counter in record.counters:
            if counter.source != "block" or (counter.phase, counter.host) != (
                window.name,
                window.host,
            ):
                continue
            checks.append(_depth_check(counter, asked))
    return checks


def _depth_check(counter: IoCounter, asked: int) -> Check:
    name = f"queue_depth_{counter.phase}_{counter.device}"
    if not counter.busy_s or counter.weighted_s is None:
        return Check(
            name=name,
            verdict="not_checked",
            figures={"asked": asked},
            sentence=f"{counter.device} counted no busy time.",
        )
    mean = counter.weighted_s / counter.busy_s
    enough = mean >= DEPTH_SHARE * asked
    return Check(
        name=name,
        verdict="pass" if enough else "warn",
        sentence=(
            f"{counter.device} held {mean:.1f} I/Os on average where {asked} were asked for"
            + ("." if enough else ": the host did not keep the drive busy.")
        ),
        figures={"asked": asked, "mean": mean},
    )
