"""What the direct store does in its own way."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.loaders.stores import LOADERS, SHARD, load, save
from tests.tinyfs import tiny_file_system
from wattload.core.io import BlockIdentity, IOKind, TimesOperations
from wattload.loaders.checkpoint_store import Shard, Tensor
from wattload.loaders.direct import config as config_module

ROOT = Path(__file__).parents[3]


def test_a_stale_checkpoint_bears_other_stamps(tmp_path: Path) -> None:
    store = LOADERS["direct"].checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path, BlockIdentity(1, 3 << 32 | 8))
    loaded = load(store, tmp_path, saved)
    store.close()
    assert loaded.bad_blocks == -(-SHARD.size_bytes // 4096)


def test_direct_puts_tensors_back_to_back_in_one_file(tmp_path: Path) -> None:
    store = LOADERS["direct"].checkpoint_store(SHARD, seed=1)
    save(store, tmp_path)
    store.close()
    assert (tmp_path / "rank-00003.bin").stat().st_size == SHARD.size_bytes
    assert store.overhead_limit_bytes == 0


@pytest.mark.parametrize("engine", ["auto", "pread"])
def test_direct_says_where_writes_extended_the_file(tmp_path: Path, engine: str) -> None:
    config = config_module.Config(engine=engine, block_bytes=128 << 10, queue_depth=3)
    store = config.checkpoint_store(SHARD, seed=1)
    save(store, tmp_path)
    assert store.path().data_path.startswith("o_direct")
    assert store.path().data_path.endswith(", preallocated writes")
    with tiny_file_system(tmp_path, preallocates=False) as without_extents:
        save(store, without_extents)
    assert store.path().data_path.endswith(", extending writes")
    store.close()


@pytest.mark.parametrize("engine", ["auto", "pread"])
def test_a_bad_load_leaves_nothing_that_a_drive_can_shrink(tmp_path: Path, engine: str) -> None:
    """Saves share the memory of loads: what a foreign file held is never written."""
    config = config_module.Config(engine=engine, block_bytes=128 << 10, queue_depth=3)
    store = config.checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    path = tmp_path / "rank-00003.bin"
    path.write_bytes(bytes(SHARD.size_bytes))
    assert load(store, tmp_path, saved).bad_blocks > 0
    saved = save(store, tmp_path)
    assert len(zlib.compress(path.read_bytes())) > 0.99 * SHARD.size_bytes
    assert isinstance(store, TimesOperations)
    assert store.latency(IOKind.WRITE).count == 2 * -(-SHARD.size_bytes // (128 << 10))
    assert store.latency(IOKind.READ).count == -(-SHARD.size_bytes // (128 << 10))
    again = load(store, tmp_path, saved)
    assert (again.bad_blocks, again.bad_files) == (0, ())
    store.close()


MEMORY = """
from pathlib import Path
from wattload.core.io import BlockIdentity
from wattload.loaders.checkpoint_store import Shard, Tensor
from wattload.loaders.direct.config import Config

shard = Shard(0, (Tensor("t", "float32", 10 * 10**9),))
store = Config().checkpoint_store(shard, seed=1, diskless=True)
identity = BlockIdentity(1, 0 << 32 | 0)
saved = store.save(Path("none"), identity, lambda n: None, fsync=True)
store.load(Path("none"), saved.files, identity, lambda n: None)
# ru_maxrss would be the parent's, from before exec
peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
print(int(peak) * 1024)
"""


def test_direct_stays_under_256_mb_whatever_the_shard() -> None:
    config = config_module.Config()
    huge = Shard(0, (Tensor("t", "float32", 52 * 10**9),))
    assert config.checkpoint_memory_bytes(huge) == config.checkpoint_memory_bytes(SHARD) < 256e6
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 256e6


def test_a_load_looks_at_delivered_bytes_not_at_its_own_buffers(tmp_path: Path) -> None:
    """A store that saved another checkpoint meanwhile still judges by what the file holds."""
    store = LOADERS["direct"].checkpoint_store(SHARD, seed=1)
    folders = [tmp_path / "0", tmp_path / "1"]
    saved = []
    for checkpoint, folder in enumerate(folders):
        folder.mkdir()
        saved.append(save(store, folder, BlockIdentity(5, 3 << 32 | checkpoint)))
    for checkpoint, folder in enumerate(folders):
        identity = BlockIdentity(5, 3 << 32 | checkpoint)
        loaded = load(store, folder, saved[checkpoint], identity)
        assert (loaded.bad_blocks, loaded.bad_files) == (0, ())
    store.close()
    content = np.frombuffer((folders[0] / "rank-00003.bin").read_bytes()[:24], np.uint64)
    assert list(content) == [5, 3 << 32, 0]
