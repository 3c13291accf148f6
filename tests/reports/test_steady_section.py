from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.records import write_run
from tests.reports.conftest import arm
from wattload.reports.blocks import Figure, Notice, Paragraph, Table
from wattload.reports.load import Run, load_runs
from wattload.reports.phases import phases_of
from wattload.reports.sections.steady import steady_section
from wattload.reports.subject import make_subject


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
    section = steady_section(replace(subject, closures={run.id: () for run in runs}))
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
    assert [text for _, text in figure.legend] == ["A", "B", "by the second"]


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
