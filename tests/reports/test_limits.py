"""What stands before any figure counts each run once, and calls no warm-up a fault."""

from __future__ import annotations

from tests.reports.sessions import against_itself, session, turn
from wattload.core.record.check import Check
from wattload.reports.blocks import Notice
from wattload.reports.load import Run
from wattload.reports.sections.limits import limits_notices, limits_sentence
from wattload.reports.subject import Subject, make_subject

FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]
FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)
WARNS = Check(name="calm", verdict="warn", sentence="The host was busy.")


def notices(subject: Subject) -> dict[str, list[str]]:
    found = limits_notices(subject)
    return {each.anchor: [str(text) for text in each.sentences] for each in found}


def warm_ups(*labels: str) -> list[Run]:
    return [turn(label, -1, 9e9, warm_up=True, name=f"w{label}") for label in labels]


def test_warm_ups_and_runs_against_themselves_have_a_line_of_their_own() -> None:
    runs = [*warm_ups("A", "B"), *session({"A": FLAT, "B": FLAT}), *against_itself("A", FLAT, FLAT)]
    subject = make_subject(runs)
    found = notices(subject)
    assert "broken" not in found
    assert found["no-arm"] == [
        "2 of 26 runs made before the compared ones, to warm up: in no figure.",
        "12 of 26 runs of one setting against itself: in no figure of an arm. What noise floor "
        "they set stands below the comparison.",
    ]
    words = limits_sentence(subject, limits_notices(subject))
    text = "".join(part if isinstance(part, str) else part.text for part in words)
    assert "14 of 26 runs of no arm" in text
    assert "not compared as valid" not in text


def test_runs_with_faults_are_counted_without_warm_ups() -> None:
    runs = [*warm_ups("A", "B"), *session({"A": FLAT, "B": FLAT})]
    bad = turn("A", 9, 1e9, checks=(FAILED,))
    subject = make_subject([*runs, bad])
    assert len(notices(subject)["broken"]) == 1
    words = limits_sentence(subject, limits_notices(subject))
    text = "".join(part if isinstance(part, str) else part.text for part in words)
    assert "1 of 15 runs shown, but not compared as valid" in text


def test_a_page_of_warm_ups_alone_says_why_nothing_counts() -> None:
    found = notices(make_subject(warm_ups("A")))
    assert "it is a warm-up" in found["broken"][0]
    assert "no-arm" not in found


def test_who_says_a_thing_is_counted_against_all_runs_of_the_workload() -> None:
    runs = [
        *[turn(label, -1, 9e9, warm_up=True, name=f"w{label}", checks=(WARNS,)) for label in "AB"],
        *session({"A": FLAT}, checks=(WARNS,)),
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
    told = [text for text in notices(make_subject(runs))["warnings"] if "workers" in text]
    assert told == [
        "A: The 2 workers of /mnt/1 spent 10.5 to 12.5% reading. (3 of 5 runs of unet3d)",
        "B: The 2 workers of /mnt/1 spent 40.5 to 41.5% reading. (2 of 5 runs of unet3d)",
    ]


def test_what_all_runs_say_with_the_same_figures_stays_one_sentence() -> None:
    runs = session({"A": FLAT, "B": FLAT}, remarks=("12 files were read.",))
    assert notices(make_subject(runs))["warnings"].count("12 files were read.") == 1


def test_places_that_differ_by_a_number_are_never_made_a_range() -> None:
    runs = [turn("A", at, 1e9, remarks=(f"No room on /mnt/{at} or nvme{at}.",)) for at in (1, 2)]
    told = notices(make_subject(runs))["warnings"]
    assert [text.partition(" (")[0] for text in told if "room" in text] == [
        "No room on /mnt/1 or nvme1.",
        "No room on /mnt/2 or nvme2.",
    ]


def test_a_sentence_that_begins_with_a_setting_keeps_it_as_it_is_typed() -> None:
    runs = session({"A": FLAT}, remarks=("loader=direct has no part here.", "it is so"))
    told = notices(make_subject(runs))["warnings"]
    assert "loader=direct has no part here." in told
    assert "It is so." in told


def test_no_notice_is_empty() -> None:
    for each in limits_notices(make_subject(session({"A": FLAT, "B": FLAT}))):
        assert isinstance(each, Notice)
        assert each.sentences
