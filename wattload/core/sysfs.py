"""Reading ``/sys`` and ``/proc``: a value, or the reason why there is none.

Also folders that the kernel makes for one process, named so that a later one can tell whose they
are: control groups and trace instances outlive a process that was killed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from wattload.core.base_models import Observed
from wattload.core.processes import stat_fields

SECTOR_BYTES = 512
"""The unit of sizes and counters in sysfs, independent of the device's block size."""

ObservedT = TypeVar("ObservedT", bound=Observed)

_UNIT_BYTES = {"kB": 1024, "": 1}


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the kernel's file systems are; folders other than the defaults hold a recording.

    ``top`` is the root of the file tree that ``sys`` and ``proc`` describe.
    """

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    top: Path = Path("/")


LIVE = Roots()
"""The running machine."""


class Observation:
    """The fields of an ``Observed`` model while they are read: each gets a value or a reason."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}

    def put(self, name: str, value: object, reason: str) -> None:
        """Store a value; for ``None``, store the reason."""
        self.values[name] = value
        if value is None:
            self.reasons[name] = reason

    def read(self, name: str, reader: Callable[[], object], absent: str = "it is empty") -> None:
        """Store the reader's result; an ``OSError`` or ``ValueError`` becomes the reason.

        ``absent`` is the reason if the reader returns ``None``.
        """
        try:
            value = reader()
        except (OSError, ValueError) as error:
            self.put(name, None, explain(error))
            return
        self.put(name, value, absent)

    def lack(self, reason: str, *names: str) -> None:
        """Leave the named fields without a value, for one reason."""
        for name in names:
            self.put(name, None, reason)

    def build(self, model: type[ObservedT], /, **known: object) -> ObservedT:
        """Return the model from the fields that were read and those already known."""
        return model(**self.values, **known, missing=self.reasons)


def explain(error: Exception) -> str:
    """Return one clause with the reason why a file gave no value."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if error.filename is None:
        return error.strerror
    name = Path(error.filename).name
    if isinstance(error, FileNotFoundError):
        return f"the kernel does not show {name}"
    return f"{name}: {error.strerror}"


def read_text(path: Path) -> str:
    """Return a file's text without the padding that the kernel and NVMe add."""
    return path.read_text(encoding="utf-8", errors="replace").strip(" \t\n\0")


def text_or_empty(path: Path) -> str:
    """Return what ``read_text`` returns, or no text of a file that can't be read."""
    try:
        return read_text(path)
    except OSError:
        return ""


def named_values(text: str) -> dict[str, str]:
    """Return the values in lines such as ``MemTotal: 1000 kB`` by their names."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_int(path: Path) -> int:
    """Return the integer in a file; raises ``ValueError`` naming the file."""
    text = read_text(path)
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{path} contains {text!r}, not an integer") from error


def parse_cpus(text: str) -> set[int]:
    """Return the numbers in a list of the kernel such as ``0-3,8``."""
    found: set[int] = set()
    for part in text.split(","):
        if part.strip():
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def bracketed(text: str) -> str:
    """Return the active choice: ``none [mq-deadline] bfq`` gives ``mq-deadline``."""
    _, opened, rest = text.partition("[")
    return rest.partition("]")[0] if opened else text


def block_folder(name: str, roots: Roots = LIVE) -> Path | None:
    """Return the sysfs folder of a block device by its kernel name, or ``None``."""
    link = roots.sys / "class/block" / name.replace("/", "!")
    return link.resolve() if link.exists() else None


def major_minor(number: int) -> str:
    """Return a device number as the kernel writes it: ``259:1``."""
    return f"{os.major(number)}:{os.minor(number)}"


def numbered_block_folder(major_minor: str, roots: Roots = LIVE) -> Path | None:
    """Return the sysfs folder of the block device ``major:minor``, or ``None``."""
    link = roots.sys / "dev/block" / major_minor
    return link.resolve() if link.exists() else None


def with_values(
    observed: ObservedT, values: Mapping[str, Any], reasons: Mapping[str, str] | None = None
) -> ObservedT:
    """Return the model with more values; a new reason replaces an old one, never a value.

    Args:
        observed: what was read so far.
        values: fields to set; ``None`` is skipped.
        reasons: better reasons for fields that still have no value.
    """
    fields = {name: getattr(observed, name) for name in type(observed).model_fields}
    old = dict(fields.pop("missing"))
    fields.update({name: value for name, value in values.items() if value is not None})
    known = {**old, **(reasons or {})}
    missing = {name: known[name] for name, value in fields.items() if value is None}
    return type(observed)(**fields, missing=missing)


def read_meminfo(path: Path) -> dict[str, int]:
    """Return bytes by name from ``/proc/meminfo`` or a NUMA node's; its "kB" are KiB.

    Raises:
        OSError: the file can't be read.
        ValueError: a line is malformed.
    """
    amounts: dict[str, int] = {}
    for line in read_text(path).splitlines():
        name, _, rest = line.partition(":")
        value, _, unit = rest.strip().partition(" ")
        amounts[name.split()[-1]] = int(value) * _UNIT_BYTES[unit.strip()]  # "Node 0 MemTotal"
    return amounts


def host_memory_bytes(roots: Roots = LIVE) -> int:
    """Return the memory of this host in bytes: MemTotal in ``/proc/meminfo``."""
    return read_meminfo(roots.proc / "meminfo")["MemTotal"]


@dataclass(frozen=True, slots=True)
class LeftFolder:
    """A folder whose process has ended."""

    path: Path
    pid: int


def own_name(prefix: str, roots: Roots = LIVE) -> str:
    """Return ``prefix-PID-START``: with its start time, a process ID is unique since boot."""
    pid = os.getpid()
    return f"{prefix}-{pid}-{_start_ticks(pid, roots)}"


def left_folders(parent: Path, prefix: str, roots: Roots = LIVE) -> Iterator[LeftFolder]:
    """Yield the folders of processes that have ended, as far as this PID namespace shows.

    A process in another container may be alive: remove a folder only if the kernel, which refuses
    one in use, allows it.
    """
    for folder in parent.glob(f"{prefix}-*"):
        named = re.fullmatch(rf"{prefix}-(\d+)-(\d+)", folder.name)
        if named is not None and not is_alive(int(named[1]), int(named[2]), roots):
            yield LeftFolder(folder, int(named[1]))


def is_alive(pid: int, start_ticks: int, roots: Roots = LIVE) -> bool:
    """Return whether the process in a name of ``own_name`` lives, in this PID namespace."""
    try:
        return _start_ticks(pid, roots) == start_ticks
    except OSError:
        return False


def _start_ticks(pid: int, roots: Roots) -> int:
    """Return when a process started, in clock ticks since boot (``proc_pid_stat(5)``, field 22)."""
    return int(stat_fields(pid, roots.proc)[19])
