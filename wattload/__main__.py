"""``wattload`` and ``python -m wattload``: errors become one sentence and an exit status here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (0, 1, 2, 3 or 130)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    from wattload.cli.main import dispatch
    from wattload.core.errors import WattloadError

    try:
        return dispatch([word for word in arguments if word != "--debug"])
    except WattloadError as error:
        if debug:
            raise
        if _speaks():
            _tell(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        _tell("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()  # the reader of our output has left; nobody is there to be told
        return 1
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        _tell(f"{kind}: {error} (--debug shows the traceback)")
        return 1


def _tell(sentence: str) -> None:
    """Say what went wrong on standard error, or, where it is closed, nowhere: not in our output."""
    if sys.stderr is not None:
        print(f"wattload: {sentence}", file=sys.stderr)


def _speaks() -> bool:
    """Return whether this process tells of errors that every rank meets alike; rank 0 does."""
    return all(os.environ.get(name, "0") in ("0", "") for name in RANK_VARIABLES)


if __name__ == "__main__":
    sys.exit(main())
