"""Sentences that runs say alike, but for their figures: told once per arm, with ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from wattload.reports.load import Run
from wattload.reports.quantity import THIN_SPACE
from wattload.reports.sections.wording import unique
from wattload.reports.subject import LETTERS, Subject, lettered

_FIGURE = re.compile(rf"(?<![\w./:-])\d+(?:{THIN_SPACE}\d{{3}})*(?:\.\d+)?(?![\w/:-]|\.\w)")
"""A number by itself: ``12`` of ``12%``, but not that in ``nvme2``, ``/mnt/2`` or ``2-way``."""

Said = Sequence[tuple[Run, str]]


def ranged(said: Said, subject: Subject) -> list[tuple[Run, str]]:
    """Return what runs say, with one text per arm for what they say alike but for its figures.

    That text has, in place of each figure that differs, the least and the most of the arm's runs.
    What only one run of a kind says, or all with the same figures, stays as it is.
    """
    kinds: dict[str, dict[str, list[str]]] = {}
    for run, text in said:
        kinds.setdefault(_FIGURE.sub("#", text), {}).setdefault(subject.arm(run), []).append(text)
    pairs = zip(LETTERS, subject.arms, strict=False)
    named = {arm: lettered(letter, arm) for letter, arm in pairs} if len(subject.arms) > 1 else {}
    return [
        (run, _told(kinds[_FIGURE.sub("#", text)], subject.arm(run), named)) for run, text in said
    ]


def _told(kind: Mapping[str, Sequence[str]], arm: str, named: Mapping[str, str]) -> str:
    texts = unique(text for of_arm in kind.values() for text in of_arm)
    if len(texts) == 1:
        return texts[0]
    text = _over(unique(kind[arm]))
    return f"{named[arm]}: {text}" if arm in named else text


def _over(texts: Sequence[str]) -> str:
    """Return texts of one kind as one, each figure as the range of theirs."""
    figures = zip(*(_FIGURE.findall(text) for text in texts), strict=True)
    ranges = iter([_range(each) for each in figures])
    return _FIGURE.sub(lambda _: next(ranges), texts[0])


def _range(figures: Sequence[str]) -> str:
    ends = sorted(figures, key=lambda text: float(text.replace(THIN_SPACE, "")))
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"
