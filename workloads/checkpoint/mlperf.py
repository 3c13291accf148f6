"""A run held against the checkpoint rules of MLPerf Storage (v2.0 and v3.0, closed division)."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.mlperf import (
    CHECKPOINT_COUNT,
    CHECKPOINT_INTERVAL_S,
    CHECKPOINT_MEMORY_FACTOR,
)
from wattload.core.record.check import Check
from wattload.core.units import NS_PER_S, format_bytes
from wattload.workloads.checkpoint.account import Account
from wattload.workloads.checkpoint.checks import cold
from wattload.workloads.checkpoint.job import Job
from wattload.workloads.checkpoint.models import MODELS

READ_START_S = 30.0


def mlperf_checks(job: Job, accounts: Sequence[Account]) -> tuple[Check, ...]:
    """Return whether the run is as the rules have it: counts, caches, and the start of the reads.

    Sources: MLPerf Storage ``Rules.md`` (checkpointing) and the ``llama3_*.yaml`` of its suite.
    """
    return (_rules(job), _caches(job, accounts), _read_start(accounts))


def departures(job: Job) -> list[str]:
    """Return what this run does otherwise than the rules ask."""
    config = job.config
    found = []
    if config.model not in MODELS:
        found.append(f"{config.model} is none of {', '.join(MODELS)}")
    if len(job.shards) != job.model_ranks:
        found.append(f"{len(job.shards)} of {job.model_ranks} ranks ran")
    if job.checkpoint_bytes != job.rank_bytes:
        found.append(f"{job.checkpoint_bytes} of the ranks' {job.rank_bytes} bytes were written")
    if config.checkpoint_count != CHECKPOINT_COUNT:
        found.append(f"{config.checkpoint_count} checkpoints in place of {CHECKPOINT_COUNT}")
    if config.kept < config.checkpoint_count:
        found.append("reads began before all checkpoints were written")
    if config.training_s != CHECKPOINT_INTERVAL_S:
        found.append(f"{config.training_s:g} s between checkpoints, not {CHECKPOINT_INTERVAL_S:g}")
    if config.is_async:
        found.append("checkpoints drained while training went on")
    if not config.fsync:
        found.append("files were not fsynced")
    return found


def _rules(job: Job) -> Check:
    found = departures(job)
    return Check(
        name="mlperf_checkpoint_rules",
        verdict="warn" if found else "pass",
        sentence=(
            f"Not a run by MLPerf Storage's rules: {'; '.join(found)}."
            if found
            else f"{CHECKPOINT_COUNT} whole checkpoints on {job.model_ranks} ranks were written "
            f"{CHECKPOINT_INTERVAL_S:g} s apart, each file fsynced, and then read, as MLPerf "
            "Storage's rules ask; CLOSED also asks for torch.save in DLIO's loop, which "
            "wattload check judges."
        ),
        figures={"departures": len(found)},
    )


def _caches(job: Job, accounts: Sequence[Account]) -> Check:
    """Judge the rule that caches are dropped where a client's bytes are under 3x its memory."""
    held: dict[str, int] = {}
    for account, shard in zip(accounts, job.shards, strict=True):
        held[account.host] = held.get(account.host, 0) + shard.size_bytes
    memory = {account.host: account.memory_bytes for account in accounts}
    host = min(held, key=lambda name: held[name] / max(memory[name], 1))
    needed = held[host] < CHECKPOINT_MEMORY_FACTOR * memory[host]
    proof = cold(accounts)
    verdict = proof.verdict if needed else "pass"
    rule = (
        f"A client wrote {format_bytes(held[host])} a checkpoint and has "
        f"{format_bytes(memory[host])} of memory: under {CHECKPOINT_MEMORY_FACTOR} times that, "
        "caches must be dropped before the reads"
    )
    done = "they were, and proved cold" if verdict == "pass" else "the proof is lacking"
    return Check(
        name="mlperf_cache_rule",
        verdict=verdict,
        sentence=f"{rule}; {done}." if needed else f"{rule}; that does not apply here.",
        figures={"client_bytes": held[host], "client_memory_bytes": memory[host]},
    )


def _read_start(accounts: Sequence[Account]) -> Check:
    """Judge the time from the end of the last write to the start of the first read."""
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
