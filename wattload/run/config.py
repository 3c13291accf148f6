"""The typed configuration of one run: plain dataclasses that Hydra composes."""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from wattload.core.errors import ConfigError
from wattload.core.workload import Accelerator
from wattload.run.overrides import shown

TARGET_VARIABLE = "WATTLOAD_TARGET"
SWEEPS = ("none", "accelerators")
INTERLEAVES = ("none", "abba", "aa")
MOST_ACCELERATORS = 1024
MOST_REPEATS = 10_000
LONGEST_LABEL = 40
"""Characters: a label is a heading of a table and the name of a bar."""
LONGEST_TEXT = 4096
"""Characters; the longest path of Linux."""
LARGEST_INTEGER = 2**63 - 1

_JOINERS = "\u200c\u200d"
"""Invisible characters that emoji and scripts need."""
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")


@dataclass(slots=True, kw_only=True)
class TargetConfig:
    """Where to read and write.

    ``path`` is one directory or a list of them. It defaults to the environment variable
    ``WATTLOAD_TARGET``, which a container image sets to its mount point. ``max_write_bytes``
    replaces the guard against wear: by default, all runs of one command together may write at most
    one drive capacity and at most 10 TB.
    """

    path: Any = field(default_factory=lambda: os.environ.get(TARGET_VARIABLE, MISSING))
    max_write_bytes: int | None = None

    def check(self) -> None:
        """Raise ``ConfigError`` for a path that can't be one, or a negative limit."""
        self.paths()
        if self.max_write_bytes is not None and self.max_write_bytes < 0:
            raise ConfigError(
                f"target.max_write_bytes must be 0 or more, or null, got {self.max_write_bytes}"
            )

    def paths(self) -> tuple[Path, ...]:
        """Return the target directories, absolute; raises ``ConfigError`` for anything else."""
        given = [self.path] if isinstance(self.path, str) else self.path
        if (
            not isinstance(given, Sequence)
            or not given
            or not all(isinstance(path, str) and path for path in given)
        ):
            raise ConfigError(
                f"target.path must be a directory or a list of directories, got {self.path!r}; "
                "e.g. target.path=/mnt/nvme or target.path=[/mnt/a,/mnt/b]"
            )
        return tuple(Path(path).expanduser().absolute() for path in given)


@dataclass(slots=True, kw_only=True)
class ScaleConfig:
    """How much of a workload to run; the counts themselves are in each workload's YAML file.

    ``shrinks_records`` is true for ``demo`` only. ``allows_root`` tells whether the target may be
    on the root file system.
    """

    name: str = MISSING
    shrinks_records: bool = False
    allows_root: bool = True


@dataclass(slots=True, kw_only=True)
class SweepConfig:
    """Which runs one command makes: one (``none``), or a search for the most ``accelerators``.

    The search begins at ``start`` accelerators and tries at most ``maximum``, counted over all
    ranks; ``start=1`` means one per rank. The count that it finds and the next one are each run
    ``confirmations`` more times. ``au_threshold`` (0 to 1) replaces the workload's published one.
    """

    name: str = "none"
    start: int = 1
    maximum: int = 16
    au_threshold: float | None = None
    confirmations: int = 1

    @property
    def searches(self) -> bool:
        """Whether the results of runs decide which runs follow."""
        return self.name != "none"

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        if self.name not in SWEEPS:
            raise ConfigError(f"sweep must be one of {', '.join(SWEEPS)}, got {self.name!r}")
        if not 1 <= self.start <= self.maximum <= MOST_ACCELERATORS:
            raise ConfigError(
                f"1 <= sweep.start <= sweep.maximum <= {MOST_ACCELERATORS} must hold, got "
                f"sweep.start={self.start} and sweep.maximum={self.maximum}"
            )
        if self.confirmations < 0:
            raise ConfigError(f"sweep.confirmations must be 0 or more, got {self.confirmations}")
        if self.au_threshold is not None and not 0 < self.au_threshold <= 1:
            raise ConfigError(
                "sweep.au_threshold must be a fraction above 0 and at most 1 (0.9 for 90 %), got "
                f"{self.au_threshold}"
            )


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """One run. ``workload``, ``loader`` and ``power`` are the ``Config`` of the selected option.

    ``repeat`` is the number of runs of each setting, or of each arm. ``interleave`` is the order of
    two arms: ``none``, ``abba``, or ``aa``, which compares one setting with itself.
    ``interleave_by`` names the swept key whose values are the arms, or several keys that are swept
    in pairs; ``None`` selects it automatically. ``start_wait_max_s`` is the longest wait, in
    seconds, before an interleaved run for drives to cool to their temperature at the first one.
    """

    workload: Any = MISSING
    loader: Any = MISSING
    target: TargetConfig = MISSING
    power: Any = MISSING
    accelerator: Accelerator = MISSING
    scale: ScaleConfig = MISSING
    sweep: SweepConfig = MISSING
    label: str = MISSING
    seed: int = MISSING
    repeat: int = MISSING
    runs: str = MISSING
    interleave: str = MISSING
    interleave_by: Any = None
    start_wait_max_s: float = MISSING

    @property
    def interleaves(self) -> bool:
        """Whether two arms alternate."""
        return self.interleave != "none"

    def check(self) -> None:
        """Raise ``ConfigError`` for values that the types do not exclude."""
        check_label(self.label)
        _check_ranges(self)
        self.target.check()
        self.workload.check(self.scale.name)
        self.loader.check()
        self.power.check()
        self.sweep.check()
        if self.seed < 0:
            raise ConfigError(f"seed must be 0 or more, got {self.seed}")
        if not 1 <= self.repeat <= MOST_REPEATS:
            raise ConfigError(f"repeat must be 1 to {MOST_REPEATS}, got {self.repeat}")
        if self.interleave not in INTERLEAVES:
            raise ConfigError(
                f"interleave must be one of {', '.join(INTERLEAVES)}, got {self.interleave!r}"
            )
        if not _names_keys(self.interleave_by):
            raise ConfigError(
                "interleave_by must name one swept key, or a list of keys that are swept in "
                f"pairs, got {self.interleave_by!r}; e.g. interleave_by=power.state or "
                "interleave_by=[target.path,power.state]"
            )
        if not 0 <= self.start_wait_max_s < float("inf"):
            raise ConfigError(
                f"start_wait_max_s must be 0 s or more, got {self.start_wait_max_s}; "
                "0 disables the wait"
            )
        if not 1 <= self.accelerator.count <= MOST_ACCELERATORS:
            raise ConfigError(
                f"accelerator.count must be 1 to {MOST_ACCELERATORS}, got {self.accelerator.count}"
            )


def check_label(label: str) -> None:
    """Raise ``ConfigError`` for a label that can't be read in a table."""
    allowed = f"label must be 1 to {LONGEST_LABEL} visible characters"
    hidden = next((letter for letter in label if _is_invisible(letter)), None)
    if hidden is not None:
        raise ConfigError(f"{allowed}; got {shown(label)}, with U+{ord(hidden):04X} in it")
    if not 1 <= len(label) <= LONGEST_LABEL or label != label.strip():
        raise ConfigError(f"{allowed}, without space at its ends; got {shown(label)}")


def _is_invisible(letter: str) -> bool:
    return unicodedata.category(letter) in _INVISIBLE and letter not in _JOINERS


def _check_ranges(config: RunConfig) -> None:
    """Raise ``ConfigError`` for a number or text that no setting can have."""
    for key, value in _values(config, ""):
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise ConfigError(
                f"{key} must be a 64-bit integer, at most {LARGEST_INTEGER}, got a number of "
                f"{len(str(abs(value)))} digits"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} must be a finite number, got {value}")
        if isinstance(value, str) and ("\0" in value or len(value) > LONGEST_TEXT):
            raise ConfigError(
                f"{key} must be at most {LONGEST_TEXT} characters without a null character, got "
                f"{shown(value)}"
            )


def _values(node: object, key: str) -> Iterator[tuple[str, object]]:
    """Yield every value of a configuration with its key."""
    if is_dataclass(node):
        parts = [(each.name, getattr(node, each.name)) for each in fields(node)]
    elif isinstance(node, Mapping):
        parts = list(node.items())
    elif isinstance(node, list | tuple):
        parts = [(str(index), each) for index, each in enumerate(node)]
    else:
        yield key, node
        return
    for name, part in parts:
        yield from _values(part, f"{key}.{name}" if key else str(name))


def _names_keys(value: object) -> bool:
    """Return whether a value is ``None``, a key, or a non-empty list of keys."""
    if value is None:
        return True
    keys = [value] if isinstance(value, str) else value
    return isinstance(keys, list) and bool(keys) and all(isinstance(k, str) and k for k in keys)
