from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.conftest import arm, one
from wattload.reports.claims.facts import Alike, Held, conditions_of, held
from wattload.reports.claims.library import papers
from wattload.reports.claims.model import Expected, Fact
from wattload.reports.load import Run

MODEL = "MICRON_6550_MTFDLAL61T4TGA"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run in PS1 on the paper's drive, with 275 GB of memory."""
    return one(tmp_path_factory.mktemp("run"), arm("A", 0))


@pytest.mark.parametrize(
    ("found", "alike"),
    [
        ("6550", "alike"),
        ("micron_6550", "alike"),
        ("655", "not so named"),
        ("9400", "not so named"),
    ],
)
def test_a_drive_is_alike_by_name_and_not_by_part_of_a_number(
    run: Run, found: str, alike: Alike
) -> None:
    expected = Expected(words="a drive", found=(found,))
    assert held([run], Fact.DRIVE, expected) == Held(MODEL, alike)


@pytest.mark.parametrize(
    ("number", "alike"),
    [(256e9, "alike"), (275e9, "alike"), (240e9, "differs"), (768e9, "differs")],
)
def test_memory_is_alike_within_a_tenth(run: Run, number: float, alike: Alike) -> None:
    found = held([run], Fact.MEMORY, Expected(words="memory", number=number))
    assert found == Held("275\u00a0GB", alike)


def test_a_state_that_is_not_the_papers_differs(run: Run) -> None:
    assert held([run], Fact.POWER_STATE, Expected(words="PS1", found=("PS1",))).alike == "alike"
    assert held([run], Fact.POWER_STATE, Expected(words="PS0", found=("PS0",))).alike == "differs"


def test_what_a_paper_does_not_name_is_not_told_alike(run: Run) -> None:
    assert held([run], Fact.DRIVE, Expected(words="competitor A")).alike == "not told"


def test_what_no_record_holds_is_not_recorded(run: Run) -> None:
    expected = Expected(words="415 GB", number=415e9)
    assert held([run], Fact.CHECKPOINT, expected) == Held("\u2013", "not recorded")


def test_an_arm_of_two_drives_is_not_alike(run: Run, tmp_path: Path) -> None:
    other = one(tmp_path, arm("A", 1, model="SOME DRIVE"))
    found = held([run, other], Fact.DRIVE, Expected(words="6550", found=("6550",)))
    assert found == Held(f"{MODEL} and SOME DRIVE", "differs")


def test_conditions_of_another_workload_are_left_out() -> None:
    paper = papers()[0]
    found = conditions_of(paper.pairs["drives"], paper.conditions, "dlrm")
    words = [each.a.words for each in found]
    assert "768 GB" in words
    assert "256 GB" not in words
    assert found[0].fact is Fact.DRIVE
