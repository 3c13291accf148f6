"""Which backend of the engine runs here: what each one is, and which one ``auto`` takes and why."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag

from wattload.core.errors import ConfigError
from wattload.loaders.native import library

AUTO = "auto"
IO_URING = "io_uring"
PREAD = "pread"
MEMORY = "memory"
NULL = "null"


class Flag(IntFlag):
    """What a backend is; the values are the header's."""

    DISKLESS = 1
    SYNC = 2
    FIXED_BUFFERS = 4
    FIXED_FILES = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend that runs here, and the sentences that a page must print of the choice."""

    name: str
    flags: Flag
    remarks: tuple[str, ...] = ()


def backends() -> dict[str, Flag]:
    """Return the flags of every backend of the library, by name, best first."""
    return dict(_listed())


def unavailable(name: str) -> str | None:
    """Return why a backend can't run here, ``None`` if it can."""
    error = library.Error()
    if library.load().wl_backend_probe(name.encode(), ctypes.byref(error)) == library.OK:
        return None
    return str(error.text.decode("utf-8", "replace"))


def choose(asked: str) -> Choice:
    """Return the backend that was asked for; of ``auto``, io_uring where it runs, else pread.

    Raises:
        ConfigError: there is no such backend, or it can't run here.
        MissingExtraError: the library is not built.
    """
    known = backends()
    name = IO_URING if asked == AUTO else asked
    if name not in known:
        raise ConfigError(f"there is no engine {asked!r}; there are {', '.join(known)}")
    reason = unavailable(name)
    return Choice(name, known[name]) if reason is None else instead(asked, reason)


def instead(asked: str, reason: str) -> Choice:
    """Return what takes io_uring's place where it can't run, with the sentence that says so.

    Raises ``ConfigError`` unless ``auto`` was asked for.
    """
    if asked != AUTO:
        raise ConfigError(
            f"loader.engine={asked} can't run here: {reason}; loader.engine={AUTO} takes {PREAD}"
        )
    remark = f"io_uring can't run here ({reason}), so a pool of threads with {PREAD} took its place"
    return Choice(PREAD, backends()[PREAD], (f"{remark}.",))


def _listed() -> Iterator[tuple[str, Flag]]:
    number = 0
    while info := library.load().wl_backend(number):
        yield info.contents.name.decode(), Flag(info.contents.flags)
        number += 1
