"""``wattload settings``: every setting with its meaning, unit, range and default."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from wattload.core.errors import ConfigError
from wattload.run.compose import options
from wattload.run.settings import SettingRow, general_settings, option_settings, options_of

NAMED_GROUPS = ("workload", "loader", "power", "load")
"""Groups whose options have settings of their own."""
ALIKE = 0.8
"""How alike a misspelt name and the one that is suggested must be: all names are listed anyway."""
LISTED_GROUPS = (
    "workload",
    "loader",
    "load",
    "power",
    "power/profile",
    "accelerator",
    "scale",
    "sweep",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a workload, loader or power source: show its settings; without a name, the options "
        "and the general settings",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the settings and return 0.

    Raises:
        ConfigError: a name is not a workload, a loader or a power source.
    """
    tables = _tables(arguments.names)
    if arguments.json:
        rows = [asdict(row) for _, table in tables for row in table]
        sys.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return 0
    if not arguments.names:
        for group in LISTED_GROUPS:
            print("\n".join((f"{group}=", *option_lines(group))), end="\n\n")
    print("\n\n".join("\n".join((title, *_lines(table))) for title, table in tables))
    if not arguments.names:
        print(
            "\nsettings of one workload, loader or power source: wattload settings NAME, e.g. "
            "wattload settings unet3d"
        )
    return 0


def option_lines(group: str) -> Iterator[str]:
    """Yield the options of a group for a terminal: each name with what it is.

    Of an option that ``wattload settings NAME`` describes, only the first sentence.
    """
    listed = options_of(group)
    width = max(len(option.name) for option in listed)
    for option in listed:
        summary = option.summary
        if group in NAMED_GROUPS:
            summary = re.split(r"(?<=\.) (?=[A-Z])", summary)[0]
        yield from _wrapped(f"{option.name:<{width}}  {summary}", "  ", width + 4)


def require_workload(overrides: Sequence[str], command: str) -> None:
    """Raise ``ConfigError``, with a list of the workloads, unless an override names one."""
    if any(text.partition("=")[0].strip() == "workload" for text in overrides):
        return
    name = next((option for option in options("workload") if option in overrides), None)
    if name is not None:
        raise ConfigError(f"no workload given; did you mean workload={name} instead of {name}?")
    listed = "\n".join(option_lines("workload"))
    raise ConfigError(
        f"no workload given; add workload=NAME, with one of\n{listed}\n"
        f"e.g. wattload {command} workload=unet3d target.path=/mnt/ssd scale=demo"
    )


def _wrapped(text: str, indent: str, hanging: int) -> Iterator[str]:
    columns = max(shutil.get_terminal_size().columns, 40)
    yield from textwrap.wrap(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _tables(names: Sequence[str]) -> list[tuple[str, list[SettingRow]]]:
    if not names:
        return [("settings of every run", list(general_settings()))]
    groups = {name: _group_of(name) for name in names}
    return [
        (
            "\n".join(_wrapped(f"{group}={name}: {_summary(group, name)}", "", 2)),
            list(option_settings(group, name)),
        )
        for name, group in groups.items()
    ]


def _summary(group: str, name: str) -> str:
    return next(option.summary for option in options_of(group) if option.name == name)


def _group_of(name: str) -> str:
    known = {group: [option.name for option in options_of(group)] for group in NAMED_GROUPS}
    for group, listed in known.items():
        if name in listed:
            return group
    every = [each for listed in known.values() for each in listed]
    meant = "".join(
        f"; did you mean {n}?" for n in difflib.get_close_matches(name, every, 1, ALIKE)
    )
    options_text = "; ".join(f"{group}={', '.join(names)}" for group, names in known.items())
    raise ConfigError(f"unknown name {name!r}{meant}; names are {options_text}")


def _lines(table: Sequence[SettingRow]) -> Iterator[str]:
    if not table:
        yield "  no settings"
    for row in table:
        yield f"  {row.name}={row.default}"
        for text in (row.meaning, row.allowed):
            yield from _wrapped(text, " " * 6, 6)
