"""Users without a home, and folders for temporary files whose paths are too long for sockets."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.run.running import ROOT
from wattload.core import home
from wattload.core.errors import ConfigError, ForeignFileError
from wattload.core.home import expanded, shorten_temporary_folder, user_folder

SHARES = """
from multiprocessing.connection import Listener
if {shortens}:
    from wattload.core.home import shorten_temporary_folder
    shorten_temporary_folder()
Listener(family="AF_UNIX").close()
"""
"""What torch does to hand a tensor from one process to another."""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take this user's home away, and return its stand-in."""
    monkeypatch.setattr(home, "STAND_INS", (tmp_path / "missing/missing", tmp_path))
    monkeypatch.setenv("HOME", "no/absolute/path")
    return tmp_path / f"wattload-{os.geteuid()}"


def test_a_user_without_a_home_gets_a_private_folder(stand_in: Path) -> None:
    folder = user_folder("XDG_STATE_HOME", ".local/state", {})
    assert folder == stand_in / ".local/state/wattload"
    assert stand_in.stat().st_mode & 0o777 == 0o700
    assert user_folder("XDG_STATE_HOME", ".local/state", {"XDG_STATE_HOME": "/x"}) == Path(
        "/x/wattload"
    )


def test_a_private_folder_that_others_can_change_is_refused(stand_in: Path) -> None:
    stand_in.symlink_to(stand_in.parent)
    with pytest.raises(ForeignFileError, match=r"has no home .* or set HOME or WATTLOAD_STATE_DIR"):
        user_folder("XDG_CACHE_HOME", ".cache", {})


def test_the_home_of_nobody_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"~no-such-user/x begins with ~no-such-user, but"):
        expanded("~no-such-user/x")
    assert expanded("./~no-such-user") == Path("./~no-such-user")


def long_folder(tmp_path: Path) -> Path:
    folder = tmp_path / ("t" * 80)
    folder.mkdir()
    return folder


@pytest.mark.parametrize("shortens", [False, True])
def test_sockets_fit_in_a_shortened_temporary_folder(tmp_path: Path, shortens: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHARES.format(shortens=shortens)],
        env={**os.environ, "TMPDIR": str(long_folder(tmp_path)), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("AF_UNIX path too long" in done.stderr) == (not shortens)
    assert (done.returncode == 0) == shortens


def test_a_temporary_folder_without_a_shorter_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = long_folder(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(home, "STAND_INS", (tmp_path / "missing",))
    with pytest.raises(ConfigError, match=r"TMPDIR=.* has \d+ bytes, .*which leaves 75; set TMPD"):
        shorten_temporary_folder()
    assert tempfile.gettempdir() == str(folder)
