"""Versions, and the commit where there is one."""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from wattload import __version__
from wattload.core.host import software, software_facts


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_versions_are_those_of_the_environment() -> None:
    facts = software_facts()
    assert facts.wattload == __version__
    assert facts.libraries["numpy"] == version("numpy")
    assert "no-such-library" not in facts.libraries


def test_a_clean_checkout_gives_its_commit(checkout: Path) -> None:
    facts = software_facts(checkout)
    assert facts.git_commit == git(checkout, "rev-parse", "HEAD")
    assert facts.git_dirty is False


def test_a_changed_file_makes_a_checkout_dirty(checkout: Path) -> None:
    (checkout / "file").write_text("two")
    assert software_facts(checkout).git_dirty is True


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    facts = software_facts(tmp_path)
    assert facts.git_commit is None
    assert facts.missing["git_dirty"] == "this wattload is not run from a git checkout"


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert software_facts(checkout).missing["git_commit"] == "git is not installed"


def test_a_checkout_without_commit_says_what_git_said(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert software_facts(tmp_path).missing["git_commit"].startswith("git: ")


def test_a_git_that_can_not_be_started_is_a_reason(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_bytes(b"\x7fELF broken")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(fake.parent))
    assert software_facts(checkout).missing["git_commit"].startswith("git: ")


def test_a_git_that_hangs_is_a_reason(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(software, "_GIT_TIMEOUT_S", 0.05)
    assert "timed out" in software_facts(checkout).missing["git_commit"]
