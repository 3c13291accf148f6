"""What checks warn of, in words that a first screen has room for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.reports.sessions import run, session
from tests.reports.stats.test_summary import FAST, REAL, SLOW
from wattload.core.record.results import Check, Verdict
from wattload.reports.sections.first import byline
from wattload.reports.sections.wording import caveats_text, trust_text
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen


def check(name: str, verdict: Verdict = "warn") -> Check:
    return Check(name=name, verdict=verdict, sentence="Found.")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ("no caveats", "")),
        (("short_run_read",), ("1 caveat", "short phases")),
        (("short_run_read", "short_run_write"), ("1 caveat", "short phases")),
        (("device_bytes_read_read",), ("1 caveat", "other traffic on the devices")),
        (("steady_read", "throttled_S4EVNX0R900001"), ("2 caveats", "not steady and throttled")),
        (
            ("clocks_agree", "bottleneck_read_bytes_per_s"),
            ("2 caveats", "clocks agree and host near its ceiling"),
        ),
    ],
)
def test_a_caveat_is_what_checks_warn_of(names: Sequence[str], text: tuple[str, str]) -> None:
    record = run("r1", label="A", virtual=False).record
    checks = [check("delivered", "pass"), check("smart", "not_checked"), *map(check, names)]
    assert caveats_text([(record, checks)] * 3) == text


def test_of_many_caveats_the_most_frequent_are_named() -> None:
    record = run("r1", label="A").record
    names = [f"{letter}_{letter}" for letter in "abcdefg"]
    runs = [(record, [check(name) for name in names[: 1 + count]]) for count in range(7)]
    assert caveats_text(runs) == ("7 caveats", "a a, b b, c c, d d, e e and 2 more")


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        ("checkpoint", "high confidence: 8 pairs, meter ± 1.0 %; no caveats"),
        ("unet3d", "medium confidence: host ceiling unknown"),
    ],
)
def test_only_high_confidence_has_no_caveats(workload: str, text: str) -> None:
    subject = make_subject(session({"A": FAST, "B": SLOW}, workload=workload, **REAL))
    assert trust_text(subject).replace("\u00a0", " ") == text
    words = str(byline(subject, first_screen(subject)))
    assert ("no caveats" in words) == text.startswith("high")
