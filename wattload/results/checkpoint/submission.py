"""Checkpoints of ours as MLPerf Storage's rules see them."""

from __future__ import annotations

from collections import Counter

from wattload.core.mlperf import published
from wattload.core.mlperf.formulas import UnknownError
from wattload.core.mlperf.published import Operation
from wattload.core.mlperf.rules import Answer, client_share, same
from wattload.results.checkpoint.facts import READ_PHASE, WRITE_PHASE, CheckpointFacts, Run
from wattload.results.checkpoint.figures import seconds
from wattload.results.submission import Own, Submission, checked, sound_run

CLOSED_WRITER = "torch"
"""The loader that writes checkpoints as CLOSED requires: ``torch.save``, as DLIO calls it."""
SUBSETS = {"mlperf_subset": "405b"}
"""The model of a subset whose name has none."""

Checkpoints = Own[CheckpointFacts]


def published_facts(run: Run) -> published.CheckpointFacts:
    """Return a run in the form of published ones."""
    writes, reads = (
        tuple(Operation.model_construct(seconds=(each,)) for each in seconds(run, phase))
        for phase in (WRITE_PHASE, READ_PHASE)
    )
    name = run.facts.settings.model
    return published.CheckpointFacts.model_construct(
        model=SUBSETS.get(name, name),
        ranks=run.record.workload.rank_count,
        checkpoint_bytes=run.facts.checkpoint_bytes,
        fsync=run.facts.settings.fsync,
        interval_s=run.facts.interval_s,
        writes=writes,
        reads=reads,
    )


def _whole_checkpoint(own: Checkpoints) -> Answer:
    """Judge whether each rank writes its whole shard, neither sliced nor scaled down."""
    got, required = own.run.facts.checkpoint_bytes, own.run.facts.whole_bytes
    return same("The size of a checkpoint over all ranks in bytes", got, required)


def _writes_before_reads(own: Checkpoints) -> Answer:
    kept, count = own.run.facts.kept, own.run.facts.settings.checkpoint_count
    good = kept >= count
    return (
        "closed" if good else "invalid",
        f"{min(kept, count)} of {count} checkpoints are on the target when reading starts"
        + ("." if good else "; the rules require all to be written before the first is read."),
        {"kept": kept, "count": count},
    )


def _cache_rule(own: Checkpoints) -> Answer:
    """Judge caches between writing and reading, on the host with the least data per memory."""
    memory = {host.facts.name: host.facts.memory_bytes for host in own.record.hosts}
    held = Counter[str]()
    for rank in own.record.ranks:
        held[rank.host] += own.run.facts.rank_bytes[rank.rank]
    factors = []
    for host, size in held.items():
        own_bytes = memory.get(host)
        if own_bytes is None:
            raise UnknownError("the memory of a host is unknown")
        factors.append(size / own_bytes)
    standing, sentence, figures = client_share(min(factors))
    if standing == "closed":
        return standing, sentence, figures
    found, why, _ = checked("cold_cache")(own)
    return found, f"{sentence} {why}", figures


SUBMISSION = Submission[CheckpointFacts](
    facts=published_facts,
    rules={
        "sound_run": sound_run,
        "processes": None,
        "whole_checkpoint": _whole_checkpoint,
        "checkpoint_count": None,
        # In the pause between two checkpoints, a drive can flush its cache.
        "checkpoint_interval": None,
        "writes_before_reads": _writes_before_reads,
        # With workload.protocol=mlperf.
        "read_start": checked("mlperf_read_start"),
        "synchronous": lambda own: same("The mode", own.run.facts.settings.mode, "sync"),
        "fsync": None,
        "cache_rule": _cache_rule,
        # CLOSED uses torch.save in DLIO.
        "framework": lambda own: same(
            "The loader", own.record.workload.loader, CLOSED_WRITER, "open"
        ),
    },
)
"""How checkpoints are judged."""
