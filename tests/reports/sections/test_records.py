"""What a page says of single records: of all that they may hold, and of what they lack.

The blocks of a run's own sections against text files, as in ``tests/reports/test_pages.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.record_machine import read
from tests.reports.conftest import arm, one
from tests.reports.page_text import blocks_text
from wattload.core.power import (
    Boxcar,
    Evidence,
    Instant,
    Integral,
    PowerBin,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.core.record.energy import (
    WHOLE_RUN,
    EnergyRecord,
    HostPower,
    IdleRecord,
    LostReadings,
    Moment,
    PowerSourceRecord,
    PowerStatistics,
    SamplerRecord,
    SensorRecord,
)
from wattload.core.record.run import ConfigFile, RunRecord
from wattload.core.record.target import BlockNode
from wattload.reports.runs.load import Run
from wattload.reports.runs.redact import Masker
from wattload.reports.sections.energy import energy_blocks
from wattload.reports.sections.machine import machine_blocks
from wattload.reports.sections.power import whole_tables
from wattload.reports.sections.provenance import reproduce_blocks
from wattload.reports.sections.runs import figures_tables, phases_tables
from wattload.reports.sections.wording import target_text

GOLDENS = Path(__file__).parents[1] / "goldens" / "records"
HOST, DEVICE = "box", "SERIALA01"
OWN, INTERVAL = "nvme_25h", "nvme_ipm"
COARSE = "the counter's step of 3600 J is too coarse"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return one(tmp_path, arm("A", 0, ranks=2))


def altered(record: RunRecord, **changes: object) -> RunRecord:
    return record.model_copy(update={"power": record.power.model_copy(update=changes)})


def with_energy(record: RunRecord, **changes: Any) -> RunRecord:
    return altered(
        record, energy=tuple(each.model_copy(update=changes) for each in record.power.energy)
    )


def source(name: str, sensor: Sensor) -> PowerSourceRecord:
    facts = SourceFacts(
        name=name,
        device=DEVICE,
        device_name="nvme0",
        scope=Scope.DRIVE,
        evidence=Evidence.SELF_REPORTED,
        sensor=sensor,
        period_s=1.0,
    )
    return PowerSourceRecord(
        host=HOST, facts=facts, name=name, device=DEVICE, used=True, sentence="it is there"
    )


def whole_run(name: str, energy_j: float | None, reason: str = "it has none") -> EnergyRecord:
    figures: dict[str, float] = {}
    if energy_j is not None:
        figures = {"energy_j": energy_j, "mean_w": energy_j / 100.0, "uncertainty_j": 12.5}
    return read(
        EnergyRecord,
        reason,
        host=HOST,
        device=DEVICE,
        source=name,
        scope=Scope.DRIVE,
        evidence=Evidence.SELF_REPORTED,
        phase=WHOLE_RUN,
        start_ns=0,
        end_ns=100_000_000_000,
        seconds=100.0,
        coverage=0.99,
        sample_count=1,
        **figures,
    )


def idle(name: str, *, polled: bool, mean_w: float | None, moment: Moment = "before") -> IdleRecord:
    known: dict[str, object] = {"power_state": 1, "temperature_k": 308.0} if polled else {}
    if mean_w is not None:
        known["mean_w"] = mean_w
    return read(
        IdleRecord,
        COARSE,
        host=HOST,
        device=DEVICE,
        source=name,
        evidence=Evidence.SELF_REPORTED,
        moment=moment,
        polled=polled,
        start_ns=0,
        end_ns=60_000_000_000,
        seconds=60.0,
        sample_count=600 if polled else 1,
        **known,
    )


def watched(**changes: object) -> HostPower:
    values: dict[str, object] = {"host": HOST, "choice": "took it", "idle_s": 60.0, "rest_s": 30.0}
    return HostPower(**(values | changes))


def sampler(**changes: object) -> SamplerRecord:
    return SamplerRecord(
        host=HOST,
        period_s=0.1,
        seconds=60.0,
        tick_count=600,
        missed_tick_count=0,
        sample_count=2400,
        lost_sample_count=0,
        cpu_s=0.18,
        cpu_share=0.003,
        tick_mean_s=0.0002,
        tick_max_s=0.004,
        admin_command_count=1200,
        admin_commands_per_s=20.0,
        admin_mean_s=52e-6,
        admin_max_s=3e-3,
    ).model_copy(update=changes)


CALIBRATED = SensorRecord(
    basis="calibrated",
    tau_s=0.83,
    tau_uncertainty_s=0.02,
    kappa_s=0.13,
    kappa_uncertainty_s=0.01,
    settle_s=1.4,
    update_s=0.0,
    noise_w=0.02,
    fall_later_s=0.05,
    train_share=0.004,
    train_share_uncertainty=0.01,
    responds=True,
    declared_tau_s=0.5,
)


def statistics(**figures: Any) -> PowerStatistics:
    values: dict[str, Any] = {
        "peak_100ms_w": None,
        "peak_1s_w": 24.0,
        "p99_w": 23.5,
        "bin_w": 1.0,
        **figures,
    }
    missing = {name: "its readings resolve 1 s" for name, value in values.items() if value is None}
    return PowerStatistics(resolution_s=1.0, reading_count=600, missing=missing, **values)


def measured(record: RunRecord) -> RunRecord:
    """Return a record with all that sensors can tell, of a drive of 4 TB on an array."""
    (controller,), (target,), (host,) = record.controllers, record.targets, record.hosts
    assert controller.before is not None
    assert controller.difference is not None
    assert host.after is not None
    own = whole_run(OWN, 1250.0).model_copy(
        update={
            "max_interval_w": 24.5,
            "histogram": (PowerBin(lower_w=0.0, count=30), PowerBin(lower_w=12.5, count=10)),
        }
    )
    vague = whole_run("meter", 1243.75)
    gap = {**vague.missing, "uncertainty_j": "no accuracy is stated"}
    record = with_energy(
        record,
        statistics=statistics(),
        energy_j=100.0,
        idle_w=5.0,
        uncertainty_j=1.2,
        tail_j=12.0,
        tail_uncertainty_j=1.0,
        work_uncertainty_j=1.5,
        is_at_least=True,
    )
    record = altered(
        record,
        sources=(
            source(OWN, Integral()),
            source(INTERVAL, Boxcar(window_s=1.0)).model_copy(update={"sensor": CALIBRATED}),
        ),
        whole_run=(
            own,
            whole_run(INTERVAL, 1256.25),
            vague.model_copy(update={"uncertainty_j": None, "missing": gap}),
        ),
        idle=(
            idle(INTERVAL, polled=False, mean_w=4.5),
            idle(INTERVAL, polled=True, mean_w=5.0),
            idle(INTERVAL, polled=True, mean_w=5.0, moment="after"),
            idle("nvme_olec", polled=True, mean_w=None),
            idle("nvme_olec", polled=True, mean_w=None, moment="after"),
        ),
        hosts=(
            watched(),
            watched(
                host="other",
                idle_after_s=60.0,
                quiet_s=30.0,
                rest_s=0.0,
                lost="it was killed",
                data_lost=(
                    LostReadings(
                        source="quarch",
                        device="QTL1999",
                        scope=Scope.DRIVE,
                        sentence="QTL1999: overrun",
                    ),
                ),
            ),
        ),
        samplers=(sampler(), sampler(missed_tick_count=3, lost_sample_count=1)),
    )
    state = controller.before.model_copy(update={"capacity_bytes": 4 * 10**12})
    drive = {
        "facts": controller.facts.model_copy(update={"holds_system": True}),
        "before": state,
        "difference": controller.difference.model_copy(
            update={"write_amplification": 1.2345, "changed": ("firmware",), "missing": {}}
        ),
    }
    mirror = read(BlockNode, "unknown", kind="md", name="md0", redundancy=2.0)
    waited = {
        "before": host.before.model_copy(update={"pressure_io_some_s": 1.0}),
        "after": host.after.model_copy(update={"pressure_io_some_s": 3.5}),
    }
    (span,) = [each for each in record.spans if each.timed and each.rank == 0]
    late = span.model_copy(update={"rank": 1, "end_ns": span.end_ns + 500_000_000})
    facts = target.facts.model_copy(update={"stack": mirror})
    return record.model_copy(
        update={
            "controllers": (controller.model_copy(update=drive),),
            "targets": (target.model_copy(update={"facts": facts}),),
            "hosts": (host.model_copy(update=waited),),
            "spans": (*(each for each in record.spans if each.rank == 0), late),
        }
    )


def partial(record: RunRecord) -> RunRecord:
    """Return a record of sources without a figure, and of devices that keep little."""
    (controller,) = record.controllers
    assert controller.before is not None
    gaps = {"busy_s": "the kernel keeps none", "weighted_s": "none", "read_bytes": "not kept"}
    before = controller.before.model_copy(update={"smart": None, "missing": {"smart": "refused"}})
    record = altered(
        with_energy(record, energy_j=100.0, uncertainty_j=0.9),
        sources=(source(OWN, Integral()),),
        whole_run=(whole_run(OWN, None, "the drive's clock jumped"), whole_run(INTERVAL, 1250.0)),
        idle=(idle(INTERVAL, polled=False, mean_w=5.0), idle(INTERVAL, polled=True, mean_w=None)),
        hosts=(watched(idle_s=0.0, rest_s=0.0),),
        samplers=(sampler(cpu_share=None, admin_mean_s=None, admin_max_s=None),),
    )
    return record.model_copy(
        update={
            "controllers": (controller.model_copy(update={"before": before, "after": None}),),
            "counters": tuple(
                each.model_copy(update={**dict.fromkeys(gaps), "missing": gaps})
                for each in record.counters
            ),
        }
    )


def unread(record: RunRecord) -> RunRecord:
    """Return a record of a drive at its full link speed that could not be read."""
    (controller,) = record.controllers
    facts = controller.facts.model_copy(update={"link_speed_max_gt_per_s": 16.0})
    gone = {"before": None, "after": None, "difference": None}
    drives = (controller.model_copy(update=gone), controller.model_copy(update={"facts": facts}))
    return record.model_copy(update={"controllers": drives})


def bare(record: RunRecord) -> RunRecord:
    """Return a record of a run of which nothing is known but that it ran."""
    workload = record.workload.model_copy(update={"paths": ()})
    names = ("hosts", "targets", "controllers", "ranks", "spans", "metrics", "counters")
    power = record.power.model_copy(update={"energy": (), "sources": (), "states": ()})
    return record.model_copy(
        update={**dict.fromkeys(names, ()), "workload": workload, "power": power}
    )


CASES: dict[str, Callable[[RunRecord], RunRecord]] = {
    "measured": measured,
    "partial": partial,
    "unread": unread,
    "bare": bare,
}


@pytest.mark.parametrize("name", CASES)
def test_a_record_is_told_as_before(run: Run, name: str, request: pytest.FixtureRequest) -> None:
    record = CASES[name](run.record)
    own = replace(run, record=record)
    text = blocks_text(
        [
            *figures_tables(own),
            *phases_tables(own),
            *energy_blocks(own),
            *whole_tables(record),
            *machine_blocks(own),
        ]
    )
    golden = GOLDENS / f"{name}.txt"
    if request.config.getoption("--update-goldens"):
        golden.write_text(text, encoding="utf-8")
    assert text.splitlines() == golden.read_text(encoding="utf-8").splitlines()


def test_the_idle_time_is_the_one_that_a_calibration_left(run: Run) -> None:
    short = idle("meter", polled=True, mean_w=5.0).model_copy(update={"seconds": 15.0})
    record = altered(run.record, idle=(short,))
    text = blocks_text(energy_blocks(replace(run, record=record)))
    assert "Idle power was measured for 15.0 s before the run." in text


def test_hosts_and_modules_of_meters_are_masked_where_they_are_named(run: Run) -> None:
    module = "tcp::qtl1999-02-020"
    record = altered(
        run.record.model_copy(update={"config": {"power": {"quarch": {"module": module}}}}),
        choice=f"took quarch: PPM {module}: 12V",
        samplers=(sampler(host=run.record.hosts[0].facts.name),),
    )
    masked = Masker([record]).record(record)
    assert masked.power.samplers[0].host == "host-1"
    assert "qtl1999" not in masked.model_dump_json()


@pytest.mark.parametrize(
    ("kind", "below", "words"),
    [
        ("loop", "virtio", "/dev/x (whole device: loop device on virtio disk)"),
        ("loop", None, "/dev/x (whole device: loop device)"),
        ("ram", None, "/dev/x (whole device: device in memory)"),
        ("namespace", "controller", "/dev/x (whole device: Micron_9550)"),
        (None, None, "/dev/x (unknown file system)"),
    ],
)
def test_a_raw_target_is_a_whole_device(
    run: Run, kind: str | None, below: str | None, words: str
) -> None:
    (target,) = run.record.targets
    models = {"virtio": "virtio disk", "controller": "Micron_9550", "loop": "file /srv/a"}

    def node(kind: str, *children: BlockNode) -> BlockNode:
        model = {"model": models[kind]} if kind in models else {}
        return read(BlockNode, "unknown", kind=kind, name="a", children=children, **model)

    stack = kind and (node(kind) if below is None else node(kind, node(below)))
    changes = {"kind": "block", "path": "/dev/x", "file_system": None, "stack": stack}
    facts = target.facts.model_copy(update={**changes, "virtual": False})
    assert target_text(facts) == words


def test_files_of_settings_are_facts_of_a_run_and_their_paths_are_masked(run: Run) -> None:
    file = ConfigFile(path="/home/ann/h100.yaml", sha256="ab" * 32, replaces=True)
    record = run.record.model_copy(update={"config_files": (file,)})
    text = blocks_text(reproduce_blocks(replace(run, record=record)))
    assert f"/home/ann/h100.yaml instead of wattload's own (SHA-256 {'ab' * 32})" in text
    masked = Masker([record]).record(record)
    assert "ann" not in blocks_text(reproduce_blocks(replace(run, record=masked)))


def test_a_declared_delay_is_in_the_table_of_sources(run: Run) -> None:
    (used,) = run.record.power.sources
    assert used.facts is not None
    for sensor, words in ((Instant(lag_s=0.5), "instant, 0.5 s late"), (Instant(), "instant")):
        facts = used.facts.model_copy(update={"sensor": sensor})
        sources = (used.model_copy(update={"facts": facts}),)
        text = blocks_text(energy_blocks(replace(run, record=altered(run.record, sources=sources))))
        assert f" | {words} | " in text
