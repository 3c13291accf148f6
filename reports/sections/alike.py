"""Sentences that runs say alike, but for what they measured: told once, with ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattload.reports.load import Run
from wattload.reports.points import axes, axis_names, place
from wattload.reports.quantity import THIN_SPACE
from wattload.reports.sections.wording import unique
from wattload.reports.subject import LETTERS, Subject, lettered

_UNIT = (
    r"(?:%|times|(?:[kKMGTP]i?B|[kMGTP]?bit)(?:/s)?|B/s|[kM]?IOPS|[num\u00b5\u03bc]?s|min|h"
    r"|[mk]?Wh?|[mk]?J|[kMG]?Hz|K|\u00b0C)"
)
_FIGURE = re.compile(
    rf"(?<![\w./:,\u2013\u00b1-])(?<!\d\s)(?<!to )[0-9]+(?:{THIN_SPACE}[0-9]{{3}})*(?:\.[0-9]+)?"
    rf"(?=\s?{_UNIT}(?![\w/-])(?! to [0-9]))"
)
"""A measured number: a unit or ``%`` stands behind it. No count, rank, state, version or list has
one, ``1,234`` is no two numbers, and an end of a range that a sentence tells itself is left alone.
"""

Said = Sequence[tuple[Run, str]]
Kind = tuple[str, tuple[str, ...]]
"""A workload, and what stands between the measured numbers of a sentence."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What the runs of a range have in common beside their workload; ``values`` are by axis."""

    arm: str
    values: tuple[str, ...]


def ranged(said: Said, subject: Subject) -> list[tuple[Run, str]]:
    """Return what runs say, with one text for what is alike but for what was measured.

    Texts are alike within a workload, an arm and a point of its sweep; they have then, in place of
    each measured number that differs, the least and the most of these runs. Where others say it
    with other numbers, arm and point stand before it. What all say with the same numbers stays as
    it is, and so does what one run says more than once: those are two things.
    """
    groups = {group.workload: axes(group) for group in subject.groups}
    places = {
        run.id: _Place(subject.arm(run), place(run.record, groups.get(_workload(run), ())))
        for run, _ in said
    }
    kinds: dict[Kind, list[tuple[Run, str]]] = {}
    for run, text in said:
        kinds.setdefault(_kind(run, text), []).append((run, text))
    told = {
        kind: _told(own, places, groups.get(kind[0], ()), _named(subject))
        for kind, own in kinds.items()
    }
    return [(run, told[_kind(run, text)].get(places[run.id], text)) for run, text in said]


def _workload(run: Run) -> str:
    return run.record.workload.name


def _kind(run: Run, text: str) -> Kind:
    return _workload(run), tuple(_FIGURE.split(text))


def _named(subject: Subject) -> dict[str, str]:
    """Return what arms are called before a sentence, those without a letter too."""
    arms = unique([*subject.arms, *(subject.arm(run) for run in subject.runs)])
    letters = zip(LETTERS, subject.arms, strict=False)
    own = {arm: lettered(letter, arm) for letter, arm in letters}
    return {arm: own.get(arm, arm) for arm in arms} if len(arms) > 1 else {}


def _told(
    said: Said, places: Mapping[str, _Place], keys: Sequence[str], named: Mapping[str, str]
) -> dict[_Place, str]:
    """Return the text of one kind by place; nothing where it stays as it is."""
    texts: dict[_Place, list[str]] = {}
    for run, text in said:
        texts.setdefault(places[run.id], []).append(text)
    if len({run.id for run, _ in said}) < len(said) or len({text for _, text in said}) == 1:
        return {}
    is_swept = len({each.values for each in texts}) > 1
    found = {}
    for each, own in texts.items():
        before = [named[each.arm]] if each.arm in named else []
        if is_swept:
            before += map(" ".join, zip(axis_names(keys), each.values, strict=True))
        found[each] = ": ".join([", ".join(before), _over(own)]) if before else _over(own)
    return found


def _over(texts: Sequence[str]) -> str:
    """Return texts of one kind as one, each measured number as the range of theirs."""
    figures = zip(*(_FIGURE.findall(text) for text in texts), strict=True)
    ranges = iter([_range(each) for each in figures])
    return _FIGURE.sub(lambda _: next(ranges), texts[0])


def _range(figures: Sequence[str]) -> str:
    low, high = min(figures, key=_value), max(figures, key=_value)
    return low if low == high else f"{low} to {high}"


def _value(figure: str) -> float:
    return float(figure.replace(THIN_SPACE, ""))
