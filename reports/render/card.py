"""The summary card: a page's finding as a picture of 1200 by 630, to be shown where links are."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.reports.charts.themes import arm_role, light
from wattload.reports.render.page import template
from wattload.reports.runs.load import inputs_digest
from wattload.reports.sanitize import shortened
from wattload.reports.sections.first import heading, title
from wattload.reports.sections.wording import demo_text, trust_text
from wattload.reports.stats.bars import Bars
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import LETTERS, Subject
from wattload.reports.stats.summary import FirstScreen, VerdictRow, first_screen
from wattload.results.quantity import MISSING, UNIT_SPACE, counted, number

_SIZES = (40, 36, 32, 28, 24, 21)
"""Sizes of the sentence; the largest that fits is used."""

_WIDTH, _HEIGHT = 1080, 250
"""The room of the sentence, in pixels."""

_LETTER_WIDTH = 0.58
"""The mean width of a letter, as a share of its size: that of a wide font."""

_FIGURES_MAX, _FIGURE_MAX = 3, 17
"""Figures, and characters of one in large letters."""

_NAME_MAX, _LINE_MAX, _FOOTER_MAX = 72, 32, 112
"""Characters of all names, of a line under a figure, and of each line of caveats."""

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_BROWSER_S = 60


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure in large letters, what it is of, and the letter of its arm, which colours it."""

    text: str
    about: tuple[str, ...]
    letter: str

    @property
    def lines(self) -> list[str]:
        return [shortened(line, _LINE_MAX) for line in self.about if line]


def card(subject: Subject) -> str:
    """Return the card as SVG: arms, sentence, figures with intervals, caveats and source.

    It makes no request, and its colours are those of the page in light.
    """
    screen, sentence = first_screen(subject), finding(subject)
    lines, size = _fitted(sentence)
    arms = heading(subject)
    if len(arms) > _FIGURES_MAX:
        arms = [("", title(subject))]
    versions = ", ".join(sorted({run.record.software.wattload for run in subject.runs}))
    source = (
        f"wattload {versions}, {counted(len(subject.runs), 'run record')}, "
        f"SHA-256 {inputs_digest(subject.runs)[:16]}"
    )
    caveats = [
        demo_text(screen),
        *(each.rstrip(".") for each in screen.warnings),
        trust_text(subject),
    ]
    trust = "; ".join(filter(None, caveats))
    trust = shortened(trust[:1].upper() + trust[1:], 3 * _FOOTER_MAX - _LINE_MAX)
    figures = _one_of_each_first(list(_figures(screen)))
    more = len(figures) - _FIGURES_MAX
    return template(Path(__file__).parent / "card.svg").render(
        finding=sentence,
        arms=[
            (letter, "" if name in LETTERS else letter, shortened(name, _NAME_MAX // len(arms)))
            for letter, name in arms
        ],
        lines=lines,
        size=size,
        figures=figures[:_FIGURES_MAX],
        more=f"and {counted(more, 'more figure')} on the page" if more > 0 else "",
        trust=textwrap.wrap(trust, _FOOTER_MAX, break_on_hyphens=False),
        source=source,
        colours={letter: light(arm_role(letter)) for letter in LETTERS},
    )


def _fitted(sentence: str) -> tuple[list[str], int]:
    """Return the lines of the sentence and their size; one too long for the card is cut."""
    for size in _SIZES:
        most = math.floor(_HEIGHT / (size * 1.28))
        width = math.floor(_WIDTH / (size * _LETTER_WIDTH))
        lines = textwrap.wrap(sentence, width, break_on_hyphens=False)
        if len(lines) <= most:
            return lines, size
    return [*lines[: most - 1], shortened(" ".join(lines[most - 1 :]), width)], size


def _figures(screen: FirstScreen) -> Iterator[_Figure]:
    """Yield the ratios of pairs with their intervals, or else the figures of arms."""
    answers = [(row, each) for row in screen.rows for each in (row.speed, row.energy)]
    ahead = [(row, each) for row, each in answers if each is not None and each.shown is not None]
    for row, answer in ahead:
        of = ", ".join(filter(None, (row.name, answer.part)))
        lines = (row.names.get(answer.shown or "", ""), of, answer.interval_text)
        yield _Figure(answer.ratio_text, lines, answer.letter)
    for row in () if ahead else screen.rows:
        yield from _of_arms(row, row.rates)
        if len(row.group.arms) == 1:
            yield from _of_arms(row, row.energies)


def _one_of_each_first(figures: Sequence[_Figure]) -> list[_Figure]:
    """Return figures in their order, but the first of each arm before all others."""
    firsts = list({figure.letter: figure for figure in reversed(figures)}.values())
    return sorted(figures, key=lambda figure: figure not in firsts)


def _of_arms(row: VerdictRow, bars: Bars) -> Iterator[_Figure]:
    """Yield the figures of arms that are known, the best first, with their ranges."""
    for bar in filter(None, map(bars.of, row.ranking or [bar.arm for bar in bars.bars])):
        if bar.text != MISSING:
            runs, values = counted(bar.run_count, "run"), [mark.value for mark in bar.marks]
            if len(values) > 1:
                runs += f", {number(min(values), 3)} to {number(max(values), 3)}"
            arm = row.names[bar.arm] if len(bars.bars) > 1 else row.name
            text = f"{bar.text}{UNIT_SPACE}{bars.title}"
            is_long = len(text) > _FIGURE_MAX
            about = (bars.title, arm, runs) if is_long else (arm, runs)
            yield _Figure(bar.text if is_long else text, about, bar.letter)


def png_of(svg: str) -> bytes:
    """Return a card as PNG, drawn by cairosvg where it is installed, else by a browser.

    Raises:
        ConfigError: neither is installed, or the browser drew nothing.
    """
    try:
        import cairosvg
    except ImportError:
        return _by_browser(svg)
    drawn: bytes = cairosvg.svg2png(bytestring=svg.encode())
    return drawn


def _by_browser(svg: str) -> bytes:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise ConfigError(
            "a PNG needs cairosvg or a browser: pip install cairosvg, or install chromium; "
            "--format svg needs neither"
        )
    with tempfile.TemporaryDirectory(prefix="wattload-card-") as name:
        folder = Path(name)
        source, drawn = folder / "card.svg", folder / "card.png"
        source.write_text(svg, encoding="utf-8")
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # which root can't have
        options = ["--headless", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,630"]
        options += [*sandbox, f"--user-data-dir={folder}/profile", f"--screenshot={drawn}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            command = [browser, *options, source.as_uri()]
            subprocess.run(command, capture_output=True, timeout=_BROWSER_S, check=False)
        if not drawn.exists():
            raise ConfigError(f"{browser} drew no card; use --format svg")
        return drawn.read_bytes()
