"""How model loading is shown: seconds and joules of a load by loader, its bytes, and its limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from wattload.core.power import Scope
from wattload.core.units import J_PER_WH, Unit
from wattload.results import shapes, view
from wattload.results.facts import divided
from wattload.results.model_load import figures
from wattload.results.model_load.facts import LOAD, LoadFacts, Run, Temperature
from wattload.results.quantity import MISSING, counted, listed, number, percent, quantity, whole

Shown = view.Shown[LoadFacts]
_AT_LIMIT, _LEAST_CPU_S = 0.9, 0.5
"""From which share of what they can do drive, copy or CPUs limit; ticks blur less CPU time."""
_STARTS, _HOUR_S = (24, 100, 1000), 3600
_DEFINITIONS = (
    "A load is from before the first file is opened to the last tensor's last byte at its "
    "destination, on the slowest rank; mmap and torch on the host copy nothing: their destination "
    "is the page cache; direct starts its rings and threads before the load. A first load, in "
    "which a process gets its memory, is not timed. Each delivered byte is compared afterwards. "
    "First layer: the embedding and all of layer 0. Cold: the files were evicted from the page "
    "cache before each load. Rates of reads have the bytes that drives read, the rate over time "
    "those that a loader counts. Joules are gross, in the time of the loads; starts have no idle "
    "power in between."
)


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    first, *others = (
        (model.name, f"{quantity(model.tensor_bytes, Unit.BYTES, 3)} in {model.tensors} tensors",
         f"{own.access.value} tensors, tensor parallel {own.tp}" * (own.tp > 1),
         f"the first {counted(ranks, 'rank')} alone" * (ranks < own.tp),
         f"to {run.facts.device or 'host memory'}", own.temperature.value)
        for run in shown for model, own in [(run.facts.model, run.facts.settings)]
        for ranks in [len(run.facts.needed_bytes)]
    )  # fmt: skip
    return ", ".join(part for part in first if part and all(part in each for each in others))


def _is_cold(run: Run) -> bool:
    return run.facts.settings.temperature is Temperature.cold


def _limit(runs: Sequence[Run], _: float | None = None) -> view.Limit:
    """Return what limited loads: the CPUs, the drive, the copy to the GPU, or the loader."""
    if any(map(figures.is_small, runs)):
        least = (
            quantity(figures.LEAST_BYTES, Unit.BYTES, 3),
            quantity(figures.LEAST_S, Unit.SECONDS, 1),
        )
        return view.Limit(f"limit unknown: too small to be judged, under {least[0]} or {least[1]}")
    host = runs[0].record.hosts[0].facts
    cores = min(figures.cpu_s(run) / figures.load_s(run) / len(run.facts.loads) for run in runs)
    busy = f"{number(cores, 3)} CPUs busy"
    if cores >= _AT_LIMIT * (host.cgroup_cpu_limit or host.cpu_count):
        return view.Limit(f"limited by the CPU, {busy}")
    for what, of in (("drive", figures.ceiling_share), ("copy to the GPU", figures.copy_share)):
        shares = [of(run) or 0.0 for run in runs]
        if min(shares) >= _AT_LIMIT and max(shares) <= shapes.CEILING_ERROR:
            text = f"limited by the {what}, at {percent(min(shares))} of its ceiling"
            return view.Limit(text, is_drive=what == "drive")
    if not all(map(_is_cold, runs)):
        served = view.Served.by_page_cache(runs[0], LOAD, "reads", directly=False).from_memory
        return view.Limit(f"limited by {f'memory: {served}' if served else 'reads of warm files'}")
    shares = [figures.ceiling_share(run) or 0.0 for run in runs]
    lowest, highest = min(shares), max(shares)
    if not lowest or highest >= _AT_LIMIT:
        reason = f"runs reached {percent(lowest)} to {percent(highest)} of the drive's ceiling"
        if highest > shapes.CEILING_ERROR:
            reason = f"{percent(highest)} of a ceiling measured too low"
        return view.Limit(
            f"limit unknown: {reason if lowest else 'no rate of reads or no ceiling'}"
        )
    at = f"at {percent(lowest)} of the drive's ceiling"
    return view.Limit(f"limited by the loader, {at}, {busy}")


def _remarks(shown: Shown) -> Iterator[str]:
    """Yield by what loaders can't be compared here, and which tensors they read whole."""
    cold = [run for arm in shown.arms for run in arm.runs if _is_cold(run)]
    if len({run.record.workload.loader for run in cold}) > 1:
        shares = [figures.ceiling_share(run) or 0.0 for run in cold]
        reasons = {
            "time (the drive's ceiling is unknown, or loads are too small)": not min(shares),
            "time (a load was faster than the drive's ceiling, which was measured too low)":
                max(shares) > shapes.CEILING_ERROR,
            f"time (each reached {percent(_AT_LIMIT, 2)} or more of the drive's ceiling)":
                _AT_LIMIT <= min(shares) <= max(shares) <= shapes.CEILING_ERROR,
            f"CPU time (a run used less than {quantity(_LEAST_CPU_S, Unit.SECONDS, 1)}; load more)":
                any(figures.cpu_s(run) < _LEAST_CPU_S for run in cold),
        }  # fmt: skip
        if found := [reason for reason, holds in reasons.items() if holds]:
            yield f"Loaders can't be judged here by {listed(found, 'or by')}."
    for run in {run.record.workload.loader: run for run in shown.runs}.values():
        if kinds := listed([*run.facts.read_whole]):
            yield f"{run.record.workload.loader} read {kinds} whole; ranks need parts of them."


def _joules(run: view.ShownRun[LoadFacts], scope: Scope) -> float | None:
    return divided(run.joules(scope, LOAD), len(run.facts.loads))


_SCOPES = {Scope.DRIVE: "drive", Scope.GPU: "GPU", Scope.NODE: "host"}
_FACTS: Sequence[tuple[str, Callable[[Any], float | None], Unit]] = (
    *((label, of, unit) for _, label, of, unit, *_ in figures.COLUMNS),
    *((f"{name} J per load, in the window", partial(_joules, scope=scope), Unit.JOULES)
      for scope, name in _SCOPES.items()),
    ("starts an hour", lambda run: divided(_HOUR_S, figures.load_s(run)), Unit.COUNT),
)  # fmt: skip


def _lines(run: Run) -> Mapping[str, str]:
    cell = {label: quantity(of(run), unit, 3) for _, label, of, unit, *_ in figures.COLUMNS}
    first, loads = cell["time to the first layer"], counted(len(run.facts.loads), "load")
    return {
        "also": "",
        "load": f"first layer after {first}, last tensor after {cell['time of a load']}; {loads}",
        "a load": f"{cell['needed']} needed, {cell['read']} read, {cell['delivered']} delivered",
        "memory": f"{cell['memory taken']} taken; {cell['cached afterwards']} of files cached",
        "limit": _limit([run]).text.removeprefix("limit "),
    }


def _opening(shown: Shown) -> Iterator[shapes.Shape]:
    if remarks := [*_remarks(shown)]:
        yield shapes.Note(title="How to read these figures", sentences=remarks)
    if not (arms := shown.arms):
        return
    names = ("first layer", "other tensors")
    charts: list[shapes.Chart] = [shapes.PartBars(
        name="seconds", title="seconds of a load", caption="", what="a load", whole="a load",
        unit=Unit.SECONDS, kind="part", names=names,
        bars=[shapes.PartBar(label=arm.words, parts=[
            shapes.Part(names[0], first_s),
            shapes.Part(names[1], (arm.mean(figures.load_s) or 0.0) - first_s)])
            for arm in arms for first_s in [arm.mean(figures.first_layer_s) or 0.0]],
    )]  # fmt: skip
    rates = [
        shapes.CeilingBar(letter=arm.letter, label=arm.words, value=rate,
                          ceiling=arm.mean(lambda run: run.facts.drive_ceiling_bytes_per_s),
                          ceiling_name="ceiling")
        for arm in arms if (rate := arm.mean(figures.drive_rate))
    ]  # fmt: skip
    if rates:
        charts.append(shapes.CeilingBars(
            name="rates", title="rate of reads", unit=Unit.BYTES_PER_SECOND,
            caption="Ceiling: the engine's sequential reads of the same files, after the loads."
            * any(each.ceiling is not None for each in rates),
            panels=[("read from the drive", rates)],
        ))  # fmt: skip
    yield shapes.Row(charts)

    def text(of: Callable[[Any], float | None], unit: Unit, arm: view.Arm[LoadFacts]) -> str:
        return quantity(arm.mean(of, unit), unit, 3)

    evidence = listed(shapes.unique(run.evidence(LOAD) for arm in arms for run in arm.runs))
    evidence = evidence or "not measured"
    yield shapes.sheet("A load, of all ranks", arms, [arm.words for arm in arms],
                       [(name, partial(text, of, unit)) for name, of, unit in _FACTS],
                       f"Means of valid runs. Drive energy in the window: {evidence}.")  # fmt: skip
    rows = [
        (arm.words, name, *(
            number(joules * starts / J_PER_WH, 3)
            if starts * (arm.mean(figures.load_s) or 0.0) <= 24 * _HOUR_S else MISSING
            for starts in _STARTS))
        for arm in arms for scope, name in _SCOPES.items()
        if (joules := arm.mean(partial(_joules, scope=scope))) is not None
    ]  # fmt: skip
    if rows:
        yield shapes.Grid(
            columns=("arm", "of", *(f"#{whole(starts)} starts" for starts in _STARTS)), rows=rows,
            caption="Wh a day by starts of the model, loads alone",
            note=f"{MISSING}: more starts than a day has time for.",
        )  # fmt: skip


VIEW = view.View[LoadFacts](
    title="Model loading",
    job=_job,
    labels={name: words for name, words, *_ in figures.COLUMNS},
    stands=("loads of a cold model", lambda runs: all(map(_is_cold, runs))),
    rate_titles={figures.LOAD_TIME: "{unit} per load"},
    work=lambda run, _: ("load", float(len(run.facts.loads))),
    payload_bytes=lambda run: figures.needed_bytes(run) * len(run.facts.loads),
    settings=lambda run: {"workload.destination": "gpu" if run.facts.device else "host"},
    conditions=lambda run: [view.Condition(
        name="workload tensors", value=run.facts.model.digest[:12], differs="models differ")],
    not_work=frozenset({"access", "source"}),
    limit=_limit,
    headroom=lambda run: [1 / share for share in [figures.copy_share(run)] if share],
    gpus=lambda run: run.facts.gpus,
    splits=lambda run: run.record.workload.loader,
    accelerators=lambda run: [run.facts.device] if run.facts.device else [],
    opening=_opening,
    closing=lambda _: [shapes.Group(title="Definitions", shapes=[shapes.Text(_DEFINITIONS)])],
    lines=_lines,
)  # fmt: skip
"""Whole tensors or slices, and copies of a model in other folders, are no other work."""
