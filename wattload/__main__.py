"""``wattload`` and ``python -m wattload``: turns errors into one sentence and an exit status."""

from __future__ import annotations

import atexit
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

CONNECTING = frozenset({"run", "datagen", "plan"})
"""Commands whose ranks connect to each other, which releases the signals."""
ALONE = "ranks=1"
"""The setting with which a process connects to no others."""
TEMPORARY_VARIABLES = frozenset({"TMPDIR", "TEMP", "TMP"})
MOST_OPEN_FILES = 65536
"""What an engine with many files needs."""
FIRST_RANK_S = 5.0
"""How long rank 0 may take to fail as another rank did, and to say so for all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status (0, 1, 2, 3 or 130).

    Without ``argv`` this process is the command's own: it takes the words that started it.
    """
    if argv is not None:
        return _run(argv)
    early: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        early.append(number)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, remember)  # until our own handlers are imported and in place
    from wattload.cli.terminal import outlive_readers

    outlive_readers()
    return _run(sys.argv[1:], early)


def _run(arguments: Sequence[str], early: Sequence[int] = ()) -> int:
    """Run one command; signals of before are in ``early``."""
    from wattload.core import interrupts
    from wattload.core.errors import INTERRUPTED
    from wattload.run.launcher import is_rank

    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    status = 1
    try:
        with interrupts.interruptible():
            if _connects(words) and is_rank():
                interrupts.hold()  # a rank that exits now leaves the others in MPI_Init
            if early:
                signal.raise_signal(early[0])
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
        if status and _connects(words):
            from wattload.run.ranks import end_waiting_ranks, is_unconnected

            if is_unconnected():
                atexit.register(end_waiting_ranks, status)  # once a traceback has been printed
    return status


def _connects(words: Sequence[str]) -> bool:
    """Return whether a command's ranks connect to each other."""
    return not CONNECTING.isdisjoint(words[:1]) and ALONE not in (
        word.lstrip("+") for word in words
    )


def _dispatch(words: Sequence[str], *, debug: bool) -> int:
    """Run the command; an error that a signal has caused is raised as ``KeyboardInterrupt``."""
    from wattload.core import interrupts

    try:
        from wattload.cli.escapes import escape_streams
        from wattload.cli.main import dispatch
        from wattload.cli.terminal import spell_what_is_missing
        from wattload.core.host_paths import in_container, print_as_host

        _raise_open_files()
        if CONNECTING.intersection(words[:1]) and not TEMPORARY_VARIABLES.isdisjoint(os.environ):
            from wattload.core.home import shorten_temporary_folder

            shorten_temporary_folder()
        spell_what_is_missing()
        _require_current_folder()
        print_as_host()
        escape_streams()
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
        return _explain(error, words)


def _raise_open_files() -> None:
    """Raise the soft limit on open files as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def _require_current_folder() -> None:
    """Raise ``ConfigError`` if the current folder was deleted: relative paths mean nothing then."""
    from wattload.core.errors import ConfigError

    try:
        os.getcwd()  # noqa: PTH109 - Path would be imported for it
    except FileNotFoundError as error:
        raise ConfigError(
            "the current folder was deleted; change to one that exists, such as `cd ~`"
        ) from error


def _explain(error: Exception, words: Sequence[str]) -> int:
    """Print an error as one sentence and return its exit status."""
    from wattload.core.errors import WattloadError, host_fault

    known = error if isinstance(error, WattloadError) else host_fault(error)
    host = _own_host(words)
    if known is None:
        sentence = f"{host}{type(error).__name__}: {error} (--debug shows the traceback)"
        _print_error(sentence, error)
        return 1
    if _is_reported_here(words):
        _print_error(f"{host}{known}", error)
    return known.exit_code


def _own_host(words: Sequence[str]) -> str:
    """Return the host to name before an error of a rank that knows nothing about the others."""
    from wattload.run.launcher import job_sizes
    from wattload.run.ranks import is_connected

    is_one_of_several = any(size.processes > 1 for size in job_sizes())
    if not (_connects(words) and is_one_of_several) or is_connected():
        return ""
    return f"{os.uname().nodename}: "


def _is_reported_here(words: Sequence[str]) -> bool:
    """Return whether this process prints an error that may have occurred on every rank."""
    from wattload.run.launcher import is_first_rank
    from wattload.run.ranks import is_connected, is_first_connected

    if not _connects(words):
        return True
    if is_connected():
        return is_first_connected()
    if is_first_rank():
        return True
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(FIRST_RANK_S)  # most launchers end this one here if rank 0 has the same error
    return True


def _print_error(sentence: str, error: BaseException) -> None:
    """Print an error and its notes to standard error; if that is closed, print nothing at all."""
    if sys.stderr is not None:
        from wattload.cli.escapes import printable

        notes = "\n".join(getattr(error, "__notes__", ())).splitlines()
        print("\n".join(map(printable, [f"wattload: {sentence}", *notes])), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
