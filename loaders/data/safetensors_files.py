"""Safetensors files, as https://huggingface.co/docs/safetensors specifies them.

A file is the length of its header (8 bytes, little-endian), the header (JSON: type, shape and
offsets of each tensor by name), and the tensors without gaps. A model of several files has an index
that maps each tensor to its file.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError

from wattload.core.base_models import first_fault, strict_json
from wattload.core.errors import DataError
from wattload.loaders.aligned_io import PAGE_BYTES, round_up

INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
METADATA = "__metadata__"
MOST_HEADER_BYTES = 100_000_000
"""The format's own limit."""

DTYPE_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("I8", "U8", "BOOL"), 1),
}
"""The size of an element, for all types of the format of a byte or more."""

_LENGTH_BYTES = 8
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as the format names it: ``dtype`` is one of ``DTYPE_BYTES``.

    As bytes it is a matrix of ``rows``, ``shape[0]`` of them or one for a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * DTYPE_BYTES[self.dtype]

    @property
    def size_bytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class StoredTensor(Tensor):
    """A tensor at ``offset_bytes`` from the start of file number ``file``."""

    file: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model, and their tensors in the order of files and offsets.

    ``links`` of the files are symbolic links to files outside of the folder.
    """

    files: tuple[Path, ...]
    tensors: tuple[StoredTensor, ...]
    links: int


class _Entry(BaseModel):
    """What the header has of a tensor; other fields are ignored."""

    model_config = ConfigDict(strict=True, defer_build=True)
    dtype: str
    shape: list[NonNegativeInt]
    data_offsets: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)]


class _Index(BaseModel):
    model_config = ConfigDict(strict=True, defer_build=True)
    weight_map: Annotated[dict[str, str], Field(min_length=1)]


_ENTRIES = TypeAdapter(dict[str, _Entry])


def shard_name(number: int, count: int) -> str:
    """Return the name of file ``number`` (from 0) of ``count``, as Hugging Face has it."""
    if count == 1:
        return f"model{SUFFIX}"
    return f"model-{number + 1:05}-of-{count:05}{SUFFIX}"


def index_of(shards: Sequence[Sequence[Tensor]]) -> bytes:
    """Return the index of a model whose files have these tensors."""
    names = {
        tensor.name: shard_name(number, len(shards))
        for number, shard in enumerate(shards)
        for tensor in shard
    }
    total_bytes = sum(tensor.size_bytes for shard in shards for tensor in shard)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": names}
    return json.dumps(index, indent=2).encode()


def laid_out(tensors: Sequence[Tensor], file: int) -> tuple[bytes, tuple[StoredTensor, ...]]:
    """Return the header of a file with these tensors of one type, and where each of them is.

    They are in the order of their names, as the package writes them. The header ends with spaces,
    so that the tensors start at a multiple of 4096 bytes.
    """
    ordered = sorted(tensors, key=lambda tensor: tensor.name)
    ends = list(accumulate((tensor.size_bytes for tensor in ordered), initial=0))
    entries: dict[str, object] = {METADATA: {"format": "pt"}}
    for tensor, span in zip(ordered, pairwise(ends), strict=True):
        entry = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": span}
        entries[tensor.name] = entry
    text = json.dumps(entries, separators=(",", ":")).encode()
    data = round_up(_LENGTH_BYTES + len(text), PAGE_BYTES)
    header_bytes = data - _LENGTH_BYTES
    header = header_bytes.to_bytes(_LENGTH_BYTES, "little") + text.ljust(header_bytes)
    return header, tuple(
        StoredTensor(tensor.name, tensor.dtype, tensor.shape, file, data + start)
        for tensor, start in zip(ordered, ends, strict=False)
    )


def read_header(path: Path, file: int = 0) -> tuple[StoredTensor, ...]:
    """Return the tensors of a file in the order of their offsets.

    Raises:
        DataError: the file can't be read, or is not as the format says.
    """
    content, data_bytes = _header(path)
    try:
        found = strict_json(content)
        found.pop(METADATA, None)
        entries = _ENTRIES.validate_python(found)
    except ValidationError as error:
        place, fault, value = first_fault(error)
        _refuse(path, f"its header has {place}: {fault}, not {value!r:.60}")
    except ValueError as error:
        _refuse(path, f"its header is not JSON: {error}")
    tensors, at = [], 0
    for name, entry in sorted(entries.items(), key=lambda each: each[1].data_offsets):
        begin, end = entry.data_offsets
        span = f"tensor {name} at bytes {begin} to {end}"
        if entry.dtype not in DTYPE_BYTES:
            known = ", ".join(DTYPE_BYTES)
            _refuse(path, f"tensor {name} has the unknown type {entry.dtype!r:.60}, not {known}")
        start = _LENGTH_BYTES + len(content) + begin
        tensor = StoredTensor(name, entry.dtype, tuple(entry.shape), file, start)
        if end < begin:
            _refuse(path, f"it has {span}: it ends before it begins")
        if end > data_bytes:
            _refuse(path, f"it has {span}, and its data ends at byte {data_bytes}")
        if tensor.size_bytes != end - begin:
            form = f"{entry.dtype} of shape {entry.shape} takes {tensor.size_bytes} bytes"
            _refuse(path, f"it has {span}, and {form}")
        if begin < at:
            _refuse(path, f"it has {span}, which overlaps the tensor before it")
        if begin > at:
            _refuse(path, f"it has {span}, behind a hole of {begin - at} bytes")
        tensors.append(tensor)
        at = end
    if at < data_bytes:
        _refuse(path, f"it has {data_bytes - at} bytes behind its last tensor")
    return tuple(tensors)


def read_folder(folder: Path) -> ModelFiles:
    """Return the files of a model: those of its index, or else all safetensors files.

    Links to files outside are followed, as Hugging Face's cache has them.

    Raises:
        DataError: a file is missing or invalid, all tensors are empty, the files and the index have
            different tensors, or the index has a file outside of the folder.
    """
    index = folder / INDEX
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.endswith(SUFFIX))
        mapped = _weight_map(index) if index.exists() else None
    except OSError as error:
        raise DataError(
            f"{error.filename} can't be read: {error.strerror}; workload.source must be a folder "
            f"with *{SUFFIX} files"
        ) from error
    if mapped is not None:
        names = sorted(set(mapped.values()))
    if not names:
        raise DataError(
            f"{folder} has no *{SUFFIX} files; choose the folder of a model that has them"
        )
    _require_all(index if mapped else folder, names)
    files = tuple(folder / name for name in names)
    tensors = [each for number, path in enumerate(files) for each in read_header(path, number)]
    if not any(tensor.size_bytes for tensor in tensors):
        raise DataError(f"{folder} has no tensor with a byte; choose the folder of a model")
    stored: dict[str, str] = {}
    for tensor in tensors:
        other = stored.setdefault(tensor.name, names[tensor.file])
        if other != names[tensor.file]:
            _refuse(files[tensor.file], f"it has tensor {tensor.name}, and so has {other}")
    mapped = stored if mapped is None else mapped
    wrong = [name for name in stored | mapped if stored.get(name) != mapped.get(name)]
    if wrong:
        there, here = (each.get(wrong[0], "no file") for each in (mapped, stored))
        _refuse(index, f"it has tensor {wrong[0]} in {there}, and the files have it in {here}")
    inside = folder.resolve()
    links = sum(not path.resolve().is_relative_to(inside) for path in files)
    return ModelFiles(files, tuple(tensors), links)


def _header(path: Path) -> tuple[bytes, int]:
    """Return the text of a header, and the size of what follows it."""
    if not path.is_file():
        _refuse(path, "it is missing, or is no regular file")
    try:
        with path.open("rb") as opened:
            size_bytes = os.fstat(opened.fileno()).st_size
            rest_bytes = size_bytes - _LENGTH_BYTES
            if rest_bytes < 0:
                _refuse(path, f"it has {size_bytes} bytes, too few for a safetensors file")
            header_bytes = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
            if header_bytes > min(rest_bytes, MOST_HEADER_BYTES):
                _refuse(
                    path,
                    f"its first 8 bytes announce a header of {header_bytes:,} bytes, and it has "
                    f"{rest_bytes:,} more bytes; {MOST_HEADER_BYTES:,} are allowed",
                )
            return opened.read(header_bytes), rest_bytes - header_bytes
    except OSError as error:
        _refuse(path, f"it can't be read: {error.strerror}")


def _weight_map(index: Path) -> dict[str, str]:
    """Return the name of the file of each tensor."""
    try:
        if index.stat().st_size > MOST_HEADER_BYTES:
            _refuse(index, f"it has more than {MOST_HEADER_BYTES:,} bytes")
        mapped = _Index.model_validate(strict_json(index.read_bytes())).weight_map
    except ValidationError as error:
        place, fault, value = first_fault(error)
        _refuse(index, f"it has {place}: {fault}, not {value!r:.60}")
    except ValueError as error:
        _refuse(index, f"it is not JSON: {error}")
    outside = next((name for name in mapped.values() if Path(name).name != name), None)
    if outside is not None:
        _refuse(index, f"it names {outside!r:.200}, which is no file in its folder")
    return mapped


def _require_all(place: Path, names: Sequence[str]) -> None:
    """Raise unless the names of shards are those of all shards."""
    found = {name: match for name in names if (match := _SHARD.fullmatch(name))}
    for match in found.values():
        for number in range(1, int(match[3]) + 1):
            wanted = f"{match[1]}-{number:05}-of-{match[3]}{SUFFIX}"
            if wanted not in found:
                raise DataError(f"{place} lacks {wanted}; copy or download the model again")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise DataError(f"{path} can't be used: {reason}; copy or download it again")
