"""How ``torch.distributed.checkpoint`` meets files here: counted, and its metadata kept honest.

The library's metadata is a pickle. It is read back only if it is, byte for byte, what this process
wrote: the digest is kept in memory, never on the target.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata

from wattload.core.errors import DataError
from wattload.core.io import ByteCounter

METADATA_NAME = ".metadata"
METADATA_SCRATCH = f"{METADATA_NAME}.tmp"


class CountedFiles(FileSystem):
    """The library's file system, which tells of bytes written and keeps the first failure.

    The writer's own threads die of an error without telling it, so ``failure`` is asked afterwards.
    ``synced`` are the files whose descriptor the library took, which it does to fsync them.
    ``metadata_digest`` is the SHA-256 of the metadata that was written last.
    """

    def __init__(self, moved: ByteCounter) -> None:
        self.failure: OSError | None = None
        self.synced: set[Path] = set()
        self.metadata_digest = b""
        self.last_path = Path()
        self._moved = moved

    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        """Open a file; one that is written is counted."""
        self.last_path = opened = Path(path)
        with self._open(opened, mode) as stream:
            if mode == "rb":
                yield cast("io.IOBase", stream)
                return
            counted = _CountedStream(stream, self, opened)
            yield cast("io.IOBase", counted)
        if opened.name == METADATA_SCRATCH:
            self.metadata_digest = counted.digest.digest()

    def told(self, count: int) -> None:
        """Count bytes that a stream has written."""
        self._moved(count)

    @contextmanager
    def _open(self, path: Path, mode: str) -> Iterator[IO[bytes]]:
        with path.open(mode) as stream:
            yield cast("IO[bytes]", stream)


class MemoryFiles(CountedFiles):
    """The same with files that are kept in memory; nothing else of the library's path differs."""

    def __init__(self, moved: ByteCounter, kept: dict[Path, bytes]) -> None:
        super().__init__(moved)
        self._kept = kept

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Make nothing: a name is all that a folder is here."""

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether the file is kept; metadata of a save before it does not count."""
        return False

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Keep a file under another name."""
        self._kept[Path(new_path)] = self._kept.pop(Path(path))

    @contextmanager
    def _open(self, path: Path, mode: str) -> Iterator[IO[bytes]]:
        if mode == "rb":
            yield io.BytesIO(self._kept[path])
            return
        stream = _KeptStream()
        yield stream
        self._kept[path] = stream.getvalue()


class _KeptStream(io.BytesIO):
    """A stream whose bytes can still be taken when the writer has closed it."""

    def close(self) -> None:
        pass


class _CountedStream:
    """What the library writes to: the file's own methods, with ``write`` counted."""

    def __init__(self, stream: IO[bytes], files: CountedFiles, path: Path) -> None:
        self._stream = stream
        self._files = files
        self._path = path
        self.digest = hashlib.sha256()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the file has
        return getattr(self._stream, name)

    def fileno(self) -> int:
        """Return the descriptor, with nothing left in the stream's own buffer.

        The library asks for it to fsync; its metadata is still in that buffer then (torch 2.13), so
        that an empty file would be made durable.
        """
        self._stream.flush()
        descriptor = self._stream.fileno()
        self._files.synced.add(self._path)
        return descriptor

    def write(self, data: bytes) -> int:
        try:
            count = self._stream.write(data)
        except OSError as error:
            said = f"write failed: {error.strerror}"
            self._files.failure = OSError(error.errno, said, str(self._path))
            raise
        if self._path.name == METADATA_SCRATCH:
            self.digest.update(data)
        self._files.told(count)
        return count


class Reader(FileSystemReader):
    """The library's reader, which unpickles no metadata but that which this process wrote."""

    def __init__(self, folder: Path, files: CountedFiles, digest: bytes | None) -> None:
        super().__init__(folder)
        self.fs = files
        self._files = files
        self._digest = digest

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ANN401 - the library's
        """Return the metadata; raises ``DataError`` if it is not as it was written."""
        path = Path(self.path) / METADATA_NAME
        with self.fs.create_stream(path, "rb") as stream:
            content = cast("IO[bytes]", stream).read()
        if hashlib.sha256(content).digest() != self._digest:
            raise DataError(
                f"{path} is not the metadata that this run wrote, so it is not unpickled"
            )
        self._files.told(len(content))
        metadata: Metadata = pickle.loads(content)
        if metadata.storage_meta is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise what failed itself, where the library wraps it, an interrupt included."""
    try:
        yield
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise cause from error
