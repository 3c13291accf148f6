"""Arms that ran one after the other: what drifts is no difference of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.reports.exports.test_comma import rows as comma_rows
from tests.reports.sessions import session
from wattload.reports.compare import Row, compare
from wattload.reports.exports.document import document
from wattload.reports.load import Run
from wattload.reports.pairs import began_s, one_after_the_other, value_pairs
from wattload.reports.sections.sureness import method
from wattload.reports.sequence import REACH, UNDATED, between, drift, first_arm
from wattload.reports.statistics import effect
from wattload.reports.subject import make_subject

FIRST, SECOND = [0.0, 1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 9.0]
LEVEL = [1.0, 1.002, 0.999, 1.001, 1.0]


def test_one_late_run_makes_no_mixture_of_arms_that_ran_one_after_the_other() -> None:
    assert first_arm(FIRST, SECOND) == "A"
    assert first_arm(SECOND, FIRST) == "B"
    assert first_arm([*FIRST[:4], 99.0], SECOND) == "A"
    assert first_arm([0, 2, 4, 6, 8], [1, 3, 5, 7, 9]) == ""
    assert first_arm([0, 1, 2, 10, 11], [3, 4, 5, 6, 7]) == ""


def test_drift_within_the_arms_is_carried_on_to_the_time_of_the_other() -> None:
    steady = [1.01**at for at in range(10)]
    found = between(steady[:5], steady[5:], FIRST, SECOND)
    assert found.share == pytest.approx(1.01**5 - 1, rel=1e-6)  # the centres are 5 s apart
    assert found.words.startswith("arms ran one after the other")


def test_a_level_that_few_runs_happened_to_keep_is_no_proof_of_calm() -> None:
    found = between(LEVEL, LEVEL, FIRST, SECOND)
    noisier = between([each**4 for each in LEVEL], [each**4 for each in LEVEL], FIRST, SECOND)
    assert 0.001 < found.share < 0.02
    assert noisier.share > 3 * found.share


def test_arms_that_mixed_have_no_drift_between_them() -> None:
    drifting = [1.01**at for at in range(10)]
    found = between(drifting[::2], drifting[1::2], [0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    assert (found.share, found.words) == (0.0, "")


def test_drift_is_carried_on_no_farther_than_anyone_can_know_and_that_is_said() -> None:
    drifting = [1.001**at for at in range(5)]
    day_later = [86400 + at for at in FIRST]
    found = between(drifting, drifting, FIRST, day_later)
    assert found.share == pytest.approx(1.001 ** (4 * REACH) - 1, rel=1e-3)
    assert "drift between them is not known" in found.words


def test_what_no_times_tell_is_not_known() -> None:
    at_once = between(LEVEL, LEVEL, [0.0] * 5, [9.0] * 5)
    assert at_once.share == 0.0
    assert at_once.words == "arms ran one after the other: drift between them is not known"
    undated = effect(LEVEL, LEVEL, began=((), ()))
    assert undated is not None
    assert undated.between == UNDATED
    assert between(LEVEL, LEVEL, [0.0] * 5, [0.0] * 5) == UNDATED
    assert at_once.is_unknown
    assert UNDATED.is_unknown


def test_what_drifts_may_bring_unlike_arms_together() -> None:
    """A true 4 % that a drift of -4 % from first to last nearly takes away is not "the same"."""
    random = np.random.default_rng(7)
    said = 0
    for _ in range(200):
        logs = np.linspace(0, -0.04, 10) + random.normal(0, 0.001, 10) + np.repeat([0.0, 0.04], 5)
        values = np.exp(logs).tolist()
        began = ([60.0 * at for at in range(5)], [300 + 60.0 * at for at in range(5)])
        found = effect(values[:5], values[5:], began=began)
        assert found is not None
        said += found.same
    assert said == 0


def test_level_arms_in_sequence_may_still_be_the_same() -> None:
    still = [1.0, 1.0004, 0.9998, 1.0002, 0.9996]
    found = effect(still, still, began=(FIRST, SECOND))
    assert found is not None
    assert found.between.share > 0
    assert found.same


def test_a_host_that_drifts_makes_no_arm_better_though_one_ran_after_the_other() -> None:
    random = np.random.default_rng(31)
    draws, total, called, blind = 300, 0.03, 0, 0
    for _ in range(draws):
        values = np.exp(np.linspace(0, total, 10) + random.normal(0, 0.005, 10)).tolist()
        told = effect(values[:5], values[5:], began=(FIRST, SECOND))
        untold = effect(values[:5], values[5:])
        assert told is not None
        assert untold is not None
        called, blind = called + told.differs, blind + untold.differs
    assert called / draws <= 0.06
    assert blind / draws > 0.5  # without the times it would be called


def test_a_clear_difference_of_arms_in_sequence_is_still_called() -> None:
    found = effect(LEVEL, [1.2 * each for each in LEVEL], began=(FIRST, SECOND))
    assert found is not None
    assert found.differs


def in_sequence(rates: Sequence[float], late: int = 0) -> list[Run]:
    """Return runs of these rates in order of time: of A, of B, and as many of A as are late."""
    half = len(rates) // 2
    early = half - late
    runs = session(
        {"A": [*rates[:early], *rates[early + half :]], "B": rates[early : early + half]},
        interleave="none",
    )
    ordered = [*runs[:early], *runs[half:], *runs[early:half]]
    return [started(run, f"2026-11-20T23:{5 * at:02}:00+00:00") for at, run in enumerate(ordered)]


def started(run: Run, when: str) -> Run:
    return replace(run, record=run.record.model_copy(update={"started_utc": when}))


def throughput(runs: list[Run]) -> Row:
    subject = make_subject(runs)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if "throughput" in row.quantity.key)


DRIFTING = [1e9 * 1.006**at * noise for at, noise in enumerate([1.0, 1.001, 0.999, 1.0, 1.001] * 2)]


@pytest.mark.parametrize("late", [0, 1])
def test_a_drift_over_the_session_is_not_called_and_the_row_says_why(late: int) -> None:
    row = throughput(in_sequence(DRIFTING, late))
    assert row.effect is not None
    assert (row.call, row.words) == ("none", "no difference shown")
    assert row.effect.between.share > 0.01
    assert row.reason.endswith(row.effect.between.words)


@pytest.mark.parametrize(("late", "share"), [(0, "all"), (1, "most")])
def test_one_late_run_does_not_silence_the_notice(late: int, share: str) -> None:
    subject = make_subject(in_sequence(DRIFTING, late))
    (group,) = subject.groups
    assert one_after_the_other(subject, group) == f"{share} runs of A began before those of B"


def test_json_and_csv_say_that_arms_ran_one_after_the_other() -> None:
    runs = in_sequence(DRIFTING)
    (comparison,) = document(make_subject(runs))["comparisons"]
    told = next(each for each in comparison["rows"] if "throughput" in each["quantity"])
    assert told["effect"]["drift_between_arms"] == pytest.approx(0.03, abs=0.01)
    assert told["effect"]["between_arms"] in told["reason"]
    found = next(each for each in comma_rows(*runs) if "throughput" in each["figure"])
    assert (found["call"], found["why_called"]) == (told["words"], told["reason"])


def test_dates_that_can_t_be_read_are_said_to_be_unknown_and_not_far_apart() -> None:
    near = [1e9 * each for each in [*LEVEL, 1.001]]
    pairs = session({"A": near, "B": [1.2 * each for each in near]})
    undated = [started(run, "yesterday") for run in pairs]
    arms = [[(run, 1.0) for run in undated if run.record.label == arm] for arm in ("A", "B")]
    found = value_pairs(*arms)
    assert (found.parted, found.undated) == (6, 6)
    row = throughput(undated)
    assert row.effect is not None
    assert (row.call, row.reason) == ("barred", UNDATED.words)
    assert method(row.effect).endswith("6 pairs without times")


def test_times_of_two_kinds_can_t_be_told_from_each_other() -> None:
    one, other = (run.record for run in session({"A": [1e9, 1e9]}))
    bare = other.model_copy(update={"started_utc": "2026-11-20T23:00:05"})
    assert began_s([one], [bare]) == ((), ())


def test_drift_is_the_same_up_and_down_and_nothing_for_one_run() -> None:
    assert drift([1.0, 1.0, 2.0, 2.0]) == pytest.approx(drift([2.0, 2.0, 1.0, 1.0])) == 1.0
    assert drift([5.0]) == 0.0
