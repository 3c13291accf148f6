"""The table of a search: a row per run by accelerators, and none where nothing was searched."""

from __future__ import annotations

from dataclasses import replace

from tests.reports.conftest import render_page
from tests.session.curves import record_of
from wattload.core.record.results import Check
from wattload.core.record.run import Comparison
from wattload.reports.blocks import Table
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import Traces
from wattload.reports.sections.sweeps import accelerators_section
from wattload.reports.stats.subject import Subject, make_subject

WARM = Check(name="cold_cache", verdict="fail", sentence="It was warm.", mandatory=True)


def run(
    count: int, au: float | None, repetition: int = 0, *checks: Check, session: str = "s1"
) -> Run:
    record = record_of(count, au, run_id=f"{session}-n{count}-{repetition}", checks=checks)
    comparison = Comparison(session_id=session, arm=f"n{count}", block=repetition, order=0)
    record = record.model_copy(update={"comparison": comparison, "label": f"A-n{count}"})
    return Run(record=record, traces=Traces(throughput=None, power=None, notes=(), digests={}))


def subject_of(runs: list[Run]) -> Subject:
    """Return the runs as a subject whose figures close: those here were made up one by one."""
    return replace(make_subject(runs), closures={each.id: () for each in runs})


def test_runs_of_a_search_stand_by_their_accelerators() -> None:
    runs = [run(4, 0.5), run(1, 0.99), run(2, 0.95), run(2, 0.93, 1), run(3, 0.99, 0, WARM)]
    section = accelerators_section(subject_of([*runs, run(8, None)]))
    assert section is not None
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert [row[0].text for row in table.rows] == ["1", "2", "2", "3", "4", "8"]
    assert [row[-2].text for row in table.rows] == [
        "reached",
        "reached",
        "reached",
        "not valid",
        "not reached",
        "unknown",
    ]
    assert table.rows[4][1].text.startswith("50")
    assert "Utilisation by number of accelerators" in render_page(runs)


def test_each_session_has_a_table_of_its_own() -> None:
    runs = [run(count, 0.95, session=name) for name in ("s1", "s2") for count in (1, 2)]
    section = accelerators_section(make_subject(runs))
    assert section is not None
    assert len(section.blocks) == 2


def test_runs_with_one_number_of_accelerators_have_no_table() -> None:
    assert accelerators_section(make_subject([run(2, 0.95), run(2, 0.94, 1)])) is None
    assert accelerators_section(make_subject([run(1, 0.95), run(2, 0.9, session="s2")])) is None
