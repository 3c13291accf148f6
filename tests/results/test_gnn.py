"""Training on a graph: facts, figures, limits, tables, and what makes runs the same work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.reports.gnn import ROW_BYTES, ROWS, Training, gnn_record, gnn_run, write_gnn_run
from wattload.core.errors import RecordError
from wattload.core.power import Scope
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.reports.runs.energy import phase_energies, scope_energy_j
from wattload.reports.runs.load import load_readable
from wattload.reports.stats.subject import settings
from wattload.results.gnn.checks import CHECKS
from wattload.results.gnn.facts import Run
from wattload.results.gnn.figures import rows_per_s, storage_rows_per_s
from wattload.results.gnn.view import VIEW, headroom, left_bytes, longest_stage
from wattload.results.reading import run_of
from wattload.results.series import reads_of, step_rates


def known(record: RunRecord) -> Run:
    run = run_of(record)
    assert run is not None
    return run


def found(**changes: Any) -> Run:
    return known(gnn_record(Training(**changes)))


def plain(text: str) -> str:
    return text.replace("\xa0", " ").replace("\u202f", ",")


@pytest.mark.parametrize(
    "broken",
    [{"steps": None}, {"rows": -3}, {"stages_s": [1]}, {"losses": "no"}, {"memory": None},
     {"ceilings": {"engine_rows_per_s": float("nan")}}],
)  # fmt: skip
def test_facts_of_other_kinds_are_refused_in_one_sentence(broken: dict[str, Any]) -> None:
    (name,) = broken
    with pytest.raises(RecordError, match=rf"the facts of run run-1 are not those of gnn: {name}"):
        gnn_record(Training(facts=broken))


def test_rates_are_rows_over_the_seconds_of_aggregation() -> None:
    run = found(loader="gpu_queue")
    assert rows_per_s(run) == pytest.approx(run.facts.rows / run.facts.stages_s["aggregation"])
    assert storage_rows_per_s(run) == pytest.approx(0.625 * (rows_per_s(run) or 0))
    assert storage_rows_per_s(found(loader="mmap")) is None


def test_what_a_cgroup_leaves_to_the_page_cache() -> None:
    memory = found(loader="gpu_queue").facts.memory
    assert left_bytes(memory) == 1_843_200_000 - 56_282_016 - 819_200_000 - 41_000_000
    assert left_bytes(found(method="drop_cache").facts.memory) is None
    assert left_bytes(memory.model_copy(update={"budget_bytes": 1_000_000})) == 0


@pytest.mark.parametrize(
    ("stalled_s", "verdict", "words"),
    [
        (0.0, "pass", "Threads waited for memory in 0.00 % of the timed steps, at the limit of "),
        (0.5, "warn", ": set a larger workload.memory_share."),
        (None, "not_checked", "the kernel shows no memory.pressure of control groups"),
    ],
)
def test_a_limit_that_slows_the_process_itself_warns(
    stalled_s: float | None, verdict: str, words: str
) -> None:
    def check(loader: str) -> Check | None:
        run = found(loader=loader)
        memory = run.facts.memory.model_copy(update={"stalled_s": stalled_s})
        run = replace(run, facts=run.facts.model_copy(update={"memory": memory}))
        rule = next(rule for rule in CHECKS if getattr(rule, "name", "") == "memory_stalls")
        return next(iter(rule(run)), None)

    judged = check("direct")
    assert judged is not None
    assert judged.verdict == verdict
    assert words in judged.sentence
    assert check("mmap") is None


def test_work_is_the_bytes_of_rows_and_settings_in_effect() -> None:
    mapped, queued = found(loader="mmap"), found(loader="gpu_queue")
    assert VIEW.payload_bytes is not None
    assert VIEW.payload_bytes(mapped) == VIEW.payload_bytes(queued) == 20 * ROWS * ROW_BYTES
    assert mapped.record.windows[0].read_bytes != queued.record.windows[0].read_bytes
    record = gnn_record(Training(settings={"graph": None}))
    assert settings(record)["workload.graph"] == "igb_small"


def test_the_longest_stage_limits_and_is_named_with_its_share() -> None:
    words, share = longest_stage([found(loader="mmap")])
    assert plain(words) == "aggregation, 99 % of the time"
    assert share == pytest.approx(0.988, abs=0.002)
    words, _ = longest_stage([found(rate=1.08e6)])
    assert plain(words).endswith("of the engine's own reads")
    words, share = longest_stage([found(training_step_s=2.0)])
    assert words.startswith("training, ")
    assert share is None
    both = [found(training_step_s=2.0), found()]
    assert longest_stage(both) == ("aggregation or training", None)


def test_a_ceiling_that_rates_exceed_is_none() -> None:
    low = {"ceilings": {"engine_rows_per_s": 5e5, "host_rows_per_s": 5e5, "pull_rows_per_s": 3e6}}
    words, _ = longest_stage([found(facts=low)])
    assert plain(words).endswith("times the engine's own reads, which are no ceiling")
    assert headroom(found(facts=low)) == pytest.approx([3e6 / 1.05e6], rel=0.02)


def test_fan_outs_of_relations_are_lists() -> None:
    of_relations = found(fanouts=([10, 5], [10, 5], [5, 0]))
    assert VIEW.job is not None
    assert "fan-outs [10,5]-[10,5]-[5,0] by relation" in VIEW.job([of_relations], [])


def test_arms_say_what_they_spent_steps_on_and_where_they_trained() -> None:
    arms = {
        "A": [found(loader="gpu_queue", overlap="ahead")],
        "B": [found(trainer="emulated")],
    }
    assert VIEW.arms is not None
    assert plain(VIEW.arms(arms)) == (
        "A: aggregation 80 % of the time, overlapped · B: aggregation 82 % of the time · "
        "A trained on the GPU · B training emulated"
    )


def test_energy_has_rows_per_joule_and_gpus_apart() -> None:
    record = gnn_record(Training(loader="gpu_queue"))
    (energy,) = phase_energies(record)
    assert energy.amount_per_j == pytest.approx(20 * ROWS / (energy.energy_j or 0))
    gpu_j = scope_energy_j(record, Scope.GPU, "gnn")
    assert gpu_j == pytest.approx(250 / 14 * (energy.energy_j or 0))


def test_bytes_of_overlapping_steps_count_between_their_ends() -> None:
    steps = {
        "start_ns": np.array([0, 500_000_000]),
        "end_ns": np.array([1_000_000_000, 1_500_000_000]),
        "storage_bytes": np.array([4e9, 1e9]),
    }
    rates = step_rates(steps, "storage_bytes", 100)
    assert rates is not None
    assert rates[0].tolist() == [0, 1_000_000_000, 1_500_000_000]
    assert rates[1].tolist() == [4e9, 2e9]
    coarse = step_rates(steps, "storage_bytes", 1)
    assert coarse is not None
    assert coarse[1].tolist() == pytest.approx([5e9 / 1.5])


def test_steps_out_of_order_are_not_drawn() -> None:
    bad = {"start_ns": np.array([0, 5]), "end_ns": np.array([9, 8]), "storage_bytes": np.ones(2)}
    assert step_rates(bad, "storage_bytes", 100) is None
    empty = {name: np.array([], dtype=np.int64) for name in bad}
    assert step_rates(empty, "storage_bytes", 100) is None


def requests(rows: list[tuple[int, int, int, bool]]) -> dict[str, Any]:
    issued, completed, size, is_read = zip(*rows, strict=True)
    return {"issued_ns": np.array(issued), "completed_ns": np.array(completed),
            "bytes": np.array(size), "is_read": np.array(is_read)}  # fmt: skip


def test_depth_and_bandwidth_of_hand_made_requests() -> None:
    second = 1_000_000_000
    traced = reads_of(
        requests(
            [
                (second, 3 * second, 4096, True),
                (0, 2 * second, 8192, True),
                (0, 4 * second, 65_536, False),  # a write
                (3 * second, 4 * second, 4096, True),
            ]
        )
    )
    assert traced is not None
    edges = traced.edges_s(4)
    assert traced.depth(edges).tolist() == pytest.approx([1, 2, 1, 1])
    assert traced.bytes_per_s(edges).tolist() == [0, 0, 8192, 8192]
    assert reads_of(requests([(0, 5, 512, False)])) is None


def test_tables_are_read_from_disk_and_damage_is_a_note(tmp_path: Path) -> None:
    write_gnn_run(tmp_path, name="good", loader="mmap")
    folder = write_gnn_run(tmp_path, name="torn")
    for name in ("steps", "io_requests"):
        (folder / f"{name}.parquet").write_bytes(b"PAR1")
    torn, good = sorted(load_readable([tmp_path]).runs, key=lambda run: run.id, reverse=True)
    tables = good.traces.tables
    assert tables["steps"]["storage_bytes"].size == 20
    made = gnn_run(name="good", loader="mmap").traces.tables
    assert tables["io_requests"]["bytes"].tolist() == made["io_requests"]["bytes"].tolist()
    assert torn.traces.tables == {}
    assert sum("can't be read" in note for note in torn.traces.notes) == 2


def test_requests_that_complete_before_their_issue_are_a_note(tmp_path: Path) -> None:
    folder = write_gnn_run(tmp_path)
    table = pq.read_table(folder / "io_requests.parquet")
    columns = table.column_names
    swapped = table.rename_columns(
        [{"issued_ns": "completed_ns", "completed_ns": "issued_ns"}.get(n, n) for n in columns]
    )
    pq.write_table(swapped, folder / "io_requests.parquet")
    (run,) = load_readable([tmp_path]).runs
    assert "io_requests" not in run.traces.tables
    assert any("a row ends before it starts" in note for note in run.traces.notes)
