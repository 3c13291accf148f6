"""A session in which two arms take turns: run after run, and on from where it was interrupted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wattload.axes import Axis
from wattload.compose import compose
from wattload.config import RunConfig
from wattload.core.record.run import Comparison, Interleave, RunRecord, read_record
from wattload.core.resolve import resolve_targets
from wattload.core.target import Target
from wattload.interleave import Turn, announcement, take_turns
from wattload.life.life import Session
from wattload.life.warmth import Reading, Warmth, read_temperatures
from wattload.run import execute, session
from wattload.sweep import Journal, Point, charge_done, point_key, refuse_wear, say_outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A turn with what it composes to."""

    turn: Turn
    config: RunConfig
    point: Point


def run_turns(
    axes: Sequence[Axis], first: RunConfig, command: Sequence[str], *, as_json: bool
) -> int:
    """Run every turn that is not done yet; returns 0, or 3 when a check failed.

    Args:
        axes: the overrides that were given.
        first: what the first combination of their values composes to.
        command: the session's command line, for its records.
        as_json: whether to print paths of records as JSON.

    Raises:
        WattloadError: the overrides make no two arms, the runs together write too much, or a run
            failed; the same command goes on with what is left.
    """
    turns = take_turns(axes, first)
    steps, identity = _steps(turns)
    here = session(first)
    given = [text for axis in axes if axis.key != "repeat" for text in axis.texts]
    journal = Journal.of_session(Path(first.runs), [*given, *identity])
    done: list[Path | None] = here.communicator.broadcast(
        [journal.done(step.point) for step in steps]
    )
    charge_done(here, [folder for folder in done if folder is not None])
    left = _left(turns, done)
    refuse_wear(here, [step.point for step, is_left in zip(steps, left, strict=True) if is_left])
    if here.communicator.rank == 0:
        _begin(journal)
        _announce(turns, first.repeat, left, journal)
    taking = _Taking(here, first, journal, tuple(command), as_json=as_json)
    for step, folder in zip(steps, done, strict=True):
        taking.recall(step.turn, folder)
    return max(
        (
            taking.take(step, order)
            for order, (step, is_left) in enumerate(zip(steps, left, strict=True))
            if is_left
        ),
        default=0,
    )


def _steps(turns: Sequence[Turn]) -> tuple[list[Step], list[str]]:
    """Return the turns composed, and what tells their settings, drives and code from all others."""
    composed = {turn.overrides: compose(turn.overrides) for turn in turns}
    keys = {
        overrides: point_key(config, plain, 0) for overrides, (config, plain) in composed.items()
    }
    steps = [
        Step(
            turn=turn,
            config=composed[turn.overrides][0],
            point=Point(
                turn.overrides, turn.block, f"{keys[turn.overrides]}-{turn.arm}-{turn.block}"
            ),
        )
        for turn in turns
    ]
    return steps, sorted(keys.values())


def _left(turns: Sequence[Turn], done: Sequence[Path | None]) -> list[bool]:
    """Return which turns are to be taken.

    A warm-up that is done is made again where the session goes on: its drives have rested since.
    """
    left = [folder is None for folder in done]
    pairs = [turn for turn, is_left in zip(turns, left, strict=True) if is_left]
    points = [turn.point for turn in pairs if not turn.is_warm_up]
    return [
        turn.point in points and (is_left or turn.point == points[0])
        if turn.is_warm_up
        else is_left
        for turn, is_left in zip(turns, left, strict=True)
    ]


def _begin(journal: Journal) -> None:
    if journal.begin():
        print(
            f"{journal.path} no longer tells the session's name, and no run that it lists does: "
            f"nothing of it is kept, and the session begins afresh as {journal.session_id}",
            file=sys.stderr,
        )


def _announce(turns: Sequence[Turn], repeat: int, left: Sequence[bool], journal: Journal) -> None:
    for line in announcement(turns, repeat):
        print(line, file=sys.stderr)
    pairs = [is_left for turn, is_left in zip(turns, left, strict=True) if not turn.is_warm_up]
    if not all(pairs):
        print(
            f"{len(pairs) - sum(pairs)} of {len(pairs)} runs are done and valid, and not run again "
            f"(noted in {journal.path}; without that file the session starts afresh)",
            file=sys.stderr,
        )


class _Taking:
    """Takes the turns of a session on all ranks; rank 0 keeps its journal and its references."""

    def __init__(
        self,
        here: Session,
        first: RunConfig,
        journal: Journal,
        command: tuple[str, ...],
        *,
        as_json: bool,
    ) -> None:
        self._here = here
        self._journal = journal
        self._command = command
        self._as_json = as_json
        self._interleave: Interleave = "aa" if first.interleave == "aa" else "abba"
        self._warmth = Warmth(here.communicator, first.start_wait_max_s, self._read)
        self._finished: dict[tuple[int, str], datetime] = {}

    def recall(self, turn: Turn, folder: Path | None) -> None:
        """Take what a run that is done says of its drives' warmth, and of when it ended."""
        if folder is not None and self._here.communicator.rank == 0 and not turn.is_warm_up:
            record = read_record(folder)
            self._warmth.recall(record)
            self._note(turn, record)

    def take(self, step: Step, order: int) -> int:
        """Make one run, once its drives are cool enough; returns 0, or 3 when a check failed."""
        turn = step.turn
        start = None if turn.is_warm_up else self._warmth.wait(self._targets(step.config))
        comparison = Comparison(
            session_id=self._journal.session_id,
            arm=turn.arm,
            block=turn.block,
            order=order,
            interleave=self._interleave,
            warm_up=turn.is_warm_up,
            pair_gap_s=self._gap_s(turn),
            start=start,
            command=self._command,
        )
        folder, status = execute(turn.overrides, comparison)
        if folder is not None:
            say_outcome(folder, as_json=self._as_json)
            self._journal.add(step.point, folder)
            self._note(turn, read_record(folder))
        return status

    def _targets(self, config: RunConfig) -> tuple[Target, ...]:
        return resolve_targets(config.target.paths(), host=self._here.host, try_direct_io=False)

    def _read(self, targets: Sequence[Target]) -> Sequence[Reading]:
        """Return the temperatures of this host's drives, on its leader."""
        if self._here.sampling is None:
            return ()
        return read_temperatures(targets, self._here.host)

    def _note(self, turn: Turn, record: RunRecord) -> None:
        if record.finished_utc is not None:
            ended = datetime.fromisoformat(record.finished_utc)
            self._finished[turn.block, turn.arm] = ended

    def _gap_s(self, turn: Turn) -> float | None:
        """Return the seconds since the pair's other run ended, ``None`` if it is not done."""
        ended = [
            when
            for (block, arm), when in self._finished.items()
            if block == turn.block and arm != turn.arm and not turn.is_warm_up
        ]
        return (datetime.now(UTC) - ended[0]).total_seconds() if ended else None
