from __future__ import annotations

import re
from pathlib import Path

from tests.records import Scenario
from tests.reports.conftest import arm, one
from wattload.reports.exports.markdown import markdown_report
from wattload.reports.load import Run
from wattload.reports.subject import make_subject


def test_two_arms_are_a_summary_and_a_table(arms: tuple[Run, ...]) -> None:
    text = markdown_report(make_subject(arms))
    assert text.startswith("## A against B: unet3d\n\n1. ")
    (head,) = (line for line in text.splitlines() if line.startswith("| quantity "))
    assert head == "| quantity | better | A | B | B/A | 95 % interval | call |"
    bodies = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count("|") for line in bodies}) == 1
    assert re.search(r"SHA-256 over them: `[0-9a-f]{64}`", text)


def test_a_single_run_is_a_table_of_its_figures(tmp_path: Path) -> None:
    text = markdown_report(make_subject([one(tmp_path, Scenario(run_id="r", seconds=1.0))]))
    assert "| quantity | better | figure |" in text


def test_text_of_records_is_no_markup(tmp_path: Path) -> None:
    label = "<img src=x> | `x` [a](http://b) @someone #1"
    text = markdown_report(
        make_subject([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, label=label))])
    )
    assert "<img" not in text.replace(r"\<img", "")
    assert "@someone" not in text
    assert r"\[a\](http" in text
    assert r"\|" in text


def test_more_arms_than_letters_are_said_and_not_shown(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", index, label=f"arm{index}")) for index in range(7)]
    assert "at most 6 stand side by side" in markdown_report(make_subject(runs))


def test_text_of_records_is_no_link_and_turns_no_direction(tmp_path: Path) -> None:
    label = "https://evil.example HTTP://x www.evil.example me@evil.example \u202egpj.exe"
    text = markdown_report(
        make_subject([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, label=label))])
    )
    for bare in ("https://", "HTTP://", "www.", "me@evil", "\u202e"):
        assert bare not in text, bare
    assert r"\\u202egpj.exe" in text
