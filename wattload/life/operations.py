"""From a rank's traced operations to the rows of the run's trace of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from wattload.core.io import TracedOperations
from wattload.core.target import Target

OperationRow = tuple[int, str, int, str, str, int, str, int, int, int]
"""Submission in ns (monotonic), host, rank, phase, kind, number of the target, file, its bytes,
offset in it in bytes, latency in ns."""


def operation_rows(
    traced: Sequence[TracedOperations], targets: Sequence[Target], *, host: str, rank: int
) -> list[OperationRow]:
    """Return a rank's operations, by kind and time; files are named from their target's folder."""
    return [row for each in traced for row in _rows(each, targets, host, rank)]


def _rows(
    traced: TracedOperations, targets: Sequence[Target], host: str, rank: int
) -> Iterator[OperationRow]:
    places = [_place(file.path, targets) for file in traced.files]
    for submit_ns, offset_bytes, latency_ns, number in traced.rows.tolist():
        target, name = places[number]
        size_bytes = traced.files[number].size_bytes
        yield (
            submit_ns,
            host,
            rank,
            traced.phase,
            str(traced.kind),
            target,
            name,
            size_bytes,
            offset_bytes,
            latency_ns,
        )


def _place(path: Path, targets: Sequence[Target]) -> tuple[int, str]:
    """Return the number of the target that a file lies in, and its name from there."""
    for number, target in enumerate(targets):
        if target.path is not None and path.is_relative_to(target.path):
            return number, str(path.relative_to(target.path))
    return 0, path.name
