"""DLIO's output files, read: ``summary.json``, ``RANK_output.json``, ``per_epoch_stats.json``.

As dlio-benchmark 2.0.0 writes them (``dlio_benchmark/utils/statscounter.py``). An epoch without
checkpoints is one block, ``block1``. ``compute`` lists the requested step time, not the time
slept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeGuard

from pydantic_core import from_json

from wattload.core.errors import RunError

SUMMARY, STATS = "summary.json", "per_epoch_stats.json"
PER_EPOCH = ("train_au_percentage", "train_throughput_samples_per_second")
MEANS = (
    "train_au_mean_percentage",
    "train_throughput_mean_samples_per_second",
    "train_io_mean_MB_per_second",
)
"""What of the summary's ``metric`` a run must have."""

_BLOCK = "block1"
_EXCLUDED_STEPS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEpoch:
    """One epoch of one rank; times in seconds, one entry per step."""

    load_s: tuple[float, ...]
    processed_s: tuple[float, ...]
    nominal_s: tuple[float, ...]
    samples_per_s: float

    def duration_s(self, batch_samples: int) -> float:
        """Return the block's length, from its throughput: steps x batch ÷ (end - start)."""
        return len(self.load_s) * batch_samples / self.samples_per_s

    def au(self, batch_samples: int) -> float:
        """Return the AU in percent as DLIO computes it, from the lists and the block's length.

        ``sum(compute[1:]) / (end - start - proc[0])``, where compute is the requested step time.
        """
        computed_s = sum(self.nominal_s[_EXCLUDED_STEPS:])
        return 100 * computed_s / (self.duration_s(batch_samples) - self.processed_s[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """``ranks[rank][epoch]``, and the ``metric`` object of the summary as it stands there."""

    ranks: Sequence[Sequence[RankEpoch]]
    metric: Mapping[str, Any]
    batch_samples: int

    def samples_per_s(self) -> list[float]:
        """Return the throughput per epoch from the ranks' lists: the sum over the ranks."""
        return [sum(rank.samples_per_s for rank in epoch) for epoch in self._epochs()]

    def au_percentage(self) -> list[float]:
        """Return the AU per epoch from the ranks' lists, in percent: the mean over the ranks."""
        return [fmean(rank.au(self.batch_samples) for rank in epoch) for epoch in self._epochs()]

    def _epochs(self) -> list[tuple[RankEpoch, ...]]:
        return list(zip(*self.ranks, strict=True))


def read_output(folder: Path, *, ranks: int, epochs: int, steps: int, batch_samples: int) -> Output:
    """Return what DLIO wrote of a run.

    Raises:
        RunError: a file is missing, is no JSON, or lacks what a finished run has: its epochs, or
            the load and compute times of each step.
    """
    metric = _member(_document(folder / SUMMARY), "metric", dict, folder / SUMMARY)
    for name in PER_EPOCH:
        _numbers(metric, name, epochs, folder / SUMMARY)
    for name in MEANS:
        _number(metric, name, folder / SUMMARY)
    stats = _document(folder / STATS)
    for epoch in range(1, epochs + 1):
        _member(stats, str(epoch), dict, folder / STATS)
    return Output(
        ranks=[_rank(folder / f"{rank}_output.json", epochs, steps) for rank in range(ranks)],
        metric=metric,
        batch_samples=batch_samples,
    )


def _rank(path: Path, epochs: int, steps: int) -> list[RankEpoch]:
    document = _document(path)
    return [
        _rank_epoch(_member(document, str(epoch), dict, path), steps, path)
        for epoch in range(1, epochs + 1)
    ]


def _rank_epoch(epoch: Mapping[str, Any], steps: int, path: Path) -> RankEpoch:
    load, processed, nominal = (
        _numbers(_member(epoch, name, dict, path), _BLOCK, steps, path)
        for name in ("load", "proc", "compute")
    )
    samples_per_s = _number(_member(epoch, "throughput", dict, path), _BLOCK, path)
    if samples_per_s <= 0:
        raise RunError(f"{path} of dlio-benchmark needs a throughput above 0, got {samples_per_s}")
    return RankEpoch(
        load_s=load, processed_s=processed, nominal_s=nominal, samples_per_s=samples_per_s
    )


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = from_json(path.read_bytes())
    except OSError as error:
        raise RunError(
            f"dlio-benchmark ended without {path.name} ({error.strerror}); its log is in "
            f"{path.parent}"
        ) from error
    except ValueError as error:
        raise RunError(f"{path} of dlio-benchmark is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RunError(f"{path} of dlio-benchmark must hold a JSON object, got {document!r:.60}")
    return document


def _member(document: Mapping[str, Any], name: str, kind: type, path: Path) -> Any:  # noqa: ANN401 - JSON
    value = document.get(name)
    if not isinstance(value, kind):
        raise RunError(
            f"{path} of dlio-benchmark needs {name} as {kind.__name__}, got {value!r:.60}"
        )
    return value


def _number(document: Mapping[str, Any], name: str, path: Path) -> float:
    value = document.get(name)
    if not _is_number(value):
        raise RunError(f"{path} of dlio-benchmark needs {name} as a number, got {value!r:.60}")
    return float(value)


def _numbers(document: Mapping[str, Any], name: str, count: int, path: Path) -> tuple[float, ...]:
    values = document.get(name)
    if not isinstance(values, list) or len(values) != count or not all(map(_is_number, values)):
        raise RunError(
            f"{path} of dlio-benchmark needs {count} numbers in {name}, got {values!r:.60}"
        )
    return tuple(float(value) for value in values)


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, float | int):
        return False
    return math.isfinite(value)
