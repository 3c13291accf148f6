"""Paths that a container prints exist on its host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wattload.core.host_paths import VARIABLE, allow_writing, on_host

MOUNTS = "/target=/mnt/ssd:/wattload/runs=runs"


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/wattload/runs/20261122-null-A/record.json", "runs/20261122-null-A/record.json"),
        ("/target", "/mnt/ssd"),
        ("/target2/x", "/target2/x"),
        ("/tmp/report.html", "/tmp/report.html"),
    ],
)
def test_a_path_below_a_mount_is_that_of_the_host(
    monkeypatch: pytest.MonkeyPatch, inside: str, outside: str
) -> None:
    monkeypatch.setenv(VARIABLE, MOUNTS)
    assert on_host(Path(inside)) == Path(outside)


def test_on_the_host_itself_paths_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert on_host(Path("runs/a")) == Path("runs/a")


def test_a_folder_of_another_user_comes_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    owner = tmp_path.stat()
    monkeypatch.delenv(VARIABLE, raising=False)
    assert allow_writing(tmp_path) == f"run `chmod u+rwx {tmp_path}`"
    own = f"{owner.st_uid + 1}:{os.getegid()}"
    monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid + 1)
    assert allow_writing(tmp_path) == f"run `sudo chown {own} {tmp_path}`"
    monkeypatch.setenv(VARIABLE, f"{tmp_path}=target")
    assert allow_writing(tmp_path) == (
        f"run `sudo chown {own} target`, or start the container with UID={owner.st_uid} "
        f"GID={owner.st_gid}"
    )
