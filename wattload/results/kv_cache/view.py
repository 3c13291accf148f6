"""How a cache of keys and values is shown: what each phase cost, added latency, the knee, wear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice

from wattload.core.power import Scope
from wattload.core.units import MICRO, MILLI, Unit
from wattload.results.amplification import amplification
from wattload.results.facts import divided, sum_if_known
from wattload.results.kv_cache.facts import (
    FILL,
    RESTORE,
    STEADY,
    STORE,
    KvFacts,
    Layout,
    Run,
    Source,
    Times,
)
from wattload.results.kv_cache.figures import (
    DAY_S,
    RESTORED,
    UNPACED,
    added_s,
    cached_share,
    ceiling_share,
    counted,
    drive_bytes,
    drive_writes_per_day,
    hit_rate,
    hit_tokens,
    holds_target,
    is_overloaded,
    overload_text,
    per_second,
    requests_per_s,
    tokens,
    written_bytes_per_day,
)
from wattload.results.quantity import (
    MISSING,
    UNIT_SPACE,
    block_text,
    listed,
    number,
    percent,
    quantity,
    whole,
)
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
Cell = str | Word

_AT_CEILING = 0.9
"""From this share of the drive's ceiling on, the drive limits restores."""
_FEW_CACHED = 0.02
"""A smaller share of reads that did not reach the drive is the file system's own."""
_OVERLOADED = "overloaded"
_SHARES = (("p50_s", "p50"), ("p90_s", "p90"), ("p99_s", "p99"), ("p999_s", "p99.9"))

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
    "Overloaded: at the end over 1.5 times as many requests are in the system as at half of the "
    "time. Latency then depends on the length of the run, so there is none; rates are kept.",
    "Drive writes a day: bytes stored at this rate of requests ÷ capacity of the drive, without "
    f"its write amplification. In a closed loop, where the drive sets the rate: {UNPACED}.",
)


def _seconds(value: float | None) -> str:
    return quantity(value, Unit.SECONDS, 3)


def _capacity(run: Run) -> str:
    return quantity(run.facts.capacity_blocks * run.facts.moved_block_bytes, Unit.BYTES, 3)


def _loop(run: Run) -> str:
    settings = run.facts.settings
    if run.facts.loop.users is not None:
        return f"closed loop of {run.facts.loop.users} users"
    if settings.requests is Source.trace:
        return f"trace at {settings.speed:g} times its speed"
    return f"open loop at {number(settings.request_rate, 3)} requests/s"


def _job_parts(run: Run) -> Iterator[str]:
    facts, settings = run.facts, run.facts.settings
    is_model = settings.bytes_per_token is None
    yield settings.model if is_model else f"{whole(settings.bytes_per_token)} bytes a token"
    if settings.tp > 1:
        yield f"tensor parallel {settings.tp}"
    if facts.mla:
        yield f"latent vectors {facts.mla}"
    yield (
        f"blocks of {settings.block_tokens} tokens ({quantity(facts.block_bytes, Unit.BYTES, 3)})"
    )
    if settings.layout is Layout.layer:
        piece = block_text(facts.moved_block_bytes // facts.pieces)
        yield f"{whole(facts.pieces)} pieces of {piece}"
    yield _loop(run)
    yield f"cache of {_capacity(run)}"
    if settings.memory_tier_bytes:
        yield f"memory tier of {quantity(settings.memory_tier_bytes, Unit.BYTES, 3)}"


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    """Return what the runs have in common: ``llama3.1-8b, blocks of 256 tokens (33.6 MB), ...``."""
    first, *others = [list(_job_parts(run)) for run in shown]
    return ", ".join(part for part in first if all(part in other for other in others))


def _conditions(run: Run) -> Iterator[Condition]:
    evicts = any(counted(run, phase, "evicted_blocks") for phase in (FILL, STEADY))
    differs = "only some runs evicted blocks"
    yield Condition(name="evictions", value="yes" if evicts else "none", differs=differs)


def _limit(runs: Sequence[Run], _: float | None) -> Limit | None:
    shares = [share for run in runs if (share := ceiling_share(run)) is not None]
    if not shares:
        return None
    text = f"at {percent(min(shares))} of its random reads of this size and depth"
    if max(shares) > CEILING_ERROR:
        return Limit(f"limit unknown: {text}, which are no ceiling")
    if min(shares) >= _AT_CEILING:
        return Limit(f"limited by the drive, {text}", is_drive=True)
    return Limit(f"limit unknown: {text}")


def _headroom(run: Run) -> list[float]:
    """Return how far the rate of the requests' logic is above that of restored blocks."""
    rate = divided(counted(run, RESTORE, "restored_blocks"), run.seconds(RESTORE))
    factor = divided(run.facts.logic_blocks_per_s, rate)
    return [] if factor is None else [factor]


def _served(run: Run) -> Served:
    share = None if run.facts.reads_directly else cached_share(run, RESTORE)
    if share is None or share < _FEW_CACHED:
        return Served()
    return Served(from_memory=f"the page cache served {percent(share)} of the restores")


def _lines(run: Run) -> Mapping[str, str]:
    """Return the terminal's lines: added latency, the mix with its loop, stores, and wear."""
    loop, requests = run.facts.loop, counted(run, STEADY, "requests")
    added = [f"{words} {_seconds(added_s(run, name))}" for name, words in _SHARES]
    added.append(f"service p99 {_seconds(added_s(run, part=lambda times: times.service))}")
    mix = [f"{_loop(run)}: {number(requests_per_s(run), 3)} requests/s"]
    if loop.users is not None and requests:
        cycle_s, think_s = (loop.residence_s + loop.think_s) / requests, loop.think_s / requests
        law = f"N ÷ (R + Z) = {number(loop.users / cycle_s, 3)}, Z = {_seconds(think_s)}"
        mix[0] += f" ({law})"
    mix.append(f"hit rate {percent(hit_rate(run))}")
    mix.append(f"{whole(counted(run, STEADY, 'evicted_blocks'))} blocks evicted")
    if not run.facts.reads_directly:
        mix.append(f"{percent(cached_share(run, STEADY))} of reads did not reach the drive")
    a_day = written_bytes_per_day(run)
    wear = f"{quantity(a_day, Unit.BYTES, 3)} a day, {number(drive_writes_per_day(run), 3)} drive "
    return {
        "also": "",
        "latency": overload_text(run) if is_overloaded(run) else f"TTFT + {', '.join(added)}",
        "mix": "; ".join(mix),
        "stores": f"{whole(per_second(run, STORE, 'stored_blocks'))} tokens/s made durable, alone",
        "wear": UNPACED if a_day is None else f"{wear}writes a day",
    }


# The page


def _joules(run: Cached, phase: str) -> float | None:
    return run.joules(Scope.DRIVE, phase)


def _net_joules(run: Cached, phase: str) -> float | None:
    """Return the energy above idle power; ``None`` if that of the phase is unknown."""
    parts = [each.net_j for each in run.record.drive_energies(phase)]
    return None if _joules(run, phase) is None else sum_if_known(parts)


def _per_token(of: Callable[[Cached, str], float | None]) -> Callable[[Cached, str], str]:
    """Return a cell of joules per token of what a phase does alone, in µJ."""
    names = {RESTORE: "restored_blocks", STORE: "stored_blocks"}

    def cell(run: Cached, phase: str) -> str:
        each = divided(of(run, phase), tokens(run, phase, names[phase])) if phase in names else None
        return number(divided(each, MICRO), 3)

    return cell


def _bytes(name: str) -> Callable[[Cached, str], str]:
    return lambda run, phase: quantity(counted(run, phase, name), Unit.BYTES, 3)


_PHASE_CELLS: Sequence[tuple[str, Callable[[Cached, str], Cell]]] = (
    ("#time", lambda run, phase: _seconds(run.seconds(phase))),
    ("#read", _bytes("read_bytes")),
    ("#written", _bytes("written_bytes")),
    ("#restored tokens", lambda run, phase: whole(tokens(run, phase, "restored_blocks"))),
    ("#stored tokens", lambda run, phase: whole(tokens(run, phase, "stored_blocks"))),
    ("#drive energy", lambda run, phase: quantity(_joules(run, phase), Unit.JOULES, 3)),
    ("#net of idle", lambda run, phase: quantity(_net_joules(run, phase), Unit.JOULES, 3)),
    ("#µJ per token", _per_token(_joules)),
    ("#µJ net of idle", _per_token(_net_joules)),
)


def _phases(shown: Shown[KvFacts]) -> Grid:
    runs = [each.run for each in shown.traced]
    systems = [each.facts.file_system for run in runs for each in run.record.targets]
    mounts = listed(unique(",".join(each.mount_options) for each in systems if each), "or")
    kept = "" if "discard" in mounts else ": the drive keeps evicted blocks until fstrim"
    evidence = listed(unique(run.evidence(RESTORE) for run in runs)) or "not measured"
    done = [(each, phase) for each in shown.traced for phase in (FILL, STEADY, RESTORE, STORE)
            if phase in each.run.facts.counts]  # fmt: skip
    worn = [amplification(each.run, phase) for each, phase in done]
    is_worn = any(each.text != MISSING for each in worn)
    unknown = next((each.remark for each in worn if each.remark and not is_worn), "")
    return Grid(
        columns=("arm", "phase", *(title for title, _ in _PHASE_CELLS),
                 *["#write amplification"] * is_worn),
        rows=[
            (each.title, phase, *(cell(each.run, phase) for _, cell in _PHASE_CELLS),
             *[factor] * is_worn)
            for (each, phase), factor in zip(done, worn, strict=True)
        ],
        caption=f"What each phase did and cost, {listed(unique(map(_loop, runs)))}",
        note=f"Energy in the window: {evidence}. Steady is the mix; tokens are restored ones in "
        f"restore and stored ones in store. Mounted with {mounts}{kept}."
        + (f" Write amplification is unknown: {unknown}." if unknown else ""),
    )  # fmt: skip


def _mix(shown: Shown[KvFacts]) -> Shape:
    """Return the mix at each point: its rates, and what a request and a hit token cost in it."""

    def text(
        value: Callable[[Cached], float | None], unit: Unit | None = None
    ) -> Callable[[CacheArm], str]:
        def cell(arm: CacheArm) -> str:
            mean = arm.mean(value)
            return number(mean, 3) if unit is None else quantity(mean, unit, 3)

        return cell

    def joules_per(of: Callable[[Run], float | None], unit_j: float) -> Callable[[CacheArm], str]:
        return text(lambda run: divided(divided(_joules(run, STEADY), of(run)), unit_j))

    is_closed = any(run.facts.loop.users is not None for run in shown.runs)
    facts: Sequence[Fact[CacheArm]] = (
        ("requests/s", text(requests_per_s)),
        ("hit rate", text(hit_rate, Unit.FRACTION)),
        ("restored tokens/s", text(lambda run: per_second(run, STEADY, "restored_blocks"))),
        ("stored tokens/s", text(lambda run: per_second(run, STEADY, "stored_blocks"))),
        ("added to TTFT, p99", _p99_text),
        ("J per request", joules_per(lambda run: counted(run, STEADY, "requests"), 1.0)),
        ("µJ per hit token", joules_per(hit_tokens, MICRO)),
        ("written a day", text(written_bytes_per_day, Unit.BYTES)),
        ("drive writes a day", text(drive_writes_per_day)),
    )
    return sheet(
        "The mix of restores and stores, at its rate of requests",
        shown.arms,
        [arm.words for arm in shown.arms],
        facts,
        "Means of valid runs. Joules have the writes and the idle time of the mix in them: they "
        "are not those of restores alone."
        + (f" Wear of a closed loop: {UNPACED}." if is_closed else ""),
    )


def _p99(arm: CacheArm) -> float | str:
    """Return the mean p99 of an arm, or why it has none: a dash for too few requests."""
    if any(map(is_overloaded, arm.runs)):
        return _OVERLOADED
    mean_s = arm.mean(added_s)
    return MISSING if mean_s is None else mean_s


def _p99_text(arm: CacheArm) -> str:
    found = _p99(arm)
    return found if isinstance(found, str) else _seconds(found)


def _prefix(times: Times) -> str:
    if times.storing is not None:
        return f"all, {'with' if times.storing else 'without'} stores under way"
    if times.below_tokens is None:
        return f"{whole(times.from_tokens)} or more" if times.from_tokens else "all"
    return f"{whole(times.from_tokens)} to {whole(times.below_tokens - 1)}"


def _by_prefix(shown: Shown[KvFacts]) -> Grid:
    """Return response and service by restored tokens, and with and without stores under way."""

    def cells(run: Run, times: Times) -> Iterator[Cell]:
        if is_overloaded(run):
            yield Word(_OVERLOADED, "warn")
            yield from [MISSING] * (len(_SHARES) - 1)
        else:
            yield from (_seconds(times.response.percentiles_s[name]) for name, _ in _SHARES)
        yield from (_seconds(times.service.percentiles_s[name]) for name in ("p50_s", "p99_s"))
        if has_layers:
            layer = None if is_overloaded(run) else times.first_layer
            yield MISSING if layer is None else _seconds(layer.percentiles_s["p99_s"])

    has_layers = any(each.first_layer for traced in shown.traced for each in traced.run.facts.times)
    return Grid(
        columns=("arm", "restored tokens", "#requests", *(f"#{words}" for _, words in _SHARES),
                 "#p50 of service", "#p99 of service", *["#p99 of the first layer"] * has_layers),
        rows=[
            (each.title, _prefix(times), whole(times.response.count), *cells(each.run, times))
            for each in shown.traced
            for times in each.run.facts.times
        ],
        caption="What the drive adds to the time to first token, by length of the restored prefix",
        note=" ".join(filter(None, map(_break_even, (each.run for each in shown.traced)))),
    )  # fmt: skip


def _hit_shares(shown: Shown[KvFacts]) -> Grid:
    """Return how many requests found which share of their blocks, in tenths."""
    return Grid(
        columns=("arm", "#none", *(f"#to {end}{UNIT_SPACE}%" for end in range(10, 101, 10))),
        rows=[
            (
                each.title,
                *(percent(count / sum(counts) if sum(counts) else None) for count in counts),
            )
            for each in shown.traced
            for counts in [each.run.facts.hit_shares]
        ],
        caption="Requests of the mix by the share of their blocks that was hit",
    )


def break_even(run: Cached) -> int | None:
    """Return from how many restored tokens on a restore costs less than computing again.

    That is the least prefix at which the drive's mean power x the median service time, ÷ the fewest
    tokens of its row, is below the declared energy of a token.
    """
    declared_j = run.facts.settings.prefill_j_per_token
    watts = divided(_joules(run, STEADY), run.seconds(STEADY))
    for times in run.facts.by_prefix if declared_j is not None and watts is not None else ():
        least = max(times.from_tokens, run.facts.settings.block_tokens)
        service_s = times.service.percentiles_s["p50_s"]
        if service_s is not None and (watts or 0) * service_s < least * (declared_j or 0):
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
        known = [(rate, p99) for rate in rates if (p99 := _p99(points[rate])) != MISSING]
        values = [None if isinstance(p99, str) else p99 for _, p99 in known]
        lines.append(PointLine(letter, name, [rate for rate, _ in known], values))
        holds = {rate: [*map(holds_target, points[rate].runs)] for rate in rates}
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
    lru = [(each, each.blocks * facts.moved_block_bytes) for each in source.lru if each.blocks]
    if len(lru) < 2:  # noqa: PLR2004 - a line needs two points
        return

    def rate(hit_blocks: int) -> float:
        return hit_blocks * facts.settings.block_tokens / source.input_tokens

    def chart(what: str, unit: Unit, ys: Sequence[float], more: str) -> PointLines:
        return PointLines(
            name=what.replace(" ", "-"),
            title=f"{what} by capacity",
            caption=f"An LRU cache over the source's first {whole(source.requests)} requests, "
            f"without a drive; this run has {_capacity(run)}. {more}",
            what=what,
            unit=unit,
            over="capacity",
            over_unit=Unit.BYTES,
            lines=[PointLine("", "source", [size for _, size in lru], ys)],
        )

    gaps = [_seconds(gap) for gap in (source.gap_p50_s, source.gap_p90_s, source.gap_p99_s)]
    most = (
        f"Without a limit: {percent(rate(source.lru[-1].hit_blocks))}. Times between uses of a "
        f"block: p50 {gaps[0]}, p90 {gaps[1]}, p99 {gaps[2]}."
    )
    charts = [chart("hit rate", Unit.FRACTION, [rate(each.hit_blocks) for each, _ in lru], most)]
    a_day = divided(facts.moved_block_bytes * DAY_S, source.span_s * (drive_bytes(run) or 0.0))
    if a_day is not None and facts.loop.users is None:
        writes = [each.stored_blocks * a_day for each, _ in lru]
        charts.append(chart("drive writes a day", Unit.COUNT, writes, "Every miss is stored."))
    yield Row(charts)


def _closing(shown: Shown[KvFacts]) -> Iterator[Shape]:
    if shown.traced:
        yield _phases(shown)
        yield _by_prefix(shown)
        yield _hit_shares(shown)
    if shown.arms:
        yield _mix(shown)
    for run in islice(shown.runs, 1):  # all have one source, or differ in their work
        yield from _by_capacity(run)
    yield Group(title="Definitions", shapes=[Text(each) for each in _DEFINITIONS])


VIEW = View[KvFacts](
    title="KV cache",
    labels={"first_layer_p99_s": "added to TTFT, p99 of the first layer"},
    job=_job,
    rate_titles={RESTORED: "{prefix} restored tokens/s"},
    has_size=False,
    is_fixed_time=True,
    joule=Joule(
        one="restored token",
        many="restored tokens",
        count=lambda run, phase: (
            tokens(run, phase, "restored_blocks") if phase == RESTORE else None
        ),
    ),
    settings=lambda run: {"workload.capacity_bytes": _capacity(run)},
    conditions=_conditions,
    limit=_limit,
    headroom=_headroom,
    ceiling="request logic",
    served=_served,
    opening=_knee,
    closing=_closing,
    lines=_lines,
)
