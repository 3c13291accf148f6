"""The results of weight streaming: what a token reads of a model that memory does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wattload.core.power import Scope
from wattload.core.record.results import Better, Check
from wattload.core.units import MICRO, Unit
from wattload.results import shapes, view
from wattload.results.checks import cold_cache, counted_bytes, passes
from wattload.results.facts import Facts, Settings, divided, fact
from wattload.results.facts import Run as AnyRun
from wattload.results.figures import Figure
from wattload.results.quantity import percent, quantity
from wattload.results.registry import Results

STREAM = "stream"
"""The timed phase: all tokens, with the emulated computation of their layers."""
_AT_LIMIT = 0.9


class StreamSettings(Settings):
    """The settings of the workload that are read here."""

    model: str
    batch: int
    tokens: int
    compute_us_per_layer: float


class StreamFacts(Facts):
    """The facts of one run. A layer of a dense model counts as its only expert."""

    settings: StreamSettings = fact("of the workload", exclude=True)
    digest: str = fact("SHA-256 of the model's headers: names, types, shapes and offsets")
    layers: int = fact("layers of the model", ge=1)
    experts: int = fact("experts of a layer; 1: a dense model", ge=1)
    experts_per_token: int = fact("experts of a layer that a token takes", ge=1)
    expert_bytes: int = fact("tensors of the largest expert", "B", ge=1)
    memory_bytes: int = fact("memory that holds experts", "B", ge=1)
    asked: int = fact("experts that layers took, over all tokens; once for a batch", ge=1)
    hits: int = fact("of these, experts that memory held", ge=0)
    reads: int = fact("experts that arrived whole", ge=0)
    read_bytes: int = fact("bytes that arrived", "B", ge=0)
    slept_s: float = fact("emulated computation, summed", "s", ge=0)
    shortest_pause_s: float | None = fact(
        "shortest time from a layer's last byte to the next read; None: no two layers read", "s"
    )
    compared_bytes: int = fact("bytes in memory at the end that were compared", "B", ge=0)
    wrong_bytes: int = fact("of these, bytes that are wrong", "B", ge=0)
    first_wrong: str | None = fact("tensor of the first wrong byte; None: all are right")
    drive_ceiling_bytes_per_s: float = fact(
        "all experts in random order, of a dense model in theirs, with the queue kept full", "B/s"
    )
    host_ceiling_tokens_per_s: float = fact("the same tokens without a drive, unpaced", "1/s")


Run = AnyRun[StreamFacts]


def tokens(run: Run) -> int:
    return run.facts.settings.tokens * run.facts.settings.batch


def _waiting_s(run: Run) -> float:
    return run.seconds(STREAM) - run.facts.slept_s


def rate(run: Run) -> float | None:
    return divided(tokens(run), run.seconds(STREAM))


def hit_share(run: Run) -> float | None:
    return run.facts.hits / run.facts.asked if run.facts.experts > 1 else None


def ceiling_share(run: Run) -> float | None:
    """Return read bytes ÷ the time without computation, over the drive's ceiling."""
    read = divided(run.facts.read_bytes, _waiting_s(run))
    return divided(read, run.facts.drive_ceiling_bytes_per_s)


def compute_share(run: Run) -> float | None:
    return divided(run.facts.slept_s, run.seconds(STREAM))


_COLUMNS: Sequence[tuple[str, str, Callable[[Run], float | None], Unit, Better, str]] = (
    ("tokens_per_s", "tokens", rate, Unit.SAMPLES_PER_SECOND, "higher",
     "tokens of all sequences / time"),
    ("read_bytes_per_token", "read per token", lambda run: run.facts.read_bytes / tokens(run),
     Unit.BYTES, "lower", "bytes that arrived / tokens of all sequences"),
    ("hit_fraction", "expert hit rate", hit_share, Unit.FRACTION, "higher",
     "experts that memory held / experts that layers took; experts used longest ago make room"),
    ("ceiling_fraction", "share of the drive's ceiling", ceiling_share, Unit.FRACTION, "higher",
     "read bytes / time without computation, over reads of the same extents with a full queue"),
)  # fmt: skip
FIGURES = tuple(
    Figure[StreamFacts](name=name, label=label, of=of, unit=unit, better=better, meaning=meaning,
                        phase=STREAM, headline=name == "tokens_per_s",
                        reason="a dense model")
    for name, label, of, unit, better, meaning in _COLUMNS
)  # fmt: skip


def _checks(run: Run) -> Iterator[Check]:
    """Check what was read, when, and what memory holds.

    Faults: an expert was not read, twice or in part; a layer was read ahead, while another was read
    or computed; the drive returned other bytes, or an expert is at another's place.
    """
    found, own, pause_s = run.facts, run.facts.settings, run.facts.shortest_pause_s
    due_s, layers = own.compute_us_per_layer * MICRO, own.tokens * found.layers
    yield _check(
        "stream_reads",
        f"Layers took {found.asked:,} experts, memory held {found.hits:,} of them, and "
        f"{found.reads:,} arrived whole, in {found.read_bytes:,} B",
        holds=found.reads == found.asked - found.hits
        and found.read_bytes >= found.reads * found.expert_bytes,
    )
    yield _check(
        "stream_schedule",
        f"At least {1e3 * (pause_s or 0):.3f} ms lay between two layers' reads, of which "
        f"computation takes {1e3 * due_s:.3f} ms; {layers:,} layers were computed in "
        f"{found.slept_s:.3f} s",
        holds=(pause_s is None or pause_s >= due_s) and found.slept_s >= layers * due_s,
    )
    yield _check(
        "stream_content",
        f"{found.wrong_bytes:,} of {found.compared_bytes:,} B were wrong where the last tokens "
        f"left them{f', the first in {found.first_wrong}' * bool(found.first_wrong)}",
        holds=found.compared_bytes > 0 == found.wrong_bytes,
        mandatory=True,
    )


def _check(name: str, text: str, *, holds: bool, mandatory: bool = False) -> Check:
    return Check(name=name, verdict=passes(holds), sentence=f"{text}.", mandatory=mandatory)


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    first, *others = (
        (own.model, f"{run.facts.layers} layers",
         f"{run.facts.experts_per_token} of {run.facts.experts} experts of a layer"
         if run.facts.experts > 1 else "all of each layer",
         f"batch of {own.batch}", f"{own.compute_us_per_layer:g} µs of computation a layer")
        for run in shown for own in [run.facts.settings]
    )  # fmt: skip
    return ", ".join(part for part in first if all(part in each for each in others))


def _limit(runs: Sequence[Run], _: float | None = None) -> view.Limit:
    share, computing = (
        min(of(run) or 0.0 for run in runs) for of in (ceiling_share, compute_share)
    )
    if computing >= 1 / 2:
        return view.Limit(f"limited by computation, {percent(computing)} of the time")
    if share > shapes.CEILING_ERROR:
        return view.Limit(f"limit unknown: {percent(share)} of a ceiling measured too low")
    if share >= _AT_LIMIT:
        return view.Limit(f"limited by the drive, at {percent(share)} of its ceiling", True)
    return view.Limit("limited by waiting for each layer's reads")


def _joules(run: view.ShownRun[StreamFacts]) -> float | None:
    return divided(run.joules(Scope.DRIVE, STREAM), tokens(run))


def _opening(shown: view.Shown[StreamFacts]) -> Iterator[shapes.Shape]:
    columns = [("J per token, in the window", _joules, Unit.JOULES),
               *((each[1], *each[2:4]) for each in _COLUMNS),
               ("memory", lambda run: run.facts.memory_bytes, Unit.BYTES)]  # fmt: skip
    yield shapes.Grid(
        columns=("arm", *(f"#{title}" for title, *_ in columns), "limit"),
        rows=[(arm.words, *(quantity(arm.mean(of, unit), unit, 3) for _, of, unit in columns),
               _limit(arm.runs).text.removeprefix("limited by ").removeprefix("limit "))
              for arm in shown.arms],
        caption="Tokens and gross energy of the drives",
    )  # fmt: skip


def _lines(run: Run) -> Mapping[str, str]:
    cells = {name: f"{label} {quantity(of(run), unit, 3)}" for name, label, of, unit, *_ in _COLUMNS
             if of(run) is not None}  # fmt: skip
    return {
        "a token": ", ".join(list(cells.values())[1:]),
        "limit": _limit([run]).text.removeprefix("limit "),
    }


RESULTS = Results(
    name="weight_stream", facts=StreamFacts, figures=FIGURES,
    checks=(_checks, counted_bytes(STREAM, "read", lambda run: run.facts.read_bytes)),
    observed=(cold_cache(),),
    view=view.View[StreamFacts](
        title="Weight streaming", job=_job, rate_titles={"tokens_per_s": "{prefix} tokens/s"},
        work=lambda run, _: ("token", float(tokens(run))),
        joule=view.Joule(one="token", many="tokens",
                         count=lambda run, phase: tokens(run) if phase == STREAM else None),
        payload_bytes=lambda run: run.facts.asked * run.facts.expert_bytes,
        conditions=lambda run: [view.Condition(
            name="workload model", value=run.facts.digest[:12], differs="models differ")],
        not_work=frozenset({"resident_bytes"}), limit=_limit,
        headroom=lambda run: [factor for factor in [divided(
            run.facts.host_ceiling_tokens_per_s * _waiting_s(run), tokens(run))] if factor],
        opening=_opening, lines=_lines,
    ),
)  # fmt: skip
