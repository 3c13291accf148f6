"""The index of a folder of runs sorts and filters with its script, and is whole without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.browser.conftest import Opener

Samples = Callable[[str], Path]

ROWS = "#runs tbody tr"


def test_without_script_every_run_is_there_and_no_control_is(
    opener: Opener, samples: Samples
) -> None:
    with opener(samples("index")) as opened:
        assert opened.page.locator(ROWS).count() == 10
        assert not opened.page.locator("#filter").is_visible()
        assert opened.page.locator("thead button").count() == 0


def test_the_filter_leaves_the_rows_that_hold_its_words(opener: Opener, samples: Samples) -> None:
    with opener(samples("index"), scripts=True) as opened:
        opened.page.fill("#filter", "run-A-3")
        shown = opened.page.locator(f"{ROWS}:visible")
        assert shown.count() == 1
        assert "run-A-3" in shown.inner_text()
        opened.page.fill("#filter", "")
        assert shown.count() == 10
        assert opened.complaints == []


def test_a_column_is_sorted_by_its_button_both_ways(opener: Opener, samples: Samples) -> None:
    with opener(samples("index"), scripts=True) as opened:
        names = opened.page.locator(f"{ROWS} th")
        button = opened.page.locator("thead button").first
        button.focus()
        opened.page.keyboard.press("Enter")
        one_way = names.all_inner_texts()
        assert opened.page.locator('thead [aria-sort="ascending"]').count() == 1
        opened.page.keyboard.press("Enter")
        assert opened.page.locator('thead [aria-sort="descending"]').count() == 1
        assert names.all_inner_texts() == one_way[::-1]
        assert one_way == sorted(one_way)
