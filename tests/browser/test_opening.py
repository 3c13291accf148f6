"""A page opens from a file, without JavaScript, asks for nothing, and fits the screen."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import NAMES, Opener, Scheme
from tests.browser.samples import REPORTS
from tests.reports.sessions import simulated
from tests.reports.stats.test_summary import FAST, SLOW
from wattload.reports.charts.themes import light
from wattload.reports.render.card import card, png_of
from wattload.reports.stats.subject import make_subject

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
        charts = opened.page.locator(".pic")
        shown = [chart for chart in charts.all() if chart.is_visible()]
        assert len(shown) >= 3
        for chart in shown:
            box = chart.bounding_box()
            assert box is not None
            assert box["width"] > 150
            assert box["height"] > 40


def test_nothing_is_wider_than_the_screen(opener: Opener, sample: Path) -> None:
    with opener(sample) as opened:
        for width in opened.at_widths(320, 390, 768, 1024, 1360, 1920):
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("scheme", "fill"), [("light", "rgb(23, 97, 168)"), ("dark", "rgb(98, 168, 245)")]
)
def test_charts_follow_the_scheme(
    opener: Opener, samples: Samples, scheme: Scheme, fill: str
) -> None:
    read = f"getComputedStyle(document.querySelector('.pic [fill=\"{light('a')}\"]')).fill"
    with opener(samples("arms"), scheme=scheme) as opened:
        assert opened.page.evaluate(read) == fill


def test_no_text_of_a_chart_is_cut(opener: Opener, samples: Samples) -> None:
    beyond = """[...document.querySelectorAll('.pic text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.width && (box.left < 0 || box.right > document.documentElement.clientWidth);
    }).map(text => text.textContent)"""
    with opener(samples("arms")) as opened:
        for width in opened.at_widths(390, 1280):
            assert opened.page.evaluate(beyond) == [], width


@pytest.mark.parametrize("name", ["many-arms", "six-arms", "workloads"])
def test_no_text_of_bars_is_over_another(opener: Opener, samples: Samples, name: str) -> None:
    over = """[...document.querySelectorAll('.bars-cell')].flatMap(cell => {
        const all = [...cell.querySelectorAll('text, small')].map(each => {
            const range = document.createRange();
            range.selectNodeContents(each);
            return [each.textContent, range.getBoundingClientRect()];
        });
        return all.flatMap(([one, a], at) => all.slice(at + 1).filter(([, b]) =>
            a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3
        ).map(([other]) => `${one} | ${other}`));
    })"""
    with opener(samples(name)) as opened:
        assert opened.page.locator(".bars-cell text").count()
        for width in opened.at_widths(390, 820, 1280):
            assert opened.page.evaluate(over) == [], width


def test_labels_of_the_vertical_axis_are_beside_the_area(opener: Opener, samples: Samples) -> None:
    over = """[...document.querySelectorAll('svg.plot')].flatMap(chart => {
        const area = chart.querySelector('.area').getBoundingClientRect();
        return [...chart.querySelectorAll('text[text-anchor=end]')].filter(text => {
            const box = text.getBoundingClientRect();
            return text.getAttribute('x') < 0 && box.width && box.right > area.left;
        }).map(text => text.textContent);
    })"""
    with opener(samples("arms")) as opened:
        assert opened.page.locator("svg.plot text[text-anchor=end]").count()
        for width in opened.at_widths(390, 1280):
            assert opened.page.evaluate(over) == [], width


@pytest.mark.parametrize("name", ["arms", "six-arms", "workloads"])
def test_the_verdict_and_the_power_are_on_the_first_screen(
    opener: Opener, samples: Samples, name: str
) -> None:
    with opener(samples(name), width=1280) as opened:
        for place in (".verdicts tbody tr", "#first-power svg"):
            box = opened.page.locator(place).last.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 900
        words = opened.page.locator("header, .verdicts thead, .verdicts th").all_inner_texts()
        assert len(" ".join(words).split()) <= 120


def test_a_value_is_read_off_where_the_pointer_is(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms"), width=1280, scripts=True) as opened:
        page = opened.page
        box = page.locator("#first-power svg.time").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 120)
        reported = page.locator(".tip").inner_text()
        assert re.fullmatch(r"[\d.]+ s: A [\d.]+ W, B [\d.]+ W", reported), reported
        page.locator(".bars g[data-tip]").first.hover()
        assert page.locator(".tip").inner_text() == "A 1.50 GB/s read"


def test_the_axis_of_time_zooms_by_dragging_and_back(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms"), width=1280, scripts=True) as opened:
        page = opened.page
        chart = page.locator("#first-power svg.time")
        ticks = chart.locator(".xt").all_text_contents()
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 300, box["y"] + 120)
        page.mouse.down()
        page.mouse.move(box["x"] + 600, box["y"] + 120, steps=3)
        page.mouse.up()
        assert chart.locator(".xt").all_text_contents() != ticks
        page.get_by_role("button", name="Reset zoom").first.click()
        assert chart.locator(".xt").all_text_contents() == ticks


@pytest.mark.parametrize(("form", "opening"), [("SVG", "<svg"), ("CSV", '"seconds"')])
def test_a_chart_and_its_data_are_saved_without_a_request(
    opener: Opener, samples: Samples, tmp_path: Path, form: str, opening: str
) -> None:
    with opener(samples("arms"), width=1280, scripts=True) as opened:
        with opened.page.expect_download() as saved:
            opened.page.locator("#first-power").get_by_role("button", name=form).click()
        saved.value.save_as(tmp_path / "chart")
        assert (tmp_path / "chart").read_text("utf-8").startswith(opening)
        assert saved.value.suggested_filename == f"first-power.{form.lower()}"
        assert [each for each in opened.requests if not each.startswith("blob:")] == [
            samples("arms").as_uri()
        ]


def test_a_folded_run_opens_without_script(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        runs = opened.page.locator("details.run")
        assert runs.count() == 10
        opened.page.locator("#runs summary").first.click()
        closed = runs.first.bounding_box()
        runs.first.locator("summary").first.click()
        grown = runs.first.bounding_box()
        assert closed is not None
        assert grown is not None
        assert grown["height"] > closed["height"] + 300


def test_a_link_into_a_folded_run_opens_it(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        part = opened.page.locator("#run-a-0-checks")
        assert not part.is_visible()
        opened.page.goto(f"{samples('arms').as_uri()}#run-a-0-checks")
        part.wait_for(state="visible")  # a link is followed in the next frame


def test_a_link_to_a_folded_section_opens_it(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms"), scripts=True) as opened:
        fold = opened.page.locator("#runs > details")
        assert fold.get_attribute("open") is None
        opened.page.locator('nav a[href="#runs"]').click()
        assert fold.get_attribute("open") is not None
        top = opened.page.locator("#runs").bounding_box()
        assert top is not None
        assert -1 <= top["y"] <= 400  # the last sections cannot reach the top


def test_the_contents_lead_to_every_section(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        links = opened.page.locator("nav a")
        assert links.count() == opened.page.locator("main > .section").count()
        links.last.click()
        assert opened.page.locator("#inputs pre").first.is_visible() is False
        assert opened.page.locator("#inputs h2").is_visible()


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_links_of_the_first_screen_lead_to_something(
    opener: Opener, samples: Samples, name: str
) -> None:
    with opener(samples(name)) as opened:
        links = opened.page.locator("header a, #verdict a").all()
        assert len(links) > 1
        for link in links:
            where = link.get_attribute("href")
            assert where is not None
            assert opened.page.locator(where).count() == 1


def test_a_browser_draws_the_card() -> None:
    svg = card(make_subject(simulated(FAST, SLOW)))
    if not any(map(shutil.which, NAMES)):
        pytest.skip("no browser")
    drawn = png_of(svg)
    assert drawn.startswith(b"\x89PNG")
    assert struct.unpack(">II", drawn[16:24]) == (1200, 630)
