"""Training runs of ours as MLPerf Storage's rules see them."""

from __future__ import annotations

from collections import Counter

from wattload.core.mlperf.edition import TrainingModel
from wattload.core.mlperf.formulas import UnknownError
from wattload.core.mlperf.rules import (
    MINIMUM_STEPS,
    RUN_SPREAD,
    Answer,
    Standing,
    at_least,
    farthest,
    same,
)
from wattload.core.units import format_percent
from wattload.results.submission import Own, Submission, checked, faults, sound_run
from wattload.results.training.as_published import published_facts
from wattload.results.training.facts import TrainingFacts
from wattload.results.training.figures import au_dlio, au_nominal, samples_per_s

CLOSED_LOADERS = frozenset({"torch", "dlio"})
"""The loaders that can read a training data set as CLOSED requires."""
CLOSED_READER = "dlio"
"""The reader they need for it: DLIO's PyTorch data loader (``framework: pytorch`` in DLIO)."""
MOST_PREFETCHED_BATCHES = 2
"""PyTorch's ``prefetch_factor`` at most, with DLIO and ``reader.prefetch_size`` 0 to 2."""


Training = Own[TrainingFacts]


def _job(own: Training) -> TrainingModel:
    job = own.edition.training.get(own.record.workload.name)
    if job is None:
        raise UnknownError(f"{own.edition.name} has no {own.record.workload.name}")
    return job


def _record_spread(own: Training) -> Answer:
    """Judge the spread of records and what of each reaches the accelerator."""
    if own.run.facts.settings.source is not None:
        raise UnknownError("the configured sizes of workload.source's records are unknown")
    job, divisor = _job(own), own.run.facts.settings.record_divisor
    required = {"record_stdev_bytes": job.record_stdev_bytes, "resize_bytes": job.resize_bytes}
    asked = {name: size for name, size in required.items() if size}
    got = {name: own.number("workload", name) / divisor for name in asked}
    listed = ", ".join(f"{name} {size:.0f}" for name, size in got.items())
    wanted = ", ".join(f"{name} {size:.0f}" for name, size in asked.items())
    realised = own.run.facts.record_stdev_bytes
    rest = "" if got == asked else f"; the rules require {wanted}"
    sentence = f"Configured: {listed or 'one size'}{rest}. The files' own stdev is {realised:.0f}."
    standing: Standing = "closed" if got == asked else "invalid"
    return standing, sentence, {**got, "realised_stdev": realised}


def _utilisation(own: Training) -> Answer:
    """Judge the accelerator utilisation: the smaller of the two that DLIO's releases compute.

    2.0.0 sums the nominal step time, later ones the time that steps took, oversleep included.
    """
    dlio, nominal, least = au_dlio(own.run), au_nominal(own.run), _job(own).au
    if dlio is None or nominal is None:
        raise UnknownError("no accelerator was emulated in steps after an epoch's first one")
    return (
        "closed" if min(dlio, nominal) >= least else "invalid",
        f"AU is {format_percent(dlio, 2)} by DLIO's formula and {format_percent(nominal, 2)} by "
        f"nominal steps; the smaller must be at least {format_percent(least)}.",
        {"au_dlio": dlio, "au_nominal": nominal},
    )


def _data_loader(own: Training) -> Answer:
    """Judge the data loader: CLOSED uses DLIO's PyTorch data loader."""
    loader, reader, is_closed = own.record.workload.loader, _reader(own), _reads_as_closed(own)
    loaded_by = f"loader={loader}" + ("" if reader == CLOSED_READER else f" with reader {reader}")
    rest = "is as in CLOSED" if is_closed else "differs from CLOSED, as OPEN allows"
    return "closed" if is_closed else "open", f"{loaded_by} {rest}.", {"loader": loader}


def _prefetch(own: Training) -> Answer:
    """Judge a worker's prefetched batches: CLOSED allows ``reader.prefetch_size`` 0 to 2.

    DLIO passes ``ceil(prefetch_size / read_threads)`` to PyTorch, and 2 for 0.
    """
    if not _reads_as_closed(own):
        sentence = "The data loader is not CLOSED's, so its prefetching is not either."
        return "open", sentence, {"loader": own.record.workload.loader}
    got, most = own.number("loader", "prefetch_factor"), MOST_PREFETCHED_BATCHES
    standing: Standing = "closed" if got <= most else "open"
    sentence = f"Each worker prefetches {got} batches; CLOSED allows at most {most}."
    return standing, sentence, {"got": got, "most": most}


def _reader(own: Training) -> str:
    return str((own.record.config.get("loader") or {}).get("reader", CLOSED_READER))


def _reads_as_closed(own: Training) -> bool:
    return own.record.workload.loader in CLOSED_LOADERS and _reader(own) == CLOSED_READER


def _hosts_alike(own: Training) -> Answer:
    ranks = Counter(rank.host for rank in own.record.ranks)
    if not ranks:
        raise UnknownError("the record has no ranks")
    equal = len(set(ranks.values())) == 1
    by_host = ", ".join(f"{host}: {count}" for host, count in sorted(ranks.items()))
    sentence = f"Ranks by host are {by_host}; accelerators per rank: {own.run.facts.per_rank}"
    rest = "." if equal else "; all hosts must drive the same number."
    return "closed" if equal else "invalid", f"{sentence}{rest}", dict(ranks)


def _five_runs(own: Training) -> Answer:
    """Judge the runs of one result: five, with different seeds, within 5 % of their mean."""
    valid, needed = [run for run in own.runs if not faults(run.record)], own.edition.runs
    if len(valid) < needed:
        raise UnknownError(f"valid runs with these settings: {len(valid)}; a result needs {needed}")
    rates = [samples_per_s(run) for run in valid]
    spread = farthest(rates)
    seeds = len({run.record.config.get("seed") for run in valid})
    good = spread <= RUN_SPREAD and seeds == len(valid)
    return (
        "closed" if good else "invalid",
        f"{len(rates)} runs with {seeds} seeds are within {format_percent(spread, 1)} of their "
        f"mean samples/s; {format_percent(RUN_SPREAD)} and different seeds are required.",
        {"runs": len(rates), "seeds": seeds, "spread": spread},
    )


SUBMISSION = Submission[TrainingFacts](
    facts=published_facts,
    rules={
        "sound_run": sound_run,
        "data_set_size": None,
        "steps": lambda own: at_least(
            "Steps of an epoch", own.run.facts.steps_per_epoch, MINIMUM_STEPS
        ),
        "job": None,
        "record_size": _record_spread,
        "accelerator_utilisation": _utilisation,
        # MLPerf drops the page cache before each epoch; wattload verifies that.
        "cold_cache": checked("cold_cache"),
        "record_format": lambda own: same(
            "The record format",
            own.setting("workload", "record_format"),
            _job(own).record_format,
            "open",
        ),
        "data_loader": _data_loader,
        "prefetch": _prefetch,
        "hosts_alike": _hosts_alike,
        "five_runs": _five_runs,
    },
)
"""How training runs are judged."""
