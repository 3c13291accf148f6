"""How the figures of a page are made and compared."""

from __future__ import annotations

from wattload.core.checks.conditions import LONGEST_GAP_S
from wattload.reports.blocks import Block, Facts, Fold, Paragraph, Section
from wattload.reports.charts.plot import MARKS_MAX
from wattload.reports.quantity import number, whole
from wattload.reports.runs.energy import EVIDENCE_TEXT, SOFT_BOUND
from wattload.reports.stats.conditions import BYTES_TOLERANCE
from wattload.reports.stats.effects import FLOOR, MARGIN, MINIMUM_PAIRS, MINIMUM_RUNS, REACH
from wattload.reports.stats.intervals import BOOTSTRAP_RUNS, RESAMPLES, SEED
from wattload.reports.stats.subject import Subject


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
            "closure",
            "Before this page was drawn, the figures of every record were computed again: sums of "
            "parts, bytes ÷ time, watts times seconds, and the digests of traces.",
        ),
    ]
    rules = comparison_rules() if subject.compares else []
    blocks: list[Block] = [*rules, Facts(pairs, "prose")]
    return Section(anchor="method", title="Method", blocks=blocks)


def comparison_rules() -> list[Block]:
    """Return how figures are compared and when an arm is better, with the details in a fold."""
    texts = (*_estimate_rules(), *_call_rules())
    rules = Fold("The rules in full", [Paragraph(text) for text in texts], data=True)
    return [Paragraph(_summary()), rules]


def _summary() -> str:
    return (
        "The unit is the run. An arm's figure is the geometric mean of its valid runs. B/A is the "
        "ratio of these means, with its 95 % interval. A verdict needs at least "
        f"{MINIMUM_RUNS} valid runs per arm, or {MINIMUM_PAIRS} pairs of alternating runs. An arm "
        "is better under two conditions. The interval excludes 1 after Holm's correction for all "
        f"verdicts of the workload. The effect exceeds {_percent(FLOOR)}, the noise floor and, for "
        "energy, the uncertainty of the sensors."
    )


def _estimate_rules() -> tuple[str, ...]:
    """Return which runs count, and how their ratio and its interval are made."""
    gap = whole(LONGEST_GAP_S)
    return (
        "Valid runs: complete runs that no check excludes, without warm-ups. There is no verdict "
        "if the work, data or settings of the arms differ. There is none if runs of one arm at one "
        "point differ in drive, power state, loader, host or data set. There is none on seconds "
        f"and joules if the bytes of two runs are more than {_percent(BYTES_TOLERANCE)} apart.",
        "Ratio: the printed ratio and its interval are of geometric means, on the logarithmic "
        "scale. For runs that alternated in pairs, it is the geometric mean of the pairs' ratios. "
        "If the ratio of the arms' medians differs, it is printed too. No verdict contradicts that "
        "ratio, or for pairs the median of their ratios: one outlier changes a mean, not a median.",
        f"Interval: with at least {MINIMUM_PAIRS} pairs of alternating runs it is by Student's t "
        f"on the logs of their ratios. {MINIMUM_PAIRS} is the smallest number that can reach "
        "p < 0.05 by flipping signs: 2 in 64. Otherwise it is by Welch's t on the logs of the "
        f"runs, with at least {MINIMUM_RUNS} per arm. A session of alternating runs with fewer "
        f"than {MINIMUM_PAIRS} pairs is too short for either. Runs more than {gap} s apart, "
        "without the time waited for drives to cool, are not a pair. If that leaves too few pairs, "
        "Welch's t is used and the page says so.",
        f"Bootstrap: with at least {BOOTSTRAP_RUNS} pairs or runs per arm there is also a BCa "
        f"bootstrap ({whole(RESAMPLES)} resamples, seed {SEED}). The printed interval then spans "
        "both: from the lower of the lower ends to the higher of the upper ends. If they disagree, "
        "both are shown and a verdict needs both. Equal runs have an interval without width. They "
        "need as many runs or pairs as can reach that p by permutation or by flipping signs.",
    )


def _call_rules() -> tuple[str, ...]:
    """Return when a ratio shows that an arm is better."""
    margin = _percent(MARGIN)
    return (
        "Several verdicts: a rate and the time for the same bytes answer one question, and so do "
        "the energies of a job and of its parts. Only the first gets a verdict. All questions of a "
        "workload, at all points of its sweep, are one family. Holm's step-down tests each at the "
        "confidence that its rank requires. If the arms "
        "alternated or were mixed, the chance of a false verdict in a workload is at most 5 %. "
        "Over several workloads the chances add up. A floor set by drift applies to each figure "
        "alone. Printed intervals are 95 % each. Fix the number of runs before any is made: "
        "stopping as soon as an arm is better gives more false verdicts.",
        f"Noise floor: a verdict needs an effect above {_percent(FLOOR)}. The effect must exceed "
        "the difference between an arm's later and earlier runs, or pairs. It must also exceed the "
        "difference of a setting from itself (interleave=aa): the far end of its interval, in "
        "sessions with the settings, drive, power state and host of one of the arms.",
        "Drift: arms that did not alternate may have run one after the other. They did if the same "
        "arm is first in over three quarters of all pairs of a run of each. Their noise floor then "
        "includes the drift within them: one slope for both, at the far end of its 95 % interval. "
        "It is extrapolated over the time between their centres, and over at most "
        f"{number(REACH, 1)} times the duration of an arm. If start times are unknown, there is no "
        "verdict.",
        "Energy: more runs do not make a sensor more accurate. Every interval of an energy is "
        "widened by the uncertainty of the ratio (k = 2): the stated uncertainties of both arms, "
        "in quadrature. The floor is at least that, and p tests for a difference beyond it. If an "
        "uncertainty is not stated, there is no verdict. What both arms share is left out: one "
        "meter has one gain, which cancels in the ratio. If all runs found the same lag and window "
        "of the sensor, only their unknown difference counts. Energies with different evidence get "
        "no verdict.",
        f"Same: a figure is the same within {margin} only if the whole deciding interval is "
        f"between {number(1 / (1 + MARGIN), 3)} and {number(1 + MARGIN, 3)}, and the noise floor "
        "too. This must still hold with the noise floor of a setting against itself, or with the "
        "possible drift between the arms, added at both ends. Arms without a shown difference are "
        "not necessarily the same.",
        "Spread: the CV of an arm's runs is steady up to 2 %, noted up to 5 %, noisy above that "
        "(run more) and unstable above 10 %. No run is dropped for its value.",
        "Points: runs of one arm that were swept are compared point by point. For a sweep, the "
        "median of the points' ratios comes first, with the ends of their range.",
    )


def _percent(share: float) -> str:
    return f"{number(share * 100, 1)} %"
