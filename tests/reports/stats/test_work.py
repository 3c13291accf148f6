"""Which settings make two runs other work, so that they are not compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.reports.gnn import gnn_run
from tests.reports.gpu_reads import reads_run
from tests.reports.random_reads import random_run
from tests.reports.random_writes import writes_run
from wattload.reports.stats.conditions import differences, exclusions
from wattload.reports.stats.subject import make_subject

MAKERS: dict[str, Any] = {
    "gnn": gnn_run, "gpu_read": reads_run, "random_read": random_run, "random_write": writes_run,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "of_b", "reason"),
    [
        ("gnn", {"graph": "igb_tiny"}, "workload.graph"),
        ("gnn", {"source": "/data/igb"}, "workload.source"),
        ("gnn", {"batch_seeds": 512}, "workload.batch_seeds"),
        ("gnn", {"fanouts": (15, 10, 5)}, "workload.fanouts"),
        ("gnn", {"memory_share": 0.9}, "workload.memory_share"),
        ("gnn", {"sampler": "dgl"}, "different batches: drawn by wattload and drawn by DGL"),
        ("gnn", {"trainer": "emulated"}, "workload training"),
        ("gnn", {"method": "drop_cache"}, "workload memory limit"),
        ("gpu_read", {"load": "busy"}, "different load: none and busy"),
        ("gpu_read", {"block_bytes": 131_072}, "workload.block_bytes"),
        ("random_read", {"cache_bytes": 1 << 24}, "workload cache"),
        ("random_write", {"draw": "each_once"}, "draw"),
        ("random_write", {"until": "wsat"}, "until"),
        ("random_write", {"block_bytes": 4096}, "block_bytes"),
        ("random_write", {"condition": "keep"}, "condition"),
        ("random_write", {"is_whole": False}, "workload range"),
        ("random_write", {"where": "directory"}, "workload target"),
    ],
)
def test_arms_of_other_work_are_not_compared(kind: str, of_b: dict[str, Any], reason: str) -> None:
    make = MAKERS[kind]
    runs = [
        replace(run, record=run.record.model_copy(update={"label": label}))
        for label, run in (("A", make(name="a")), ("B", make(name="b", seed=2, **of_b)))
    ]
    subject = make_subject(runs, "label")
    assert reason in exclusions(subject, subject.groups[0]).work


def test_arms_may_differ_in_how_the_same_work_is_done() -> None:
    other = {"sampler": "gpu", "outstanding": 2048, "sampler_threads": 4, "gpus": 1,
             "profile_steps": 0}  # fmt: skip
    runs = [
        gnn_run(name="a"),
        gnn_run(name="b", loader="gpu_queue", sampler="torch", overlap="ahead", repeat=1,
                settings=other),
    ]  # fmt: skip
    subject = make_subject(runs, "loader")
    found = exclusions(subject, subject.groups[0])
    assert (found.work, found.bytes_by_phase) == ("", {})
    assert "config workload.outstanding" in {
        each.name for each in differences(subject.groups[0], "loader")
    }
