"""The summary card: whole by itself, whatever the names are, and a PNG where something draws it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.reports.sessions import session, simulated
from tests.reports.stats.test_summary import FAST, REAL, SLOW
from wattload.core.errors import ConfigError
from wattload.core.record.results import Check
from wattload.reports.render.card import card, png_of
from wattload.reports.runs.load import Run
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import make_subject

SVG = "{http://www.w3.org/2000/svg}"


def texts(runs: Sequence[Run]) -> list[str]:
    """Return the texts of the card of these runs."""
    drawn = ElementTree.fromstring(card(make_subject(list(runs))))
    return ["".join(each.itertext()).replace("\u00a0", " ") for each in drawn.iter(f"{SVG}text")]


def caveats(runs: Sequence[Run]) -> str:
    """Return the lines of caveats of the card of these runs."""
    drawn = ElementTree.fromstring(card(make_subject(list(runs))))
    lines = [each for each in drawn.iter(f"{SVG}text") if each.get("fill") == "#754c00"]
    return " ".join(each.text or "" for each in lines).replace("\u00a0", " ")


def test_a_card_has_arms_sentence_figures_caveats_and_source() -> None:
    runs = session({"A": FAST, "B": SLOW}, **REAL)
    found = texts(runs)
    assert found[0] == "A vs B"
    sentence = finding(make_subject(runs)).replace("\u00a0", " ")
    assert sentence in " ".join(found)
    assert "2.40\u00d7 as fast" in found
    assert any(each.startswith("95 % CI 2.3") for each in found)
    assert caveats(runs).endswith("; medium confidence: host ceiling unknown")
    assert found[-1].startswith("wattload ")
    assert "16 run records, SHA-256 " in found[-1]


def test_a_card_names_arms_by_their_own_letters() -> None:
    wrong = Check(name="data_content", verdict="fail", sentence="A block is wrong.")
    runs = [
        replace(run, record=run.record.model_copy(update={"checks": (wrong,)}))
        if run.record.label == "B"
        else run
        for run in session({"A": SLOW, "B": FAST, "C": [1.5e9] * 8}, **REAL)
    ]
    found = texts(runs)
    assert found[0] == "A vs C"
    assert "; no valid run of B." in " ".join(found)
    assert caveats(runs).endswith("; medium confidence: host ceiling unknown; 8 failed checks")


def test_a_card_says_how_far_to_trust_its_finding() -> None:
    runs = session({"A": FAST, "B": SLOW}, power="self_reported", virtual=False)
    assert caveats(runs).endswith("; low confidence: drive's own power, host ceiling unknown")
    assert caveats(simulated(FAST, SLOW)).endswith("o grade: simulated drives")
    assert "ingle run: power not measured, " in caveats(session({"A": FAST[:1]}))


def test_a_card_begins_its_caveats_with_the_warnings_of_the_page() -> None:
    demo = session({"a": FAST}, scale="demo", path="/mnt/a", **REAL)
    demo += session({"b": SLOW}, scale="demo", path="/mnt/b", **REAL)
    assert caveats(demo).startswith("Demo scale, no drive test; ")
    assert "are on one drive (" in caveats(demo)
    assert caveats(demo[:1]).startswith("Demo scale, no drive test; ")


def test_a_card_has_a_figure_of_each_arm_first() -> None:
    a_wins = session({"A": FAST, "B": SLOW}, **REAL)
    a_wins += session({"A": FAST, "B": SLOW}, workload="checkpoint", session="c", **REAL)
    b_wins = session({"A": SLOW, "B": FAST}, workload="dlrm", session="d", **REAL)
    found = texts([*a_wins, *b_wins])
    assert found.index("B") - found.index("DLRM") == -1
    assert "and 3 more figures on the page" in found


def test_a_card_makes_no_request() -> None:
    drawn = card(make_subject(simulated(FAST, SLOW)))
    assert re.findall(r"https?://[^\"]+", drawn) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|@import|<script|<image|<style", drawn)


def test_names_are_text_of_any_length() -> None:
    name = "<script>&" + "x" * 300
    found = texts(session({name: FAST, "B": SLOW}))
    assert found[0].startswith("A <script>&x")
    assert max(map(len, found)) < 110


def test_a_card_without_a_winner_has_the_figures_of_arms() -> None:
    assert "2.40 GB/s read" in texts(session({"A": FAST[:1]}, **REAL))
    few = texts(session({"A": FAST[:3], "B": SLOW[:3]}))
    assert {"2.40 GB/s read", "1.00 GB/s read"} <= {*few}
    assert not any("as fast" in each for each in few)


def test_many_workloads_fit_in_smaller_letters() -> None:
    runs = [
        run
        for workload in ("unet3d", "checkpoint", "dlrm")
        for run in session({"A": FAST, "B": SLOW}, workload=workload, session=workload, **REAL)
    ]
    sizes = re.findall(r'font-size="(\d+)" font-weight="700"', card(make_subject(runs)))
    assert int(sizes[0]) < 40
    assert " ".join(texts(runs)).count("as fast") == 5


def test_without_a_drawing_program_a_png_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install cairosvg, or install chromium"):
        png_of("<svg/>")


def test_a_browser_that_draws_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    browser = tmp_path / "chromium"
    shutil.copy(shutil.which("true") or "/bin/true", browser)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=f"{browser} drew no card"):
        png_of("<svg/>")
