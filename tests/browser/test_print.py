"""On paper a page has all its charts and tables, whole, in the colours of paper."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize

import pytest

from tests.browser.conftest import Opener, Scheme
from tests.records import write_run
from tests.reports.conftest import arm, render_page
from wattload.reports.runs.load import load_runs

pypdf = pytest.importorskip("pypdf")

Samples = Callable[[str], Path]

A4_HEIGHT_PT = 841.9
MARGIN_MM = 14
PAPER_HEIGHT_PX = (297 - 31) / 25.4 * 96
"""Of A4 less its margins of 15 mm and 16 mm, at 96 pixels to the inch."""


def _pages(opener: Opener, file: Path, scheme: Scheme = "light") -> list[str]:
    """Return the text of each printed page."""
    with opener(file, scheme=scheme) as opened:
        document = opened.page.pdf(prefer_css_page_size=True)
    reader = pypdf.PdfReader(io.BytesIO(document))
    assert float(reader.pages[0].mediabox.height) == pytest.approx(A4_HEIGHT_PT, abs=1)
    texts = [normalize("NFKC", page.extract_text()) for page in reader.pages]  # no ligatures
    return [" ".join(text.split()) for text in texts]


def test_every_chart_is_on_paper_with_what_its_axes_say(opener: Opener, samples: Samples) -> None:
    pages = _pages(opener, samples("singles"))
    assert len(pages) >= 6
    text = " ".join(pages)
    with opener(samples("singles")) as opened:
        charts = opened.page.locator(".chart svg").all()
        words = [" ".join(chart.locator("text").all_text_contents()) for chart in charts]
    assert len(charts) >= 3
    for chart in words:
        assert [word for word in normalize("NFKC", chart).split() if word not in text] == []


def test_a_page_of_ten_runs_prints_at_most_a_sheet_per_run_beside_what_it_compares(
    opener: Opener, samples: Samples
) -> None:
    assert len(_pages(opener, samples("arms"))) <= 24


def test_of_a_run_in_a_list_its_figures_and_charts_are_on_paper(
    opener: Opener, samples: Samples
) -> None:
    with opener(samples("arms")) as opened:
        opened.page.emulate_media(media="print")
        runs = opened.page.locator("details.run")
        assert runs.count() == 10
        for run in runs.all():
            charts = run.locator(".chart svg").all()
            assert len(charts) >= 2
            assert all(chart.is_visible() for chart in charts)
            assert run.locator(".tiles").first.is_visible()
            assert not any(table.is_visible() for table in run.locator("table, pre").all())


def test_why_a_chart_of_a_run_is_missing_is_on_paper(opener: Opener, tmp_path: Path) -> None:
    for index in range(2):
        for name in "AB":
            write_run(tmp_path / "runs", arm(name, index, power="none"))
    file = tmp_path / "page.html"
    file.write_text(render_page(load_runs([tmp_path / "runs"])), encoding="utf-8")
    with opener(file) as opened:
        opened.page.emulate_media(media="print")
        reasons = opened.page.locator("details.run").locator(".absent, .notice").all()
        told = " ".join(reason.inner_text() for reason in reasons)
        assert "No power source" in told
        assert "The slot limits the drive" in told
        assert all(reason.is_visible() for reason in reasons)
        assert not opened.page.locator("details.run").locator("table, pre").first.is_visible()


def test_what_is_left_off_paper_is_told(opener: Opener, samples: Samples) -> None:
    text = " ".join(_pages(opener, samples("arms")))
    assert "In this file but not on paper: the tables of charts" in text
    assert "All other figures: in the page, not on paper" in text
    assert "Every run's figure" not in text  # the table behind a chart
    with opener(samples("arms")) as opened:
        assert "not on paper" not in opened.page.locator("main").inner_text()


def test_what_judges_is_on_paper_and_so_are_its_rules(opener: Opener, samples: Samples) -> None:
    text = " ".join(_pages(opener, samples("arms")))
    for words in (
        "Headline figures and energy",
        "Holm's step-down",
        "Statistics behind each verdict",
        "Checks that did not pass in every run",
        "How each energy figure is known",
    ):
        assert words in text


def test_all_charts_are_on_paper_and_no_machine_text(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        opened.page.emulate_media(media="print")
        charts = "[...document.querySelectorAll('.chart svg')]"
        shown = f"{charts}.filter(each => each.checkVisibility())"
        assert opened.page.evaluate(f"{shown}.length === {charts}.length")
        assert not opened.page.locator("pre.json").first.is_visible()
        assert opened.page.locator(".paper-only").first.is_visible()
        assert not opened.page.locator("nav").is_visible()


def test_no_chart_is_higher_than_paper(opener: Opener, samples: Samples) -> None:
    charts = "[...document.querySelectorAll('.chart')]"
    heights = f"{charts}.map(each => each.getBoundingClientRect().height)"
    with opener(samples("arms"), width=690) as opened:
        opened.page.emulate_media(media="print")
        assert max(opened.page.evaluate(heights)) < PAPER_HEIGHT_PX


def test_nothing_is_wider_than_paper(opener: Opener, sample: Path) -> None:
    paper_mm = 297 if sample.stem.startswith("index") else 210  # the index lies on its side
    width = int((paper_mm - 2 * MARGIN_MM) / 25.4 * 96)
    with opener(sample, width=width) as opened:
        opened.page.emulate_media(media="print")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_dark_page_prints_dark_on_white(opener: Opener, samples: Samples) -> None:
    with opener(samples("singles"), scheme="dark") as opened:
        opened.page.emulate_media(media="print", color_scheme="dark")
        ink = opened.page.evaluate("getComputedStyle(document.body).color")
        paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ink == "rgb(0, 0, 0)"
    assert paper == "rgb(255, 255, 255)"
