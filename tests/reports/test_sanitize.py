"""Texts of records are sanitized for display; a text for copying keeps its meaning."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.reports.sanitize import LONGEST, escape_unseen, sanitize, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ps0 at 18 W", "ps0 at 18 W"),
        ("1.50\u00a0GB/s", "1.50\u00a0GB/s"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("bell\x07", "bell\\u0007"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("قرص سريع 42", "\u2068قرص سريع\u2069 42"),
        ("👩‍💻", "👩‍💻"),
    ],
)
def test_what_cannot_be_seen_is_named_and_the_rest_stays(text: str, shown: str) -> None:
    assert sanitize(text) == shown


def test_only_a_word_that_is_too_long_is_cut() -> None:
    words = "word " * 1000
    assert sanitize(words) == words
    assert sanitize("x" * LONGEST) == "x" * LONGEST
    cut = sanitize(f"a {'x' * 10_000} b")
    assert len(cut) < LONGEST + 10
    assert cut.startswith("a xxx")
    assert "…" in cut
    assert cut.endswith("xxx b")


@given(st.text())
def test_json_means_the_same_after_it(text: str) -> None:
    assert json.loads(escape_unseen(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("unit", ["e\u0301", "\U0001f469\u200d\U0001f4bb"])
def test_a_mark_stays_with_its_letter_where_a_name_is_cut(unit: str) -> None:
    for longest in range(8, 30):
        head, _, tail = shortened(unit * 50, longest).partition("…")
        assert head == unit * (len(head) // len(unit))
        assert tail == unit * (len(tail) // len(unit))
        assert len(head) + len(tail) < longest
