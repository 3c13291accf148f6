"""Paths that a container prints exist on its host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wattload.core.host_paths import (
    VARIABLE,
    allow_writing,
    in_container,
    in_words_of_host,
    is_lost,
    on_host,
)

MOUNTS = "/target=/mnt/ssd\n/wattload/runs=runs"


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


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/target is full; free space", "/mnt/ssd is full; free space"),
        ("run `chmod go-w /target/wattload-data`.", "run `chmod go-w /mnt/ssd/wattload-data`."),
        ("(/target): /wattload/runs/a, target=/target.", "(/mnt/ssd): runs/a, target=/mnt/ssd."),
        ('{"path": "/target"}', '{"path": "/mnt/ssd"}'),
        ("/mnt/target /target2 /target.old ~/target --volume /a:/target", None),
        ("/mnt/ssd/wattload-data", None),
        (
            "\x1b[2mtarget \x1b[0m/target \x1b[1;33m/target",
            "\x1b[2mtarget \x1b[0m/mnt/ssd \x1b[1;33m/mnt/ssd",
        ),
    ],
)
def test_whatever_is_printed_names_paths_of_the_host(
    monkeypatch: pytest.MonkeyPatch, inside: str, outside: str | None
) -> None:
    monkeypatch.setenv(VARIABLE, MOUNTS)
    assert in_words_of_host(inside) == (outside or inside)
    monkeypatch.delenv(VARIABLE)
    assert in_words_of_host(inside) == inside


def test_relative_paths_are_those_below_a_mounted_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/runs=/srv/a")
    assert in_words_of_host("2 runs: runs/x, ./runs") == "2 runs: /srv/a/x, ./runs"


@pytest.mark.parametrize(
    ("typed", "inside"),
    [
        ("target.path=/mnt/ssd/a", "target.path=/target/a"),
        ("/mnt/ssd", "/target"),
        ("target.path=[/mnt/ssd,/mnt/ssd2]", "target.path=[/target,/mnt/ssd2]"),
        ("runs/a", "runs/a"),
    ],
)
def test_arguments_may_name_paths_of_the_host(
    monkeypatch: pytest.MonkeyPatch, typed: str, inside: str
) -> None:
    monkeypatch.setenv(VARIABLE, MOUNTS)
    assert in_container(typed) == inside


def test_a_host_path_that_starts_as_one_inside_is_replaced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "/target=/target/ssd: a=b")
    assert in_words_of_host("/target/x") == "/target/ssd: a=b/x"
    assert in_words_of_host("/target/ssd: a=b/x") == "/target/ssd: a=b/x"


def test_only_mounted_folders_outlive_a_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost = Path("/missing/folder")
    assert not is_lost(lost), "not in a container"
    monkeypatch.setenv(VARIABLE, f"{tmp_path}=target")
    assert is_lost(lost)
    assert not is_lost(tmp_path / "missing")


def test_all_output_of_a_command_is_translated(tmp_path: Path) -> None:
    environment = {**os.environ, VARIABLE: f"{tmp_path}=/mnt/a b"}
    command = [sys.executable, "-m", "wattload", "clean"]
    done = subprocess.run(
        [*command, "/mnt/a b"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "/mnt/a b has no data of wattload\n"
    missing = [*command, str(tmp_path / "missing")]
    done = subprocess.run(missing, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "/mnt/a b/missing" in done.stderr
    assert str(tmp_path) not in done.stderr


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
        f"run `sudo chown {own} target`, or put `env UID={owner.st_uid} GID={owner.st_gid}` "
        "before docker compose"
    )
