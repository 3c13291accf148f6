"""``python -m wattload.power.sampler``: serve the run that started this process, then exit.

The run is connected to standard input. ``wattload sampler`` serves several users.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from wattload.core.errors import WattloadError
from wattload.core.record.unfinished import remove_unborn, unfinished_runs
from wattload.power.sampler.access import SamplerHost
from wattload.power.sampler.service import serve_run


def main(argv: Sequence[str] | None = None) -> int:
    """Serve one client; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wattload.power.sampler",
        description="Read power during one run, and restore power states however it ends.",
    )
    parser.add_argument("--runs", type=Path, required=True, help="the folder of the run folders")
    runs = parser.parse_args(argv).runs.absolute()
    try:
        serve_run(SamplerHost(runs=runs))
        remove_unborn(runs)
        if unfinished_runs([runs]):  # such as one that was killed before it was announced
            from wattload.power.sampler.aborted_record import finish_abandoned

            finish_abandoned([runs])
    except WattloadError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
