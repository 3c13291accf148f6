"""``wattload clean``: frees what it safely can, and names what stays and why."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.second_user import as_other, need_second_user, shared_folder
from wattload.__main__ import main
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.data.target_folder import TargetLock

Captured = pytest.CaptureFixture[str]


def make(target: Path, workload: str, size_bytes: int = 1000) -> Path:
    folder = DataFolder.claim(target, workload, {}, seed=0)
    (folder.path / "data").write_bytes(b"x" * size_bytes)
    folder.record("data", size_bytes, None)
    folder.close()
    return folder.path


def break_manifest(folder: Path) -> None:
    (folder / ".wattload-manifest-0.jsonl").write_text("no line\n")


def test_a_target_without_data_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path} has no data of wattload\n"


def test_a_target_of_ours_alone_is_left_as_it_was_found(tmp_path: Path, capsys: Captured) -> None:
    make(tmp_path, "a")
    make(tmp_path, "b", 234)
    assert main(["clean", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"deleted 1.23 kB on {tmp_path}\n"
    assert captured.err == ""
    assert tmp_path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_target_without_data_stays_untouched(tmp_path: Path, capsys: Captured) -> None:
    assert main(["clean", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == []
    assert main(["clean", str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    assert main(["clean", f"target.path={tmp_path}"]) == 0
    assert capsys.readouterr().out == f"{tmp_path} has no data of wattload\n"


def test_what_is_not_ours_stays_and_is_named(tmp_path: Path, capsys: Captured) -> None:
    folder = make(tmp_path, "a")
    mine = [folder / "letter", tmp_path / "wattload-data" / "mine"]
    for path in mine:
        path.write_text("mine")
    assert main(["clean", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["2 entries left that wattload did not write:", *(f"  {p}" for p in mine)]
    assert all(path.read_text() == "mine" for path in mine)
    assert not (folder / "data").exists()
    assert not (tmp_path / "wattload-data" / ".wattload-lock").exists()


def test_at_most_ten_names_are_printed_and_the_rest_counted(
    tmp_path: Path, capsys: Captured
) -> None:
    folder = make(tmp_path, "a")
    for number in range(12):
        (folder / f"mine{number:02}").write_text("mine")
    assert main(["clean", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "12 entries left that wattload did not write:"
    assert len(lines) == 13
    assert lines[-2:] == [f"  {folder}/mine09", "  and 2 more"]


def test_a_name_that_a_terminal_would_act_on_is_escaped(tmp_path: Path, capsys: Captured) -> None:
    folder = make(tmp_path, "a")
    (folder / os.fsdecode(b"a\x1b[2J\n\xff")).write_text("mine")
    assert main(["clean", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "1 entry left that wattload did not write:"
    assert lines[2:] == [rf"  {folder}/a\x1b[2J\n\udcff"]


def test_a_folder_that_can_not_be_read_keeps_no_other_from_being_emptied(
    tmp_path: Path, capsys: Captured
) -> None:
    broken, whole = make(tmp_path, "a"), make(tmp_path, "b")
    break_manifest(broken)
    assert main(["clean", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == f"deleted 1.00 kB on {tmp_path}\n"
    assert captured.err.startswith(f"wattload: {broken}/.wattload-manifest-0.jsonl, line 1: inv")
    assert captured.err.count("\n") == 1
    assert not whole.exists()
    assert (broken / "data").exists()


def test_data_of_another_user_are_refused_with_both_users(capsys: Captured) -> None:
    need_second_user()
    with shared_folder() as target:
        folder = make(target, "a")

        def clean() -> None:
            assert main(["clean", str(target)]) == 2
            assert capsys.readouterr().err == (
                f"wattload: user {os.geteuid()} may not write to {target}/wattload-data, which "
                "belongs to user 0; run as a user who may, or choose another target\n"
            )

        as_other(clean)
        assert (folder / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file immutable")
def test_a_file_that_the_kernel_keeps_is_named_by_its_folder(
    tmp_path: Path, capsys: Captured
) -> None:
    kept, whole = make(tmp_path, "a"), make(tmp_path, "b")
    if subprocess.run(["chattr", "+i", str(kept / "data")], check=False).returncode:
        pytest.skip("this file system knows no immutable files")
    try:
        assert main(["clean", str(tmp_path)]) == 2
    finally:
        subprocess.run(["chattr", "-i", str(kept / "data")], check=True)
    expected = f"wattload: {kept} can't be emptied: Operation not permitted\n"
    assert capsys.readouterr().err == expected
    assert not whole.exists()


def test_json_has_all_names_and_reasons(tmp_path: Path, capsys: Captured) -> None:
    broken, folder = make(tmp_path, "a"), make(tmp_path, "b", 5)
    break_manifest(broken)
    for number in range(12):
        (folder / f"mine{number:02}").write_text("mine")
    assert main(["clean", "--json", str(tmp_path)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["freed_bytes"] == 5
    assert document["left"] == [f"{folder}/mine{number:02}" for number in range(12)]
    (failure,) = document["failed"]
    assert failure["path"] == str(broken)
    assert "invalid manifest line" in failure["reason"]


def test_a_target_that_a_run_works_on_is_not_cleaned(tmp_path: Path, capsys: Captured) -> None:
    folder = make(tmp_path, "a")
    with TargetLock.acquire(tmp_path):
        assert main(["clean", str(tmp_path)]) == 2
        assert f"(process {os.getpid()}); wait for it" in capsys.readouterr().err
        assert (folder / "data").exists()
    assert main(["clean", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_in_place_of_a_marker_does_not_hang_it(tmp_path: Path, capsys: Captured) -> None:
    folder, whole = make(tmp_path, "a"), make(tmp_path, "b")
    (folder / ".wattload-marker.json").unlink()
    os.mkfifo(folder / ".wattload-marker.json")
    assert main(["clean", str(tmp_path)]) == 0
    assert f"  {folder}\n" in capsys.readouterr().out
    assert (folder / "data").exists()
    assert not whole.exists()


def test_a_link_in_place_of_the_data_folder_is_left_and_named(
    tmp_path: Path, capsys: Captured
) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    make(outside, "a")
    (target / "wattload-data").symlink_to(outside / "wattload-data")
    assert main(["clean", str(target)]) == 0
    assert f"  {target}/wattload-data\n" in capsys.readouterr().out
    assert len(list((outside / "wattload-data").iterdir())) == 1
