"""What every shard store must do, over both, and what each does in its own way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.core.errors import DataError, MissingExtraError
from wattload.loaders import direct, torch
from wattload.loaders.checkpoints import (
    CheckpointLoader,
    Identity,
    Loaded,
    Saved,
    Shard,
    ShardStore,
    Tensor,
)

ROOT = Path(__file__).parents[2]
IDENTITY = Identity(nonce=0xFEED, rank=3, checkpoint=9)
TENSORS = (
    Tensor("embedding", "float16", 1_000_002),
    Tensor("norm", "bfloat16", 10),
    Tensor("layer", "bfloat16", 300_000),
    Tensor("optimizer", "float32", 2_000_004),
)
SHARD = Shard(3, TENSORS)
LOADERS: dict[str, CheckpointLoader] = {
    "direct": direct.Config(block_bytes=128 << 10, queue_depth=3),
    "torch": torch.Config(bucket_bytes=1 << 20),
}


@pytest.fixture(params=LOADERS)
def loader(request: pytest.FixtureRequest) -> CheckpointLoader:
    return LOADERS[request.param]


class Count:
    def __init__(self) -> None:
        self.moved_bytes: list[int] = []

    def __call__(self, moved_bytes: int) -> None:
        self.moved_bytes.append(moved_bytes)

    @property
    def total(self) -> int:
        return sum(self.moved_bytes)


def nothing(moved_bytes: int) -> None:
    pass


def save(store: ShardStore, folder: Path, identity: Identity = IDENTITY) -> Saved:
    return store.save(folder, identity, nothing, fsync=True)


def load(store: ShardStore, folder: Path, saved: Saved, identity: Identity = IDENTITY) -> Loaded:
    return store.load(folder, saved.files, identity, nothing)


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
    assert {path.name for path in tmp_path.iterdir()} == set(store.file_names)
    on_target = sum(path.stat().st_size for path in tmp_path.iterdir())
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
            save(store, folder, Identity(nonce=1, rank=rank, checkpoint=checkpoint))
            for path in folder.iterdir():
                content = path.read_bytes()
                seen += [content[i : i + 4096] for i in range(0, len(content), 4096)]
        store.close()
    assert len(set(seen)) == len(seen)
    assert len(seen) > 4 * SHARD.size_bytes // 4096 - 1


def test_a_changed_byte_is_named(loader: CheckpointLoader, tmp_path: Path) -> None:
    store = loader.checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    path = tmp_path / saved.files[0].name
    with path.open("r+b") as file:
        file.seek(500_000)
        byte = file.read(1)
        file.seek(500_000)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        os.fsync(file.fileno())
    loaded = load(store, tmp_path, saved)
    store.close()
    assert loaded.bad_files == (path.name,)
    assert loaded.payload_bytes == SHARD.size_bytes


def test_a_stale_checkpoint_bears_other_stamps(tmp_path: Path) -> None:
    store = LOADERS["direct"].checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path, Identity(nonce=1, rank=3, checkpoint=8))
    loaded = load(store, tmp_path, saved)
    store.close()
    assert loaded.bad_blocks == -(-SHARD.size_bytes // 4096)


def test_a_truncated_file_is_an_error(loader: CheckpointLoader, tmp_path: Path) -> None:
    store = loader.checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    path = tmp_path / saved.files[-1].name
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


def test_fsync_is_left_out_only_when_asked(
    loader: CheckpointLoader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert len(synced) == (len(store.file_names) + 1 if wanted else 0)


def test_direct_puts_tensors_back_to_back_in_one_file(tmp_path: Path) -> None:
    store = LOADERS["direct"].checkpoint_store(SHARD, seed=1)
    save(store, tmp_path)
    store.close()
    assert (tmp_path / "rank-00003.bin").stat().st_size == SHARD.size_bytes
    assert store.overhead_limit_bytes == 0


def test_direct_says_where_writes_extended_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    store = LOADERS["direct"].checkpoint_store(SHARD, seed=1)
    save(store, tmp_path)
    assert store.path().data_path == "o_direct, preallocated writes"
    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    (tmp_path / "rank-00003.bin").unlink()
    save(store, tmp_path)
    assert store.path().data_path == "o_direct, extending writes"
    store.close()


MEMORY = """
import resource
from pathlib import Path
from wattload.loaders.checkpoints import Identity, Shard, Tensor
from wattload.loaders.direct import Config

shard = Shard(0, (Tensor("t", "float32", 10 * 10**9),))
store = Config().checkpoint_store(shard, seed=1, diskless=True)
identity = Identity(nonce=1, rank=0, checkpoint=0)
saved = store.save(Path("none"), identity, lambda n: None, fsync=True)
store.load(Path("none"), saved.files, identity, lambda n: None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_direct_stays_under_512_mb_whatever_the_shard() -> None:
    config = direct.Config()
    huge = Shard(0, (Tensor("t", "float32", 52 * 10**9),))
    assert config.checkpoint_memory_bytes(huge) == config.checkpoint_memory_bytes(SHARD) < 512e6
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 512e6


def test_torch_files_hold_at_most_a_bucket_and_every_tensor_its_own_storage(
    tmp_path: Path,
) -> None:
    import torch as pytorch

    store = LOADERS["torch"].checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    store.close()
    assert all(file.payload_bytes <= 1 << 20 for file in saved.files)
    names: list[str] = []
    for file in saved.files:
        state = pytorch.load(tmp_path / file.name, weights_only=True)
        names += state
        for tensor in state.values():
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
        with zipfile.ZipFile(tmp_path / file.name) as archive:
            held = [i.file_size for i in archive.infolist() if "/data/" in i.filename]
        assert sum(held) == file.payload_bytes
    assert len(names) == len(set(names)) == 5  # the optimizer's 2 MB are two pieces
    assert "checkpoint9.rank3.optimizer[1]" in names


def test_torch_refuses_what_is_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    import torch as pytorch

    store = LOADERS["torch"].checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    first = tmp_path / saved.files[0].name
    for content, reason in ([1, 2], "no dictionary"), ({"a": pytorch.zeros(1)}, "lacks the tensor"):
        pytorch.save(content, first)
        with pytest.raises(DataError, match=reason):
            load(store, tmp_path, saved)
    first.write_bytes(b"not a checkpoint at all")
    with pytest.raises(DataError, match="no checkpoint that torch"):
        load(store, tmp_path, saved)
    store.close()


def test_torch_sums_no_payload_while_it_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write window of both stores holds stamps and I/O, no pass over the bytes."""
    import wattload.loaders.stamps as stamps_module

    summed: list[int] = []
    real_checksum = stamps_module.checksum

    def checksum(payload: NDArray[np.uint8]) -> int:
        summed.append(payload.size)
        return real_checksum(payload)

    store = LOADERS["torch"].checkpoint_store(SHARD, seed=1)
    for name in ("wattload.loaders.stamps", "wattload.loaders.torch_checkpoint"):
        monkeypatch.setattr(f"{name}.checksum", checksum)
    save(store, tmp_path)
    store.close()
    assert max(summed) < 4096


def test_torch_memory_is_bounded_by_the_bucket() -> None:
    config = torch.Config(bucket_bytes=1 << 20)
    huge = Shard(0, (Tensor("t", "float32", 52 * 10**9),))
    assert config.checkpoint_memory_bytes(huge) < 3 << 20


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'wattload\[torch\]'"):
        LOADERS["torch"].checkpoint_store(SHARD, seed=1)


def test_a_load_looks_at_delivered_bytes_not_at_its_own_buffers(tmp_path: Path) -> None:
    """A store that saved another checkpoint meanwhile still judges by what the file holds."""
    store = LOADERS["direct"].checkpoint_store(SHARD, seed=1)
    folders = [tmp_path / "0", tmp_path / "1"]
    saved = []
    for checkpoint, folder in enumerate(folders):
        folder.mkdir()
        saved.append(save(store, folder, Identity(nonce=5, rank=3, checkpoint=checkpoint)))
    for checkpoint, folder in enumerate(folders):
        identity = Identity(nonce=5, rank=3, checkpoint=checkpoint)
        loaded = load(store, folder, saved[checkpoint], identity)
        assert (loaded.bad_blocks, loaded.bad_files) == (0, ())
    store.close()
    content = np.frombuffer((folders[0] / "rank-00003.bin").read_bytes()[:24], np.uint64)
    assert list(content) == [5, 3 << 32, 0]
