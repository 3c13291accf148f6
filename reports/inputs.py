"""What a report was made from: one digest over the records, in an order of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from wattload.reports.load import Run

INPUTS_COMMAND = "sha256sum */record.json | cut -d' ' -f1 | LC_ALL=C sort | sha256sum"
"""Prints the digest over all records of a folder of runs."""


def inputs_digest(runs: Sequence[Run]) -> str:
    """Return the SHA-256, in hex, of the sorted digests of the records' files, one to a line.

    Where a run was never on disk its line is empty. The order in which files were found or named
    makes no difference.
    """
    lines = sorted(run.sha256 for run in runs)
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
