"""The rules of MLPerf Storage for unet3d: what is read, by how many, how often, and how well."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from wattload.core import mlperf
from wattload.core.checks.mlperf_case import (
    Answer,
    Case,
    Standing,
    UnknownError,
    at_least,
    faults,
    same,
)
from wattload.core.mlperf import UNET3D
from wattload.core.units import format_bytes

MOST_PREFETCHED_BATCHES = 2
"""PyTorch's ``prefetch_factor`` at most, with DLIO and ``reader.prefetch_size`` 0 to 2."""


def data_set(case: Case) -> Answer:
    """Judge the files of an epoch by the rule of 500 steps and five times the memory."""
    rule = mlperf.DataSetRule(
        accelerators=case.detail("accelerators"),
        batch_samples=UNET3D.batch_samples,
        record_bytes=UNET3D.record_mean_bytes,
        memory_bytes=sum(case.memory_bytes().values()),
    )
    stated = case.record.workload.details.get("data_set_rule") or {}
    files = stated.get("epoch_files") or case.detail("file_count")
    standing, _, figures = at_least("files", files, rule.files)
    return (
        standing,
        f"{files} files an epoch of at least {rule.files}: the larger of {rule.by_memory} (5 x "
        f"{format_bytes(rule.memory_bytes)} of memory) and {rule.by_steps} (500 steps of "
        f"{rule.accelerators} accelerators).",
        {**figures, "by_memory": rule.by_memory, "by_steps": rule.by_steps},
    )


def steps(case: Case) -> Answer:
    """Judge how many steps an epoch has."""
    rule = mlperf.MINIMUM_STEPS
    return at_least("steps of an epoch", case.detail("steps_per_epoch"), rule)


def record_size(case: Case) -> Answer:
    """Judge the records' mean and stdev as configured, and how much of each is used."""
    asked = {
        "mean": UNET3D.record_mean_bytes,
        "stdev": UNET3D.record_stdev_bytes,
        "resize": UNET3D.resize_bytes,
    }
    got = {
        "mean": case.detail("record_mean_bytes_configured"),
        "stdev": case.detail("record_stdev_bytes_configured"),
        "resize": case.detail("resize_bytes"),
    }
    same = all(got[name] == asked[name] for name in asked)
    said = ", ".join(f"{name} {got[name]:.0f}" for name in asked)
    wanted = ", ".join(f"{name} {asked[name]}" for name in asked)
    realised = case.detail("record_stdev_bytes")
    return (
        "closed" if same else "invalid",
        f"Records as configured in bytes: {said}"
        + ("" if same else f"; the rules ask for {wanted}")
        + f". The files' own stdev is {realised:.0f}.",
        {**got, "realised_stdev": realised},
    )


def batch(case: Case) -> Answer:
    """Judge the samples of a batch."""
    return same("The batch", case.detail("batch_samples"), UNET3D.batch_samples)


def step_time(case: Case) -> Answer:
    """Judge how long an emulated accelerator computes: its published time."""
    name, step_s = case.setting("accelerator", "name"), case.detail("step_s")
    asked = UNET3D.step_s.get(name)
    if asked is None:
        known = ", ".join(UNET3D.step_s)
        return "invalid", f"Accelerator {name!r} is none of {known}.", {"step_s": step_s}
    return same(f"The step of {name} in seconds", step_s, asked)


def epochs(case: Case) -> Answer:
    """Judge how many epochs are run."""
    return same("The number of epochs", case.detail("epochs"), UNET3D.epochs)


def utilisation(case: Case) -> Answer:
    """Judge the utilisation by the formula that decides in MLPerf."""
    metric = case.record.metric("au_dlio")
    if metric is None or metric.value is None:
        raise UnknownError(metric.missing["value"] if metric else "the record has no au_dlio")
    least = UNET3D.au_threshold
    standing: Standing = "closed" if metric.value >= least else "invalid"
    nominal = case.record.metric("au_nominal")
    return (
        standing,
        f"AU is {metric.value:.2%} by DLIO's formula; at least {least:.0%} is asked for.",
        {"au_dlio": metric.value, "au_nominal": nominal.value if nominal else None},
    )


def data_format(case: Case) -> Answer:
    """Judge the files' format; OPEN may have another."""
    got = case.detail("record_format")
    return same("The record format", got, UNET3D.record_format, "open")


def data_loader(case: Case) -> Answer:
    """Judge who loads: CLOSED has the PyTorch data loader of DLIO."""
    loader, reader = case.record.workload.loader, _reader(case)
    own = _reads_as_closed(case)
    said = f"loader={loader}" + ("" if reader == "dlio" else f" with reader {reader}")
    return (
        "closed" if own else "open",
        f"{said} {'reads as CLOSED does' if own else 'is another data loader, which OPEN allows'}.",
        {"loader": loader},
    )


def prefetch(case: Case) -> Answer:
    """Judge how many batches a worker has under way: CLOSED has ``reader.prefetch_size`` 0 to 2.

    DLIO gives PyTorch ``ceil(prefetch_size / read_threads)``, and 2 for 0.
    """
    if not _reads_as_closed(case):
        loader = case.record.workload.loader
        return "open", "The data loader is not CLOSED's, nor its prefetching.", {"loader": loader}
    got, most = case.setting("loader", "prefetch_factor"), MOST_PREFETCHED_BATCHES
    standing: Standing = "closed" if got <= most else "open"
    sentence = f"Batches under way in each worker are {got}; CLOSED has {most} at most."
    return standing, sentence, {"got": got, "most": most}


def _reader(case: Case) -> str:
    return str((case.record.config.get("loader") or {}).get("reader", "dlio"))


def _reads_as_closed(case: Case) -> bool:
    return case.record.workload.loader in {"torch", "dlio"} and _reader(case) == "dlio"


def hosts_alike(case: Case) -> Answer:
    """Judge whether all hosts drive the same number of accelerators."""
    ranks = Counter(rank.host for rank in case.record.ranks)
    alike = len(set(ranks.values())) == 1
    said = ", ".join(f"{host}: {count}" for host, count in sorted(ranks.items()))
    per_rank = case.detail("accelerators_per_rank")
    return (
        "closed" if alike else "invalid",
        f"Ranks by host are {said}; each drives {per_rank} accelerators"
        + ("." if alike else ", and all hosts must drive as many."),
        dict(ranks),
    )


def five_runs(case: Case) -> Answer:
    """Judge the runs of one result: five, each by another seed, within 5 % of their mean."""
    alike = [record for record in case.alike if not faults(record)]
    rates = [
        metric.value
        for record in alike
        if (metric := record.metric("samples_per_s")) is not None and metric.value is not None
    ]
    if len(rates) < mlperf.RUN_COUNT:
        raise UnknownError(
            f"{len(rates)} good runs with these settings were named, and {mlperf.RUN_COUNT} make a "
            "result"
        )
    apart = max(abs(rate / fmean(rates) - 1) for rate in rates)
    seeds = len({record.config.get("seed") for record in alike})
    good = apart <= mlperf.RUN_SPREAD and seeds == len(alike)
    return (
        "closed" if good else "invalid",
        f"{len(rates)} runs by {seeds} seeds lie within {apart:.1%} of their mean samples/s; "
        f"{mlperf.RUN_SPREAD:.0%} and a seed for each are asked for.",
        {"runs": len(rates), "seeds": seeds, "apart": apart},
    )
