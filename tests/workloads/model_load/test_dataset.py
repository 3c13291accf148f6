"""The files of a model: as the package reads them, reused, resumed, and compared."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.context import Context, context_at
from tests.workloads.checkpointing import interrupt
from wattload.core.errors import DataError, TargetError
from wattload.loaders.data.safetensors_files import INDEX
from wattload.loaders.tensor_loads import TensorPart
from wattload.workloads.model_load import dataset
from wattload.workloads.model_load.config import Config, DType
from wattload.workloads.model_load.dataset import Dataset, dataset_of

SHARD_BYTES = 150_000


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return context_at(tmp_path)


def dataset_at(context: Context, scale: str = "demo", **settings: object) -> Dataset:
    config = Config(model="tiny", shard_bytes=SHARD_BYTES)
    for name, value in settings.items():
        setattr(config, name, value)
    return dataset_of(config, 7, context.targets[0], scale=scale)


def content_of(found: Dataset, part: TensorPart) -> NDArray[np.uint8]:
    """Return a part as it is in its file."""
    whole = np.fromfile(
        found.files[part.file], np.uint8, part.tensor_bytes, offset=part.offset_bytes
    )
    return whole.reshape(-1, part.row_bytes)[slice(*part.rows), slice(*part.columns)].copy()


def wrong_bytes(found: Dataset, parts: Sequence[TensorPart]) -> int:
    return sum(found.compare(part, content_of(found, part)) for part in parts)


def test_the_package_reads_the_files_with_the_bytes_that_are_compared(context: Context) -> None:
    safetensors = pytest.importorskip("safetensors")
    found = dataset_at(context, dtype=DType.f16)
    assert sum(found.missing().values()) == found.model.file_bytes
    record = found.prepare(context)
    assert (record.reused, record.data_bytes, found.missing()) == (
        False,
        found.model.file_bytes,
        {},
    )
    index = json.loads((found.files[0].parent / INDEX).read_text())
    assert index["metadata"]["total_size"] == found.model.tensor_bytes
    assert len(index["weight_map"]) == found.model.tensors == 21
    parts = {part.name: part for part in found.plan_of(0, 1).parts}
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(found.files[0].parent / file, "np") as opened:
            tensor, part = opened.get_tensor(name), parts[name]
        assert tensor.shape == part.shape
        content = np.frombuffer(tensor.tobytes(), np.uint8).reshape(-1, part.row_bytes)
        assert found.compare(part, content) == 0


def test_the_ranks_parts_are_the_tensors(context: Context) -> None:
    found = dataset_at(context, model="tiny-moe")
    found.prepare(context)
    plans = [found.plan_of(rank, 4, sliced=True) for rank in range(4)]
    for parts in zip(*(plan.parts for plan in plans), strict=True):
        assert wrong_bytes(found, parts) == 0
        covered = np.zeros((parts[0].tensor_bytes // parts[0].row_bytes, parts[0].row_bytes), int)
        for part in parts:
            covered[slice(*part.rows), slice(*part.columns)] += 1
        assert np.all(covered == covered[0, 0])
    names = {plans[0].parts[index].name for index in plans[0].first_layer}
    assert "model.embed_tokens.weight" in names
    assert len(names) == 1 + 8 + 1 + 24


def test_any_flip_is_found(context: Context) -> None:
    found = dataset_at(context)
    found.prepare(context)
    for part in found.plan_of(1, 2).parts:
        content = content_of(found, part)
        content[-1, -1] ^= 1
        content[0, 0] ^= 128
        assert found.compare(part, content) == 2 - (content.size == 1)


def test_files_are_reused_and_what_is_missing_is_written_again(context: Context) -> None:
    found = dataset_at(context)
    found.prepare(context)
    before = [path.stat().st_mtime_ns for path in found.files]
    digest = found.files[1].read_bytes()
    assert dataset_at(context).prepare(context).reused
    os.truncate(found.files[1], 5000)
    assert list(found.missing()) == [found.files[1].name]
    assert not dataset_at(context).prepare(context).reused
    after = [path.stat().st_mtime_ns for path in found.files]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]
    assert found.files[1].read_bytes() == digest


def test_an_interrupted_preparation_is_continued(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "BLOCK_BYTES", 8192)
    found = dataset_at(context)
    interrupt(context, SHARD_BYTES + 50_000)
    with pytest.raises(KeyboardInterrupt):
        found.prepare(context)
    assert 0 < len(found.missing()) < len(found.sizes)
    assert found.present_bytes() > 0
    again = context_at(context.targets[0].path)
    found.prepare(again)
    assert (found.missing(), found.present_bytes()) == ({}, 0)
    assert wrong_bytes(found, found.plan_of(0, 1).parts) == 0


def test_a_full_target_is_one_sentence_and_stays_usable(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    found = dataset_at(context)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(TargetError, match=r"00001-of-00003\.safetensors failed: No space left"):
            found.prepare(context)
    assert found.present_bytes() == 0
    found.prepare(context)


def test_a_target_without_direct_io_gets_the_same_files(context: Context, tmp_path: Path) -> None:
    found = dataset_at(context)
    found.prepare(context)
    (tmp_path / "other").mkdir()
    other = context_at(tmp_path / "other")
    other = replace(other, targets=(replace(other.targets[0], direct_io=None),))
    copy = dataset_at(other)
    copy.prepare(other)
    for path, same in zip(found.files, copy.files, strict=True):
        assert path.read_bytes() == same.read_bytes()


def test_a_full_model_is_cut_to_the_layers_that_fit(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dataset_at(context, scale="full")
    assert whole.model.layers == 2
    room_bytes = whole.model.tensor_bytes - 1
    monkeypatch.setattr(
        os, "statvfs", lambda _: os.statvfs_result((1, 1, room_bytes * 10 // 8, *[0] * 7))
    )
    assert dataset_at(context, scale="full").model.layers == 1
    assert dataset_at(context, scale="full", layers=2).model.layers == 2
    assert dataset_at(context, scale="quick").model.layers == 2


@pytest.fixture
def source(context: Context) -> Path:
    found = dataset_at(context)
    found.prepare(context)
    return found.files[0].parent


def test_a_users_own_files_are_compared_with_themselves(context: Context, source: Path) -> None:
    (source / "config.json").write_text('{"num_key_value_heads": 2}')
    found = dataset_at(context, source=str(source))
    assert found.kv_heads == 2
    record = found.prepare(context)
    assert (record.reused, record.folder, found.missing()) == (True, str(source), {})
    assert found.model.digest == dataset_at(context).model.digest
    for rank in range(2):
        for part in found.plan_of(rank, 2).parts:
            content = content_of(found, part)
            assert found.compare(part, content) == 0
            content[-1, -1] ^= 1
            assert found.compare(part, content) == 1


def test_a_users_file_that_is_cut_while_it_is_compared_is_found(
    context: Context, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, fromfile = dataset_at(context, source=str(source)), np.fromfile
    [part, *_] = found.plan_of(0, 1).parts
    content = content_of(found, part)

    def cut(*arguments: Any) -> Any:
        os.truncate(found.files[0], part.offset_bytes + 1)
        return fromfile(*arguments)

    monkeypatch.setattr(np, "fromfile", cut)
    with pytest.raises(DataError, match="has changed since this run began"):
        found.compare(part, content)


def test_a_users_file_that_changes_is_found(context: Context, source: Path) -> None:
    found = dataset_at(context, source=str(source))
    [part, *_] = found.plan_of(0, 1).parts
    content = content_of(found, part)
    os.utime(found.files[0], ns=(0, 0))
    for call in (lambda: found.prepare(context), lambda: found.compare(part, content)):
        with pytest.raises(DataError, match="has changed since this run began"):
            call()
