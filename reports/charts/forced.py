"""What a chart says of a comparison that was forced: past what, in its title and its caption."""

from __future__ import annotations

from collections.abc import Iterable

from wattload.reports.compare import Row


def forced_past(rows: Iterable[Row]) -> str:
    """Return what rows were forced past, as a clause; empty where nothing bars them."""
    said = dict.fromkeys(entry.forced for entry in rows if entry.forced)
    return f"forced past: {'; '.join(said)}" if said else ""


def titled(title: str, past: str) -> str:
    """Return a chart's title with what ``forced_past`` says of it."""
    return f"{title} ({past})" if past else title


def captioned(caption: str, past: str) -> str:
    """Return a chart's caption with what ``forced_past`` says of it."""
    return f"{caption} This comparison was {past}." if past else caption
