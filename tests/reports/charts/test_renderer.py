"""The process that draws charts: no text of a record ends it, and its death costs charts only."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.reports.charts.renderer import MOST_DEATHS, ChartError, Renderer, readable

EXAMPLE = Path(__file__).parents[3] / "docs/examples/lab"


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    made = Renderer()
    yield made
    made.end()


def chart(text: str) -> bytes:
    """Return a chart with a text in its data, its title and a tooltip."""
    document = {
        "title": text,
        "data": {"values": [{"a": text, "b": 1}]},
        "mark": "bar",
        "encoding": {
            "x": {"field": "a", "type": "nominal", "title": text},
            "y": {"field": "b", "type": "quantitative"},
            "text": {"field": "a"},
        },
    }
    return json.dumps(document, ensure_ascii=False).encode()


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_every_text_of_a_record_can_be_drawn(renderer: Renderer, text: str) -> None:
    assert renderer.draw(chart(text)).startswith("<svg")


@pytest.mark.parametrize(
    "letter", ["\0", "\x01", "\x1f", "\x7f", "\x9f", "\ufffe", "\uffff", "\u202e"]
)
def test_an_unprintable_character_is_drawn_as_its_code(renderer: Renderer, letter: str) -> None:
    assert f"a\\u{ord(letter):04x}b" in renderer.draw(chart(f"a{letter}b"))


@pytest.mark.parametrize("text", ["0" * 24 + "😀" * 10, "0" * 25 + "😀" * 10, "a\n\tb"])
def test_emoji_survive_shortening_and_line_breaks_are_drawn(renderer: Renderer, text: str) -> None:
    assert renderer.draw(chart(text)).startswith("<svg")


def test_other_escapes_of_a_document_stay() -> None:
    text = 'tab\t line\n quote" back\\slash \\u0001 e\u0301'
    assert json.loads(readable(json.dumps(text))) == text


def test_a_chart_that_cannot_be_drawn_is_one_sentence_and_others_follow(
    renderer: Renderer,
) -> None:
    with pytest.raises(ChartError, match=r"^This chart is missing: it can't be drawn \(.+\)\.$"):
        renderer.draw(b'{"mark": 7}')
    assert renderer.draw(chart("A")).startswith("<svg")


def test_after_a_death_the_next_chart_is_drawn_by_another_process() -> None:
    made = Renderer()
    assert made.draw(chart("A")).startswith("<svg")
    assert made._process is not None
    os.kill(made._process.pid, signal.SIGSTOP)  # so that the chart is on its way when it dies
    os.kill(made._process.pid, signal.SIGKILL)
    with pytest.raises(ChartError, match=r"ended \(by SIGKILL\), as it does when memory"):
        made.draw(chart("A"))
    assert made.draw(chart("A")).startswith("<svg")
    made.end()


def test_a_process_that_always_dies_is_not_started_for_every_chart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    made = Renderer()
    for _ in range(MOST_DEATHS + 1):
        with pytest.raises(ChartError, match=r"ended \(with status 1\)|can't start"):
            made.draw(chart("A"))
    assert made._process is None
    assert len(made.failures) == MOST_DEATHS + 1


@pytest.mark.slow
def test_without_address_space_the_page_has_its_figures_and_says_which_charts_are_missing(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.html"
    run = next(EXAMPLE.glob("*/record.json")).parent
    limit_bytes = 3 << 30  # the engine of the charts reserves more
    found = subprocess.run(
        [sys.executable, "-m", "wattload", "report", str(run), "-o", str(page)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    (warning,) = found.stderr.splitlines()
    assert "its figures and tables are complete; This chart is missing" in warning
    text = page.read_text("utf-8")
    assert "This chart is missing: the process that draws charts ended" in text
    assert "<svg" not in text
    assert "Data of this chart" in text
