"""Checks of model loading, each with its fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.records import Scenario, make_run
from tests.reports.sessions import timed_span
from wattload.core.record.phase import IoCounter
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.results.model_load.checks import OBSERVED
from wattload.results.model_load.facts import LOAD, LoadFacts, LoadSettings
from wattload.results.reading import checks_of, run_of

NEEDED = (1_000_000, 800_000)
"""Bytes that the two ranks need, 300,000 of which both do."""
DISTINCT = 1_500_000
LOADS = 2
START_NS = 5 * NS_PER_S


def rank_load(rank: int, load: int) -> dict[str, Any]:
    start_ns = START_NS + load * 10 * NS_PER_S + 1000
    return {
        "start_ns": start_ns, "first_layer_ns": start_ns + NS_PER_S,
        "end_ns": start_ns + 4 * NS_PER_S - 2000, "delivered_bytes": NEEDED[rank],
        "peak_memory_bytes": None,
        "compared_bytes": NEEDED[rank], "wrong_bytes": 0, "first_wrong": None,
    }  # fmt: skip


def load_record(
    change: Callable[[dict[str, Any]], object] = lambda facts: None,
    *,
    read_bytes: int | None = LOADS * DISTINCT,
    temperature: str = "cold",
) -> RunRecord:
    """Return two loads by two ranks, which took 4 s each; ``change`` may alter their facts."""
    facts: dict[str, Any] = {
        "model": {
            "name": "tiny", "layers": 2, "tensors": 21, "tensor_bytes": DISTINCT,
            "file_bytes": DISTINCT + 4096, "digest": "1d" * 32,
        },
        "needed_bytes": list(NEEDED),
        "distinct_bytes": DISTINCT,
        "loads": [
            {
                "ranks": [rank_load(rank, load) for rank in range(2)],
                "resident_bytes": DISTINCT,
            }
            for load in range(LOADS)
        ],
        "device": None, "gpus": [], "bypasses_cache": False, "read_whole": [],
        "drive_ceiling_bytes_per_s": 1e9, "copy_ceiling_bytes_per_s": None,
    }  # fmt: skip
    change(facts)
    settings = {"source": None, "tp": 2, "access": "whole", "temperature": temperature}
    LoadFacts.model_validate({**facts, "settings": LoadSettings.model_validate(settings)})
    base, _ = make_run(Scenario(workload="checkpoint", power="none", virtual=False))
    spans = [
        timed_span(LOAD, START_NS + load * 10 * NS_PER_S, 4.0, rank=rank, read_bytes=NEEDED[rank])
        for rank in range(2) for load in range(LOADS)
    ]  # fmt: skip
    counter = IoCounter(
        host="box", device="nvme0n1", phase=LOAD, read_bytes=read_bytes or 0, written_bytes=0,
        read_operations=30, write_operations=0, busy_s=8.0, weighted_s=80.0,
    )  # fmt: skip
    return base.model_copy(
        update={
            "config": {**base.config, "workload": settings, "loader": {"name": "mmap"}},
            "workload": base.workload.model_copy(
                update={"name": "model_load", "facts": facts, "data": None, "loader": "mmap"}
            ),
            "spans": tuple(spans),
            "counters": () if read_bytes is None else (counter,),
            "metrics": (), "latencies": (), "halves": (), "checks": (),
        }
    )  # fmt: skip


def verdicts(record: RunRecord) -> dict[str, str]:
    return {each.name: each.verdict for each in checks_of(record)}


CLEAN = dict.fromkeys(("loaded", "held", "delivered_tensors", "load_times"), "pass")


def test_clean_loads_pass_every_check() -> None:
    assert verdicts(load_record()) == CLEAN
    mandatory = {each.name for each in checks_of(load_record()) if each.mandatory}
    assert mandatory == {"loaded", "delivered_tensors"}


def test_ranks_that_bypass_the_page_cache_read_all_that_each_needs() -> None:
    def bypass(facts: dict[str, Any]) -> None:
        facts["bypasses_cache"] = True

    assert verdicts(load_record(bypass))["loaded"] == "fail"
    whole = verdicts(load_record(bypass, read_bytes=LOADS * sum(NEEDED)))
    assert whole == {name: "pass" for name in CLEAN if name != "held"}


def test_only_cold_loads_must_come_from_the_drive() -> None:
    warm = load_record(read_bytes=0, temperature="warm")
    assert verdicts(warm) == {name: "pass" for name in CLEAN if name != "loaded"}
    [cold_cache] = OBSERVED
    cold_run, warm_run = run_of(load_record()), run_of(warm)
    assert cold_run is not None
    assert warm_run is not None
    assert cold_cache.applies(cold_run)
    assert not cold_cache.applies(warm_run)


def test_without_counters_of_the_drive_loads_are_not_proved() -> None:
    assert verdicts(load_record(read_bytes=None))["loaded"] == "not_checked"


def of_a_rank(**changes: Any) -> Callable[[dict[str, Any]], object]:
    """Return what changes the second load of rank 1; times change by the given ns."""

    def change(facts: dict[str, Any]) -> None:
        rank = facts["loads"][1]["ranks"][1]
        rank |= {n: rank[n] + v if n.endswith("_ns") else v for n, v in changes.items()}

    return change


FAULTS: Mapping[str, tuple[str, RunRecord, str]] = {
    "a library that mapped the files and read nothing": (
        "loaded", load_record(read_bytes=4096), "need 3.00 MB"
    ),
    "a load of which a fiftieth was in memory": (
        "loaded", load_record(read_bytes=int(LOADS * DISTINCT * 0.979)), "in memory before"
    ),
    "a model that the page cache had no room for": (
        "held",
        load_record(lambda facts: facts["loads"][0].update(resident_bytes=int(0.979 * DISTINCT))),
        "held 1.47 MB after a load, whose tensors are 1.50 MB: memory is too small for the model",
    ),
    "a tensor that was left out": (
        "delivered_tensors", load_record(of_a_rank(delivered_bytes=799_990)), "left out"
    ),
    "a tensor that came twice": (
        "delivered_tensors", load_record(of_a_rank(delivered_bytes=800_010)), "came twice"
    ),
    "a wrong byte": (
        "delivered_tensors",
        load_record(of_a_rank(wrong_bytes=1, first_wrong="model.norm.weight")),
        "1 are wrong, first in model.norm.weight",
    ),
    "a tensor that was not compared": (
        "delivered_tensors", load_record(of_a_rank(compared_bytes=0)), "and 2,800,000 compared"
    ),
    "a load that ended after its span": (
        "load_times", load_record(of_a_rank(end_ns=NS_PER_S)), "of the 16.000 s of 4 spans"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_check(fault: str) -> None:
    name, record, sentence = FAULTS[fault]
    assert verdicts(record) == {**CLEAN, name: "fail"}
    [check] = [each for each in checks_of(record) if each.name == name]
    assert sentence in check.sentence


def test_a_gpu_needs_no_file_in_the_page_cache() -> None:
    def to_gpu(facts: dict[str, Any]) -> None:
        facts |= {"device": "NVIDIA H200"}
        facts["loads"][0]["resident_bytes"] = 0

    assert verdicts(load_record(to_gpu)) == {n: "pass" for n in CLEAN if n != "held"}


def test_a_span_with_more_than_its_load_warns_as_its_energy_is_not_that_of_the_load() -> None:
    record = load_record(of_a_rank(start_ns=3 * NS_PER_S, first_layer_ns=2 * NS_PER_S + 999))
    assert verdicts(record) == {**CLEAN, "load_times": "warn"}
