"""The figures of random reads of blocks, and what limited their rate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from wattload.core.units import Unit
from wattload.results.facts import divided
from wattload.results.figures import Figure
from wattload.results.gpu_read.facts import NULL, STORAGE, ReadFacts, Run

MILLION = 1e6
LINK, POLLERS, QUEUE = "link", "pollers", "queue"
NEAR, MOST = 0.9, 1.05
"""From this share of a ceiling on, it limits the rate."""
BUSY = 0.9
"""A poller that has something to do for more of the time limits the rate."""


def phase_of(run: Run) -> str:
    """Return the name of the timed phase: it is that of the run."""
    return run.record.workload.name


def seconds(run: Run) -> float:
    """Return the time from the first read to the end of the last.

    The phase of a program that owns its loop has the program's start and end in it.
    """
    ranks = run.facts.ranks
    return ranks[0].seconds if len(ranks) == 1 else run.seconds(phase_of(run))


def reads_per_s(run: Run) -> float:
    return run.facts.operations / seconds(run)


def deliveries_per_s(run: Run) -> float:
    return run.facts.delivered / seconds(run)


def delivered_bytes_per_s(run: Run) -> float | None:
    """Return bytes delivered in a second; ``None`` where requests are answered without a block."""
    if run.facts.engine == NULL:
        return None
    return deliveries_per_s(run) * run.facts.settings.block_bytes


def mean_latency_s(run: Run) -> float | None:
    """Return the mean time from a request until its block is delivered, if it was taken."""
    if run.facts.latency_missing:
        return None
    row = run.latency(phase_of(run), "read" if run.facts.by_threads else "request")
    return run.facts.reported_latency_s if row is None else row.mean_s


def seen_in_flight(run: Run) -> float | None:
    """Return the mean number of reads that the kernel and the drives had, by Little's law.

    Requesters ask again at once, so their own latency would give what they ask by definition. It is
    ``None`` where there is no other: without storage, and for mapped files.
    """
    row = None if run.facts.by_threads else run.latency(phase_of(run), "read")
    return None if row is None else reads_per_s(run) * row.mean_s


def cores(run: Run) -> float:
    """Return the cores that the reader kept at work: CPU seconds ÷ seconds."""
    return run.facts.cpu_s / seconds(run)


def cpu_s_per_million(run: Run) -> float | None:
    return divided(run.facts.cpu_s * MILLION, run.facts.operations)


def hit_rate(run: Run) -> float | None:
    """Return the share of requests whose block was in the cache; ``None`` without one."""
    queue = run.facts.queue
    return divided(queue.get("hits"), run.facts.requests) if queue is not None else None


def busiest(run: Run) -> float | None:
    """Return the largest share of the time that a poller was at work."""
    shares = [poller.busy_s / rank.seconds for rank, poller in run.facts.pollers]
    return max(shares, default=None)


def ceiling_shares(run: Run) -> tuple[float | None, float | None]:
    """Return the rate ÷ the ceiling of the link, and ÷ that of the queue."""
    rate, facts = reads_per_s(run), run.facts
    return divided(rate, facts.total("pull_per_s")), divided(rate, facts.total("queue_per_s"))


def bottleneck(run: Run) -> tuple[str, str]:
    """Return what limits the rate of requesters, empty if that is unknown, and why."""
    engine = run.facts.engine
    of_link, of_queue = ceiling_shares(run)
    busy, in_flight = busiest(run), seen_in_flight(run)
    if engine != NULL and of_link is not None and NEAR <= of_link <= MOST:
        return LINK, f"{of_link:.2f} of what the GPU pulls without a queue"
    if of_queue is not None and NEAR <= of_queue <= MOST:
        return QUEUE, f"{of_queue:.2f} of what the queue does with nothing to deliver"
    if busy is not None and busy >= BUSY:
        return POLLERS, f"the busiest poller worked for {busy:.2f} of the time"
    if engine != STORAGE:
        return "", "no storage was read, and neither queue, pollers nor link limit the rate"
    if in_flight is None:
        return "", "how many reads were in flight is not known"
    share = in_flight / run.facts.in_flight
    reason = f"{share:.2f} of the reads that were asked for at once were in flight"
    return (STORAGE if share >= NEAR else ""), reason


def figures(run: Run) -> Sequence[Figure[ReadFacts]]:
    """Return the figures of a run."""
    figure = partial(Figure[ReadFacts], phase=phase_of(run))
    own = _of_threads(run, figure) if run.facts.by_threads else _of_requesters(run, figure)
    failed = figure(
        name="failed_reads",
        of=lambda run: float(run.facts.failed),
        unit=Unit.COUNT,
        better="lower",
        meaning="reads that failed; none is repeated, and none is in another figure",
    )
    return [*own, failed, *(_of_cache(figure) if run.facts.has_cache else ())]


def _of_threads(run: Run, figure: partial[Figure[ReadFacts]]) -> Sequence[Figure[ReadFacts]]:
    return [
        figure(
            name="read_bytes_per_s",
            of=lambda run: run.facts.drive_bytes / seconds(run),
            unit=Unit.BYTES_PER_SECOND,
            better="higher",
            meaning="bytes read into GPU memory / time",
            headline=True,
        ),
        figure(
            name="read_iops",
            of=reads_per_s,
            unit=Unit.SAMPLES_PER_SECOND,
            better="higher",
            meaning="reads that ended in GPU memory / time",
        ),
        figure(
            name="mean_latency_s",
            of=mean_latency_s,
            unit=Unit.SECONDS,
            better="lower",
            meaning="mean time from the start of a read until its bytes are in GPU memory",
            reason="the program reported no latency",
        ),
        figure(
            name="cpu_s_per_gb",
            of=lambda run: divided(run.facts.cpu_s, run.facts.drive_bytes),
            unit=Unit.SECONDS_PER_BYTE,
            better="lower",
            meaning="CPU time of the reader's process / bytes read",
        ),
    ]


def _of_requesters(run: Run, figure: partial[Figure[ReadFacts]]) -> Sequence[Figure[ReadFacts]]:
    return [
        figure(
            name="reads_per_s",
            of=reads_per_s,
            unit=Unit.SAMPLES_PER_SECOND,
            better="higher",
            meaning="reads whose block was delivered / time; what a cache of the GPU holds is not "
            "read",
            headline=True,
        ),
        figure(
            name="delivered_bytes_per_s",
            of=delivered_bytes_per_s,
            unit=Unit.BYTES_PER_SECOND,
            better="higher",
            meaning="bytes of the blocks that reached who asked for them / time",
            reason="nothing is delivered with loader.engine=null",
        ),
        figure(
            name="read_bytes_per_s",
            of=lambda run: (
                run.facts.drive_bytes / seconds(run) if run.facts.reads_storage else None
            ),
            unit=Unit.BYTES_PER_SECOND,
            better="higher",
            meaning="bytes that drives read / time: what O_DIRECT takes for each block, or the "
            "kernel's count",
            reason="no storage was read",
        ),
        figure(
            name="mean_latency_s",
            of=mean_latency_s,
            unit=Unit.SECONDS,
            better="lower",
            meaning="mean time from a request until its block is delivered, of one request of a "
            "thread in 64",
            reason=run.facts.latency_missing or "no request was timed",
        ),
        figure(
            name="cpu_s_per_million_reads",
            of=cpu_s_per_million,
            unit=Unit.SECONDS,
            better="lower",
            meaning="CPU time of the readers' processes for a million reads",
        ),
    ]


def _of_cache(figure: partial[Figure[ReadFacts]]) -> Sequence[Figure[ReadFacts]]:
    return [
        figure(
            name="requests_per_s",
            of=deliveries_per_s,
            unit=Unit.SAMPLES_PER_SECOND,
            better="higher",
            meaning="requests whose block was delivered, from the cache or by a read / time",
        ),
        figure(
            name="hit_rate",
            of=hit_rate,
            unit=Unit.FRACTION,
            better="higher",
            meaning="requests whose block was in the cache / requests; merged and coalesced ones, "
            "which share a read, are not hits",
        ),
    ]
