"""Every setting and every run that the pages for users show exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.commands import PAGES, ROOT, commands_of
from wattload.cli import settings
from wattload.cli.settings import general_settings, option_settings
from wattload.core.record.energy import PowerSection
from wattload.run.compose import compose
from wattload.run.config_groups import options
from wattload.session.axes import labelled, read_axes

SETTING = re.compile(
    r"`((?:workload|loader|load|power|target|accelerator|sweep)\.[a-z0-9_]+(?:\.[a-z0-9_]+)*)"
)
FILES = (".py", ".parquet")
RUNS = [
    pytest.param(words, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, command in enumerate(commands_of(page))
    # A variable of the shell has no value here, and a container adds a target of its own.
    if "wattload run" in command and "$" not in command and "docker" not in command
    for words in [shlex.split(command.partition("wattload run")[2], comments=True)]
]


@pytest.mark.parametrize("words", RUNS)
def test_every_run_composes(words: list[str]) -> None:
    """The first and the last run of a sweep: they have the first and the last value of each."""
    overrides = [word for word in words if "=" in word]
    runs = list(labelled(read_axes(overrides, multirun="-m" in words)))
    for each in {runs[0], runs[-1]}:
        compose(each)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_exists(page: Path) -> None:
    """A setting, a group of them or a value in one; or a field of a record's power."""
    named = {name for name in SETTING.findall(page.read_text("utf-8")) if not name.endswith(FILES)}
    fields = {f"power.{name}" for name in PowerSection.model_fields}
    known = _known() | fields
    unknown = {
        name
        for name in named - known
        if not any(each.startswith(f"{name}.") or name.startswith(f"{each}.") for each in known)
    }
    assert unknown == set()


@cache
def _known() -> frozenset[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "_default", lambda *_: "")  # would be composed for each option
        return frozenset(_names())


def _names() -> Iterator[str]:
    yield from (row.name for row in general_settings())
    for group in ("workload", "loader", "load", "power"):
        for option in options(group):
            yield from (row.name for row in option_settings(group, option))
