"""Tab reaches everything that can be used, in the order of the document, and shows where it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Opener

Samples = Callable[[str], Path]

FOCUSED = """() => {
  const at = document.activeElement;
  const style = getComputedStyle(at);
  const box = at.getBoundingClientRect();
  window.order ??= new Map([...document.querySelectorAll('*')].map((each, place) => [each, place]));
  return {
    place: window.order.get(at), tag: at.tagName, name: at.className,
    outline: style.outlineStyle + ' ' + style.outlineWidth, width: box.width,
    left: box.left, top: box.top,
  };
}"""
USABLE = """() => [...document.querySelectorAll('a[href], summary, [tabindex="0"]')]
  .filter(each => each.checkVisibility({visibilityProperty: true})
    && getComputedStyle(each).pointerEvents !== 'none').length"""


def _tabbed(opener: Opener, file: Path, width: int) -> tuple[list[dict[str, Any]], int]:
    """Return what Tab reaches, one by one, and how many things on the page can be used."""
    with opener(file, width=width) as opened:
        usable = opened.page.evaluate(USABLE)
        stops = []
        for _ in range(usable + 20):
            opened.page.keyboard.press("Tab")
            stop = opened.page.evaluate(FOCUSED)
            if stop["tag"] == "BODY":
                break
            stops.append(stop)
        return stops, usable


@pytest.fixture(scope="module", params=["arms", "index", "singles"])
def stops(
    request: pytest.FixtureRequest, opener: Opener, samples: Samples
) -> tuple[list[dict[str, Any]], int]:
    return _tabbed(opener, samples(request.param), 1360)


def test_tab_goes_through_the_page_in_the_order_of_the_document(
    stops: tuple[list[dict[str, Any]], int],
) -> None:
    reached, usable = stops
    places = [stop["place"] for stop in reached]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert usable <= len(places) <= usable + 1  # a summary without pointer still takes the focus


def test_the_first_stop_skips_to_the_summary(stops: tuple[list[dict[str, Any]], int]) -> None:
    first = stops[0][0]
    assert first["name"] == "skip"
    assert first["left"] >= 0
    assert first["top"] >= 0


def test_each_stop_can_be_seen(stops: tuple[list[dict[str, Any]], int]) -> None:
    for stop in stops[0]:
        assert stop["outline"].startswith("solid"), stop
        assert stop["width"] > 0, stop


def test_links_folds_and_buttons_are_stops(opener: Opener, samples: Samples) -> None:
    stops, _ = _tabbed(opener, samples("singles"), 390)
    assert {"A", "SUMMARY"} <= {stop["tag"] for stop in stops}
    with opener(samples("singles"), scripts=True) as opened:
        opened.page.locator("#first-unit").get_by_role("button", name="CSV").focus()
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_enter_on_the_skip_link_goes_past_the_contents(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        opened.page.keyboard.press("Tab")
        opened.page.locator(".skip:focus").wait_for(state="attached")
        opened.page.keyboard.press("Enter")
        opened.page.locator(".skip:not(:focus)").wait_for(state="attached")  # in the next frame
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.closest('main') !== null")


def test_enter_opens_a_folded_run(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        opened.page.locator("#runs summary").first.click()
        run = opened.page.locator("details.run").first
        run.locator("summary").first.focus()
        opened.page.keyboard.press("Enter")
        assert run.get_attribute("open") is not None


def test_the_arrows_move_the_read_off_of_a_chart(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms"), width=1280, scripts=True) as opened:
        chart = opened.page.locator("#first-power svg.time")
        chart.focus()
        opened.page.keyboard.press("ArrowRight")
        first = chart.get_attribute("aria-valuetext")
        assert first is not None
        assert opened.page.locator(".tip").inner_text() == first
        assert re.fullmatch(r"[\d.]+ s: (A [\d.]+ W, )?B [\d.]+ W", first), first
        opened.page.keyboard.press("Shift+ArrowLeft")
        assert chart.get_attribute("aria-valuetext") != first
        opened.page.keyboard.press("Tab")
        assert not opened.page.locator(".tip").is_visible()


def test_plus_minus_and_zero_zoom_a_chart(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms"), width=1280, scripts=True) as opened:
        chart = opened.page.locator("#first-power svg.time")
        ticks = chart.locator(".xt").all_text_contents()
        value = chart.get_attribute("aria-valuetext")
        chart.focus()
        opened.page.keyboard.press("+")
        opened.page.keyboard.press("+")
        assert chart.locator(".xt").all_text_contents() != ticks
        assert chart.get_attribute("aria-valuetext") == value  # the cursor keeps its time
        opened.page.keyboard.press("-")
        opened.page.keyboard.press("0")
        assert chart.locator(".xt").all_text_contents() == ticks
