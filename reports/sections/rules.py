"""The rules of a comparison in words, as they were fixed before any value was seen."""

from __future__ import annotations

from wattload.core.checks.interleaved import LONGEST_GAP_S
from wattload.reports.blocks import Block, Fold, Paragraph
from wattload.reports.conditions import BYTES_TOLERANCE
from wattload.reports.intervals import BOOTSTRAP_RUNS, RESAMPLES, SEED
from wattload.reports.pairing import MINIMUM_PAIRS
from wattload.reports.quantity import number, whole
from wattload.reports.sequence import REACH
from wattload.reports.statistics import FLOOR, MARGIN, MINIMUM_RUNS


def rules() -> list[Block]:
    """Return how figures are compared and when one is called, the details in a fold."""
    texts = (*_counted(), *_called())
    return [Paragraph(_short()), Fold("The rules in full", [Paragraph(text) for text in texts])]


def _short() -> str:
    return (
        "The unit is the run. B/A is the ratio of the geometric means of the valid runs, and the "
        "95 % interval is of that ratio; an arm's own figure is its median. An arm is called "
        f"better only from {MINIMUM_RUNS} valid runs per arm on, or {MINIMUM_PAIRS} pairs of runs "
        "that took turns, with an interval that excludes 1 after all calls of the workload are "
        "allowed for (Holm), and an effect above "
        f"{_percent(FLOOR)}, above the noise floor and, of energy, above what its sensors may be "
        "off by. Three runs per arm never decide anything."
    )


def _counted() -> tuple[str, ...]:
    """Return which runs count, and how their ratio and its interval are made."""
    gap = whole(LONGEST_GAP_S)
    return (
        "What counts: complete runs that no check bars, and no warm-up. Nothing is called where "
        "the arms' work, data or settings differ; where runs of one arm at one point differ in "
        "drive, power state, loader, host or data set; and of seconds and joules, where any two "
        f"runs moved bytes more than {_percent(BYTES_TOLERANCE)} apart.",
        "One estimator: the ratio that is printed and its interval are both of geometric means, on "
        "the logarithmic scale. Where runs took turns in pairs it is the geometric mean of the "
        "pairs' ratios. Where the ratio of the arms' medians differs it stands under it. No call "
        "goes against that ratio, or of pairs against the median of theirs: one odd run pulls a "
        "mean, not a median.",
        f"Interval: from {MINIMUM_PAIRS} pairs of runs that took turns on, Student's t on the logs "
        "of their ratios (the smallest number that can reach p < 0.05 by flipping signs: 2 in "
        f"64); else Welch's t on the logs of the runs, from {MINIMUM_RUNS} per arm on. A session "
        f"that took turns and has fewer than {MINIMUM_PAIRS} pairs is too short for either. Runs "
        f"of a pair more than {gap} s apart, waiting for drives to cool left out, are no pair: "
        f"where too few pairs are left for that, Welch's t is taken and it is said. From "
        f"{BOOTSTRAP_RUNS} pairs or runs per arm on there is a BCa bootstrap beside it "
        f"({whole(RESAMPLES)} resamples, seed {SEED}). What is printed, drawn and held against "
        "published figures is then the wider of both, from the lower of the lower ends to the "
        "higher of the upper ends; where they disagree each stands under it, and a call needs "
        "both. Equal runs have an interval without width: they need as many runs or pairs as can "
        "reach that p by dealing runs out anew or flipping signs, and it is said.",
    )


def _called() -> tuple[str, ...]:
    """Return what is called of a ratio."""
    margin = _percent(MARGIN)
    return (
        "Several calls: all figures that can be called, at all points of a workload's sweep, are "
        "one family. Holm's step-down holds each against the confidence that its place asks "
        "for, so the chance of one false call or more in a workload is 5 % at most, of arms that "
        "took turns or mixed; the floor that drift sets between others is of each figure by "
        "itself. Each workload is a family of its own: over several on one page the chances add "
        "up. Printed intervals are 95 % each. The number of runs is to be fixed before any is "
        "made: who looks at each step and stops once an arm is better has more false calls.",
        f"Noise floor: an effect is called only above {_percent(FLOOR)}, above what an arm's later "
        "runs show against its earlier ones, or later pairs against earlier pairs, and above what "
        "a setting showed against itself (interleave=aa): the far end of its interval, in sessions "
        "of the settings, drive, power state and host of one of the arms. Of arms that did not "
        "take turns and ran one after the other (over three quarters of the pairs of a run of each "
        "have the same one first) it is also what drifts within them, one slope for both at the "
        "far end of its 95 % interval, carried on over the time between their centres and over "
        f"{number(REACH, 1)} times as long as an arm took at most. Where nothing tells when the "
        "runs began, nothing is called.",
        "Energy: more runs make no sensor better. Where the arms' energy is of different devices "
        "or sources, every interval, printed or deciding, is widened by the sum of what both state "
        "of their uncertainty (k = 2), the floor is that sum too, p is of no more than that apart, "
        "and there is no call where one states none. One device read by one source in both arms "
        "has one gain, which leaves the ratio as it is: then the other parts count. Energies that "
        "are known in different ways are not called.",
        f"Same: a figure is called the same within {margin} only where the whole interval that "
        f"decides lies between {number(1 / (1 + MARGIN), 4)} and {number(1 + MARGIN, 4)}, and the "
        "noise floor too, and where it still does with what a setting showed against itself, or "
        "what drift may have parted the arms by, added at both ends. That no difference is shown "
        "says nothing of the kind.",
        "Spread: the CV of an arm's runs is steady up to 2 %, noted up to 5 %, noisy above (run "
        "more), unstable above 10 %. No run is dropped for its value.",
        "Points: runs of one arm that were swept are compared point by point. Over a sweep the "
        "median of the points' ratios is told first, the ends of their range beside it.",
    )


def _percent(share: float) -> str:
    return f"{number(share * 100, 1)} %"
