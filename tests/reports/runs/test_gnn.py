"""Training on a graph as recorded: stages, memory, tables, and what makes runs the same work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.records import Scenario, make_run
from tests.reports.gnn import ROW_BYTES, ROWS, Training, gnn_record, gnn_run, write_gnn_run
from wattload.core.errors import RecordError
from wattload.core.power import Scope
from wattload.reports.runs.energy import phase_energies, scope_energy_j
from wattload.reports.runs.gnn import (
    GraphTraining,
    arms_stages,
    effective_settings,
    graph_training,
    payload_bytes,
    stage_limit,
)
from wattload.reports.runs.gnn_traces import requests_of, steps_of
from wattload.reports.runs.load import load_readable


def found(**changes: Any) -> GraphTraining:
    made = graph_training(gnn_record(Training(**changes)))
    assert made is not None
    return made


def plain(text: str) -> str:
    return text.replace("\xa0", " ").replace("\u202f", ",")


def test_other_workloads_and_records_without_steps_have_none() -> None:
    other, _ = make_run(Scenario())
    assert graph_training(other) is None
    assert payload_bytes(other) is None


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
    assert run.rows_per_s == pytest.approx(run.rows / run.stages_s["aggregation"])
    assert run.storage_rows_per_s == pytest.approx(0.625 * (run.rows_per_s or 0))
    assert found(loader="mmap").storage_rows_per_s is None


def test_what_a_cgroup_leaves_to_the_page_cache() -> None:
    memory = found(loader="gpu_queue").memory
    assert memory.left_bytes == 1_843_200_000 - 56_282_016 - 819_200_000 - 41_000_000
    assert found(method="drop_cache").memory.left_bytes is None
    full = {**gnn_record(Training()).workload.facts["memory"], "budget_bytes": 1_000_000}
    assert found(facts={"memory": full}).memory.left_bytes == 0


def test_work_is_the_bytes_of_rows_and_settings_in_effect() -> None:
    mapped, queued = (gnn_record(Training(loader=loader)) for loader in ("mmap", "gpu_queue"))
    assert payload_bytes(mapped) == payload_bytes(queued) == 20 * ROWS * ROW_BYTES
    assert mapped.windows[0].read_bytes != queued.windows[0].read_bytes
    record = gnn_record(Training(settings={"graph": None}))
    assert effective_settings(record)["workload.graph"] == "igb_small"


def test_the_longest_stage_limits_and_is_named_with_its_share() -> None:
    words, share = stage_limit([gnn_record(Training(loader="mmap"))])
    assert plain(words) == "aggregation, 99 % of the time"
    assert share == pytest.approx(0.988, abs=0.002)
    words, _ = stage_limit([gnn_record(Training(rate=1.08e6))])
    assert plain(words).endswith("of the engine's own reads")
    words, share = stage_limit([gnn_record(Training(training_step_s=2.0))])
    assert words.startswith("training, ")
    assert share is None
    both = [gnn_record(Training(training_step_s=2.0)), gnn_record(Training())]
    assert stage_limit(both) == ("aggregation or training", None)


def test_a_ceiling_that_rates_exceed_is_none() -> None:
    low = {"ceilings": {"engine_rows_per_s": 5e5, "host_rows_per_s": 5e5, "pull_rows_per_s": 3e6}}
    words, _ = stage_limit([gnn_record(Training(facts=low))])
    assert plain(words).endswith("times the engine's own reads, which are no ceiling")
    assert found(facts=low).host_factors == pytest.approx([3e6 / 1.05e6], rel=0.02)


def test_fan_outs_of_relations_are_lists() -> None:
    of_relations = found(fanouts=([10, 5], [10, 5], [5, 0]))
    assert "fan-outs [10,5]-[10,5]-[5,0] by relation" in of_relations.load_words
    assert found(fanouts=(10, 0)).fanouts == (10, 0)


def test_arms_say_what_they_spent_steps_on_and_where_they_trained() -> None:
    arms = {
        "A": [gnn_record(Training(loader="gpu_queue", overlap="ahead"))],
        "B": [gnn_record(Training(trainer="emulated"))],
    }
    assert plain(arms_stages(arms)) == (
        "A: aggregation 80 % of the time, overlapped · B: aggregation 82 % of the time · "
        "A trained on the GPU · B training emulated"
    )


def test_energy_has_rows_per_joule_and_gpus_apart() -> None:
    record = gnn_record(Training(loader="gpu_queue"))
    (energy,) = phase_energies(record)
    assert energy.rows_per_j == pytest.approx(20 * ROWS / (energy.energy_j or 0))
    assert energy.reads_per_j is None
    gpu_j = scope_energy_j(record, Scope.GPU, "gnn")
    assert gpu_j == pytest.approx(250 / 14 * (energy.energy_j or 0))


def test_bytes_of_overlapping_steps_count_between_their_ends() -> None:
    steps = steps_of(
        {
            "start_ns": np.array([0, 500_000_000]),
            "end_ns": np.array([1_000_000_000, 1_500_000_000]),
            "storage_bytes": np.array([4e9, 1e9]),
        }
    )
    assert steps is not None
    edges, rates = steps.rates(100)
    assert edges.tolist() == [0, 1, 1.5]
    assert rates.tolist() == [4e9, 2e9]
    edges, rates = steps.rates(1)
    assert rates.tolist() == pytest.approx([5e9 / 1.5])


def test_steps_out_of_order_and_requests_before_their_issue_are_refused() -> None:
    bad = {"start_ns": np.array([0, 5]), "end_ns": np.array([9, 8]), "storage_bytes": np.ones(2)}
    with pytest.raises(ValueError, match="follow each other"):
        steps_of(bad)
    empty = {name: np.array([], dtype=np.int64) for name in bad}
    assert steps_of(empty) is None
    with pytest.raises(ValueError, match="before it was issued"):
        requests_of(requests([(10, 4, 4096, True)]))


def requests(rows: list[tuple[int, int, int, bool]]) -> dict[str, Any]:
    issued, completed, size, is_read = zip(*rows, strict=True)
    return {"issued_ns": np.array(issued), "completed_ns": np.array(completed),
            "bytes": np.array(size), "is_read": np.array(is_read)}  # fmt: skip


def test_depth_and_bandwidth_of_hand_made_requests() -> None:
    second = 1_000_000_000
    traced = requests_of(
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
    assert requests_of(requests([(0, 5, 512, False)])) is None


def test_tables_are_read_from_disk_and_damage_is_a_note(tmp_path: Path) -> None:
    write_gnn_run(tmp_path, name="good", loader="mmap")
    folder = write_gnn_run(tmp_path, name="torn")
    for name in ("steps", "io_requests"):
        (folder / f"{name}.parquet").write_bytes(b"PAR1")
    torn, good = sorted(load_readable([tmp_path]).runs, key=lambda run: run.id, reverse=True)
    steps, traced = good.traces.steps, good.traces.requests
    assert steps is not None
    assert traced is not None
    assert steps.storage_bytes.size == 20
    made = gnn_run(name="good", loader="mmap").traces.requests
    assert made is not None
    assert traced.read_bytes.tolist() == made.read_bytes.tolist()
    assert (torn.traces.steps, torn.traces.requests) == (None, None)
    assert sum("can't be read" in note for note in torn.traces.notes) == 2
