"""Parses a page like a browser: tags, attributes, texts and link targets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Page(HTMLParser):
    """A parsed page. ``texts`` are (tag, text) in order; ``attributes`` are (tag, name, value)."""

    source: str
    tags: list[str] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.source)
        self.close()
        self.unbalanced += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def values(self, name: str) -> list[str]:
        """Return every value of one attribute."""
        return [value for _tag, own, value in self.attributes if own == name]

    def text(self, *, style: bool = False) -> str:
        """Return all text, white space joined, that of the style sheet only if asked; no data."""
        hidden = {"script"} if style else {"script", "style"}
        shown = [text for tag, text in self.texts if tag not in hidden]
        return " ".join(" ".join(shown).split())

    def data(self) -> dict[str, Any]:
        """Return the numbers that the page carries, as JSON."""
        text = next(text for tag, text in self.texts if tag == "script")
        found: dict[str, Any] = json.loads(text)
        return found

    def scripts(self) -> list[tuple[str, str]]:
        """Return the attributes of every script."""
        return [(name, value) for tag, name, value in self.attributes if tag == "script"]

    def block(self, identifier: str) -> str:
        """Return the text of the ``<pre>`` with that id."""
        start = self.source.index(f'id="{identifier}"')
        end = self.source.index("</pre>", start)
        return Page(self.source[self.source.index(">", start) + 1 : end]).raw()

    def raw(self) -> str:
        """Return all text as it stands."""
        return "".join(text for _tag, text in self.texts)
