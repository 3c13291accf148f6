"""``wattload`` and ``python -m wattload``: turns errors into one sentence and an exit status."""

from __future__ import annotations

import atexit
import os
import resource
import sys
import time
from collections.abc import Sequence

from wattload.core import interrupts
from wattload.core.errors import INTERRUPTED, ConfigError, WattloadError

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
CONNECTING = frozenset({"run", "datagen", "plan"})
"""Commands whose ranks connect to each other, which releases the signals."""
MOST_OPEN_FILES = 65536
"""What an engine with many files needs."""
FIRST_RANK_S = 5.0
"""How long rank 0 may take to fail as another rank did, and to say so for all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (0, 1, 2, 3 or 130)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    status = 1
    try:
        with interrupts.interruptible():
            status = _dispatch(words, debug=debug)
    except KeyboardInterrupt as error:
        if debug:
            raise
        _print_error(str(error) or "interrupted", error)
        status = INTERRUPTED
    except SystemExit as end:  # argparse has printed why
        status = end.code if isinstance(end.code, int) else 0
        raise
    finally:
        if status and _is_waited_for(words):
            from wattload.run.ranks import end_waiting_ranks

            atexit.register(end_waiting_ranks, status)  # once a traceback has been printed
    return status


def _dispatch(words: Sequence[str], *, debug: bool) -> int:
    """Run the command; an error that a signal has caused is raised as ``KeyboardInterrupt``."""
    if _is_rank() and CONNECTING.intersection(words[:1]):
        interrupts.hold()  # a rank that exits now leaves the others in MPI_Init
    try:
        from wattload.cli.main import dispatch
        from wattload.cli.terminal import spell_what_is_missing
        from wattload.core.host_paths import in_container, print_as_host

        _raise_open_files()
        spell_what_is_missing()
        _require_current_folder()
        print_as_host()
        return dispatch([in_container(word) for word in words])
    except Exception as error:
        interruption = interrupts.interruption()
        if debug:
            raise
        if interruption is not None:
            interrupt = KeyboardInterrupt(interruption)
            for note in getattr(error, "__notes__", ()):
                interrupt.add_note(note)
            raise interrupt from error
        return _explain(error, is_waited_for=_is_waited_for(words))


def _raise_open_files() -> None:
    """Raise the soft limit on open files as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def _require_current_folder() -> None:
    """Raise ``ConfigError`` if the current folder was deleted: relative paths mean nothing then."""
    try:
        os.getcwd()  # noqa: PTH109 - Path would be imported for it
    except FileNotFoundError as error:
        raise ConfigError(
            "the current folder was deleted; change to one that exists, such as `cd ~`"
        ) from error


def _explain(error: Exception, *, is_waited_for: bool) -> int:
    """Print an error as one sentence and return its exit status."""
    if isinstance(error, BrokenPipeError):
        if sys.stderr is not None:
            sys.stderr.close()  # nobody reads our output any more
        return 1
    from wattload.core.errors import host_fault

    known = error if isinstance(error, WattloadError) else host_fault(error)
    if known is not None:
        if is_waited_for and not _is_first_rank():
            time.sleep(FIRST_RANK_S)  # rank 0 ends this one here if it has the same error
        if is_waited_for or _is_first_rank():
            _print_error(str(known), error)
        return known.exit_code
    _print_error(f"{type(error).__name__}: {error} (--debug shows the traceback)", error)
    return 1


def _print_error(sentence: str, error: BaseException) -> None:
    """Print an error and its notes to standard error; if that is closed, print nothing at all."""
    if sys.stderr is not None:
        from wattload.cli.terminal import printable

        notes = getattr(error, "__notes__", ())
        text = "\n".join([f"wattload: {sentence}", *notes])
        print("\n".join(map(printable, text.split("\n"))), file=sys.stderr)


def _is_rank() -> bool:
    return any(name in os.environ for name in RANK_VARIABLES)


def _is_waited_for(words: Sequence[str]) -> bool:
    """Return whether other ranks wait for this one, which has not connected to them."""
    if not _is_rank() or not CONNECTING.intersection(words[:1]):
        return False
    from wattload.run.ranks import is_unconnected

    return is_unconnected()


def _is_first_rank() -> bool:
    """Return whether this process is rank 0, which prints errors that occur on every rank."""
    return all(os.environ.get(name, "0") in ("0", "") for name in RANK_VARIABLES)


if __name__ == "__main__":
    sys.exit(main())
