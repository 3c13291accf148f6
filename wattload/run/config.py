"""The typed configuration of one run: plain dataclasses that Hydra composes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from wattload.core.errors import ConfigError
from wattload.core.workload import Accelerator

TARGET_VARIABLE = "WATTLOAD_TARGET"
SWEEPS = ("none", "accelerators")
INTERLEAVES = ("none", "abba", "aa")
MOST_ACCELERATORS = 1024


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
        allowed = "1 to 40 letters, digits, dots, dashes and underscores"
        if not 1 <= len(self.label) <= 40 or not all(  # noqa: PLR2004 - a folder name stays short
            letter.isalnum() or letter in "._-" for letter in self.label
        ):
            raise ConfigError(f"label must be {allowed}; got {self.label!r}")
        self.target.paths()
        self.power.check()
        self.sweep.check()
        if self.repeat < 1:
            raise ConfigError(f"repeat must be 1 or more, got {self.repeat}")
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
        if self.accelerator.count < 1:
            raise ConfigError(f"accelerator.count must be 1 or more, got {self.accelerator.count}")


def _names_keys(value: object) -> bool:
    """Return whether a value is ``None``, a key, or a non-empty list of keys."""
    if value is None:
        return True
    keys = [value] if isinstance(value, str) else value
    return isinstance(keys, list) and bool(keys) and all(isinstance(k, str) and k for k in keys)
