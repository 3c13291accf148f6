"""Two arms that take turns: which runs an interleaved session has, and in which order.

The order is ABBA ABBA: whatever drifts linearly with time then weighs alike on both arms, which it
does not in AB AB. Each pair of neighbours, AB or BA, is a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.arms import axis_names, makes_arms
from wattload.axes import Axis, product
from wattload.config import RunConfig, TargetConfig
from wattload.core.errors import ConfigError
from wattload.core.record.run import WARM_UP_BLOCK

ARMS = 2
PAIRS_TO_CALL, PAIRS_TO_PUBLISH = 6, 8
"""With six pairs all on one side a two-sided sign-flip test gives p = 2 / 2**6 = 0.031."""

WHOLE_SESSION = ("interleave", "interleave_by", "start_wait_max_s", "repeat", "runs", "sweep")
"""What holds for all runs of a session, and can't be swept in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of a session: its overrides, its arm, its pair, and the point that both belong to.

    ``block`` counts pairs over all points; a warm-up has ``WARM_UP_BLOCK``.
    """

    overrides: tuple[str, ...]
    arm: str
    block: int
    point: int

    @property
    def is_warm_up(self) -> bool:
        """Whether the run comes before those that are compared."""
        return self.block == WARM_UP_BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side of the comparison: the overrides that make it one, and what it is called."""

    name: str
    texts: tuple[str, ...]


def take_turns(axes: Sequence[Axis], config: RunConfig) -> tuple[Turn, ...]:
    """Return the runs of a session in their order: round by round an ABBA at every point.

    A larger ``repeat`` adds rounds and leaves those before as they were.

    Args:
        axes: the command line.
        config: what its first combination of values composes to.

    Raises:
        ConfigError: the count is odd, or what is swept makes no two arms.
    """
    _refuse(axes, config)
    by = [] if config.interleave == "aa" else _arm_axes(axes, config.interleave_by)
    arms = _arms(by) if by else _halves(config.label)
    others = [axis for axis in axes if axis not in by]
    points = [[(arm.name, (*rest, *arm.texts)) for arm in arms] for rest in product(others)]
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
    """Yield ABBA, two blocks, and before a point's first a warm-up of each setting that differs."""
    if is_first:
        names: dict[tuple[str, ...], str] = {}
        for name, overrides in sides:
            names.setdefault(overrides, name)
        for overrides, name in names.items():
            yield Turn(overrides=overrides, arm=name, block=WARM_UP_BLOCK, point=point)
    for block, ordered in enumerate((sides, sides[::-1]), start=2 * number):
        for name, overrides in ordered:
            yield Turn(overrides=overrides, arm=name, block=block, point=point)


def _refuse(axes: Sequence[Axis], config: RunConfig) -> None:
    swept = [axis.key for axis in axes if axis.is_swept]
    if config.sweep.searches:
        raise ConfigError(
            f"sweep={config.sweep.name} decides its own runs and takes no "
            f"interleave={config.interleave}; use sweep=none"
        )
    for key in swept:
        if key.partition(".")[0] in WHOLE_SESSION:
            raise ConfigError(f"{key} holds for a whole session; give it one value")
    if config.repeat % ARMS:
        raise ConfigError(
            f"interleave={config.interleave} needs an even number of runs of each arm, got "
            f"repeat={config.repeat}; give repeat=2 to try it, repeat={PAIRS_TO_CALL} at least to "
            f"call a difference, repeat={PAIRS_TO_PUBLISH} to publish one"
        )
    if config.interleave == "aa" and swept:
        raise ConfigError(
            f"interleave=aa runs one setting against itself, and {', '.join(swept)} is swept; give "
            "it one value, or compare its two with interleave=abba"
        )


def _arm_axes(axes: Sequence[Axis], named: str | Sequence[str] | None) -> list[Axis]:
    """Return the axes whose first values are one arm and whose second values are the other."""
    swept = {axis.key: axis for axis in axes if axis.is_swept}
    if not swept:
        raise ConfigError(
            "interleave=abba compares two values of a swept key and none is swept; e.g. wattload "
            "run -m target.path=/mnt/a,/mnt/b, or interleave=aa for one setting against itself"
        )
    keys = _found(swept) if named is None else [named] if isinstance(named, str) else list(named)
    for key in keys:
        if key not in swept:
            raise ConfigError(
                f"interleave_by names {key}, which is not swept; swept are {', '.join(swept)}"
            )
        _refuse_values(swept[key])
    if set(keys) == {"label"}:
        raise ConfigError(
            "label alone makes no two arms: both would be one setting; that is interleave=aa"
        )
    if any(axis.key == "label" and not axis.is_swept for axis in axes):
        raise ConfigError(
            "label gives both arms one name; leave it out, or name each, as in label=old,new"
        )
    return [swept[key] for key in dict.fromkeys(keys)]


def _found(swept: dict[str, Axis]) -> list[str]:
    """Return the one key that can make the arms, with the labels that are given to them."""
    others = [key for key in swept if key != "label"]
    compared = [key for key in others if makes_arms(swept[key])] or others
    if len(compared) > 1:
        raise ConfigError(
            f"interleave=abba compares two values of one key and {', '.join(others)} are swept; "
            f"name it, as in interleave_by={compared[0]}; those of interleave_by="
            f"[{','.join(compared[:2])}] go together, first with first and second with second"
        )
    return [*compared, *(["label"] if "label" in swept else [])]


def _refuse_values(axis: Axis) -> None:
    if len(axis.texts) != ARMS or len(set(axis.texts)) != ARMS:
        raise ConfigError(
            f"interleave=abba compares two values that differ, got {axis.key}="
            f"{','.join(axis.values)}; give two of them, or interleave=none, which takes any number"
        )
    if axis.key == "target.path" and _are_same(*map(_folders, axis.texts)):
        raise ConfigError(
            "interleave=abba compares two values that differ, and both of target.path="
            f"{','.join(axis.values)} are one folder; give two, or interleave=aa for one setting "
            "against itself"
        )


def _folders(text: str) -> tuple[Path, ...]:
    """Return the folders of an override of the target's path, without links where they exist."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    value = OverridesParser.create().parse_override(text).value()
    return tuple(path.resolve() for path in TargetConfig(path=value).paths())


def _are_same(one: Sequence[Path], other: Sequence[Path]) -> bool:
    """Return whether two lists of folders are of the same folders, however each is written."""
    return len(one) == len(other) and all(
        mine == theirs or (mine.exists() and theirs.exists() and mine.samefile(theirs))
        for mine, theirs in zip(one, other, strict=True)
    )


def _arms(by: Sequence[Axis]) -> list[Arm]:
    """Return both arms; the label that is given to them, or what tells their values apart."""
    named = [axis for axis in by if axis.key == "label"]
    if named:
        return [
            Arm(name=name, texts=tuple(axis.texts[side] for axis in by))
            for side, name in enumerate(named[0].values)
        ]
    names = axis_names(by)
    labels = ["-".join(of_axis[side] for of_axis in names) for side in range(ARMS)]
    return [
        Arm(name=label, texts=(*(axis.texts[side] for axis in by), f"label={label}"))
        for side, label in enumerate(labels)
    ]


def _halves(label: str) -> list[Arm]:
    return [Arm(name=f"{label}-{side}", texts=()) for side in range(1, ARMS + 1)]


def session_less(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return overrides without those that only a session of several runs understands."""
    session = ("interleave", "interleave_by", "start_wait_max_s", "repeat")
    return tuple(text for text in overrides if text.partition("=")[0].strip() not in session)


def announcement(turns: Sequence[Turn], repeat: int) -> tuple[str, ...]:
    """Return what to say before the first run: what is compared, and whether it can be called."""
    names = list(dict.fromkeys(turn.arm for turn in turns))
    count = sum(turn.is_warm_up for turn in turns)
    warm_ups = f"{count} warm-ups" if count > 1 else "a warm-up"
    points = len({turn.point for turn in turns})
    at = f" at each of {points} points" if points > 1 else ""
    lines = [
        f"{names[0]} and {names[1]} take turns as ABBA: {repeat} runs of each{at}, after "
        f"{warm_ups}, recorded as such and never compared"
    ]
    if repeat < PAIRS_TO_CALL:
        lines.append(
            f"nothing will be called by {repeat} pairs: {PAIRS_TO_CALL} are the fewest that can "
            f"show a difference (p = 0.031), {PAIRS_TO_PUBLISH} are for publication"
        )
    return tuple(lines)
