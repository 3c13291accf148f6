"""Data folders, and their manifests: a line is on the disk whole, or the caller gets an error."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tinyfs import fail_all_access, tiny_file_system
from wattload.core.errors import DataError, TargetError
from wattload.loaders.data.data_folder import (
    DataFolder,
    ManifestEntry,
    ManifestPart,
    list_folders,
    read_parts,
)
from wattload.loaders.data.target_folder import clean, foreign_paths

PARAMETERS = {"file_count": 2, "sizes": [1, 2]}


def claim(target: Path, *, part: int = 0, seed: int = 1, **changed: object) -> DataFolder:
    return DataFolder.claim(target, "unet3d", PARAMETERS | changed, seed=seed, part=part)


def put(folder: DataFolder, name: str, content: bytes = b"data") -> Path:
    path = folder.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    folder.record(name, len(content), None)
    return path


def test_folder_is_named_after_workload_and_parameters(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    assert re.fullmatch(r"unet3d-[0-9a-f]{12}", folder.key)
    assert folder.path == tmp_path / "wattload-data" / folder.key
    assert claim(tmp_path).key == folder.key
    assert claim(tmp_path, file_count=3).key != folder.key
    assert claim(tmp_path, seed=2).key != folder.key


def test_equal_parameters_in_another_order_are_the_same_folder(tmp_path: Path) -> None:
    one = DataFolder.claim(tmp_path, "w", {"a": 1, "b": (1, 2)}, seed=0)
    two = DataFolder.claim(tmp_path, "w", {"b": (1, 2), "a": 1}, seed=0)
    assert one.key == two.key


def test_reopened_folder_knows_its_files(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "train/a.npz", b"12345")
    folder.record("b", 7, "ab" * 32)
    again = claim(tmp_path)
    assert again.entries["train/a.npz"].size_bytes == 5
    assert again.entries["b"].sha256 == "ab" * 32
    assert again.is_valid("train/a.npz")
    assert not again.is_valid("b")  # listed, and not there
    assert not again.is_valid("c")  # not listed


def test_a_file_of_another_size_is_not_valid(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    path = put(folder, "a", b"12345")
    path.write_bytes(b"123456")
    assert not folder.is_valid("a")
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert not folder.is_valid("a")


def test_ranks_write_parts_and_see_each_other_after_reload(tmp_path: Path) -> None:
    first, second = claim(tmp_path), claim(tmp_path, part=1)
    put(first, "a")
    put(second, "b")
    assert set(second.entries) == {"b"}
    second.reload()
    assert set(second.entries) == {"a", "b"}


def test_seal_holds_until_the_list_changes(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a")
    assert not folder.sealed
    folder.seal()
    assert folder.sealed
    assert claim(tmp_path).sealed
    put(folder, "b")
    assert not folder.sealed
    folder.seal()
    folder.discard("a")
    assert not claim(tmp_path).sealed


def test_torn_last_line_counts_as_not_written(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a")
    folder.close()
    part = folder.path / ".wattload-manifest-0.jsonl"
    with part.open("a") as file:
        file.write('{"name": "b", "size_by')
    again = claim(tmp_path)
    assert set(again.entries) == {"a"}
    put(again, "c")
    assert set(claim(tmp_path).entries) == {"a", "c"}


def test_an_error_of_the_drive_names_the_manifest(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as target:
        folder = claim(target)
        folder.reserve("a")
        fail_all_access(target)
        with pytest.raises(OSError, match="Input/output error") as raised:
            folder.reserve("b")
        folder.close()
    assert Path(raised.value.filename).parent == folder.path


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"name": "a"}',
        "[" * 100_000,
        '{"name": "a", "size_bytes": "4", "sha256": null}',
        '{"name": "../a", "size_bytes": 4, "sha256": null}',
        '{"name": "/etc/passwd", "size_bytes": 4, "sha256": null}',
    ],
)
def test_a_line_that_is_none_is_an_error_that_names_it(tmp_path: Path, line: str) -> None:
    folder = claim(tmp_path)
    put(folder, "a")
    with (folder.path / ".wattload-manifest-0.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"manifest-0\.jsonl, line 2"):
        claim(tmp_path)


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="not the name of a file"):
        claim(tmp_path).record(name, 1, None)


@pytest.mark.parametrize("name", [".wattload-marker.json", ".wattload-manifest-3.jsonl"])
def test_our_own_files_are_no_data(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="reserved for the folder"):
        claim(tmp_path).reserve(name)


def test_remove_frees_the_listed_bytes_and_leaves_the_target(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a/b/c", b"x" * 100)
    put(folder, "d", b"x" * 11)
    folder.seal()
    assert folder.remove() == 111
    assert not folder.path.exists()
    assert tmp_path.is_dir()
    assert (tmp_path / "wattload-data").is_dir()


def test_remove_takes_reserved_torsos_too(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    folder.reserve("torso")
    (folder.path / "torso").write_bytes(b"half")
    assert not folder.is_valid("torso")
    assert claim(tmp_path).reserved == {"torso"}
    assert claim(tmp_path).remove() == 4
    assert not folder.path.exists()


def test_a_reserved_file_becomes_an_entry_when_recorded(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a")
    folder.reserve("a")
    assert not claim(tmp_path).is_valid("a")
    folder.record("a", 4, None)
    again = claim(tmp_path)
    assert again.is_valid("a")
    assert again.reserved == set()


def test_foreign_files_stay_and_are_named(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "train/a", b"ours")
    (folder.path / "train" / "letter.txt").write_text("mine")
    (folder.path / "photos").mkdir()
    (folder.path / "photos" / "p.jpg").write_text("mine")
    assert folder.foreign() == ("photos/", "photos/p.jpg", "train/letter.txt")
    assert folder.remove() == 4
    assert (folder.path / "train" / "letter.txt").read_text() == "mine"
    assert (folder.path / "photos" / "p.jpg").exists()
    assert folder.foreign() == ("photos/", "photos/p.jpg", "train/", "train/letter.txt")
    assert claim(tmp_path).entries == {}  # still ours, and empty


def test_no_link_is_followed_on_removal(tmp_path: Path) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (outside / "a").write_text("precious")
    folder = claim(target)
    for name in ("link", "sub/a"):
        put(folder, name)
    (folder.path / "link").unlink()
    (folder.path / "link").symlink_to(outside / "a")
    (folder.path / "sub" / "a").unlink()
    (folder.path / "sub").rmdir()
    (folder.path / "sub").symlink_to(outside)
    assert folder.remove() == 0
    assert (outside / "a").read_text() == "precious"
    assert folder.foreign() == ("link", "sub")


def test_a_listed_name_that_became_a_folder_stays(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a").unlink()
    (folder.path / "a").mkdir()
    (folder.path / "a" / "mine").write_text("mine")
    with pytest.raises(DataError, match="no longer a regular file"):
        folder.discard("a")
    folder.remove()
    assert (folder.path / "a" / "mine").read_text() == "mine"


def test_discard_removes_one_listed_file_only(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a", b"123")
    put(folder, "b")
    (folder.path / "c").write_text("foreign")
    assert folder.discard("a") == 3
    assert set(claim(tmp_path).entries) == {"b"}
    with pytest.raises(DataError, match="not listed"):
        folder.discard("c")
    assert (folder.path / "c").exists()
    (folder.path / "b").unlink()
    assert folder.discard("b") == 0


@pytest.mark.parametrize(
    "marker",
    [
        None,
        "",
        "{}",
        "[1]",
        "not json",
        "[" * 100_000,
        '{"made_by": "somebody", "format": 1}',
        '{"made_by": "wattload", "format": 99}',
    ],
)
def test_a_folder_of_somebody_else_is_refused_and_kept(tmp_path: Path, marker: str | None) -> None:
    folder = claim(tmp_path)
    path = put(folder, "a")
    folder.close()
    file = folder.path / ".wattload-marker.json"
    file.unlink()
    if marker is not None:
        file.write_text(marker)
    with pytest.raises(DataError, match="was not created by wattload"):
        claim(tmp_path)
    with pytest.raises(DataError, match="nothing in it is removed"):
        folder.remove()
    assert clean(tmp_path).freed_bytes == 0
    assert foreign_paths(tmp_path) == (folder.path,)
    assert path.read_bytes() == b"data"


def test_a_folder_made_with_other_parameters_is_refused(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    file = folder.path / ".wattload-marker.json"
    changed = json.loads(file.read_text()) | {"parameters": {"file_count": 9}}
    file.write_text(json.dumps(changed))
    with pytest.raises(DataError, match=r"other parameters \(its parameters differ\)"):
        claim(tmp_path)


def test_a_marker_copied_elsewhere_gives_no_right(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    other = tmp_path / "wattload-data" / "other"
    other.mkdir()
    (other / ".wattload-marker.json").write_text(
        (folder.path / ".wattload-marker.json").read_text()
    )
    (other / ".wattload-manifest-0.jsonl").write_text(
        '{"name": "mine", "size_bytes": 4, "sha256": null}\n'
    )
    (other / "mine").write_text("mine")
    clean(tmp_path)
    assert (other / "mine").read_text() == "mine"
    assert foreign_paths(tmp_path) == (other,)


def test_a_pipe_in_place_of_a_marker_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a")
    (folder.path / ".wattload-marker.json").unlink()
    os.mkfifo(folder.path / ".wattload-marker.json")
    with pytest.raises(DataError, match="is a pipe"):
        claim(tmp_path)
    with pytest.raises(DataError, match="nothing in it is removed"):
        folder.remove()
    assert foreign_paths(tmp_path) == (folder.path,)


def test_a_pipe_in_place_of_a_seal_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder, name = claim(tmp_path), ".wattload-sealed.json"
    os.mkfifo(folder.path / name)
    with pytest.raises(DataError, match="is a pipe"):
        folder.seal()
    with pytest.raises(DataError, match="is a pipe"):
        assert not folder.sealed
    assert clean(tmp_path).left == (folder.path / name,)


def test_a_broken_manifest_is_an_error_to_its_own_folder_only(tmp_path: Path) -> None:
    broken, whole = claim(tmp_path), claim(tmp_path, file_count=9)
    put(whole, "a")
    (broken.path / ".wattload-manifest-0.jsonl").write_text("no line\n")
    found = {folder.key: folder for folder in list_folders(tmp_path)}
    assert found[whole.key].is_valid("a")
    for name in ("entries", "reserved"):
        with pytest.raises(DataError, match="invalid manifest line"):
            getattr(found[broken.key], name)
    with pytest.raises(DataError, match="invalid manifest line"):
        found[broken.key].record("b", 1, None)  # nothing is added to what can't be read


def test_an_interrupted_claim_is_taken_up_again(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    left = folder.path / "..wattload-marker.json.01234567.tmp"
    (folder.path / ".wattload-marker.json").rename(left)
    assert claim(tmp_path).key == folder.key
    assert clean(tmp_path).left == ()


def test_links_in_place_of_our_folders_are_refused(tmp_path: Path) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "wattload-data").symlink_to(outside)
    with pytest.raises(DataError, match="is a symbolic link"):
        claim(target)
    assert clean(target).freed_bytes == 0
    assert list_folders(target) == ()
    assert foreign_paths(target) == (target / "wattload-data",)
    assert list(outside.iterdir()) == []


def test_a_manifest_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text("")
    (folder.path / ".wattload-manifest-0.jsonl").symlink_to(outside)
    with pytest.raises(DataError, match="is a symbolic link"):
        claim(tmp_path)
    with pytest.raises(DataError, match="is a symbolic link"):
        folder.record("a", 1, None)
    assert outside.read_text() == ""


def test_clean_empties_all_our_folders_and_nothing_else(tmp_path: Path) -> None:
    put(claim(tmp_path), "a", b"12")
    put(claim(tmp_path, file_count=9), "b", b"345")
    (tmp_path / "mine").write_text("mine")
    assert len(list_folders(tmp_path)) == 2
    assert foreign_paths(tmp_path) == ()
    assert clean(tmp_path).freed_bytes == 5
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert clean(tmp_path).freed_bytes == 0
    assert foreign_paths(tmp_path) == ()


def test_clean_keeps_the_data_folder_where_something_foreign_lies_in_it(tmp_path: Path) -> None:
    put(claim(tmp_path), "a")
    mine = tmp_path / "wattload-data" / "mine"
    mine.write_text("mine")
    clean(tmp_path)
    assert foreign_paths(tmp_path) == (mine,)


def test_a_missing_target_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is not a directory"):
        claim(tmp_path / "none")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_unwritable_target_is_one_sentence(tmp_path: Path) -> None:
    for folder in tmp_path.parents:
        folder.chmod(folder.stat().st_mode | 0o055)
    tmp_path.chmod(0o555)
    os.seteuid(65534)
    try:
        with pytest.raises(TargetError, match="can't hold data: Permission denied"):
            claim(tmp_path)
    finally:
        os.seteuid(0)


def test_parameters_must_be_plain_values(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not plain values"):
        claim(tmp_path, file_count=object())


KILLED = """
import os, sys
from pathlib import Path
from wattload.loaders.data.data_folder import DataFolder
folder = DataFolder.claim(Path(sys.argv[1]), "w", {}, seed=0)
for number in range(1000):
    name = f"train/{number}"
    folder.reserve(name)
    path = folder.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * 5000)
    folder.record(name, 5000, None)
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_nothing_that_clean_would_miss(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        for _ in range(5):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0)
    assert len(folder.entries) >= 5
    assert all(folder.is_valid(name) for name in folder.entries)
    assert folder.foreign() == ()
    clean(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_emptied_folder_stays_ours(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    put(folder, "a", b"12345")
    folder.seal()
    put(claim(tmp_path, part=1), "b", b"1")
    assert folder.empty() == 6
    assert [path.name for path in folder.path.iterdir()] == [".wattload-marker.json"]
    assert not folder.sealed
    put(folder, "c")
    assert set(claim(tmp_path).entries) == {"c"}


PART = ".wattload-manifest-0.jsonl"


@pytest.fixture
def small_target(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    target = tmp_path / "small"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(target)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine mounts no tmpfs")
    try:
        yield target
    finally:
        subprocess.run(["umount", str(target)], check=True)


def reserve_many(folder: DataFolder, accepted: set[str]) -> None:
    for number in range(10_000):
        folder.reserve(f"train/{number:05}")
        accepted.add(f"train/{number:05}")


def test_on_a_full_target_what_was_accepted_is_listed_and_nothing_else(small_target: Path) -> None:
    folder = DataFolder.claim(small_target, "w", {}, seed=0)
    accepted: set[str] = set()
    with pytest.raises(OSError, match="manifest-0") as refusal:
        reserve_many(folder, accepted)
    assert refusal.value.errno == errno.ENOSPC
    assert len(accepted) > 100
    assert folder.reserved == accepted
    assert read_parts(folder.path) == ({}, accepted)
    assert (folder.path / PART).read_bytes().endswith(b"\n")
    with pytest.raises(OSError, match="No space"):
        folder.reserve("train/99999")
    folder.close()
    again = DataFolder.claim(small_target, "w", {}, seed=0)
    assert again.reserved == accepted
    assert again.remove() == 0


LIMITED = """
import resource, sys
from pathlib import Path
from wattload.loaders.data.data_folder import ManifestPart
part, accepted = ManifestPart(Path(sys.argv[1]), 0), 0
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    while True:
        part.reserve([f"a{accepted}"])
        accepted += 1
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    part.reserve(["after"])
    print(accepted)
"""


def test_a_line_that_was_cut_short_is_taken_back_and_the_next_is_whole(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0).path
    command = [sys.executable, "-c", LIMITED, str(folder)]
    accepted = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert accepted > 10
    names = {f"a{number}" for number in range(accepted)} | {"after"}
    assert read_parts(folder) == ({}, names)


@pytest.mark.parametrize("torn", ['{"name": "b"', "{"])
def test_a_tail_that_was_torn_while_the_part_is_open_is_cut_off(tmp_path: Path, torn: str) -> None:
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0).path
    part = ManifestPart(folder, 0)
    part.append({"a": ManifestEntry(size_bytes=1, sha256=None)})
    with (folder / PART).open("a") as file:
        file.write(torn)
    part.reserve(["c"])
    part.close()
    entries, reserved = read_parts(folder)
    assert (set(entries), reserved) == ({"a"}, {"c"})


def test_a_pipe_in_place_of_a_part_is_an_error(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0)
    os.mkfifo(folder.path / PART)
    with pytest.raises(DataError, match="is a pipe"):
        folder.reserve("a")
    assert folder.reserved == set()
    with pytest.raises(DataError, match="is a pipe"):
        folder.reload()
