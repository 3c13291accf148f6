"""``python -m wattload.power.sampler``: serve the run that started this process, and end with it.

Imports little: a run waits for the socket. A service for several users is ``wattload sampler``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from wattload.core.errors import WattloadError
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.options import add_options, serve


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one client; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wattload.power.sampler",
        description="Read power beside one run, and restore power states whatever becomes of it.",
    )
    add_options(parser)
    arguments = parser.parse_args(argv)
    try:
        return serve(arguments, SamplerHost(runs=arguments.runs.absolute()), once=True)
    except WattloadError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
