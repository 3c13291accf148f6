"""``wattload sampler`` as its administrator starts it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.power.sampler_bench import ROOT, wait_for
from wattload import __version__
from wattload.cli.sampler import add_arguments

UNIT = ROOT / "docs" / "wattload-sampler.service"


@contextmanager
def sampler(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "wattload", "sampler", "--socket", str(tmp_path / "socket"),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WATTLOAD_STATE_DIR": str(tmp_path / "state"),
        },
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ready(tmp_path: Path, process: subprocess.Popen[str]) -> Path:
    path = tmp_path / "socket"
    wait_for(lambda: path.exists() or process.poll() is not None)
    return path


def failed(tmp_path: Path, *options: str) -> tuple[int, str]:
    with sampler(tmp_path, *options) as process:
        _, error = process.communicate(timeout=60)
    assert process.returncode is not None
    return process.returncode, error


def test_it_reports_what_it_serves_and_ends_with_a_signal(tmp_path: Path) -> None:
    with sampler(tmp_path, "--group", str(os.getgid()), "--device", "nvme99") as process:
        path = ready(tmp_path, process)
        process.terminate()
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert f"wattload sampler {__version__}, as user" in out
    assert f"socket       {path}\n" in out
    assert f"user {os.geteuid()}, group {os.getgid()}\n" in out
    assert str(tmp_path / "state") in out
    assert "controllers  none on this host" in out
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--group", "no such group"), "groupadd --system"),
        (("label=x",), "a sampler takes settings of power only (power.KEY=VALUE), got 'label=x'"),
        (("power.no=1",), "power.no"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    status, error = failed(tmp_path, *options)
    assert status == 2
    assert words in error
    assert "Traceback" not in error


def test_state_folder_that_others_may_write_to_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    status, error = failed(tmp_path)
    assert status == 1
    assert "may be written by other users (mode 0777)" in error
    assert len(error.splitlines()) == 1


def test_unit_permits_no_mount_and_few_capabilities() -> None:
    lines = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if line[:1].isalpha())
    assert lines["SystemCallFilter"].startswith("~@mount ")
    assert lines["NoNewPrivileges"] == lines["RestrictNamespaces"] == "yes"
    assert lines["CapabilityBoundingSet"] == "CAP_SYS_ADMIN"
    assert lines["Group"] in lines["ExecStart"]


def test_profile_of_the_container_permits_no_mount() -> None:
    profile = json.loads((ROOT / "docker" / "sampler-seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    rules = (rule for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW")
    allowed = {name for rule in rules for name in rule["names"]}
    forbidden = {
        "setns",
        "chroot",
        "mount",
        "umount2",
        "move_mount",
        "fsmount",
        "open_tree",
        "pivot_root",
        "unshare",
    }
    assert forbidden.isdisjoint(allowed)


def test_profile_of_runs_permits_io_uring_and_otherwise_little_more() -> None:
    """A library that gets EPERM from clone3 starts no thread; ENOSYS lets it use clone."""
    run, sampler = (
        json.loads((ROOT / "docker" / f"{name}-seccomp.json").read_text())
        for name in ("run", "sampler")
    )
    ordinary, *others = run["syscalls"]
    added = set(ordinary["names"]) - set(sampler["syscalls"][0]["names"])
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register", "mincore"} <= added
    assert added.isdisjoint({"mount", "setns", "unshare", "bpf", "ptrace", "keyctl", "clone3"})
    assert others == sampler["syscalls"][1:]
    assert {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38} in others


def test_example_of_a_unit_starts_what_there_is() -> None:
    (line,) = [each for each in UNIT.read_text().splitlines() if each.startswith("ExecStart=")]
    program, command, *options = shlex.split(line.removeprefix("ExecStart="))
    assert (Path(program).name, command) == ("wattload", "sampler")
    parser = ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args(options)
    assert arguments.group


def test_help_is_quick_to_import() -> None:
    """No run waits for it, but whoever asks for help does: nothing heavy may be loaded."""
    finished = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "wattload", "sampler", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert "--allow-system-drive" in finished.stdout
    loaded = {line.rsplit("|", 1)[-1].strip() for line in finished.stderr.splitlines()}
    assert loaded.isdisjoint({"torch", "pyarrow", "pydantic", "hydra", "numpy"})
