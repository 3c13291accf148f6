"""The checks of a checkpoint run: bytes on the target, every byte back, durable, and cold."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.check import Check
from wattload.core.units import NS_PER_S, format_bytes
from wattload.loaders.coldcache import worst_of
from wattload.workloads.checkpoint.account import Account
from wattload.workloads.checkpoint.commit import folder_name
from wattload.workloads.checkpoint.job import Job

READ_START_S = 30.0
"""Seconds that MLPerf Storage allows between a command that writes and one that reads."""


def bytes_on_target(job: Job, accounts: Sequence[Account], overhead_bytes: Sequence[int]) -> Check:
    """Compare the files' sizes with the plan, per rank and checkpoint.

    ``overhead_bytes`` is what each rank's files may hold beyond its tensors, per checkpoint.
    """
    planned_bytes = job.checkpoint_bytes * job.config.checkpoint_count
    found_bytes = sum(sum(account.file_bytes) for account in accounts)
    agree = all(
        len(account.file_bytes) == job.config.checkpoint_count
        and all(0 <= size - shard.size_bytes <= spare for size in account.file_bytes)
        for shard, account, spare in zip(job.shards, accounts, overhead_bytes, strict=True)
    )
    container = f" and at most {format_bytes(sum(overhead_bytes))} of container each"
    return Check(
        name="checkpoint_bytes_on_target",
        verdict="pass" if agree else "fail",
        sentence=(
            f"{job.config.checkpoint_count} checkpoints took {found_bytes} bytes in files; planned "
            f"were {planned_bytes} of tensors{container if any(overhead_bytes) else ''}"
            + ("." if agree else ": the file sizes do not agree with the plan.")
        ),
        figures={"file_bytes": found_bytes, "planned_bytes": planned_bytes},
        mandatory=True,
    )


def committed(job: Job, complete: Sequence[Sequence[str]]) -> Check:
    """Compare the complete checkpoints on each rank's target, by their manifests, with the plan."""
    count, kept = job.config.checkpoint_count, min(job.config.kept, job.config.checkpoint_count)
    expected = [folder_name(number) for number in range(count - kept, count)]
    agree = all(list(names) == expected for names in complete)
    return Check(
        name="checkpoint_committed",
        verdict="pass" if agree else "fail",
        sentence=(
            f"At the end the last {kept} checkpoints lay on the target complete, by the manifests "
            "read from it, and no other"
            + ("." if agree else f": not so, {[list(names) for names in complete]} were found.")
        ),
        figures={"kept": kept},
        mandatory=True,
    )


def read_back(job: Job, accounts: Sequence[Account]) -> Check:
    """Compare what loading delivered with what saving wrote: bytes, stamps, checksums."""
    planned_bytes = job.checkpoint_bytes * job.config.checkpoint_count
    delivered_bytes = sum(account.payload_bytes for account in accounts)
    blocks = sum(account.bad_blocks for account in accounts)
    files = [name for account in accounts for name in account.bad_files]
    good = delivered_bytes == planned_bytes and not blocks and not files
    said = f": {blocks} blocks bear another stamp"
    said += f", the checksum differs in {', '.join(files[:3])}" if files else ""
    return Check(
        name="checkpoint_read_back",
        verdict="pass" if good else "fail",
        sentence=(
            f"{delivered_bytes} bytes of tensors came back of {planned_bytes}; the stamp of every "
            "whole 4096-byte block, and a checksum over all delivered bytes against the manifest "
            "on the target, were compared" + ("." if good else said + ".")
        ),
        figures={
            "delivered_bytes": delivered_bytes,
            "planned_bytes": planned_bytes,
            "bad_blocks": blocks,
            "bad_files": len(files),
        },
        mandatory=True,
    )


def durable(job: Job, accounts: Sequence[Account]) -> Check:
    """Compare the files that the stores counted as fsynced with those that the plan has them write.

    Folders and manifest are fsynced by the commit itself, which raises where that fails.
    """
    if not job.config.fsync:
        return Check(
            name="checkpoint_durable",
            verdict="warn",
            sentence="workload.fsync was false: the write window ended before data was durable.",
        )
    count = job.config.checkpoint_count
    planned = sum(account.file_count for account in accounts) * count
    synced = sum(sum(account.synced_counts) for account in accounts)
    good = all(account.synced_counts == [account.file_count] * count for account in accounts)
    return Check(
        name="checkpoint_durable",
        verdict="pass" if good else "fail",
        sentence=f"{synced} fsyncs of files were counted inside the write windows, for {planned} "
        "files written" + ("." if good else ": not every file was made durable."),
        figures={"synced_files": synced, "planned_files": planned},
        mandatory=True,
    )


def cold(accounts: Sequence[Account]) -> Check:
    """Return the worst of the cold-cache checks before each read, on every rank."""
    return worst_of(check for account in accounts for check in account.cold)


def mlperf_read_start(accounts: Sequence[Account]) -> Check:
    """Judge the time from the end of the last write to the start of the first read.

    Source: MLPerf Storage ``Rules.md`` (checkpointing). The other rules are judged from the record,
    by ``wattload.core.checks.mlperf``.
    """
    late_s = max(
        (
            account.read.windows_ns[0][0]
            - account.write.windows_ns[-1][1]
            - account.write.commit_ns[-1]
        )
        / NS_PER_S
        for account in accounts
    )
    if late_s < 0:
        return Check(
            name="mlperf_read_start",
            verdict="fail",
            sentence="The first read began before the last write had ended.",
            figures={"seconds": late_s},
        )
    return Check(
        name="mlperf_read_start",
        verdict="pass",
        sentence=(
            f"The first read began {late_s:.1f} s after the last write, in the same command; the "
            f"limit of {READ_START_S:.0f} s is for reads by a command of their own."
        ),
        figures={"seconds": late_s},
    )
