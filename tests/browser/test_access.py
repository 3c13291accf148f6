"""Names, roles, headings and contrast, by the rules of axe-core, in both schemes and opened up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Opener, Scheme

Samples = Callable[[str], Path]

OPEN = """
const runs = [...document.querySelectorAll('details.run')].slice(1);
runs.forEach(each => each.remove());
document.querySelectorAll('details').forEach(each => { each.open = true; });
"""
"""One run stands for all, for they are made alike; every fold is opened."""


def _violations(
    opener: Opener, file: Path, *, scheme: Scheme = "light", width: int = 1360, rules: str = ""
) -> list[str]:
    """Return what axe-core finds on a page with every fold open: rule, place, and its reason."""
    base = pytest.importorskip("axe_playwright_python.base")
    options = {"resultTypes": ["violations"]} | ({"runOnly": [rules]} if rules else {})
    with opener(file, scheme=scheme, width=width, scripts=True) as opened:
        opened.page.evaluate(OPEN)
        opened.page.evaluate(base.AXE_SCRIPT)
        result: dict[str, Any] = opened.page.evaluate("options => axe.run(options)", options)
    return [
        f"{rule['id']}: {node['target'][0]}: {node['html'][:200]}: {node.get('failureSummary')}"
        for rule in result["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("name", ["arms", "hostile", "index", "singles"])
def test_axe_finds_nothing(opener: Opener, samples: Samples, name: str) -> None:
    assert _violations(opener, samples(name)) == []


@pytest.mark.parametrize("name", ["arms", "index"])
def test_contrast_is_enough_in_the_dark(opener: Opener, samples: Samples, name: str) -> None:
    assert _violations(opener, samples(name), scheme="dark", rules="color-contrast") == []


def test_axe_finds_nothing_on_a_phone(opener: Opener, samples: Samples) -> None:
    assert _violations(opener, samples("bounds"), width=390) == []


def test_axe_would_find_what_is_missing(opener: Opener, samples: Samples, tmp_path: Path) -> None:
    source = samples("singles").read_text(encoding="utf-8")
    nameless = tmp_path / "nameless.html"
    nameless.write_text(source.replace('<html lang="en">', "<html>"), encoding="utf-8")
    (found,) = _violations(opener, nameless, rules="html-has-lang")
    assert found.startswith("html-has-lang: html")


def test_headings_go_down_one_level_at_a_time(opener: Opener, sample: Path) -> None:
    read = "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(each => +each.tagName[1])"
    with opener(sample) as opened:
        levels = opened.page.evaluate(read)
    assert levels.count(1) == 1
    assert levels[0] == 1
    for before, after in pairwise(levels):
        assert after <= before + 1


def test_there_is_one_of_each_landmark(opener: Opener, samples: Samples) -> None:
    with opener(samples("arms")) as opened:
        for role in ("banner", "navigation", "main", "contentinfo"):
            assert opened.page.get_by_role(role).count() == 1, role


def test_every_table_has_a_caption_and_its_headers_a_scope(opener: Opener, sample: Path) -> None:
    with opener(sample) as opened:
        bare = "[...document.querySelectorAll('table')].filter(each => !each.caption?.textContent)"
        assert opened.page.evaluate(f"{bare}.length") == 0
        assert opened.page.locator("th:not([scope])").count() == 0
