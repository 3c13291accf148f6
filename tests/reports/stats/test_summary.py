"""The first screen of two arms, of one, and of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.conftest import render_page
from tests.reports.gpu_reads import reads_run
from tests.reports.parsing import Page
from tests.reports.random_reads import random_run
from tests.reports.sessions import known, run, session, simulated, turn
from wattload.core.record.run import ConfigFile
from wattload.core.units import Unit
from wattload.reports.blocks import FigureRow
from wattload.reports.runs.compact import Compactor
from wattload.reports.runs.load import Run
from wattload.reports.sections.first import first_section
from wattload.reports.stats.answers import Answer
from wattload.reports.stats.figures import quantities
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import FirstScreen, VerdictRow, first_screen

REAL: dict[str, Any] = {"power": "measured", "virtual": False}
ROUND = ("tsv_to_parquet", "parquet_to_binary")
SLOW, FAST = [1.0e9, 1.01e9, 0.99e9, 1.0e9] * 2, [2.4e9, 2.42e9, 2.38e9, 2.4e9] * 2
SLOT = "PCIe link of A and B: 16 GT/s x4, the drive supports 32 GT/s x4."
"""Of the made-up host: a drive of PCIe 5 in a slot of PCIe 4."""


def screen(runs: Sequence[Run], by: str = "label") -> FirstScreen:
    """Return the first screen of these runs."""
    return first_screen(make_subject(runs, by))


def row(runs: Sequence[Run], by: str = "label") -> VerdictRow:
    """Return the row of the only workload."""
    (found,) = screen(runs, by).rows
    return found


def test_bars_show_what_the_ratio_divides() -> None:
    found = row(session({"A": FAST, "B": [*SLOW[:-1], 0.5e9]}, **REAL))
    for answer, bars in ((found.speed, found.rates), (found.energy, found.energies)):
        a, b = (known(bar.value) for bar in bars.bars)
        assert math.isclose(max(a / b, b / a), known(known(answer).ratio), rel_tol=1e-9)
        assert [len(bar.marks) for bar in bars.bars] == [8, 8]


def test_the_chart_of_power_says_what_its_energies_are_of(arms: tuple[Run, ...]) -> None:
    subject = make_subject(arms)
    *_, charts = first_section(subject, first_screen(subject))
    assert isinstance(charts, FigureRow)
    *_, figure = charts.figures
    assert "Watts and energies are of one run's timed phases, in the window." in figure.caption


@pytest.mark.parametrize(
    ("fast", "words"),
    [(FAST[:1], "inconclusive (1 pair; 6 needed)"), (SLOW, "same within 3 %")],
)
def test_simulated_drives_are_not_ahead_where_real_ones_would_not_be(
    fast: Sequence[float], words: str
) -> None:
    (found,) = screen(simulated(fast, SLOW[: len(fast)])).rows
    assert known(found.speed).words == words
    assert known(found.speed).shown is None


def with_ceiling(runs: Sequence[Run], factor: float) -> list[Run]:
    """Return the runs, whose hosts alone reach ``factor`` times their rate."""
    found = []
    for each in runs:
        rate = each.record.metrics[0]
        assert rate.value is not None
        update = {"name": "harness_ceiling_bytes_per_s", "headline": False}
        ceiling = rate.model_copy(update={**update, "value": factor * rate.value})
        metrics = (*each.record.metrics, ceiling)
        record = each.record.model_copy(update={"metrics": metrics})
        found.append(Run(record=record, traces=each.traces))
    return found


@pytest.mark.parametrize(
    ("count", "power", "factor", "word"),
    [
        (8, "measured", 3.0, "high"),
        (6, "measured", 3.0, "medium"),
        (8, "self_reported", 3.0, "medium"),
        (8, "measured", 1.5, "medium"),
        (6, "self_reported", 3.0, "low"),
        (4, "measured", 3.0, "low"),
        (8, "bounds", 3.0, "none"),
    ],
)
def test_confidence_follows_what_is_missing(
    count: int, power: str, factor: float, word: str
) -> None:
    rates = {"A": FAST[:count], "B": SLOW[:count]}
    found = row(with_ceiling(session(rates, power=power, virtual=False), factor)).grade
    assert found.word == word
    assert 1 <= len(found.reason.replace("\u00a0", " ").split()) <= 6
    assert found.link


def test_a_run_alone_is_graded_as_such() -> None:
    alone = with_ceiling(session({"A": FAST[:1]}, **REAL), 3.0)
    assert row(alone).grade.text.startswith("single run: meter ±")
    without_power = with_ceiling(session({"A": FAST[:1]}), 1.5)
    assert row(without_power).grade.text == "single run: power not measured, limited by host"


def test_grade_names_the_arm_that_the_host_limits() -> None:
    runs = session({"A": FAST, "B": SLOW}, **REAL)
    limited = [run for run in runs if run.record.label == "B"]
    others = [run for run in runs if run.record.label == "A"]
    found = row([*with_ceiling(others, 3.0), *with_ceiling(limited, 1.5)]).grade
    assert (found.word, found.reason) == ("medium", "B limited by host")


def test_a_pair_says_what_other_than_the_drive_limits_both() -> None:
    runs = session({"A": FAST, "B": SLOW}, **REAL)
    assert row(with_busy(with_ceiling(runs, 1.5), 0.04)).shared_limit == "both limited by the host"
    assert row(with_busy(with_ceiling(runs, 3.0), 0.04)).shared_limit == ""
    assert row(with_busy(with_ceiling(runs, 1.5), 0.97)).shared_limit == ""


def test_an_interval_on_both_sides_of_no_difference_names_both() -> None:
    found = Answer(question="energy", outcome="inconclusive", ratio=1.1, lower=0.96, upper=1.25)
    text = found.interval_text.replace("\u00a0", " ")
    assert text == "95 % CI 4.2 % more to 20 % less"


def test_the_banner_names_the_arm_of_a_simulated_drive() -> None:
    own = [run for run in simulated(FAST, SLOW) if run.record.label == "A"]
    others = [run for run in session({"A": FAST, "B": SLOW}, **REAL) if run.record.label == "B"]
    banner = screen([*own, *others]).banner
    assert banner.startswith("illustration: simulated drive of A, whose rates and watts")


def with_busy(runs: Sequence[Run], share: float | None) -> list[Run]:
    """Return the runs, whose drives had requests in flight for this share of each phase."""
    found = []
    for each in runs:
        active_s = {window.name: window.active_s for window in each.record.windows}
        counters = tuple(
            counter.model_copy(
                update={"busy_s": None if share is None else share * active_s[counter.phase]}
            )
            for counter in each.record.counters
        )
        record = each.record.model_copy(update={"counters": counters})
        found.append(Run(record=record, traces=each.traces))
    return found


DRIVE = "the drive, busy 97\u00a0% of the time"
HOST = "the host, which reaches 1.5\u00d7 the rate without a drive"


@pytest.mark.parametrize(
    ("busy", "factor", "words"),
    [
        (0.97, 3.0, f"limited by {DRIVE}"),
        (0.97, 1.5, f"limited by {HOST}, and by {DRIVE}"),
        (0.04, 3.0, "limit unknown: the drive was busy 4.0\u00a0% of the time"),
        (0.04, 1.5, f"limited by {HOST}"),
        (None, 3.0, "limit unknown: the drive's busy time was not counted"),
    ],
)
def test_the_drive_limits_a_rate_only_if_it_was_busy(
    busy: float | None, factor: float, words: str
) -> None:
    runs = with_busy(with_ceiling(session({"A": FAST[:2]}, **REAL), factor), busy)
    assert row(runs).limits == row(list(map(Compactor(), runs))).limits == {"A": words}


@pytest.mark.parametrize(
    ("for_core", "for_storage", "words"),
    [
        (0.6, 0.1, "limited by the host: workers needed a core 75\u00a0% of the time"),
        (0.1, 0.6, "limited by the drive, for which workers waited 60\u00a0% of the time"),
        (0.2, 0.3, "limit unknown: the drive was busy 4.0\u00a0% of the time"),
    ],
)
def test_what_workers_spent_most_of_their_time_on_limits_a_rate(
    for_core: float, for_storage: float, words: str
) -> None:
    made = run("r1", label="A", workload="dlrm", facts={"ceiling_bytes_per_s": 1e12})
    (each,) = with_busy([made], 0.04)
    windows = {window.name: window.seconds for window in each.record.windows}
    phases = {
        name: {
            **work,
            "cpu_s": 0.15 * windows[name],
            "run_queue_s": for_core * windows[name],
            "task_s": (0.15 + for_core + for_storage) * windows[name],
        }
        for name, work in each.record.workload.facts["phases"].items()
    }
    facts = {**each.record.workload.facts, "phases": phases}
    workload = each.record.workload.model_copy(update={"facts": facts})
    record = each.record.model_copy(update={"workload": workload})
    assert row([Run(record=record, traces=each.traces)]).limits == {"A": words}


def test_thirty_arms_and_failed_runs_make_a_screen() -> None:
    many = [run(f"r{n}", label=f"arm {n}", **REAL) for n in range(30)]
    found = screen(many)
    assert len(found.rows[0].rates.bars) == 30
    assert found.arms[0] == ("", "arm 0")  # there are not enough letters
    assert found.arms[-1] == ("", "arm 29")
    assert found.warnings == (SLOT.replace("A and B", "all 30 arms"),)
    failed = row([run("r1", label="A", status="failed"), run("r2", label="B", status="failed")])
    assert (known(failed.speed).outcome, known(failed.speed).words) == ("missing", "no valid run")
    assert (failed.grade.word, failed.grade.text) == ("", "no valid run")


def with_rate(each: Run, rate: float) -> Run:
    """Return a run whose record states this rate."""
    metrics = tuple(
        metric.model_copy(update={"value": rate}) if metric.headline else metric
        for metric in each.record.metrics
    )
    record = each.record.model_copy(update={"metrics": metrics})
    return Run(record=record, traces=each.traces)


def test_figures_of_any_size_are_shown() -> None:
    small, large = run("r1", label="A"), run("r2", label="B")
    found = row([with_rate(small, 1e-9), with_rate(large, 1e15)])
    assert [bar.text for bar in found.rates.bars] == ["1.00e-21", "1\u202f000"]
    assert known(found.speed).ratio_text == "over 1\u202f000\u00d7 as fast"


def test_two_paths_of_one_drive_are_warned_about() -> None:
    a = session({"A": FAST}, path="/mnt/a", serial="S1", **REAL)
    b = session({"B": SLOW}, path="/mnt/b", serial="S1", **REAL)
    assert screen([*a, *b]).warnings == (
        SLOT,
        "A and B are on one drive (S1): their difference is not one of drives.",
    )
    other = session({"B": SLOW}, path="/mnt/b", serial="S2", **REAL)
    assert screen([*a, *other]).warnings == (SLOT,)
    state = session({"B": SLOW}, path="/mnt/a", serial="S1", state=1, **REAL)
    assert screen([*a, *state]).warnings == (SLOT,)


def test_arms_on_two_hosts_are_warned_about() -> None:
    runs = [*session({"A": FAST}, **REAL), *session({"B": SLOW}, host="other", **REAL)]
    _, warning = screen(runs).warnings
    assert warning.startswith("A ran on box, B on other")


def test_files_instead_of_those_of_wattload_are_warned_about_once() -> None:
    files = tuple(
        ConfigFile(path=f"/lab/{name}.yaml", sha256="0" * 64, replaces=name == "h100")
        for name in ("h100", "own")
    )
    runs = [
        Run(record=each.record.model_copy(update={"config_files": files}), traces=each.traces)
        for each in session({"A": FAST}, virtual=True)
    ]
    assert screen(runs).warnings == (
        "Settings were read from /lab/h100.yaml instead of wattload's own files.",
    )


def test_arms_are_distinguished_by_what_was_swept() -> None:
    a = session({"A": FAST}, path="/mnt/a", **REAL)
    b = session({"B": SLOW}, path="/mnt/b", **REAL)
    assert make_subject([*a, *b]).distinction == "target.path"
    assert make_subject(session({"A": FAST, "B": SLOW}, **REAL)).distinction == "label"
    assert make_subject([*a, *b], "power_state").distinction == "power state"


def test_the_share_of_time_that_computed_is_named_and_asks_no_question_of_its_own() -> None:
    (record,) = (each.record for each in [run("r1")])
    computing = next(each for each in record.metrics if each.name == "au_nominal")
    share = computing.model_copy(update={"name": "compute_fraction", "value": 0.8})
    metrics = (*record.metrics, share)
    found = quantities(record.model_copy(update={"metrics": metrics}))
    assert found["compute_fraction"][0].label == "share of time computing"
    assert found["au_nominal"][0].label == "AU by nominal step time"
    assert found["compute_fraction"][0].asked_by == "read rate"


def test_geometric_means_that_favour_the_other_arm_than_the_medians_are_said() -> None:
    runs = session({"A": [1e9] * 7 + [4e9], "B": [1.05e9] * 8}, **REAL)
    answer = known(row(runs).speed)
    assert (answer.winner, answer.leader) == (None, "A")
    assert answer.note == "ratio of geometric means; the medians favour B"
    assert answer.note in Page(render_page(runs)).text()


def test_of_shares_the_difference_of_means_may_favour_the_other_arm_than_the_medians() -> None:
    runs = session({"A": [1e9] * 8, "B": [1e9] * 8}, **REAL)
    shares = [0.1] * 7 + [0.9] + [0.15] * 8
    answer = known(row(list(map(with_share, runs, shares))).speed)
    assert answer.note == "difference of means; the medians favour B"


def with_share(made_run: Run, value: float) -> Run:
    """Return a run with nothing but its shares, which have this value."""
    metrics = tuple(
        metric.model_copy(update={"value": value})
        for metric in made_run.record.metrics
        if metric.unit is Unit.FRACTION
    )
    return replace(made_run, record=made_run.record.model_copy(update={"metrics": metrics}))


def test_the_worst_scatter_is_named_from_5_percent_with_the_run_behind_it() -> None:
    assert row(session({"A": FAST, "B": SLOW}, **REAL)).scatter is None
    wild = [1.0e9] * 5 + [0.6e9] + [1.0e9] * 2
    found = known(row(session({"A": FAST, "B": wild})).scatter)
    assert found.run == "s1-B-5"
    text = found.text.replace("\u00a0", " ")
    assert text == (
        "unstable rates of B: CV 15 %; run 5, 40 % below the median, included in the mean"
    )
    alone = known(row(session({"A": wild}, interleave="none")).scatter)
    assert alone.words.startswith("unstable rates: CV\u00a0")


def test_a_part_of_a_job_without_a_difference_is_inconclusive() -> None:
    found = row(session({"A": SLOW, "B": SLOW}, workload="checkpoint", **REAL))
    assert known(found.speed).part_texts == ["reading: inconclusive"]


def test_without_the_energy_of_a_phase_the_row_has_that_of_the_other() -> None:
    def without_read(each: Run) -> Run:
        missing = {"energy_j": None, "missing": {"energy_j": "few samples"}}
        parts = tuple(
            part.model_copy(update=missing) if part.phase == "read" else part
            for part in each.record.power.energy
        )
        power = each.record.power.model_copy(update={"energy": parts})
        return replace(each, record=each.record.model_copy(update={"power": power}))

    runs = session({"A": FAST, "B": SLOW}, workload="checkpoint", **REAL)
    found = row(list(map(without_read, runs)))
    assert found.energies.title.endswith("J per checkpoint written")
    assert (known(found.energy).part, known(found.energy).winner) == ("writing only", "A")


def test_a_round_without_the_energy_of_a_phase_has_none_and_says_why() -> None:
    def without_first(each: Run) -> Run:
        missing = {"energy_j": None, "missing": {"energy_j": "few samples"}}
        parts = tuple(
            part.model_copy(update=missing) if part.phase == ROUND[0] else part
            for part in each.record.power.energy
        )
        power = each.record.power.model_copy(update={"energy": parts})
        return Run(record=each.record.model_copy(update={"power": power}), traces=each.traces)

    runs = session({"A": FAST, "B": SLOW}, workload="dlrm", **REAL)
    found = row(list(map(without_first, runs)))
    assert (found.energies.bars, found.energies.missing) == ((), "not measured: few samples")
    assert (known(found.energy).outcome, known(found.energy).reason) == ("missing", "few samples")


def test_arms_that_moved_different_bytes_are_shown_per_byte_and_not_called() -> None:
    other = [turn("B", block, 1e9, **{**REAL, "seconds": 4.0 + block / 100}) for block in range(6)]
    found = row([*session({"A": [2e9] * 6}, **REAL), *other])
    assert found.energies.title == "J per GB read"
    assert known(found.energy).reason.startswith("different bytes in read")
    a, b = (known(bar.value) for bar in found.energies.bars)
    assert known(found.energy).ratio == pytest.approx(max(a / b, b / a))


def swept(ratios: Sequence[float]) -> list[Run]:
    """Return pairs at as many points, where B is so much faster than A."""
    return [
        each
        for workers, ratio in enumerate(ratios, 1)
        for each in session(
            {"A": SLOW, "B": [ratio * rate for rate in SLOW]},
            session=f"s{workers}",
            settings={"workload": {"workers": workers}},
            **REAL,
        )
    ]


def test_more_of_a_share_is_better_and_not_faster() -> None:
    runs = [
        replace(each, record=each.record.model_copy(update={"metrics": shares}))
        for each in session({"A": FAST, "B": SLOW}, workload="unet3d", **REAL)
        for shares in [[m for m in each.record.metrics if m.unit is Unit.FRACTION]]
    ]
    found = row(runs)
    assert known(found.speed).winner == "A"
    assert known(found.speed).words == "14\u00a0points better"
    assert known(found.speed).interval_text == "95\u00a0% CI 13.9 to 14.1\u00a0points"


def with_uncertainty(made_run: Run, share: float) -> Run:
    """Return a run whose energies are uncertain by a share of them."""
    power = made_run.record.power
    energies = [
        each.model_copy(
            update=dict.fromkeys(("uncertainty_j", "work_uncertainty_j"), share * each.energy_j)
        )
        if each.energy_j
        else each
        for each in power.energy
    ]
    power = power.model_copy(update={"energy": energies})
    return replace(made_run, record=made_run.record.model_copy(update={"power": power}))


def test_an_energy_less_than_its_uncertainty_has_no_ratio() -> None:
    runs = session({"A": [1e9] * 8, "B": [2e9] * 8}, **REAL)
    found = row([with_uncertainty(each, 1.2) for each in runs]).energy
    assert found is not None
    assert (found.winner, found.ratio_text) == (None, "")
    assert found.reason == "the uncertainty of an energy is larger than the energy"


def without_power(made_run: Run) -> Run:
    power = made_run.record.power.model_copy(
        update={"energy": (), "requested": "none", "sources": ()}
    )
    return replace(made_run, record=made_run.record.model_copy(update={"power": power}))


def test_the_reason_for_no_energy_is_that_of_arms_which_read_storage() -> None:
    null, memory, storage = (
        without_power(random_run(name=engine, label=engine, engine=engine))
        for engine in ("null", "memory", "storage")
    )
    assert screen([null, memory, storage]).no_power == "not measured: power=none"
    assert screen([null, memory]).no_power == "not measured: no storage was read"
    (other,) = map(without_power, session({"null": [1e9]}, workload="unet3d"))
    assert screen([null, other]).no_power in (
        "not measured: no storage was read; power=none",
        "not measured: power=none; no storage was read",
    )


def test_a_winner_at_one_point_is_none_if_the_other_arm_wins_at_another() -> None:
    answer = known(row(swept((0.5, 2.0, 3.0))).speed)
    assert (answer.winner, answer.reason) == (None, "A at 1, B at 2 of 3 points")


def test_arms_that_differ_in_two_ways_are_warned_about() -> None:
    a = session({"A": FAST}, path="/mnt/a", serial="SA", **REAL)
    b = session({"B": SLOW}, path="/mnt/b", serial="SB", state=1, **REAL)
    together = "A and B differ in drive and power state at once: no ratio is of one alone."
    assert screen([*a, *b]).warnings == (SLOT, together)


def test_a_point_that_only_one_arm_ran_has_no_warnings_of_pairs() -> None:
    idle = reads_run(name="a", loader="cufile")
    first, second = (
        reads_run(name=name, loader="bounce", load="busy", threads=threads)
        for name, threads in (("b", 32), ("c", 128))
    )
    failed = [
        Run(record=each.record.model_copy(update={"status": "failed"}), traces=each.traces)
        for each in (first, second)
    ]
    assert len(screen([idle, *failed]).rows) == 1
