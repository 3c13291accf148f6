"""What the ``torch.save`` store does in its own way."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.loaders.stores import LOADERS, SHARD, load, save
from wattload.core.errors import DataError, MissingExtraError
from wattload.core.io import BlockIdentity
from wattload.loaders.checkpoint_store import Shard, Tensor
from wattload.loaders.torch import config as config_module


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
    assert "0000000300000009.optimizer[1]" in names


def test_torch_refuses_what_is_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    import torch as pytorch

    store = LOADERS["torch"].checkpoint_store(SHARD, seed=1)
    saved = save(store, tmp_path)
    first = tmp_path / saved.files[0].name
    for content, reason in (
        ([1, 2], "not hold a dictionary"),
        ({"a": pytorch.zeros(1)}, "lacks the tensor"),
    ):
        pytorch.save(content, first)
        with pytest.raises(DataError, match=reason):
            load(store, tmp_path, saved)
    first.write_bytes(b"not a checkpoint at all")
    with pytest.raises(DataError, match="not a checkpoint that torch"):
        load(store, tmp_path, saved)
    store.close()


def test_torch_sums_no_payload_while_it_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write window of both stores holds stamps and I/O, no pass over the bytes."""
    import wattload.loaders.stamps as stamps_module

    summed: list[int] = []
    real_seal = stamps_module.seal

    def seal(content: NDArray[np.uint8], identity: BlockIdentity, **named: int) -> None:
        summed.append(content.size)
        real_seal(content, identity, **named)

    store = LOADERS["torch"].checkpoint_store(SHARD, seed=1)
    monkeypatch.setattr(stamps_module, "seal", seal)
    save(store, tmp_path)
    assert max(summed) < 4096
    store.close()


def test_torch_memory_is_bounded_by_the_bucket() -> None:
    config = config_module.Config(bucket_bytes=1 << 20)
    huge = Shard(0, (Tensor("t", "float32", 52 * 10**9),))
    assert config.checkpoint_memory_bytes(huge) < 3 << 20


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[torch\]'"):
        LOADERS["torch"].checkpoint_store(SHARD, seed=1)
