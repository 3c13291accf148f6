"""Whether hosts share a folder: threads are the leaders of hosts, folders their drives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import ThreadCommunicator, run_ranks
from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage.targets import Target, resolve_targets
from wattload.run.compose import compose
from wattload.run.config import TargetConfig
from wattload.run.target_sharing import prove_sharing

HOSTS = ("a", "b", "c")


def target_in(folder: Path, **system: Any) -> Target:
    """Return the target in a folder, whose file system has these facts instead of its own."""
    folder.mkdir(exist_ok=True)
    (target,) = resolve_targets([folder], host="box", try_direct_io=False)
    assert target.facts.file_system is not None
    found = target.facts.file_system.model_copy(update={"is_root": False, **system})
    return replace(target, facts=target.facts.model_copy(update={"file_system": found}))


def config_of(*overrides: str) -> TargetConfig:
    return compose(["workload=null", "target.path=/tmp", *overrides])[0].target


def prove(config: TargetConfig, targets: Sequence[Target | None]) -> list[TargetError | None]:
    """Return what the leader of each host raises, by host; one without a target takes part."""

    def proved(leader: ThreadCommunicator) -> TargetError | None:
        target = targets[leader.rank]
        try:
            prove_sharing(config, [] if target is None else [target], leader, HOSTS)
        except TargetError as error:
            return error
        return None

    return run_ranks(ThreadCommunicator.world(len(HOSTS)), proved)


@pytest.mark.parametrize("shared", [False, True])
def test_folders_that_are_as_stated_are_left_as_they_were(tmp_path: Path, shared: bool) -> None:
    folders = [tmp_path / ("a" if shared else host) for host in HOSTS]
    targets = [target_in(folder) for folder in folders]
    assert prove(config_of(f"target.shared={shared}"), targets) == [None] * 3
    assert [list(folder.iterdir()) for folder in folders] == [[]] * 3


def test_hosts_without_the_shared_folder_are_refused(tmp_path: Path) -> None:
    targets = [target_in(tmp_path / host) for host in HOSTS]
    first, *others = prove(config_of("target.shared=true"), targets)
    assert first is None
    assert [str(error) for error in others] == [
        f"{tmp_path}/{host} is not the folder that a sees, and target.shared=true means one for "
        "all hosts; mount the same file system on all, or use target.shared=false if each has a "
        "drive of its own"
        for host in "bc"
    ]


def test_hosts_that_see_one_folder_have_no_drives_of_their_own(tmp_path: Path) -> None:
    targets = [target_in(tmp_path / name) for name in ("a", "nfs", "nfs")]
    *others, last = prove(config_of(), targets)
    assert others == [None, None]
    assert str(last) == (
        f"{tmp_path}/nfs is the folder that b sees, and target.shared=false means a drive of its "
        "own for each host; use target.shared=true for a shared file system"
    )


@pytest.mark.parametrize("shared", [False, True])
def test_hosts_are_compared_without_those_that_have_found_a_fault(
    tmp_path: Path, shared: bool
) -> None:
    """The first one can't write to its target, or has found none."""
    full = target_in(tmp_path / "full")
    full.path.rmdir()
    config = config_of(f"target.shared={shared}")
    for first in (None, full):
        targets = [first, *(target_in(tmp_path / host) for host in HOSTS[1:])]
        why, second, third = prove(config, targets)
        assert (why is None) == (first is None)
        assert second is None
        assert (third is None) != shared
        assert "is not the folder that b sees" in str(third) or not shared


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ([{"is_root": host == "b"} for host in HOSTS], "{path} is on the root file system"),
        (
            [{"mount_point": "/mnt" if host == "b" else "/mnt/drive"} for host in HOSTS],
            "no drive is mounted at /mnt/drive, where a has one",
        ),
    ],
    ids=["root", "shallower"],
)
def test_a_folder_where_no_drive_is_mounted_is_refused_unless_allowed(
    tmp_path: Path, systems: list[dict[str, Any]], message: str
) -> None:
    targets = [
        target_in(tmp_path / host, **system) for host, system in zip(HOSTS, systems, strict=True)
    ]
    first, second, third = prove(config_of(), targets)
    assert (first, third) == (None, None)
    assert str(second) == message.format(path=tmp_path / "b") + (
        "; mount the drive under test, or use target.allow_unmounted=true"
    )
    assert prove(config_of("target.allow_unmounted=true"), targets) == [None] * 3


def test_the_root_file_system_of_all_hosts_is_no_shared_folder(tmp_path: Path) -> None:
    targets = [target_in(tmp_path, is_root=True) for _ in HOSTS]
    assert {str(error) for error in prove(config_of(), targets)} == {
        f"{tmp_path} is on the root file system; mount the drive under test, or use "
        "target.allow_unmounted=true"
    }


@pytest.mark.parametrize(
    ("overrides", "used"),
    [
        (["target.shared=true"], "target.shared=true names a shared one"),
        (["target=block", "workload=random_write"], "a device is used"),
    ],
)
def test_only_a_drive_of_each_host_may_be_unmounted(overrides: list[str], used: str) -> None:
    with pytest.raises(ConfigError, match=f"and here {used}; leave it out"):
        config_of(*overrides, "target.allow_unmounted=true")
