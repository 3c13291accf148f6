"""How the figures of a page are made and compared."""

from __future__ import annotations

from wattload.core.checks.conditions import LONGEST_GAP_S
from wattload.reports.blocks import Block, Facts, Fold, Paragraph, Section
from wattload.reports.charts.plot import MARKS_MAX
from wattload.reports.runs.energy import EVIDENCE_TEXT, SOFT_BOUND
from wattload.reports.stats.conditions import BYTES_TOLERANCE
from wattload.reports.stats.effects import FLOOR, MARGIN, MINIMUM_PAIRS, MINIMUM_RUNS, REACH
from wattload.reports.stats.intervals import BOOTSTRAP_RUNS, RESAMPLES, SEED
from wattload.reports.stats.subject import Subject
from wattload.results.quantity import number, whole


def method_section(subject: Subject) -> Section | None:
    """Return what each kind of number means and where it comes from."""
    evidence = "; ".join(
        f"{name.replace('_', ' ')}: {words}" for name, words in EVIDENCE_TEXT.items()
    )
    pairs = [
        ("bytes", "Counted as they move; nominal sizes never enter a rate. GB is 10⁹ bytes."),
        ("rate", "All bytes ÷ all time of the phase, never a mean of rates."),
        ("time", "CLOCK_MONOTONIC of each host; a phase lasts from first start to last end."),
        (
            "energy",
            "Power integrated over exactly the phase, with interpolated ends. The headline is "
            "gross. Net is gross minus idle power times seconds.",
        ),
        ("MB/s per W", "Bytes ÷ energy over the same window, which is rate ÷ mean power."),
        (
            "marks",
            f"A chart draws at most {MARKS_MAX} runs of an arm, chosen evenly by rank, with the "
            "lowest and the highest. The table under it lists every run.",
        ),
        ("missing", "A dash means unknown, never zero; the reason is given with it."),
        ("evidence", f"{evidence}."),
        (
            "bounds, ≤",
            "From the drive's power state table or from declared watts: an interval, or a maximum "
            f"alone. {SOFT_BOUND}. Declared watts may be entirely wrong. Nothing is ranked by "
            "bounds, or by declared, simulated or replayed figures.",
        ),
        (
            "checks",
            "Each compares two independent counters. A run that fails a check is shown but not "
            "compared, unless forced with --force. A sensor other than declared (sensor model) "
            "excludes no run: energies allow for it, or are not compared.",
        ),
        (
            "files",
            "Before this page was drawn, every record was compared with its seal, and every trace "
            "with the digest in its record.",
        ),
    ]
    rules = comparison_rules() if subject.compares else []
    blocks: list[Block] = [*rules, Facts(pairs, "prose")]
    return Section(anchor="method", title="Method", blocks=blocks)


def comparison_rules() -> list[Block]:
    """Return how figures are compared and when an arm is better, with the details in a fold."""
    rules = Fold("The rules in full", [Paragraph(text) for text in _rules()])
    return [Paragraph(_summary()), rules]


def _summary() -> str:
    return (
        "The unit is the run. An arm's figure is the geometric mean of its valid runs. A ratio is "
        "of these means, at least 1, in favour of the arm it names, with its 95 % interval. A "
        "verdict needs at least "
        f"{MINIMUM_RUNS} valid runs per arm, or {MINIMUM_PAIRS} pairs of alternating runs. An arm "
        "is better under two conditions. The interval excludes 1 after Holm's correction for all "
        f"verdicts of the workload. The effect exceeds {_percent(FLOOR)}, the noise floor and, for "
        "energy, the uncertainty of the sensors."
    )


def _rules() -> tuple[str, ...]:
    """Return when runs are compared, how their interval is made, and what a verdict needs."""
    gap, margin = whole(LONGEST_GAP_S), _percent(MARGIN)
    return (
        "Valid runs: complete runs that no check excludes, without warm-ups. There is no verdict "
        "if work, data or settings of the arms differ, if runs of one arm differ in drive, power "
        "state, loader, host or data set, or, on seconds and joules, if the bytes of two runs are "
        f"more than {_percent(BYTES_TOLERANCE)} apart. No run is dropped for its value.",
        "Ratio: of geometric means, or for alternating runs the geometric mean of the pairs' "
        "ratios. The ratio of medians is printed if it differs; no verdict contradicts it.",
        f"Interval: Student's t on the logs of the pairs' ratios with at least {MINIMUM_PAIRS} "
        "pairs, the fewest that can reach p < 0.05 by flipping signs; otherwise Welch's t on the "
        f"logs of the runs, with at least {MINIMUM_RUNS} per arm. Runs more than {gap} s apart, "
        f"cooling aside, are not a pair. With at least {BOOTSTRAP_RUNS} pairs or runs per arm a "
        f"BCa bootstrap ({whole(RESAMPLES)} resamples, seed {SEED}) is added. The printed interval "
        "then spans both: from the lower of the lower ends to the higher of the upper ends. A "
        "verdict needs both.",
        "Several verdicts: figures that answer one question, such as rate and time, get one "
        "verdict. All questions of a workload, at all points of its sweep, are one family; Holm's "
        "step-down keeps its chance of a false verdict at 5 % if the arms alternated. "
        "Sweeps are compared point by point; the median of the points' ratios comes first. "
        "Fix the number of runs before the first.",
        f"Noise floor: the effect must exceed {_percent(FLOOR)}, the difference between an arm's "
        "earlier and later runs, and the difference of a setting from itself (interleave=aa). Arms "
        "that did not alternate may have run one after the other: the floor then includes their "
        f"drift, extrapolated over at most {number(REACH, 1)} times the duration of an arm.",
        "Energy: more runs do not make a sensor more accurate. The interval is widened by the "
        "stated uncertainties of both arms (k = 2), in quadrature, without what they share: the "
        "gain of one meter cancels in a ratio. Without a stated uncertainty, or with different "
        "evidence, there is no verdict.",
        f"Same: within {margin}, only if the whole interval is between "
        f"{number(1 / (1 + MARGIN), 3)} and {number(1 + MARGIN, 3)}, and the noise floor too.",
        "Spread: the CV of an arm's runs is steady up to 2 %, noted up to 5 %, noisy above that "
        "(run more) and unstable above 10 %.",
    )


def _percent(share: float) -> str:
    return f"{number(share * 100, 1)} %"
