"""Masks for publication: host names, serials and paths, the same mask for the same thing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wattload.core.record.run import RunRecord

_HOST_KEYS = frozenset({"host"})
_SERIAL_KEYS = frozenset({"serial", "controllers", "module"})
_PATH_KEYS = frozenset({"path", "mount_point", "folder"})
_PUBLIC_ROOTS = ("/sys/", "/proc/", "/dev/")
_VOCABULARY = frozenset(
    {"verdict", "kind", "category", "status", "unit", "better", "evidence", "scope", "initiator"}
)
"""Fields whose values are words of ours; a host may be called like one of them."""

_PATH = r"(?<![\w./~-])~?/[^\s\"'`,;:()\[\]{}<>|=]+"
_UUID = r"(?<![0-9A-Za-z])(?:GPU-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9A-Za-z])"


class Masker:
    """Replaces what would name a machine, over any number of records, by ``host-1`` and so on.

    Paths under ``/sys``, ``/proc`` and ``/dev`` are facts of any Linux and stay; serials in them
    do not. Numbers are given in order of appearance.
    """

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._masks: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        for record in records:
            document = record.model_dump(mode="json")
            for host in record.hosts:
                self._mask_host(host.facts.name)
            block_devices = {name for target in record.targets for name in target.facts.devices}
            for kind, value in _named(document):
                self._mask(kind, value)
            for source in record.power.sources:
                if source.device not in block_devices:
                    self._mask("serial", source.device)
        self._pattern = self._compile()

    def text(self, text: str) -> str:
        """Return a text with everything masked that is known by name or looks like a path."""
        return self._pattern.sub(self._replacement, text)

    def record(self, record: RunRecord) -> RunRecord:
        """Return the record with every string masked, keys of free mappings included.

        It has no seal: that of what was masked could be tried against guesses.
        """
        document = self._document(record.model_dump(mode="json"), "", _field_names())
        document["seal"] = None
        return RunRecord.model_validate(document)

    def _mask_host(self, name: str) -> None:
        mask = self._mask("host", name)
        short = name.partition(".")[0]
        if any(letter.isalpha() for letter in short):
            self._masks.setdefault(short, mask)  # box.example.org is also called box

    def _mask(self, kind: str, value: str) -> str:
        if value not in self._masks and value not in ("", "/"):
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._masks[value] = f"{kind}-{self._counts[kind]}"
        return self._masks.get(value, value)

    def _compile(self) -> re.Pattern[str]:
        known = sorted(self._masks, key=lambda value: (-len(value), value))
        names = "|".join(re.escape(value) for value in known)
        parts = [rf"(?<![0-9A-Za-z])(?:{names})(?![0-9A-Za-z])"] if names else []
        return re.compile("|".join([*parts, _UUID, _PATH]))

    def _replacement(self, found: re.Match[str]) -> str:
        text = found.group()
        if text in self._masks:
            return self._masks[text]
        if not text.lstrip("~").startswith("/"):
            return self._mask("serial", text)
        if text.startswith(_PUBLIC_ROOTS):
            return self._without_serials(text)
        stem = text.rstrip(".")  # a path may end a sentence
        return self._mask("path", stem) + text[len(stem) :]

    def _without_serials(self, path: str) -> str:
        for value, mask in self._masks.items():
            if mask.startswith("serial-"):
                path = path.replace(value, mask)
        return path

    def _document(self, value: Any, key: str, fields: frozenset[str]) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, str):
            return value if key in _VOCABULARY or _is_counter(key, value) else self.text(value)
        if isinstance(value, Mapping):
            return {
                (name if name in fields else self.text(name)): self._document(part, name, fields)
                for name, part in value.items()
            }
        if isinstance(value, list):
            return [self._document(part, key, fields) for part in value]
        return value


def _is_counter(key: str, value: str) -> bool:
    return key == "source" and "/" not in value


def _named(document: Any, key: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield (kind of mask, value) for every field that holds a host, a serial or a path."""
    if isinstance(document, Mapping):
        for name, part in document.items():
            if name != "missing":  # its values are reasons, whatever its keys are
                yield from _named(part, name)
    elif isinstance(document, list):
        for part in document:
            yield from _named(part, key)
    elif isinstance(document, str):
        if key in _HOST_KEYS:
            yield "host", document
        elif key in _SERIAL_KEYS:
            yield "serial", document
        elif key in _PATH_KEYS and "/" in document and "wattload-data" not in document:
            yield "path", document


def _field_names() -> frozenset[str]:
    """Return the name of every field of the record format: these keys are ours, never masked."""
    schema = RunRecord.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    return frozenset(name for part in parts for name in part.get("properties", {}))
