from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from tests.stamped import bad_blocks
from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.core.files import choose_folder
from wattload.core.io import BlockIdentity
from wattload.core.storage.targets import Target
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.data.data_folder import DataFolder, ManifestEntry
from wattload.loaders.data.media import DirectMedium, PageCacheMedium
from wattload.loaders.data.record_formats import FORMATS
from wattload.workloads.training import generation
from wattload.workloads.training.config import Config, Sizes, payload_bytes
from wattload.workloads.training.dataset import Dataset, PreparedData
from wattload.workloads.training.generation import (
    BLOCK_BYTES,
    POOL_BYTES,
    PayloadPool,
    Record,
    RecordWriter,
    prepare,
)

COUNT = 10


def dataset(path: Path, **changes: Any) -> Dataset:
    settings: dict[str, Any] = {"record_divisor": 640, **changes}
    return Dataset(Config(**settings), COUNT, (directory_target(path),))


def loaded(path: Path) -> NDArray[np.uint8]:
    """Return a record as numpy loads it, which checks the CRC of an npz; a JPEG by our format."""
    if path.suffix == ".jpeg":
        return FORMATS["jpeg"].payload(np.fromfile(path, np.uint8), str(path))
    record = np.load(path, allow_pickle=False)
    return np.asarray(record["x"] if path.suffix == ".npz" else record)


def stored(data: PreparedData) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in data.paths}


@pytest.mark.parametrize("record_format", sorted(FORMATS))
@pytest.mark.parametrize("sizes", Sizes)
def test_files_have_the_planned_sizes_and_the_listed_payloads(
    tmp_path: Path, record_format: str, sizes: Sizes
) -> None:
    planned = dataset(tmp_path, record_format=record_format, sizes=sizes)
    data, reused = prepare(planned, context_at(tmp_path))
    assert not reused
    for index, path in enumerate(data.paths):
        record = loaded(path)
        assert record.size == payload_bytes(planned.shapes[index])
        assert path.stat().st_size == planned.file_bytes[index]
        assert hashlib.sha256(record.tobytes()).hexdigest() == data.digest(index)
        assert path.stat().st_blocks * 512 >= path.stat().st_size  # fully written
    assert data.folders[0].sealed
    assert not data.folders[0].foreign()
    assert not data.folders[0].reserved


def test_no_two_blocks_are_equal_and_none_compresses(tmp_path: Path) -> None:
    data, _ = prepare(dataset(tmp_path), context_at(tmp_path))
    content = b"".join(stored(data).values())
    blocks = [content[i : i + 4096] for i in range(0, len(content) - 4095, 4096)]
    assert len(set(blocks)) == len(blocks)
    assert len(zlib.compress(content, 1)) > 0.99 * len(content)


def test_data_that_is_there_is_used_again(tmp_path: Path) -> None:
    first, _ = prepare(dataset(tmp_path), context_at(tmp_path))
    times = [path.stat().st_mtime_ns for path in first.paths]
    second, reused = prepare(dataset(tmp_path), context_at(tmp_path))
    assert reused
    assert [path.stat().st_mtime_ns for path in second.paths] == times
    facts = second.facts(reused=reused)
    assert facts.file_count == COUNT
    assert facts.data_bytes == sum(path.stat().st_size for path in second.paths)
    assert facts.key == second.folders[0].key


def test_what_is_missing_or_cut_is_made_again_and_the_rest_kept(tmp_path: Path) -> None:
    first, _ = prepare(dataset(tmp_path), context_at(tmp_path))
    before = stored(first)
    first.paths[3].unlink()
    os.truncate(first.paths[5], 1000)
    untouched = first.paths[4].stat().st_mtime_ns
    planned = dataset(tmp_path)
    assert planned.missing(planned.existing()) == [3, 5]
    second, reused = prepare(planned, context_at(tmp_path))
    assert not reused
    assert stored(second) == before
    assert first.paths[4].stat().st_mtime_ns == untouched


@pytest.mark.parametrize(
    "changes",
    [
        {"data_seed": 11},
        {"record_format": "npy"},
        {"sizes": Sizes.dlio},
        {"record_stdev_bytes": 60_000_000},
    ],
)
def test_other_parameters_make_other_data(tmp_path: Path, changes: dict[str, Any]) -> None:
    first, _ = prepare(dataset(tmp_path), context_at(tmp_path))
    second, reused = prepare(dataset(tmp_path, **changes), context_at(tmp_path))
    assert not reused
    assert first.folders[0].key != second.folders[0].key
    assert set(stored(first).values()).isdisjoint(stored(second).values())


def test_the_seed_of_a_run_makes_no_other_data(tmp_path: Path) -> None:
    prepare(dataset(tmp_path), context_at(tmp_path, seed=1))
    _, reused = prepare(dataset(tmp_path), context_at(tmp_path, seed=2))
    assert reused


def test_an_altered_file_is_found_on_demand(tmp_path: Path) -> None:
    data, _ = prepare(dataset(tmp_path), context_at(tmp_path))
    content = bytearray(data.paths[7].read_bytes())
    content[-1000] ^= 1
    data.paths[7].write_bytes(content)
    prepare(dataset(tmp_path), context_at(tmp_path))
    with pytest.raises(DataError, match=f"{data.paths[7].name} was changed after it was written"):
        prepare(dataset(tmp_path, verify_data=True), context_at(tmp_path))


def test_ranks_share_the_files_and_list_all_of_them(tmp_path: Path) -> None:
    targets = (directory_target(tmp_path),)
    contexts = [Context(targets=targets, communicator=c) for c in ThreadCommunicator.world(3)]
    results = run_ranks(contexts, lambda context: prepare(dataset(tmp_path), context))
    assert all(not reused for _, reused in results)
    for data, _ in results:
        assert all(data.digest(index) for index in range(COUNT))
    parts = list(results[0][0].folders[0].path.glob(".wattload-manifest-*"))
    assert len(parts) == 3
    one, _ = prepare(dataset(tmp_path), context_at(tmp_path))
    assert stored(one) == stored(results[0][0])


def test_files_are_dealt_to_all_targets(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    targets = tuple(directory_target(folder, index=i) for i, folder in enumerate(folders))
    planned = Dataset(Config(record_divisor=640), COUNT, targets)
    data, _ = prepare(planned, Context(targets=targets))
    assert [path.is_relative_to(folders[i % 2]) for i, path in enumerate(data.paths)]
    assert data.paths == planned.expected_paths()
    assert planned.missing(planned.existing()) == []
    assert data.digest(1)


def test_progress_is_told_of_all_bytes(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    data, _ = prepare(dataset(tmp_path), context)
    total = sum(data.dataset.file_bytes)
    ((task, expected),) = context.progress.tasks
    assert task == "generating"
    assert expected is not None
    assert context.progress.moved_bytes == [expected]
    assert 0 <= expected - total <= COUNT * 8192, "files are written in whole blocks"


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Let the kernel refuse files beyond a size, as a full target refuses them.

    Only while the block runs: pytest's own output is a file too where it is redirected to one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_target_that_takes_no_more_is_one_sentence_with_the_file(tmp_path: Path) -> None:
    sentence = r"writing .*img_\d+_of_10.npz failed: .*File too large"
    with file_size_limit(60_000), pytest.raises(TargetError, match=sentence):
        prepare(dataset(tmp_path), context_at(tmp_path))


def test_an_interrupted_generation_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RecordWriter.write

    def interrupted(self: RecordWriter, record: Record) -> ManifestEntry:
        if record.index >= 6:
            raise KeyboardInterrupt
        return write(self, record)

    monkeypatch.setattr(RecordWriter, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(dataset(tmp_path), context_at(tmp_path))
    monkeypatch.undo()
    planned = dataset(tmp_path)
    left = planned.missing(planned.existing())
    assert set(range(6, COUNT)) <= set(left) < set(range(COUNT))
    context = context_at(tmp_path)
    data, _ = prepare(planned, context)
    (moved_bytes,) = context.progress.moved_bytes
    assert 0 <= moved_bytes - sum(planned.file_bytes[i] for i in left) < len(left) * 8192
    data.verify(range(COUNT))


def ignore(moved_bytes: int) -> None:
    """Take no notice of bytes that moved."""


class DyingMedium(DirectMedium):
    """A medium whose machine dies after the first chunk."""

    def finish(self, handle: int, path: Path, size_bytes: int) -> None:
        raise KeyboardInterrupt


def test_many_files_are_in_folders_of_limited_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattload.workloads.training.dataset.FOLDER_FILES", 4)
    planned = dataset(tmp_path, record_format="jpeg")
    data, _ = prepare(planned, context_at(tmp_path))
    assert [len(list(each.iterdir())) for each in sorted(data.folders[0].path.glob("0*"))] == [
        4, 4, 2,
    ]  # fmt: skip
    for path in data.paths:
        path.unlink()
    again, reused = prepare(planned, context_at(tmp_path))
    assert not reused
    again.verify(range(COUNT))
    assert again.folders[0].foreign() == ()
    again.folders[0].remove()
    assert not again.folders[0].path.exists()


def test_files_that_were_whole_when_another_failed_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RecordWriter.write

    def failing(self: RecordWriter, record: Record) -> ManifestEntry:
        if record.index in {3, 8}:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, record)

    monkeypatch.setattr(RecordWriter, "write", failing)
    monkeypatch.setattr(generation, "writer_count", lambda _: 1)
    planned = dataset(tmp_path)
    with pytest.raises(TargetError, match=r"img_03_of_10\.npz failed: No space left"):
        prepare(planned, context_at(tmp_path))
    assert planned.missing(planned.existing()) == list(range(3, COUNT))


def test_a_torso_is_no_record_and_can_be_removed(tmp_path: Path) -> None:
    planned = dataset(tmp_path)
    folder = DataFolder.claim(tmp_path, "unet3d", planned.parameters, seed=10)
    buffer = aligned_buffer(generation.CHUNK_BYTES)
    writer = RecordWriter(FORMATS["npz"], PayloadPool(1), buffer, DyingMedium(), ignore)
    record = Record(
        folder=folder,
        name=planned.names[0],
        shape=planned.shapes[0],
        index=0,
        identity=BlockIdentity(1, 2),
    )
    folder.announce(record.name)
    with pytest.raises(KeyboardInterrupt):
        writer.write(record)
    assert [path.name for path in folder.path.glob("img*")] == [planned.names[0] + ".tmp"]
    again = DataFolder.claim(tmp_path, "unet3d", planned.parameters, seed=10)
    assert not again.is_valid(planned.names[0])
    assert again.foreign() == ()
    assert again.remove() > 0
    assert not folder.path.exists()


@pytest.mark.parametrize("record_format", sorted(FORMATS))
@pytest.mark.parametrize(
    "size",
    [1, 4000, POOL_BYTES - 487, POOL_BYTES - 292, POOL_BYTES - 192, POOL_BYTES, 2 * POOL_BYTES + 5],
)
def test_records_of_every_size_round_the_chunk_are_whole(
    tmp_path: Path, record_format: str, size: int
) -> None:
    # The third ends with its chunk, the fourth has its end of the archive on both sides of it.
    folder = DataFolder.claim(tmp_path, "unet3d", {"size": size}, seed=1)
    writer = RecordWriter(
        FORMATS[record_format],
        PayloadPool(1),
        aligned_buffer(POOL_BYTES),
        DirectMedium(),
        ignore,
    )
    shape = (size, 1, 1)
    identity = BlockIdentity(1, 2)
    record_ = Record(folder=folder, name="record", shape=shape, index=2, identity=identity)
    entry = writer.write(record_)
    (folder.path / "record.tmp").rename(tmp_path / f"record.{record_format}")
    record = loaded(tmp_path / f"record.{record_format}")
    assert record.size == size
    assert hashlib.sha256(record.tobytes()).hexdigest() == entry.sha256
    start = len(FORMATS[record_format].head(shape))
    assert bad_blocks(record.reshape(-1), identity, offset=start) == 0
    raw = np.fromfile(tmp_path / f"record.{record_format}", dtype=np.uint8)
    assert FORMATS[record_format].surrounds(raw, "record")


def test_content_does_not_depend_on_the_chunks_it_was_written_in() -> None:
    pool = PayloadPool(3)
    whole, parts = (aligned_buffer(4 * POOL_BYTES) for _ in range(2))
    pool.fill(whole, 5, 0)
    for offset in range(0, len(parts), POOL_BYTES):
        pool.fill(parts[offset : offset + POOL_BYTES], 5, offset)
    np.testing.assert_array_equal(whole, parts)
    pool.fill(parts[: 3 * BLOCK_BYTES], 6, 0)
    assert not np.array_equal(whole[: 3 * BLOCK_BYTES], parts[: 3 * BLOCK_BYTES])


def test_a_target_without_direct_io_is_written_through_the_page_cache(tmp_path: Path) -> None:
    direct = directory_target(tmp_path)
    target = Target(
        index=0,
        kind=direct.kind,
        path=tmp_path,
        direct_io=None,
        direct_io_missing="the test says so",
        facts=direct.facts,
    )
    planned = Dataset(Config(record_divisor=640), COUNT, (target,))
    data, _ = prepare(planned, Context(targets=(target,)))
    data.verify(range(COUNT))
    with choose_folder(tmp_path) as folder:
        handle = PageCacheMedium().create(folder, "file", 10)
    assert not fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT
    os.close(handle)


@pytest.mark.parametrize(
    ("changes", "scale", "message"),
    [
        ({"batch_samples": 0}, "demo", "workload.batch_samples must be 1 or more, got 0"),
        ({"epochs": 0}, "demo", "workload.epochs must be 1 to 10000, got 0"),
        ({"file_count": 0}, "demo", "workload.file_count must be 1 or more, got 0"),
        (
            {"record_divisor": 2},
            "quick",
            "must be 1 at scale=quick, got 2; only scale=demo",
        ),
        ({"record_format": "csv"}, "demo", "jpeg, npy, npz, got 'csv'"),
        ({"resize_bytes": 10**9}, "demo", "minimum <= mean"),
    ],
)
def test_settings_that_cant_be_run_are_refused(
    changes: dict[str, Any], scale: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**changes).check(scale)
