"""Published results in a browser: the table with our runs is open, the others are a click away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.browser.conftest import Opener


def test_tables_without_our_runs_are_folded_and_open_on_a_click(
    opener: Opener, samples: Callable[[str], Path]
) -> None:
    with opener(samples("published"), width=390) as opened:
        section = opened.page.locator("#published")
        tables = section.locator(".part table")
        assert tables.count() == 3
        assert [tables.nth(index).is_visible() for index in range(3)] == [True, False, False]
        assert tables.first.locator("tbody .badge").all_inner_texts() == ["own"]
        section.locator("summary", has_text="resnet50, h100").click()
        assert tables.nth(2).is_visible()
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert opened.complaints == []
