"""Runs over time on the page: one of each arm, and the steady state of writing phases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.records import write_run
from tests.reports.conftest import arm
from wattload.reports.blocks import Figure, Notice, Paragraph, Table
from wattload.reports.charts.timeline import arms_timeline_figure, extent_of
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.phases import phases_of
from wattload.reports.runs.timeline import make_timeline
from wattload.reports.sections.over_time import arms_overtime_section, steady_section
from wattload.reports.stats.subject import make_subject


def _figure(runs: tuple[Run, ...]) -> Figure:
    section = arms_overtime_section(make_subject(runs))
    assert section is not None
    (part,) = section.parts
    (figure,) = [block for block in part.blocks if isinstance(block, Figure)]
    return figure


def test_two_arms_stand_side_by_side_on_the_same_axes(arms: tuple[Run, ...]) -> None:
    figure = _figure(arms)
    assert "Both have the same axes" in figure.caption
    assert figure.svg.count(">Throughput, ") == figure.svg.count(">Power, W<") == 2
    extent = extent_of([make_timeline(run) for run in arms])
    ends = [make_timeline(run).end_s for run in arms]
    assert extent.end_s == max(ends) > min(ends)


def test_each_arm_shows_its_run_of_median_rate(arms: tuple[Run, ...]) -> None:
    section = arms_overtime_section(make_subject(arms))
    assert section is not None
    said = section.parts[0].blocks[0]
    assert isinstance(said, Paragraph)
    # Rates of an arm rise by 0.2 % with the index modulo 3: of 0, 1, 2, 0, 1 the middle is 1 or 4.
    assert re.fullmatch(r".*the median rate: run-A-[14] and run-B-[14]\.", said.text)


def test_an_invalid_run_stands_for_no_arm(arms: tuple[Run, ...]) -> None:
    kept = [run for run in arms if run.id.startswith("run-A") or run.id == "run-B-0"]
    failed = [
        replace(run, record=run.record.model_copy(update={"status": "failed"}))
        if run.id == "run-B-0"
        else run
        for run in kept
    ]
    assert arms_overtime_section(make_subject(failed)) is None


def test_one_arm_is_beside_nothing(arms: tuple[Run, ...]) -> None:
    alone = [run for run in arms if run.record.label == "A"]
    assert arms_overtime_section(make_subject(alone)) is None
    assert arms_timeline_figure("n", "s", {"A": make_timeline(alone[0])}) is None


@pytest.fixture(scope="module")
def long_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ...]:
    """Two runs of each arm whose checkpoint is written for some twelve minutes."""
    folder = tmp_path_factory.mktemp("long")
    for index in range(2):
        write_run(folder, arm("A", index, workload="checkpoint", seconds=1500.0, rate=1e6))
        write_run(folder, arm("B", index, workload="checkpoint", seconds=1500.0, rate=6e5))
    return load_runs([folder])


def _falling(run: Run) -> Run:
    """Return the run with a rate that falls by two thirds every five minutes."""
    trace = run.traces.throughput
    assert trace is not None
    seconds = (trace.time_ns - trace.time_ns.min()) / 1e9
    bytes_then = (trace.written_bytes * np.exp(-seconds / 300)).astype("int64")
    fallen = replace(trace, written_bytes=bytes_then)
    return replace(run, traces=replace(run.traces, throughput=fallen))


def _parts(runs: Sequence[Run]) -> tuple[Figure, Table]:
    subject = make_subject(runs)
    section = steady_section(replace(subject, run_faults={run.id: () for run in runs}))
    assert section is not None
    (part,) = section.parts
    figure = next(block for block in part.blocks if isinstance(block, Figure))
    table = next(block for block in part.blocks if isinstance(block, Table))
    return figure, table


def test_every_long_run_is_judged_and_one_of_each_arm_is_drawn(long_runs: tuple[Run, ...]) -> None:
    figure, table = _parts(long_runs)
    assert [row[0].text for row in table.rows] == ["run-A-0", "run-A-1", "run-B-0", "run-B-1"]
    assert all(row[-1].text.startswith("Steady in rounds 1 to 5") for row in table.rows)
    assert figure.svg.count(">steady in rounds 1 to 5") == 2
    assert [text for _, text in figure.legend] == ["A", "B", "per second"]


def test_a_rate_that_keeps_falling_is_called_not_steady(long_runs: tuple[Run, ...]) -> None:
    _, table = _parts([_falling(run) for run in long_runs])
    assert all(row[-1].text.startswith("Not steady in rounds") for row in table.rows)


def test_the_rounds_of_the_table_are_those_of_whole_minutes(long_runs: tuple[Run, ...]) -> None:
    figure, table = _parts(long_runs)
    write = next(p for p in phases_of(long_runs[0].record) if p.name == "write")
    assert [row[2].text for row in table.rows[:1]] == [f"{write.active_s // 60:.0f}"]
    assert len(figure.table.rows) == write.active_s // 60
    marked = [row[0].text for row in figure.table.rows if row[1].remark]
    assert marked == ["1", "2", "3", "4", "5"]


def test_a_phase_that_is_too_short_is_named_once_with_what_it_needs(
    virtual_runs: tuple[Run, ...],
) -> None:
    section = steady_section(make_subject(virtual_runs))
    assert section is not None
    assert not section.parts
    (notice,) = section.blocks
    assert isinstance(notice, Notice)
    texts = [str(text) for text in notice.sentences]
    assert any(
        text.startswith("checkpoint, write: ") and text.endswith("minute need 300 s.")
        for text in texts
    )
    assert not any(text.startswith("unet3d") for text in texts)


def test_runs_that_only_read_have_no_steady_state(arms: tuple[Run, ...]) -> None:
    assert steady_section(make_subject(arms)) is None


def test_a_run_alone_needs_no_word_on_which_is_drawn(long_runs: tuple[Run, ...]) -> None:
    subject = make_subject(long_runs[:1])
    section = steady_section(replace(subject, closures={run.id: () for run in long_runs}))
    assert section is not None
    assert not any(isinstance(block, Paragraph) for block in section.parts[0].blocks)
