from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reports.chromium import Browser, chromium
from wattload.reports.load import Run
from wattload.reports.page import render_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, virtual_runs: tuple[Run, ...]) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_page(virtual_runs))
    return file


@pytest.fixture(scope="module")
def arms_page(tmp_path_factory: pytest.TempPathFactory, arms: tuple[Run, ...]) -> Path:
    file = tmp_path_factory.mktemp("page") / "arms.html"
    file.write_text(render_page(arms))
    return file


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_opens_without_script_and_asks_for_nothing(
    browser: Browser, page: Path, dark: bool
) -> None:
    browser.open(page, dark=dark)
    assert browser.requests() == [page.as_uri()]
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [390, 768, 1360])
def test_nothing_is_wider_than_the_screen(
    browser: Browser, page: Path, arms_page: Path, width: int
) -> None:
    for file in (page, arms_page):
        browser.open(file, width=width)
        assert browser.value("document.documentElement.scrollWidth") <= width


def test_charts_have_a_size_and_follow_the_scheme(browser: Browser, page: Path) -> None:
    stroke = "getComputedStyle(document.querySelector('.chart [stroke=\"#0b7a75\"]')).stroke"
    browser.open(page)
    assert browser.value("document.querySelector('.chart svg').getBoundingClientRect().width") > 500
    light = browser.value(stroke)
    browser.open(page, dark=True)
    assert light == "rgb(11, 122, 117)"
    assert browser.value(stroke) == "rgb(60, 196, 182)"


def test_hatches_are_drawn_from_their_pattern(browser: Browser, arms_page: Path) -> None:
    browser.open(arms_page)
    fill = "getComputedStyle(document.querySelector('.chart [fill^=\"url\"]')).fill"
    assert browser.value(fill).startswith('url("#compare-unet3d-arms-hatch-b")')


def test_a_folded_run_opens_without_script(browser: Browser, arms_page: Path) -> None:
    browser.open(arms_page)
    folds = "document.querySelectorAll('details.run').length"
    assert browser.value(folds) == 10
    height = "document.querySelector('details.run').getBoundingClientRect().height"
    closed = browser.value(height)
    first = "document.querySelector('details.run')"
    browser.value(f"{first}.scrollIntoView({{behavior: 'instant', block: 'center'}})")
    centre = f"(box => [box.x + 40, box.y + 15])({first}.getBoundingClientRect())"
    x, y = browser.value(centre)
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert browser.value(height) > closed + 500


def test_the_page_prints(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    browser.print(tmp_path / "page.pdf")
    document = (tmp_path / "page.pdf").read_bytes()
    assert document.startswith(b"%PDF")
    assert document.count(b"/Type /Page\n") >= 3


def test_the_page_can_be_pictured(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
