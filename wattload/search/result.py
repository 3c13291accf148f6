"""The result of a search: how many accelerators hold, what limits them, and one sentence of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.core.record.base import Frozen
from wattload.core.units import format_rate
from wattload.search.measurement import Measurement, Pooled, pooled
from wattload.search.strategy import doubts

CEILING_FACTOR = 2.0
"""A harness ceiling below so many times the result means that the host was measured as well."""

Verdict = Literal["found", "at_least", "none_holds", "unproved", "invalid"]
Limit = Literal["target", "host", "maximum", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was searched: the job in words, the threshold and the counts, in all over the ranks."""

    workload: str
    loader: str
    scale: str
    accelerator: str
    threshold: float
    start: int
    maximum: int
    unit: int
    """Counts are multiples of this, the number of ranks."""
    confirmations: int


class SearchResult(Frozen):
    """The score as MLPerf gives it: the most accelerators that hold, and the throughput there.

    ``at`` are the runs of the result together, ``above`` those of the next count; ``limited_by`` is
    what stopped that one. ``invalid`` stands for a search that a failed check ended, ``unproved``
    for one whose result rests on a run without a mandatory check: neither is a score.
    """

    schema_version: Literal[1] = 1
    search: Literal["accelerators"] = "accelerators"
    session_id: str
    command: tuple[str, ...]
    workload: str
    loader: str
    scale: str
    accelerator: str
    au_threshold: float
    start: int
    maximum: int
    unit: int
    confirmations: int
    verdict: Verdict
    accelerators: int | None
    limited_by: Limit
    at: Pooled | None
    above: Pooled | None
    sentence: str
    notes: tuple[str, ...]
    counts: tuple[Pooled, ...]
    runs: tuple[Measurement, ...]


def conclude(
    question: Question,
    runs: Sequence[Measurement],
    found: int | None,
    *,
    session_id: str,
    command: tuple[str, ...],
) -> SearchResult:
    """Return the result of a search; ``found`` is ``None`` for one that a failed check ended."""
    by_count = _by_count(runs)
    counts = {count: pooled(of, question.threshold) for count, of in sorted(by_count.items())}
    above = None if found is None else by_count.get(found + question.unit)
    verdict = _verdict(by_count, found, above)
    limit, why = _limit(above, question) if verdict != "invalid" else ("unknown", "")
    at = counts.get(found or 0)
    return SearchResult(
        session_id=session_id,
        command=command,
        workload=question.workload,
        loader=question.loader,
        scale=question.scale,
        accelerator=question.accelerator,
        au_threshold=question.threshold,
        start=question.start,
        maximum=question.maximum,
        unit=question.unit,
        confirmations=question.confirmations,
        verdict=verdict,
        accelerators=found,
        limited_by=limit,
        at=at,
        above=counts.get((found or 0) + question.unit) if found is not None else None,
        sentence=_sentence(question, verdict, at, counts, why),
        notes=tuple(_notes(question, by_count, found)),
        counts=tuple(counts.values()),
        runs=tuple(runs),
    )


def _verdict(
    by_count: Mapping[int, Sequence[Measurement]],
    found: int | None,
    above: Sequence[Measurement] | None,
) -> Verdict:
    if found is None:
        return "invalid"
    if not found:
        return "none_holds"
    if any(run.unproved for run in by_count[found]):
        return "unproved"
    return "found" if above else "at_least"


def _by_count(runs: Sequence[Measurement]) -> dict[int, list[Measurement]]:
    found: dict[int, list[Measurement]] = {}
    for run in runs:
        found.setdefault(run.accelerators, []).append(run)
    return found


def _limit(above: Sequence[Measurement] | None, question: Question) -> tuple[Limit, str]:
    """Return what stopped the count above the result, and the clause that says by which figures.

    The host did where its own ceiling, the same loop without a drive, is under what so many
    accelerators demand: then no drive could have held them.
    """
    if not above:
        return "maximum", f"sweep.maximum={question.maximum} is the limit; more were not tried"
    run = max(above, key=lambda each: each.ceiling_bytes_per_s or 0.0)
    ceiling, demand, rate = run.ceiling_bytes_per_s, run.demand_bytes_per_s, run.read_bytes_per_s
    if ceiling is None or demand is None or not rate:
        return "unknown", "what limits them is unknown, as the run has no harness ceiling"
    without = f"without a drive this host loads {format_rate(ceiling)}"
    wanted = f"{run.accelerators} accelerators demand {format_rate(demand)}"
    if ceiling < demand:
        return "host", f"the host, not the drive, is the limit: {without} and {wanted}"
    if ceiling < CEILING_FACTOR * rate:
        return "target", (
            f"the drive is the limit, and the host was measured as well: {without}, only "
            f"{ceiling / rate:.1f} times what came from the drive"
        )
    return "target", f"the drive is the limit: {without} and {wanted}"


def _sentence(
    question: Question,
    verdict: Verdict,
    at: Pooled | None,
    counts: Mapping[int, Pooled],
    why: str,
) -> str:
    job = f"{question.workload} with loader={question.loader} at scale={question.scale}"
    if verdict == "invalid":
        return f"{job} has no score: a check of a run failed, and its figures can't be trusted."
    threshold = f"AU >= {question.threshold:.0%}"
    if at is None:
        least = counts[min(counts)]
        return (
            f"{job}: not even {least.accelerators} {question.accelerator} holds {threshold} "
            f"({_figures(least)}); {why}."
        )
    if verdict == "unproved":
        return (
            f"{job} has no score: {at.accelerators} {question.accelerator} held {threshold}, with "
            f"{_figures(at)}, in runs that lack a mandatory check."
        )
    more = "at least " if verdict == "at_least" else ""
    above = counts.get(at.accelerators + question.unit)
    fails = f" {above.accelerators} do not ({percent(above.au_dlio)});" if above else ""
    return (
        f"{job}: {more}{at.accelerators} {question.accelerator} hold {threshold}, with "
        f"{_figures(at)};{fails} {why}."
    )


def _figures(at: Pooled) -> str:
    parts = [f"AU {percent(at.au_dlio)}, AU nominal {percent(at.au_nominal)}"]
    if at.samples_per_s is not None:
        parts.append(f"{at.samples_per_s:.1f} samples/s")
    if at.read_bytes_per_s is not None:
        parts.append(format_rate(at.read_bytes_per_s))
    if at.drive_w is not None:
        parts.append(f"{at.drive_w:.1f} W")
    return ", ".join(parts)


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage with one decimal, or "unknown"."""
    return "unknown" if fraction is None else f"{100 * fraction:.1f} %"


def _notes(
    question: Question, by_count: Mapping[int, Sequence[Measurement]], found: int | None
) -> Iterator[str]:
    for runs in by_count.values():
        for run in runs:
            yield from (f"Run {run.run_id} failed {fault}" for fault in run.faults)
    held = {
        count: [run.holds(question.threshold) for run in runs] for count, runs in by_count.items()
    }
    yield from doubts(held, "accelerators")
    if question.unit > 1:
        yield (
            f"Accelerators are added on all {question.unit} ranks at once, so the result is a "
            f"multiple of {question.unit}; one rank finds the number itself."
        )
    for run in by_count.get(found or 0, ()):
        yield from (f"Run {run.run_id} did not prove {what}" for what in run.unproved)
    nominal = [run.au_nominal for run in by_count.get(found or 0, ())]
    if any(value is not None and value < question.threshold for value in nominal):
        yield (
            "The nominal AU is under the threshold: computation that overslept counts as "
            "utilisation in DLIO's formula, which decides."
        )
