"""Conversions: figures by hand, what an earlier start leaves unknown, and what workers did."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import Scenario, make_run
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import Metric
from wattload.core.units import NS_PER_S
from wattload.results.dlrm import (
    FORMS,
    NUMBER_IDS,
    OBSERVED,
    RESULTS,
    SHUFFLE_ROWS,
    TO_BINARY,
    TO_PARQUET,
    TO_ROWS,
    DlrmFacts,
    DlrmSettings,
    PhaseWork,
    Run,
    worker_shares,
)
from wattload.results.figures import evaluated

SPANS = {  # seconds of each rank in two rounds, which start together
    TO_PARQUET: [(2, 3), (4, 3)],
    TO_BINARY: [(1, 1), (1, 2)],
}


def spans() -> tuple[PhaseSpan, ...]:
    return tuple(
        PhaseSpan(
            name=name, parent=None, host="box", rank=rank, timed=True,
            start_ns=100 * number * NS_PER_S, end_ns=(100 * number + taken_s) * NS_PER_S,
            read_bytes=1000, written_bytes=400, operations=1, cpu_s=0.0,
        )
        for place, (name, rounds) in enumerate(SPANS.items())
        for number, ranks in enumerate(rounds, 2 * place)
        for rank, taken_s in enumerate(ranks)
    )  # fmt: skip


def work(**changed: Any) -> PhaseWork:
    values = {
        "cpu_s": 9.0, "unpack_cpu_s": 0.0, "task_s": 11.0, "run_queue_s": 0.5, "peak_bytes": 30,
        "part_count": 4, "kept_count": 0,
    }  # fmt: skip
    return PhaseWork(**{**values, **changed})


def run(columnar: PhaseWork | None = None, **changed: Any) -> Run:
    """Two ranks of one worker each, two rounds."""
    record, _ = make_run(Scenario(workload="dlrm"))
    facts = DlrmFacts(
        settings=DlrmSettings(rounds=2), workers=2, tsv_bytes=2000, gz_bytes=0, row_count=8,
        dropped_count=0, category_sizes=(), rare_id_counts=(), spilled_bytes=0,
        ceiling_bytes_per_s=5000.0,
        phases={TO_PARQUET: columnar or work(),
                TO_BINARY: work(cpu_s=4.0, task_s=4.0, run_queue_s=0.0, peak_bytes=10)},
    ).model_copy(update=changed)  # fmt: skip
    return Run(record.model_copy(update={"spans": spans()}), facts)


def figures(found: Run) -> dict[str, Metric]:
    return {metric.name: metric for metric in evaluated(RESULTS.figures, found)}


def test_figures_are_totals_over_the_seconds_of_the_slowest_rank() -> None:
    values = {name: metric.value for name, metric in figures(run()).items()}
    assert values["conversion_s"] == 5.0
    assert values["tsv_to_parquet_s"] == 3.5
    assert values["tsv_bytes_per_s"] == 4000 / 10
    assert values["rows_per_s"] == 16 / 10
    assert values["tsv_to_parquet_input_bytes_per_s"] == 4000 / 7
    assert values["tsv_to_parquet_output_bytes_per_s"] == 1600 / 7
    assert values["cpu_s_per_byte"] == 13 / 4000
    assert values["tsv_to_parquet_tsv_bytes_per_cpu_s"] == pytest.approx(4000 / 9)
    assert values["worker_peak_bytes"] == 30
    assert values["harness_ceiling_bytes_per_s"] == 5000


def test_shares_of_worker_time_sum_to_one() -> None:
    found = figures(run())
    shares = {
        name: found[f"tsv_to_parquet_worker_{name}_fraction"].value
        for name in ("on_core", "for_core", "for_storage", "idle")
    }
    # Two workers for 3 s and for 4 s; 11 s of tasks less 9 on a core, 0.5 in the queue.
    assert shares == pytest.approx(
        {"on_core": 9 / 14, "for_core": 0.5 / 14, "for_storage": 1.5 / 14, "idle": 3 / 14}
    )


def test_without_a_run_queue_the_shares_are_missing_with_a_reason() -> None:
    found = run(work(run_queue_s=None))
    missing = figures(found)["tsv_to_parquet_worker_for_storage_fraction"]
    assert (missing.value, "schedstat" in missing.missing["value"]) == (None, True)
    assert worker_shares(found, [TO_PARQUET, TO_BINARY]) is None
    assert RESULTS.view.lines(found) == {}


def test_threads_that_unpack_are_no_time_of_the_workers() -> None:
    shares = worker_shares(run(work(cpu_s=10.0, unpack_cpu_s=3.0)), [TO_PARQUET])
    assert shares is not None
    assert (shares.on_core, shares.for_storage) == pytest.approx((7 / 14, 3.5 / 14))


def test_shares_of_several_phases_are_of_their_time_together() -> None:
    shares = worker_shares(run(), [TO_PARQUET, TO_BINARY])
    assert shares is not None
    assert shares.on_core == pytest.approx(13 / 20)
    assert RESULTS.view.lines(run())["workers"].replace("\xa0", " ") == (
        "65 % of their time on a core, 2.5 % waiting for one, 7.5 % waiting for storage"
    )


def test_what_an_earlier_start_did_is_no_figure_of_this_one() -> None:
    found = figures(run(work(kept_count=3)))
    for name in ("conversion_s", "tsv_bytes_per_s", "rows_per_s", "cpu_s_per_byte"):
        assert found[name].value is None
        assert found[name].missing["value"] == "3 of 8 files were finished by an earlier start"
    reason = found["tsv_to_parquet_s"].missing["value"]
    assert reason == "3 of 4 files were finished by an earlier start"
    assert found["tsv_to_parquet_worker_idle_fraction"].missing["value"] == reason
    assert found["parquet_to_binary_s"].value is not None
    assert found["worker_peak_bytes"].value == 30


@pytest.mark.parametrize("phases", [(TO_PARQUET, TO_BINARY), (TO_ROWS, NUMBER_IDS, SHUFFLE_ROWS)])
def test_a_run_makes_the_checks_of_its_phases(phases: tuple[str, ...]) -> None:
    found = run(phases={phase: work() for phase in phases})
    due = {each.name for each in OBSERVED if each.applies(found)}
    assert {name for name in due if name.startswith("cold_cache_")} == {
        f"cold_cache_{phase}" for phase in FORMS if phase in phases
    }
    assert ("dlrm_numbers" in due) == (NUMBER_IDS in phases)
    assert ("dlrm_shuffle" in due) == (SHUFFLE_ROWS in phases)
    assert due >= {"data_digests", "dlrm_content", "dlrm_rows", "dlrm_sample", "dlrm_tsv_bytes"}
