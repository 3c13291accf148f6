"""The finding in one sentence: its words, and that they are no stronger than the verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.gnn import gnn_run
from tests.reports.gnn import pairs as pairs_of_loaders
from tests.reports.gpu_reads import reads_run
from tests.reports.page_text import blocks_text
from tests.reports.random_reads import random_run
from tests.reports.sessions import session, simulated, turn
from tests.reports.stats.test_excluded_energies import pairs, unchecked
from tests.reports.stats.test_summary import FAST, REAL, SLOW
from wattload.core.power import Evidence, Scope
from wattload.core.record.results import Check
from wattload.reports.runs.load import Run
from wattload.reports.sections.first import first_section, heading
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen

LEVEL = [1.0e9 * (1 + 0.003 * (-1) ** number) for number in range(8)]
NOISY = [1.0e9, 1.3e9, 0.8e9, 1.1e9, 1.25e9, 0.9e9, 1.05e9, 0.85e9]


def said(runs: Sequence[Run], by: str = "label", *, forced: bool = False) -> str:
    text = finding(make_subject(list(runs), by, forced=forced))
    return text.replace("\u00a0", " ").replace("\u202f", " ").replace("\u00d7", "x")


def test_the_faster_arm_may_also_be_the_thriftier() -> None:
    assert said(session({"A": FAST, "B": SLOW}, **REAL)) == (
        "A finishes an epoch 2.40x as fast and uses 62 % less energy."
    )


def test_the_first_arm_may_lose() -> None:
    assert said(session({"old": SLOW, "new": FAST}, **REAL)).startswith(
        "new finishes an epoch 2.40x as fast"
    )


def test_one_arm_may_be_faster_and_the_other_use_less_energy() -> None:
    thirsty = session({"A": FAST}, busy_w=90.0, **REAL)
    assert said([*thirsty, *session({"B": SLOW}, **REAL)]) == (
        "A finishes an epoch 2.40x as fast, B uses 43 % less energy."
    )


def test_a_tie_is_told_as_the_same() -> None:
    text = said(session({"A": LEVEL, "B": LEVEL[::-1]}, **REAL))
    assert text == "The same speed and energy within 3 %."


def test_valid_runs_of_a_job_without_a_rate_have_no_finding_of_speed() -> None:
    runs = [
        replace(run, record=run.record.model_copy(update={"metrics": ()}))
        for run in session({"A": FAST, "B": SLOW}, **REAL)
    ]
    assert said(runs) == "A uses 62 % less energy, speed not measured (no rate)."


def test_within_the_noise_no_difference_is_shown() -> None:
    text = said(session({"A": NOISY, "B": NOISY[::-1]}))
    assert text.startswith("No difference in speed shown (± ")
    assert "as fast" not in text


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"A": FAST[:3], "B": SLOW[:3]}, "3 pairs; 6 needed"),
        ({"A": FAST[:1], "B": SLOW[:1]}, "1 pair; 6 needed"),
    ],
)
def test_too_few_runs_are_told_as_such(rates: dict[str, list[float]], words: str) -> None:
    assert said(session(rates, **REAL)) == f"Too few runs to show a difference ({words})."


def test_energies_that_were_not_measured_are_told_as_such() -> None:
    assert said(session({"A": FAST, "B": SLOW})) == (
        "A finishes an epoch 2.40x as fast, energy not measured (no power sensor)."
    )


def test_excluded_energies_have_their_reason() -> None:
    runs = unchecked(pairs(), [each.id for each in pairs()])
    assert said(runs) == (
        "A finishes an epoch 2.40x as fast, "
        "energy excluded (checks of power failed or were not made)."
    )


@pytest.mark.parametrize(
    ("power", "words"), [("self_reported", "meter"), ("estimated", "estimate")]
)
def test_energies_by_the_account_of_the_drives_are_told_as_such(power: str, words: str) -> None:
    values: dict[str, Any] = {"power": power, "virtual": False}
    runs = session({"A": FAST, "B": SLOW}, **values)
    assert said(runs).endswith(f" and uses 62 % less energy by the drives' own {words}s.")
    level = said(session({"A": LEVEL, "B": LEVEL[::-1]}, **values))
    assert level == f"The same speed and energy by the drives' own {words}s within 3 %."
    assert said(runs[:1]).endswith(f", 16.1 J per epoch by the drive's own {words}, one run.")
    other = session({"A": FAST, "B": SLOW}, workload="dlrm", session="other", **values)
    assert said([*runs, *other]) == (
        "A finishes an epoch 2.40x as fast and uses 62 % less energy; "
        f"DLRM: A is 2.40x as fast and uses 59 % less energy; energy by the drives' own {words}s."
    )


def test_bounds_rank_nothing() -> None:
    text = said(session({"A": FAST, "B": SLOW}, power="bounds", virtual=False))
    assert text.startswith("A finishes an epoch 2.40x as fast, energy known as bounds only (A ")
    assert "less energy" not in text


def test_upper_bounds_are_told_as_such() -> None:
    runs = session({"A": FAST, "B": SLOW}, power="bounds", virtual=False)
    assert said(list(map(without_lower_bound, runs))) == (
        "A finishes an epoch 2.40x as fast, "
        "energy known as bounds only (A ≤ 31.5 and B ≤ 75.8 J per epoch)."
    )


def test_an_estimated_bound_ranks_nothing_and_the_page_agrees() -> None:
    runs = session({"A": FAST, "B": SLOW}, power="bounds", virtual=False)
    runs = [without_lower_bound(run, evidence=Evidence.ESTIMATED) for run in runs]
    assert "energy known as bounds only (A ≤ 31.5 and B ≤ 75.8 J per epoch)" in said(runs)
    (row,) = first_screen(make_subject(runs)).rows
    assert row.energy is not None
    assert row.energy.reason == "not comparable: known as bounds only, estimated by the device"


def without_lower_bound(run: Run, **changes: Any) -> Run:
    power = run.record.power
    missing = {"lower_j": "no minimum is declared"}
    energy = [
        each.model_copy(update={"lower_j": None, "missing": {**each.missing, **missing}, **changes})
        for each in power.energy
    ]
    own = power.model_copy(update={"energy": tuple(energy)})
    return replace(run, record=run.record.model_copy(update={"power": own}))


def test_reasons_name_arms_as_the_user_does() -> None:
    runs = [*session({"old": FAST}, **REAL), *session({"new": SLOW})]
    assert said(runs) == (
        "old finishes an epoch 2.40x as fast, "
        "no verdict on energy (no figure of new (not measured: no power sensor))."
    )


def test_a_name_that_is_the_letter_of_another_arm_is_told_as_a_label() -> None:
    runs = session({"b": SLOW, "A": FAST})
    assert said(runs).startswith('Label "A" finishes an epoch 2.40x as fast')
    assert heading(make_subject(runs)) == [("A", "b"), ("B", 'label "A"')]
    of_one = [*session({"b": FAST}, **REAL), *session({"A": SLOW})]
    assert '(no figure of label "A" (not measured' in said(of_one)


def test_arms_without_a_common_workload_have_their_figures() -> None:
    runs = [*session({"A": FAST[:1]}), *session({"B": FAST[:1]}, workload="checkpoint")]
    assert said(runs) == (
        "Unet3D: A 2.40 GB/s read, energy not measured, one run; "
        "Checkpoint: B 2.40 GB/s written, energy not measured, one run."
    )


def test_an_arm_without_a_valid_run_is_named() -> None:
    runs = with_failed(session({"A": FAST, "B": SLOW}, **REAL), "B")
    assert said(runs) == "No valid run of B, so nothing is compared."
    forced = said(runs, forced=True)
    assert forced.endswith(" (forced despite exclusions).")


def with_failed(runs: Sequence[Run], arms: str) -> list[Run]:
    """Return the runs, those of the arms with these letters with a failed check."""
    wrong = Check(name="data_content", verdict="fail", sentence="A block is wrong.")
    return [
        replace(run, record=run.record.model_copy(update={"checks": (wrong,)}))
        if run.record.label in arms
        else run
        for run in runs
    ]


def test_of_three_arms_those_without_a_valid_run_are_named() -> None:
    runs = session({"A": SLOW, "B": FAST, "C": [1.5e9] * 8}, **REAL)
    assert said(with_failed(runs, "B")) == (
        "C finishes an epoch 1.50x as fast and uses 33 % less energy; no valid run of B."
    )
    assert said(with_failed(runs, "BC")) == "No valid run of B or C, so nothing is compared."
    other = session({"A": SLOW, "B": FAST, "C": SLOW}, workload="dlrm", session="other")
    text = said([*with_failed(runs, "B"), *other])
    assert "Unet3D: no ranking (no figure of B (no valid run)); DLRM: B is 2.40x" in text


def test_simulated_drives_come_first() -> None:
    assert said(simulated(FAST, SLOW)) == (
        "Simulated drives, no verdict: A finishes an epoch 2.40x as fast and uses 62 % less energy."
    )
    own = [run for run in simulated(FAST, SLOW) if run.record.label == "A"]
    mixed = said([*own, *session({"B": SLOW}, **REAL)])
    assert mixed.startswith("Simulated drive of A, no verdict: no verdict on speed or energy (")
    third = said([*simulated(FAST, SLOW), *session({"C": [1.5e9] * 8}, **REAL)])
    assert third == (
        "Simulated drive of A and B, no verdict: "
        "Unet3D: no ranking (not comparable: only some drives are simulated)."
    )


def test_of_three_arms_the_fastest_is_compared_with_each() -> None:
    runs = session({"A": SLOW, "B": FAST, "C": [1.5e9] * 8})
    assert said(runs) == (
        "Unet3D: B is 1.60x as fast as C and 2.40x as fast as A, with 2.40 GB/s read, "
        "energy not measured (no power sensor)."
    )
    level = session({"A": SLOW, "B": FAST, "C": [2.37e9, 2.41e9] * 4})
    assert said(level) == (
        "Unet3D: B is 2.40x as fast as A, with 2.40 GB/s read, no difference from C shown, "
        "energy not measured (no power sensor)."
    )
    few = session({"A": SLOW[:3], "B": FAST[:3], "C": SLOW[:3]})
    short = "Unet3D: too few runs to show a difference (3 runs each; 5 needed; GB/s read: B"
    assert said(few).startswith(short)


@pytest.mark.parametrize("is_time", [False, True])
def test_the_row_of_three_arms_has_the_ratios_of_the_sentence(*, is_time: bool) -> None:
    runs = session({"A": SLOW, "B": FAST, "C": [1.5e9] * 8})
    if is_time:
        own = pairs_of_loaders(count=8)
        direct = [
            gnn_run(name=f"c{at}", loader="direct", repeat=2 * at, seed=at + 1) for at in range(8)
        ]
        runs = [*own, *direct]
    subject = make_subject(runs, "loader" if is_time else "label")
    sentence = finding(subject)
    first, second = re.findall("([0-9.]+)\u00d7 as fast as", sentence)
    row = blocks_text(first_section(subject, first_screen(subject)))
    (note,) = re.findall("note: (. is .*) hold together", row)
    assert re.findall("([0-9.]+)\u00d7 ", note) == [first, second]
    for text, *ends in re.findall("([0-9.]+)\u00d7 \\(([0-9.]+) to ([0-9.]+)\\)", note):
        low, high = map(float, ends)
        assert 1 < low <= float(text) <= high


def test_arms_that_alternate_are_compared_block_by_block() -> None:
    shares = {"A": 1, "B": 0.9, "C": 0.95, "D": 0.995}
    rates = {
        arm: [
            1e9 * share * (1 + 0.2 * (block % 3) + 0.001 * (block * place % 5))
            for block in range(6)
        ]
        for place, (arm, share) in enumerate(shares.items())
    }
    assert re.search(
        "A is .* as fast as C and .* as fast as B, .*from D shown", said(session(rates))
    )
    assert "no difference in speed shown" in said(session(rates, interleave="none"))
    four = session({arm: of[:5] for arm, of in rates.items()})
    assert "too few runs to show a difference: 6 alternating pairs needed" in said(four)
    subject = make_subject(session(rates), "label")
    assert "hold together, 6 pairs each" in blocks_text(
        first_section(subject, first_screen(subject))
    )


def test_two_of_three_arms_are_compared_as_three_are() -> None:
    runs = session({"A": SLOW, "B": FAST, "C": SLOW}, **REAL)
    runs += session({"A": SLOW, "B": FAST}, workload="dlrm", session="other", **REAL)
    assert "; DLRM: B is 2.40x as fast as A, with 192 MB/s of TSV; " in said(runs)


def test_energies_of_three_arms_are_not_compared() -> None:
    rates = {"A": SLOW, "B": FAST, "C": [1.5e9] * 8}
    assert said(session(rates, **REAL)).endswith(
        ", with 2.40 GB/s read, energy not compared (its figures are on the page)."
    )
    bounds = said(session(rates, power="upper", virtual=False))
    assert ", energy known as bounds only (A ≤ " in bounds


def test_three_arms_that_ran_one_after_the_other_have_no_verdict() -> None:
    runs = [
        turn(label, 10 * place + block, rate, interleave="none", name=f"{label}{block}")
        for place, (label, rates) in enumerate((("A", SLOW), ("B", FAST), ("C", SLOW)))
        for block, rate in enumerate(rates)
    ]
    assert said(runs).startswith(
        "Unet3D: no verdict on arms whose runs did not alternate (GB/s read: B 2.40, "
    )


def test_of_many_arms_the_first_are_named() -> None:
    runs = [turn(f"arm {number}", 0, 1e9 + 1e8 * number) for number in range(30)]
    assert said(runs).count("arm ") == 4
    assert "(1 run each; 5 needed; GB/s read: arm 29 3.90, " in said(runs)
    rates = {f"arm {place}": [rate * 0.8**place for rate in FAST] for place in range(6)}
    text = said(session(rates, interleave="none"))
    assert "2.44x as fast as arm 4 and faster than 1 more arm, with " in text


def test_one_arm_has_its_figures() -> None:
    alone = session({"A": FAST}, interleave="none", **REAL)
    assert said(alone) == "Unet3D: 2.40 GB/s read, 16.2 J per epoch, mean of 8 runs."
    assert said(alone[:1]) == "Unet3D: 2.40 GB/s read, 16.1 J per epoch, one run."
    assert said(session({"A": FAST[:1]})) == "Unet3D: 2.40 GB/s read, energy not measured, one run."


def test_where_only_a_gpu_was_measured_the_drive_is_named() -> None:
    made = random_run(requester="gpu")
    power = made.record.power
    own = [each for each in power.energy if each.scope is not Scope.DRIVE]
    power = power.model_copy(update={"energy": tuple(own)})
    alone = replace(made, record=made.record.model_copy(update={"power": power}))
    assert said([alone]).endswith(" reads/s, drive energy not measured, one run.")


def test_a_run_that_failed_has_no_figure() -> None:
    assert said(session({"A": FAST[:1]}, status="failed")) == "Unet3D: no valid run."


def test_several_workloads_are_told_by_name_after_the_first() -> None:
    runs = [
        run
        for workload in ("unet3d", "dlrm")
        for run in session({"A": FAST, "B": SLOW}, workload=workload, session=workload)
    ]
    assert said(runs) == (
        "A finishes an epoch 2.40x as fast; DLRM: A is 2.40x as fast; "
        "energy not measured (no power sensor)."
    )


def test_workloads_of_which_the_same_is_found_are_told_together() -> None:
    runs = [
        run
        for workload in ("unet3d", "checkpoint", "dlrm")
        for run in session(
            {"A": FAST[:2], "B": SLOW[:2], "C": SLOW[:2]}, workload=workload, session=workload
        )
    ]
    assert said(runs) == (
        "Unet3D, Checkpoint and DLRM: too few runs to show a difference (2 runs each; 5 needed)."
    )


def test_a_part_of_a_job_is_named() -> None:
    text = said(session({"A": FAST, "B": SLOW}, workload="checkpoint", **REAL))
    assert text.startswith("A finishes writing a checkpoint 2.40x as fast and uses ")
    assert text.endswith(" less energy (write + read).")


def test_runs_of_a_fixed_time_have_no_unit_of_work() -> None:
    runs = [
        reads_run(name=f"{loader}{block}", loader=loader, rate=rate, repeat=2 * block + place)
        for place, (loader, rate) in enumerate((("cufile", 2e9), ("bounce", 1e9)))
        for block in range(8)
    ]
    assert said(runs, "loader").startswith("cufile is 2.00x as fast")


def test_a_long_name_loses_its_middle() -> None:
    name = "a drive with a name that nobody would read to its end"
    text = said(session({name: FAST, "B": SLOW}))
    assert text.startswith("a drive with a name…")
    assert text.partition(" finishes")[0].endswith("read to its end")


def test_arms_that_did_other_work_are_not_compared() -> None:
    runs: list[Run] = []
    changes: dict[str, Any]
    for label, rates, changes in (("A", FAST, {}), ("B", SLOW, {"scale": "full"})):
        runs += session({label: rates}, **REAL, **changes)
    assert said(runs) == "No verdict on speed or energy (different work: scale differs)."
