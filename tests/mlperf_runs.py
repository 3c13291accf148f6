"""Runs that MLPerf Storage's rules take, to be made otherwise by tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tests.records import Scenario, WorkloadName, make_run
from tests.training import epoch, facts_of
from wattload.core.mlperf.edition import training_model
from wattload.core.mlperf.rules import DataSetRule, Finding
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.results.mlperf import judge

_FOUND = training_model("unet3d", "h100")
assert _FOUND is not None
UNET3D = _FOUND[1]
RECORD = 146_600_628
STEPS, STEP_S = 500, 0.323

COLD = Check(
    name="cold_cache",
    verdict="pass",
    sentence="It was cold.",
    figures={"resident_bytes": 0},
    mandatory=True,
)
READ_START = Check(
    name="mlperf_read_start",
    verdict="pass",
    sentence="The first read began 1.0 s after the last write.",
    figures={"seconds": 1.0},
)
TRAINING_SETTINGS = {
    "record_mean_bytes": RECORD,
    "record_stdev_bytes": 68_341_808,
    "resize_bytes": UNET3D.resize_bytes,
    "record_divisor": 1,
    "batch_samples": 7,
    "epochs": 5,
    "record_format": "npz",
}
CHECKPOINT_SETTINGS = {
    "model": "8b",
    "checkpoint_count": 10,
    "mode": "sync",
    "fsync": True,
    "protocol": "mlperf",
}


def _record(name: WorkloadName, ranks: int, **settings: Any) -> RunRecord:
    record, _ = make_run(Scenario(workload=name, loader="torch", ranks=ranks))
    return record.model_copy(update={"checks": (COLD,), "config": {"seed": 1, **settings}})


def with_facts(record: RunRecord, **facts: Any) -> RunRecord:
    work = record.workload
    workload = work.model_copy(update={"facts": {**work.facts, **facts}})
    return record.model_copy(update={"workload": workload})


def memory_of(record: RunRecord) -> int:
    memory = record.hosts[0].facts.memory_bytes
    assert memory is not None
    return memory


def training(seed: int = 1, *, epochs: int = 5, seconds: float = 0.0, **changes: Any) -> RunRecord:
    """Return a run with other facts, or with other settings of the workload.

    Its utilisation is 95 % by DLIO's formula and 94 % by nominal steps, of which an epoch has a few
    that stand for all. ``seconds`` are those by which each of its epochs is longer.
    """
    settings = {name: changes.pop(name, value) for name, value in TRAINING_SETTINGS.items()}
    config = {**settings, "epochs": epochs}
    record = _record(
        "unet3d",
        1,
        accelerator={"name": "h100"},
        loader={"prefetch_factor": 1},
        workload=config,
    )
    rule = DataSetRule(
        accelerators=4, batch_samples=7, record_bytes=RECORD, memory_bytes=memory_of(record)
    )
    one = epoch([0.0] * STEPS, [STEP_S * 95 / 94] * STEPS)
    window_s = (STEPS - 1) * STEP_S / 0.94
    longer = replace(one, duration_s=one.processed_s[0] + window_s + seconds)
    facts = facts_of([longer] * epochs).model_dump(mode="json")
    facts |= {"accelerators": 4, "step_s": STEP_S, "epoch_files": rule.files}
    record = with_facts(record, **{**facts, **changes})
    return record.model_copy(
        update={"run_id": f"run-{seed}", "config": {**record.config, "seed": seed}}
    )


def checkpoint(settings: Mapping[str, Any] = MappingProxyType({}), **facts: Any) -> RunRecord:
    config = {**CHECKPOINT_SETTINGS, **settings}
    record = _record("checkpoint", 8, workload=config)
    rank_bytes = [memory_of(record)] * 8
    sizes = {"rank_bytes": rank_bytes, "whole_bytes": sum(rank_bytes)}
    record = with_facts(record, **{"interval_s": 5.0, "kept": 10, **sizes, **facts})
    spans = tuple(
        _later(span, n) for n in range(config["checkpoint_count"]) for span in record.spans
    )
    return record.model_copy(update={"spans": spans, "checks": (COLD, READ_START)})


def _later(span: PhaseSpan, number: int) -> PhaseSpan:
    shift_ns = number * 10**12
    times = {"start_ns": span.start_ns + shift_ns, "end_ns": span.end_ns + shift_ns}
    return span.model_copy(update=times)


def five() -> list[RunRecord]:
    return [training(seed) for seed in range(1, 6)]


def finding(record: RunRecord, rule: str, beside: list[RunRecord] | None = None) -> Finding:
    judgement = judge(record, beside or [record])
    assert judgement is not None
    (found,) = [each for each in judgement.findings if each.rule == rule]
    return found


def with_config(record: RunRecord, **config: Any) -> RunRecord:
    return record.model_copy(update={"config": {**record.config, **config}})


def with_loader(record: RunRecord, loader: str) -> RunRecord:
    work = record.workload.model_copy(update={"loader": loader})
    return record.model_copy(update={"workload": work})
