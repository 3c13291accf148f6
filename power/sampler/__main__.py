"""``python -m wattload.power.sampler``: serve one run, or run after run in a container.

Imports little: a run waits for the socket.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from wattload.core.errors import WattloadError
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.server import SamplerServer


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the sampler's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m wattload.power.sampler",
        description="Read power beside runs, and restore power states whatever becomes of them.",
    )
    parser.add_argument("--socket", type=Path, required=True, help="the Unix socket to listen on")
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the run folders")
    parser.add_argument("--once", action="store_true", help="end with the first client")
    parser.add_argument(
        "--allow-uid",
        type=int,
        action="append",
        default=[],
        metavar="UID",
        help="a user who may connect beside root and the sampler's own; may be repeated",
    )
    return parser


def serve(arguments: argparse.Namespace, host: SamplerHost) -> int:
    """Serve until told to end; returns the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    server = SamplerServer(
        host,
        path=arguments.socket,
        once=arguments.once,
        allowed_uids=frozenset({0, os.geteuid(), *arguments.allow_uid}),
    )
    try:
        if not arguments.once:
            _tell_leftovers(host)
        server.serve()
    except WattloadError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _tell_leftovers(host: SamplerHost) -> None:
    """Undo what a killed service left; a sampler of one run does so when the run opens."""
    from wattload.power.leftovers import undo_leftovers

    for leftover in undo_leftovers(host):
        logging.getLogger(__name__).warning("%s", leftover.sentence)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve this host; returns the exit status."""
    arguments = arguments_parser().parse_args(argv)
    return serve(arguments, SamplerHost(runs=arguments.runs.absolute()))


if __name__ == "__main__":
    sys.exit(main())
