"""What no edition asks and a reader should know of a published set: notes, which fail nothing.

A note says figures and which data they are from, and nothing of why they are so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from wattload.core.mlperf import formulas
from wattload.core.mlperf.edition import class_division, editions
from wattload.core.mlperf.published import (
    AnyFacts,
    CacheFacts,
    CheckpointFacts,
    PublishedRun,
    PublishedSet,
    TrainingFacts,
    VectorFacts,
)
from wattload.core.mlperf.rules import Figures, Finding, Standing
from wattload.core.units import format_bytes

TOLERANCE = {"steps": 0.001, "blocks": 0.01}
"""By how much recomputed rates may differ, by their source: blocks are often those of one rank."""
SAME = 0.001
"""By how much two figures may differ that were computed from the same numbers."""
FAR_FASTER = 0.5
"""A load in less than this share of the median of its siblings' times is far faster."""
LEAST_RECALL = 0.9

_OWN = ("folder", "root", "dir", "path", "seed", "checkpoints_write", "checkpoints_read")


def notes(published: PublishedSet, edition: str) -> Iterator[Finding]:
    """Yield the notes on one set; ``edition`` is that which its parameters match best."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for run in published.runs:
        for pair in nearest_pairs(published, run, edition)[1]:
            if pair.difference > pair.most:
                found[pair.what].append(pair)
        yield from _loads(run)
        recall = run.facts.recall if isinstance(run.facts, VectorFacts) else None
        if recall is not None and recall < LEAST_RECALL:
            text = f"{run.name}: the recall is {recall:.4f}."
            yield _note("low_recall", text, {"recall": recall})
    for pairs in found.values():
        worst = max(pairs, key=lambda pair: pair.difference)
        figures = {"got": worst.got, "reported": worst.said}
        yield _note(worst.rule, f"{worst.sentence} Such runs: {len(pairs)}.", figures)
    yield from _report(published)
    if published.facts.kind == "training":
        yield from _settings(published.runs)


def nearest_pairs(
    published: PublishedSet, run: PublishedRun, edition: str
) -> tuple[str, Sequence[Pair]]:
    """Return the reported figures of a run, and by whose formulas they are recomputed.

    Those that give what is reported come first, then the edition's if the tree or a class of the
    settings says that it is of that one, then those without a figure.
    """
    first = published.runs[0]
    is_sure = published.edition or class_division(first.facts, first.settings, editions()[edition])
    found = {
        name: [
            Pair(rule, run.name, what, got, said, most)
            for rule, what, got, said, most in _figures(run.facts, name)
            if got is not None and said is not None
        ]
        for name in (edition, *editions())
    }

    def order(name: str) -> tuple[int, float]:
        own = [pair for pair in found[name] if pair.rule == "recomputed"]
        farthest = max((pair.difference for pair in own), default=0.0)
        if own and all(pair.difference <= pair.most for pair in own):
            return 0, farthest
        if is_sure and name == edition:
            return 1, farthest
        return 3 if own else 2, farthest

    best = min(found, key=order)
    return best, found[best]


def copies(sets: Sequence[PublishedSet]) -> Mapping[int, Finding]:
    """Return a note on each set, by its index, with a run whose files or times another has too."""
    places: dict[object, list[tuple[int, str]]] = defaultdict(list)
    for index, published in enumerate(sets):
        for run in published.runs:
            digests = {
                digest
                for path, digest in run.sources.items()
                if path.endswith(("summary.json", "per_epoch_stats.json"))
            }
            for key in (*digests, (run.started_s, run.ended_s), _durations(run)):
                if key and key != (None, None):
                    places[key].append((index, str(Path(published.path, run.name))))
    found: dict[int, Finding] = {}
    for members in places.values():
        for index, own in members:
            others = [path for _, path in members if path != own]
            if others and index not in found:
                sentence = f"{own} has files or times of {others[0]}."
                found[index] = _note("copies", sentence, {"copies": len(others)})
    return found


def _durations(run: PublishedRun) -> tuple[float, ...]:
    epochs = run.facts.epochs if isinstance(run.facts, TrainingFacts) else ()
    return tuple(block.duration_s for epoch in epochs for block in epoch)


class Pair(NamedTuple):
    """A figure of a run computed here, and as reported; they may differ by a share of ``most``."""

    rule: str
    run: str
    what: str
    got: float
    said: float
    most: float

    @property
    def difference(self) -> float:
        return abs(self.got / self.said - 1) if self.said else math.inf

    @property
    def sentence(self) -> str:
        times = f"{self.got / self.said:.4f} times " if self.said else ""
        return f"{self.run}: {self.what} is {self.got:.6g}, {times}the reported {self.said:.6g}."


def _figures(
    facts: AnyFacts, edition: str
) -> Iterator[tuple[str, str, float | None, float | None, float]]:
    rule = "recomputed"
    if isinstance(facts, TrainingFacts) and facts.reported:
        said, most = facts.reported, TOLERANCE.get(facts.source, SAME)
        samples, au, all_samples = said.samples_per_s_mean, said.au_mean, said.samples_per_s
        rate = formulas.samples_per_s(facts, edition).value
        yield rule, f"samples/s from {facts.source}", rate, samples, most
        yield rule, f"AU from {facts.source}", formulas.au(facts).value, au, most
        yield "summary", "the mean of its epochs' samples/s", _mean(all_samples), samples, SAME
        yield "summary", "the mean of its epochs' AU", _mean(said.au), au, SAME
        nominal = samples and facts.record_bytes and samples * facts.record_bytes
        yield "summary", "its samples/s x record bytes", nominal, said.nominal_bytes_per_s, SAME
    elif isinstance(facts, CheckpointFacts):
        for what, done, mean in (
            ("written", facts.writes, facts.reported_write_bytes_per_s),
            ("read", facts.reads, facts.reported_read_bytes_per_s),
        ):
            rate = formulas.mean_checkpoint_bytes_per_s(facts, done).value
            yield rule, f"the mean rate {what} in B/s", rate, mean, SAME
    elif isinstance(facts, CacheFacts):
        for each in facts.options:
            rate = formulas.cache_per_s(facts, each, formulas.storage_read_bytes).value
            what = f"option {each.option}'s rate read in B/s"
            yield rule, what, rate, each.read_bytes_per_s, SAME
    elif isinstance(facts, VectorFacts) and facts.queries is not None and facts.seconds:
        yield rule, "queries/s", facts.queries / facts.seconds, facts.queries_per_s, SAME


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _report(published: PublishedSet) -> Iterator[Finding]:
    """Yield a note if a set's report has other figures than its runs' own summaries."""
    own = {
        run.name.split("/")[0]: run.facts.reported.samples_per_s_mean
        for run in published.runs
        if isinstance(run.facts, TrainingFacts) and run.facts.reported
    }
    known = {name: rate for name, rate in own.items() if rate}
    report = published.reported
    if report is None or not known:
        return
    off = [r for name, r in report.runs.items() if name in known and _differ(r, known[name])]
    # Some reports name runs as no folder is named; others have runs that are not in this copy.
    lacking = max(len(report.runs) - len(known), 0)
    unnamed = (r for name, r in report.runs.items() if name not in known)
    off += [r for r in unnamed if all(_differ(r, each) for each in known.values())][lacking:]
    mean = report.samples_per_s_mean
    mean_of_own = fmean(known.values())
    if mean is not None and not lacking and _differ(mean, mean_of_own):
        off.append(mean)
    if off:
        sentence = f"Its report has {off[-1]:.6g} samples/s; its runs have {mean_of_own:.6g}."
        yield _note("report", sentence, {"reported": off[-1], "got": mean_of_own})


def _differ(one: float, other: float) -> bool:
    return abs(one / other - 1) > SAME


def _settings(runs: Sequence[PublishedRun]) -> Iterator[Finding]:
    """Yield a note on parameters that differ between the runs of a set, paths and seeds apart."""
    names = {name for run in runs for name in run.settings if not name.endswith(_OWN)}
    # A run without its configuration lacks its settings; that is no other value.
    values = {n: {str(r.settings[n]) for r in runs if n in r.settings} for n in names}
    for name in ("file_count", "accelerators"):
        values[name] = {str(getattr(run.facts, name, None)) for run in runs}
    values["hosts"] = {str(len(run.host_memory_bytes)) for run in runs}
    differing = {name: found for name, found in sorted(values.items()) if len(found) > 1}
    if differing:
        listed = (f"{name} {' and '.join(sorted(found))}" for name, found in differing.items())
        text = f"Its runs differ in {', '.join(listed)}."
        yield _note("settings", text, {"count": len(differing)})


def _loads(run: PublishedRun) -> Iterator[Finding]:
    """Yield a note on loads far faster than their siblings that a local device did not move."""
    facts = run.facts
    if not isinstance(facts, CheckpointFacts) or not facts.reads or not facts.checkpoint_bytes:
        return
    usual_s = median(max(each.seconds) for each in facts.reads)
    fast = [each for each in facts.reads if max(each.seconds) < FAR_FASTER * usual_s]
    moved = [each.device_bytes for each in fast if each.device_bytes is not None]
    if not fast or (moved and min(moved) >= facts.checkpoint_bytes):
        return
    longest_s = max(max(each.seconds) for each in fast)
    counts = f"{run.name}: {len(fast)} of {len(facts.reads)} loads took at most {longest_s:.2f} s"
    text = f"{counts}, the median {usual_s:.2f} s"
    if not moved:
        text += ". Not checked: no count of local devices."
        yield _note("loads", text, {"fast": len(fast)}, "not_checked")
        return
    sizes = f"{format_bytes(min(moved))} of {format_bytes(facts.checkpoint_bytes)}"
    figures = {"fast": len(fast), "device_bytes": min(moved), "asked": facts.checkpoint_bytes}
    yield _note("loads", f"{text}; local devices moved {sizes}.", figures)


def _note(rule: str, sentence: str, figures: Figures, standing: Standing = "note") -> Finding:
    return Finding(
        rule=rule, id=f"wl-{rule}", standing=standing, sentence=sentence, figures=figures
    )
