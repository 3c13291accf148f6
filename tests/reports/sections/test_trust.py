"""What a page rests on: caveats that count each run once, and every check by its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports.conftest import arm, one
from tests.reports.sessions import session, turn
from wattload.core.record.energy import PowerSourceRecord, Recomputation
from wattload.core.record.results import Check
from wattload.reports.blocks import Table
from wattload.reports.runs.load import Run
from wattload.reports.sections.trust import check_names, gaps_notice, limits_notices, trust_section
from wattload.reports.sections.wording import check_counts, checks_tally
from wattload.reports.stats.subject import Subject, make_subject


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
    every = [check for run in runs for check in run.record.checks]
    verdicts: list[str] = [check.verdict for check in every]
    as_on_the_terminal = check_counts(every, causes=False)
    assert checks_tally(subject.all_checks) == f"{len(every)} checks: {as_on_the_terminal}"
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


FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]


def notices(subject: Subject) -> dict[str, list[str]]:
    found = limits_notices(subject)
    return {each.anchor: [str(text) for text in each.sentences] for each in found}


def warm_ups(*labels: str) -> list[Run]:
    return [turn(label, -1, 9e9, warm_up=True, name=f"w{label}") for label in labels]


def test_a_page_of_warm_ups_alone_says_why_nothing_counts() -> None:
    found = notices(make_subject(warm_ups("A")))
    assert "it is a warm-up" in found["excluded"][0]
    assert "no-arm" not in found


def test_what_runs_say_alike_is_told_once_per_arm_with_the_range_of_its_figures() -> None:
    rates = {"A": [1e9, 1.1e9, 1.2e9], "B": [1e9, 1.1e9]}
    runs = [
        turn(name, at, rate, remarks=(f"The 2 workers of /mnt/1 spent {at + base}.5% reading.",))
        for (name, of_arm), base in zip(rates.items(), (10, 40), strict=True)
        for at, rate in enumerate(of_arm)
    ]
    reported = [text for text in notices(make_subject(runs))["warnings"] if "workers" in text]
    assert reported == [
        "A: The 2 workers of /mnt/1 spent 10.5 to 12.5% reading. (3 of 5 runs of unet3d)",
        "B: The 2 workers of /mnt/1 spent 40.5 to 41.5% reading. (2 of 5 runs of unet3d)",
    ]


def said(runs: list[Run]) -> list[str]:
    """Return the remarks of runs as reported, without the runs' names."""
    reported = notices(make_subject(runs))["warnings"]
    return [text.rpartition(" (")[0] if text.endswith(")") else text for text in reported]


def saying(*texts: str) -> list[Run]:
    """Return a run of one arm for each remark."""
    return [turn("A", at, 1e9, remarks=(text,)) for at, text in enumerate(texts)]


def workers(label: str, count: int, *remarks: str) -> list[Run]:
    """Return runs of an arm with a number of workers, one for each remark."""
    settings = {"workload": {"workers": count}}
    return [
        turn(label, at, 1e9, remarks=(text,), settings=settings, name=f"{label}{count}-{at}")
        for at, text in enumerate(remarks)
    ]


def test_two_points_of_a_sweep_are_never_one_range() -> None:
    runs = [
        *workers("A", 2, "Cores were busy for 90% of 3 s.", "Cores were busy for 91% of 3 s."),
        *workers("A", 4, "Cores were busy for 60% of 2 s.", "Cores were busy for 59% of 2 s."),
        *workers("B", 2, "Cores were busy for 80% of 3 s."),
    ]
    assert [text for text in said(runs) if "busy" in text] == [
        "A, workers 2: Cores were busy for 90 to 91% of 3 s.",
        "A, workers 4: Cores were busy for 59 to 60% of 2 s.",
        "B, workers 2: Cores were busy for 80% of 3 s.",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The shards of ranks 0 to 1 ran.", "The shards of ranks 0 to 7 ran."),
        ("The kernel is 6.8 here.", "The kernel is 6.10 here."),
        ("It ran in power state 0.", "It ran in power state 3."),
        ("1,234 MB were read.", "2,900 MB were read."),
        ("1 234 MB were read.", "1 900 MB were read."),
        ("It took 58,7 s.", "It took 61,2 s."),
        ("3 files of 7.", "4 files of 7."),
        ("It took 5 to 10%.", "It took 5 to 20%."),
        ("It took 5% to 10%.", "It took 6% to 10%."),
        ("It ran with 5-10%.", "It ran with 5-20%."),
        ("It ran with 5\u201310 %.", "It ran with 5\u201320 %."),
        ("The figure is 3 \u00b15%.", "The figure is 3 \u00b16%."),
        ("The 95%-quantile is here.", "The 99%-quantile is here."),
    ],
)
def test_only_what_was_measured_is_made_a_range(one: str, other: str) -> None:
    assert {one, other} <= set(said(saying(one, other)))


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("Read at 5.63 GB/s.", "Read at 10.1 GB/s.", "Read at 5.63 to 10.1 GB/s."),
        ("58.7 times that.", "9 times that.", "9 to 58.7 times that."),
        ("It rested 3 s.", "It rested 1\u202f200 s.", "It rested 3 to 1\u202f200 s."),
        ("Busy for 4 \u00b5s.", "Busy for 5 \u00b5s.", "Busy for 4 to 5 \u00b5s."),
        ("Warm by 3 K, 95 %.", "Warm by 4 K, 95 %.", "Warm by 3 to 4 K, 95 %."),
        ("It drew 1.0 W.", "It drew 1 W.", "It drew 1.0 W."),
    ],
)
def test_what_was_measured_has_a_unit_behind_it(one: str, other: str, shown: str) -> None:
    assert shown in said(saying(one, other))


def test_figures_of_two_units_are_not_one_range() -> None:
    texts = ("Read at 5.63 GB/s.", "Read at 900 MB/s.")
    assert set(texts) <= {text.removeprefix("A: ") for text in said(saying(*texts))}


def test_what_one_run_says_twice_is_two_things() -> None:
    runs = [turn("A", at, 1e9, remarks=("It took 5%.", "It took 9%.")) for at in (0, 1)]
    reported = notices(make_subject(runs))["warnings"]
    assert [text for text in reported if "took" in text] == ["It took 5%.", "It took 9%."]


def test_a_sentence_that_begins_with_a_setting_keeps_it_as_it_is_typed() -> None:
    runs = session({"A": FLAT}, remarks=("loader=direct has no part here.", "it is so"))
    reported = notices(make_subject(runs))["warnings"]
    assert "loader=direct has no part here." in reported
    assert "It is so." in reported
