"""The index in a browser: it sorts and filters by keyboard, and needs no script to be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Opener
from tests.records import Scenario, write_run
from wattload.reports.render.index import render_index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the index of three runs whose rates differ."""
    folder = tmp_path_factory.mktemp("index")
    for name, rate in (("b", 2e9), ("a", 1e9), ("c", 0.5e9)):
        scenario = Scenario(run_id=f"run-{name}", rate_bytes_per_s=rate, seconds=1)
        write_run(folder / "runs", scenario)
    file = folder / "index.html"
    file.write_text(render_index(folder / "runs", output=file))
    return file


def names(opened: Any) -> list[str]:
    """Return the runs that show, from top to bottom."""
    rows = opened.page.locator("#runs tbody tr:visible th")
    return [str(text) for text in rows.all_inner_texts()]


def test_without_a_script_the_table_is_complete(opener: Opener, index: Path) -> None:
    with opener(index) as opened:
        assert names(opened) == ["run-c", "run-b", "run-a"]
        assert not opened.page.locator("#controls").is_visible()
        assert opened.complaints == []
        assert opened.requests == [index.as_uri()]


def test_a_column_is_sorted_from_the_keyboard_both_ways(opener: Opener, index: Path) -> None:
    with opener(index, scripts=True) as opened:
        head = opened.page.get_by_role("columnheader", name="Headline figures")
        head.get_by_role("button").focus()
        opened.page.keyboard.press("Enter")
        assert names(opened) == ["run-c", "run-a", "run-b"]
        assert head.get_attribute("aria-sort") == "ascending"
        opened.page.keyboard.press("Enter")
        assert names(opened) == ["run-b", "run-a", "run-c"]
        assert head.get_attribute("aria-sort") == "descending"
        assert opened.page.locator('[aria-sort="none"]').count() == 11
        assert opened.complaints == []


def test_words_narrow_the_rows_and_the_count_is_told(opener: Opener, index: Path) -> None:
    with opener(index, scripts=True) as opened:
        opened.page.get_by_role("searchbox").fill("UNET3D run-a")
        assert names(opened) == ["run-a"]
        assert opened.page.get_by_role("status").inner_text() == "1 of 3 shown"


def test_words_are_looked_for_in_every_column_and_in_any_order(opener: Opener, index: Path) -> None:
    with opener(index, scripts=True) as opened:
        box = opened.page.get_by_role("searchbox", name="Filter by words")
        for words, found in (
            ("quick run-b unet3d", ["run-b"]),
            ("run-a run-b", []),
            ("QUICK", ["run-c", "run-b", "run-a"]),
        ):
            box.fill(words)
            assert names(opened) == found
            assert opened.page.locator("#none").is_visible() == (not found)


def test_no_word_spans_two_cells(opener: Opener, index: Path) -> None:
    with opener(index, scripts=True) as opened:
        opened.page.get_by_role("searchbox").fill("unet3da")  # workload unet3d, label A
        assert names(opened) == []


def test_sorting_keeps_the_filter_and_the_filter_keeps_the_order(
    opener: Opener, index: Path
) -> None:
    with opener(index, scripts=True) as opened:
        head = opened.page.get_by_role("columnheader", name="Run", exact=True)
        head.get_by_role("button").click()
        opened.page.get_by_role("searchbox").fill("run")
        assert names(opened) == ["run-a", "run-b", "run-c"]
        assert head.get_attribute("aria-sort") == "ascending"
        opened.page.get_by_role("searchbox").fill("quick")
        head.get_by_role("button").click()
        assert names(opened) == ["run-c", "run-b", "run-a"]
        assert opened.page.get_by_role("status").inner_text() == "3 of 3 shown"


def test_every_column_sorts_and_says_so(opener: Opener, index: Path) -> None:
    with opener(index, scripts=True) as opened:
        heads = opened.page.locator("#runs thead th")
        for place in range(heads.count()):
            button = heads.nth(place).get_by_role("button")
            button.click()
            assert heads.nth(place).get_attribute("aria-sort") == "ascending"
            assert opened.page.locator('[aria-sort="ascending"]').count() == 1
            assert opened.page.evaluate("document.activeElement.tagName") == "BUTTON"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opener: Opener, index: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with opener(index, scheme=scheme, scripts=True) as opened:
        found = axe.run(opened.page).response["violations"]
        assert [violation["id"] for violation in found] == []
