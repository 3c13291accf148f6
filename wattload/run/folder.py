"""The run's folder: its name, the draft of its record, and the log joined from its journals."""

from __future__ import annotations

import json
import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wattload.core.errors import TargetError
from wattload.core.files import FOLDER_MODE
from wattload.core.record.file import DRAFT_FILE, JOURNAL_PATTERN

LOG_FILE = "log.jsonl"
LONGEST_NAME = 40

_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")


def new_run_id(workload: str, label: str) -> str:
    """Return ``<UTC>-<workload>-<label>-<4 hex>``, unique and sorted by time.

    The label is written in ASCII letters, digits, dots, dashes and underscores; it is left out if
    it has none of them.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = (stamp, workload, ascii_name(label), secrets.token_hex(2))
    return "-".join(part for part in parts if part)


def ascii_name(text: str) -> str:
    """Return a text as a name that every file system and shell takes: ``Grün 1`` as ``Grun-1``."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _FOREIGN.sub("-", plain)[:LONGEST_NAME].strip("-._")


def make_runs_folder(runs: Path) -> None:
    """Create the folder for run folders if it does not exist.

    Raises:
        TargetError: it can't be created.
    """
    _make(runs, exist_ok=True)


def make_run_folder(runs: Path, run_id: str) -> Path:
    """Create and return the run's folder.

    Raises:
        TargetError: it can't be created, or exists already.
    """
    folder = runs / run_id
    _make(folder, exist_ok=False)
    return folder


def _make(folder: Path, *, exist_ok: bool) -> None:
    try:
        # Whatever the umask, nobody else may write into a run's folder.
        folder.mkdir(mode=0o777 if exist_ok else FOLDER_MODE, parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise TargetError(
            f"can't create the folder {folder} for results: {error.strerror}; "
            "use runs=FOLDER for another one"
        ) from error


def write_configuration(folder: Path, config_values: Mapping[str, Any]) -> None:
    """Write the composed configuration to ``config.yaml``."""
    from omegaconf import OmegaConf

    OmegaConf.save(OmegaConf.create(dict(config_values)), folder / "config.yaml")


def write_draft_document(folder: Path, document: str) -> None:
    """Write the draft of the record atomically."""
    temporary = folder / (DRAFT_FILE + ".tmp")
    temporary.write_text(document, encoding="utf-8")
    temporary.replace(folder / DRAFT_FILE)


def settle(folder: Path, samples: Sequence[str]) -> None:
    """Merge the ranks' journals into ``log.jsonl`` and delete files that only recovery needs."""
    journals = sorted(folder.glob(JOURNAL_PATTERN))
    lines = [line for journal in journals for line in journal.read_text("utf-8").splitlines()]
    log = folder / LOG_FILE
    log.write_text("".join(f"{line}\n" for line in sorted(lines, key=_time_ns)), "utf-8")
    for path in (folder / DRAFT_FILE, *journals, *(folder / name for name in samples if name)):
        path.unlink(missing_ok=True)


def _time_ns(line: str) -> int:
    return int(json.loads(line)["time_ns"])
