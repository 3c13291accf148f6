"""The result of an accelerator search: what runs measured, how many hold, and what limits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from wattload.core.base_models import Frozen, Observed
from wattload.core.checks.conditions import AU_DLIO, AU_NOMINAL, CEILING_FACTOR
from wattload.core.record.run import RunRecord
from wattload.core.units import format_percent, format_rate
from wattload.reports.runs.energy import phase_energies
from wattload.results.reading import run_of
from wattload.results.training.facts import TrainingFacts

RATE, SAMPLES, CEILING = "read_bytes_per_s", "samples_per_s", "harness_ceiling_bytes_per_s"

Verdict = Literal["found", "at_least", "none_holds", "unproved", "invalid"]

Limit = Literal["target", "host", "maximum", "unknown"]

V = TypeVar("V", int, float)


class Question(Frozen):
    """What to search for: the job in words, the threshold, and the counts over all ranks."""

    workload: str
    loader: str
    scale: str
    accelerator: str
    threshold: float
    start: int
    maximum: int
    unit: int
    """Counts are multiples of this number, the number of ranks."""
    confirmations: int


class Measurement(Observed):
    """One run of a count of accelerators, from its record.

    ``demand_bytes_per_s`` is the rate at which this many accelerators read if they never wait.
    ``drive_w`` is the mean power of all drives under the target in the timed phase. ``faults`` are
    the checks that failed, and ``unproved`` the mandatory ones that were not made. ``unproved``
    leaves out checks of power, which do not affect throughput.
    """

    accelerators: int
    repetition: int
    run_id: str
    seconds: float
    au_dlio: float | None
    au_nominal: float | None
    samples_per_s: float | None
    read_bytes_per_s: float | None
    ceiling_bytes_per_s: float | None
    demand_bytes_per_s: float | None
    drive_w: float | None
    drive_w_evidence: str | None
    faults: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()

    @property
    def au(self) -> float | None:
        """The utilisation that decides: the smaller of the two, ``None`` if one is unknown.

        DLIO's formula counts oversleep as computation; the nominal one does not.
        """
        if self.au_dlio is None or self.au_nominal is None:
            return None
        return min(self.au_dlio, self.au_nominal)

    def holds(self, threshold: float) -> bool:
        return self.au is not None and self.au >= threshold


class Pooled(Frozen):
    """The runs of one count together: mean utilisations, and rates as totals over total seconds."""

    accelerators: int
    runs: int
    held: bool
    au_dlio: float | None
    au_nominal: float | None
    samples_per_s: float | None
    read_bytes_per_s: float | None
    drive_w: float | None


class SearchOutcome(Frozen):
    """What the results of all searches have in common.

    The verdict ``invalid`` means that a failed check ended the search, ``unproved`` that a run of
    the result lacks a mandatory check.
    """

    schema_version: Literal[1] = 1
    session_id: str
    command: tuple[str, ...]
    verdict: Verdict
    sentence: str
    notes: tuple[str, ...]


class SearchResult(SearchOutcome):
    """The score as MLPerf defines it: the most accelerators that hold, and the throughput there.

    ``at`` has the runs of the result together, and ``above`` those of the next count;
    ``limited_by`` is what limited that one. With the verdicts ``invalid`` and ``unproved`` there is
    no score.
    """

    search: Literal["accelerators"] = "accelerators"
    question: Question
    accelerators: int | None
    limited_by: Limit
    at: Pooled | None
    above: Pooled | None
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
    """Return the result of a search; ``found`` is ``None`` if a failed check ended it."""
    by_count = _by_count(runs)
    counts = {count: pooled(of, question.threshold) for count, of in sorted(by_count.items())}
    above = None if found is None else by_count.get(found + question.unit)
    verdict = _verdict(by_count, found, above)
    limit, why = _limit(above, question) if verdict != "invalid" else ("unknown", "")
    at = counts.get(found or 0)
    return SearchResult(
        session_id=session_id,
        command=command,
        question=question,
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
    """Return what limited the count above the result, and a clause with the figures.

    The host is the limit if its own ceiling, the same loop without a drive, is below the demand of
    that many accelerators: no drive could have held them.
    """
    if not above:
        return (
            "maximum",
            f"sweep.maximum={question.maximum} is the limit; larger counts were not tried",
        )
    run = max(above, key=lambda each: each.ceiling_bytes_per_s or 0.0)
    ceiling, demand, rate = run.ceiling_bytes_per_s, run.demand_bytes_per_s, run.read_bytes_per_s
    if ceiling is None or demand is None or not rate:
        return "unknown", "the limit is unknown because the run has no harness ceiling"
    without = f"without a drive the same job loads {format_rate(ceiling)}"
    wanted = f"{run.accelerators} accelerators demand {format_rate(demand)}"
    if ceiling < demand:
        return "host", f"the host, not the drive, is the limit: {without} and {wanted}"
    if ceiling < CEILING_FACTOR * rate:
        return "target", (
            f"the drive is the limit, and the host was measured as well: {without}, only "
            f"{ceiling / rate:.1f} times the rate of the drive"
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
        return f"{job} has no score: a check of a run failed, so its figures can't be trusted."
    threshold = f"AU >= {format_percent(question.threshold)}"
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
    fails = f" {above.accelerators} do not ({percent(_smaller(above))});" if above else ""
    return (
        f"{job}: {more}{at.accelerators} {question.accelerator} hold {threshold}, with "
        f"{_figures(at)};{fails} {why}."
    )


def _smaller(at: Pooled) -> float | None:
    return min((au for au in (at.au_dlio, at.au_nominal) if au is not None), default=None)


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
    yield from doubts(held)
    if question.unit > 1:
        yield (
            f"Accelerators are added on all {question.unit} ranks at once, so the result is a "
            f"multiple of {question.unit}. A search with one rank finds the exact number."
        )
    for run in by_count.get(found or 0, ()):
        yield from (f"Run {run.run_id} lacks the mandatory check {what}" for what in run.unproved)
    tried = [run for runs in by_count.values() for run in runs if not run.holds(question.threshold)]
    if any(run.au_dlio is not None and run.au_dlio >= question.threshold for run in tried):
        yield (
            "A run does not hold although AU by DLIO's formula reaches the threshold: that formula "
            "counts oversleep as computation, so the smaller of it and the nominal AU decides."
        )


def doubts(held: Mapping[V, list[bool]], unit: str = "accelerators") -> Iterator[str]:
    """Yield a sentence for each result that a falling curve without noise can't have.

    ``held`` has, for each count, whether each of its runs held.
    """
    for count in sorted(held):
        runs = held[count]
        if len(set(runs)) > 1:
            yield (
                f"The runs with {count:g} {unit} disagree: {sum(runs)} of {len(runs)} held. "
                "This count is on the edge and does not count as held."
            )
    for smaller in sorted(held):
        larger = max((count for count in held if count > smaller and all(held[count])), default=0)
        if larger and not all(held[smaller]):
            yield (
                f"Not monotone: {smaller:g} {unit} failed although {larger:g} held. The result "
                "is the largest confirmed number below the first failure on the way up."
            )


def measured(record: RunRecord, accelerators: int, repetition: int) -> Measurement:
    fields: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for field, name in (
        ("au_dlio", AU_DLIO),
        ("au_nominal", AU_NOMINAL),
        ("samples_per_s", SAMPLES),
        ("read_bytes_per_s", RATE),
        ("ceiling_bytes_per_s", CEILING),
    ):
        metric = record.metric(name)
        fields[field] = metric.value if metric else None
        if fields[field] is None:
            missing[field] = metric.missing["value"] if metric else f"the run has no {name}"
    run = run_of(record)
    if run is not None and isinstance(run.facts, TrainingFacts):
        fields["demand_bytes_per_s"] = run.facts.demand_bytes_per_s
    if fields.setdefault("demand_bytes_per_s", None) is None:
        missing["demand_bytes_per_s"] = "the run has no step time"
    watts, evidence = _drive_power(record)
    if watts is None:
        missing["drive_w"] = record.power.choice
    if evidence is None:
        missing["drive_w_evidence"] = record.power.choice
    return Measurement(
        accelerators=accelerators,
        repetition=repetition,
        run_id=record.run_id,
        seconds=_seconds(record),
        drive_w=watts,
        drive_w_evidence=evidence,
        faults=faults_of(record),
        unproved=unproved_of(record),
        missing=missing,
        **fields,
    )


def faults_of(record: RunRecord) -> tuple[str, ...]:
    """Return the checks that failed, in words."""
    return tuple(f"{c.name}: {c.sentence}" for c in record.checks if c.fails_run)


def unproved_of(record: RunRecord) -> tuple[str, ...]:
    """Return the mandatory checks that were not made, in words, without those of power."""
    checks = (c for c in record.checks if c.bars_verdict and not c.is_of_power)
    return tuple(f"{c.name}: {c.sentence}" for c in checks)


def _timed_phase(record: RunRecord) -> str:
    metric = record.metric(RATE)
    return metric.phase if metric else ""


def _seconds(record: RunRecord) -> float:
    """Return the active seconds of the timed phase on the host where it took longest."""
    phase = _timed_phase(record)
    return max((w.active_s for w in record.timed_windows() if w.name == phase), default=0.0)


def _drive_power(record: RunRecord) -> tuple[float | None, str | None]:
    """Return the mean power of the drives in the timed phase, and its evidence."""
    phase = _timed_phase(record)
    found = next((each for each in phase_energies(record) if each.phase == phase), None)
    if found is None or not found.keys:
        return None, None
    return found.mean_w, found.evidence.value


def pooled(runs: Sequence[Measurement], threshold: float) -> Pooled:
    """Return one figure for all runs of a count, at least one; ``None`` if a run lacks it."""

    def mean(name: str, weights: Sequence[float]) -> float | None:
        values = [getattr(run, name) for run in runs]
        if any(value is None for value in values) or not sum(weights):
            return None
        weighted = zip(values, weights, strict=True)
        return float(sum(value * weight for value, weight in weighted) / sum(weights))

    seconds, each = [run.seconds for run in runs], [1.0] * len(runs)
    return Pooled(
        accelerators=runs[0].accelerators,
        runs=len(runs),
        held=all(run.holds(threshold) for run in runs),
        au_dlio=mean("au_dlio", each),
        au_nominal=mean("au_nominal", each),
        samples_per_s=mean("samples_per_s", seconds),
        read_bytes_per_s=mean("read_bytes_per_s", seconds),
        drive_w=mean("drive_w", seconds),
    )
