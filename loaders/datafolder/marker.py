"""The marker of a data folder: who made it, from which parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattload.core.errors import DataError, TargetError
from wattload.core.target import DATA_FOLDER_NAME
from wattload.loaders.datafolder.safefiles import read_text, sync_folder, write_durably

MARKER_NAME = ".wattload-marker.json"

_FORMAT = 1


def marker_of(workload: str, parameters: Mapping[str, object], seed: int) -> dict[str, Any]:
    """Return the marker for a workload's parameters and seed; ``key`` names the folder.

    Raises ``DataError`` for parameters that JSON can't hold.
    """
    try:
        made_from = json.dumps({"parameters": parameters, "seed": seed}, sort_keys=True)
    except TypeError as error:
        raise DataError(f"the parameters of {workload} are not plain values: {error}") from error
    digest = hashlib.sha256(made_from.encode()).hexdigest()
    return {
        "made_by": "wattload",
        "format": _FORMAT,
        "workload": workload,
        "key": f"{workload}-{digest[:12]}",
        # Through JSON, so that it compares equal to what is read back (tuples become lists).
        **json.loads(made_from),
    }


def make_folders(target_path: Path, *below: str) -> None:
    """Make ``<target>/wattload-data``, or a folder ``below`` it, durably, following no link.

    Raises:
        TargetError: the target is missing or not a directory.
        DataError: a link or a file of somebody else stands in the place of a folder.
        OSError: the kernel refuses (read-only, full, no permission).
    """
    if not target_path.is_dir():
        raise TargetError(
            f"{target_path} is not a directory; give an existing one with target.path="
        )
    path = target_path
    for name in (DATA_FOLDER_NAME, *below):
        above, path = path, path / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise DataError(
                f"{path} is in the way: it is no folder of ours; move it, or choose another target"
            )
        if not path.exists():
            path.mkdir(exist_ok=True)
            sync_folder(above)


def claim_marker(path: Path, marker: Mapping[str, Any]) -> None:
    """Write the marker into a new folder, or see that the one there is the same.

    Raises ``DataError`` for a folder of somebody else and for one made with other parameters.
    """
    found = read_marker(path)
    if found == marker:
        return
    if found is not None:
        raise DataError(
            f"{path} was made with other parameters ({_difference(found, marker)}); "
            "remove it with `make clean`, or choose another target"
        )
    if read_text(path, MARKER_NAME) is not None or not _is_new(path):
        raise DataError(
            f"{path} was not made by wattload (no valid {MARKER_NAME} in it), so nothing in it is "
            "touched; move it away, or choose another target"
        )
    write_durably(path, MARKER_NAME, json.dumps(marker, indent=1))


def read_marker(path: Path) -> dict[str, Any] | None:
    """Return the valid marker of a data folder, ``None`` if there is none.

    Valid is a JSON object of ours in a format we know, whose key is the folder's name. The key is
    what the folder is, so a marker that was copied elsewhere gives no right to remove files.
    """
    try:
        found = json.loads(read_text(path, MARKER_NAME) or "null")
    except (ValueError, OSError, RecursionError):  # DataError is a ValueError
        return None
    if not isinstance(found, dict) or found.get("made_by") != "wattload":
        return None
    return found if found.get("format") == _FORMAT and found.get("key") == path.name else None


def require_marker(path: Path) -> None:
    """Raise ``DataError`` unless the folder has a valid marker: files are removed under it only."""
    if read_marker(path) is None:
        raise DataError(
            f"{path} has no valid {MARKER_NAME}, so nothing in it is removed; "
            "remove it by hand if it is not needed"
        )


def _is_new(path: Path) -> bool:
    """Whether a folder without marker is what an interrupted claim leaves: empty, or nearly."""
    return {entry.name for entry in path.iterdir()} <= {f"{MARKER_NAME}.tmp"}


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = sorted(name for name in wanted if found.get(name) != wanted[name])
    return f"its {', '.join(names)} differ"
