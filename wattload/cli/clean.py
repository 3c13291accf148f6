"""``wattload clean``: delete wattload's data from a target, by its manifests only."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.cli.escapes import printable
from wattload.core.errors import DataError, TargetError
from wattload.core.units import format_bytes

if TYPE_CHECKING:
    from wattload.loaders.data.target_folder import Cleaning

_SHOWN_COUNT = 10


def folder_of_target(word: str) -> Path:
    """Return the directory of ``DIR`` or ``target.path=DIR``."""
    return Path(word.removeprefix("target.path="))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="TARGET", type=folder_of_target, help="the directory of target.path="
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Delete the listed files under valid markers; list all other files and keep them.

    Returns 0, or 2 if a folder of wattload could not be emptied.
    """
    from wattload.loaders.data.target_folder import clean

    target: Path = arguments.target
    if os.path.exists(target) and target.is_block_device():  # noqa: PTH110 - as below
        raise TargetError(
            f"{target} is a block device, and wattload has no files on it; the next run overwrites "
            "it, or erase it with blkdiscard"
        )
    if not os.path.isdir(target):  # noqa: PTH112 - Path.is_dir() raises without permission
        raise TargetError(
            f"{target} is not a directory, or you may not enter one above it; name "
            "the one that runs used, e.g. wattload clean /mnt/nvme"
        )
    cleaning = clean(target)
    if arguments.json:
        _print_json(cleaning)
    else:
        _print(cleaning, target)
    for failure in cleaning.failed:
        print(f"wattload: {failure.reason}", file=sys.stderr)
    return DataError.exit_code if cleaning.failed else 0


def _print(cleaning: Cleaning, target: Path) -> None:
    count = len(cleaning.left)
    if not (cleaning.freed_bytes or count or cleaning.failed):
        print(f"{target} has no data of wattload")
        return
    print(f"deleted {format_bytes(cleaning.freed_bytes)} on {target}")
    if count:
        print(f"{count} {'entry' if count == 1 else 'entries'} left that wattload did not write:")
    for path in cleaning.left[:_SHOWN_COUNT]:
        print(f"  {printable(str(path))}")
    if count > _SHOWN_COUNT:
        print(f"  and {count - _SHOWN_COUNT} more")


def _print_json(cleaning: Cleaning) -> None:
    document = {
        "freed_bytes": cleaning.freed_bytes,
        "left": [str(path) for path in cleaning.left],
        "failed": [
            {"path": str(failure.path), "reason": failure.reason} for failure in cleaning.failed
        ],
    }
    print(json.dumps(document, indent=1))
