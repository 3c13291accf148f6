"""``wattload`` and ``python -m wattload``: turns errors into one sentence and an exit status."""

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
    from wattload.cli.encoding import spell_what_is_missing
    from wattload.cli.main import dispatch
    from wattload.core.errors import WattloadError

    spell_what_is_missing()
    try:
        return dispatch([word for word in arguments if word != "--debug"])
    except WattloadError as error:
        if debug:
            raise
        if _is_first_rank():
            _print_error(str(error), error)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        if debug:
            raise
        _print_error("interrupted", interrupt)
        return INTERRUPTED
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()  # nobody reads our output any more
        return 1
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        _print_error(f"{kind}: {error} (--debug shows the traceback)", error)
        return 1


def _print_error(sentence: str, error: BaseException) -> None:
    """Print an error and its notes to standard error; if that is closed, print nothing at all."""
    if sys.stderr is not None:
        notes = getattr(error, "__notes__", ())
        print("\n".join([f"wattload: {sentence}", *notes]), file=sys.stderr)


def _is_first_rank() -> bool:
    """Return whether this process is rank 0, which prints errors that occur on every rank."""
    return all(os.environ.get(name, "0") in ("0", "") for name in RANK_VARIABLES)


if __name__ == "__main__":
    sys.exit(main())
