"""Reports as files: whole or not at all, and the same bytes wherever and whenever they are made."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm
from wattload.cli.report import ENDS
from wattload.core.errors import TargetError
from wattload.reports.output import FORMS, report_text, write_whole

ROOT = Path(__file__).parents[2]
SECRETS = ("db7.corp.example", "db7", "S4EVNX0R900001", "secret lab", "alice", "/mnt/")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for index in range(2):
        write_run(runs, arm("A", index))
        write_run(runs, arm("B", index, rate=0.6e9))
    return runs


def digest(folder: Path, form: str, *, cwd: Path, **environment: str) -> str:
    """Return the digest of a report made by a process of its own, elsewhere."""
    code = (
        "import pathlib, sys, hashlib, locale; locale.setlocale(locale.LC_ALL, ''); "
        "from wattload.reports.output import report_text; "
        "text = report_text([pathlib.Path(sys.argv[1])], form=sys.argv[2]); "
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, os.path.relpath(folder, cwd), form],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("form", FORMS)
def test_a_report_is_the_same_bytes_anywhere(tmp_path: Path, folder: Path, form: str) -> None:
    """The order on disk, the folder it is made in, locale, time zone and hash seed differ."""
    again = tmp_path / "elsewhere" / "again"
    for run in sorted(folder.iterdir(), reverse=True):
        shutil.copytree(run, again / run.name)
    here = digest(folder, form, cwd=tmp_path, TZ="UTC", LC_ALL="C", PYTHONHASHSEED="1")
    there = digest(
        again,
        form,
        cwd=again.parent,
        TZ="Asia/Kathmandu",
        LC_ALL="C.UTF-8",
        PYTHONHASHSEED="2",
    )
    own = hashlib.sha256(report_text([folder], form=form).encode()).hexdigest()
    assert here == there == own


def test_every_form_has_an_end_of_its_own() -> None:
    assert ENDS.keys() == FORMS.keys()
    assert len(set(ENDS.values())) == len(ENDS)


@pytest.mark.parametrize("form", FORMS)
def test_a_masked_report_of_any_form_names_no_machine(tmp_path: Path, form: str) -> None:
    scenario = Scenario(
        run_id="run-a",
        host="db7.corp.example",
        serial="S4EVNX0R900001",
        path="/mnt/secret lab/ssd",
        seconds=1.0,
        virtual=False,
        power="measured",
        remarks=("On db7 the log is in /home/alice/log.txt.",),
    )
    folder = write_run(tmp_path, scenario)
    text = report_text([folder], form=form, redact=True)
    for secret in SECRETS:
        assert secret not in text, secret
    clear = hashlib.sha256((folder / "record.json").read_bytes()).hexdigest()
    assert clear not in text
    if form in ("html", "json"):
        assert "target.path=path-1" in text


def test_garbage_is_searched_as_before(folder: Path) -> None:
    assert gc.isenabled()
    report_text([folder], form="csv")
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_report_that_cannot_be_written_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"no-folder/page\.html can't be written"):
        write_whole("text", tmp_path / "no-folder" / "page.html")
    with pytest.raises(TargetError, match="can't be written"):
        write_whole("text", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_replaces_the_one_before_whole(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    assert write_whole("new", page) == page
    assert page.read_text() == "new"
    assert list(tmp_path.iterdir()) == [page]
