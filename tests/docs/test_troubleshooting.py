"""docs/troubleshooting.md has messages that wattload prints, and no others."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs.commands import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
SOURCES = ("wattload", "workloads", "loaders", "power", "reports")
MESSAGES = {
    message
    for line in PAGE.read_text("utf-8").splitlines()
    if line.startswith("| ")
    for message in re.findall(r"`([^`]+)`", line.split(" | ")[0])
}


@pytest.mark.parametrize("message", sorted(MESSAGES))
def test_every_message_is_printed_by_the_code(message: str) -> None:
    """Its parts, between what differs, are parts of a text in the code, in this order."""
    parts = (re.escape(part.strip()) for part in message.split("...") if part)
    assert re.search('[^"]*'.join(parts), _texts())


@cache
def _texts() -> str:
    """Return the code, with each text on one line and without what is put into it."""
    code = "\n".join(
        path.read_text("utf-8") for root in SOURCES for path in (ROOT / root).rglob("*.py")
    )
    return re.sub(r"\{[^{}]*\}", "", re.sub(r'"\s*\n\s*f?"', "", code))
