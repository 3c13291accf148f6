"""The numbers in a page's text, and whether its data has them at the printed precision."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from tests.reports.parsing import VOID, Page

_UNREAD = frozenset({"script", "style", "svg", "pre", "title", "footer", "nav"})
"""No text of the page's own figures: data, drawings with their scales, text to copy, contents."""

_NO_FIGURE = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d"  # days and times
    r"|\b(?=[0-9]*[a-f])[0-9a-f]{12,64}\b"  # digests
    r"|\b0x[0-9a-f]+\b|\b\d+(?:\.\d+){2,}\S*"  # ids of vendors, versions
    r"|(?!\d+(?:\.\d+)?e[+-]?\d)[\w./-]*[A-Za-z_][\w./-]*",  # words, PS0 and p99.9 among them
)
_NUMBER = re.compile(r"\d{1,3}(?:\u202f\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_FACTORS = (
    *(1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9, 1e12),
    *(0.01, 3600.0, 3.6e6),
)
"""From a value as it is printed to one in SI base units."""

ABSOLUTE_ZERO_C = -273


@dataclass
class _Reader(HTMLParser):
    texts: list[tuple[str, str]] = field(default_factory=list)
    _open: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self._open.append((tag, dict(attrs).get("id") or ""))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip() and not _UNREAD & {tag for tag, _ in self._open}:
            place = next((name for _, name in reversed(self._open) if name), "")
            self.texts.append((place, data))


def shown_texts(source: str) -> list[tuple[str, str]]:
    """Return every text of a page with the id of the place where it stands."""
    reader = _Reader()
    reader.feed(source)
    reader.close()
    return reader.texts


def numbers_of(text: str) -> list[str]:
    """Return the numbers of a text as they are printed; those in names and dates are none."""
    return _NUMBER.findall(_NO_FIGURE.sub(" ", text))


class Known:
    """All numbers of JSON, those in its texts as they stand there."""

    def __init__(self, *documents: Any) -> None:
        self._values: list[float] = []
        self._printed: set[str] = set()
        for document in documents:
            for leaf in _leaves(document):
                if isinstance(leaf, str):
                    self._printed.update(numbers_of(leaf))
                else:
                    self._values += [abs(leaf), abs(leaf + ABSOLUTE_ZERO_C)]
        self._values.sort()

    def has(self, printed: str) -> bool:
        """Return whether a value, in some unit, rounds to what is printed."""
        if printed in self._printed:
            return True
        digits, _, exponent = printed.replace("\u202f", "").partition("e")
        scale = 10.0 ** int(exponent or 0)
        value = float(digits) * scale
        half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) * scale * (1 + 1e-6)
        return any(self._between((value - half) * f, (value + half) * f) for f in _FACTORS)

    def _between(self, low: float, high: float) -> bool:
        index = bisect_left(self._values, low)
        return index < len(self._values) and self._values[index] <= high


def _leaves(document: Any) -> Iterator[float | str]:
    if isinstance(document, Mapping):
        for name, part in document.items():
            yield str(name)
            yield from _leaves(part)
    elif isinstance(document, list | tuple):
        for part in document:
            yield from _leaves(part)
    elif isinstance(document, str):
        yield document
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield float(document)


def missing_numbers(
    page: Page, known: Known, exempt_texts: Collection[str] = (), exempt_places: str = "(?!)"
) -> list[tuple[str, str, str]]:
    """Return the numbers that are known nowhere: place, number, text.

    Args:
        page: the page.
        known: what its data holds.
        exempt_texts: texts that tell no figure of these runs.
        exempt_places: a pattern of places that have figures of another origin.
    """
    found = []
    for place, text in shown_texts(page.source):
        if text.strip() in exempt_texts or re.fullmatch(exempt_places, place):
            continue
        found += [
            (place, number, text.strip()) for number in numbers_of(text) if not known.has(number)
        ]
    return found


def is_count(number: str) -> bool:
    """Return whether a number may count what stands on the page."""
    return number.isdecimal() and int(number) < 1000 and math.isfinite(float(number))
