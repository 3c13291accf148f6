"""The commands that the pages for users show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
FENCED = re.compile(r"^```(console|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(?:console|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> Iterator[str]:
    """Yield the commands in the page's shell blocks, one line each."""
    for block in BLOCK.findall(page.read_text()):
        yield from block.replace("\\\n", " ").strip().splitlines()


@dataclass(frozen=True)
class Shown:
    """Commands of one block, and the lines that the page shows after them as their output."""

    commands: tuple[str, ...]
    output: tuple[str, ...]


def shown_on(page: Path) -> Iterator[Shown]:
    """Yield the blocks of commands of a page, each with the output blocks that follow it.

    A line of an output that is ``...`` stands for lines that are left out.
    """
    found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for kind, block in FENCED.findall(page.read_text("utf-8")):
        lines = tuple(block.replace("\\\n", " ").strip("\n").splitlines())
        if kind == "console":
            found.append((lines, ()))
        elif found:
            commands, output = found[-1]
            found[-1] = (commands, output + tuple(line for line in lines if line.strip() != "..."))
    yield from (Shown(*each) for each in found)
