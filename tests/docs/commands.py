"""The commands that the pages for users show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
BLOCK = re.compile(r"^```(?:console|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> Iterator[str]:
    """Yield the commands in the page's shell blocks, one line each."""
    for block in BLOCK.findall(page.read_text()):
        yield from block.replace("\\\n", " ").strip().splitlines()
