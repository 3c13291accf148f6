"""How reads by threads are shown: each arm's path with its proof, latency, and cost per GB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from wattload.core.io import DIRECT_WORDS, DataPath
from wattload.core.power import Scope
from wattload.core.units import Unit
from wattload.results.facts import divided
from wattload.results.gpu_read.checks import little_figures
from wattload.results.gpu_read.facts import BY_THREADS, ReadFacts, Run
from wattload.results.gpu_read.figures import phase_of
from wattload.results.gpu_read.text import (
    ReadArm,
    Value,
    failures,
    gpus,
    machine,
    valid_arms,
)
from wattload.results.paths import (
    NOT_PROVED,
    counted_paths,
    is_proved_indirect,
    path_text,
    proof,
)
from wattload.results.quantity import MISSING, counted, listed, percent, quantity
from wattload.results.shapes import Fact, Grid, Group, Shape, Text, Tone, Word, sheet, unique
from wattload.results.view import Shown, View

_LITTLE = 0.02
"""A share of a thread's time in no latency above this is stated."""


def _job(shown: Sequence[Run], _: Sequence[Run]) -> str:
    facts = shown[0].facts
    seconds = quantity(facts.settings.duration_s, Unit.SECONDS, 3)
    return f"random reads, {seconds}, files of {quantity(facts.file_bytes, Unit.BYTES, 3)}"


def _path_text(path: DataPath, run: Run) -> str:
    return path_text(path, run.record.workload.loader)


def _paths_text(run: Run) -> str:
    """Return the paths of a run in words, or that its path is not proved."""
    words = unique(_path_text(path, run) for path in counted_paths(run.record))
    return listed(words) or NOT_PROVED


def _arms(arms: Mapping[str, Sequence[Run]]) -> str:
    """Return the paths of arms; of several, also whether none is direct.

    For example ``A: through pinned host memory; none is direct``. A path without proof is not
    called indirect either.
    """
    runs = [run for own in arms.values() for run in own]
    found = {name: listed(unique(map(_paths_text, own))) for name, own in arms.items() if own}
    if len(found) == 1:
        return next(iter(found.values()))
    text = " · ".join(f"{name}: {words}" for name, words in found.items())
    of_runs = [counted_paths(run.record) for run in runs]
    if runs and all(paths and all(map(is_proved_indirect, paths)) for paths in of_runs):
        return f"{text}; none is direct"
    taken = {path.path_effective for paths in of_runs for path in paths}
    if taken & {"mixed", *DIRECT_WORDS} or not taken:
        return text
    return f"{text}; none is proved to be direct"


def _opening(shown: Shown[ReadFacts]) -> Iterator[Shape]:
    yield _paths(shown)
    yield from failures(shown)
    yield from _little(shown)


def _paths(shown: Shown[ReadFacts]) -> Grid:
    rows: list[tuple[str | Word, ...]] = []
    for arm, runs in zip(shown.every, valid_arms(shown), strict=True):
        by_text: dict[str, dict[int, list[DataPath]]] = {}
        for number, run in enumerate(runs):
            for path in counted_paths(run.record):
                of_text = by_text.setdefault(_path_text(path, run), {})
                of_text.setdefault(number, []).append(path)
        for text, own in by_text.items():
            paths = [path for of_run in own.values() for path in of_run]
            effective = {str(path.path_effective) for path in paths}
            tone: Tone = "warn" if effective & {"mixed", "unverified"} else ""
            if effective & {str(word) for word in DIRECT_WORDS}:
                tone = "good"
            count = f", {len(own)} of {counted(len(runs), 'run')}" if len(by_text) > 1 else ""
            rows.append(
                (
                    arm.title,
                    Word(text, tone, f"{listed(sorted(effective))}{count}"),
                    listed(unique(path.path_requested for path in paths)),
                    proof(paths),
                )
            )
        if not by_text:
            rows.append((arm.title, Word(NOT_PROVED, "warn"), MISSING, "no counters"))
    return Grid(
        columns=("arm", "path taken", "requested", "reads by counter"),
        rows=rows,
        caption="The path of the bytes, from counters alone",
        note="Counts are of all reads of the reader's process, those before and after the timed "
        "window included.",
    )


def _outside_latency(run: Run) -> float | None:
    """Return the share of a thread's time in no latency, by Little's law.

    A small negative share is within the error of the rate.
    """
    ratio = little_figures(run)["ratio"]
    return 1 - 1 / float(ratio) if ratio is not None else None


def _little(shown: Shown[ReadFacts]) -> Iterator[Text]:
    """Yield which share of a thread's time is in no latency, where that is not small."""
    texts = []
    for arm, runs in zip(shown.every, valid_arms(shown), strict=True):
        shares = [share for run in runs if (share := _outside_latency(run)) is not None]
        if shares and (max(shares) > _LITTLE or min(shares) < -_LITTLE):
            ends = f"up to {percent(max(shares))}"
            if max(shares) <= _LITTLE:
                ends = f"down to {percent(min(shares))}: more than the threads have"
            texts.append(f"{arm.title}: {ends}")
    if texts:
        yield Text(
            "Share of a thread's time in no latency (1 less IOPS x mean latency ÷ threads): "
            f"{'; '.join(texts)}. There, ratios of rates and of latencies differ."
        )


def _closing(shown: Shown[ReadFacts]) -> Iterator[Shape]:
    def joules(scope: Scope) -> Value:
        return lambda run: divided(run.joules(scope, BY_THREADS), run.facts.drive_bytes)

    def cpu(run: Run) -> float | None:
        return divided(run.facts.cpu_s, run.facts.drive_bytes)

    def text(value: Value, unit: Unit) -> Callable[[ReadArm], str]:
        return lambda arm: quantity(arm.mean(value), unit, 3)

    facts: list[Fact[ReadArm]] = [
        (
            "CPU",
            text(
                lambda run: divided(run.facts.cpu_s, run.facts.drive_bytes), Unit.SECONDS_PER_BYTE
            ),
        ),
        ("drives", text(joules(Scope.DRIVE), Unit.JOULES_PER_BYTE)),
        ("GPUs", text(joules(Scope.GPU), Unit.JOULES_PER_BYTE)),
        ("node", text(joules(Scope.NODE), Unit.JOULES_PER_BYTE)),
    ]
    if shown.arms:
        found = sheet(
            "Per GB read into GPU memory: CPU seconds of the reader, joules by device",
            shown.arms,
            [arm.words for arm in shown.arms],
            facts,
            "Geometric means of valid runs. Energies of drives, GPUs and the node are in the "
            "window, and never added: a node's includes the others. The CPU time of a load is left "
            "out.",
        )
        yield Group(title="CPU time and energy per GB", shapes=[found])
    yield from machine(shown)


def _reported_latency(run: Run) -> tuple[str, float] | None:
    reported_s = run.facts.reported_latency_s
    return (phase_of(run), reported_s) if reported_s else None


VIEW = View[ReadFacts](
    title="Reads into GPU memory",
    labels={"read_iops": "IOPS"},
    job=_job,
    arms=_arms,
    arms_over_points=True,
    has_size=False,
    is_fixed_time=True,
    failed=lambda run: run.facts.failed,
    operation="read",
    mean_latency=_reported_latency,
    gpus=gpus,
    opening=_opening,
    closing=_closing,
)
