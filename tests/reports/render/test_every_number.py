"""Every number that a page prints is in its data or in a record of its runs.

By value and at the printed precision, in captions, tables, claims and the data of charts too. What
is exempt is listed here: numbers that only say where others are on the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.reports.conftest import render_page
from tests.reports.numerals import Known, is_count, missing_numbers
from tests.reports.parsing import Page
from tests.reports.sessions import against_itself, turn
from wattload.reports.blocks import Facts, Fold, Paragraph, Section
from wattload.reports.claims.papers import papers
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run
from wattload.reports.sections.provenance import comparison_rules, method_section
from wattload.reports.stats.subject import Subject, make_subject

NEAR = [1.0, 1.0041, 0.9973, 1.0019, 0.9988, 1.0007, 1.0032, 0.9961]
EXEMPT = (
    r"first-power|first-rate|.*-rate|.*-power|energy-.*|.*-operations.*"  # of the traces
    r"|.*-phases|run-run-[a-z0-9]+(-\d)?"  # quotients and differences of what a run's record has
    r"|consequences"  # products of what a unit of work costs and how often it is done
    r"|verdict"  # shares of energy, made of the ratios in the data
)
"""Places whose figures are of traces, or are made of two that stand in a run's record."""


def texts_of_rules(subject: Subject) -> Iterator[str]:
    """Yield the texts that state rules: their numbers are of no run."""
    for block in [*comparison_rules(), *blocks_of(method_section(subject))]:
        if isinstance(block, Fold):
            yield from (part.text for part in block.blocks if isinstance(part, Paragraph))
        elif isinstance(block, Facts):
            yield from (value for _, value in block.pairs if isinstance(value, str))
        elif isinstance(block, Paragraph):
            yield block.text


def strings(value: Any) -> Iterator[str]:
    """Yield the texts in JSON: of papers their words alone, for their figures are in the data."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from strings(part)
    if isinstance(value, str):
        yield value


def blocks_of(section: Section | None) -> list[Any]:
    return list(section.blocks) if section is not None else []


def missed(subject: Subject, source: str, data: dict[str, Any] | None = None) -> list[Any]:
    """Return the numbers of a page that its data does not have."""
    page = Page(source)
    records = [run.record.model_dump(mode="json") for run in subject.runs]
    words = [list(strings(paper.model_dump(mode="json"))) for paper in papers()]
    known = Known(page.data() if data is None else data, records, words)
    found = missing_numbers(page, known, set(texts_of_rules(subject)), EXEMPT)
    return [each for each in found if not is_count(each[1]) and "÷" not in each[2]]  # no formulas


@pytest.fixture(scope="module")
def session_runs() -> list[Run]:
    """Return pairs of two drives with energy, and one of them against itself."""
    pairs = [
        turn(
            label, block, rate * NEAR[block - (label == "B")], power="self_reported",
            virtual=False, serial=f"S{label}", model=f"M{label}",
        )
        for block in range(8)
        for label, rate in (("A", 1e9), ("B", 1.04e9))
    ]  # fmt: skip
    halves = [1e9 * x for x in NEAR], [1e9 * x for x in reversed(NEAR)]
    return [*pairs, *against_itself("A", *halves)]


@pytest.fixture(scope="module")
def compared(session_runs: list[Run]) -> tuple[Subject, str]:
    subject = make_subject(session_runs)
    return subject, page_of(subject, claims=True)


def test_of_two_arms_that_were_read_from_disk(arms: tuple[Run, ...]) -> None:
    subject = make_subject(arms)
    assert missed(subject, page_of(subject)) == []


def test_of_single_runs(virtual_runs: tuple[Run, ...]) -> None:
    assert missed(make_subject(virtual_runs), render_page(virtual_runs)) == []


def test_of_a_session_with_its_noise(compared: tuple[Subject, str]) -> None:
    assert missed(*compared) == []


@pytest.fixture(scope="module")
def own_page(compared: tuple[Subject, str]) -> str:
    """Return the page without published figures, which are many: some are like those left out."""
    return page_of(compared[0])


@pytest.mark.parametrize("key", ["comparisons", "published", "p_value_sign_flips", "cv"])
def test_what_is_left_out_is_found_out(
    compared: tuple[Subject, str], own_page: str, key: str
) -> None:
    subject, source = compared
    source = source if key == "published" else own_page
    data = without(json.loads(json.dumps(Page(source).data())), key)
    assert missed(subject, source, data) != []


def without(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: without(part, key) for name, part in value.items() if name != key}
    return [without(part, key) for part in value] if isinstance(value, list) else value
