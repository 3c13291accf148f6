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
from wattload.core.mlperf.published import (
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

_PATHS = ("folder", "root", "dir", "path", "seed")


def notes(published: PublishedSet, edition: str) -> Iterator[Finding]:
    """Yield the notes on one set; ``edition`` is that whose throughput its runs report."""
    found: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in (pair for run in published.runs for pair in reported_pairs(run, edition)):
        if pair.difference > pair.most:
            found[pair.rule, pair.what].append(pair)
    for pairs in found.values():
        worst = max(pairs, key=lambda pair: pair.difference)
        yield _note(worst.rule, f"{worst.sentence} Such runs: {len(pairs)}.", worst.figures)
    yield from _report(published)
    yield from _settings(published.runs)
    for run in published.runs:
        yield from _loads(run)
        recall = run.facts.recall if isinstance(run.facts, VectorFacts) else None
        if recall is not None and recall < LEAST_RECALL:
            yield _note(
                "low_recall", f"{run.name}: the recall is {recall:.4f}.", {"recall": recall}
            )


def copies(sets: Sequence[PublishedSet]) -> Mapping[int, Finding]:
    """Return a note on each set, by its index, with a run whose files or times another has too."""
    places: dict[object, list[tuple[int, str]]] = defaultdict(list)
    for index, published in enumerate(sets):
        for run in published.runs:
            digests = {
                source.sha256
                for source in run.sources
                if source.path.endswith(("summary.json", "per_epoch_stats.json"))
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
    return tuple(r.duration_s for each in epochs for block in each.blocks for r in block.ranks)


class Pair(NamedTuple):
    """A figure computed here, and as reported; they may differ by a share of ``most``."""

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

    @property
    def figures(self) -> Figures:
        return {"got": self.got, "reported": self.said}


def reported_pairs(run: PublishedRun, edition: str) -> Iterator[Pair]:
    """Yield the figures of a run that can be computed and are reported."""
    facts = run.facts
    found: list[tuple[str, str, float | None, float | None, float]] = []
    if isinstance(facts, TrainingFacts) and facts.reported:
        said, most = facts.reported, TOLERANCE.get(facts.source, SAME)
        samples, au = said.samples_per_s_mean, said.au_mean
        nominal = samples and facts.record_bytes and samples * facts.record_bytes
        rate = formulas.samples_per_s(facts, edition).value
        found = [
            ("recomputed", f"samples/s from {facts.source}", rate, samples, most),
            ("recomputed", f"AU from {facts.source}", formulas.au(facts).value, au, most),
            (
                "summary",
                "the mean of its epochs' samples/s",
                _mean(said.samples_per_s),
                samples,
                SAME,
            ),
            ("summary", "the mean of its epochs' AU", _mean(said.au), au, SAME),
            ("summary", "its samples/s x record bytes", nominal, said.nominal_bytes_per_s, SAME),
        ]
    elif isinstance(facts, CheckpointFacts):
        for what, done, reported in (
            ("written", facts.writes, facts.reported_writes),
            ("read", facts.reads, facts.reported_reads),
        ):
            rate = formulas.mean_checkpoint_bytes_per_s(facts, done).value
            said_rate = reported.bytes_per_s if reported else None
            found.append(("recomputed", f"the mean rate {what} in B/s", rate, said_rate, SAME))
    elif isinstance(facts, CacheFacts):
        for option in facts.options:
            what = f"option {option.option}'s rate read in B/s"
            rate = formulas.cache_per_s(facts, option, formulas.storage_read_bytes).value
            found.append(("recomputed", what, rate, option.read_bytes_per_s, SAME))
    elif isinstance(facts, VectorFacts) and facts.queries is not None and facts.seconds:
        rate = facts.queries / facts.seconds
        found = [("recomputed", "queries/s", rate, facts.queries_per_s, SAME)]
    for rule, what, got, reported_, most_ in found:
        if got is not None and reported_ is not None:
            yield Pair(rule, run.name, what, got, reported_, most_)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _report(published: PublishedSet) -> Iterator[Finding]:
    """Yield a note if a set's report has other figures than its runs' own summaries."""
    reported = [
        run.facts.reported for run in published.runs if isinstance(run.facts, TrainingFacts)
    ]
    own = [each.samples_per_s_mean for each in reported if each and each.samples_per_s_mean]
    report = published.reported
    if report is None or not own:
        return
    lacking = max(len(report.runs) - len(own), 0)  # its other runs are not in this copy
    unlike = [r for r in report.runs.values() if all(abs(r / each - 1) > SAME for each in own)]
    off = unlike[lacking:]
    mean = report.samples_per_s_mean
    if mean is not None and not lacking and abs(mean / fmean(own) - 1) > SAME:
        off.append(mean)
    if off:
        sentence = f"Its report has {off[-1]:.6g} samples/s; its runs have {fmean(own):.6g}."
        yield _note("report", sentence, {"reported": off[-1], "got": fmean(own)})


def _settings(runs: Sequence[PublishedRun]) -> Iterator[Finding]:
    """Yield a note on parameters that differ between the runs of a set, paths and seeds apart."""
    values: dict[str, set[object]] = defaultdict(set)
    for run in runs:
        facts = run.facts
        counts = {"hosts": len(run.hosts), "file count": getattr(facts, "file_count", None)}
        counts["accelerators"] = getattr(facts, "accelerators", None)
        for name in {name for each in runs for name in each.settings}:
            if not name.endswith(_PATHS) and not name.startswith(("hydra", "output")):
                values[name].add(run.settings.get(name))
        for name, count in counts.items():
            values[name].add(count)
    differing = {name: found for name, found in sorted(values.items()) if len(found) > 1}
    if differing and runs[0].facts.kind == "training":
        listed = ", ".join(
            f"{name} {' and '.join(sorted(map(str, found)))}" for name, found in differing.items()
        )
        yield _note("settings", f"Its runs differ in {listed}.", {"count": len(differing)})


def _loads(run: PublishedRun) -> Iterator[Finding]:
    """Yield a note on loads far faster than their siblings that a local device did not move."""
    facts = run.facts
    if not isinstance(facts, CheckpointFacts) or not facts.reads:
        return
    seconds = [max(each.seconds) for each in facts.reads]
    usual_s = median(seconds)
    fast = [
        each
        for each, own_s in zip(facts.reads, seconds, strict=True)
        if own_s < FAR_FASTER * usual_s
    ]
    if not fast or facts.checkpoint_bytes is None:
        return
    sentence = (
        f"{run.name}: {len(fast)} of {len(seconds)} loads took {min(seconds):.2f} s or more, "
    )
    sentence += f"others {usual_s:.2f} s"
    moved = [each.device_bytes for each in fast if each.device_bytes is not None]
    if not moved:
        reason = "no count of local devices"
        yield _note("loads", f"{sentence}. Not checked: {reason}.", {}, "not_checked")
    elif min(moved) < facts.checkpoint_bytes:
        sizes = f"{format_bytes(min(moved))} of {format_bytes(facts.checkpoint_bytes)}"
        figures = {"fast": len(fast), "device_bytes": min(moved), "asked": facts.checkpoint_bytes}
        yield _note("loads", f"{sentence}; local devices moved {sizes}.", figures)


def _note(rule: str, sentence: str, figures: Figures, standing: Standing = "note") -> Finding:
    return Finding(
        rule=rule, id=f"wl-{rule}", standing=standing, sentence=sentence, figures=figures
    )
