"""The first chart of every example page against its headline and its sentence."""

from __future__ import annotations

import itertools
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from wattload.reports.blocks import Figure, FigureRow
from wattload.reports.charts.themes import light
from wattload.reports.runs.load import load_runs
from wattload.reports.sections.over_time import drawn_first, first_charts
from wattload.reports.stats.bars import Bars
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import Subject, make_subject
from wattload.reports.stats.summary import VerdictRow, first_screen
from wattload.results.quantity import number, ratio_text

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
PAGES = {
    "two-drives": "label",
    "gnn": "loader",
    "gpu-reads": "label",
    "gpu-random-reads": "loader.engine",
    "direct-torch": "label",
    "lab": "power_state",
}
"""Example pages, and what defines their arms."""
_MEAN = re.compile(
    r'<path d="M(?P<start>[\d.]+) (?P<y>[\d.]+)L[^"]*"[^>]*data-name="(?P<letter>.*?) ?mean"'
)
_HEIGHT = 150


@dataclass(frozen=True)
class Page:
    subject: Subject
    row: VerdictRow
    figures: list[Figure]

    @property
    def rates(self) -> Bars:
        """The bars of the figure that the page leads with."""
        return self.row.rates


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = EXAMPLES / request.param
    if not folder.exists():
        root = tmp_path_factory.mktemp("examples")
        with tarfile.open(f"{folder}.tar.xz") as archive:
            archive.extractall(root, filter="data")
        folder = root / request.param
    folders = [folder]
    if request.param == "lab":
        folders = [folder / "unet3d-ps0", folder / "unet3d-ps1"]
    subject = make_subject(load_runs(folders), PAGES[request.param])
    workload, _ = drawn_first(subject)
    row = next(row for row in first_screen(subject).rows if row.group.workload == workload)
    block = first_charts(subject)
    assert isinstance(block, Figure | FigureRow)
    return Page(subject, row, [block] if isinstance(block, Figure) else [*block.figures])


def plain(text: str) -> float:
    return float(text.replace("\u202f", ""))


def test_the_largest_value_of_the_first_chart_is_that_of_the_headline(page: Page) -> None:
    table = page.figures[0].table
    (column,) = (index for index, each in enumerate(table.columns) if each.title.startswith("mean"))
    largest = max(plain(row[column].text) for row in table.rows)
    headline = max(bar.value for bar in page.rates.bars if bar.value is not None)
    assert number(largest, 3) == number(headline, 3)


def test_a_unit_of_work_is_its_bytes_at_the_printed_rate(page: Page) -> None:
    table = page.figures[0].table
    titles = [column.title for column in table.columns]
    if ": one " not in page.figures[0].title:
        pytest.skip("no unit of work is drawn")
    rates, seconds = (
        [plain(row[titles.index(title)].text) for row in table.rows]
        for title in (titles[1], titles[2])
    )
    bytes_of = [rate * each for rate, each in zip(rates, seconds, strict=True)]
    assert max(bytes_of) == pytest.approx(min(bytes_of), rel=0.005), "three digits are printed"


def test_means_are_drawn_as_high_as_they_are_printed(page: Page) -> None:
    svg = page.figures[0].svg
    found = {
        each["letter"]: float(each["y"]) for each in _MEAN.finditer(svg) if each["start"] == "0.0"
    }
    if not found:  # a sweep has a mean at each of its points
        tips = re.findall(r'data-tip="[A-F] at [^:]*: (\S+) ', svg)
        assert {number(bar.value, 3) for bar in page.rates.bars} <= {*tips}
        return
    (high,) = {float(each.split()[1]) for each in re.findall(r'data-y="([^"]*)"', svg)}
    for bar in page.rates.bars:
        drawn = high * (1 - found[bar.letter] / _HEIGHT)
        assert bar.value == pytest.approx(drawn, abs=0.001 * high)


def test_ceilings_are_no_arms_of_the_first_chart(page: Page) -> None:
    names = {name for group in page.subject.groups for name in group.ceilings}
    cells = {cell.text for row in page.figures[0].table.rows for cell in row}
    assert not names & cells
    assert not names & {*page.subject.arms}


def test_bold_lines_are_named_at_their_ends_in_the_order_of_their_heights(page: Page) -> None:
    found = re.findall(r'y="([\d.]+)"[^>]* class="halo" dx="4"[^>]*>([A-F])<', page.figures[0].svg)
    if "a unit, s" not in {column.title for column in page.figures[0].table.columns}:
        assert not found
        return
    heights = [float(y) for y, _ in found]
    ranked = sorted(page.rates.bars, key=lambda bar: -(bar.value or 0))
    assert [letter for _, letter in found] == [bar.letter for bar in ranked]
    assert all(below - above >= 12 for above, below in itertools.pairwise(heights))


def test_the_words_over_a_unit_fit_a_phone(page: Page) -> None:
    words = re.findall(r'font-weight="700">(A  [^<]*/s, [^<]*)<', page.figures[0].svg)
    assert all(len(each) <= 32 for each in words)


def test_the_caption_explains_what_strips_show_and_how_late_readings_are(page: Page) -> None:
    for figure in page.figures:
        initials = re.findall(r'font-size="10" font-weight="700">([A-Z])<', figure.svg)
        assert all(f"{initial} is " in figure.caption for initial in initials)
        assert ("grey is rest" in figure.caption) == (f'fill="{light("untimed")}"' in figure.svg)
        assert not re.search("\u00b1[^;]* to ", figure.caption), "a range of uncertain delays"


def test_the_sentence_has_the_figure_or_the_ratio_of_the_first_chart(page: Page) -> None:
    text, speed = finding(page.subject), page.row.speed
    values = [bar.value for bar in page.rates.bars if bar.value is not None]
    if speed is None:
        best = min(values) if page.rates.better == "lower" else max(values)
        assert number(best, 3) in text
    elif speed.shown is not None:
        assert f"{ratio_text(max(values) / min(values))}\u00d7" in text
    else:
        assert "no " in text
