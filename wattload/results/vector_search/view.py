"""How vector search is shown: rate and joules at equal recall, every point, and its limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from wattload.core.power import Scope
from wattload.core.units import MILLI, Unit
from wattload.results import shapes, view
from wattload.results.amplification import amplification
from wattload.results.facts import divided
from wattload.results.quantity import (
    MISSING,
    UNIT_SPACE,
    counted,
    listed,
    number,
    percent,
    quantity,
    whole,
)  # fmt: skip
from wattload.results.vector_search import figures
from wattload.results.vector_search.facts import BUILD, FIRST_PASS, SEARCH, Run, VectorFacts
from wattload.results.vector_search.published import PUBLISHED

Arm = view.Arm[VectorFacts]
Shown = view.Shown[VectorFacts]
GOALS, _AT_LIMIT = (0.95, 0.90), 0.9
"""Recalls at which arms are compared; from which share of what they can do, drive or CPU limit."""
_DEFINITIONS = (
    "Recall: of a query's k nearest vectors the share that was returned, on average. An answer "
    "counts once, and if it is no farther than the true k-th; intervals are 95 % over queries.",
    "J per query: gross joules of the drives in the timed window ÷ queries answered in it.",
    "At a recall: logarithms are interpolated linearly between neighbouring points at most 0.05 "
    "apart in recall; else the next point above is used. Nothing is extrapolated. Drives are only "
    "ranked at equal recall: with the same index and the same answers.",
    "Latency: in a closed loop from the start of a query, so it rises with the queries under way; "
    "in an open loop from the scheduled arrival.",
)


def _millijoules(run: view.ShownRun[VectorFacts], phase: str = SEARCH) -> float | None:
    return divided(divided(run.joules(Scope.DRIVE, phase), run.facts.passes[phase].queries), MILLI)


_RATE = ("queries/s", figures.rate, Unit.COUNT)
_ENERGY = ("mJ per query", _millijoules, Unit.COUNT)
_P99 = ("p99", partial(figures.latency_s, name="p99_s"), Unit.SECONDS)
_COLUMNS: Sequence[tuple[str, Callable[..., float | None], Unit]] = (
    _RATE, _ENERGY,
    *((words, partial(figures.per_query, name=name), unit) for name, words, unit in figures.COSTS),
    *((words, partial(figures.latency_s, name=name), Unit.SECONDS)
      for name, words in figures.LATENCIES.items()),
    ("of ceiling", figures.ceiling_share, Unit.FRACTION),
)  # fmt: skip


def _list(run: Run) -> str:
    return f"L={run.facts.settings.search_list}"


def _loop(run: Run) -> str:
    rate = run.facts.settings.query_rate
    if rate is None:
        return "closed loop"
    return f"{'overloaded ' * figures.is_overloaded(run)}open loop of {rate:g} queries/s"


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    first, *others = (
        (f"{whole(index.vectors)} vectors of {index.dim} {index.dtype}", own.metric.value,
         f"recall {_recall(run).text}" if run.facts.answers else "replayed reads, no recall",
         f"degree {index.degree}", _list(run), f"beam {own.beam}", f"k={own.k}", _loop(run))
        for run in shown for index, own in [(run.facts.index, run.facts.settings)]
    )  # fmt: skip
    return ", ".join(part for part in first if part and all(part in each for each in others))


def _conditions(run: Run) -> Iterator[view.Condition]:
    answers = run.facts.answers.digest if run.facts.answers else "none"
    for name, value in (("index files", run.facts.index.digest), ("answers", answers)):
        yield view.Condition(name=f"workload {name}", value=value[:12], differs=f"{name} differ")


def _limit(runs: Sequence[Run], _: float | None = None) -> view.Limit:
    """Return what limited queries: their arrivals, the drive, the CPU, or waiting for reads."""
    if all(run.facts.settings.query_rate and not figures.is_overloaded(run) for run in runs):
        return view.Limit("limited by arrivals")
    shares = [figures.ceiling_share(run) or 0.0 for run in runs]
    if min(shares) >= _AT_LIMIT and max(shares) <= shapes.CEILING_ERROR:
        return view.Limit(f"limited by the drive, at {percent(min(shares))} of its ceiling", True)
    facts, host = runs[0].facts, runs[0].record.hosts[0].facts
    cpus = min(facts.threads, host.cgroup_cpu_limit or host.cpu_count)
    busy = min(run.facts.passes[SEARCH].cpu_s / run.seconds(SEARCH) / cpus for run in runs)
    if busy >= _AT_LIMIT:
        return view.Limit(f"limited by the CPU, busy for {percent(busy)} of the time")
    if facts.reads_directly and not 0 < max(shares) <= shapes.CEILING_ERROR:
        found = f"{percent(max(shares))} of a ceiling measured too low" * (max(shares) > 0)
        return view.Limit(f"limit unknown: {found or 'the ceiling of the drive was not measured'}")
    if cached := _served(runs[0]).from_memory:
        return view.Limit(f"limit unknown: {cached}")
    a_thread = facts.inflight_per_thread * facts.settings.beam if facts.reads_directly else 1
    most = facts.threads * a_thread
    return view.Limit(f"limited by waiting for reads, at most {most} in flight")


def _served(run: Run) -> view.Served:
    return view.Served.by_page_cache(run, SEARCH, "reads", directly=run.facts.reads_directly)


def _under_way(run: Run) -> str:
    each = counted(run.facts.inflight_per_thread, "query", "queries")
    return f"{counted(run.facts.threads, 'thread')} x {each}"


def _recall(run: Run) -> shapes.Word:
    found, ends = figures.recall(run), figures.recall_interval(run)
    if found is None or ends is None:
        return shapes.Word(MISSING)
    return shapes.Word(f"{found:.4f}", remark=f"{ends[0]:.4f} to {ends[1]:.4f}")


def _in_flight(run: Run) -> shapes.Word:
    facts = run.facts
    rates = [f"{each.inflight_per_thread}: {number(each.queries / each.seconds, 3)}/s"
             for each in facts.tried]  # fmt: skip
    tried = f"tried {', '.join(rates)}" * bool(rates)
    return shapes.Word(f"{facts.threads} x {facts.inflight_per_thread}", remark=tried)


def _data(run: Run) -> str:
    if (data := run.facts.data) is None:
        return "replayed reads of a real search"
    dimension, alone = data.intrinsic_dimension, figures.mean_share(data.code_order_hits)
    return f"intrinsic dimension {number(dimension, 3)}, recall by codes alone {number(alone, 3)}"


def _lines(run: Run) -> Mapping[str, str]:
    recall, held = _recall(run), quantity(figures.held_bytes(run), Unit.BYTES, 3)
    cell = {name: quantity(of(run), unit, 3) for name, of, unit in _COLUMNS if of != _millijoules}
    latency = ", ".join(f"{words} {cell[words]}" for words in figures.LATENCIES.values())
    interval = f" ({recall.remark})" * bool(recall.remark)
    reads = f"{cell['reads']} reads in {cell['rounds']} rounds, {cell['bytes']}"
    return {
        "recall": f"{recall.text}{interval} at {_list(run)}; {_data(run)}",
        "latency": f"{_loop(run)}: {latency}",
        "a query": f"{reads}, {cell['CPU time']} of CPU; {held} of memory held",
        "limit": f"{_limit([run]).text}; {_under_way(run)}",
    }


def _curves(shown: Shown) -> dict[tuple[str, str], list[Arm]]:
    """Return the points along the list, by the letter and title of everything else."""
    found: dict[tuple[str, str], list[Arm]] = {}
    for arm in shown.arms:
        others = [part for part in arm.words.split(", ") if not part.startswith("search list ")]
        found.setdefault((arm.letter, ", ".join(others) or "all runs"), []).append(arm)
    return found


def _points(arms: Sequence[Arm], of: Callable[..., Any]) -> figures.Points:
    found = [(_list(arm.runs[0]), arm.mean(figures.recall), arm.mean(of)) for arm in arms]
    return sorted(((name, x, y) for name, x, y in found if x is not None), key=lambda each: each[1])


def _at_recall(arms: Sequence[Arm], goal: float) -> Iterator[str]:
    for _, of, unit in (_RATE, _ENERGY, _P99, ("", figures.held_bytes, Unit.BYTES)):
        value, how = figures.at_recall(_points(arms, of), goal)
        yield quantity(value, unit, 3)
    yield how


def _opening(shown: Shown) -> Iterator[shapes.Shape]:
    if not (every := _curves(shown)):
        return
    loops = listed(shapes.unique(map(_loop, shown.runs)))
    curves = {key: arms for key, arms in every.items() if _points(arms, figures.rate)}
    if curves:
        yield shapes.Grid(
            columns=("recall", "arm", "#queries/s", "#mJ per query", "#p99", "#memory held", "how"),
            rows=[(f"≥{UNIT_SPACE}{goal:.2f}", title, *_at_recall(arms, goal))
                  for goal in GOALS for (_, title), arms in curves.items()],
            caption=f"At equal recall, {loops}, energy in the window",
        )  # fmt: skip
    if any(len(arms) > 1 for arms in curves.values()):
        yield shapes.Row([
            shapes.PointLines(
                name=name, title=f"{what} over recall", caption=f"By list length (L), {loops}.",
                what=what, unit=unit, over="recall", over_unit=Unit.COUNT,
                lines=[shapes.PointLine(*key, [x for _, x, _ in points], [y for *_, y in points])
                       for key, arms in curves.items() if (points := _points(arms, of))],
            )
            for name, (what, of, unit) in (("rate", _RATE), ("energy", _ENERGY), ("p99", _P99))
        ])  # fmt: skip
    yield shapes.Grid(
        columns=("arm", "#L", "#recall", *(f"#{each}" for each, _, _ in _COLUMNS), "in flight",
                 "limit"),
        rows=[
            (title if phase == SEARCH else f"{title}, first pass", _list(arm.runs[0])[2:],
             _recall(arm.runs[0]),
             *(quantity(arm.mean(partial(of, phase=phase)), unit, 3) for _, of, unit in _COLUMNS),
             _in_flight(arm.runs[0]),
             _limit(arm.runs).text.removeprefix("limited by ").removeprefix("limit ")
             if phase == SEARCH else MISSING)
            for (_, title), arms in every.items() for arm in arms
            for phase in (FIRST_PASS, SEARCH) if phase in arm.runs[0].facts.passes
        ],
        caption=f"Every point, per query, {loops}, energy in the window",
        note=f"{listed(shapes.unique(map(_data, shown.runs)), 'or').capitalize()}.",
    )  # fmt: skip


def _closing(shown: Shown) -> Iterator[shapes.Shape]:
    every = [(title, _list(arm.runs[0])[2:], arm.runs[0].facts.index)
             for (_, title), arms in _curves(shown).items() for arm in arms]  # fmt: skip
    if parts := shapes.unique(part for *_, index in every for part in index.memory_bytes):
        columns = ("arm", "#L", "#a node", "#file of nodes", *map("#{}".format, parts))
        held: dict[tuple[str, tuple[int | None, ...]], list[str]] = {}
        for title, at, index in every:
            sizes = index.node_bytes, index.file_bytes, *map(index.memory_bytes.get, parts)
            held.setdefault((title, sizes), []).append(at)
        yield shapes.Grid(
            columns=columns, caption="Memory that a search holds, and its file",
            rows=[(title, listed(lists), *(quantity(size, Unit.BYTES, 3) for size in sizes))
                  for (title, sizes), lists in held.items()],
        )  # fmt: skip
    rows: list[Sequence[str | shapes.Word]] = [
        (arm.title, *(quantity(each, Unit.SECONDS, 3) for each in (
            made.quantization_s, made.graph_s, made.writing_s, run.seconds(BUILD))),
         quantity(run.joules(Scope.DRIVE, BUILD), Unit.JOULES, 3),
         *(quantity(each, Unit.BYTES, 3) for each in (
             run.record.moved_bytes(BUILD, "written"), made.peak_memory_bytes)),
         amplification(run, BUILD))
        for arm in shown.every for run in arm.runs if (made := run.facts.build)
    ]  # fmt: skip
    if rows:
        columns = ("arm", "#codes", "#graph", "#files", "#in all", "#drive energy", "#written",
                   "#most memory", "#write amplification")  # fmt: skip
        yield shapes.Grid(columns=columns, rows=rows, caption="Building the index")
    yield shapes.Group(title="Definitions", shapes=[*map(shapes.Text, _DEFINITIONS)])


VIEW = view.View[VectorFacts](
    title="Vector search", job=_job, rate_titles={figures.RATE: "{prefix} queries/s"},
    stands=(f"the first with a recall of {GOALS[0]} or more", lambda runs: all(
        (figures.recall(run) or 0.0) >= GOALS[0] for run in runs)),
    has_size=False, is_fixed_time=True, conditions=_conditions, limit=_limit,
    not_work=frozenset({"threads", "inflight_per_thread", "cache_nodes"}),
    joule=view.Joule(one="query", many="queries", unit="mJ", count=lambda run, phase: (
        run.facts.passes[phase].queries if phase in run.facts.passes else None)),
    headroom=lambda run: [factor for factor in [divided(
        run.facts.host_ceiling_queries_per_s, figures.rate(run))] if factor],
    served=_served,
    opening=_opening, closing=_closing, lines=_lines, published=PUBLISHED,
)  # fmt: skip
