"""A rank's own journal: what it has done so far, on disk as it happens.

One JSON object per line, one ``write()`` per line: it survives the death of the process, not of the
machine. The sampler reads it to say what an unfinished run had reached.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JOURNAL_PATTERN = "journal-*.jsonl"


def journal_path(run_folder: Path, rank: int) -> Path:
    """Return where a rank's journal lies."""
    return run_folder / f"journal-{rank}.jsonl"


class Journal:
    """Appends events to one rank's journal."""

    def __init__(self, run_folder: Path, rank: int) -> None:
        self.folder = run_folder
        self._rank = rank
        path = journal_path(run_folder, rank)
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )

    def write(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append one event; a full disk raises ``OSError``."""
        head = {"event": event, "time_ns": time.monotonic_ns(), "rank": self._rank}
        line = json.dumps({**head, **fields}, separators=(",", ":"))
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file; it stays in the run folder."""
        os.close(self._descriptor)
