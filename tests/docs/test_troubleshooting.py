"""docs/troubleshooting.md has messages that wattload prints, and no others."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.docs.commands import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
FINDING = re.compile(r"\A(?:No difference|Too few runs)[^.(]*\([^)]*\)")
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


def test_the_findings_without_a_winner_are_found_as_they_are_printed() -> None:
    """With other numbers. Places such as "at 8 threads" follow the text that the page has."""
    listed = _masked(PAGE.read_text("utf-8"))
    goldens = [path.read_text("utf-8") for path in (ROOT / "tests/reports/goldens").glob("*.txt")]
    found = {_masked(match) for text in goldens for match in FINDING.findall(text)}
    assert found
    for finding in found:
        before, _, shortage = finding.partition("(")
        assert before in listed
        assert f"({shortage}" in listed


def _masked(text: str) -> str:
    """Return a text with other numbers, and with nouns in the plural."""
    return re.sub(r"\b(pair|run)\b", r"\1s", re.sub(r"\d+", "#", text.replace("\u00a0", " ")))


@cache
def _texts() -> str:
    """Return the code, with each text on one line and without what is put into it."""
    code = "\n".join(
        path.read_text("utf-8") for root in SOURCES for path in (ROOT / root).rglob("*.py")
    )
    return re.sub(r"\{[^{}]*\}", "", re.sub(r'"\s*\n\s*f?"', "", code))
