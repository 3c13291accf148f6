"""When a set of files counts as a checkpoint: manifest, rename, fsync; and never before.

Ranks write into ``checkpoint-000007.partial``. When all their files are durable, the leader adds
``manifest.json`` with each file's size and checksum, fsyncs it and the folder, renames the folder
to ``checkpoint-000007`` and fsyncs the folder above. An interruption at any moment leaves either
the temporary name, or a whole checkpoint. It is taken away the other way round: manifest first.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wattload.core.errors import DataError
from wattload.loaders.checkpoints import Identity, Saved, ShardFile
from wattload.loaders.datafolder.safefiles import sync_folder

MANIFEST_NAME = "manifest.json"
PARTIAL_SUFFIX = ".partial"

_PREFIX = "checkpoint-"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a complete checkpoint says of itself; ``files`` and ``file_bytes`` by rank."""

    model: str
    checkpoint: int
    nonce: int
    files: Mapping[int, Sequence[ShardFile]]
    file_bytes: Mapping[str, int]

    def identity(self, rank: int) -> Identity:
        """Return what the stamps of a rank's blocks say."""
        return Identity(nonce=self.nonce, rank=rank, checkpoint=self.checkpoint)


def folder_name(checkpoint: int) -> str:
    """Return the name of a complete checkpoint's folder."""
    return f"{_PREFIX}{checkpoint:06d}"


def partial_name(checkpoint: int) -> str:
    """Return the name of the folder in which a checkpoint is being written."""
    return folder_name(checkpoint) + PARTIAL_SUFFIX


def commit(
    parent: Path, *, model: str, checkpoint: int, nonce: int, saved: Mapping[int, Saved]
) -> Manifest:
    """Turn the files in the partial folder, all durable by now, into a checkpoint.

    Raises:
        DataError: a file that a rank says it saved is not there.
        OSError: the kernel refused.
    """
    partial = parent / partial_name(checkpoint)
    files = {rank: item.files for rank, item in sorted(saved.items())}
    manifest = Manifest(
        model=model,
        checkpoint=checkpoint,
        nonce=nonce,
        files=files,
        file_bytes={f.name: _size(partial / f.name) for own in files.values() for f in own},
    )
    _write_durably(partial / MANIFEST_NAME, _to_text(manifest))
    sync_folder(partial)
    partial.rename(parent / folder_name(checkpoint))
    sync_folder(parent)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a complete checkpoint.

    Raises ``DataError`` for a folder that is none: still partial, without a manifest, with one that
    is torn or was edited, or with a file of another size than the manifest says.
    """
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise DataError(f"{folder} was never finished, so it is no checkpoint")
    manifest = _from_text(folder)
    for name, size_bytes in manifest.file_bytes.items():
        found_bytes = _size(folder / name)
        if found_bytes != size_bytes:
            raise DataError(
                f"{folder / name} has {found_bytes} bytes where the manifest says {size_bytes}, "
                "so this is no complete checkpoint"
            )
    return manifest


def complete_checkpoints(parent: Path) -> list[Path]:
    """Return the folders below ``parent`` that are complete checkpoints, oldest first."""
    found = []
    for folder in sorted(parent.glob(f"{_PREFIX}*")):
        try:
            read_manifest(folder)
        except DataError:
            continue
        found.append(folder)
    return found


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError as error:
        raise DataError(f"{path} belongs to the checkpoint and is not there") from error


def _write_durably(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _to_text(manifest: Manifest) -> str:
    """Return the manifest as JSON, with the SHA-256 of its own body; checksums and nonce in hex."""
    body = {
        "format": _FORMAT,
        "model": manifest.model,
        "checkpoint": manifest.checkpoint,
        "nonce": f"{manifest.nonce:016x}",
        "checksum": "sum of little-endian 64-bit words modulo 2^64, of the tensors' bytes",
        "file_bytes": dict(manifest.file_bytes),
        "files": {
            str(rank): [asdict(file) | {"checksum": f"{file.checksum:016x}"} for file in files]
            for rank, files in manifest.files.items()
        },
    }
    return json.dumps({"sha256": _digest(body), "body": body}, indent=1)


def _from_text(folder: Path) -> Manifest:
    try:
        body = _body((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        return Manifest(
            model=body["model"],
            checkpoint=body["checkpoint"],
            nonce=int(body["nonce"], 16),
            file_bytes=body["file_bytes"],
            files={
                int(rank): [
                    ShardFile(**file | {"checksum": int(file["checksum"], 16)}) for file in own
                ]
                for rank, own in body["files"].items()
            },
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} is no complete checkpoint: {error}") from error


def _body(text: str) -> dict[str, Any]:
    """Return the body of a manifest; raises ``ValueError`` if it is not as it was written."""
    document = json.loads(text)
    body: dict[str, Any] = document["body"]
    if document["sha256"] != _digest(body) or body["format"] != _FORMAT:
        raise ValueError("its manifest is torn, was edited, or is of another format")
    return body


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
