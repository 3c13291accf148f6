"""What stands before any figure counts each run once, and calls no warm-up a fault."""

from __future__ import annotations

import pytest

from tests.reports.sessions import session, turn
from wattload.reports.runs.load import Run
from wattload.reports.sections.caveats import limits_notices
from wattload.reports.stats.subject import Subject, make_subject

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


def test_who_says_a_thing_is_counted_against_all_runs_of_the_workload() -> None:
    runs = [
        *[turn(x, -1, 9e9, warm_up=True, name=f"w{x}", remarks=("Not calm.",)) for x in "AB"],
        *session({"A": FLAT}, remarks=("Not calm.",)),
        *session({"B": FLAT}),
    ]
    (said,) = [text for text in notices(make_subject(runs))["warnings"] if "calm" in text]
    assert said.endswith("(8 of 14 runs of unet3d)")


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
    """Return the remarks of runs as they are told, without who said them."""
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


def test_two_workloads_of_one_arm_are_never_one_range() -> None:
    runs = [
        turn("A", at, 1e9, workload=kind, name=f"{kind}{at}", remarks=(f"It took {share}%.",))
        for kind, shares in {"unet3d": (10, 12), "dlrm": (80, 85)}.items()
        for at, share in enumerate(shares)
    ]
    reported = [text for text in notices(make_subject(runs))["warnings"] if "took" in text]
    assert reported == ["It took 10 to 12%. (unet3d)", "It took 80 to 85%. (dlrm)"]


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


def test_a_sentence_with_a_sign_in_place_of_its_figure_is_another_one() -> None:
    assert {"Limit # W.", "Limit 5 W."} <= set(said(saying("limit # W", "limit 5 W")))


def test_what_one_run_says_twice_is_two_things() -> None:
    runs = [turn("A", at, 1e9, remarks=("It took 5%.", "It took 9%.")) for at in (0, 1)]
    reported = notices(make_subject(runs))["warnings"]
    assert [text for text in reported if "took" in text] == ["It took 5%.", "It took 9%."]


def test_a_sentence_that_begins_with_a_setting_keeps_it_as_it_is_typed() -> None:
    runs = session({"A": FLAT}, remarks=("loader=direct has no part here.", "it is so"))
    reported = notices(make_subject(runs))["warnings"]
    assert "loader=direct has no part here." in reported
    assert "It is so." in reported
