"""What every shard store must do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tests.damage import DAMAGES, Damage
from tests.loaders.stores import (
    IDENTITY,
    LOADERS,
    SHARD,
    TENSORS,
    Count,
    files_in,
    load,
    nothing,
    save,
)
from wattload.core.errors import DataError
from wattload.core.io import BlockIdentity
from wattload.loaders import checkpoint_store as pieces_module
from wattload.loaders.checkpoint_store import (
    CheckpointLoader,
    Shard,
    Tensor,
    cut_tensors,
    fill_tiled,
    padded_bytes,
    tensor_key,
)


@pytest.fixture(params=LOADERS)
def loader(request: pytest.FixtureRequest) -> CheckpointLoader:
    return LOADERS[request.param]


def test_what_was_saved_comes_back_whole(loader: CheckpointLoader, tmp_path: Path) -> None:
    store = loader.checkpoint_store(SHARD, seed=1)
    written, read = Count(), Count()
    saved = store.save(tmp_path, IDENTITY, written, fsync=True)
    loaded = store.load(tmp_path, saved.files, IDENTITY, read)
    store.close()
    assert loaded.payload_bytes == SHARD.size_bytes
    assert (loaded.bad_blocks, loaded.bad_files) == (0, ())
    assert sum(file.payload_bytes for file in saved.files) == SHARD.size_bytes
    assert [file.name for file in saved.files] == list(store.file_names)
    assert files_in(tmp_path).keys() == set(store.file_names)
    on_target = sum(path.stat().st_size for path in files_in(tmp_path).values())
    assert 0 <= on_target - SHARD.size_bytes <= store.overhead_limit_bytes
    assert written.total == read.total == on_target
    assert saved.cpu_s > 0
    assert loaded.cpu_s > 0


def test_no_two_blocks_on_the_target_are_equal(loader: CheckpointLoader, tmp_path: Path) -> None:
    seen: list[bytes] = []
    for rank in (0, 1):
        store = loader.checkpoint_store(Shard(rank, TENSORS), seed=1)
        for checkpoint in (0, 1):
            folder = tmp_path / f"{rank}-{checkpoint}"
            folder.mkdir()
            save(store, folder, BlockIdentity(1, rank << 32 | checkpoint))
            for path in files_in(folder).values():
                content = path.read_bytes()
                seen += [content[i : i + 4096] for i in range(0, len(content), 4096)]
        store.close()
    assert len(set(seen)) == len(seen)
    assert len(seen) > 4 * SHARD.size_bytes // 4096 - 1


def test_a_changed_byte_is_named(loader: CheckpointLoader, tmp_path: Path) -> None:
    store = loader.checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    changed = max(saved.files, key=lambda file: file.payload_bytes)
    path = tmp_path / changed.name
    with path.open("r+b") as file:
        file.seek(500_000)
        byte = file.read(1)
        file.seek(500_000)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        os.fsync(file.fileno())
    loaded = load(store, tmp_path, saved)
    store.close()
    assert loaded.bad_files == (changed.name,)
    assert loaded.payload_bytes == SHARD.size_bytes


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_no_damage_is_taken_for_what_was_saved(
    loader: CheckpointLoader, tmp_path: Path, damage: Damage
) -> None:
    """PyTorch's containers have headers of their own: damage there may also be an error."""
    store, folders = loader.checkpoint_store(SHARD, seed=1), [tmp_path / "one", tmp_path / "two"]
    for checkpoint, folder in enumerate(folders):
        folder.mkdir()
        saved = save(store, folder, BlockIdentity(1, 3 << 32 | checkpoint))
    name = max(saved.files, key=lambda file: file.payload_bytes).name
    damage(folders[1] / name, folders[0] / name)
    try:
        loaded = load(store, folders[1], saved, BlockIdentity(1, 3 << 32 | 1))
    except DataError as error:
        assert not loader.checkpoint_path_is_direct
        assert name in str(error)  # noqa: PT017 - either is right
    else:
        assert loaded.bad_blocks > 0
        assert loaded.bad_files == (name,)
    store.close()


@pytest.mark.parametrize("name", ["torch", "dcp"])
def test_damage_to_a_container_is_one_sentence_or_outside_of_what_was_verified(
    name: str, tmp_path: Path
) -> None:
    """PyTorch's readers raise many kinds of error, and ignore some bytes of their containers."""
    shard = Shard(3, (Tensor("layer", "bfloat16", 20_000),))
    store = LOADERS[name].checkpoint_store(shard, seed=1)
    saved = save(store, tmp_path)
    (file,) = (file for file in saved.files if file.payload_bytes)
    path = tmp_path / file.name
    whole = path.read_bytes()
    assert file.payload_bytes == shard.size_bytes < len(whole)
    first = whole.index(IDENTITY.nonce.to_bytes(8, "little"))  # where the first stamp begins
    unseen = 0
    for place in (*range(0, first, 31), *range(first + shard.size_bytes, len(whole), 31)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            loaded = load(store, tmp_path, saved)
        except DataError as error:
            said = str(error).splitlines()
            assert [path.name in line for line in said] == [True]
        else:
            unseen += not loaded.bad_blocks
            assert loaded.payload_bytes == shard.size_bytes
    assert unseen
    store.close()


def test_a_truncated_file_is_an_error(loader: CheckpointLoader, tmp_path: Path) -> None:
    store = loader.checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    path = tmp_path / max(saved.files, key=lambda file: file.payload_bytes).name
    os.truncate(path, path.stat().st_size - 5000)
    with pytest.raises(DataError, match=path.name):
        load(store, tmp_path, saved)
    store.close()


def test_a_full_target_is_an_os_error_that_names_the_file(
    loader: CheckpointLoader, tiny_file_system: Path
) -> None:
    shard = Shard(3, (Tensor("large", "float32", 64 << 20),))
    store = loader.checkpoint_store(shard, seed=1)
    with pytest.raises(OSError, match="No space left") as caught:
        save(store, tiny_file_system)
    store.close()
    assert caught.value.errno == errno.ENOSPC
    assert str(tiny_file_system) in str(caught.value.filename)


def test_a_diskless_store_touches_no_file(loader: CheckpointLoader, tmp_path: Path) -> None:
    store = loader.checkpoint_store(SHARD, seed=1, diskless=True)
    for _ in range(2):
        saved = save(store, tmp_path)
        assert load(store, tmp_path, saved).payload_bytes == SHARD.size_bytes
    assert store.path().path_requested != "o_direct"
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_the_way_taken_is_named(loader: CheckpointLoader) -> None:
    store = loader.checkpoint_store(SHARD, seed=1)
    direct_path = loader.checkpoint_path_is_direct
    assert store.path().path_requested == ("o_direct" if direct_path else "page_cache")
    store.close()


@pytest.mark.parametrize("name", ["torch", "dcp"])
def test_fsync_finds_every_byte_of_every_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a stream of Python's still holds when a file is fsynced is not durable."""
    real_fsync, sizes = os.fsync, {}

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        sizes[status.st_ino] = status.st_size
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store = LOADERS[name].checkpoint_store(SHARD, seed=1)
    save(store, tmp_path)
    store.close()
    written = {path.stat().st_ino: path.stat().st_size for path in files_in(tmp_path).values()}
    assert {inode: sizes.get(inode) for inode in written} == written


@pytest.mark.parametrize("name", ["torch", "dcp"])
def test_fsync_is_left_out_only_when_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the direct store are made by its engine, whose own tests count them."""
    loader = LOADERS[name]
    real_fsync, synced = os.fsync, []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for number, wanted in enumerate((False, True)):
        (tmp_path / str(number)).mkdir()
        store = loader.checkpoint_store(SHARD, seed=1)
        store.save(tmp_path / str(number), IDENTITY, nothing, fsync=wanted)
        store.close()
        folders = {path.parent for path in files_in(tmp_path / str(number)).values()}
        folders.add(tmp_path / str(number))
        assert len(synced) == (len(store.file_names) + len(folders) if wanted else 0)


def test_pieces_hold_every_byte_once_in_order() -> None:
    shard = Shard(0, (Tensor("a", "float16", 10), Tensor("b", "float32", 8192 * 2 + 4)))
    found = list(cut_tensors(shard, 8192))
    assert [(piece.name, piece.size_bytes) for piece in found] == [
        ("a", 10),
        ("b[0]", 8192),
        ("b[1]", 8192),
        ("b[2]", 4),
    ]
    assert [padded_bytes(piece) for piece in found] == [4096, 8192, 8192, 4096]


def test_names_differ_between_checkpoints_and_ranks() -> None:
    tensor = Tensor("a", "float16", 10)
    keys = {
        tensor_key(tensor, BlockIdentity(1, rank << 32 | checkpoint))
        for rank in (0, 1)
        for checkpoint in (0, 1)
    }
    assert len(keys) == 4


def test_memory_repeats_only_after_the_whole_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "POOL_BYTES", 8192)
    memory = np.zeros(5 * 4096, np.uint8)
    fill_tiled(memory, seed=1, rank=0)
    blocks = [memory[start : start + 4096].tobytes() for start in range(0, memory.size, 4096)]
    assert blocks[0] != blocks[1]
    assert blocks[2:] == [blocks[0], blocks[1], blocks[0]]
