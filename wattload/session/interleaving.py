"""Interleaved sessions: which runs the arms make, in which order, and when drives are cool enough.

The order is ABBA ABBA, or ABCCBA ABCCBA of three arms, so that a linear drift over time affects all
arms equally; in AB AB it does not. Each half, ABC or CBA, is a block.

The first compared run of a session sets each drive's reference temperature. Later runs wait until
the drive is at most ``ALLOWED_K`` warmer. They do not wait for a colder drive: rest won't warm it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.core.record.file import read_record
from wattload.core.record.run import (
    WARM_UP_BLOCK,
    Comparison,
    RunRecord,
    RunStart,
    StartTemperature,
)
from wattload.core.storage.block_stack import controller_serial
from wattload.core.storage.controllers import controller_state, controllers_under
from wattload.core.storage.targets import Target
from wattload.core.sysfs import LIVE, Roots
from wattload.core.units import NS_PER_S
from wattload.results.quantity import counted, listed
from wattload.run.compose import compose
from wattload.run.config import RunConfig, TargetConfig, override_of, plain_text
from wattload.run.process import ProcessContext
from wattload.session.axes import Axis, axis_names, fitting, makes_arms, product
from wattload.session.schedule import (
    ARMS,
    Outlook,
    Point,
    Schedule,
    SessionJournal,
    SessionReporter,
    Step,
    point_key,
)

PUBLISHED_PAIRS = 8
"""What a publication takes. A verdict takes fewer: see ``reports.stats.effects``."""

SESSION_KEYS = ("interleave", "interleave_by", "start_wait_max_s", "repeat", "runs", "sweep")
"""Keys that apply to a whole session and can't be swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of a session: its overrides, its arm, its block, and its point of the sweep.

    ``block`` counts over all points; warm-ups have ``WARM_UP_BLOCK``.
    """

    overrides: tuple[str, ...]
    arm: str
    block: int
    point: int

    @property
    def is_warm_up(self) -> bool:
        return self.block == WARM_UP_BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of the comparison: its name and its overrides."""

    name: str
    texts: tuple[str, ...]


def plan_turns(axes: Sequence[Axis], config: RunConfig) -> tuple[Turn, ...]:
    """Return the runs of a session in order: in each round, one ABBA at every point.

    A larger ``repeat`` adds rounds at the end and changes none before them.

    Args:
        axes: the command line.
        config: the configuration of the first combination of values.

    Raises:
        ConfigError: the count is odd, or the swept keys do not define arms.
    """
    _check_settings(axes, config)
    by = [] if config.interleave == "aa" else _arm_axes(axes, config.interleave_by)
    halves = [Arm(name=f"{config.label}-{side}", texts=()) for side in range(1, ARMS + 1)]
    arms = _arms(by) if by else halves
    others = [axis for axis in axes if axis not in by]
    points = [
        [(arm.name, fitting((*rest, *arm.texts), axes)) for arm in arms] for rest in product(others)
    ]
    rounds = (
        (round_number, point) for round_number in range(config.repeat // 2) for point in points
    )
    return tuple(
        turn
        for number, (round_number, point) in enumerate(rounds)
        for turn in _round(point, number, number % len(points), is_first=round_number == 0)
    )


def _round(
    sides: Sequence[tuple[str, tuple[str, ...]]], number: int, point: int, *, is_first: bool
) -> Iterator[Turn]:
    """Yield ABBA or ABCCBA, two blocks; before a point's first, also a warm-up of each setting."""
    if is_first:
        names: dict[tuple[str, ...], str] = {}
        for name, overrides in sides:
            names.setdefault(overrides, name)
        for overrides, name in names.items():
            yield Turn(overrides=overrides, arm=name, block=WARM_UP_BLOCK, point=point)
    for block, ordered in enumerate((sides, sides[::-1]), start=2 * number):
        for name, overrides in ordered:
            yield Turn(overrides=overrides, arm=name, block=block, point=point)


def _check_settings(axes: Sequence[Axis], config: RunConfig) -> None:
    swept = [axis.key for axis in axes if axis.is_swept]
    if config.sweep.searches:
        raise ConfigError(
            f"sweep={config.sweep.name} chooses its own runs and can't be combined with "
            f"interleave={config.interleave}; use sweep=none"
        )
    for key in swept:
        if key.partition(".")[0] in SESSION_KEYS:
            raise ConfigError(
                f"{key} applies to a whole session and can't be swept; give it one value"
            )
    if config.repeat % 2:
        from wattload.reports.stats.effects import MINIMUM_PAIRS

        raise ConfigError(
            f"interleave={config.interleave} needs an even number of runs of each arm, got "
            f"repeat={config.repeat}; use repeat=2 to try it out, at least "
            f"repeat={MINIMUM_PAIRS} to show a difference, or repeat={PUBLISHED_PAIRS} for "
            "publication"
        )
    if config.interleave == "aa" and swept:
        raise ConfigError(
            f"interleave=aa compares one setting with itself, but {', '.join(swept)} is swept; "
            "give it one value, or compare its values with interleave=abba"
        )


def _arm_axes(axes: Sequence[Axis], named: str | Sequence[str] | None) -> list[Axis]:
    """Return the axes whose first values are one arm, whose second values the next, and so on."""
    swept = {axis.key: axis for axis in axes if axis.is_swept}
    if not swept:
        raise ConfigError(
            "interleave=abba compares the values of a swept key, but no key is swept; e.g. "
            "wattload run -m target.path=/mnt/a,/mnt/b; interleave=aa compares one setting with "
            "itself"
        )
    keys = (
        _compared_keys(swept)
        if named is None
        else [named]
        if isinstance(named, str)
        else list(named)
    )
    if "label" in swept and "label" not in keys:
        keys.append("label")
    for key in keys:
        if key not in swept:
            raise ConfigError(
                f"interleave_by names {key}, which is not swept; the swept keys are "
                f"{', '.join(swept)}"
            )
        _check_values(swept[key])
    if set(keys) == {"label"}:
        raise ConfigError(
            "sweeping label alone compares one setting with itself; use interleave=aa for that"
        )
    if any(axis.key == "label" and not axis.is_swept for axis in axes):
        raise ConfigError(
            "label gives all arms the same name; leave it out, or name each arm: label=old,new"
        )
    if len({len(swept[key].texts) for key in keys}) > 1:
        counts = listed([f"{len(swept[key].texts)} of {key}" for key in keys])
        raise ConfigError(
            f"each arm needs one value of {listed(keys)}, but there are {counts}; give as many of "
            "each"
        )
    return [swept[key] for key in dict.fromkeys(keys)]


def _compared_keys(swept: dict[str, Axis]) -> list[str]:
    """Return the one key whose values can be the arms."""
    others = [key for key in swept if key != "label"]
    compared = [key for key in others if makes_arms(swept[key])] or others
    if len(compared) > 1:
        raise ConfigError(
            f"interleave=abba compares the values of one key, but {', '.join(others)} are swept; "
            f"choose one, e.g. interleave_by={compared[0]}, or pair their values with "
            f"interleave_by=[{','.join(compared[:2])}]: first with first and second with second"
        )
    return compared


def _check_values(axis: Axis) -> None:
    if len(set(axis.texts)) < len(axis.texts):
        raise ConfigError(
            f"interleave=abba compares different values, got {axis.key}={','.join(axis.values)}; "
            "give each value once"
        )
    if axis.key != "target.path":
        return
    for one, other in combinations(zip(axis.values, map(_folders, axis.texts), strict=True), 2):
        if _same_folders(one[1], other[1]):
            raise ConfigError(
                f"interleave=abba compares different folders, but {one[0]} and {other[0]} of "
                "target.path are the same folder; give each folder once, or use interleave=aa to "
                "compare one setting with itself"
            )


def _folders(text: str) -> tuple[Path, ...]:
    """Return the folders that an override of ``target.path`` names, with links resolved."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    value = OverridesParser.create().parse_override(text).value()
    return tuple(path.resolve() for path in TargetConfig(path=value).paths())


def _same_folders(one: Sequence[Path], other: Sequence[Path]) -> bool:
    """Return whether two lists name the same folders, however they are written."""
    return len(one) == len(other) and all(
        mine == theirs or (mine.exists() and theirs.exists() and mine.samefile(theirs))
        for mine, theirs in zip(one, other, strict=True)
    )


def _arms(by: Sequence[Axis]) -> list[Arm]:
    """Return the arms, named by the swept labels or else by their values."""
    named = [axis for axis in by if axis.key == "label"]
    if named:
        return [
            Arm(name=plain_text(value), texts=tuple(axis.texts[side] for axis in by))
            for side, value in enumerate(named[0].values)
        ]
    labels = ["-".join(names) for names in zip(*axis_names(by), strict=True)]
    return [
        Arm(name=label, texts=(*(axis.texts[side] for axis in by), override_of("label", label)))
        for side, label in enumerate(labels)
    ]


def announcement(turns: Sequence[Turn], repeat: int) -> str:
    """Return the line to show before the first run: what is compared, and in which order."""
    names = list(dict.fromkeys(turn.arm for turn in turns))
    count = sum(turn.is_warm_up for turn in turns)
    warm_ups = f"{count} warm-ups that are" if count > 1 else "a warm-up that is"
    points = len({turn.point for turn in turns})
    at = f" at each of {points} points" if points > 1 else ""
    order = "ABBA order" if len(names) == ARMS else "forward and reverse order"
    return (
        f"{listed(names)} alternate in {order}: {repeat} runs of each{at}, after {warm_ups} "
        "recorded but not compared"
    )


class Interleaving(Schedule):
    """The turns of the arms; rank 0 keeps the journal and the drives' reference temperatures."""

    journal: SessionJournal

    def __init__(
        self,
        axes: Sequence[Axis],
        first: RunConfig,
        command: tuple[str, ...],
        reporter: SessionReporter,
    ) -> None:
        """Plan the turns and open the session's journal.

        Args:
            axes: the overrides of the command line.
            first: the configuration of the first combination of their values.
            command: the session's command line, for its records.
            reporter: receives the outcome of each run.

        Raises:
            ConfigError: the overrides do not define arms.
        """
        self._first = first
        self._command = command
        self._reporter = reporter
        self._turns = plan_turns(axes, first)
        composed = {turn.overrides: compose(turn.overrides) for turn in self._turns}
        keys = {
            overrides: point_key(config, config_values, 0)
            for overrides, (config, config_values) in composed.items()
        }
        self._configs = {overrides: config for overrides, (config, _) in composed.items()}
        self.planned = [
            Point(
                overrides=turn.overrides,
                repetition=turn.block,
                key=f"{keys[turn.overrides]}-{turn.arm}-{turn.block}",
                arm=turn.arm,
                name=f"{turn.arm}, warm-up" if turn.is_warm_up else turn.arm,
            )
            for turn in self._turns
        ]
        by = first.interleave_by or ()
        named = [by] if isinstance(by, str) else by
        self.compares_drives = first.interleave == "abba" and "target.path" not in named
        # Settings, drives and code identify the session; repeat only makes it longer.
        given = [text for axis in axes if axis.key != "repeat" for text in axis.texts]
        self.journal = SessionJournal.of_session(Path(first.runs), [*given, *sorted(keys.values())])
        self._last: dict[int, RunRecord] = {}

    @property
    def outlook(self) -> Outlook:
        from wattload.reports.stats.effects import MINIMUM_PAIRS

        pairs = self._first.repeat
        arms = {turn.arm for turn in self._turns}
        of = " of the fastest arm with each other one" if len(arms) > ARMS else ""
        if self._first.interleave == "aa":
            words = f"{counted(pairs, 'pair')} of one setting with itself, which measures the noise"
            return Outlook(can_decide=False, words=words)
        if pairs < MINIMUM_PAIRS:
            # If all of n pairs favour one arm, a two-sided sign-flip test gives p = 2 / 2**n.
            words = (
                f"{pairs} pairs{of} can't show a difference: that takes at least {MINIMUM_PAIRS} "
                f"(p = {2 / 2**MINIMUM_PAIRS:.3f}), and {PUBLISHED_PAIRS} for publication"
            )
            return Outlook(can_decide=False, words=words)
        more = "" if pairs >= PUBLISHED_PAIRS else f"; {PUBLISHED_PAIRS} for publication"
        return Outlook(can_decide=True, words=f"{pairs} pairs{of}{more}")

    def left(self, done: Mapping[str, Path]) -> Sequence[Point]:
        """Return the turns to take.

        A resumed session repeats the warm-up of the point where it resumes: the drives have rested.
        """
        compared = [
            turn.point
            for turn, point in zip(self._turns, self.planned, strict=True)
            if not turn.is_warm_up and point.key not in done
        ]
        return [
            point
            for turn, point in zip(self._turns, self.planned, strict=True)
            if (
                turn.point in compared and (point.key not in done or turn.point == compared[0])
                if turn.is_warm_up
                else point.key not in done
            )
        ]

    def begin(self, process: ProcessContext, done: Mapping[str, Path]) -> None:
        """Name the session in its journal, announce it, and read the runs that are done."""
        self._process = process
        self._cooldown = Cooldown(process, self._first.start_wait_max_s)
        self._left = {point.key for point in self.left(done)}
        if not process.is_root:
            return
        self.journal.begin()
        process.note(announcement(self._turns, self._first.repeat))
        if not self.outlook.can_decide:
            process.note(self.outlook.words)
        for turn, point in zip(self._turns, self.planned, strict=True):
            if point.key in done and not turn.is_warm_up:
                record = read_record(done[point.key])
                self._cooldown.recall(record)
                self._note_end(record)

    def steps(self) -> Iterator[Step]:
        """Yield the turns that are left, each once its drives are cool enough."""
        process = self._process
        for order, (turn, point) in enumerate(zip(self._turns, self.planned, strict=True)):
            if point.key not in self._left:
                continue
            start = None
            if not turn.is_warm_up:
                target = self._configs[turn.overrides].target
                targets = target.resolve(host=process.host, try_direct_io=False)
                start = self._cooldown.wait(targets)
            comparison = Comparison(
                session_id=self.journal.session_id,
                arm=turn.arm,
                block=turn.block,
                order=order,
                interleave="aa" if self._first.interleave == "aa" else "abba",
                warm_up=turn.is_warm_up,
                pair_gap_s=self._pair_gap_s(turn),
                start=start,
                command=self._command,
            )
            step = Step(point=point, comparison=comparison, calibrates=turn.is_warm_up)
            yield step
            if step.folder is not None:
                self._reporter.run_finished(step.folder)
                self._note_end(read_record(step.folder))

    def _note_end(self, record: RunRecord) -> None:
        """Keep the run of its block that ended last."""
        last = self._last.setdefault(record.comparison.block, record)
        if _ended(record) > _ended(last):
            self._last[record.comparison.block] = record

    def _pair_gap_s(self, turn: Turn) -> float | None:
        """Return the time of the block without a run so far, ``None`` before its first run."""
        last = self._last.get(turn.block)
        if last is None or turn.is_warm_up:
            return None
        return last.comparison.idle_s + (datetime.now(UTC) - _ended(last)).total_seconds()


def _ended(record: RunRecord) -> datetime:
    return datetime.fromisoformat(record.finished_utc or record.started_utc)


ALLOWED_K = 3.0
POLL_S = 5.0
"""Seconds between two readings; drives report whole kelvins and cool by one in several seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveTemperature:
    """A drive's current temperature, or the reason why it is unknown."""

    host: str
    serial: str
    temperature_k: int | None
    reason: str = ""


def read_temperatures(
    targets: Sequence[Target], host: str, roots: Roots = LIVE
) -> tuple[DriveTemperature, ...]:
    """Return the temperature of each NVMe controller under the targets, from the kernel's hwmon."""
    names = dict.fromkeys(name for target in targets for name in controllers_under(target))
    return tuple(_reading(name, host, roots) for name in names)


def _reading(name: str, host: str, roots: Roots) -> DriveTemperature:
    serial = controller_serial(roots.sys / "class/nvme" / name)
    smart = controller_state(name, roots).smart
    if smart is None:
        reason = f"the kernel has no temperature for {name} (it was built without NVME_HWMON)"
        return DriveTemperature(host=host, serial=serial, temperature_k=None, reason=reason)
    reason = smart.missing.get("temperature_k", "")
    return DriveTemperature(
        host=host, serial=serial, temperature_k=smart.temperature_k, reason=reason
    )


class Cooldown:
    """The reference temperatures of a session's drives (on rank 0), and the wait of all ranks.

    ``read`` returns the temperatures of the targets' drives; only each host's leader calls it.
    """

    def __init__(
        self,
        process: ProcessContext,
        limit_s: float,
        read: Callable[[Sequence[Target], str], Sequence[DriveTemperature]] = read_temperatures,
        poll_s: float = POLL_S,
    ) -> None:
        self._process = process
        self._world = process.communicator
        self._limit_s = limit_s
        self._read = read
        self._poll_s = poll_s
        self._reference_k: dict[tuple[str, str], int] = {}
        self._reported: set[str] = set()

    def recall(self, record: RunRecord) -> None:
        """Take the reference temperatures from a finished run of this session."""
        for drive in record.comparison.start.drives if record.comparison.start else ():
            if drive.reference_k is not None:
                self._reference_k.setdefault((drive.host, drive.serial), drive.reference_k)

    def wait(self, targets: Sequence[Target]) -> RunStart:
        """Wait until the drives are cool enough or the limit has passed, on every rank."""
        start_ns = time.monotonic_ns()
        has_waited = False
        while True:
            own = self._read(targets, self._process.host) if self._process.sampling else ()
            readings = [each for host in self._world.gather(own) for each in host]
            waited_s = (time.monotonic_ns() - start_ns) / NS_PER_S
            hot = list(self._too_warm(readings))
            is_over: bool = self._world.broadcast(not hot or waited_s >= self._limit_s)
            if is_over:
                break
            if not has_waited:
                self._process.note(f"{', '.join(hot)}: waiting, {self._limit_s:g} s at most")
                has_waited = True
            time.sleep(min(self._poll_s, max(0.0, self._limit_s - waited_s)))
        self._note_gaps(readings, hot)
        return RunStart(
            waited_s=waited_s if has_waited else 0.0,
            limit_s=self._limit_s,
            allowed_k=ALLOWED_K,
            drives=tuple(self._drive(reading) for reading in readings),
        )

    def _too_warm(self, readings: Sequence[DriveTemperature]) -> Iterator[str]:
        for each in readings:
            reference_k = self._reference_k.get((each.host, each.serial))
            if each.temperature_k is None or reference_k is None:
                continue
            above_k = each.temperature_k - reference_k
            if above_k > ALLOWED_K:
                yield f"drive {each.serial} is {above_k} °C warmer than at the session's first run"

    def _drive(self, reading: DriveTemperature) -> StartTemperature:
        """Return a drive's start temperature, which becomes its reference if it has none yet."""
        key = (reading.host, reading.serial)
        if reading.temperature_k is not None:
            self._reference_k.setdefault(key, reading.temperature_k)
        reference_k = self._reference_k.get(key)
        gaps = {"temperature_k": reading.temperature_k, "reference_k": reference_k}
        return StartTemperature(
            host=reading.host,
            serial=reading.serial,
            temperature_k=reading.temperature_k,
            reference_k=reference_k,
            missing={name: reading.reason for name, value in gaps.items() if value is None},
        )

    def _note_gaps(self, readings: Sequence[DriveTemperature], hot: Sequence[str]) -> None:
        """Report drives that are still too warm, and each unknown temperature once."""
        if hot:
            self._process.note(
                f"{', '.join(hot)} still: the limit of {self._limit_s:g} s has passed, continuing"
            )
        gaps = [f"drive {r.serial}: {r.reason}" for r in readings if r.temperature_k is None]
        if not readings:
            gaps = ["the target has no NVMe controller"]
        for gap in gaps:
            if gap not in self._reported:
                self._reported.add(gap)
                self._process.note(
                    f"start temperatures are unknown, so runs do not wait for drives to cool: {gap}"
                )
