from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wattload.core.errors import DataError
from wattload.core.files import Folder
from wattload.loaders.checkpoint_store import Saved, ShardFile
from wattload.workloads.checkpoint import storage as commit_module
from wattload.workloads.checkpoint.storage import (
    Manifest,
    commit_checkpoint,
    complete_checkpoints,
    partial_name,
    read_manifest,
)


def write_partial(parent: Path, number: int = 7) -> dict[int, Saved]:
    partial = parent / partial_name(number)
    partial.mkdir()
    saved = {}
    for rank in (0, 1):
        name = f"rank-{rank}.bin"
        (partial / name).write_bytes(b"x" * (100 + rank))
        file = ShardFile(name=name, payload_bytes=100 + rank)
        saved[rank] = Saved(files=(file,), cpu_s=0.1)
    return saved


def committed(parent: Path, number: int = 7) -> Manifest:
    saved = write_partial(parent, number)
    return commit_checkpoint(
        parent, model="8b", checkpoint=number, nonce=(1 << 64) - 1, saved=saved
    )


def test_a_committed_checkpoint_reads_back_as_it_was_written(tmp_path: Path) -> None:
    manifest = committed(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000007"]
    found = read_manifest(tmp_path / "checkpoint-000007")
    assert found.files == {rank: list(files) for rank, files in manifest.files.items()}
    assert found.file_bytes == {"rank-0.bin": 100, "rank-1.bin": 101}
    assert (found.model, found.checkpoint, found.nonce) == ("8b", 7, (1 << 64) - 1)
    assert found.identity(1).word == 1 << 32 | 7


def test_complete_checkpoints_come_oldest_first(tmp_path: Path) -> None:
    for number in (12, 3):
        committed(tmp_path, number)
    write_partial(tmp_path, 13)
    names = [path.name for path in complete_checkpoints(tmp_path)]
    assert names == ["checkpoint-000003", "checkpoint-000012"]


def test_a_partial_folder_is_no_checkpoint_even_with_a_manifest(tmp_path: Path) -> None:
    committed(tmp_path)
    folder = tmp_path / "checkpoint-000007"
    folder.rename(tmp_path / partial_name(7))
    with pytest.raises(DataError, match="never finished"):
        read_manifest(tmp_path / partial_name(7))
    assert complete_checkpoints(tmp_path) == []


def no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def torn_manifest(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 200)


def edited_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"rank-0.bin": 100', '"rank-0.bin": 99'))


def other_format(folder: Path) -> None:
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    document["body"]["format"] += 1
    path.write_text(json.dumps(document))


def missing_file(folder: Path) -> None:
    (folder / "rank-1.bin").unlink()


def short_file(folder: Path) -> None:
    os.truncate(folder / "rank-1.bin", 50)


@pytest.mark.parametrize(
    "damage",
    [no_manifest, torn_manifest, edited_manifest, other_format, missing_file, short_file],
)
def test_a_damaged_folder_is_no_checkpoint(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    committed(tmp_path)
    folder = tmp_path / "checkpoint-000007"
    damage(folder)
    with pytest.raises(DataError, match="checkpoint-000007"):
        read_manifest(folder)
    assert complete_checkpoints(tmp_path) == []


def test_a_file_that_was_not_saved_stops_the_commit(tmp_path: Path) -> None:
    saved = write_partial(tmp_path)
    (tmp_path / partial_name(7) / "rank-1.bin").unlink()
    with pytest.raises(DataError, match=r"rank-1\.bin is part of the checkpoint"):
        commit_checkpoint(tmp_path, model="8b", checkpoint=7, nonce=1, saved=saved)
    assert complete_checkpoints(tmp_path) == []


def test_an_interruption_at_any_step_of_the_commit_leaves_none_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops before each call that reaches the disk, in turn."""
    steps = 0
    real: dict[str, Callable[..., object]] = {
        "fsync": os.fsync,
        "rename": os.rename,
        "create": Folder.create,
    }

    class Stopped(BaseException):
        pass

    def stopping(name: str, limit: int) -> Callable[..., object]:
        def call(*given: Any, **named: object) -> object:
            nonlocal steps
            steps += 1
            if steps > limit:
                raise Stopped
            return real[name](*given, **named)

        return call

    outcomes = []
    for limit in range(7):
        parent = tmp_path / str(limit)
        parent.mkdir()
        saved = write_partial(parent)
        steps = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", stopping("fsync", limit))
            patch.setattr(os, "rename", stopping("rename", limit))
            patch.setattr(Folder, "create", stopping("create", limit))
            try:
                commit_checkpoint(parent, model="8b", checkpoint=7, nonce=1, saved=saved)
                stopped = False
            except Stopped:
                stopped = True
        outcomes.append((stopped, len(complete_checkpoints(parent))))
    assert outcomes == [(True, 0)] * 4 + [(True, 1), (False, 1), (False, 1)]


def test_files_are_durable_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        order.append("fsync " + Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real_fsync(descriptor)

    def rename(name: str, new_name: str, **folders: int) -> None:
        order.append("rename")
        real_rename(name, new_name, **folders)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    committed(tmp_path)
    assert order == [
        "fsync manifest.json",
        "fsync checkpoint-000007.partial",
        "rename",
        f"fsync {tmp_path.name}",
    ]
    shutil.rmtree(tmp_path / "checkpoint-000007")
    assert commit_module.complete_checkpoints(tmp_path) == []
