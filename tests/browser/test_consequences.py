"""What the runs mean, at an interval and a fleet that the reader sets."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Opened, Opener

Samples = Callable[[str], Path]

INTERVAL, DRIVES = "Minutes between units of work", "Number of drives"


def _figures(opened: Opened) -> list[str]:
    return opened.page.locator("#consequences [data-formula]").all_inner_texts()


def test_without_a_script_the_settings_are_text(opener: Opener, samples: Samples) -> None:
    with opener(samples("workloads")) as opened:
        assert opened.page.locator("#consequences .setting").all_inner_texts() == ["60", "8"]
        assert opened.page.locator("#consequences input").count() == 0


def test_the_script_prints_the_same_figures(opener: Opener, samples: Samples) -> None:
    with opener(samples("workloads"), scripts=True) as opened:
        before = _figures(opened)
        interval = opened.page.get_by_label(INTERVAL)
        interval.fill("0.02")
        assert set(_figures(opened)) == {"\u2013"}  # a unit of work takes longer
        interval.fill("60")
        assert _figures(opened) == before
        assert opened.complaints == []
        assert [url for url in opened.requests if not url.startswith("file:")] == []


def test_figures_follow_the_settings(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms"), scripts=True) as opened:
        first = opened.page.locator("#consequences [data-formula]").first
        one = float(first.inner_text().split()[0])
        opened.page.get_by_label(INTERVAL).fill("30")
        opened.page.get_by_label(DRIVES).fill("80")
        assert float(first.inner_text().split()[0]) == pytest.approx(20 * one, rel=0.01)
        opened.page.get_by_label(DRIVES).fill("")
        assert first.inner_text().split() == ["\u2013"]


def test_paper_has_the_settings_as_they_are_set(opener: Opener, samples: Samples) -> None:
    pypdf = pytest.importorskip("pypdf")
    with opener(samples("arms"), scripts=True) as opened:
        opened.page.get_by_label(INTERVAL).fill("45")
        document = opened.page.pdf(prefer_css_page_size=True)
    pages = pypdf.PdfReader(io.BytesIO(document)).pages
    text = " ".join(" ".join(page.extract_text() for page in pages).split())
    assert "One epoch every 45 minutes, on each of 8 drives." in text
