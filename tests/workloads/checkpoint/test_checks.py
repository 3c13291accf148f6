"""Checkpoints that are not what was written fail the run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.context import context_at
from tests.damage import DAMAGES, Damage, copy_sparsely
from tests.workloads.checkpointing import (
    BESIDE,
    LOADERS,
    RANK_BYTES,
    data_folder,
    made,
    run,
)
from wattload.core.errors import DataError
from wattload.loaders.checkpoint_store import CheckpointLoader, Saved, Shard, Tensor
from wattload.workloads.checkpoint import storage as storage_module

pytestmark = pytest.mark.usefixtures("short_ceilings")

loaders = pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)


def test_bytes_that_changed_on_the_target_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wattload.loaders.data.cold_cache import evict

    def tamper(paths: list[Path]) -> None:
        with paths[0].open("r+b") as file:
            file.seek(70_000)
            file.write(b"changed")
        evict(paths)

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", tamper)
    _, checks = run(made(), context_at(tmp_path))
    assert checks["checkpoint_read_back"].verdict == "fail"
    assert checks["checkpoint_read_back"].figures["bad_files"] == 3
    assert "rank-00000.bin" in checks["checkpoint_read_back"].sentence
    assert checks["checkpoint_bytes_on_target"].verdict == "pass"


HOLLOW = (DAMAGES["hole punched"], DAMAGES["truncated and extended"])
"""What leaves holes is refused before the timed read."""


@loaders
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_between_write_and_read_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: CheckpointLoader, damage: Damage
) -> None:
    """PyTorch's readers parse containers, so that damage there may also end the run."""
    from wattload.loaders.data.cold_cache import evict

    other = tmp_path / "other"
    other.write_bytes(os.urandom(1 << 20))

    def tamper(paths: list[Path]) -> None:
        damage(largest(paths), other)
        evict(paths)

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", tamper)
    if damage in HOLLOW:
        with pytest.raises(DataError, match="in holes or unwritten blocks"):
            run(made(loader), context_at(tmp_path))
        return
    try:
        _, checks = run(made(loader), context_at(tmp_path))
    except DataError as error:
        assert not loader.checkpoint_path_is_direct
        assert "rank-00000" in str(error)  # noqa: PT017 - or its check fails
    else:
        assert checks["checkpoint_read_back"].verdict == "fail"


@loaders
@pytest.mark.parametrize("added_bytes", [1, -1])
def test_a_byte_more_or_less_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: CheckpointLoader, added_bytes: int
) -> None:
    from wattload.loaders.data.cold_cache import evict

    def tamper(paths: list[Path]) -> None:
        path = largest(paths)
        os.truncate(path, path.stat().st_size + added_bytes)
        evict(paths)

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", tamper)
    try:
        _, checks = run(made(loader), context_at(tmp_path))
    except DataError as error:
        assert "rank-00000" in str(error)  # noqa: PT017 - or a check fails
    else:
        assert "fail" in {check.verdict for check in checks.values()}


@loaders
def test_a_copy_without_its_zeros_is_still_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: CheckpointLoader
) -> None:
    from wattload.loaders.data.cold_cache import evict

    def tamper(paths: list[Path]) -> None:
        copy_sparsely(largest(paths))
        evict(paths)

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", tamper)
    _, checks = run(made(loader), context_at(tmp_path))
    assert checks["checkpoint_read_back"].verdict == "pass"


def largest(paths: list[Path]) -> Path:
    return max(paths, key=lambda path: path.stat().st_size)


def test_a_checkpoint_of_another_time_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drive or cache that gave back the last checkpoint's blocks is found by their stamps."""
    from wattload.loaders.data.cold_cache import evict

    kept: list[bytes] = []

    def stale(paths: list[Path]) -> None:
        kept.append(paths[0].read_bytes())
        paths[0].write_bytes(kept[0])
        evict(paths)

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", stale)
    _, checks = run(made(checkpoint_count=2), context_at(tmp_path))
    assert checks["checkpoint_read_back"].figures["bad_blocks"] == -(-RANK_BYTES // 4096)


def test_file_sizes_off_the_plan_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wattload.workloads.checkpoint.storage import Storage

    real_adopt = Storage.adopt
    monkeypatch.setattr(
        Storage, "adopt", lambda self, number, names: real_adopt(self, number, names) - 4096
    )
    _, checks = run(made(), context_at(tmp_path))
    assert checks["checkpoint_bytes_on_target"].verdict == "fail"


@loaders
@pytest.mark.parametrize("changed", [{}, BESIDE], ids=["sync", "async"])
def test_a_file_that_was_not_fsynced_fails_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loader: CheckpointLoader,
    changed: dict[str, Any],
) -> None:
    store_type = type(loader.checkpoint_store(Shard(0, (Tensor("a", "float32", 4096),)), seed=1))
    real_save = store_type.save

    def save(store: Any, *given: Any, fsync: bool) -> Saved:
        saved: Saved = real_save(store, *given, fsync=False)
        return saved

    monkeypatch.setattr(store_type, "save", save)
    _, checks = run(made(loader, **changed), context_at(tmp_path))
    assert checks["checkpoint_durable"].verdict == "fail"
    assert checks["checkpoint_durable"].figures["synced_files"] == 0


def forged(text: str) -> str:
    """Return the text of a manifest of the same checkpoint of another run."""
    body = json.loads(text)["body"] | {"nonce": "1"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({"sha256": digest, "body": body})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "is not a complete checkpoint"),
        (lambda path: os.truncate(path, 100), "is not a complete checkpoint"),
        (lambda path: path.write_text(forged(path.read_text())), "the target returned other data"),
        (lambda path: path.parent.rename(f"{path.parent}.partial"), "is not a complete checkpoint"),
    ],
    ids=["missing", "torn", "foreign", "partial"],
)
def test_a_read_takes_only_what_the_manifest_on_the_target_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], message: str
) -> None:
    monkeypatch.setattr(storage_module, "evict", lambda paths: damage(paths[0]))
    workload, context = made(), context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(DataError, match=message):
        workload.run(context)
    assert context.timed("read") == []


def test_a_checkpoint_that_is_not_whole_at_the_end_fails_the_run(tmp_path: Path) -> None:
    workload, context = made(keep=2), context_at(tmp_path)
    run(workload, context, verify=False)
    (data_folder(context) / "checkpoint-000002" / "manifest.json").unlink()
    checks = {check.name: check for check in workload.verify(context)}
    assert checks["checkpoint_committed"].verdict == "fail"
    assert "[['checkpoint-000001']]" in checks["checkpoint_committed"].sentence


def test_one_checkpoint_that_is_kept_is_named_as_one(tmp_path: Path) -> None:
    _, checks = run(made(keep=1), context_at(tmp_path))
    assert "had the last checkpoint, complete by its" in checks["checkpoint_committed"].sentence


def test_a_warm_cache_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warm(paths: list[Path]) -> None:
        for path in paths:
            path.read_bytes()

    monkeypatch.setattr("wattload.workloads.checkpoint.cycle.evict", warm)
    _, checks = run(made(), context_at(tmp_path))
    assert checks["cold_cache"].verdict == "fail"
    assert checks["cold_cache"].figures["times_checked"] == 3
