"""The checks of vector search: what was read, delivered and answered, and when."""

from __future__ import annotations

import math
from collections.abc import Iterator

from wattload.core.record.results import Check, Verdict
from wattload.core.units import MILLI
from wattload.results import checks
from wattload.results.vector_search.facts import FIRST_PASS, SEARCH, Run, VectorFacts
from wattload.results.vector_search.figures import CHANCE, recall

LITTLE, LEAST_RECALL = 0.05, 0.5


def _reads(run: Run) -> Iterator[Check]:
    """Check reads against nodes, bytes and rounds. Fault: a node was not read, twice or in part."""
    beam, size = run.facts.settings.beam, run.facts.index.read_bytes
    for phase, found in run.facts.passes.items():
        holds = found.reads == found.expanded - found.cached
        holds &= found.read_bytes == found.reads * size and found.rounds * beam >= found.reads
        text = (
            f"{found.expanded:,} nodes were expanded, {found.cached:,} of them in memory; "
            f"{found.reads:,} reads in {found.rounds:,} rounds of at most {beam} had "
            f"{found.read_bytes:,} B"
        )
        yield _check(f"reads_{phase}", checks.passes(holds), text, "these do not add up")


def _check(name: str, verdict: Verdict, text: str, fault: str, *, mandatory: bool = False) -> Check:
    sentence = text + ("." if verdict == "pass" else f": {fault}.")
    return Check(name=name, verdict=verdict, sentence=sentence, mandatory=mandatory)


def _delivered_nodes(run: Run) -> Iterator[Check]:
    """Check digests of nodes. Fault: the drive returned another node, or none was compared."""
    found = run.facts.passes.values()
    compared, wrong = sum(each.compared for each in found), sum(each.wrong for each in found)
    text = f"{compared:,} nodes were compared as they were delivered"
    verdict = checks.passes(compared > 0 and not wrong)
    yield _check("delivered_nodes", verdict, text, f"{wrong:,} were wrong", mandatory=True)


def _recall(run: Run) -> Iterator[Check]:
    """Check answers. Fault: a query was lost; or the list is too short, or codes are others'."""
    if (answers := run.facts.answers) is None or (data := run.facts.data) is None:
        return
    answered, found = sum(answers.hits), recall(run) or 0.0
    verdict = checks.passes(found >= LEAST_RECALL, "warn")
    text = f"{answered:,} of {data.queries:,} queries have answers, with a recall of {found:.4f}"
    text += f"; {answers.short:,} have fewer than k" * bool(answers.short)
    fault = "set a larger workload.search_list or workload.pq_bytes, or use data with structure"
    yield _check("recall", verdict if answered == data.queries else "fail", text, fault)


def _schedule(run: Run) -> Iterator[Check]:
    """Check arrivals of an open loop. Fault: they waited for queries, so latency is too low.

    The i-th is due at i ÷ rate and varies by √i ÷ rate; the sum of n by √(n³ ÷ 3) ÷ rate.
    """
    rate, sum_s = run.facts.settings.query_rate, run.facts.schedule_s
    if rate is None or sum_s is None:
        return
    count = run.facts.passes[SEARCH].queries + run.facts.passes[SEARCH].cut
    due_s, spread_s = count * (count + 1) / 2 / rate, CHANCE * math.sqrt(count**3 / 3) / rate
    text = (
        f"The {count:,} arrivals that latencies count from add up to {sum_s:,.1f} s, and at "
        f"{rate:g} a second to {due_s:,.1f} ± {spread_s:,.1f} s; the latest query began "
        f"{run.facts.passes[SEARCH].late_s / MILLI:.1f} ms after its arrival"
    )
    verdict = checks.passes(abs(sum_s - due_s) <= spread_s)
    yield _check("schedule", verdict, text, "they slid, or some were skipped", mandatory=True)


def _littles_law(run: Run) -> Iterator[Check]:
    """Check times of a closed loop. Fault: threads idled, or queries' time was not all counted."""
    facts, found = run.facts, run.facts.passes[SEARCH]
    if facts.settings.query_rate is not None or found.latency is None:
        return
    due_s = facts.threads * facts.inflight_per_thread * run.seconds(SEARCH)
    least_s, cut_s = found.latency.sum_s, found.cut * found.latency.max_s
    holds = least_s <= (1 + LITTLE) * due_s and least_s + cut_s >= (1 - LITTLE) * due_s
    text = (
        f"Queries took {least_s:,.3f} s, and {found.cut:,} that were cut at most {cut_s:,.3f} s; "
        f"{facts.threads} threads x {facts.inflight_per_thread} queries have {due_s:,.3f} s"
    )
    yield _check("littles_law", checks.passes(holds, "warn"), text, "threads idled")


CHECKS: tuple[checks.CheckSource[VectorFacts], ...] = (
    _reads, _delivered_nodes, _recall, _schedule, _littles_law,
    checks.counted_bytes(FIRST_PASS, "read", lambda run: run.facts.passes[FIRST_PASS].read_bytes),
    checks.counted_bytes(SEARCH, "read", lambda run: run.facts.passes[SEARCH].read_bytes),
    checks.cpu_within_tree(SEARCH, lambda run: run.facts.passes[SEARCH].cpu_s),
)  # fmt: skip
OBSERVED: tuple[checks.Observed[VectorFacts], ...] = (
    checks.cold_cache(),
    checks.Observed(
        name="stored_nodes",
        fault="the drive returned other nodes than were written",
        applies=lambda run: run.facts.answers is not None,
    ),
    checks.Observed(
        name="medoid",
        fault="searches begin elsewhere than at the vector nearest to the mean",
        applies=lambda run: bool(run.facts.answers and run.facts.index.build_list),
    ),
)
