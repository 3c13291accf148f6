"""An arm has one letter on the whole page, even if a workload lacks an earlier arm."""

from __future__ import annotations

import pytest

from tests.reports.sessions import run
from wattload.reports.blocks import Block, Figure, FigureRow, Fold
from wattload.reports.charts.themes import light
from wattload.reports.render.text_export import markdown_report
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import letter_of
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.subject import Group, Subject, make_subject
from wattload.reports.stats.sweeps import points


def made(workload: str, label: str, index: int, workers: int = 1) -> Run:
    rate = {"old": 1e9, "new": 2e9, "third": 3e9}[label] * (1 + 0.001 * index)
    return run(
        f"{workload}-{label}-{workers}-{index}",
        {"workload": {"workers": workers}},
        label=label,
        workload=workload,
        rate_bytes_per_s=rate,
        seconds=3e9 / rate,
        order=2 * index + (label != "old"),
        seed=index + 2,
    )


def several(workload: str, *labels: str, workers: tuple[int, ...] = (1,)) -> list[Run]:
    return [
        made(workload, label, index, each)
        for each in workers
        for label in labels
        for index in range(5)
    ]


def parts(subject: Subject, workload: str) -> list[Block]:
    (section,) = [
        each for each in workload_sections(subject) if each.anchor == f"workload-{workload}"
    ]
    found: list[Block] = []
    for block in section.blocks:
        if isinstance(block, FigureRow):
            found += block.figures
        else:
            found += block.blocks if isinstance(block, Fold) else [block]
    return found


def group_of(subject: Subject, workload: str) -> Group:
    (group,) = [each for each in subject.groups if each.workload == workload]
    return group


@pytest.mark.parametrize("workers", [(1,), (1, 2)])
def test_a_workload_that_only_b_ran_draws_b(workers: tuple[int, ...]) -> None:
    runs = [*several("unet3d", "old", "new"), *several("checkpoint", "new", workers=workers)]
    subject = make_subject(runs)
    group = group_of(subject, "checkpoint")
    assert group.letters == ("B",)
    assert {letter_of(subject, each) for each in group.runs} == {"B"}
    assert {point.group.letters for point in points(group)} == {("B",)}
    figures = [block for block in parts(subject, "checkpoint") if isinstance(block, Figure)]
    assert figures
    drawn = "".join(figure.svg for figure in figures)
    assert light("b") in drawn
    assert light("a") not in drawn


def test_markdown_has_the_letters_of_the_page() -> None:
    runs = [*several("unet3d", "old", "new", "third"), *several("checkpoint", "new", "third")]
    text = markdown_report(make_subject(runs), full=True)
    assert "| B (new) |" in text
    _, _, checkpoint = text.partition("### checkpoint")
    assert "B (new), C (third)." in checkpoint
    assert "| B (new) | C (third) |" in checkpoint.replace("  ", " ")
