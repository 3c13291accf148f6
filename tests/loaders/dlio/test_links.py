from __future__ import annotations

from pathlib import Path

import pytest

from tests.loaders.dlio.job import FILES, make_training
from wattload.core.errors import RunError
from wattload.loaders.dlio import harness
from wattload.loaders.dlio.harness import LinkFolder, copies_in_memory


def test_sorted_links_are_the_epochs_order_of_every_accelerator(tmp_path: Path) -> None:
    training = make_training(tmp_path, accelerators=2)
    folder = tmp_path / "output"
    folder.mkdir()
    made = LinkFolder(folder, training, training.samples.paths)
    for epoch in (0, 1):
        made.point(epoch)
        found = sorted((folder / "data" / "train").iterdir())
        order = [index for shard in training.orders[epoch] for index in shard]
        assert [link.resolve() for link in found] == [
            training.samples.paths[index] for index in order
        ]
        assert len(found) == FILES
    assert not list((folder / "data" / "valid").iterdir())
    made.remove()
    assert not (folder / "data").exists()
    assert all(path.exists() for path in training.samples.paths)


def test_what_others_put_among_the_links_is_not_removed(tmp_path: Path) -> None:
    training = make_training(tmp_path)
    folder = tmp_path / "output"
    folder.mkdir()
    made = LinkFolder(folder, training, training.samples.paths)
    (folder / "data" / "train" / "theirs").write_text("kept")
    with pytest.raises(OSError, match="not empty"):
        made.remove()
    assert (folder / "data" / "train" / "theirs").read_text() == "kept"


def test_copies_in_memory_are_whole_and_go(tmp_path: Path) -> None:
    paths = make_training(tmp_path).samples.paths[:2]
    with copies_in_memory(paths, "npz") as copies:
        assert [copy.read_bytes() for copy in copies] == [path.read_bytes() for path in paths]
        assert all(copy.is_relative_to("/dev/shm") for copy in copies)
    assert not copies[0].parent.exists()


def test_memory_without_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 42)
    with (
        pytest.raises(RunError, match=r"is too small for 4\.40 TB"),
        copies_in_memory([huge], "npz"),
    ):
        pass
    monkeypatch.setattr(harness, "MEMORY", tmp_path / "absent")
    with pytest.raises(RunError, match="can't hold"), copies_in_memory([huge], "npz"):
        pass
