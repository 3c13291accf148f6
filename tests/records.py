"""Made-up runs with all that a real one holds, for tests of whatever reads records.

No figure here was measured. A ``Scenario`` says what kind of run is wanted; ``write_run`` writes
its folder: ``record.json`` and two Parquet traces, which agree with each other byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tests import record_machine, record_power
from tests.record_facts import CHECKPOINT_SETTINGS, checkpoint_facts
from tests.record_figures import checks
from tests.record_machine import read
from tests.record_traces import (
    Bins,
    draw_bins,
    phase_plans,
    share,
    throughput_table,
    write_table,
)
from tests.training import training_facts
from wattload.core.io import DataPath
from wattload.core.record.file import write_record
from wattload.core.record.host import ClockOffset, RankRecord
from wattload.core.record.phase import (
    IoCounter,
    PhaseHalves,
    PhaseSpan,
    PhaseWindow,
    TraceFile,
    phase_windows,
)
from wattload.core.record.results import Check
from wattload.core.record.run import Comparison, DataRecord, RunRecord, Status, WorkloadSection
from wattload.results.dlrm import DlrmFacts, DlrmSettings, PhaseWork
from wattload.results.facts import Facts, Run
from wattload.results.reading import metrics_of
from wattload.results.training.facts import TrainingFacts

WorkloadName = Literal["unet3d", "checkpoint", "dlrm"]
SETTINGS: Mapping[WorkloadName, dict[str, Any]] = {
    "unet3d": {
        "record_mean_bytes": 146_600_628,
        "record_divisor": 1,
        "batch_samples": 7,
        "epochs": 1,
    },
    "checkpoint": CHECKPOINT_SETTINGS,
    "dlrm": {"rounds": 1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a made-up run was. Rates are means in bytes per second, ``busy_w`` the peak in watts."""

    run_id: str = "20261120T230100Z-unet3d-A-1a2b"
    workload: WorkloadName = "unet3d"
    label: str = "A"
    loader: str = "direct"
    scale: str = "quick"
    seed: int = 1
    order: int = 0
    rate_bytes_per_s: float = 1.5e9
    seconds: float = 32.0
    power: record_power.PowerKind = "none"
    busy_w: float = 18.0
    state: int = 0
    virtual: bool = True
    ranks: int = 1
    first_rank: int = 0
    host: str = "box"
    boot_ns: int = 0
    """CLOCK_MONOTONIC of the host at the start of the run."""
    pace: float = 1.0
    """How long a timed phase lasts on the slowest host, which the others wait for, by its own."""
    path: str = "/mnt/ssd"
    serial: str = "S4EVNX0R900001"
    model: str = "MICRON_6550_MTFDLAL61T4TGA"
    status: Status = "complete"
    checks: Sequence[Check] = ()
    limits: Sequence[str] = ()
    remarks: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Other facts than those that follow from the above."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other settings of the workload."""


def _spans(scenario: Scenario, bins: Sequence[Bins]) -> list[PhaseSpan]:
    return [
        PhaseSpan(
            name=part.phase.name,
            parent=None,
            host=scenario.host,
            rank=scenario.first_rank + rank,
            timed=part.phase.timed,
            start_ns=part.phase.start_ns,
            end_ns=part.phase.end_ns,
            read_bytes=int(share(part.read_bytes, rank, scenario.ranks).sum()),
            written_bytes=int(share(part.written_bytes, rank, scenario.ranks).sum()),
            operations=400,
            cpu_s=part.phase.seconds * 0.4,
        )
        for part in bins
        for rank in range(scenario.ranks)
    ]


def of_windows(windows: Sequence[PhaseWindow]) -> dict[str, Any]:
    """Return spans of one rank per host, and halves, that make these windows."""
    spans, halves = [], []
    hosts = list(dict.fromkeys(window.host for window in windows))
    for window in windows:
        common = {"name": window.name, "parent": None, "host": window.host, "timed": window.timed}
        for number, (start_ns, end_ns) in enumerate(window.intervals):
            names = ("read_bytes", "written_bytes", "operations", "cpu_s")
            counts = {name: 0 if number else getattr(window, name) for name in names}
            spans.append(
                PhaseSpan(
                    rank=hosts.index(window.host),
                    start_ns=start_ns,
                    end_ns=end_ns,
                    is_part=window.is_part,
                    **common,
                    **counts,
                )
            )
        if window.half_rates_bytes_per_s is not None:
            first, second = (
                round(rate * window.active_s / 2) for rate in window.half_rates_bytes_per_s
            )
            halves.append(
                PhaseHalves(
                    phase=window.name, host=window.host, first_bytes=first, second_bytes=second
                )
            )
    return {"spans": tuple(spans), "halves": tuple(halves)}


def _counters(scenario: Scenario, windows: Sequence[PhaseWindow]) -> list[IoCounter]:
    device = "vda" if scenario.virtual else "nvme0n1"
    counters = []
    for window in windows:
        common = {"host": scenario.host, "phase": window.name}
        counters.append(
            IoCounter(
                device=device,
                read_bytes=round(window.read_bytes * 1.001),
                written_bytes=round(window.written_bytes * 1.002),
                read_operations=window.read_bytes // 1_048_576,
                write_operations=window.written_bytes // 1_048_576,
                busy_s=window.seconds * 0.97,
                weighted_s=window.seconds * 7.4,
                **common,
            )
        )
    return counters


def _facts(
    scenario: Scenario, spans: Sequence[PhaseSpan], windows: Sequence[PhaseWindow]
) -> Mapping[str, Any]:
    """Return the facts that agree with the spans."""
    facts: Facts
    if scenario.workload == "unet3d":
        facts = training_facts(spans)
    elif scenario.workload == "checkpoint":
        facts = checkpoint_facts(spans)
    else:
        facts = _conversion_facts(scenario, [window for window in windows if window.timed])
    return {**facts.model_dump(mode="json"), **scenario.facts}


def _conversion_facts(scenario: Scenario, timed: Sequence[PhaseWindow]) -> DlrmFacts:
    """Return the facts of a conversion that waits for storage half of the time."""
    return DlrmFacts(
        settings=DlrmSettings(rounds=1),
        workers=1,
        tsv_bytes=timed[0].read_bytes,
        gz_bytes=0,
        row_count=timed[0].read_bytes // 246,
        dropped_count=0,
        category_sizes=(),
        rare_id_counts=(),
        spilled_bytes=0,
        ceiling_bytes_per_s=4 * scenario.rate_bytes_per_s,
        phases={
            window.name: PhaseWork(
                cpu_s=0.4 * window.seconds,
                unpack_cpu_s=0.0,
                task_s=window.seconds,
                run_queue_s=0.1 * window.seconds,
                peak_bytes=120_000_000,
                part_count=2,
                kept_count=0,
            )
            for window in timed
        },
    )


def _workload(
    scenario: Scenario, spans: Sequence[PhaseSpan], windows: Sequence[PhaseWindow]
) -> WorkloadSection:
    return WorkloadSection(
        name=scenario.workload,
        loader="arrow" if scenario.workload == "dlrm" else scenario.loader,
        scale=scenario.scale,
        accelerator="h100" if scenario.workload == "unet3d" else "none",
        rank_count=scenario.ranks,
        paths=(
            DataPath(
                data_path="posix",
                path_requested="o_direct",
                path_effective="o_direct",
                path_evidence="device sectors over bytes = 1.001",
            ),
        ),
        facts=_facts(scenario, spans, windows),
        remarks=tuple(scenario.remarks),
        data=DataRecord(
            key=f"{scenario.workload}-0123456789ab",
            folder=f"{scenario.path}/wattload-data/{scenario.workload}-0123456789ab",
            file_count=28,
            data_bytes=4_104_817_584,
            reused=False,
            parameters={"file_count": 28, "seed": scenario.seed},
        ),
    )


def make_run(scenario: Scenario) -> tuple[RunRecord, dict[str, pa.Table]]:
    """Return a run's record (without its trace files) and its two traces by name."""
    random = np.random.default_rng(scenario.seed)
    bins = [draw_bins(plan, random) for plan in phase_plans(scenario)]
    spans = _spans(scenario, bins)
    windows = phase_windows(spans)
    power, samples = record_power.make_power(scenario, bins, windows, random)
    record = RunRecord(
        **_header(scenario),
        **_machine(scenario, windows[-1].end_ns + 3_000_000_000),
        workload=_workload(scenario, spans, windows),
        spans=tuple(spans),
        counters=tuple(_counters(scenario, windows)),
        power=power,
        checks=(*checks(scenario.workload, windows), *scenario.checks),
        limits=tuple(scenario.limits),
        traces=(),
    )
    record = record.model_copy(update={"metrics": metrics_of(record)})
    return record, {
        "throughput": throughput_table(bins, scenario),
        "power": samples,
    }


def training_record(facts: TrainingFacts, scenario: Scenario) -> RunRecord:
    """Return the record of a scenario with these facts and their settings."""
    own = replace(
        scenario, facts=facts.model_dump(mode="json"), settings=facts.settings.model_dump()
    )
    return make_run(own)[0]


def run_of_facts(facts: TrainingFacts) -> Run[TrainingFacts]:
    return Run(make_run(Scenario())[0], facts)


def _header(scenario: Scenario) -> dict[str, Any]:
    minute = f"2026-11-20T23:{scenario.order % 60:02d}"
    return {
        "run_id": scenario.run_id,
        "status": scenario.status,
        "status_reason": "" if scenario.status == "complete" else "the run was interrupted",
        "label": scenario.label,
        "started_utc": f"{minute}:05.000+00:00",
        "finished_utc": f"{minute}:55.000+00:00",
        "command": (
            "wattload",
            "run",
            f"workload={scenario.workload}",
            f"target.path={scenario.path}",
            f"label={scenario.label}",
        ),
        "config": {
            "workload": {
                "file_count": 28,
                "batch_size": 7,
                **SETTINGS[scenario.workload],
                **scenario.settings,
            },
            "loader": {"name": scenario.loader, "depth": 8},
            "target": {"path": scenario.path},
            "scale": {"name": scenario.scale},
            "seed": scenario.seed,
        },
        "comparison": Comparison(
            session_id="s1", arm=scenario.label, block=scenario.order // 2, order=scenario.order
        ),
        "software": record_machine.software(),
    }


def _machine(scenario: Scenario, end_ns: int) -> dict[str, Any]:
    host, serial, model = scenario.host, scenario.serial, scenario.model
    virtual = scenario.virtual
    drive = record_machine.controller(host, serial, model, scenario.state, 9_000_000_000)
    return {
        "hosts": (
            record_machine.host(host, boot_ns=scenario.boot_ns, end_ns=end_ns, virtual=virtual),
        ),
        "ranks": tuple(
            read(RankRecord, "not kept", rank=rank, host=host, pid=4000 + rank, cpu_s=31.0)
            for rank in range(scenario.first_rank, scenario.first_rank + scenario.ranks)
        ),
        "targets": (
            record_machine.target(scenario.path, host, serial=serial, model=model, virtual=virtual),
        ),
        "controllers": () if virtual else (drive,),
    }


def write_run(folder: Path, scenario: Scenario) -> Path:
    """Write one run's folder under ``folder`` and return it."""
    record, traces = make_run(scenario)
    return write_made_run(folder / scenario.run_id, record, traces)


def make_cluster(scenarios: Sequence[Scenario]) -> tuple[RunRecord, dict[str, pa.Table]]:
    """Return one run of several hosts, each with the ranks, drive and power of a scenario.

    The clock of each other host is known to 0.1 ms on that of the first.
    """
    runs = [make_run(scenario) for scenario in scenarios]
    records = [record for record, _ in runs]
    first = records[0]
    spans = tuple(span for record in records for span in record.spans)
    whole = replace(scenarios[0], ranks=sum(each.ranks for each in scenarios))
    power = first.power.model_copy(
        update={
            name: tuple(part for record in records for part in getattr(record.power, name))
            for name in ("sources", "states", "energy")
        }
    )
    joined = {
        name: tuple(part for record in records for part in getattr(record, name))
        for name in ("ranks", "targets", "controllers", "counters")
    }
    hosts = [first.hosts[0]]
    for scenario, record in zip(scenarios[1:], records[1:], strict=True):
        ahead_ns = scenario.boot_ns - scenarios[0].boot_ns
        offset = ClockOffset(monotonic_ns=scenario.boot_ns, offset_ns=ahead_ns, bound_ns=100_000)
        hosts.append(record.hosts[0].model_copy(update={"offsets": (offset,)}))
    record = first.model_copy(
        update={
            **joined,
            "hosts": tuple(hosts),
            "spans": spans,
            "power": power,
            "workload": _workload(whole, spans, phase_windows(spans)),
        }
    )
    record = record.model_copy(update={"metrics": metrics_of(record)})
    return record, {
        name: pa.concat_tables([traces[name] for _, traces in runs])
        for name in ("throughput", "power")
    }


def cluster_of(*hosts: str, slow: str = "", **scenario: Any) -> list[Scenario]:
    """Return a scenario for each host, with a drive and a clock of its own.

    Each reads as much; the ``slow`` one needs a quarter more time.
    """
    common = Scenario(**{"virtual": False, **scenario})
    return [
        replace(
            common,
            host=host,
            serial=f"S4EVNX0R90000{number}",
            seed=common.seed + number,
            first_rank=number * common.ranks,
            boot_ns=number * 1_000_000_000_000,
            pace=1.25 if slow and host != slow else 1.0,
            seconds=common.seconds * (1.25 if host == slow else 1.0),
            rate_bytes_per_s=common.rate_bytes_per_s * (0.8 if host == slow else 1.0),
        )
        for number, host in enumerate(hosts)
    ]


def write_made_run(folder: Path, record: RunRecord, traces: Mapping[str, pa.Table]) -> Path:
    """Write a record and its traces, the record naming each trace with its digest."""
    folder.mkdir(parents=True)
    files = []
    for name, table in traces.items():
        file = folder / f"{name}.parquet"
        # No two real runs have equal traces, and made-up ones of one seed would.
        write_table(table.replace_schema_metadata({"run": record.run_id}), file)
        files.append(
            TraceFile(
                name=name,
                file=file.name,
                sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
                rows=table.num_rows,
                columns=tuple(table.column_names),
            )
        )
    write_record(record.model_copy(update={"traces": tuple(files)}), folder)
    return folder
