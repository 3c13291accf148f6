"""The box of what could not be measured says each reason once, and all that it stands for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports.conftest import arm, one
from wattload.core.record.check import Check
from wattload.core.record.energy import PowerSourceRecord
from wattload.reports.load import Run
from wattload.reports.sections.gaps import check_names, gaps_notice
from wattload.reports.subject import make_subject

SOURCES = ("nvme", "nvme_25h", "nvme_ipm", "nvme_olec")
COARSE = "nvme_olec has no figure: the step of 3600 J is too coarse for the {} J it counted."


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return one(tmp_path, arm("A", 0))


def unchecked(name: str, sentence: str) -> Check:
    return Check(name=name, verdict="not_checked", sentence=sentence)


def with_checks(run: Run, *checks: Check, run_id: str = "run-1") -> Run:
    sources = tuple(
        PowerSourceRecord(host="box", facts=None, name=name, device="S1", used=True, sentence="")
        for name in SOURCES
    )
    record = run.record.model_copy(
        update={
            "run_id": run_id,
            "checks": checks,
            "metrics": (),
            "power": run.record.power.model_copy(update={"sources": sources}),
        }
    )
    return replace(run, record=record)


def told(*runs: Run) -> list[str]:
    sentences = map(str, gaps_notice(make_subject(runs)).sentences)
    return [text for text in sentences if "checked" in text]


def test_pairs_without_a_figure_for_one_reason_are_one_line(run: Run) -> None:
    sentence = COARSE.format("3648.91")
    pairs = ("nvme_25h_nvme_olec", "nvme_ipm_nvme_olec", "nvme_nvme_olec")
    checks = [unchecked(f"energy_cross_check_S1_{pair}", sentence) for pair in pairs]
    assert told(with_checks(run, *checks)) == [
        "Not checked, energy cross check S1 (nvme_25h with nvme_olec, nvme_ipm with nvme_olec and "
        f"nvme with nvme_olec): {sentence}"
    ]


def test_reasons_that_differ_by_a_figure_are_one_line_over_all_runs(run: Run) -> None:
    name = "energy_cross_check_S1_nvme_25h_nvme_olec"
    first = with_checks(run, unchecked(name, COARSE.format("3648.91")))
    second = with_checks(run, unchecked(name, COARSE.format("12.5")), run_id="run-2")
    assert told(first, second) == [
        f"Not checked, energy cross check S1 nvme_25h nvme_olec: {COARSE.format('3648.91')}"
    ]


def test_reasons_of_different_drives_stay_apart(run: Run) -> None:
    checks = [unchecked(f"link_{n}", f"The link of nvme{n} is not known.") for n in (0, 1)]
    assert told(with_checks(run, *checks)) == [
        "Not checked, link 0: The link of nvme0 is not known.",
        "Not checked, link 1: The link of nvme1 is not known.",
    ]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["harness_ceiling"], "harness ceiling"),
        (["clocks_agree", "bytes_add_up"], "clocks agree and bytes add up"),
        (["energy_closure", "energy_closure_read"], "energy closure and energy closure read"),
        (["energy_closure_read", "energy_closure_write"], "energy closure (read and write)"),
    ],
)
def test_what_names_begin_with_alike_is_said_once(names: list[str], shown: str) -> None:
    assert check_names(names, ()) == shown


def test_a_run_without_a_gap_says_so(run: Run) -> None:
    whole = replace(run, record=run.record.model_copy(update={"metrics": (), "checks": ()}))
    assert gaps_notice(make_subject([whole])).sentences == ["No gap is recorded."]
