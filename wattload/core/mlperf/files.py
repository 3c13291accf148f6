"""The folder of a published run: its files, bounded, strictly parsed, each with its digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from wattload.core.base_models import first_fault, strict_json
from wattload.core.errors import DataError
from wattload.core.mlperf.published import Setting, Unread
from wattload.core.units import MIB

LIMIT_BYTES = 64 * MIB
"""The largest file that is read; the step lists of a rank are a few megabytes."""

SUMMARY = "summary.json"
STATISTICS = "statistics.json"
"""What a run of a vector database has without a summary."""
_LONGEST_VALUE = 60


class UnreadableError(DataError):
    """A file or folder of a tree can't be used, and why in one clause."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.unread = Unread(path=path, reason=reason)


class Part(BaseModel):
    """What is read of a JSON object: exact types, no NaN or infinity; other fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")


def _seconds(text: object) -> float:
    """Return a time of day without zone as seconds since 1970 by the clock of its host."""
    return datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp()


When = Annotated[float, BeforeValidator(_seconds)]


class RunFolder:
    """A folder with the files of a run, or of a set.

    ``path`` is relative to the tree at ``root``, ``name`` to the folder of the run's set. ``files``
    are the regular files below it by relative name. ``sources`` are the digests of those read so
    far, ``lost`` are those that a run can do without and that can't be read.
    """

    def __init__(self, root: Path, path: str, name: str, files: Sequence[str]) -> None:
        self.root = root
        self.path = path
        self.name = name
        self.files = frozenset(files)
        self.sources: dict[str, str] = {}
        self.lost: list[Unread] = []

    @property
    def summary_name(self) -> str:
        return STATISTICS if STATISTICS in self.files and SUMMARY not in self.files else SUMMARY

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.json(self.summary_name)

    def matching(self, pattern: str) -> list[re.Match[str]]:
        """Return the matches of all files whose whole name fits a pattern, sorted by name."""
        compiled = re.compile(pattern)
        return [match for match in map(compiled.fullmatch, sorted(self.files)) if match]

    def by_rank(self, pattern: str) -> dict[int, str]:
        """Return names of files by rank, the first group of a pattern."""
        return {int(match[1]): match[0] for match in self.matching(pattern)}

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file.

        Raises ``UnreadableError`` if it is missing, too large, not strict JSON or no object.
        """
        content = self._read(name)
        try:
            return strict_json(content)
        except ValueError as error:
            self.refuse(name, f"not JSON: {error}")

    def yaml(self, name: str) -> object:
        """Return the value in a YAML file; raises as ``json`` does."""
        import yaml

        content = self._read(name)
        try:
            return yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.refuse(name, f"not YAML: {' '.join(str(error).split())}")

    def part(self, name: str, model: type[ModelT], found: object) -> ModelT:
        """Return what a model reads of ``found``, a value from the file ``name``.

        Raises ``UnreadableError`` if a value is missing, or of the wrong type or range.
        """
        try:
            return model.model_validate(found)
        except ValidationError as error:
            place, fault, value = first_fault(error)
            self.refuse(name, f"{place}: {fault}, not {repr(value)[:_LONGEST_VALUE]}")

    def text(self, name: str) -> str:
        """Return a file's text; raises as ``json`` does."""
        return self._read(name).decode(errors="replace")

    def optional(self, read: Callable[[], T]) -> T | None:
        """Return what a file says that the run can do without; list it as lost if it can't."""
        try:
            return read()
        except UnreadableError as error:
            self.lost.append(error.unread)
            return None

    def refuse(self, name: str, reason: str) -> NoReturn:
        """Raise the error about a file of this folder."""
        raise UnreadableError(str(Path(self.path, name)), reason)

    def _read(self, name: str) -> bytes:
        if name not in self.files:
            self.refuse(name, "not in this copy")
        path = Path(self.path, name)
        file = self.root / path
        try:
            if file.stat().st_size > LIMIT_BYTES:
                self.refuse(name, f"larger than {LIMIT_BYTES // MIB} MiB, the most that is read")
            content = file.read_bytes()
        except OSError as error:
            self.refuse(name, f"can't be read: {error.strerror}")
        self.sources[str(path)] = hashlib.sha256(content).hexdigest()
        return content


class Values:
    """The values in an object from a file by dotted name; a missing one is ``None``."""

    def __init__(self, folder: RunFolder, name: str, found: object) -> None:
        self.folder = folder
        self.name = name
        self._found = found

    def number(self, path: str, scale: float = 1) -> float | None:
        """Return a number times ``scale``; raises ``UnreadableError`` for another value."""
        found = self.get(path, object)
        if isinstance(found, bool) or not isinstance(found, int | float | None):
            self.folder.refuse(self.name, f"{path}: a number is needed, not {found!r:.60}")
        return None if found is None else found * scale

    def whole(self, path: str, scale: float = 1) -> int | None:
        """Return what ``number`` does, rounded."""
        found = self.number(path, scale)
        return None if found is None else round(found)

    def each(self, path: str) -> list[Values]:
        """Return the values in each object of a list."""
        return [Values(self.folder, self.name, item) for item in self.get(path, list) or ()]

    def get(self, path: str, kind: type[T]) -> T | None:
        """Return a value of a type; ``None`` for one of another."""
        found = self._found
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, kind) else None


def flat(found: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Setting]]:
    """Yield the values of nested objects by dotted name; of a list only its length."""
    for key, value in found.items():
        name = f"{above}{key}"
        if isinstance(value, dict):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list):
            yield name, f"list of {len(value)}"
        else:
            is_plain = value is None or isinstance(value, bool | int | float | str)
            yield name, value if is_plain else str(value)


def numbered(found: object, prefix: str) -> list[tuple[int, Any]]:
    """Return an object's members named by a prefix and a number, in the order of numbers."""
    pattern = re.compile(rf"{prefix}(\d+)")
    members = found.items() if isinstance(found, dict) else ()
    matches = ((pattern.fullmatch(name), value) for name, value in members)
    return sorted(((int(match[1]), value) for match, value in matches if match), key=itemgetter(0))
