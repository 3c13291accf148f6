"""How reads that requesters ask for are shown: who asked, rate and cost, by GPU and target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wattload.core.power import Scope
from wattload.core.record.results import Latency
from wattload.core.units import GB, GIB, Unit, format_bytes
from wattload.results.facts import divided
from wattload.results.gpu_read.facts import (
    BY_REQUESTERS,
    MEMORY,
    NULL,
    PAGE_CACHE,
    STORAGE,
    FileReads,
    RankReads,
    ReadFacts,
    Run,
)
from wattload.results.gpu_read.figures import (
    LINK,
    MILLION,
    POLLERS,
    QUEUE,
    bottleneck,
    busiest,
    ceiling_shares,
    cores,
    cpu_s_per_million,
    delivered_bytes_per_s,
    deliveries_per_s,
    hit_rate,
    reads_per_s,
    seen_in_flight,
)
from wattload.results.gpu_read.text import (
    ReadArm,
    Value,
    failures,
    gpus,
    machine,
    node_text,
    valid_arms,
)
from wattload.results.paths import NOT_PROVED, path_text
from wattload.results.quantity import (
    MISSING,
    UNIT_SPACE,
    block_text,
    counted,
    listed,
    number,
    percent,
    percentages,
    quantity,
    scale_for,
    scaled,
    whole,
)
from wattload.results.shapes import (
    Grid,
    Group,
    Note,
    Offsets,
    Shape,
    ValueBar,
    ValueBars,
    Word,
    unique,
)
from wattload.results.view import (
    PARALLEL,
    Condition,
    Joule,
    Limit,
    Served,
    Shown,
    Sweep,
    View,
    mean_of_known,
)

NOTHING_READ = "no storage was read"
PAGE_CACHE_MOST = 0.05
"""Reads of which the page cache served a larger share do not measure the path to a drive."""
_AT_CEILING = 0.995
"""A share of a ceiling that is 1.0 or more with the digits printed."""
_LINKS_MIN = 2
"""Links of one generation alone are in the table of the machine."""
_ENGINES: Mapping[str, str] = {
    NULL: f"{NOTHING_READ}: requests were answered at once",
    MEMORY: f"{NOTHING_READ}: blocks came from a table in host memory",
}
_UNQUEUED: Mapping[str, str] = {
    "o_direct": "asked by CPU threads, delivered in host memory",
    PAGE_CACHE: "page faults of CPU threads, delivered in host memory",
}
"""Who asks where there is no queue, by what the loader requested."""
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generations by GT/s."""


# Words


def drive_count(run: Run) -> int:
    """Return the targets, or the physical drives below them where some share one."""
    if not run.facts.shared_targets:
        return len(run.record.targets)
    drives = {
        (facts.host, name)
        for facts in (target.facts for target in run.record.targets)
        for name in facts.controllers or facts.devices or (f"target {facts.index}",)
    }
    return len(drives)


def drives_text(run: Run) -> str:
    """Return targets and drives where some share one: ``2 targets on 1 drive``; else nothing."""
    if not run.facts.shared_targets:
        return ""
    targets = counted(len(run.record.targets), "target")
    return f"{targets} on {counted(drive_count(run), 'drive')}"


def amplification(run: Run) -> float:
    return run.facts.read_bytes / run.facts.settings.block_bytes


def _load(run: Run) -> Mapping[str, str]:
    """Return the load in a few words, by what they are about: ``512 B random reads`` of a block."""
    facts, settings = run.facts, run.facts.settings
    found = {"block": f"{block_text(settings.block_bytes)} random reads"}
    if settings.pattern != "uniform":
        found["pattern"] = settings.pattern
    found["in flight"] = f"{whole(settings.requesters)} in flight per target"
    if facts.queue is not None:  # loaders without a queue have the settings too
        pairs = counted(settings.queue_pairs, "queue pair")
        found["queue"] = f"{pairs} of {whole(settings.queue_size)}"
    elif facts.in_flight != settings.requesters * len(facts.files):  # threads of mapped files
        found["in flight"] = f"{whole(facts.in_flight)} in flight"
    if amplification(run) > 1:
        found["read"] = f"{number(amplification(run), 2)} bytes read for each delivered"
    return found


def _job(shown: Sequence[Run], every: Sequence[Run]) -> str:
    """Return the load of the runs shown, without what differs between them.

    Targets that share a drive in any of ``every`` run are named too.
    """
    texts: dict[str, dict[str, None]] = {}
    for run in shown:
        for name, text in _load(run).items():
            texts.setdefault(name, {})[text] = None
    parts = [next(iter(own)) for own in texts.values() if len(own) == 1]
    return ", ".join([*parts, *unique(map(drives_text, every))])


def asked_text(run: Run) -> str:
    """Return who asked and where the bytes passed, or that nothing was read.

    A GPU is named only beside a path that counts prove.
    """
    facts = run.facts
    if not facts.reads_storage:
        size = f", {quantity(facts.table_bytes, Unit.BYTES, 3)}" * (facts.engine == MEMORY)
        return _ENGINES[facts.engine] + size
    asked = [
        path_text(path) if path.counts is not None else _UNQUEUED.get(path.path_requested, "")
        for path in run.record.workload.paths
    ]
    return listed(unique(asked)) or NOT_PROVED


def _is_of_page_cache(run: Run) -> bool:
    return (run.facts.resident_fraction or 0.0) > PAGE_CACHE_MOST


def page_cache_text(runs: Sequence[Run]) -> str:
    """Return what share of the reads the page cache served, in the mean; empty if unknown.

    For example ``the page cache served over 99.9 % of the pages``.
    """
    share = mean_of_known(run.facts.resident_fraction for run in runs)
    return "" if share is None else f"the page cache served {percentages(share)} of the pages"


def cores_text(runs: Sequence[Run]) -> str:
    """Return how many CPU cores the reader kept at work, in the mean: ``2.1 CPU cores``."""
    shown = number(mean_of_known(map(cores, runs)), 2)
    return f"{shown}{UNIT_SPACE}CPU core{'' if shown == '1.0' else 's'}"


def _arms(arms: Mapping[str, Sequence[Run]]) -> str:
    """Return who asked in each arm, with the cores of each: ``A: asked by the GPU ...; B: ...``.

    Of reads through the page cache it says which share that served.
    """
    texts = []
    for name, runs in arms.items():
        if runs:
            parts = (listed(unique(map(asked_text, runs))), page_cache_text(runs), cores_text(runs))
            text = ", ".join(filter(None, parts))
            texts.append(f"{name}: {text}" if len(arms) > 1 else text)
    return " · ".join(texts)


def counts_text(runs: Sequence[Run]) -> str:
    """Return the counts of queues, summed, that have to be equal; empty without a queue.

    For example ``asked, taken, answered and delivered: 1,000 each``.
    """
    sums: dict[str, int] = {}
    for run in runs:
        for name, count in _equal_counts(run.facts).items():
            sums[name] = sums.get(name, 0) + count
    if len(set(sums.values())) == 1:
        return f"{listed(list(sums))}: {whole(next(iter(sums.values())))} each"
    return ", ".join(f"{name} {whole(count)}" for name, count in sums.items())


def _equal_counts(facts: ReadFacts) -> dict[str, int]:
    if facts.queue is None:
        return {}
    counts = {name: facts.queue[name] for name in ("asked", "taken", "answered")}
    if facts.has_cache:
        counts["read"] = facts.operations
    elif facts.engine != NULL:  # which delivers nothing
        counts["delivered"] = facts.queue["delivered"]
    return counts


def cache_text(run: Run) -> str:
    """Return the hit rate of a run's cache and what else it did; empty without a cache.

    For example ``51 % of 12,000,000 requests hit in 16.8 MB of the GPU, 1.2 % merged, 0.31 %
    coalesced: 1.20 M/s delivered``.
    """
    queue, requests = run.facts.queue, run.facts.requests
    if queue is None or not run.facts.has_cache or not requests:
        return ""
    size = quantity(run.facts.cache_bytes, Unit.BYTES, 3)
    rate = quantity(deliveries_per_s(run), Unit.SAMPLES_PER_SECOND, 3)
    return (
        f"{percent(hit_rate(run))} of {counted(requests, 'request')} hit in {size} of the GPU, "
        f"{percent(queue['merged'] / requests, 2)} merged, "
        f"{percent(queue['coalesced'] / requests, 2)} coalesced: {rate} delivered"
    )


def limit_text(runs: Sequence[Run]) -> str:
    """Return what limited runs, with the figure that shows it; empty without such a finding.

    For example ``the GPU's link, 0.97 of its pull ceiling``.
    """
    words = {bottleneck(run)[0] for run in runs}
    word = words.pop() if len(words) == 1 else ""
    if not word or (word == STORAGE and any(map(_is_of_page_cache, runs))):
        return ""
    of_link = mean_of_known(ceiling_shares(run)[0] for run in runs)
    of_queue = mean_of_known(ceiling_shares(run)[1] for run in runs)
    busy = mean_of_known(map(busiest, runs))
    if word == LINK and of_link is not None:
        has_several = any(len(run.facts.ranks) > 1 for run in runs)
        name, of = ("the links of the GPUs", "their") if has_several else ("the GPU's link", "its")
        return f"{name}, {_of_ceiling(of_link, of, 'pull ceiling')}"
    if word == QUEUE and of_queue is not None:
        return f"the queue, {_of_ceiling(of_queue, 'its', 'ceiling')}"
    if word == POLLERS:
        return f"the pollers, {percent(busy, 2)} busy"
    rest = [f"the link is at {percent(of_link, 2)} of its ceiling"] if of_link else []
    rest += [f"the pollers {percent(busy, 2)} busy"] if busy is not None else []
    return f"{STORAGE} ({', '.join(rest)})" if rest else STORAGE


def _of_ceiling(share: float, of: str, ceiling: str) -> str:
    """Return a rate as a part of its ceiling, which may have been measured too low."""
    if share < _AT_CEILING:
        return f"{number(share, 2)} of {of} {ceiling}"
    return f"at {of} measured {ceiling}"


def no_limit_text(runs: Sequence[Run]) -> str:
    """Return why runs do not name what limited them."""
    if any(map(_is_of_page_cache, runs)):
        return page_cache_text(runs)
    reasons = [reason for word, reason in map(bottleneck, runs) if not word]
    return next(iter(reasons), "the runs name no common limit")


def _limit(runs: Sequence[Run], _: float | None) -> Limit:
    if found := limit_text(runs):
        return Limit(f"limited by {found}", is_drive=found.startswith(STORAGE))
    return Limit(f"limit unknown: {no_limit_text(runs)}")


def _headroom(run: Run) -> list[float]:
    """Return how far the pull without a queue, and the queue alone, are above a run's reads."""
    return [1 / share for share in ceiling_shares(run) if share]


def _served(run: Run) -> Served:
    return Served(
        instead="" if run.facts.reads_storage else NOTHING_READ,
        cached="a cache in the GPU's memory saved reads" if run.facts.cache_bytes else "",
        cache_bytes=run.facts.cache_bytes,
        from_memory=page_cache_text([run]) if _is_of_page_cache(run) else "",
    )


def _conditions(run: Run) -> Iterator[Condition]:
    yield Condition(
        name="workload engine",
        value=run.facts.engine,
        differs=f"{NOTHING_READ} with loader.engine={{}}",
        usual=STORAGE,
    )
    if run.facts.cache_bytes:
        yield Condition(name="workload cache", value=format_bytes(run.facts.cache_bytes))


def _read_count(run: Run, phase: str) -> int | None:
    """Return the reads of storage that energy paid for."""
    if not run.facts.reads_storage:
        return None
    return sum(window.operations for window in run.windows(phase))


def _both_rates(bytes_per_s: float) -> str:
    """Return a rate in GB/s and GiB/s, as papers print either: ``49.2 GB/s (45.8 GiB/s)``."""
    shown = quantity(bytes_per_s, Unit.BYTES_PER_SECOND, 3)
    return f"{shown} ({number(bytes_per_s / GIB, 3)}{UNIT_SPACE}GiB/s)"


def _lines(run: Run) -> Mapping[str, str]:
    delivered = delivered_bytes_per_s(run)
    rate = quantity(reads_per_s(run), Unit.SAMPLES_PER_SECOND)
    per_million = quantity(cpu_s_per_million(run), Unit.SECONDS, 3)
    limit = limit_text([run]) or f"unknown: {no_limit_text([run])}"
    texts = {
        "path": "; ".join(
            filter(None, (asked_text(run), page_cache_text([run]), counts_text([run])))
        ),
        "reads": rate + (f", {_both_rates(delivered)}" if delivered else ""),
        "latency": "; ".join(_latencies(run)),
        "cache": cache_text(run),
        "drives": drives_text(run),
        "limit": limit,
        "CPU": f"{per_million} per million reads, {cores_text([run])}",
    }
    return {"reads per second": "", **{name: text for name, text in texts.items() if text}}


def _latencies(run: Run) -> Iterator[str]:
    """Yield the latencies of requests, and of reads where pollers serve them."""
    has_pollers = bool(run.facts.pollers)
    request = run.latency(BY_REQUESTERS, "request")
    if request is not None:
        timed = f" ({whole(request.count)} timed)" if has_pollers else ""
        yield f"request until delivered{timed}: {_percentiles(request)}"
    read = run.latency(BY_REQUESTERS, "read")
    if read is not None and has_pollers:
        yield f"read at the poller: {_percentiles(read)}"


def _percentiles(row: Latency) -> str:
    known = {name: row.percentiles_s[f"{name}_s"] for name in ("p50", "p99")}
    return ", ".join(f"{name} {quantity(each, Unit.SECONDS, 3)}" for name, each in known.items())


# The page


def _opening(shown: Shown[ReadFacts]) -> Iterator[Shape]:
    yield from _nothing_read(shown)
    yield _paths(shown)
    yield from failures(shown)
    if shown.arms:
        yield _costs(
            _best(shown.arms), "Rate and cost" + _of_points(" of the fastest point", shown)
        )


def _closing(shown: Shown[ReadFacts]) -> Iterator[Shape]:
    arms, best = shown.arms, _best(shown.arms)
    if (peaks := _peaks(arms)) is not None:
        yield peaks
    yield Offsets(
        name="offsets",
        title="where reads went over time",
        caption="A dot is one traced read: when it was submitted, and its offset in the file of "
        "its target. The file system decides where that is on the drive.",
    )
    if (table := _by_gpu(best, shown)) is not None:
        yield table
    if len({arm.at for arm in arms}) > 1:
        costs = _costs(arms, "Each point", noted=False)
        yield Group(title="Rate and cost at each point", shapes=[costs])
    if (table := _by_poller(best, shown)) is not None:
        yield Group(title="Each poller", shapes=[table])
    if arms:
        yield Group(title="Each target at each point", shapes=[_by_target(arms)])
    yield from machine(shown)


def _best(arms: Sequence[ReadArm]) -> list[ReadArm]:
    """Return the point of each arm with the most reads in a second."""
    return [
        max(
            (arm for arm in arms if arm.title == title),
            key=lambda arm: arm.mean(reads_per_s) or 0,
        )
        for title in unique(arm.title for arm in arms)
    ]


def _of_points(text: str, shown: Shown[ReadFacts]) -> str:
    """Return the end of a table's caption where there are points to choose from."""
    return text if any(arm.at for arm in shown.arms) else ""


def _nothing_read(shown: Shown[ReadFacts]) -> Iterator[Note]:
    """Yield the arms whose requests no drive answered: their rates are ceilings, not results."""
    names = [arm.name for arm in shown.every if any(not r.facts.reads_storage for r in arm.runs)]
    if not names:
        return
    is_all = len(names) == len(shown.every)
    which = "These requests" if is_all else f"Requests of {listed(names)}"
    title = f"{NOTHING_READ[0].upper()}{NOTHING_READ[1:]}"
    yield Note(
        title=title if is_all else f"Ceilings: {listed(names)} read no storage",
        sentences=[
            f"{which} were answered without storage. Their rates are ceilings of the queue or the "
            "link, and are not compared with reads of storage."
        ],
        tone="warn" if is_all else "",
    )


def _paths(shown: Shown[ReadFacts]) -> Grid:
    rows = []
    for arm, runs in zip(shown.every, valid_arms(shown), strict=True):
        text = listed(unique(map(asked_text, runs)))
        factors = unique(number(amplification(r), 2) for r in runs if amplification(r) > 1)
        remarks = (
            listed(unique(p.path_effective for run in runs for p in run.record.workload.paths)),
            page_cache_text(runs),
            *(f"{factor} bytes read for each delivered" for factor in factors),
            *unique(map(drives_text, runs)),
        )
        is_open = NOT_PROVED in text or NOTHING_READ in text
        remark = "" if NOTHING_READ in text else ", ".join(filter(None, remarks))
        rows.append(
            (
                arm.title,
                Word(text, "warn" if is_open else "", remark),
                _in_flight(runs),
                counts_text(runs) or "no counts of a queue",
            )
        )
    return Grid(
        columns=("arm", "path", "#in flight", "counts"),
        rows=rows,
        caption="Who asked for the blocks",
        note="In flight: as many as were asked, and at pollers and drive: rate x latency of reads. "
        "A GPU is named as the requester only where its requests, the pollers' descriptors and the "
        "engine's operations are equal in number. The blocks of a queue always pass through host "
        "memory: none went from a drive to a GPU directly.",
    )


def _in_flight(runs: Sequence[Run]) -> Word:
    """Return the reads in flight that were asked, and those at pollers and drive."""
    asked = sorted({run.facts.in_flight for run in runs})
    seen = [each for each in map(seen_in_flight, runs) if each is not None]
    ends = [number(end, 3) for end in (min(seen), max(seen))] if seen else []
    remark = f"at pollers and drive {' to '.join(unique(ends))}" if ends else ""
    return Word(f"asked {' to '.join(unique(map(whole, (asked[0], asked[-1]))))}", remark=remark)


def _joules(scope: Scope) -> Value:
    """Return the joules of devices per read of storage."""
    return lambda run: divided(run.joules(scope, BY_REQUESTERS), _read_count(run, BY_REQUESTERS))


def _costs(arms: Sequence[ReadArm], caption: str, *, noted: bool = True) -> Grid:
    """Return a row per point and arm: rate, CPU cores and energy per read, and the limit.

    The first table of a page is ``noted`` with what its columns mean.
    """
    has_points = any(arm.at for arm in arms)
    has_cache = any(arm.mean(hit_rate) is not None for arm in arms)
    rates = scale_for(Unit.SAMPLES_PER_SECOND, *(arm.mean(reads_per_s) for arm in arms))
    energies = [
        (name, value)
        for name, value in (("drives", _joules(Scope.DRIVE)), ("GPUs", _joules(Scope.GPU)))
        if any(arm.mean(value) is not None for arm in arms)
    ]
    rows = []
    for arm in arms:
        delivered = arm.mean(delivered_bytes_per_s)
        rows.append(
            (
                *([arm.at] if has_points else []),
                arm.title,
                scaled(arm.mean(reads_per_s), rates, 3),
                _in(delivered, GB),
                _in(delivered, GIB),
                *([percent(arm.mean(hit_rate))] if has_cache else []),
                number(arm.mean(cores), 3),
                number(arm.mean(cpu_s_per_million), 3),
                scaled(arm.mean(lambda run: divided(reads_per_s(run), cores(run))), rates, 3),
                *(_in(arm.mean(value), 1 / MILLION) for _, value in energies),
                limit_text(arm.runs) or "unknown",
            )
        )
    hits = (
        " Hit rate: requests whose block was in the GPU's cache ÷ requests. Reads are only those "
        "that it did not save, bytes those of all requests."
        if has_cache
        else ""
    )
    evidence = unique(
        run.evidence(BY_REQUESTERS) for arm in arms for run in arm.runs if run.facts.reads_storage
    )
    drives = f" Drives: {listed(evidence)}." if evidence else ""
    note = (
        "Geometric means of valid runs. Bytes are those delivered. CPU cores are the CPU seconds "
        "of the reader's process ÷ seconds: pollers, and requesters where they are on the CPU. "
        f"Energies of drives and GPUs are in the window, and never added.{drives}{hits}"
        f"{_ceilings(arms)}"
    )
    return Grid(
        columns=(
            *(["at"] if has_points else []),
            "arm",
            f"#reads, {rates.unit}",
            "#GB/s",
            "#GiB/s",
            *(["#hit rate"] if has_cache else []),
            "#CPU cores",
            "#CPU s per million",
            f"#reads per core, {rates.unit}",
            *(f"#{name}, µJ per read" for name, _ in energies),
            "bottleneck",
        ),
        rows=rows,
        caption=caption,
        note=note if noted else "",
    )


def _ceilings(arms: Sequence[ReadArm]) -> str:
    """Return what queue and link did by themselves, measured just before the reads of each run."""
    words = []
    for arm in arms:
        known = [
            f"{name} {number(value / MILLION, 3)} M/s"
            for name, fact in (("the queue", "queue_per_s"), ("the link", "pull_per_s"))
            if (value := arm.mean(_total(fact))) is not None
        ]
        words += [f"{arm.title}, {' and '.join(known)}"] if known else []
    return f" By themselves, just before: {'; '.join(words)}." if words else ""


def _total(fact: str) -> Value:
    return lambda run: run.facts.total(fact)


def _in(value: float | None, factor: float) -> str:
    return number(None if value is None else value / factor, 3)


def _peaks(arms: Sequence[ReadArm]) -> ValueBars | None:
    """Return the most reads of a drive by the generation of its PCIe link; ``None`` for one."""
    peaks: dict[tuple[str, str, str], tuple[float, ReadArm]] = {}
    for arm in arms:
        links = {link for run in arm.runs for link in _links(run)}
        rate = arm.mean(_rate_of_drive)
        if len(links) != 1 or rate is None:
            continue
        key = (*links.pop(), arm.letter)
        if key not in peaks or rate > peaks[key][0]:
            peaks[key] = (rate, arm)
    if len({link for link, _, _ in peaks}) < _LINKS_MIN:
        return None
    return ValueBars(
        name="links",
        title="peak of one drive by PCIe generation",
        caption="The fastest point of each arm: the mean of its valid runs ÷ its drives.",
        what="reads of a drive",
        unit=Unit.SAMPLES_PER_SECOND,
        columns=("link", "drive", "arm", "at"),
        bars=[
            ValueBar(
                letter=letter,
                label=f"{link}, {model}",
                value=rate,
                cells=(link, model, arm.title, arm.at or MISSING),
            )
            for (link, model, letter), (rate, arm) in sorted(
                peaks.items(), key=lambda each: each[0]
            )
        ],
    )


def _links(run: Run) -> Iterator[tuple[str, str]]:
    for controller in run.record.controllers:
        state = controller.before or controller.after
        found = _GENERATIONS.get(state.link_speed_gt_per_s or 0.0) if state is not None else None
        if state is not None and found:
            width = f" x{state.link_width}" if state.link_width else ""
            yield f"Gen{found}{width}", controller.facts.model or "unknown drive"


def _rate_of_drive(run: Run) -> float | None:
    return (
        divided(reads_per_s(run), len(run.record.controllers)) if run.facts.reads_storage else None
    )


def _by_gpu(arms: Sequence[ReadArm], shown: Shown[ReadFacts]) -> Grid | None:
    """Return the reads of each GPU at the fastest point of each arm."""
    rows = []
    scale = scale_for(Unit.SAMPLES_PER_SECOND, *(arm.mean(reads_per_s) for arm in arms))
    for arm in arms:
        of_gpu: dict[str, list[tuple[RankReads, ReadFacts]]] = {}
        for run in arm.runs:
            for rank in run.facts.ranks:
                if rank.gpu is not None:
                    of_gpu.setdefault(rank.gpu.address, []).append((rank, run.facts))
        rates = {
            address: mean_of_known(rank.reads_per_s for rank, _ in own) or 0.0
            for address, own in of_gpu.items()
        }
        for address, own in sorted(of_gpu.items()):
            rank, facts = own[0]
            blocks = mean_of_known(_delivered_of(rank) / rank.seconds for rank, _ in own)
            delivered = None
            if facts.engine != NULL and blocks is not None:
                delivered = blocks * facts.settings.block_bytes
            gpu = rank.gpu
            about = f"{gpu.name or 'GPU'}, {node_text(gpu.node)}" if gpu is not None else ""
            rows.append(
                (
                    arm.title,
                    Word(address, remark=f"{about}, rank {rank.rank}"),
                    whole(len(rank.files)),
                    scaled(rates[address], scale, 4),
                    _in(delivered, GB),
                    _in(delivered, GIB),
                    number(rates[address] / max(rates.values()), 3) if rates[address] else MISSING,
                )
            )
    if not rows:
        return None
    return Grid(
        columns=("arm", "GPU", "#targets", f"#reads, {scale.unit}", "#GB/s", "#GiB/s",
                 "#of the fastest GPU"),
        rows=rows,
        caption="Reads of each GPU" + _of_points(", at the fastest point of each arm", shown),
    )  # fmt: skip


def _delivered_of(rank: RankReads) -> int:
    has_cache = rank.queue is not None and rank.queue.requests is not None
    return (rank.queue.delivered or 0) if has_cache and rank.queue else rank.operations


def _by_poller(arms: Sequence[ReadArm], shown: Shown[ReadFacts]) -> Grid | None:
    """Return the reads of each poller and its time at work, at the fastest point of each arm."""
    scale = scale_for(Unit.SAMPLES_PER_SECOND, *(arm.mean(reads_per_s) for arm in arms))
    rows = [
        (
            arm.title,
            whole(index),
            whole(own[0][0].rank),
            scaled(mean_of_known(poller.answered / rank.seconds for rank, poller in own), scale, 3),
            percent(mean_of_known(poller.busy_s / rank.seconds for rank, poller in own), 2),
        )
        for arm in arms
        for index, own in enumerate(zip(*(run.facts.pollers for run in arm.runs), strict=False))
    ]
    if not rows:
        return None
    return Grid(
        columns=("arm", "#poller", "#rank", f"#reads, {scale.unit}", "#at work"),
        rows=rows,
        caption="Reads of each poller" + _of_points(", at the fastest point of each arm", shown),
    )


def _by_target(arms: Sequence[ReadArm]) -> Grid:
    """Return operations, rate and percentiles of each target at each point."""
    has_points = any(arm.at for arm in arms)
    rows: list[tuple[str | Word, ...]] = []
    for arm in arms:
        files: dict[tuple[int, str], list[tuple[RankReads, FileReads]]] = {}
        for run in arm.runs:
            paths = {target.facts.index: target.facts.path for target in run.record.targets}
            for rank, file in run.facts.files:
                path = paths.get(file.target) or file.path
                files.setdefault((rank.rank, path), []).append((rank, file))
        rows += [
            (
                *([arm.at] if has_points else []),
                arm.title,
                Word(path, remark=own[0][0].gpu.address if own[0][0].gpu else ""),
                whole(_of_files(own, lambda _, file: file.operations)),
                quantity(
                    _of_files(own, lambda rank, file: divided(file.operations, rank.seconds)),
                    Unit.SAMPLES_PER_SECOND,
                    3,
                ),
                quantity(_of_files(own, lambda _, file: file.p50_s), Unit.SECONDS, 3),
                quantity(_of_files(own, lambda _, file: file.p99_s), Unit.SECONDS, 3),
            )
            for (_, path), own in files.items()
        ]
    return Grid(
        columns=(*(["at"] if has_points else []), "arm", "target", "#operations", "#rate",
                 "#p50 of reads", "#p99 of reads"),
        rows=rows,
        caption="Operations and latency of each target",
    )  # fmt: skip


def _of_files(
    found: Sequence[tuple[RankReads, FileReads]],
    value: Callable[[RankReads, FileReads], float | None],
) -> float | None:
    return mean_of_known(value(*each) for each in found)


VIEW = View[ReadFacts](
    title="Small random reads",
    labels={
        BY_REQUESTERS: "small random reads",
        "reads_per_s": "reads per second",
        "cpu_s_per_million_reads": "CPU time per million reads",
    },
    job=_job,
    arms=_arms,
    rate_titles={"reads_per_s": "{prefix} reads/s"},
    has_size=False,
    is_fixed_time=True,
    joule=Joule(one="read", many="reads", count=_read_count),
    conditions=_conditions,
    limit=_limit,
    has_limit_by_arm=True,
    headroom=_headroom,
    ceiling="link or queue",
    served=_served,
    failed=lambda run: run.facts.failed,
    operation="read",
    latencies={
        "request": "A request lasts until its block is delivered; of a queue, one in 64 is timed. "
        "A read lasts from taking a request to its completion, the wait for a place in the drive's "
        "queue included."
    },
    gpus=gpus,
    splits=lambda run: run.facts.engine,
    has_swept_targets=True,
    parallel=PARALLEL | {"queue_pairs"},
    sweep=Sweep(
        rate=reads_per_s,
        ceiling=lambda run: run.facts.total("pull_per_s"),
        ceiling_text="what the GPUs pull from host memory without a queue",
        targets=drive_count,
        shared=drives_text,
        not_workers=frozenset({"queue_pairs"}),
    ),
    opening=_opening,
    closing=_closing,
    lines=_lines,
)
