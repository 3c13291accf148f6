"""Masks for publication: host names, serials, addresses and paths, one mask per identity.

Names that occur in a record are masked everywhere; patterns find identifiers that no record names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wattload.core.record.run import RunRecord

_BEFORE, _AFTER = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_NO_PATH = r"\s\"'`,;:()\[\]{}<>|="
_HEX = "[0-9a-f]"

_SERIALS = (
    rf"{_BEFORE}nqn\.\d{{4}}-\d\d\.[^\s\"'`,;()\[\]{{}}<>|=]+",
    rf"{_BEFORE}(?:GPU-|MIG-)?{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}{_AFTER}",
    rf"{_BEFORE}(?:eui|nguid|uuid|naa|wwn|nvme)[.-](?:0x)?{_HEX}{{16,32}}{_AFTER}",
    # An EUI-64 or an NGUID by itself; digits alone are a count.
    rf"{_BEFORE}(?:0x)?(?=[0-9]*[a-f])(?:{_HEX}{{32}}|{_HEX}{{16}}){_AFTER}",
    # PARTUUID of an MBR, and any file system's after its name: FAT has ABCD-1234.
    rf"{_BEFORE}(?=[0-9]*[a-f]){_HEX}{{8}}-{_HEX}{{2}}(?![0-9A-Za-z-])",
    rf"(?:(?<=uuid=)|(?<=uuid:)|(?<=uuid )|(?<=uuid: )){_HEX}[0-9a-f-]{{3,}}{_AFTER}",
)
_ADDRESSES = (
    r"(?<![\w+.-])[a-z][a-z0-9+.-]*://[^\s\"'`<>|]+",
    r"(?<![\w.+-])[\w.+-]+@(?=[a-z])[\w-]+(?:\.[\w-]+)*",
    rf"(?<![0-9A-Za-z:-])(?:{_HEX}{{2}}[:-]){{5,19}}{_HEX}{{2}}(?![0-9A-Za-z:-])",
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)",
    rf"(?<![\w:.])(?:{_HEX}{{1,4}}:){{4,7}}{_HEX}{{1,4}}(?![\w:])",
    rf"(?<![\w:.])(?:{_HEX}{{1,4}}:){{1,7}}:(?:{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}})?(?![\w:])",
    r"(?:(?<=user=)|(?<=username=)|(?<=domain=)|(?<=hostname=))[^\s,;\"']+",
)
_PATHS = (
    rf"(?<![\w./~-])(?:~[\w.-]*)?/[^{_NO_PATH}]+",
    rf"(?<![\w./~-])\.\.?/[^{_NO_PATH}]+",
    rf"{_BEFORE}[a-z]:\\[^{_NO_PATH}]*",
    rf"(?<![\w\\])\\\\[\w.$-]+\\[^{_NO_PATH}]*",
)

NUMBERS = f"(?P<serial>(?i:{'|'.join(_SERIALS)}))|(?P<address>(?i:{'|'.join(_ADDRESSES)}))"
"""Ids of drives, partitions and devices; addresses, with their user names."""

PATHS = f"(?P<path>(?i:{'|'.join(_PATHS)}))"
"""Paths from a root, a home, a drive letter, or the start folder of a run."""

MASK = re.compile(r"(?:host|domain|serial|path|address)-\d+")
"""The format of masks."""

RELATIVE = (
    rf"(?<![\w./~\\@-])(?!{MASK.pattern})(?!\w{{1,5}}/\w{{1,2}}(?![\w/]))"
    r"[\w.@%+-]+(?:/[\w.@%+-]+)+/?"
)
"""A path without a root, such as ``mine/runs``: only in settings, because prose has such words.

Units (``MB/s``) and masks do not match.
"""

_HOST_KEYS = frozenset({"host"})
_SERIAL_KEYS = frozenset({"serial", "controllers", "module", "meter"})
_OVERWRITE = "overwrite"
"""The setting with what may be lost on a drive: signatures and their identifiers, ``gpt:UUID``."""
_PATH_KEYS = frozenset({"path", "mount_point", "folder", "runs"})
_SETTINGS = frozenset({"config", "command", "facts", "parameters"})
"""Fields of settings and workload facts: the keys in them are not part of the format."""

_PRIVATE = frozenset({
    "uuid", "partuuid", "wwid", "wwn", "eui", "eui64", "nguid", "nqn", "subnqn", "hostnqn", "mac",
    "ip", "address", "hostname", "domain", "url", "user", "username", "email", "password", "token",
    "community",
})  # fmt: skip
"""Settings whose values are always masked completely."""

_METER_HOST = re.compile(r"(?:https?://|TCPIP\d*::)?+(?!ASRL)([^\s:/]*[A-Za-z][^\s:/]*)")
"""The host in the address of a meter: a URL, an outlet of a PDU, a VISA resource."""
_SSH_HOST = re.compile(r"\bssh (?:-[BbcDEeFIiJLlmOoPpRSWw] \S+ |-\S+ )*(\S+)")
"""The host in a meter's command, after the options of ``ssh(1)``, some of which have values."""
_HOST_WORD = re.compile(r"(?<!\S)(?=\S*[A-Za-z])[^\s-][^\s.@-]*[.@-]\S*")
"""Other words of a command that may name a host: with a dot, a hyphen or a user."""

_LIBRARIES = "libraries"
_VERSIONS = frozenset({"wattload", "python", "kernel", "firmware", "nvme_version"})
"""Fields of versions, like those of libraries: 4.10.0.84 is not an address there."""

_VERSION = re.compile(r"[\w.+~-]+")

_ORDINARY = frozenset({"", "/", ".", "runs"})
"""Paths without information; ``runs`` is the default name of the folder of runs."""

_PUBLIC_ROOTS = ("/sys/", "/proc/", "/dev/")
_BY_NAME = re.compile(r"(?<=/by-)(uuid|partuuid|label|partlabel)/([^/\s]+)")
_SETTING = re.compile(r"([\w.+~@/-]*\b(?:path|runs|folder|file)=)(.*)", re.DOTALL)
_REMOTE = re.compile(r"([^/\s:]{2,}):/")
"""A file system of another host, such as ``nas:/export``."""

_VOCABULARY = frozenset(
    {"verdict", "kind", "category", "status", "unit", "better", "evidence", "scope", "initiator"}
)
"""Fields with a fixed vocabulary; a host may have the same name as one of these words."""


class Masker:
    """Replaces everything that identifies a machine by ``host-1`` and so on, over all records.

    Paths under ``/sys``, ``/proc`` and ``/dev`` are the same on any Linux and stay; serials in them
    are masked. Masks are numbered in order of appearance.
    """

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._masks: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._hosts: set[str] = set()
        self._domains: set[str] = set()
        self._folders: set[str] = set()
        for record in records:
            self._register(record)
        names = self._names()
        self._known = _compiled(names)
        self._numbers = _compiled([*names, NUMBERS])
        self._anywhere = _compiled([*names, NUMBERS, PATHS])
        self._settings = _compiled([*names, NUMBERS, PATHS, f"(?P<relative>{RELATIVE})"])

    def text(self, text: str) -> str:
        """Return a text with known names and identifier patterns masked."""
        return self._anywhere.sub(self._replacement, text)

    def record(self, record: RunRecord) -> RunRecord:
        """Return the record with every string masked, including keys of free mappings.

        It has no seal, because the original seal could be used to test guesses.
        """
        document = self._document(record.model_dump(mode="json"), "", "", _field_names())
        document["seal"] = None
        return RunRecord.model_validate(document)

    def _register(self, record: RunRecord) -> None:
        for host in record.hosts:
            self._register_host(host.facts.name)
        block_devices = {name for target in record.targets for name in target.facts.devices}
        # The meter of a load is a kind of counter, not a device.
        for kind, value in _named(record.model_dump(mode="json", exclude={"loads"})):
            if kind == "host":
                self._register_host(value)
            elif kind == "folder":
                self._folders.add(value)
            else:
                self._mask(kind, value)
        for source in record.power.sources:
            if source.device not in block_devices:
                self._mask("serial", source.device)

        for meter in (record.config.get("power") or {}).values():
            if isinstance(meter, Mapping):
                self._register_meter(meter)

    def _register_meter(self, settings: Mapping[str, Any]) -> None:
        """Register where an external meter is, also as errors name it: by its host alone."""
        addresses = [settings.get("url"), *settings.get("outlets", ()), settings.get("resource")]
        for address in filter(None, addresses):
            if found := _METER_HOST.match(address):
                self._register_host(found[1])
            self._mask("address", address)
        command = settings.get("run", "")
        for word in (*_SSH_HOST.findall(command), *_HOST_WORD.findall(command), command):
            self._mask("address", word)
        if settings.get("scope", "drive") != "drive":  # a drive's may be its kernel name
            self._mask("serial", settings["device"])

    def _register_host(self, name: str) -> None:
        """Register a host, its short name, and its domain, which other hosts may share."""
        mask = self._mask("host", name)
        short, _, domain = name.partition(".")
        if any(letter.isalpha() for letter in short):
            self._masks.setdefault(short, mask)  # box.example.org is also called box
        self._hosts |= {each for each in (name, short) if each in self._masks}
        if "." in domain:
            self._mask("domain", domain)
            self._domains.add(domain)

    def _mask(self, kind: str, value: str) -> str:
        if value not in self._masks and value not in ("", "/"):
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._masks[value] = f"{kind}-{self._counts[kind]}"
        return self._masks.get(value, value)

    def _names(self) -> list[str]:
        """Return patterns of the known names, the longest first."""
        known = sorted(self._masks, key=lambda value: (-len(value), value))
        parts = "|".join(self._name_pattern(value) for value in known)
        words = "|".join(re.escape(word) for word in sorted(self._folders))
        found = [rf"(?P<known>(?<![0-9A-Za-z])(?:{parts})(?![0-9A-Za-z]))"] if parts else []
        return [*found, *([rf"(?P<folder>(?<![0-9A-Za-z])(?:{words})(?=[/\\]))"] if words else [])]

    def _name_pattern(self, value: str) -> str:
        """Return the pattern of a name: a host in any domain, any host in a domain."""
        if value in self._domains:
            return rf"(?:[\w-]+\.)*{re.escape(value)}"
        own = re.escape(value)
        return rf"{own}(?:\.[A-Za-z][\w-]*)*" if value in self._hosts else own

    def _replacement(self, found: re.Match[str]) -> str:
        text, kind = found.group(), found.lastgroup or ""
        if text in self._masks:
            return self._masks[text]
        if kind == "known":
            return self._other_name(text)
        if kind in ("serial", "address"):
            return self._mask(kind, text)
        if text.startswith(_PUBLIC_ROOTS):
            return self._public(text)
        stem = text.rstrip(".")  # a path may end a sentence
        return self._mask("path", stem) + text[len(stem) :]

    def _other_name(self, text: str) -> str:
        """Return the mask of a host under another name, such as ``box.lan``."""
        own = max(
            (each for each in self._hosts if text.startswith(f"{each}.")), key=len, default=""
        )
        return self._masks[own] if own else self._mask("host", text)

    def _public(self, path: str) -> str:
        def by_name(found: re.Match[str]) -> str:
            name = found[2] if MASK.fullmatch(found[2]) else self._mask("serial", found[2])
            return f"{found[1]}/{name}"

        return self._numbers.sub(self._replacement, _BY_NAME.sub(by_name, path))

    def _document(self, value: Any, key: str, inside: str, fields: frozenset[str]) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, str):
            return self._field(value, key, inside)
        if isinstance(value, Mapping):
            return {
                (name if name in fields else self.text(name)): self._document(
                    part, name, inside or _inside(name), fields
                )
                for name, part in value.items()
            }
        if isinstance(value, list):
            return [self._document(part, key, inside, fields) for part in value]
        return value

    def _field(self, value: str, key: str, inside: str) -> str:
        """Return the text of one field; ``inside`` is the settings field that contains it."""
        if not inside and (key in _VOCABULARY or (key == "source" and "/" not in value)):
            return value
        if MASK.fullmatch(value):
            return self._masks.get(value, value)
        of_version = inside == _LIBRARIES or (key in _VERSIONS and not inside)
        if of_version and _VERSION.fullmatch(value):
            return self._known.sub(self._replacement, value)
        if key in _PATH_KEYS:
            return self._place(value)
        if inside and key.lower() in _PRIVATE:
            return self._mask("serial", value)
        return self._setting(value) if inside else self.text(value)

    def _setting(self, text: str) -> str:
        found = _SETTING.fullmatch(text)
        if found is None:
            return self._settings.sub(self._replacement, text)
        return found[1] + self._place(found[2])

    def _place(self, value: str) -> str:
        """Return a path, or several, masked, including one without a root."""
        if value in self._masks:
            return self._masks[value]
        return ",".join(
            self._mask("path", part)
            if _is_rootless(part)
            else self._settings.sub(self._replacement, part)
            for part in value.split(",")
        )


def _compiled(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns) or "(?!)")


def _inside(name: str) -> str:
    return name if name in _SETTINGS or name == _LIBRARIES else ""


def _is_rootless(place: str) -> bool:
    """Return whether a path begins with a name that may identify somebody."""
    return place not in _ORDINARY and place[0] not in "/~.\\[" and not MASK.match(place)


def _named(document: Any, key: str = "", inside: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield (kind of mask, value) for every field with a host, a serial or a path."""
    if isinstance(document, Mapping):
        for name, part in document.items():
            if name != "missing":  # its values are reasons, whatever its keys are
                yield from _named(part, name, inside or _inside(name))
    elif isinstance(document, list):
        for part in document:
            yield from _named(part, key, inside)
    elif isinstance(document, str):
        yield from _named_in(document, key, inside)


def _named_in(text: str, key: str, inside: str) -> Iterator[tuple[str, str]]:
    setting = _SETTING.fullmatch(text) if inside else None
    if key in _HOST_KEYS:
        yield "host", text
    elif key in _SERIAL_KEYS:
        yield "serial", text
    elif key == _OVERWRITE and ":" in text:
        yield "serial", text.partition(":")[2]
    elif key == "source" and (remote := _REMOTE.match(text)):
        yield "host", remote[1]
    elif key in _PATH_KEYS:
        yield from _places(text)
    elif setting is not None:
        for part in setting[2].split(","):
            yield from _places(part)


def _places(text: str) -> Iterator[tuple[str, str]]:
    """Yield a path as it may occur elsewhere; a single word only as a folder, before a slash."""
    if "/" in text and "wattload-data" not in text:
        yield "path", text
    elif "/" not in text and _is_rootless(text):
        yield "folder", text


def _field_names() -> frozenset[str]:
    """Return the names of all fields of the record format: these keys are never masked."""
    schema = RunRecord.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    return frozenset(name for part in parts for name in part.get("properties", {}))
