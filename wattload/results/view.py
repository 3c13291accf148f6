"""The view of a workload: what pages, exports, terminals and claims say about its runs.

A view has texts, flags, and functions that return texts or plain data. No text has markup. What a
view leaves out has a default that suits a workload whose runs move a given number of bytes, each as
fast as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean, median
from typing import Any, Generic, Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Channel, Scope
from wattload.core.units import Unit
from wattload.results.facts import F, Run, cached_share
from wattload.results.published import PublishedView
from wattload.results.quantity import percent
from wattload.results.shapes import Chart, Shape

_FEW_CACHED = 0.02
"""A smaller share of reads that did not reach the drive is the file system's own."""

Columns = Mapping[str, NDArray[Any]]
"""A trace table by column; a null of numbers is NaN."""


@dataclass(frozen=True)
class ShownRun(Run[F]):
    """A run of a page, with what its meters say.

    ``joules`` returns the energy of the devices of a scope in the window of a phase, ``None`` if it
    is unknown: devices are compared in the window, as only drives have energy for the work.
    ``evidence`` is that of the drives' energy in a phase, in words; empty without an energy.
    """

    joules: Callable[[Scope, str], float | None]
    evidence: Callable[[str], str]


@dataclass(frozen=True)
class Arm(Generic[F]):
    """The runs of one arm, at one point of a sweep: ``at``, empty without one.

    ``title`` names the arm, ``all runs`` if it is the only one; ``letter`` is then empty. ``name``
    is its name in a sentence.
    """

    letter: str
    name: str
    title: str
    at: str
    runs: tuple[ShownRun[F], ...]

    @property
    def words(self) -> str:
        """The arm and the point, for a heading."""
        parts = [self.title if self.letter or not self.at else "", self.at]
        return ", ".join(filter(None, parts))

    def mean(
        self, value: Callable[[ShownRun[F]], float | None], unit: Unit | None = None
    ) -> float | None:
        """Return the mean of a figure over the runs that have it.

        Of shares it is arithmetic, as in the table of all figures, else that of ``mean_of_known``.
        """
        if unit is not Unit.FRACTION:
            return mean_of_known(map(value, self.runs))
        known = [found for found in map(value, self.runs) if found is not None]
        return fmean(known) if known else None


@dataclass(frozen=True)
class Readings:
    """What one device reported: times in ns on the run's monotonic clock and values, both (n,).

    A value that could not be read is NaN. ``evidence`` is that of powers, in words.
    """

    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    evidence: str = ""


@dataclass(frozen=True)
class TracedRun(Generic[F]):
    """One run of an arm, with its trace tables; ``track`` is its place among those of the page.

    ``readings`` returns those of a channel by device; of power, those that energies are from.
    """

    letter: str
    title: str
    run: ShownRun[F]
    tables: Mapping[str, Columns]
    track: int
    readings: Callable[[Channel], Sequence[Readings]]


@dataclass(frozen=True)
class Shown(Generic[F]):
    """The runs of a workload on a page.

    ``arms`` have the runs that are compared, by point and arm. ``every`` has all runs by arm,
    ``traced`` one run of each arm.
    """

    arms: Sequence[Arm[F]]
    every: Sequence[Arm[F]]
    traced: Sequence[TracedRun[F]] = ()

    @property
    def runs(self) -> Iterator[ShownRun[F]]:
        return (run for arm in self.every for run in arm.runs)


@dataclass(frozen=True, kw_only=True)
class Joule(Generic[F]):
    """What a joule pays for, where that is not bytes: ``count`` of them in a phase.

    ``one`` and ``many`` are its name. Without a size of the job, energies are per ``one``, in
    ``unit``: µJ or mJ.
    """

    one: str
    many: str
    count: Callable[[Run[F], str], int | None]
    unit: str = "µJ"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition of a run beside its settings and its machine.

    ``differs`` is why arms that differ in it did other work, with ``{}`` for its values; without
    that, it is named. One that ``is_work`` excludes a comparison. Values in ``usual`` are left out
    of that sentence.
    """

    name: str
    value: str
    is_work: bool = True
    differs: str = ""
    usual: str = ""


@dataclass(frozen=True)
class Limit:
    """What limited a rate, in a few words, and whether the drive did, alone or with others."""

    text: str
    is_drive: bool = False


@dataclass(frozen=True, kw_only=True)
class WorkerShares:
    """Shares of the time of workers: on a core, waiting for one, and waiting for storage."""

    on_core: float
    for_core: float
    for_storage: float


@dataclass(frozen=True, kw_only=True)
class Served:
    """What answered reads in place of drives.

    ``instead`` is what did, if no storage was read. ``cached`` is that a cache of ``cache_bytes``
    saved reads. ``from_memory`` is how much of the reads memory served, if that is more than a
    small share. All are in words.
    """

    instead: str = ""
    cached: str = ""
    cache_bytes: int = 0
    from_memory: str = ""

    @classmethod
    def by_page_cache(cls, run: Run[F], phase: str, reads: str, *, directly: bool) -> Self:
        """Return what the page cache served of a phase's reads, which bypass it if ``directly``."""
        share = None if directly else cached_share(run, phase)
        if share is None or share < _FEW_CACHED:
            return cls()
        return cls(from_memory=f"the page cache served {percent(share)} of the {reads}")


PARALLEL = frozenset(
    {
        "accelerators",
        "depth",
        "devices",
        "pollers",
        "processes",
        "queue_depth",
        "ranks",
        "targets",
        "threads",
        "workers",
    }
)
"""Settings of runs and of loaders that count what works in parallel."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Generic[F]):
    """What a sweep of a workload is compared with, if its rate counts operations and not bytes.

    ``rate`` is that rate, and ``ceiling`` what bounds it at each point, which is ``ceiling_text``.
    ``targets`` is how many drives it is of, ``shared`` that targets share a drive, in words: then
    more of them are not more drives. Settings in ``not_workers`` count no workers, so that a rate
    in proportion to them is no ideal.
    """

    rate: Callable[[Run[F]], float | None]
    ceiling: Callable[[Run[F]], float | None] = lambda _: None
    ceiling_text: str = ""
    targets: Callable[[Run[F]], int] = lambda run: len(run.record.targets)
    shared: Callable[[Run[F]], str] = lambda _: ""
    not_workers: frozenset[str] = frozenset()


def _nothing(_: Run[F]) -> Served:
    return Served()


def _no_shapes(_: Shown[F]) -> Iterable[Shape]:
    return ()


@dataclass(frozen=True, kw_only=True)
class View(Generic[F]):
    """How a workload is shown.

    Words:
        title: its name in a heading, by default the one in its record.
        labels: figures, phases and settings in words, where these are not the words of the name.
        job: the job of runs that are shown, with all runs of the page; without what differs.
        arms: what sets the arms apart, by name of the arm; of the runs at the point that is shown,
            or ``arms_over_points`` of all.
        stands: why a point of a sweep may stand for all, in words, and whether its runs may; the
            first that may does, or else the point of the median ratio.
        rate_titles: titles of a figure's bars by its name, with ``{unit}`` and ``{prefix}``, the
            unit without ``/s``.
        latencies: how long operations of some kinds last, where that is not from submission to
            completion.
        times: the name of a figure that is a duration, and the words before it.

    Work:
        work: the unit of work of some phases and how many a run did, such as 20 steps.
        has_size: whether a job has a size that means something, so that there are energies of it.
        is_fixed_time: whether runs end when a time is over, so that less energy is no better.
        joule: what a joule pays for, if not bytes.
        payload_bytes: the bytes that equal work has, where those that a drive moves are a result.
        settings: settings that follow from others, as they were in effect.
        conditions: conditions beside settings and machine.
        not_work: settings in which runs of equal work may differ.

    Trust:
        limit: what limited the rate of runs, given the share of time in which the drive was busy.
        has_limit_by_arm: whether each arm has a limit of its own to be named.
        headroom: how far the ceilings of a run are above its rate.
        ceiling: whose ceilings these are.
        workers: how the workers of a run spent their time in phases; ``None`` if it is unknown.
        served: what answered reads in place of drives.
        failed: how many operations failed, each of them an ``operation``.
        gpus: the GPUs that a run used, by rank and PCI address.
        splits: what sets apart runs of one label that are arms of their own, such as an engine.
        has_swept_targets: whether lists of targets of different lengths are points of a sweep.
        parallel: settings that count what works in parallel, so that a rate in proportion to them
            is ideal.
        sweep: what a sweep is compared with, if the rate counts operations.
        mean_latency: the phase of reads and their mean latency in seconds, where a program reports
            nothing more of it.
        accelerators: what computed, by name, if not what the settings emulate.

    Page:
        opening: what a section begins with.
        over_time: charts in place of the rate over time; the first may open the page.
        closing: what follows the figures over time.
        draws_parts: whether it draws the parts of times by itself.
        emulates_accelerators: whether it does, so that a loader reads ahead of what they compute.
        useful_part: the figure whose share of a whole is printed on its bar, and a word for it.
        judges_steady: whether its runs are judged to be steady by rules of their own.
        lines: lines of a terminal's summary by label, in place of the general ones or after them.
        outcome: what a benchmark's rules make of the runs of an arm, without a full stop.
        outcome_figures: the figures of which the outcome has the one that counts; a terminal prints
            them only with ``--verbose``.
        published: how published results of its kind are shown, and its own runs next to them.
    """

    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    job: Callable[[Sequence[Run[F]], Sequence[Run[F]]], str] | None = None
    arms: Callable[[Mapping[str, Sequence[Run[F]]]], str] | None = None
    arms_over_points: bool = False
    stands: tuple[str, Callable[[Sequence[Run[F]]], bool]] | None = None
    rate_titles: Mapping[str, str] = field(default_factory=dict)
    latencies: Mapping[str, str] = field(default_factory=dict)
    times: tuple[str, str] = ("", "")
    work: Callable[[Run[F], Sequence[str]], tuple[str, float] | None] | None = None
    has_size: bool = True
    is_fixed_time: bool = False
    joule: Joule[F] | None = None
    payload_bytes: Callable[[Run[F]], int] | None = None
    settings: Callable[[Run[F]], Mapping[str, str]] = lambda _: {}
    conditions: Callable[[Run[F]], Iterable[Condition]] = lambda _: ()
    not_work: frozenset[str] = frozenset()
    limit: Callable[[Sequence[Run[F]], float | None], Limit | None] | None = None
    has_limit_by_arm: bool = False
    headroom: Callable[[Run[F]], Sequence[float]] | None = None
    ceiling: str = "host"
    workers: Callable[[Run[F], Sequence[str]], WorkerShares | None] = lambda *_: None
    served: Callable[[Run[F]], Served] = _nothing
    failed: Callable[[Run[F]], int] = lambda _: 0
    operation: str = "operation"
    gpus: Callable[[Run[F]], Iterable[tuple[int, str]]] = lambda _: ()
    splits: Callable[[Run[F]], str] = lambda _: ""
    has_swept_targets: bool = False
    parallel: frozenset[str] = PARALLEL
    sweep: Sweep[F] | None = None
    mean_latency: Callable[[Run[F]], tuple[str, float] | None] = lambda _: None
    accelerators: Callable[[Run[F]], Iterable[str]] | None = None
    opening: Callable[[Shown[F]], Iterable[Shape]] = _no_shapes
    over_time: Callable[[Shown[F]], Sequence[Chart]] = lambda _: ()
    closing: Callable[[Shown[F]], Iterable[Shape]] = _no_shapes
    draws_parts: bool = False
    emulates_accelerators: bool = False
    useful_part: tuple[str, str] = ("", "")
    judges_steady: bool = False
    lines: Callable[[Run[F]], Mapping[str, str]] = lambda _: {}
    outcome: Callable[[Sequence[Run[F]]], str] = lambda _: ""
    outcome_figures: frozenset[str] = frozenset()
    published: PublishedView[F] | None = None


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; ``None`` without one.

    It is geometric, as in the ratios of a page, or arithmetic where not all are positive.
    """
    known = [value for value in values if value is not None]
    if len({*known}) <= 1:  # exact without rounding
        return next(iter(known), None)
    return geometric_mean(known) if min(known) > 0 else fmean(known)


def median_of_known(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; ``None`` without one."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
