from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattload.core.errors import DataError
from wattload.loaders.data.safetensors_files import (
    INDEX,
    Tensor,
    index_of,
    laid_out,
    read_folder,
    read_header,
    shard_name,
)

PAIR = {
    "a": {"dtype": "U8", "shape": [2, 3], "data_offsets": [0, 6]},
    "b": {"dtype": "BF16", "shape": [], "data_offsets": [6, 8]},
}


def file_bytes(header: object, data_bytes: int = 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data_bytes)


def write_shards(folder: Path, *shards: dict[str, Any]) -> dict[str, Any]:
    """Write files of tensors of a byte, and return their index, which is not written."""
    names = [shard_name(number, len(shards)) for number in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        header = {
            tensor: {"dtype": "U8", "shape": [1], "data_offsets": [place, place + 1]}
            for place, tensor in enumerate(shard)
        }
        (folder / name).write_bytes(file_bytes(header, len(shard)))
    places = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    return {"metadata": {"total_size": len(places)}, "weight_map": places}


def test_a_file_is_read_in_the_order_of_its_offsets(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = {"__metadata__": {"format": "pt"}, "b": PAIR["b"], "a": PAIR["a"]}
    path.write_bytes(file_bytes(header))
    first, second = read_header(path, 3)
    start = path.stat().st_size - 8
    assert (first.name, first.shape, first.rows, first.row_bytes) == ("a", (2, 3), 2, 3)
    assert (first.file, first.offset_bytes, first.size_bytes) == (3, start, 6)
    assert (second.name, second.dtype, second.rows, second.offset_bytes) == (
        "b",
        "BF16",
        1,
        start + 6,
    )


def test_what_is_laid_out_is_what_is_read(tmp_path: Path) -> None:
    tensors = [Tensor("b", "F32", (4, 100)), Tensor("a", "F32", (3,))]
    header, stored = laid_out(tensors, 0)
    path = tmp_path / "model.safetensors"
    path.write_bytes(header + bytes(1612))
    assert len(header) % 4096 == 0
    assert read_header(path) == stored
    assert [tensor.name for tensor in stored] == ["a", "b"]


def test_the_package_reads_what_is_laid_out(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    header, (first, second) = laid_out([Tensor("b", "F32", (4, 5)), Tensor("a", "F32", (3,))], 0)
    data = np.arange(23, dtype="<f4")
    path = tmp_path / "model.safetensors"
    path.write_bytes(header + data.tobytes())
    found = numpy.load_file(path)
    assert np.array_equal(found["a"], data[:3])
    assert np.array_equal(found["b"], data[3:].reshape(4, 5))
    with pytest.importorskip("safetensors").safe_open(path, "np") as opened:
        assert opened.metadata() == {"format": "pt"}
    assert (first.size_bytes, second.offset_bytes) == (12, len(header) + 12)


def test_files_that_the_package_writes_are_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    arrays: dict[str, Any] = {
        "x": np.arange(6, dtype=np.int64).reshape(2, 3),
        "y": np.ones(5, np.float16),
    }
    numpy.save_file(arrays, tmp_path / "model.safetensors")
    found = read_folder(tmp_path)
    content = found.files[0].read_bytes()
    assert {tensor.name: tensor.dtype for tensor in found.tensors} == {"x": "I64", "y": "F16"}
    for tensor in found.tensors:
        data = content[tensor.offset_bytes : tensor.offset_bytes + tensor.size_bytes]
        assert data == arrays[tensor.name].tobytes()


def changed(**entry: object) -> dict[str, Any]:
    return {**PAIR, "b": {**PAIR["b"], **entry}}


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it has 0 bytes, too few for a safetensors file"),
    "pickled": (b"PK\x03\x04" * 100, "announce a header of 289,157,608,118,635,344 bytes"),
    "too long": ((100_000_001).to_bytes(8, "little"), "100,000,000 are allowed"),
    "beyond the file": (file_bytes(PAIR)[:40], "and it has 32 more bytes"),
    "not JSON": (file_bytes(b"{'a': 1}"), "is not JSON"),
    "not UTF-8": (file_bytes(b'{"\xff": 1}'), "is not JSON"),
    "no object": (file_bytes([]), "not a JSON object"),
    "twice": (file_bytes(b'{"a": 1, "a": 2}'), "the key 'a' appears twice"),
    "no type": (
        file_bytes({"a": {"shape": [], "data_offsets": [0, 1]}}),
        "a.dtype: Field required",
    ),
    "unknown type": (
        file_bytes(changed(dtype="F2")),
        "b has the unknown type 'F2', not F64",
    ),
    "negative": (file_bytes(changed(shape=[-1])), "b.shape.0: Input should be greater than"),
    "fraction": (file_bytes(changed(shape=[1.0])), "b.shape.0: Input should be a valid integer"),
    "three offsets": (file_bytes(changed(data_offsets=[6, 7, 8])), "b.data_offsets: "),
    "size": (file_bytes(changed(shape=[2])), "BF16 of shape [2] takes 4 bytes"),
    "descending": (file_bytes(changed(data_offsets=[8, 6])), "6: it ends before it begins"),
    "escaping": (file_bytes(changed(data_offsets=[8, 10])), "10, and its data ends at byte 8"),
    "overlapping": (file_bytes(changed(data_offsets=[5, 7])), "overlaps the tensor before it"),
    "hole": (file_bytes(changed(data_offsets=[7, 9]), 9), "behind a hole of 1 bytes"),
    "more": (file_bytes(PAIR, 20), "12 bytes behind its last tensor"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    content, words = BAD_FILES[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_folder(tmp_path)
    text = str(caught.value)
    assert text.startswith(f"{path} can't be used: ")
    assert words in text
    assert text.endswith("; copy or download it again")


def test_a_model_of_several_files_is_read_by_its_index(tmp_path: Path) -> None:
    index = write_shards(tmp_path, {"a": 0, "c": 0}, {"b": 0})
    (tmp_path / INDEX).write_text(json.dumps(index))
    (tmp_path / "consolidated.safetensors").write_bytes(b"of another layout")
    found = read_folder(tmp_path)
    assert [path.name for path in found.files] == [shard_name(0, 2), shard_name(1, 2)]
    assert [(tensor.name, tensor.file) for tensor in found.tensors] == [
        ("a", 0),
        ("c", 0),
        ("b", 1),
    ]
    assert found.links == 0


def test_without_an_index_all_files_are_read(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": 0}, {"b": 0})
    assert len(read_folder(tmp_path).tensors) == 2


def test_the_index_is_that_of_the_files(tmp_path: Path) -> None:
    index = write_shards(tmp_path, {"a": 0, "c": 0}, {"b": 0})
    a, b, c = (Tensor(name, "U8", (1,)) for name in "abc")
    assert json.loads(index_of([[a, c], [b]])) == index


def without(name: str) -> Callable[[Path, dict[str, Any]], None]:
    return lambda folder, index: index["weight_map"].pop(name)


def moved(name: str, place: str) -> Callable[[Path, dict[str, Any]], None]:
    return lambda folder, index: index["weight_map"].update({name: place})


BAD_FOLDERS: dict[str, tuple[Callable[[Path, dict[str, Any]], object], str]] = {
    "a shard is gone": (
        lambda folder, index: (folder / shard_name(1, 2)).unlink(),
        "model-00002-of-00002.safetensors can't be used: it is missing",
    ),
    "a shard is in no map": (without("b"), "lacks model-00002-of-00002.safetensors"),
    "a tensor is in no map": (without("a"), "has tensor a in no file, and the files have it in"),
    "a tensor is in no file": (
        moved("d", shard_name(1, 2)),
        "has tensor d in model-00002-of-00002.safetensors, and the files have it in no file",
    ),
    "elsewhere": (
        moved("a", shard_name(1, 2)),
        "has tensor a in model-00002-of-00002.safetensors, and the files have it in model-00001",
    ),
    "outside": (
        moved("a", "../a.safetensors"),
        "names '../a.safetensors', which is no file in its",
    ),
    "absolute": (moved("a", "/etc/passwd"), "names '/etc/passwd', which is no file in its folder"),
    "no map": (lambda folder, index: index.pop("weight_map"), "it has weight_map: Field required"),
    "empty map": (lambda folder, index: index["weight_map"].clear(), "weight_map: "),
    "no text": (lambda folder, index: index["weight_map"].update(a=1), "it has weight_map.a: "),
    "twice": (
        lambda folder, index: write_shards(folder, {"a": 0, "c": 0}, {"b": 0, "a": 0}),
        "it has tensor a, and so has model-00001-of-00002.safetensors",
    ),
}


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_a_bad_folder_is_one_sentence(tmp_path: Path, name: str) -> None:
    change, words = BAD_FOLDERS[name]
    index = write_shards(tmp_path, {"a": 0, "c": 0}, {"b": 0})
    change(tmp_path, index)
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError) as caught:
        read_folder(tmp_path)
    assert words in str(caught.value)


def test_a_shard_without_an_index_is_not_enough(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": 0}, {"b": 0})
    (tmp_path / shard_name(0, 2)).unlink()
    with pytest.raises(DataError, match=f"{tmp_path} lacks model-00001-of-00002.safetensors"):
        read_folder(tmp_path)


def test_a_folder_without_tensors_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no \*.safetensors files; choose"):
        read_folder(tmp_path)
    with pytest.raises(DataError, match="gone can't be read: No such file or directory"):
        read_folder(tmp_path / "gone")
    empty = {"a": {"dtype": "U8", "shape": [0, 4], "data_offsets": [0, 0]}}
    (tmp_path / "model.safetensors").write_bytes(file_bytes(empty, 0))
    with pytest.raises(DataError, match="has no tensor with a byte"):
        read_folder(tmp_path)


def test_a_link_out_of_the_folder_is_followed_and_counted(tmp_path: Path) -> None:
    for name in ("blobs", "snapshot"):
        (tmp_path / name).mkdir()
    write_shards(tmp_path / "snapshot", {"a": 0}, {"b": 0})
    path = tmp_path / "snapshot" / shard_name(1, 2)
    path.rename(tmp_path / "blobs" / "6b86b2")
    path.symlink_to("../blobs/6b86b2")
    found = read_folder(tmp_path / "snapshot")
    assert (len(found.tensors), found.links) == (2, 1)
