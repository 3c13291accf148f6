"""The end of a session: its arms, their ratio and its verdict, the same as on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.random_reads import random_run
from tests.reports.sessions import session
from wattload.cli.outcome import position_line
from wattload.cli.summary import print_comparison
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import make_subject
from wattload.results.quantity import number
from wattload.session.schedule import SessionPosition

JOURNAL = Path("runs/sweep-1a2b.jsonl")


def steps(rate: float, count: int) -> list[float]:
    return [rate * (1 + 0.002 * (number % 3)) for number in range(count)]


def test_a_session_ends_with_its_winner(capsys: pytest.CaptureFixture[str]) -> None:
    runs = session({"old": steps(1e9, 8), "new": steps(2e9, 8)}, power="measured", virtual=False)
    print_comparison(runs, JOURNAL)
    text = capsys.readouterr().out.replace("\u00a0", " ")
    subject = make_subject(runs)
    (group,) = subject.groups
    row = next(row for row in compare(subject, group) if row.quantity.unit == "B/s")
    assert row.call == "b"
    assert row.effect is not None
    assert f"new: {number(row.effect.ratio, 3)}\u00d7 as fast (95 % CI " in text
    assert "throughput: new wins" in text
    assert "energy, train: new: " in text
    assert "16 runs" in text
    assert "energy" in text
    assert text.splitlines()[-1].split(None, 1) == ["report", f"wattload report {JOURNAL}"]


def test_too_few_pairs_have_no_winner(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(session({"A": steps(1e9, 2), "B": steps(2e9, 2)}), JOURNAL)
    text = capsys.readouterr().out
    assert "inconclusive (2 pairs; 6 needed)" in text
    assert "wins" not in text
    assert text.count("not measured") == 2
    assert max(map(len, text.splitlines())) <= 100


def test_arms_are_listed_with_the_means_that_their_ratio_divides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_comparison(session({"A": [1e9, 4e9], "B": [1e9, 1e9]}), JOURNAL)
    text = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
    assert "2.000 GB/s (CV " in text
    assert "A: 2.00\N{MULTIPLICATION SIGN} as fast" in text


def test_one_arm_is_listed_without_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(session({"A": steps(1e9, 3)}), JOURNAL)
    text = capsys.readouterr().out
    assert "verdict" not in text
    assert "CV " in text


def test_three_arms_are_listed_without_a_winner(capsys: pytest.CaptureFixture[str]) -> None:
    rates = {"A": steps(1e9, 2), "B": steps(2e9, 2), "C": steps(3e9, 2)}
    print_comparison(session(rates), JOURNAL)
    text = capsys.readouterr().out
    assert "inconclusive (more than two arms)" in text
    assert "ratio" not in text


def test_a_run_of_a_session_says_where_it_stands() -> None:
    position = SessionPosition(number=7, count=16, left_s=550, name="B")
    assert position_line(position) == "run 7 of 16, about 9 min left: B"
    assert position_line(SessionPosition(number=1, count=None, left_s=None, name="")) == "run 1"
    for seconds, words in ((3, "10 s"), (44, "40 s"), (59, "1 min"), (5400, "1 h 30 min")):
        assert words in position_line(SessionPosition(number=1, count=2, left_s=seconds, name=""))


def test_runs_of_a_fixed_time_are_listed_with_what_a_joule_pays_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_comparison(
        [random_run(name=name, repeat=place) for place, name in enumerate("ab")], JOURNAL
    )
    text = capsys.readouterr().out
    assert "reads per joule" in text
    assert "not measured" not in text
