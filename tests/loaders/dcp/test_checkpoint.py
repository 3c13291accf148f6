"""What the store of ``torch.distributed.checkpoint`` does in its own way."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.stores import IDENTITY, SHARD, Count, files_in, load, nothing, save
from wattload.core.errors import ConfigError, DataError, MissingExtraError
from wattload.core.io import BlockIdentity
from wattload.loaders.checkpoint_store import Shard, Tensor
from wattload.loaders.dcp import config

SMALL = config.Config(tensor_bytes=1 << 20)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (config.Config(tensor_bytes=1 << 20, thread_count=2), 2),
        (config.Config(tensor_bytes=1 << 20, single_file_per_rank=False), 5),
        (config.Config(tensor_bytes=1 << 20, single_file_per_rank=False, thread_count=3), 5),
    ],
)
def test_the_writers_own_settings_divide_a_shard_into_files(
    tmp_path: Path, config: config.Config, count: int
) -> None:
    store = config.checkpoint_store(SHARD, seed=1)
    written, read = Count(), Count()
    saved = store.save(tmp_path, IDENTITY, written, fsync=True)
    loaded = store.load(tmp_path, saved.files, IDENTITY, read)
    store.close()
    names = [f"rank-00003/__0_{number}.distcp" for number in range(count)]
    assert [file.name for file in saved.files] == [*names, "rank-00003/.metadata"]
    assert files_in(tmp_path).keys() == {*names, "rank-00003/.metadata"}
    assert (loaded.payload_bytes, loaded.bad_blocks, loaded.bad_files) == (SHARD.size_bytes, 0, ())
    assert written.total == read.total


def test_pytorch_itself_reads_what_was_saved(tmp_path: Path) -> None:
    import torch as pytorch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    store = SMALL.checkpoint_store(SHARD, seed=1)
    save(store, tmp_path)
    store.close()
    dcp_to_torch_save(tmp_path / "rank-00003", tmp_path / "whole.pt")
    state = pytorch.load(tmp_path / "whole.pt", weights_only=True)
    assert sum(tensor.nbytes for tensor in state.values()) == SHARD.size_bytes
    assert "0000000300000009.optimizer[1]" in state


def test_a_stale_checkpoint_bears_other_stamps(tmp_path: Path) -> None:
    store = SMALL.checkpoint_store(SHARD, seed=1)
    folders = [tmp_path / "old", tmp_path / "new"]
    for checkpoint, folder in enumerate(folders):
        folder.mkdir()
        save(store, folder, BlockIdentity(1, 3 << 32 | checkpoint))
    for name, path in files_in(folders[0]).items():
        (folders[1] / name).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="not the metadata that this run wrote"):
        store.load(folders[1], (), BlockIdentity(1, 3 << 32 | 1), nothing)
    store.close()


def test_foreign_metadata_is_not_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    store = SMALL.checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    (tmp_path / "rank-00003" / ".metadata").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match="so it is not unpickled"):
        load(store, tmp_path, saved)
    store.close()
    assert not (tmp_path / "exploded").exists()


def test_another_process_has_no_digest_and_reads_nothing(tmp_path: Path) -> None:
    store, other = (SMALL.checkpoint_store(SHARD, seed=1) for _ in range(2))
    saved = save(store, tmp_path)
    with pytest.raises(DataError, match="not the metadata that this run wrote"):
        load(other, tmp_path, saved)
    store.close()
    other.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writers_thread_that_dies_is_no_whole_checkpoint(tiny_file_system: Path) -> None:
    """PyTorch's own threads lose their errors, and its ``save`` returns as if all were there."""
    shard = Shard(3, (Tensor("large", "float32", 64 << 20),))
    store = config.Config(tensor_bytes=1 << 20, thread_count=3).checkpoint_store(shard, seed=1)
    with pytest.raises(OSError, match="No space left"):
        save(store, tiny_file_system)
    store.close()
    for thread in threading.enumerate():  # another one may die only now: this warning is of here
        if "_write_files_from_queue" in thread.name:
            thread.join(timeout=30)


def test_an_interrupt_amid_a_save_stays_one(tmp_path: Path) -> None:
    """PyTorch wraps whatever ends a save, an interrupt too, into an exception of its own."""

    def interrupt(moved_bytes: int) -> None:
        raise KeyboardInterrupt

    store = SMALL.checkpoint_store(SHARD, seed=1)
    with pytest.raises(KeyboardInterrupt):
        store.save(tmp_path, IDENTITY, interrupt, fsync=True)
    store.close()


def test_memory_is_bounded_by_pieces_and_threads() -> None:
    huge = Shard(0, (Tensor("t", "float32", 52 * 10**9),))
    assert config.Config().checkpoint_memory_bytes(huge) == 3 * (64 << 20)
    assert SMALL.checkpoint_memory_bytes(Shard(0, (Tensor("t", "float32", 8),))) < 20_000


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (config.Config(thread_count=0), "loader.thread_count must be 1 to 1024, got 0"),
        (config.Config(tensor_bytes=5000), "loader.tensor_bytes must be a multiple of 4096"),
        (config.Config(tensor_bytes=0), "a multiple of 4096, 4096 or more, got 0"),
    ],
)
def test_settings_out_of_range_are_named(config: config.Config, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config.check()


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[torch\]'"):
        SMALL.checkpoint_store(SHARD, seed=1)
    with pytest.raises(MissingExtraError, match="loader=dcp needs PyTorch"):
        SMALL.require_checkpoint_library()
