from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.records import Scenario
from tests.reports.conftest import one
from wattload.core.power import Channel
from wattload.reports.blocks import Figure, Paragraph
from wattload.reports.charts.timeline import arms_timeline_figure, timeline_figure
from wattload.reports.charts.tracks import extent_of
from wattload.reports.load import Run
from wattload.reports.sections.overtime import arms_overtime_section
from wattload.reports.subject import make_subject
from wattload.reports.thinning import POINT_LIMIT
from wattload.reports.timeline import make_timeline
from wattload.reports.traces import PowerTrace, Signal


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


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ("measured", "measured by a meter or a rail sensor"),
        ("bounds", "bounds from power states, no measurement"),
        ("declared", "declared by a data sheet or the user, no measurement"),
    ],
)
def test_the_legend_names_the_evidence_of_power(tmp_path: Path, power: str, words: str) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", seconds=3.0, power=power, virtual=False))  # type: ignore[arg-type]
    figure = timeline_figure("n", "s", make_timeline(run))
    assert figure is not None
    assert any(text.endswith(f": {words}") for _, text in figure.legend)


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ("bounds", "bounds on the drive's power from its power states"),
        (
            "declared",
            "the watts that a data sheet or the user declares",
        ),
    ],
)
def test_the_caption_says_where_the_watts_are_from(tmp_path: Path, power: str, words: str) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", seconds=3.0, power=power, virtual=False))  # type: ignore[arg-type]
    figure = timeline_figure("n", "s", make_timeline(run))
    assert figure is not None
    assert words in figure.caption
    assert ("power states" in figure.caption) == (power == "bounds")


def test_a_day_of_power_is_a_page_of_points(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", seconds=3.0, power="measured", virtual=False))
    source = run.record.power.sources[0]
    watts = np.random.default_rng(1).normal(9.0, 0.5, 864_000)
    watts[432_100] = 31.0
    signal = Signal(
        source=source.name,
        device=source.device,
        channel=Channel.POWER_W,
        time_ns=np.arange(watts.size) * 100_000_000,
        value=watts,
    )
    day = replace(run, traces=replace(run.traces, power=PowerTrace(signals=(signal,))))
    figure = timeline_figure("n", "s", make_timeline(day))
    assert figure is not None
    longest = max(figure.svg.split("<path"), key=len)
    assert longest.count("L") < POINT_LIMIT <= 4000
    assert len(figure.svg) < 100_000
