"""The sentences of the summary of runs that are not compared: figures, energy, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.reports.blocks import Link, Tile, Words
from wattload.reports.compare import compare
from wattload.reports.energy import phase_energies, whole
from wattload.reports.quantity import UNIT_SPACE, counted, listed
from wattload.reports.sections.headline import energy_tiles, headline_tiles
from wattload.reports.sections.spread import spread_words
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import LETTERS, Group, Subject

_TOLD = 3
"""So many workloads are told in one sentence, the others where they stand."""


def single_sentences(subject: Subject) -> Iterator[Words]:
    """Yield up to three sentences: the first figures, the energy, and that nothing is compared."""
    groups = subject.groups[:_TOLD]
    told = [words for group in groups if (words := _figures(group))]
    if told:
        yield (*_joined(told), ".")
    yield _energy(subject)
    yield _alone(subject)


def _joined(told: Sequence[Words]) -> Iterator[str | Link]:
    for index, words in enumerate(told):
        yield from ("; ", *words) if index else words


def _named(group: Group) -> str:
    several = len(group.runs) > 1
    return group.workload + (f", first of {counted(len(group.runs), 'run')}" if several else "")


def _figures(group: Group) -> Words:
    """Return a workload's headline figures but for its energy; nothing where it has none."""
    run = group.runs[0]
    count = sum(metric.headline for metric in run.record.metrics)
    texts = [_text(tile) for tile in headline_tiles(run.record, 3)[:count] if tile.tone != "open"]
    if not texts:
        return ()
    return (Link(_named(group), anchor(run.id, "figures")), f": {listed(texts)}")


def _text(tile: Tile) -> str:
    return f"{tile.label} {tile.value}{UNIT_SPACE}{tile.unit}".rstrip()


def _energy(subject: Subject) -> Words:
    """Return each workload's energy with how it is known; the reason once where there is none."""
    told: list[Words] = []
    for group in subject.groups[:_TOLD]:
        record = group.runs[0].record
        energies = phase_energies(record)
        energy = whole(record) or (energies[-1] if energies else None)
        if energy is None:
            continue
        tile = energy_tiles(energy, 3)[0]
        if tile.tone != "open":
            where = Link(_named(group), "trust-evidence")
            told.append((where, f": {_text(tile)}, {energy.words}"))
    if told:
        return ("Energy of ", *_joined(told), ".")
    reason = no_energy(subject.groups[0])
    return (Link("There is no figure of a drive's energy", "gaps"), f": {reason}.")


def no_energy(group: Group) -> str:
    """Return why a workload has no energy figure, the first of the reasons that its runs give."""
    text = group.runs[0].record.power.choice.partition(";")[0].rstrip(".")
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _alone(subject: Subject) -> Words:
    """Return why nothing is compared, and which repeats scatter."""
    beside = len(subject.arms) <= len(LETTERS) and len(subject.runs) > len(subject.groups)
    where = Link("side by side", "comparison")
    if len(subject.arms) > 2:  # noqa: PLR2004 - two arms are compared
        arms = listed(list(subject.arms))
        shown = (", or read them ", where) if beside else ()
        return (
            f"There are {counted(len(subject.arms), 'arm')} by {subject.by.replace('_', ' ')} "
            f"({arms}); name the runs of two to have them compared",
            *shown,
            *_spread(subject),
            ".",
        )
    if len(subject.arms) > 1:
        return (f"Nothing is compared: {listed(list(subject.arms))} ran no workload in common.",)
    if beside:
        alone = "Nothing is compared, for there is one arm only; its repeats stand "
        return (alone, where, *_spread(subject), ".")
    return (
        "Every workload was run once: ",
        Link("nothing is compared, and no spread is known", "method"),
        ".",
    )


def _spread(subject: Subject) -> Words:
    """Return which arms scatter, where they stand side by side."""
    if len(subject.arms) > len(LETTERS):
        return ()
    groups = [group for group in subject.groups if len(group.runs) > 1]
    return spread_words(
        [
            (group, [row for row in compare(subject, group) if row.quantity.headline])
            for group in groups
        ]
    )
