"""The index in a browser: it sorts and filters by keyboard, and needs no script to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Opener
from tests.records import Scenario, write_run
from wattload.reports.index.page import render_index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the index of three runs whose rates differ."""
    folder = tmp_path_factory.mktemp("index")
    for name, rate in (("b", 2e9), ("a", 1e9), ("c", 0.5e9)):
        write_run(folder / "runs", Scenario(run_id=f"run-{name}", rate_bytes_per_s=rate, seconds=1))
    file = folder / "index.html"
    file.write_text(render_index(folder / "runs", output=file))
    return file


def names(opened: object) -> list[str]:
    """Return the runs that show, from top to bottom."""
    rows = opened.page.locator("#runs tbody tr:visible th")  # type: ignore[attr-defined]
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
        assert opened.page.locator('[aria-sort="none"]').count() == 10
        assert opened.complaints == []


def test_words_narrow_the_rows_and_the_count_is_told(opener: Opener, index: Path) -> None:
    with opener(index, scripts=True) as opened:
        opened.page.get_by_role("searchbox").fill("UNET3D run-a")
        assert names(opened) == ["run-a"]
        assert opened.page.get_by_role("status").inner_text() == "1 of 3 shown"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opener: Opener, index: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with opener(index, scheme=scheme, scripts=True) as opened:
        found = axe.run(opened.page).response["violations"]
        assert [violation["id"] for violation in found] == []
