"""``wattload clean``: give back what wattload wrote to a target, by its manifests alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from wattload.core.errors import TargetError
from wattload.core.units import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("target", type=Path, help="the target directory, as given to target.path=")


def run(arguments: argparse.Namespace) -> int:
    """Remove the listed files under valid markers; files of others stay and are named."""
    from wattload.loaders.datafolder import clean

    target: Path = arguments.target
    if not target.is_dir():
        raise TargetError(f"{target} is no directory; name the target as in target.path=")
    print(f"{format_bytes(clean(target))} given back on {target}")
    return 0
