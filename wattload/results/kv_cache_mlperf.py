"""The results of MLPerf Storage v3.0's loop of requests to a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial

from wattload.core.base_models import Frozen
from wattload.core.record.results import Latency, Verdict, merge_latencies
from wattload.core.units import Unit
from wattload.results.checks import CheckFigures, CheckRule, passes
from wattload.results.facts import Facts, Settings, divided, fact
from wattload.results.facts import Run as AnyRun
from wattload.results.figures import Figure
from wattload.results.quantity import number, percent, quantity
from wattload.results.registry import Results
from wattload.results.shapes import Grid, Shape
from wattload.results.view import Shown, View

NAME = "kv_cache_mlperf"
PHASE = "mlperf_v3"
COMPARED_BLOCKS = 3
"""Blocks that are compared at each read: the first, the last and one between."""


class Origin(Enum):
    """Why an entry is looked up: a system prompt, an earlier turn, or what was just written."""

    system_prompt = "system_prompt"
    earlier_turn = "earlier_turn"
    own_entry = "own_entry"


WORDS = {origin: origin.name.replace("_", " ") for origin in Origin}
PUBLISHED = {"HPE": 3.88, "FarmGPU (15 hosts)": 4.43, "FarmGPU (1 host)": 4.67, "Samsung": 4.72,
             "Suzhou Zishan Longlin": 4.92}  # fmt: skip
"""Bytes read / written in option 1, from summary.json of MLPerf Storage v3.0's submissions."""


class LoopSettings(Settings):
    """The settings of the workload that are read here."""

    option: int
    length_divisor: int
    duration_s: float


class Lookups(Frozen):
    """The look-ups of entries for one reason; bytes are of whole files."""

    lookups: int = fact("entries looked up", ge=0)
    misses: int = fact("those that were not written yet, evicted, or are never written", ge=0)
    drive_bytes: int = fact("read from files, to where each was read", "B", ge=0)
    memory_bytes: int = fact("found in the counted cache in memory", "B", ge=0)


class ClientFacts(Frozen):
    """What one process counted; its latencies are of files of different sizes, up to the stated."""

    drawn: int = fact("requests that its users drew", ge=0)
    answered: int = fact("those that were answered in full", ge=0)
    decoded: int = fact("those of them that read their entry again", ge=0)
    generated_tokens: int = fact("tokens that the answered requests generated", ge=0)
    own_drawn_bytes: int = fact("re-reads of own entries by the lengths that were drawn", "B", ge=0)
    io_s: float = fact("I/O of all its threads for answered requests, added up", "s", ge=0)
    reads: Mapping[Origin, Lookups] = fact("by why entries were looked up")
    written_bytes: int = fact("written to files", "B", ge=0)
    demoted_bytes: int = fact("those of entries that left the memory for the drive", "B", ge=0)
    evicted: int = fact("files that were unlinked for lack of room", ge=0)
    file_reads: int = fact("files that were read", ge=0)
    compared_blocks: int = fact("blocks of 4096 bytes that were compared, of each read 3", ge=0)
    bad_blocks: int = fact("those that were not as written", ge=0)
    is_full: bool = fact("whether its loop ended early, at workload.most_written_bytes")
    read_latency: Latency | None = fact("of whole files, from fadvise to the last byte")
    save_latency: Latency | None = fact("of np.save into the page cache")
    sync_latency: Latency | None = fact("of flush and fsync after it")


class LoopFacts(Facts):
    """The facts of one run of the loop."""

    settings: LoopSettings = fact("of the workload", exclude=True)
    model: str = fact("the model of the option")
    users: int = fact("users of each process", ge=1)
    clients: tuple[ClientFacts, ...] = fact("the processes, by rank", min_length=1)

    def total(self, name: str) -> int:
        """Return a count of all processes."""
        return sum(getattr(client, name) for client in self.clients)

    def looked_up(self, origin: Origin | None, name: str) -> int:
        """Return a count of look-ups for one reason, or for all."""
        wanted = Origin if origin is None else (origin,)
        return sum(getattr(client.reads[each], name) for client in self.clients for each in wanted)


Run = AnyRun[LoopFacts]
Amount = Callable[[Run], float | None]


def read_bytes(run: Run) -> int:
    return run.facts.looked_up(None, "drive_bytes")


def written_bytes(run: Run) -> int:
    return run.facts.total("written_bytes")


def _over(amount: Amount, by: Amount) -> Amount:
    return lambda run: divided(amount(run), by(run))


def _p95(name: str) -> Amount:
    def of(run: Run) -> float | None:
        rows = filter(None, (getattr(client, name) for client in run.facts.clients))
        return next((row.percentiles_s["p95_s"] for row in merge_latencies(list(rows))), None)

    return of


def _seconds(run: Run) -> float:
    return run.seconds(PHASE)


def _duration_s(run: Run) -> float:
    return run.facts.settings.duration_s


def _origin_bytes(origin: Origin) -> Amount:
    return lambda run: run.facts.looked_up(origin, "drive_bytes")


figure = partial(Figure[LoopFacts], phase=PHASE, better="neither")
rate = partial(figure, unit=Unit.BYTES_PER_SECOND, better="higher")
p95 = partial(figure, unit=Unit.SECONDS, better="lower", reason="it needs at least 20 operations")
FIGURES = (
    rate(
        name="read_bytes_per_s", of=_over(read_bytes, _seconds), headline=True,
        meaning="bytes read from files / time to the end of the last request in progress",
    ),
    rate(
        name="write_bytes_per_s", of=_over(written_bytes, _seconds), headline=True,
        meaning="bytes written to files, with fsync / the same time",
    ),
    rate(
        name="mlperf_read_bytes_per_s", of=_over(read_bytes, _duration_s),
        label="read rate by MLPerf's formula",
        meaning="the same bytes / workload.duration_s, although requests in progress then go on",
    ),
    rate(
        name="mlperf_write_bytes_per_s", of=_over(written_bytes, _duration_s),
        label="write rate by MLPerf's formula",
        meaning="bytes written / workload.duration_s",
    ),
    figure(
        name="read_over_written", of=_over(read_bytes, written_bytes), unit=Unit.COUNT,
        label="read ÷ written", meaning="bytes read / bytes written; published: "
        f"{', '.join(f'{name} {ratio}' for name, ratio in PUBLISHED.items())}",
    ),
    p95(
        name="read_p95_s", of=_p95("read_latency"),
        meaning="p95 of reading a whole entry, from fadvise to its last byte",
    ),
    p95(
        name="write_device_p95_s", of=_p95("sync_latency"),
        meaning="p95 of what MLPerf calls a write's device latency: its fsync alone",
    ),
    p95(
        name="write_host_p95_s", of=_p95("save_latency"),
        meaning="p95 of what MLPerf calls a write's host latency: np.save to the page cache",
    ),
    figure(
        name="storage_tokens_per_s", unit=Unit.SAMPLES_PER_SECOND,
        of=_over(lambda r: r.facts.total("generated_tokens"), lambda r: r.facts.total("io_s")),
        label="storage tokens/s by MLPerf's formula",
        meaning="tokens generated / I/O seconds of all threads; falls when storage does more",
    ),
    *(
        figure(
            name=f"{origin.value}_read_bytes", unit=Unit.BYTES,
            of=_origin_bytes(origin),
            meaning=f"bytes read from files: {words}",
        )
        for origin, words in WORDS.items()
    ),
)  # fmt: skip


def _own_figures(run: Run) -> CheckFigures:
    names = ("drive_bytes", "memory_bytes")
    counted = sum(run.facts.looked_up(Origin.own_entry, name) for name in names)
    return {"counted_bytes": counted, "drawn_bytes": run.facts.total("own_drawn_bytes")}


def _own(figures: CheckFigures, verdict: Verdict) -> str:
    ending = "" if verdict == "pass" else ": an entry was read too often, too seldom or in part"
    return (
        f"Requests re-read {figures['counted_bytes']} bytes of their own entries; by the drawn "
        f"lengths, ceil(generated / 32) + 1 reads of each are {figures['drawn_bytes']}{ending}."
    )


def _content_figures(run: Run) -> CheckFigures:
    return {name: run.facts.total(name) for name in ("file_reads", "compared_blocks", "bad_blocks")}


def _is_content(figures: CheckFigures) -> Verdict:
    if not figures["file_reads"]:
        return "not_checked"
    is_whole = figures["compared_blocks"] == COMPARED_BLOCKS * int(figures["file_reads"])
    return passes(is_whole and not figures["bad_blocks"])


CHECKS = (
    CheckRule[LoopFacts](
        name="own_rereads",
        fault="a request did not read its own entry as often, or as far, as MLPerf's loop does",
        figures=_own_figures,
        judge=lambda figures: passes(figures["counted_bytes"] == figures["drawn_bytes"]),
        sentence=_own,
        mandatory=True,
    ),
    CheckRule[LoopFacts](
        name="entry_content",
        fault="the drive returned another entry, or other bytes than were written",
        figures=_content_figures,
        judge=_is_content,
        sentence=lambda figures, _: (
            f"{figures['file_reads']} files were read, and {figures['compared_blocks']} of their "
            f"blocks compared with stamp and sum; {figures['bad_blocks']} were wrong."
        ),
        mandatory=True,
    ),
)


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    facts = shown[0].facts
    shorter = facts.settings.length_divisor
    entries = f", entries of 1/{shorter}" if shorter > 1 else ""
    return f"option {facts.settings.option}, {facts.model}, {facts.users} users a process{entries}"


def _lines(run: Run) -> Mapping[str, str]:
    """Return where the bytes that were read are from, for a terminal."""
    shares = (
        f"{percent(divided(run.facts.looked_up(origin, 'drive_bytes'), read_bytes(run)))} {words}"
        for origin, words in WORDS.items()
    )
    return {"bytes read": ", ".join(shares)}


def _looked_up(origin: Origin) -> Callable[[Run], str]:
    def text(run: Run) -> str:
        found, misses = partial(run.facts.looked_up, origin), run.facts.looked_up(origin, "misses")
        moved = quantity(found("drive_bytes"), Unit.BYTES)
        return f"{moved}, missed {misses:,} of {found('lookups'):,}"

    return text


_CELLS: Sequence[tuple[str, Callable[[Run], str]]] = (
    *((f"read: {words}", _looked_up(origin)) for origin, words in WORDS.items()),
    (
        "from the counted cache in memory",
        lambda run: quantity(run.facts.looked_up(None, "memory_bytes"), Unit.BYTES),
    ),
    ("written", lambda run: quantity(written_bytes(run), Unit.BYTES)),
    (
        "of it when it left that cache",
        lambda run: quantity(run.facts.total("demoted_bytes"), Unit.BYTES),
    ),
    ("read ÷ written", lambda run: number(divided(read_bytes(run), written_bytes(run)), 3)),
    (
        "requests answered, of those drawn",
        lambda run: f"{run.facts.total('answered'):,} of {run.facts.total('drawn'):,}",
    ),
)


def _closing(shown: Shown[LoopFacts]) -> Iterator[Shape]:
    runs = [traced.run for traced in shown.traced]
    yield Grid(
        columns=["", *(f"#{each.title}" if len(runs) > 1 else "#value" for each in shown.traced)],
        rows=[[title, *map(cell, runs)] for title, cell in _CELLS],
        caption="What MLPerf's loop moved",
        note="For comparison with published results only. Nearly all reads are of what the same "
        "request has just written, so this hardly tests the reuse of a cache; no entry of a "
        "system prompt is ever written. Read ÷ written is judged by nothing; published: "
        f"{', '.join(f'{name} {ratio}' for name, ratio in PUBLISHED.items())}.",
    )


RESULTS = Results(
    name=NAME,
    facts=LoopFacts,
    figures=FIGURES,
    checks=CHECKS,
    view=View[LoopFacts](
        title="MLPerf's KV cache loop",
        labels={PHASE: "MLPerf's loop"},
        job=_job,
        has_size=False,
        is_fixed_time=True,
        closing=_closing,
        lines=_lines,
    ),
)
