"""Names that are markup, bidi tricks, controls, emoji or 10 kB long are text, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Opener
from tests.browser.samples import ARABIC, EMOJI, SCRIPT

Samples = Callable[[str], Path]

UNSEEN = r"/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066\u2067]/"


@pytest.fixture(params=["hostile", "hostile-pair", "index-hostile"])
def hostile(request: pytest.FixtureRequest, samples: Samples) -> Path:
    return samples(request.param)


def test_no_script_of_a_name_runs_even_where_scripts_may(opener: Opener, hostile: Path) -> None:
    with opener(hostile, scripts=True) as opened:
        opened.page.wait_for_load_state("networkidle")
        assert opened.complaints == []
        assert opened.requests == [hostile.as_uri()]
        assert opened.page.locator("img").count() == 0
        runnable = "[...document.scripts].filter(each => each.type !== 'application/json')"
        assert opened.page.evaluate(f"{runnable}.length") == 1  # the page's own
        assert SCRIPT in opened.page.locator("main").inner_text()


def test_no_unseen_character_is_left_on_the_page(opener: Opener, hostile: Path) -> None:
    with opener(hostile) as opened:
        read = f"document.body.innerText.match({UNSEEN})"
        assert opened.page.evaluate(read) is None
        assert "\\u202e" in opened.page.locator("main").inner_text()


def test_a_name_from_right_to_left_does_not_turn_the_words_after_it(
    opener: Opener, samples: Samples
) -> None:
    with opener(samples("hostile-pair")) as opened:
        sentence = opened.page.locator("h1")
        words = sentence.inner_text()
        assert f"\u2068{ARABIC.rpartition(' ')[0]}\u2069" in words
        read = """node => {
          const range = document.createRange();
          const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
          while (texts.nextNode()) {
            const at = texts.currentNode.data.indexOf('alert');
            if (at < 0) continue;
            const left = index => {
              range.setStart(texts.currentNode, index); range.setEnd(texts.currentNode, index + 1);
              return range.getBoundingClientRect().left;
            };
            return [left(at), left(at + 3)];
          }
        }"""
        first, fourth = sentence.evaluate(read)
        assert first < fourth


def test_an_emoji_stays_one(opener: Opener, samples: Samples) -> None:
    with opener(samples("hostile")) as opened:
        assert EMOJI in opened.page.locator("main").inner_text()


def test_a_name_of_10_kb_is_shown_by_its_ends(opener: Opener, hostile: Path) -> None:
    with opener(hostile) as opened:
        shown = opened.page.locator("main").inner_text()
        assert "x" * 200 not in shown
        assert "xxx…xxx" in shown
        title = opened.page.locator("h1").bounding_box()
        assert title is not None
        assert title["height"] < 900
