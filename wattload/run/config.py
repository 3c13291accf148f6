"""The typed configuration of one run: plain dataclasses that Hydra composes, and its overrides.

Users type any text without quotes. Hydra accepts only ASCII outside of quotes, and reads ``true``
or ``1e3`` as a value: text that it would refuse or change is quoted here first.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.home import expanded
from wattload.core.settings import MISSING, check_settings, setting, shown
from wattload.core.storage.targets import Target, TargetKind, resolve_targets
from wattload.core.workload import MAX_ACCELERATORS, Accelerator

TARGET_VARIABLE = "WATTLOAD_TARGET"
SWEEPS = ("none", "accelerators", "knee")
TARGET_KINDS = ("directory", "block")
INTERLEAVES = ("none", "abba", "aa")
MOST_REPEATS = 10_000
LONGEST_LABEL = 200
"""Characters: a label is a heading on a page and the name of a bar."""
LARGEST_INTEGER = 2**63 - 1


@dataclass(slots=True, kw_only=True)
class TargetConfig:
    """Where to read and write.

    ``path`` defaults to the environment variable ``WATTLOAD_TARGET``, which a container image sets
    to its mount point. ``serial`` and ``overwrite`` apply to block devices only,
    ``allow_unmounted`` to directories that are not shared.
    """

    kind: str = setting("directory", "Selected by target=NAME.", choices=TARGET_KINDS)
    path: Any = setting(
        lambda: os.environ.get(TARGET_VARIABLE, MISSING),
        "Directory on the drive under test, or with target=block its device; or a list of them.",
    )
    serial: Any = setting(
        None,
        "Serial number of the drive that may be overwritten, as its label has it, or a list of "
        "them; SERIAL:NSID of a drive with several namespaces.",
        unset="none: no drive is overwritten",
    )
    overwrite: Any = setting(
        list, "Everything found on the drive that may be lost, by the names that the refusal lists."
    )
    shared: bool = setting(
        False,
        "All hosts of a run see one directory, instead of a drive each; with target=block, another "
        "host may be able to write to the drive.",
    )
    allow_unmounted: bool = setting(
        False,
        "In a run over several hosts, directories may be on a host's root file system, as they are "
        "if no drive is mounted.",
    )
    max_write_bytes: int | None = setting(
        None,
        "Most bytes that all runs of one command together may write.",
        least=0,
        unset="one drive capacity, at most 10 TB",
    )

    @property
    def is_block(self) -> bool:
        return self.kind == TargetKind.BLOCK

    def serials(self) -> tuple[str, ...]:
        """Return the serial numbers of the drives that may be overwritten."""
        return _texts("target.serial", self.serial, "target.serial=S1 or target.serial=[S1,S2]")

    def overwritten(self) -> frozenset[str]:
        example = "target.overwrite=[gpt:UUID,unknown]"
        return frozenset(_texts("target.overwrite", self.overwrite, example))

    def resolve(self, *, host: str, try_direct_io: bool = True) -> tuple[Target, ...]:
        return resolve_targets(
            self.paths(), host=host, try_direct_io=try_direct_io, kind=TargetKind(self.kind)
        )

    def check(self) -> None:
        """Raise ``ConfigError`` for a permission that the kind of target does not need."""
        given = {"serial": self.serial, "overwrite": self.overwrite}
        named = [f"target.{name}" for name, value in given.items() if value]
        if not self.is_block and named:
            raise ConfigError(
                f"{named[0]} applies to target=block only; {self.path} is used as a directory"
            )
        if self.allow_unmounted and (self.is_block or self.shared):
            used = "a device is used" if self.is_block else "target.shared=true names a shared one"
            raise ConfigError(
                "target.allow_unmounted applies to a directory on a drive of each host, and here "
                f"{used}; leave it out"
            )

    def paths(self) -> tuple[Path, ...]:
        """Return the target directories, absolute; raises ``ConfigError`` for anything else."""
        given = [self.path] if isinstance(self.path, str) else self.path
        if (
            not isinstance(given, Sequence)
            or not given
            or not all(isinstance(path, str) and path for path in given)
        ):
            raise ConfigError(
                f"target.path must be a directory or a list of directories, got {self.path!r}; "
                "e.g. target.path=/mnt/nvme or target.path=[/mnt/a,/mnt/b], or with target=block "
                "target.path=/dev/nvme1n1"
            )
        for path in given:
            _require_one_line("target.path", path)
        return tuple(expanded(path).absolute() for path in given)


@dataclass(slots=True, kw_only=True)
class ScaleConfig:
    """How much of a workload to run; the counts themselves are in each workload's YAML file.

    ``allows_root`` tells whether the target may be on the root file system.
    """

    name: str = MISSING
    allows_root: bool = True


@dataclass(slots=True, kw_only=True)
class SweepConfig:
    """Which runs one command makes: one (``none``), or a search.

    It is for the most ``accelerators``, counted over all ranks, where ``start=1`` means one per
    rank, or for the ``knee``: the largest load at which a workload keeps within its limit.
    """

    name: str = setting("none", "Selected by sweep=NAME.", choices=SWEEPS)
    start: int = setting(1, "Accelerators of the first run.", least=1, most=MAX_ACCELERATORS)
    maximum: int = setting(16, "Most accelerators tried.", least=1, most=MAX_ACCELERATORS)
    au_threshold: float | None = setting(
        None,
        "Accelerator utilisation to reach, as a fraction (0.9 for 90 %).",
        above=0,
        most=1,
        unset="the workload's published threshold",
    )
    confirmations: int = setting(
        1, "More runs of what a search found, and of the next value.", least=0, most=MOST_REPEATS
    )

    @property
    def searches(self) -> bool:
        return self.name != "none"

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "sweep")
        if self.start > self.maximum:
            raise ConfigError(
                f"sweep.start must be at most sweep.maximum ({self.maximum}), got {self.start}"
            )


@dataclass(slots=True, kw_only=True)
class RunConfig:
    """One run.

    ``workload``, ``loader``, ``power`` and ``load`` are the ``Config`` of the selected option.
    """

    workload: Any = MISSING
    loader: Any = MISSING
    target: TargetConfig = MISSING
    power: Any = MISSING
    load: Any = MISSING
    accelerator: Accelerator = MISSING
    scale: ScaleConfig = MISSING
    sweep: SweepConfig = MISSING
    label: str = setting(MISSING, "Name of this drive or setting in a comparison.")
    seed: int = setting(MISSING, "Seed of everything random but the data.", least=0)
    repeat: int = setting(
        MISSING, "Runs of each setting, or of each arm.", least=1, most=MOST_REPEATS
    )
    runs: str = setting(MISSING, "Folder for the results.")
    ranks: int | None = setting(
        None,
        "Processes of the run; 1 runs this one alone, whatever a launcher's variables say.",
        least=1,
        unset="as many as the launcher started",
    )
    interleave: str = setting(
        MISSING,
        "Order of arms: abba alternates two or more; aa compares one setting with itself.",
        choices=INTERLEAVES,
    )
    interleave_by: Any = setting(
        None,
        "Swept key whose values are the arms, or a list of keys swept in pairs.",
        unset="selected automatically",
    )
    start_wait_max_s: float = setting(
        MISSING,
        "Longest wait before an interleaved run for drives to cool to their temperature at the "
        "first one; 0 disables it.",
        least=0,
        most=1e6,
    )

    @property
    def interleaves(self) -> bool:
        return self.interleave != "none"

    def only_reads(self, target: Target) -> bool:
        """Return whether a target that can't be written holds all that the workload reads."""
        return target.is_read_only and getattr(self.workload, "only_reads", False)

    def check(self) -> None:
        """Raise ``ConfigError`` for values that the types do not exclude."""
        check_label(self.label)
        _check_ranges(self)
        check_settings(self, "")
        check_settings(self.target, "target")
        self.target.paths()
        self.target.check()
        self.target.serials()
        self.target.overwritten()
        if not self.runs.strip():
            raise ConfigError(f"runs must be a folder, got {self.runs!r}; e.g. runs=runs/ab")
        _require_one_line("runs", self.runs)
        self.workload.check(self.scale.name)
        self.loader.check()
        self.power.check(is_client=self.power.service is not None)
        self.power.check_unread()
        self.load.check()
        self.sweep.check()
        check_settings(self.accelerator, "accelerator")
        if not _names_keys(self.interleave_by):
            raise ConfigError(
                "interleave_by must name one swept key, or a list of keys that are swept in "
                f"pairs, got {self.interleave_by!r}; e.g. interleave_by=power.state or "
                "interleave_by=[target.path,power.state]"
            )


def _texts(key: str, value: object, example: str) -> tuple[str, ...]:
    """Return the texts of a setting that takes one or a list of them.

    Raises:
        ConfigError: it has something else; the message does not repeat it.
    """
    given: Any = [] if value is None else [value] if isinstance(value, str | int) else value
    is_list = isinstance(given, Sequence) and all(
        isinstance(each, str | int) and not isinstance(each, bool) for each in given
    )
    if not is_list or not all(str(each).strip() for each in given):
        raise ConfigError(f"{key} must be a text or a list of texts; e.g. {example}")
    return tuple(str(each).strip() for each in given)


def check_label(label: str) -> None:
    if not 1 <= len(label) <= LONGEST_LABEL or label != label.strip():
        raise ConfigError(
            f"label must be 1 to {LONGEST_LABEL} characters, without space at its ends; got "
            f"{shown(label)}"
        )

    _require_one_line("label", label)


def _require_one_line(key: str, text: str) -> None:
    """Refuse line breaks: what is printed in lines would look like other lines."""
    if text.splitlines() != [text]:
        raise ConfigError(f"{key} must be on one line, got {shown(text)}; use another name")


def _check_ranges(config: RunConfig) -> None:
    """Raise ``ConfigError`` for a number that no setting can have."""
    for key, value in _values(config, ""):
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise ConfigError(
                f"{key} must be a 64-bit integer, at most {LARGEST_INTEGER}, got a number of "
                f"{len(str(abs(value)))} digits"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key} must be a finite number, got {value}")


def _values(node: object, key: str) -> Iterator[tuple[str, object]]:
    if is_dataclass(node):
        parts = [(each.name, getattr(node, each.name)) for each in fields(node)]
    elif isinstance(node, Mapping):
        parts = list(node.items())
    elif isinstance(node, list | tuple):
        parts = [(str(index), each) for index, each in enumerate(node)]
    else:
        yield key, node
        return
    for name, part in parts:
        yield from _values(part, f"{key}.{name}" if key else str(name))


def _names_keys(value: object) -> bool:
    """Return whether a value is ``None``, a key, or a non-empty list of keys."""
    if value is None:
        return True
    keys = [value] if isinstance(value, str) else value
    return isinstance(keys, list) and bool(keys) and all(isinstance(k, str) and k for k in keys)


_TEXT_KEYS = frozenset({"label", "runs", "target.serial", "target.overwrite", "loader.engine"})
"""Settings whose value is text, even if it looks like a number, or like no value (null)."""

_SINGLE_TEXTS = frozenset({"label", "runs", "loader.engine"})
"""Those of them that take no list: a bracket is a part of the text."""

_ELEMENT = re.compile(
    r"""\s*'(?:\\.|[^'\\])*'|\s*"(?:\\.|[^"\\])*"|\$\{[^}]*\}|[^,\[\]{}()]+""", re.DOTALL
)
_LISTED = re.compile(
    r"""\s*'(?:\\.|[^'\\])*'|\s*"(?:\\.|[^"\\])*"|\$\{[^}]*\}|[^,\[\]]+""", re.DOTALL
)
"""An element of a list: only commas and brackets end it."""
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_EMPTY_ELEMENT = re.compile(r"[\[,]\s*,|,\s*\]")
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+ -]*")
"""Values that Hydra's grammar accepts as they are."""
_WORD = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_KEYWORDS = frozenset({"true", "false", "null", "nan", "inf", "+inf", "-inf"})


def quote_text(override: str) -> str:
    """Return an override in Hydra's grammar: text outside of it is quoted.

    Raises:
        ConfigError: it is not UTF-8, or a list of which not even the elements can be quoted.
    """
    _refuse_other_encodings(override)
    key, equals, value = override.partition("=")
    if not equals:
        return override
    name = key.strip()
    quoted = _ELEMENT.sub(lambda found: _quoted_element(name, found.group()), value)
    if _PLAIN.fullmatch(quoted) or _is_parsed(f"{key}={quoted}"):
        return f"{key}={quoted}"
    if value.lstrip().startswith("[") and name not in _SINGLE_TEXTS:
        return f"{key}={_quoted_list(name, value)}"
    whole = f"{key}={_quoted(value.strip())}"
    return whole if _is_parsed(whole) else override


def _quoted_list(name: str, value: str) -> str:
    """Return a list, or several in a sweep, with the elements quoted that Hydra would refuse."""

    def quoted(found: re.Match[str]) -> str:
        text = found.group().strip()
        is_kept = not text or text[0] in "'\"$" or _PLAIN.fullmatch(text)
        return found.group() if is_kept else _quoted(text)

    listed = _LISTED.sub(quoted, value)
    if not _is_parsed(f"{name}={listed}"):
        raise ConfigError(
            f"{name} has a list that can't be read, {shown(value)}: {_fault_of_list(name, value)}"
        )
    return listed


def _fault_of_list(name: str, value: str) -> str:
    """Return what is wrong with a list that Hydra refuses, and an example without that fault."""
    bare = _QUOTED.sub("text", value.strip())
    example = f"""{name}='["/a#1","/b[2]"]'"""
    opened, closed = bare.count("["), bare.count("]")
    if opened != closed:
        return f"a {']' if opened > closed else '['} is missing; write it like {example}"
    if _EMPTY_ELEMENT.search(bare):
        return f"an element is empty; remove the comma next to it, as in {example}"
    if not bare.endswith("]"):
        return (
            f"""text follows its last ]; quote a text that begins with [, as in {name}='"[a]b"'"""
        )
    return f"quote elements that contain brackets or quotation marks, as in {example}"


def override_of(key: str, text: str) -> str:
    """Return the override that sets a key to exactly this text."""
    return f"{key}={_quoted_element(key, text) if _WORD.fullmatch(text) else _quoted(text)}"


def plain_text(value: str) -> str:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if value[:1] not in ("'", '"') or not _is_parsed(f"label={value}"):
        return value
    return str(OverridesParser.create().parse_override(f"label={value}").value())


def _refuse_other_encodings(override: str) -> None:
    try:
        override.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{shown(override)} is not valid UTF-8; write settings and paths in UTF-8"
        ) from None


def _quoted_element(key: str, element: str) -> str:
    """Return an element of a value, quoted if Hydra would refuse it or read it as no text."""
    text = element.strip()
    if not text or text[0] in "'\"$":
        return element
    changed = key in _TEXT_KEYS and (
        not _WORD.fullmatch(text) or text.lower() in _KEYWORDS or not text.isprintable()
    )
    if not changed and text.isascii() and text.isprintable() and not set(text) & set("'\""):
        return element
    return _quoted(text)


def _quoted(text: str) -> str:
    from hydra.core.override_parser.types import Quote, QuotedString

    return str(QuotedString(text=text, quote=Quote.single).with_quotes())


def _is_parsed(override: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(override)
    except (HydraException, ValueError, RecursionError):
        return False
    return True
