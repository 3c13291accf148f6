"""Figures of unet3d against hand-computed cases, and against DLIO's own lines; checks, limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loaders.dlio.job import make_training
from tests.records import Scenario, run_of_facts, training_record
from tests.training import BATCH, RECORD_BYTES, epoch, facts_of, program_epoch
from wattload.core.mlperf.formulas import samples_per_s
from wattload.core.record.results import Check, Metric
from wattload.loaders.dlio.output import read_output
from wattload.results.figures import evaluated
from wattload.results.reading import run_of
from wattload.results.training.as_published import published_facts
from wattload.results.training.checks import CHECKS
from wattload.results.training.facts import (
    COMPUTE,
    COPY,
    DECODE,
    LOAD,
    PARTS,
    STEPS,
    Program,
    ProgramEpoch,
    TrainingFacts,
)
from wattload.results.training.figures import FIGURES
from wattload.results.unet3d import RESULTS
from wattload.workloads.training.loop import EpochTimes

RECORDED = Path(__file__).parents[1] / "data" / "dlio"
"""Files of dlio-benchmark 2.0.0: two processes, 16 files, batch 2, 3 epochs, step 0.02 s."""


def figures(facts: TrainingFacts) -> dict[str, Metric]:
    return {metric.name: metric for metric in evaluated(FIGURES, run_of_facts(facts))}


def value(facts: TrainingFacts, name: str) -> float | None:
    return figures(facts)[name].value


def check(facts: TrainingFacts, name: str) -> Check:
    made = [made for rule in CHECKS for made in rule(run_of_facts(facts))]
    return next(each for each in made if each.name == name)


def dlio(epochs_of_ranks: Sequence[Sequence[EpochTimes]]) -> dict[str, float]:
    """Compute the summary as DLIO's statscounter.py does, from the same lists."""
    train_au, train_throughput = [], []
    for rank in epochs_of_ranks:
        rank_au, rank_throughput = [], []
        for one in rank:
            output = {"compute": list(one.parts_s[COMPUTE]), "proc": list(one.processed_s)}
            metric_start_step = 1
            metric_end_step = len(output["compute"]) - 1 - 0
            start_timestamp, end_timestamp = 100.0, 100.0 + one.duration_s
            total_compute_time = np.sum(output["compute"][metric_start_step : metric_end_step + 1])
            total_time = (
                end_timestamp
                - start_timestamp
                - np.sum(output["proc"][:metric_start_step])
                - np.sum(output["proc"][metric_end_step + 1 :])
            )
            au = 0.0 if total_compute_time == 0 else total_compute_time / total_time
            rank_au.append(au * 100)
            rank_throughput.append((len(output["compute"]) - 2) / total_time * BATCH)
        train_au.append(rank_au)
        train_throughput.append(rank_throughput)
    au_of_epochs = np.sum(train_au, axis=0) / len(train_au)
    throughput_of_epochs = np.sum(train_throughput, axis=0)
    return {
        "train_au_mean_percentage": float(np.mean(au_of_epochs)),
        "train_throughput_mean_samples_per_second": float(np.mean(throughput_of_epochs)),
        "train_io_mean_MB_per_second": float(
            np.mean(throughput_of_epochs) * RECORD_BYTES / 1024.0 / 1024.0
        ),
    }


def test_the_first_step_is_in_no_window() -> None:
    # Step 1 loads 10 s; steps 2 to 5 load 0.1 and compute 0.3: the window is 4 x 0.4 s.
    facts = facts_of([epoch([10.0, 0.1, 0.1, 0.1, 0.1], [0.3] * 5)])
    assert facts.all_epochs[0].window_s == pytest.approx(1.6)
    assert value(facts, "au_dlio") == pytest.approx(1.2 / 1.6)
    assert value(facts, "au_nominal") == pytest.approx(0.75)


def test_an_epoch_of_one_step_says_how_many_files_make_two() -> None:
    missing = figures(facts_of([epoch([0.1], [0.3])]))["au_dlio"].missing["value"]
    assert missing.endswith(f"; use workload.file_count={2 * BATCH} or more")


def test_dlio_counts_two_steps_less_than_there_were() -> None:
    facts = facts_of([epoch([0.1] * 5, [0.3] * 5)])
    assert value(facts, "dlio_samples_per_s") == pytest.approx(3 / 1.6 * BATCH)


def test_the_barrier_is_in_the_window_but_in_no_step() -> None:
    facts = facts_of([epoch([0.0] * 4, [0.3] * 4, barrier_s=0.1)])
    # DLIO takes the first step's load and computation out of the time, not its barrier.
    assert facts.all_epochs[0].window_s == pytest.approx(1.6 - 0.3)
    assert value(facts, "au_dlio") == pytest.approx(0.9 / 1.3)


def test_oversleeping_raises_dlios_utilisation_and_lowers_the_nominal() -> None:
    found = figures(facts_of([epoch([0.1] * 5, [0.4] * 5)]))
    assert found["au_dlio"].value == pytest.approx(0.4 / 0.5)
    assert found["au_nominal"].value == pytest.approx(0.3 / 0.5)
    assert found["sleep_overshoot_mean_s"].value == pytest.approx(0.1)
    assert found["sleep_overshoot_max_s"].value == pytest.approx(0.1)


def test_means_are_over_ranks_then_epochs_and_rates_are_summed() -> None:
    fast, slow = epoch([0.1] * 3, [0.3] * 3), epoch([0.3] * 3, [0.3] * 3)
    found = figures(facts_of([fast, slow], [fast, fast]))
    assert found["au_dlio"].value == pytest.approx((0.75 + (0.5 + 0.75) / 2) / 2)
    of_one = BATCH * 1 / 0.8
    mean = (2 * of_one + BATCH / 1.2 + of_one) / 2
    assert found["dlio_samples_per_s"].value == pytest.approx(mean)
    # An epoch ends with its slowest rank.
    assert found["samples_per_s"].value == pytest.approx(2 * 2 * 3 * BATCH / (1.2 + 1.8))
    assert found["au_nominal"].value == pytest.approx(4 * 2 * 0.3 / (3 * 0.8 + 1.2))


def test_several_accelerators_on_a_rank_deliver_as_many_times_the_samples() -> None:
    one = [epoch([0.1] * 3, [0.3] * 3)]
    single, triple = figures(facts_of(one)), figures(facts_of(one, accelerators=3))
    for name in ("samples_per_s", "dlio_samples_per_s"):
        assert triple[name].value == pytest.approx(3 * (single[name].value or 0.0))
    assert triple["au_dlio"].value == single["au_dlio"].value


seconds = st.floats(0.001, 10.0)


@settings(deadline=None)
@given(st.data())
def test_summary_is_dlios_for_any_times(data: st.DataObject) -> None:
    steps = data.draw(st.integers(2, 12))
    shape = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4)))
    times = st.lists(seconds, min_size=steps, max_size=steps)
    ranks = [
        [
            epoch(data.draw(times), data.draw(times), barrier_s=data.draw(st.floats(0, 1)))
            for _ in range(shape[1])
        ]
        for _ in range(shape[0])
    ]
    ours, theirs = figures(facts_of(*ranks)), dlio(ranks)
    for name, of_ours in (
        ("train_au_mean_percentage", 100 * (ours["au_dlio"].value or 0.0)),
        ("train_throughput_mean_samples_per_second", ours["dlio_samples_per_s"].value),
        (
            "train_io_mean_MB_per_second",
            (ours["dlio_nominal_bytes_per_s"].value or 0.0) / 1024**2,
        ),
    ):
        assert of_ours == pytest.approx(theirs[name], rel=1e-9, abs=1e-9), name


def test_metrics_are_totals_over_totals() -> None:
    found = figures(facts_of([epoch([0.1] * 4, [0.3] * 4), epoch([0.3] * 4, [0.3] * 4)]))
    expected = {
        "read_bytes_per_s": 8 * 1100 / 4.0,
        "samples_per_s": 56 / 4.0,
        "load_wait_s": 1.6,
        "load_wait_p50_s": 0.2,
        "load_wait_max_s": 0.3,
        "step_p50_s": 0.5,
        "step_max_s": 0.6,
        "read_cpu_s_per_byte": 1.0 / 8800,
        "hash_cpu_s": 0.5,
        "compute_fraction": 0.6,
        "harness_ceiling_bytes_per_s": 5e9,
    }
    assert {name: found[name].value for name in expected} == pytest.approx(expected)
    assert found["harness_ceiling_bytes_per_s"].phase == ""


def whole(steps: int = 4, **changes: Any) -> EpochTimes:
    """Return steps of 0.1 + 0.05 + 0.3 + 0.04 + 0.01 s, and 0.2 s of decoding for each."""
    parts = {"load": 0.1, "copy": 0.05, "compute": 0.3, "barrier": 0.04, "rest": 0.01}
    times: dict[str, Any] = {
        "duration_s": 0.5 * steps,
        "parts_s": {name: (of_one,) * steps for name, of_one in parts.items()},
        "processed_s": (0.46,) * steps,
        "step_s": (0.5,) * steps,
        "decode_s": (0.2,) * steps,
        "open_s": (0.07,) * steps,
        "copied_bytes": 1000,
        "device_copy_s": 0.25,
        **changes,
    }
    return epoch([0.1] * steps, [0.3] * steps, **times)


def test_seconds_are_those_of_one_accelerator_and_shares_sum_to_one() -> None:
    found = figures(facts_of([whole()], [whole()]))
    expected = {
        "load_wait_s": 0.4,
        "copy_wait_s": 0.2,
        "compute_s": 1.2,
        "barrier_s": 0.16,
        "rest_s": 0.04,
        "barrier_fraction": 0.08,
        "decode_s": 1.6,
        "decode_p50_s": 0.2,
        "open_s": 0.56,
        "open_mean_s": 0.01,
        "copied_bytes": 2000,
        "device_copy_bytes_per_s": 4000.0,
    }
    assert {name: found[name].value for name in expected} == pytest.approx(expected)
    shares = [found[f"{name}_fraction"].value or 0.0 for name, _ in PARTS.values()]
    assert sum(shares) == pytest.approx(1.0)


def without_part(name: str) -> dict[str, Any]:
    return {"parts_s": {part: of for part, of in whole().parts_s.items() if part != name}}


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"decode_s": None}, "decode_s", "the library does both in one"),
        ({"decode_s": None}, "decode_p50_s", "the library does both in one"),
        (without_part(COPY), "copy_wait_s", "no device"),
        (without_part(COPY), "copied_bytes", "no device"),
        (without_part("barrier"), "barrier_fraction", "not reported"),
        ({"step_s": None}, "step_max_s", "not reported"),
        ({"open_s": None}, "open_mean_s", "not reported"),
        ({"hash_cpu_s": None}, "hash_cpu_s", "not reported"),
    ],
)
def test_what_one_rank_did_not_measure_is_absent_with_a_reason(
    changes: dict[str, Any], name: str, reason: str
) -> None:
    found = figures(facts_of([whole()], [whole(**changes)]))
    assert found[name].value is None
    assert reason in found[name].missing["value"]


@pytest.mark.parametrize(
    ("steps", "step_s", "reason"), [(4, 0.0, "step time is 0"), (1, 0.3, "one step has no window")]
)
def test_utilisation_without_computation_or_window_is_unknown(
    steps: int, step_s: float, reason: str
) -> None:
    one = epoch([0.1] * steps, [step_s] * steps, barrier_s=0.1)
    found = figures(facts_of([one], step_s=step_s))
    for name in ("au_dlio", "au_nominal"):
        assert found[name].value is None
        assert reason in found[name].missing["value"]


def test_parts_that_make_up_the_steps_pass() -> None:
    close = check(facts_of([whole()], [whole()]), "step_times_close")
    assert close.verdict == "pass"
    assert close.figures["parts_s"] == pytest.approx(2.0)
    assert close.figures["epochs_checked"] == 2


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_was_made_up_fails_the_check(part: str) -> None:
    altered = whole(parts_s={**whole().parts_s, part: (0.3, 0.3, 0.31, 0.32)})
    close = check(facts_of([whole()], [altered]), "step_times_close")
    assert close.verdict == "fail"
    assert "the times of this run are inconsistent" in close.sentence


def test_a_loop_that_does_not_time_its_steps_is_not_checked() -> None:
    facts = facts_of([whole(step_s=None)], missing={STEPS: "no clock"})
    close = check(facts, "step_times_close")
    assert (close.verdict, close.sentence) == ("not_checked", "Not compared: no clock.")


def by_program(**changes: Any) -> TrainingFacts:
    """Return the facts of a program's epochs; ``changes`` are of the second."""
    own = epoch([0.1] * 4, [0.3] * 4, step_s=None, hash_cpu_s=None)
    own = replace(own, parts_s={name: own.parts_s[name] for name in (LOAD, COMPUTE)})
    epochs = (program_epoch(), program_epoch(**changes))
    program = Program(version="1.2", command=("outside",), epochs=epochs)
    return facts_of([own] * 2, program=program)


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({"called_bytes": 4000}, "fail"),
        ({"called_bytes": 4350}, "pass"),
        ({}, "pass"),
        ({"called_bytes": 9000}, "warn"),
        ({"called_bytes": None}, "not_checked"),
    ],
)
def test_bytes_read_are_compared_with_what_the_kernel_counted(
    counts: dict[str, Any], verdict: str
) -> None:
    assert check(by_program(**counts), "harness_bytes").verdict == verdict


@pytest.mark.parametrize(("plugged_bytes", "verdict"), [(4400, "pass"), (4399, "fail")])
def test_bytes_of_our_reader_are_compared_to_the_byte(plugged_bytes: int, verdict: str) -> None:
    facts = by_program(plugged_bytes=plugged_bytes)
    assert facts.program is not None
    first = program_epoch(plugged_bytes=4400)
    epochs = (first, facts.program.epochs[1])
    program = facts.program.model_copy(update={"epochs": epochs})
    plugged = facts.model_copy(update={"program": program})
    assert check(plugged, "harness_bytes").verdict == verdict


@pytest.mark.parametrize(
    ("storage_bytes", "verdict", "says"),
    [
        (0, "warn", "came from memory"),
        (4400, "pass", "1.0000 of the files' bytes"),
        (6000, "warn", "more than once"),
        (None, "not_checked", "does not report"),
    ],
)
def test_bytes_from_storage_are_those_of_the_programs_processes(
    storage_bytes: int | None, verdict: str, says: str
) -> None:
    made = check(by_program(storage_bytes=storage_bytes), "harness_storage_bytes")
    assert made.verdict == verdict
    assert says in made.sentence


def test_steps_that_are_longer_than_their_window_fail() -> None:
    assert check(by_program(), "harness_step_times").verdict == "pass"
    assert check(by_program(window_s=1.5), "harness_step_times").verdict == "fail"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "pass"),
        ({"samples_per_s": 9.9}, "fail"),
        ({"au": 0.8}, "fail"),
        ({"window_s": 1.7}, "fail"),
    ],
)
def test_a_summary_is_compared_with_our_window(changes: dict[str, Any], verdict: str) -> None:
    facts = by_program(**changes)
    assert check(facts, "harness_summary").verdict == verdict


def started_apart(**changes: Any) -> TrainingFacts:
    """Return the facts of ranks that end together, and start up to 0.12 s after rank 0.

    The program computes its rate and utilisation with the window of each rank.
    """
    windows_s = (2.0, 1.96, 1.92, 1.88)
    ranks = [epoch([0.1] * 4, [0.3] * 4, duration_s=window_s) for window_s in windows_s]
    reported = {
        "window_s": windows_s[0],
        "samples_per_s": sum(4 * BATCH / window_s for window_s in windows_s),
        "au": fmean(0.9 / (window_s - 0.4) for window_s in windows_s),
    }
    epochs = (program_epoch(**{**reported, **changes}),)
    program = Program(version="1.2", command=("outside",), epochs=epochs)
    return facts_of(*([each] for each in ranks), program=program)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "pass"),
        ({"window_s": 2.06}, "fail"),
        ({"window_s": 1.94}, "fail"),
        ({"samples_per_s": 4 * 4 * BATCH / 2.0}, "fail"),
        ({"au": 0.9 / 1.6}, "fail"),
    ],
)
def test_ranks_that_start_apart_have_windows_of_their_own(
    changes: dict[str, Any], verdict: str
) -> None:
    assert check(started_apart(**changes), "harness_summary").verdict == verdict


def test_steps_of_a_rank_that_starts_early_are_compared_with_its_own_window() -> None:
    late = epoch([0.1] * 4, [0.3] * 4)
    early = epoch([0.22, *[0.1] * 3], [0.3] * 4)
    program = Program(version="1.2", command=("outside",), epochs=(program_epoch(),))
    assert check(facts_of([late], [early], program=program), "harness_step_times").verdict == "pass"
    early = replace(early, duration_s=1.6)
    assert check(facts_of([late], [early], program=program), "harness_step_times").verdict == "fail"


@pytest.mark.parametrize("window_s", [0.4, 0.3])
def test_an_epoch_that_ends_with_its_first_step_fails(window_s: float) -> None:
    facts = by_program(window_s=window_s, samples_per_s=4 * BATCH / window_s, au=0.0)
    assert check(facts, "harness_summary").verdict == "fail"


def test_the_summary_of_dlio_itself_is_that_of_its_window(tmp_path: Path) -> None:
    training = replace(make_training(tmp_path, accelerators=2, step_s=0.02), orders=[range(8)] * 2)
    of_epochs: list[ProgramEpoch] = []
    ranks: list[list[EpochTimes]] = [[], []]
    for trained, reported in read_output(RECORDED, replace(training, epochs=3)):
        for rank, times in enumerate(trained):
            computed = [a - b for a, b in zip(times.processed_s, times.load_s, strict=True)]
            one = epoch(times.load_s, computed, duration_s=times.duration_s)
            ranks[rank].append(one)
        of_epochs.append(
            program_epoch(
                window_s=trained[0].duration_s,
                au=reported.au,
                samples_per_s=reported.samples_per_s,
            )
        )
    program = Program(version="2.0.0", command=("dlio",), epochs=tuple(of_epochs))
    facts = facts_of(*ranks, step_s=0.02, program=program)
    settings = facts.settings.model_copy(update={"batch_samples": 2})
    made = check(facts.model_copy(update={"settings": settings}), "harness_summary")
    assert made.verdict == "pass"


def test_a_programs_own_figures_are_means_over_its_epochs() -> None:
    found = figures(by_program(au=0.85, samples_per_s=18.5, peak_bytes=200 << 20))
    assert found["dlio_reported_au"].value == pytest.approx(0.8)
    assert found["dlio_reported_samples_per_s"].value == pytest.approx(18.0)
    assert found["harness_peak_bytes"].value == 200 << 20
    assert figures(by_program(peak_bytes=None))["harness_peak_bytes"].value is None
    assert DECODE in facts_of([epoch([0.1] * 2, [0.3] * 2)]).missing


@pytest.mark.parametrize(("compute_s", "is_limit"), [(0.91, True), (0.89, False)])
def test_accelerators_that_compute_most_of_the_time_are_the_limit(
    compute_s: float, is_limit: bool
) -> None:
    run = run_of_facts(facts_of([epoch([1 - compute_s] * 4, [compute_s] * 4)]))
    assert RESULTS.view.limit is not None
    found = RESULTS.view.limit([run], 0.99)
    assert (found is not None) == is_limit
    assert found is None or found.text.startswith("limited by the accelerator, which computed 91.0")


def test_facts_are_those_that_a_record_has() -> None:
    facts = facts_of([whole()], [whole()])
    run = run_of(training_record(facts, Scenario()))
    assert run is not None
    assert run.facts == facts
    assert run.facts.demand_bytes_per_s == 2 * BATCH * RECORD_BYTES / 0.3


def test_the_outcome_has_the_lower_utilisation_and_the_edition() -> None:
    facts = facts_of([epoch([0.1] * 4, [0.3] * 4)])
    run = run_of_facts(facts.model_copy(update={"step_s": 0.2}))  # the accelerator overslept
    missed = RESULTS.view.outcome([run]).replace("\u00a0", " ")
    assert missed.startswith(
        "MLPerf Storage v2.0: AU 50.00 % misses 90 %; not a submission: 28 of "
    )
    fast = run_of_facts(facts_of([epoch([0.001] * 4, [0.3] * 4)]))
    assert " reaches 90" in RESULTS.view.outcome([fast])
    assert " misses 90" in RESULTS.view.outcome([fast, run])
    unpaced = run_of_facts(facts_of([epoch([0.1] * 4, [0.0] * 4)], step_s=0.0))
    assert ": no AU without an accelerator; " in RESULTS.view.outcome([unpaced])
    short = run_of_facts(facts_of([epoch([0.1], [0.3])]))
    assert ": no AU in epochs of one step; " in RESULTS.view.outcome([short])
    assert RESULTS.view.outcome_figures <= figures(by_program()).keys()


def test_each_accelerator_of_a_rank_is_a_published_rank_with_a_step_list() -> None:
    facts = facts_of([epoch([0.1, 0.1], [0.3, 0.3])], accelerators=3, steps_per_epoch=2)
    found = published_facts(run_of_facts(facts))
    assert found.source == "steps"
    assert [block.rank for block in found.epochs[0]] == [0, 1, 2]
    assert samples_per_s(found, "v1.0").value == pytest.approx(3 * 2 * 7 / 0.8)
