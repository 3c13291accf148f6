"""Where this user's own files are, also for a user without a home.

Containers run as any number, which has no entry in passwd, without HOME or with one that it may not
write to.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from wattload.core.errors import ConfigError, ForeignFileError
from wattload.core.files import open_folder

STAND_INS = (Path("/var/tmp"), Path("/tmp"))
"""Where a user without a home has a folder; the first keeps it over a restart."""

LONGEST_TEMPORARY = 75
"""Bytes of ``TMPDIR`` with which multiprocessing's sockets fit: it adds ``/pymp-`` and
``/listener-`` with eight characters each, and ``unix(7)`` takes 107 bytes."""


def user_folder(variable: str, below: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return wattload's folder in one of this user's (XDG Base Directory); it need not exist.

    A user without a home that can be written to has a private folder in ``STAND_INS`` instead.

    Args:
        variable: such as ``XDG_STATE_HOME``, which may name another folder.
        below: the default below the home, such as ``.local/state``.
        environment: the variables.

    Raises:
        ForeignFileError: the private folder is somebody else's.
    """
    named = environment.get(variable)
    if named:
        return Path(named) / "wattload"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - which raises without a home
    folder = home / below / "wattload"
    if home.is_absolute() and _can_be_written(folder):
        return folder
    return _stand_in() / below / "wattload"


def expanded(path: str) -> Path:
    """Return a path whose ``~`` is replaced by the home of the user.

    Raises:
        ConfigError: that user has none.
    """
    found = os.path.expanduser(path)  # noqa: PTH111 - a Path drops the ./ of ./~
    if found.startswith("~"):
        raise ConfigError(
            f"{path} begins with {path.partition('/')[0]}, but there is no such home; write the "
            f"whole path, or ./{path} for a folder of that name"
        )
    return Path(found)


def shorten_temporary_folder() -> None:
    """Let this process and its children use another ``TMPDIR`` if sockets would not fit in it.

    Raises:
        ConfigError: none of ``STAND_INS`` can take its place.
    """
    given = tempfile.gettempdir()
    if len(os.fsencode(given)) <= LONGEST_TEMPORARY:
        return
    short = next((each for each in STAND_INS if os.access(each, os.W_OK | os.X_OK)), None)
    if short is None:
        raise ConfigError(
            f"TMPDIR={given} has {len(os.fsencode(given))} bytes, but a path of a socket in it may "
            f"have 107, which leaves {LONGEST_TEMPORARY}; set TMPDIR to a shorter folder, as "
            f"{' and '.join(map(str, STAND_INS))} can't be written to"
        )
    os.environ["TMPDIR"] = tempfile.tempdir = str(short)


def _can_be_written(folder: Path) -> bool:
    """Return whether this user may write to a folder, or make it."""
    existing = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    return os.access(existing, os.W_OK | os.X_OK)


def _stand_in() -> Path:
    """Return the private folder of a user without a home, made if it is missing."""
    name = f"wattload-{os.geteuid()}"
    existing = [each / name for each in STAND_INS if os.path.lexists(each / name)]
    places = [*existing, *(each / name for each in STAND_INS if os.access(each, os.W_OK | os.X_OK))]
    folder = next(iter(places), STAND_INS[0] / name)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        open_folder(folder).close()
    except ForeignFileError as error:
        raise ForeignFileError(
            f"the user {os.geteuid()} has no home to write to, and its stand-in can't be used: "
            f"{error}; or set HOME or WATTLOAD_STATE_DIR"
        ) from error
    except OSError:
        return folder  # full or read-only: what uses the folder says so
    return folder
