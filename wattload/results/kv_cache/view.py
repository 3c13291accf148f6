"""How a cache of keys and values is shown: what each phase cost, added latency, the knee, wear."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice

from wattload.core.power import Scope
from wattload.core.units import MICRO, MILLI, Unit
from wattload.results.amplification import amplification
from wattload.results.facts import cached_share, divided, sum_if_known
from wattload.results.kv_cache import figures
from wattload.results.kv_cache.facts import FILL, RESTORE, STEADY, STORE, KvFacts, Run, Times
from wattload.results.kv_cache.published import PUBLISHED
from wattload.results.quantity import MISSING, block_text, listed, number, percent, quantity, whole
from wattload.results.shapes import (
    CEILING_ERROR,
    Fact,
    Grid,
    Group,
    PointLine,
    PointLines,
    Row,
    Shape,
    Text,
    Word,
    sheet,
    unique,
)
from wattload.results.view import Arm, Condition, Joule, Limit, Served, Shown, ShownRun, View

Cached = ShownRun[KvFacts]
CacheArm = Arm[KvFacts]

_AT_CEILING = 0.9
"""From this share of the drive's ceiling on, the drive limits restores."""
_OVERLOADED = "overloaded"
_SHARES = {"p50_s": "p50", "p90_s": "p90", "p99_s": "p99", "p999_s": "p99.9"}
_ALONE = {RESTORE: "restored", STORE: "stored"}
"""The blocks of phases that do nothing else."""

_DEFINITIONS = (
    "Request: when it arrives, the longest cached prefix of its full blocks is looked up, in order "
    "to the first miss. Its restores are in flight together. Missed tokens are computed, if "
    "prefill has a rate, and missed blocks stored behind reads. It is done when its output is "
    "decoded. What is restored, stored and evicted is decided at its admission; a block whose "
    "store is not finished is a miss.",
    "Eviction: a request touches its blocks tail first, head last. The least recently used block "
    "goes that has no cached block behind it, and no read or store under way.",
    "Restored token: a token of a full block of that prefix, of which all shards and layers were "
    "read from the drive and delivered. What the memory tier has is a hit, and not restored. A "
    "block counts once a request, never once a rank. Hit rate: tokens of hits ÷ input tokens.",
    "J per restored token: gross joules of the drives ÷ restored tokens, with restores alone, in "
    "the order of the mix and from an empty page cache. J per stored token: with stores alone, "
    "fsync included. J per request and per hit token are of the mix, with its writes and idle "
    "time: the two kinds are not compared.",
    "Added to TTFT: the time to the last block that a request needs, an upper bound of what the "
    "drive adds to its time to first token, as engines compute on the first layers meanwhile. "
    "Response counts from the arrival, which in open loops and traces is the scheduled one; "
    "service from the first read issued.",
    "Overloaded: at the end of the mix more requests are in the system than at its start, by over "
    "8 and by three standard deviations of chance. Latency then depends on the length of the run, "
    "so there is none; rates are kept.",
    "Drive writes a day: bytes stored at this rate of requests ÷ capacity of the drive, without "
    f"its write amplification. In a closed loop, where the drive sets the rate: {figures.UNPACED}.",
)


def _seconds(value: float | None) -> str:
    return quantity(value, Unit.SECONDS, 3)


def _bytes(value: float | None) -> str:
    return quantity(value, Unit.BYTES, 3)


def _capacity(run: Run) -> str:
    return _bytes(run.facts.capacity_blocks * run.facts.moved_block_bytes)


def _loop(run: Run) -> str:
    settings = run.facts.settings
    if run.facts.loop.users is not None:
        return f"closed loop of {run.facts.loop.users} users"
    if settings.request_rate is not None:
        return f"open loop at {number(settings.request_rate, 3)} requests/s"
    return f"trace at {settings.speed:g} times its speed"


def _job_parts(run: Run) -> Sequence[str]:
    facts, settings = run.facts, run.facts.settings
    piece = block_text(facts.moved_block_bytes // facts.pieces)
    parts = {
        settings.model: settings.bytes_per_token is None,
        f"{whole(settings.bytes_per_token)} bytes a token": settings.bytes_per_token is not None,
        f"tensor parallel {settings.tp}": settings.tp > 1,
        f"latent vectors {facts.mla}": facts.mla,
        f"blocks of {settings.block_tokens} tokens ({_bytes(facts.block_bytes)})": True,
        f"{whole(facts.pieces)} pieces of {piece}": facts.pieces > settings.tp,
        _loop(run): True,
        f"cache of {_capacity(run)}": True,
        f"memory tier of {_bytes(settings.memory_tier_bytes)}": settings.memory_tier_bytes,
    }
    return [part for part, applies in parts.items() if applies]


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    """Return what the runs have in common: ``llama3.1-8b, blocks of 256 tokens (33.6 MB), ...``."""
    first, *others = map(_job_parts, shown)
    return ", ".join(part for part in first if all(part in other for other in others))


def _conditions(run: Run) -> Iterator[Condition]:
    evicts = any(figures.counted(run, phase, "evicted_blocks") for phase in (FILL, STEADY))
    differs = "only some runs evicted blocks"
    yield Condition(name="evictions", value="yes" if evicts else "none", differs=differs)


def _limit(runs: Sequence[Run], _: float | None) -> Limit | None:
    shares = [share for run in runs if (share := figures.ceiling_share(run)) is not None]
    if not shares:
        return None
    text = f"at {percent(min(shares))} of its random reads of this size and depth"
    if max(shares) > CEILING_ERROR:
        text += ", which are no ceiling"
    elif min(shares) >= _AT_CEILING:
        return Limit(f"limited by the drive, {text}", is_drive=True)
    return Limit(f"limit unknown: {text}")


def _headroom(run: Run) -> list[float]:
    """Return how far the rate of this host without a drive is above that of restores alone."""
    rate = divided(run.record.moved_bytes(RESTORE, "read"), run.seconds(RESTORE))
    factor = divided(run.facts.harness_ceiling_bytes_per_s, rate)
    return [] if factor is None else [factor]


def _lines(run: Run) -> Mapping[str, str]:
    """Return the terminal's lines: added latency, the mix with its loop, stores, and wear."""
    added = [f"{words} {_seconds(figures.added_s(run, name))}" for name, words in _SHARES.items()]
    think_s = divided(run.facts.loop.think_s, figures.counted(run, STEADY, "requests"))
    law = f" (N ÷ (R + Z) = {number(figures.littles_rate(run), 3)}, Z = {_seconds(think_s)})"
    mix = [
        f"{_loop(run)}: {number(figures.requests_per_s(run), 3)} requests/s"
        + ("" if run.facts.loop.users is None else law),
        f"hit rate {percent(figures.hit_rate(run))}",
        f"{whole(figures.counted(run, STEADY, 'evicted_blocks'))} blocks evicted",
    ]
    if not run.facts.reads_directly:
        share = percent(cached_share(run, STEADY))
        mix.append(f"the page cache had at least {share} of what was read")
    a_day, drive_writes = figures.written_bytes_per_day(run), figures.drive_writes_per_day(run)
    wear = f"{_bytes(a_day)} a day, {number(drive_writes, 3)} drive writes a day"
    stored = whole(figures.per_second(run, STORE, "stored"))
    is_overloaded = figures.is_overloaded(run)
    return {
        "also": "",
        "latency": figures.overload_text(run) if is_overloaded else f"TTFT + {', '.join(added)}",
        "mix": "; ".join(mix),
        "stores": f"{stored} tokens/s made durable, alone",
        "wear": figures.UNPACED if a_day is None else wear,
    }


# The page


def _joules(run: Cached, phase: str) -> float | None:
    return run.joules(Scope.DRIVE, phase)


def _phase_cells(run: Cached, phase: str) -> Iterator[str]:
    """Yield what a phase did and cost, gross and net of idle; per token of what it did alone."""
    gross_j = _joules(run, phase)
    net_j = sum_if_known(each.net_j for each in run.record.drive_energies(phase))
    joules = (gross_j, None if gross_j is None else net_j)
    done = figures.tokens(run, phase, _ALONE[phase]) if phase in _ALONE else None
    yield _seconds(run.seconds(phase))
    yield from (whole(figures.tokens(run, phase, kind)) for kind in ("restored", "stored"))
    yield from (quantity(each, Unit.JOULES, 3) for each in joules)
    yield from (number(divided(divided(each, done), MICRO), 3) for each in joules)


def _phases(shown: Shown[KvFacts]) -> Grid:
    runs = [each.run for each in shown.traced]
    systems = [each.facts.file_system for run in runs for each in run.record.targets]
    mounts = listed(unique(",".join(each.mount_options) for each in systems if each), "or")
    kept = "" if "discard" in mounts else ": the drive keeps evicted blocks until fstrim"
    evidence = listed(unique(run.evidence(RESTORE) for run in runs)) or "not measured"
    done = [
        (each, phase, amplification(each.run, phase))
        for each in shown.traced
        for phase in (FILL, STEADY, RESTORE, STORE)
        if phase in each.run.facts.counts
    ]
    worn = [factor for _, _, factor in done]
    is_worn = any(each.text != MISSING for each in worn)
    unknown = next((each.remark for each in worn if each.remark and not is_worn), "")
    return Grid(
        columns=("arm", "phase", "#time", "#restored tokens", "#stored tokens", "#drive energy",
                 "#net of idle", "#µJ per token", "#µJ net of idle",
                 *["#write amplification"] * is_worn),
        rows=[
            (each.title, phase, *_phase_cells(each.run, phase), *[factor] * is_worn)
            for each, phase, factor in done
        ],
        caption=f"What each phase did and cost, {listed(unique(map(_loop, runs)))}",
        note=f"Energy in the window: {evidence}. Steady is the mix; tokens are restored ones in "
        f"restore and stored ones in store. Mounted with {mounts}{kept}."
        + (f" Write amplification is unknown: {unknown}." if unknown else ""),
    )  # fmt: skip


def _mix(shown: Shown[KvFacts]) -> Shape:
    """Return the mix at each point: its rates, and what a request and a hit token cost in it."""

    def mean(
        of: Callable[[Cached], float | None], unit: Unit | None = None
    ) -> Callable[[CacheArm], str]:
        return lambda arm: (
            number(arm.mean(of), 3) if unit is None else quantity(arm.mean(of), unit, 3)
        )

    def joules_per(
        count: Callable[[Run], float | None], unit_j: float
    ) -> Callable[[CacheArm], str]:
        return mean(lambda run: divided(divided(_joules(run, STEADY), count(run)), unit_j))

    def p99(arm: CacheArm) -> str:
        found = _p99(arm)
        return found if isinstance(found, str) else _seconds(found)

    is_closed = any(run.facts.loop.users is not None for run in shown.runs)
    facts: Sequence[Fact[CacheArm]] = (
        ("requests/s", mean(figures.requests_per_s)),
        ("hit rate", mean(figures.hit_rate, Unit.FRACTION)),
        ("restored tokens/s", mean(lambda run: figures.per_second(run, STEADY, "restored"))),
        ("stored tokens/s", mean(lambda run: figures.per_second(run, STEADY, "stored"))),
        ("added to TTFT, p99", p99),
        ("J per request", joules_per(lambda run: figures.counted(run, STEADY, "requests"), 1.0)),
        ("µJ per hit token", joules_per(figures.hit_tokens, MICRO)),
        ("written a day", mean(figures.written_bytes_per_day, Unit.BYTES)),
        ("drive writes a day", mean(figures.drive_writes_per_day)),
    )
    return sheet(
        "The mix of restores and stores, at its rate of requests",
        shown.arms,
        [arm.words for arm in shown.arms],
        facts,
        "Means of valid runs. Joules have the writes and the idle time of the mix in them: they "
        "are not those of restores alone."
        + (f" Wear of a closed loop: {figures.UNPACED}." if is_closed else ""),
    )


def _p99(arm: CacheArm) -> float | str:
    """Return the mean p99 of an arm, or why it has none: a dash for too few requests."""
    if any(map(figures.is_overloaded, arm.runs)):
        return _OVERLOADED
    mean_s = arm.mean(figures.added_s)
    return MISSING if mean_s is None else mean_s


def _prefix(times: Times) -> str:
    if times.storing is not None:
        return f"all, {'with' if times.storing else 'without'} stores under way"
    if times.below_tokens is None:
        return f"{whole(times.from_tokens)} or more" if times.from_tokens else "all"
    return f"{whole(times.from_tokens)} to {whole(times.below_tokens - 1)}"


def _by_prefix(shown: Shown[KvFacts]) -> Grid:
    """Return response and service by restored tokens, and with and without stores under way."""
    has_layers = any(times.first_layer for each in shown.traced for times in each.run.facts.times)

    def cells(run: Run, times: Times) -> Iterator[str | Word]:
        layer = times.first_layer.percentiles_s["p99_s"] if times.first_layer else None
        is_overloaded = figures.is_overloaded(run)
        if is_overloaded:
            yield Word(_OVERLOADED, "warn")
            yield from [MISSING] * (len(_SHARES) - 1)
        else:
            yield from (_seconds(times.response.percentiles_s[name]) for name in _SHARES)
        yield from (_seconds(times.service.percentiles_s[name]) for name in ("p50_s", "p99_s"))
        yield from [_seconds(None if is_overloaded else layer)] * has_layers

    return Grid(
        columns=("arm", "restored tokens", "#requests", *map("#{}".format, _SHARES.values()),
                 "#p50 of service", "#p99 of service", *["#p99 of the first layer"] * has_layers),
        rows=[
            (each.title, _prefix(times), whole(times.response.count), *cells(each.run, times))
            for each in shown.traced
            for times in each.run.facts.times
        ],
        caption="What the drive adds to the time to first token, by length of the restored prefix",
        note=" ".join(
            text
            for each in shown.traced
            for text in (_of_page_cache(each.title, each.run), _break_even(each.run))
            if text
        ),
    )  # fmt: skip


def _of_page_cache(title: str, run: Cached) -> str:
    share = None if run.facts.reads_directly else cached_share(run, STEADY)
    if share is None:
        return ""
    return f"{title}: the page cache had at least {percent(share)} of what the mix read."


def _hit_shares(shown: Shown[KvFacts]) -> Grid:
    """Return how many requests found which share of their blocks, in tenths."""
    shares = [(each.title, each.run.facts.hit_shares) for each in shown.traced]
    return Grid(
        columns=("arm", "#none", *(f"#to {percent(end / 10, 2)}" for end in range(1, 11))),
        rows=[
            (title, *(percent(divided(count, sum(counts))) for count in counts))
            for title, counts in shares
        ],
        caption="Requests of the mix by the share of their blocks that was hit",
    )


def break_even(run: Cached) -> int | None:
    """Return from how many restored tokens on a restore costs less than computing again.

    That is the least prefix at which the drive's mean power x the median service time, ÷ the fewest
    tokens of its row, is below the declared energy of a token.
    """
    settings, watts = run.facts.settings, divided(_joules(run, STEADY), run.seconds(STEADY))
    for times in run.facts.by_prefix if watts is not None else ():
        least = max(times.from_tokens, settings.block_tokens)
        joules = (watts or 0.0) * (times.service.percentiles_s["p50_s"] or math.inf)
        if joules < least * (settings.prefill_j_per_token or 0.0):
            return least
    return None


def _break_even(run: Cached) -> str:
    declared_j, found = run.facts.settings.prefill_j_per_token, break_even(run)
    if declared_j is None:
        return ""
    least = "at no measured prefix" if found is None else f"from {whole(found)} restored tokens on"
    return (
        f"Break-even: {least}, the drive's mean power x the median service time is less than "
        f"{number(declared_j / MICRO, 3)} µJ for each token computed again, as declared "
        f"({run.facts.settings.prefill_j_source})."
    )


def _line_of(arm: CacheArm) -> tuple[str, str]:
    """Return the letter and the title of the line of a point: without the rate of requests."""
    others = arm.at.rpartition(", ")[0]
    return arm.letter, ", ".join(filter(None, (arm.title if arm.letter else "", others)))


def _knee(shown: Shown[KvFacts]) -> Iterator[Shape]:
    """Yield p99 over the rate of requests, and the rates beside the target, as measured."""
    lines: list[PointLine] = []
    rows: list[Sequence[str]] = []
    for (letter, title), arms in groupby(sorted(shown.arms, key=_line_of), key=_line_of):
        points = {arm.runs[0].facts.settings.request_rate or 0.0: arm for arm in arms}
        rates, name = sorted(points), title or "all runs"
        known = {rate: p99 for rate in rates if (p99 := _p99(points[rate])) != MISSING}
        values = [None if isinstance(p99, str) else p99 for p99 in known.values()]
        lines.append(PointLine(letter, name, [*known], values))
        holds = {rate: [*map(figures.holds_target, points[rate].runs)] for rate in rates}
        fails = min((rate for rate in rates if False in holds[rate]), default=None)
        held = [rate for rate in rates if all(holds[rate]) and (fails is None or rate < fails)]
        rows.append((name, number(max(held, default=None), 3), number(fails, 3)))
    if not any(len(line.xs) > 1 for line in lines):
        return
    targets_ms = {run.facts.settings.target_p99_ms for run in shown.runs}
    target_s = (targets_ms.pop() or 0.0) * MILLI if len(targets_ms) == 1 else 0.0
    yield PointLines(
        name="knee",
        title="p99 added to TTFT over the rate of requests",
        caption="From the scheduled arrival to the last restored block. Hollow: overloaded, so "
        "there is no p99.",
        what="p99",
        unit=Unit.SECONDS,
        over="request rate",
        over_unit=Unit.SAMPLES_PER_SECOND,
        lines=lines,
        limit=target_s or None,
        gap=_OVERLOADED,
    )
    if target_s:
        yield Grid(
            columns=("arm", "#largest rate that holds", "#smallest that does not"),
            rows=rows,
            caption=f"Requests/s with p99 within {_seconds(target_s)} (dashed), as measured",
        )


def _by_capacity(run: Run) -> Iterator[Shape]:
    """Yield what caches of other sizes would do with these requests, by the source's own count."""
    facts, source = run.facts, run.facts.source
    lru = {each.blocks * facts.moved_block_bytes: each for each in source.lru if each.blocks}
    if len(lru) < 2:  # noqa: PLR2004 - a line needs two points
        return

    def rate(hit_blocks: int) -> float:
        return hit_blocks * facts.settings.block_tokens / source.input_tokens

    gaps = [_seconds(gap) for gap in (source.gap_p50_s, source.gap_p90_s, source.gap_p99_s)]
    most = (
        f"Without a limit: {percent(rate(source.lru[-1].hit_blocks))}. Times between uses of a "
        f"block: p50 {gaps[0]}, p90 {gaps[1]}, p99 {gaps[2]}."
    )
    curves = [("hit rate", Unit.FRACTION, [rate(each.hit_blocks) for each in lru.values()], most)]
    drive_bytes = figures.drive_bytes(run) or 0.0
    a_day = divided(facts.moved_block_bytes * figures.DAY_S, source.span_s * drive_bytes)
    if a_day is not None and facts.loop.users is None:
        writes = [each.stored_blocks * a_day for each in lru.values()]
        curves.append(("drive writes a day", Unit.COUNT, writes, "Every miss is stored."))
    yield Row(
        [
            PointLines(
                name=what.replace(" ", "-"),
                title=f"{what} by capacity",
                caption=f"An LRU cache over the source's first {whole(source.requests)} requests, "
                f"without a drive; this run has {_capacity(run)}. {more}",
                what=what,
                unit=unit,
                over="capacity",
                over_unit=Unit.BYTES,
                lines=[PointLine("", "source", [*lru], ys)],
            )
            for what, unit, ys, more in curves
        ]
    )


def _closing(shown: Shown[KvFacts]) -> Iterator[Shape]:
    if shown.traced:
        yield from (_phases(shown), _by_prefix(shown), _hit_shares(shown))
    if shown.arms:
        yield _mix(shown)
    for run in islice(shown.runs, 1):  # all have one source, or differ in their work
        yield from _by_capacity(run)
    yield Group(title="Definitions", shapes=[Text(each) for each in _DEFINITIONS])


VIEW = View[KvFacts](
    title="KV cache",
    job=_job,
    rate_titles={figures.RESTORED: "{prefix} restored tokens/s"},
    has_size=False,
    is_fixed_time=True,
    joule=Joule(
        one="restored token",
        many="restored tokens",
        count=lambda run, phase: (
            figures.tokens(run, phase, "restored") if phase == RESTORE else None
        ),
    ),
    settings=lambda run: {"workload.capacity_bytes": _capacity(run)},
    conditions=_conditions,
    limit=_limit,
    headroom=_headroom,
    served=lambda run: Served.by_page_cache(
        run, RESTORE, "restores", directly=run.facts.reads_directly
    ),
    opening=_knee,
    closing=_closing,
    lines=_lines,
    published=PUBLISHED,
)
