"""Runs that MLPerf Storage's rules take, to be made otherwise by tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.records import Scenario, WorkloadName, make_run
from wattload.core.mlperf.judge import UNET3D, DataSetRule, Finding, judge
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit

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
TRAINING_FACTS = {
    "accelerators": 4,
    "steps_per_epoch": 500,
    "record_stdev_bytes": 68_341_800.0,
    "step_s": 0.323,
}
TRAINING_SETTINGS = {
    "record_mean_bytes": UNET3D.record_mean_bytes,
    "record_stdev_bytes": UNET3D.record_stdev_bytes,
    "resize_bytes": UNET3D.resize_bytes,
    "record_divisor": 1,
    "batch_samples": 7,
    "epochs": 5,
    "record_format": "npz",
}
CHECKPOINT_SETTINGS = {"model": "8b", "checkpoint_count": 10, "mode": "sync", "fsync": True}
CHECKPOINT_FACTS = {"interval_s": 5.0, "kept": 10}


def figure(name: str, value: float, unit: Unit) -> Metric:
    return Metric(name=name, value=value, unit=unit, better="higher", meaning="Made up.")


def _record(name: WorkloadName, ranks: int, **settings: Any) -> RunRecord:
    scenario = Scenario(workload=name, loader="torch", ranks=ranks)
    record, _ = make_run(scenario)
    return record.model_copy(
        update={
            "workload": record.workload.model_copy(update={"facts": {}}),
            "checks": (COLD,),
            "config": {"seed": 1, **settings},
        }
    )


def memory_of(record: RunRecord) -> int:
    memory = record.hosts[0].facts.memory_bytes
    assert memory is not None
    return memory


def training(seed: int = 1, **changes: Any) -> RunRecord:
    """Return a run with other facts, or with other settings of the workload."""
    settings = {name: changes.pop(name, value) for name, value in TRAINING_SETTINGS.items()}
    record = _record(
        "unet3d",
        1,
        accelerator={"name": "h100"},
        loader={"prefetch_factor": 1},
        workload=settings,
    )
    rule = DataSetRule(
        accelerators=4,
        batch_samples=7,
        record_bytes=UNET3D.record_mean_bytes,
        memory_bytes=memory_of(record),
    )
    facts = {**TRAINING_FACTS, "epoch_files": rule.files, **changes}
    return record.model_copy(
        update={
            "run_id": f"run-{seed}",
            "workload": record.workload.model_copy(update={"facts": facts}),
            "config": {**record.config, "seed": seed},
            "metrics": (
                figure("au_dlio", 0.95, Unit.FRACTION),
                figure("au_nominal", 0.94, Unit.FRACTION),
                figure("samples_per_s", 80.0 + seed, Unit.SAMPLES_PER_SECOND),
            ),
        }
    )


def checkpoint(settings: Mapping[str, Any] = MappingProxyType({}), **facts: Any) -> RunRecord:
    record = _record("checkpoint", 8, workload={**CHECKPOINT_SETTINGS, **settings})
    rank_bytes = [memory_of(record)] * 8
    sizes = {"rank_bytes": rank_bytes, "whole_bytes": sum(rank_bytes)}
    workload = record.workload.model_copy(update={"facts": {**CHECKPOINT_FACTS, **sizes, **facts}})
    return record.model_copy(update={"workload": workload, "checks": (COLD, READ_START)})


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
