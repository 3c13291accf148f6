"""On paper a page has all its charts and tables, whole, in the colours of paper."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize

import pytest

from tests.browser.conftest import Opener, Scheme

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
    text = " ".join(pages)
    with opener(samples("singles")) as opened:
        charts = opened.page.locator(".pic").all()
        words = [" ".join(chart.locator("text").all_text_contents()) for chart in charts]
    assert len(charts) >= 3
    for chart in words:
        assert [word for word in normalize("NFKC", chart).split() if word not in text] == []


def test_the_first_sheet_stands_alone_and_few_follow(opener: Opener, samples: Samples) -> None:
    first, *others = _pages(opener, samples("workloads"))
    for words in ("as fast", "less energy", "Power during", "Drive power"):
        assert words in first
    assert "rate of all I/O over time" not in first
    assert len(others) <= 7


def test_the_next_section_fills_the_first_sheet_of_one_workload(
    opener: Opener, samples: Samples
) -> None:
    first, *others = _pages(opener, samples("arms"))
    assert "Drive power" in first
    assert "rate of all I/O over time" in first
    assert others


def test_what_judges_is_on_paper_and_tables_of_data_are_not(
    opener: Opener, samples: Samples
) -> None:
    text = " ".join(_pages(opener, samples("arms")))
    for words in ("Checks that did not pass in every run", "How each energy figure is known"):
        assert words in text
    assert "Not on paper: tables of data" in text
    assert "Every run's figure" not in text  # the table behind a chart
    with opener(samples("arms")) as opened:
        assert not opened.page.locator(".paper-only").is_visible()
        opened.page.emulate_media(media="print")
        assert not opened.page.locator("#runs pre").first.is_visible()
        assert opened.page.locator(".paper-only").is_visible()
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
