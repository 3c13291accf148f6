"""A page opens from a file, without JavaScript, asks for nothing, and fits the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Opener, Scheme
from tests.browser.samples import REPORTS
from wattload.reports.charts.themes import light, tint

Samples = Callable[[str], Path]


@pytest.mark.parametrize("scripts", [False, True])
def test_a_page_asks_for_nothing_and_the_browser_has_no_complaint(
    opener: Opener, sample: Path, scripts: bool
) -> None:
    with opener(sample, scripts=scripts) as opened:
        opened.page.wait_for_load_state("networkidle")
        assert opened.requests == [sample.as_uri()]
        assert opened.complaints == []


def test_charts_are_there_without_script(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        charts = opened.page.locator(".chart svg")
        shown = [chart for chart in charts.all() if chart.is_visible()]
        assert len(shown) >= 3
        for chart in shown:
            box = chart.bounding_box()
            assert box is not None
            assert box["width"] > 250
            assert box["height"] > 40


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1360, 1920])
def test_nothing_is_wider_than_the_screen(opener: Opener, sample: Path, width: int) -> None:
    with opener(sample, width=width) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("scheme", "stroke"), [("light", "rgb(11, 122, 117)"), ("dark", "rgb(60, 196, 182)")]
)
def test_charts_follow_the_scheme(
    opener: Opener, samples: Samples, scheme: Scheme, stroke: str
) -> None:
    read = "getComputedStyle(document.querySelector('.chart [stroke=\"#0b7a75\"]')).stroke"
    with opener(samples("singles"), scheme=scheme) as opened:
        assert opened.page.evaluate(read) == stroke


def test_the_second_arm_is_hatched_in_its_colour(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        chart = opened.page.locator("#compare-unet3d-arms .chart")
        assert chart.locator(f'[fill="{light("a")}"]').first.is_visible()
        assert chart.locator(f'[fill="{tint("b").light}"]').first.is_visible()
        assert chart.locator(f'[stroke="{light("b")}"]').first.is_visible()


def test_a_folded_run_opens_without_script(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        runs = opened.page.locator("details.run")
        assert runs.count() == 10
        closed = runs.first.bounding_box()
        runs.first.locator("summary").first.click()
        grown = runs.first.bounding_box()
        assert closed is not None
        assert grown is not None
        assert grown["height"] > closed["height"] + 500


def test_a_link_into_a_folded_run_opens_it(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        part = opened.page.locator("#run-a-0-checks")
        assert not part.is_visible()
        opened.page.goto(f"{samples('arms').as_uri()}#run-a-0-checks")
        part.wait_for(state="visible")  # a link is followed in the next frame


def test_the_contents_stay_in_sight_on_a_wide_screen(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        last = opened.page.locator("nav a").last
        last.scroll_into_view_if_needed()
        opened.page.evaluate("window.scrollTo(0, document.body.scrollHeight / 2)")
        box = opened.page.locator("nav").bounding_box()
        assert box is not None
        assert 0 <= box["y"] < 100
        assert last.is_visible()


def test_the_contents_are_folded_on_a_phone(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms"), width=390) as opened:
        link = opened.page.locator("nav a").first
        assert not link.is_visible()
        opened.page.locator("nav summary").click()
        assert link.is_visible()


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_sentence_of_the_summary_leads_to_what_it_says(
    opener: Opener, samples: Samples, name: str
) -> None:
    with opener(samples(name)) as opened:
        sentences = opened.page.locator(".sentences > li")
        assert 1 < sentences.count() <= 5
        for sentence in sentences.all():
            links = sentence.locator("a").all()
            assert links, sentence.inner_text()
            for link in links:
                where = link.get_attribute("href")
                assert where is not None
                assert opened.page.locator(where).count() == 1
