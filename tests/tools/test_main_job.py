"""The main job runs what it can, and always leaves the page of what it ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import main_job

pytestmark = pytest.mark.slow


def job(folder: Path, target: Path) -> int:
    return main_job.main(
        [
            *("--target", str(target), "--scale", "demo"),
            *("--label", "A", "--runs", str(folder / "runs")),
        ]
    )


def test_the_job_ends_with_a_page_of_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main_job, "WORKLOADS", ("null", "checkpoint"))
    assert job(tmp_path, tmp_path) == 0
    said = capfd.readouterr().out
    page = tmp_path / "runs" / "report.html"
    assert page.as_uri() in said
    assert str(tmp_path) in said
    for run in (tmp_path / "runs").glob("*/record.json"):
        assert run.parent.name in page.read_text()


def test_a_missing_target_is_refused_before_anything_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert job(tmp_path, tmp_path / "nowhere") == 2
    assert "nowhere" in capfd.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_what_ran_before_a_failure_gets_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main_job, "WORKLOADS", ("null", "nosuch", "checkpoint"))
    assert job(tmp_path, tmp_path) == 2
    assert (tmp_path / "runs" / "report.html").exists()
    assert "nosuch" in capfd.readouterr().err


def test_the_default_target_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main_job, "WORKLOADS", ("null",))
    assert job(tmp_path, Path(main_job.DEFAULT_TARGET)) == 0
    assert (tmp_path / "target").is_dir()
