"""The rules of MLPerf Storage for checkpoints: which model, by how many, how often, how durable."""

from __future__ import annotations

from collections import Counter

from wattload.core import mlperf
from wattload.core.checks.mlperf_case import Answer, Case, UnknownError, cold, made, same


def _subset(model: str) -> bool:
    return model.startswith("mlperf_subset")


def model(case: Case) -> Answer:
    """Judge the model: one of the four, or a subset of one."""
    name = case.detail("model")
    known = name in mlperf.CHECKPOINT_RANKS or _subset(name)
    named = ", ".join(mlperf.CHECKPOINT_RANKS)
    sentence = f"The model is {name}" + ("." if known else f", none of {named}.")
    return "closed" if known else "invalid", sentence, {"model": name}


def processes(case: Case) -> Answer:
    """Judge how many processes write: exactly as many as the model has ranks, or a subset of 8."""
    name, ranks = case.detail("model"), case.record.workload.rank_count
    asked = mlperf.CHECKPOINT_RANKS.get(name)
    if _subset(name) or (asked is not None and ranks == mlperf.SUBSET_RANKS < asked):
        standing, sentence, figures = same("The number of processes", ranks, mlperf.SUBSET_RANKS)
        return standing, f"{sentence} That is the subset of v2.0; v3.0 has it for 8b.", figures
    if asked is None:
        raise UnknownError(f"the rules name no number of processes for {name}")
    return same("The number of processes", ranks, asked)


def whole(case: Case) -> Answer:
    """Judge whether each rank writes all of its shard: neither sliced nor shrunken."""
    got, asked = case.detail("checkpoint_bytes"), case.detail("rank_whole_bytes")
    return same("What its ranks write of a checkpoint in bytes", got, asked)


def count(case: Case) -> Answer:
    """Judge how often a checkpoint is written and read."""
    got = case.detail("checkpoint_count")
    return same("The number of checkpoints written and read", got, mlperf.CHECKPOINT_COUNT)


def interval(case: Case) -> Answer:
    """Judge the pause between two checkpoints, in which a drive can put its cache in order."""
    got = case.detail("interval_s")
    return same("The seconds between two checkpoints", got, mlperf.CHECKPOINT_INTERVAL_S)


def order(case: Case) -> Answer:
    """Judge whether all checkpoints are written before the first is read."""
    kept, count = case.detail("kept"), case.detail("checkpoint_count")
    good = kept >= count
    return (
        "closed" if good else "invalid",
        f"{min(kept, count)} of {count} checkpoints lie on the target when reading begins"
        + ("." if good else "; the rules have all written before the first is read."),
        {"kept": kept, "count": count},
    )


def read_start(case: Case) -> Answer:
    """Judge whether the first read began after the last write; workload.protocol=mlperf checks."""
    return made(case, "mlperf_read_start")


def synchronous(case: Case) -> Answer:
    """Judge whether training stands still until a checkpoint is written."""
    return same("The mode", case.record.workload.details.get("mode", "sync"), "sync")


def fsync(case: Case) -> Answer:
    """Judge whether every file is fsynced inside the time that is measured."""
    return same("fsync of every file", bool(case.setting("workload", "fsync")), True)


def cache_rule(case: Case) -> Answer:
    """Judge the caches between writing and reading, on the host with the least data for memory."""
    memory, held = case.memory_bytes(), Counter[str]()
    sizes = case.detail("rank_bytes")
    for rank in case.record.ranks:
        held[rank.host] += sizes[rank.rank]
    host = min(held, key=lambda name: held[name] / memory[name])
    factor, limit = held[host] / memory[host], mlperf.CHECKPOINT_MEMORY_FACTOR
    figures = {"client_bytes": held[host], "memory_bytes": memory[host], "factor": factor}
    said = f"A client's part of a checkpoint is {factor:.2f} times its memory"
    if factor >= limit:
        return "closed", f"{said}, {limit} or more: caches may stay.", figures
    standing, sentence, _ = cold(case)
    return standing, f"{said}, under {limit}: caches must be dropped. {sentence}", figures


def framework(case: Case) -> Answer:
    """Judge who writes: CLOSED has torch.save by DLIO."""
    return same("The loader", case.record.workload.loader, "torch", "open")
