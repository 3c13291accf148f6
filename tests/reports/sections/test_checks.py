"""What the figures rest on: every check by name, and every energy figure's evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports.conftest import arm, one
from wattload.core.record.energy import PowerSourceRecord, Recomputation
from wattload.core.record.results import Check
from wattload.reports.blocks import Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.caveats import gaps_notice
from wattload.reports.sections.checks import check_names, trust_section
from wattload.reports.sections.wording import checks_tally
from wattload.reports.stats.subject import make_subject


def table(runs: Sequence[Run], anchor: str) -> Table:
    blocks = trust_section(make_subject(runs)).blocks
    (found,) = [each for each in blocks if isinstance(each, Table) and each.anchor == anchor]
    return found


def rows(table: Table) -> list[list[str]]:
    return [
        [f"{cell.badge}{cell.text} {cell.remark}".strip() for cell in row] for row in table.rows
    ]


def test_the_results_of_all_checks_sum_to_the_tally(tmp_path: Path) -> None:
    bad = Check(name="delivered", verdict="fail", sentence="3 of 4 differ.")
    runs = [one(tmp_path, arm("A", index, checks=(bad,))) for index in range(2)]
    subject = make_subject(runs)
    every = [check for run in runs for check in (*run.record.checks, *subject.file_checks[run.id])]
    verdicts: list[str] = [check.verdict for check in every]
    assert checks_tally(subject) == (
        f"{len(every)} checks: {verdicts.count('pass')} passed, {verdicts.count('warn')} warned, "
        f"2 failed, {verdicts.count('not_checked')} not checked"
    )
    results = [line[1] for line in rows(table(runs, "trust-checks"))]
    for word, verdict in (("failed", "fail"), ("warned", "warn")):
        counts = re.findall(rf"(\d+) {word}", " ".join(results))
        assert sum(map(int, counts)) == verdicts.count(verdict)


def test_energies_made_again_are_told_with_the_evidence_alone(run: Run) -> None:
    origin = Recomputation(utc="2026-11-23T12:00:00", wattload="1", energy_model=1, sha256="0")
    power = run.record.power.model_copy(update={"recomputed": origin})
    record = run.record.model_copy(update={"power": power, "limits": (power.recomputed_text,)})
    again = replace(run, record=record)
    assert "were recomputed from the samples by version" in table([again], "trust-evidence").note
    assert gaps_notice(make_subject([again])) is None


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


def reported(*runs: Run) -> list[tuple[str, str]]:
    """Return the names and the finding of each check that was not made."""
    return [(line[0].text, line[2].text) for line in table(runs, "trust-checks").rows]


def test_pairs_without_a_figure_for_one_reason_are_one_line(run: Run) -> None:
    sentence = COARSE.format("3648.91")
    pairs = ("nvme_25h_nvme_olec", "nvme_ipm_nvme_olec", "nvme_nvme_olec")
    checks = [unchecked(f"energy_cross_check_S1_{pair}", sentence) for pair in pairs]
    names = "nvme_25h with nvme_olec, nvme_ipm with nvme_olec and nvme with nvme_olec"
    assert reported(with_checks(run, *checks)) == [(f"energy cross check S1 ({names})", sentence)]


def test_reasons_that_differ_by_a_figure_are_one_line_over_all_runs(run: Run) -> None:
    name = "energy_cross_check_S1_nvme_25h_nvme_olec"
    first = with_checks(run, unchecked(name, COARSE.format("3648.91")))
    second = with_checks(run, unchecked(name, COARSE.format("12.5")), run_id="run-2")
    assert reported(first, second) == [
        ("energy cross check S1 nvme_25h nvme_olec", COARSE.format("3648.91"))
    ]


def test_reasons_of_different_drives_stay_apart(run: Run) -> None:
    checks = [unchecked(f"link_{n}", f"The link of nvme{n} is not known.") for n in (0, 1)]
    assert reported(with_checks(run, *checks)) == [
        ("link 0", "The link of nvme0 is not known."),
        ("link 1", "The link of nvme1 is not known."),
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
