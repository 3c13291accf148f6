"""Paths as the host of a container knows them, in what a person reads and types.

docker/compose.yaml mounts folders of the host and lists them in ``WATTLOAD_HOST_PATHS``, a line
``/inside=outside`` each; ``outside`` may be relative to the checkout. All that is printed passes
``in_words_of_host``, so that no message needs to think of it; arguments pass ``inside``, so that
printed commands work in the container, too.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO, cast

VARIABLE = "WATTLOAD_HOST_PATHS"

_STARTS = r"(?:(?<![\w.:/~-])|(?<=\x1b\[\dm)|(?<=\x1b\[\d\dm)|(?<=\x1b\[\d;\d\dm))"
"""A path may follow the code of a terminal's colour or weight."""
_ENDS = r"(?:(?<=/)|(?=$|[^\w.-]|\.(?:\s|$)))"
"""A path ends after a slash or at the end of its last name; a full stop may follow it."""


def mounted() -> dict[Path, Path]:
    """Return the mounted folders, from the path inside to the one outside; empty on a host."""
    pairs = (line.partition("=") for line in os.environ.get(VARIABLE, "").splitlines())
    return {Path(inside): Path(outside) for inside, _, outside in pairs if inside and outside}


def on_host(path: Path) -> Path:
    """Return a path as the host sees it; unchanged if no mounted folder holds it."""
    for inside, outside in mounted().items():
        if path.absolute().is_relative_to(inside):
            return outside / path.absolute().relative_to(inside)
    return path


def in_words_of_host(text: str) -> str:
    """Return a text in which paths below a mounted folder are those of the host."""
    pairs = mounted().items()
    here = [(each, out) for each, out in pairs if Path.cwd() in each.parents]
    below = {f"{each.relative_to(Path.cwd())}/": f"{out}/" for each, out in here}
    return _replace(text, {str(into): str(out) for into, out in pairs} | below)


def in_container(argument: str) -> str:
    """Return an argument in which absolute paths of the host are those of the mounted folders."""
    pairs = mounted().items()
    return _replace(argument, {str(out): str(into) for into, out in pairs if out.is_absolute()})


def _replace(text: str, names: Mapping[str, str]) -> str:
    """Replace the starts of paths. What starts with a replacement already is left alone."""
    if not names:
        return text
    known = sorted({*names, *names.values()}, key=len, reverse=True)
    pattern = f"{_STARTS}(?:{'|'.join(map(re.escape, known))}){_ENDS}"
    return re.sub(pattern, lambda found: names.get(found[0], found[0]), text)


def print_as_host() -> None:
    """Let standard output and error name paths as the host does; does nothing on a host."""
    if mounted() and sys.stdout is not None:
        sys.stdout = cast("TextIO", _Translated(sys.stdout))
    if mounted() and sys.stderr is not None:
        sys.stderr = cast("TextIO", _Translated(sys.stderr))


class _Translated:
    """A text stream that translates what is written; bytes written to its buffer stay."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(in_words_of_host(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def is_lost(folder: Path) -> bool:
    """Return whether a folder, which need not exist, is deleted together with its container."""
    if not mounted() or any(folder.absolute().is_relative_to(each) for each in mounted()):
        return False
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    return existing.stat().st_dev in {Path(own).stat().st_dev for own in ("/", "/tmp")}


def make_available(folder: str | Path) -> str:
    """Return how to get a folder that does not exist, as a clause of an error."""
    if mounted():
        named = shlex.quote(str(folder))
        return f"a container has only mounted folders: put TARGET={named} before docker compose"
    return "create the directory on the drive under test, or mount it"


def run_as(name: str, uid: int, gid: int) -> str:
    """Return how to run as another user, as a clause of an error."""
    return container_of(uid, gid) if mounted() else f"run it as {name}"


def container_of(uid: int, gid: int) -> str:
    """Return how to start the container as a user; without ``env``, bash refuses to set UID."""
    return f"put `env UID={uid} GID={gid}` before docker compose"


def allow_writing(folder: Path) -> str:
    """Return the commands that let this user write to a folder, as a clause of an error."""
    if is_lost(folder):
        return "it is in the container: put TARGET=FOLDER before docker compose for one of the host"
    uid, gid, owner = os.geteuid(), os.getegid(), folder.stat()
    named = shlex.quote(str(on_host(folder)))
    if owner.st_uid == uid:
        return f"run `chmod u+rwx {named}`"
    chown = f"`sudo chown {uid}:{gid} {named}`"
    if not mounted():
        return f"run {chown}"
    return f"run {chown}, or {container_of(owner.st_uid, owner.st_gid)}"
