"""Folders laid out as IGB's own loader reads them, whole and damaged."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from wattload.core.errors import DataError
from wattload.loaders.graph.igb_folder import IgbFolder
from wattload.loaders.graph.synthetic import GraphShape

PAPERS, AUTHORS, FOS, INSTITUTES = 9, 5, 4, 2
COUNTS = {"paper": PAPERS, "author": AUTHORS, "fos": FOS, "institute": INSTITUTES}
CITES = [(3, 0), (1, 1), (8, 0), (0, 7), (3, 0), (2, 1), (5, 5)]
WROTE = [(0, 4), (1, 4), (8, 0), (3, 2)]
TOPIC = [(7, 3), (0, 0), (7, 0)]
AFFILIATED = [(4, 1), (0, 1)]


def features(name: str) -> NDArray[np.float32]:
    count = COUNTS[name]
    return np.arange(count * 1024, dtype=np.float32).reshape(count, 1024) / np.float32(7)


def write(path: Path, values: NDArray[np.generic], *, is_raw: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_raw:
        values.tofile(path)
    else:
        np.save(path, values)


def make(root: Path, *, is_heterogeneous: bool = False, is_raw: bool = False) -> Path:
    folder = root / "processed"
    labels = np.arange(PAPERS) % 19
    write(folder / "paper/node_feat.npy", features("paper"), is_raw=is_raw)
    write(
        folder / "paper/node_label_19.npy",
        labels.astype(np.float32) if is_raw else labels,
        is_raw=is_raw,
    )
    write(folder / "paper__cites__paper/edge_index.npy", np.array(CITES))
    if is_heterogeneous:
        for name in ("author", "fos", "institute"):
            write(folder / f"{name}/node_feat.npy", features(name), is_raw=name == "author")
        write(folder / "paper__written_by__author/edge_index.npy", np.array(WROTE))
        write(folder / "paper__topic__fos/edge_index.npy", np.array(TOPIC))
        write(folder / "author__affiliated_to__institute/edge_index.npy", np.array(AFFILIATED))
    return root


def lists_of(folder: IgbFolder) -> dict[str, list[list[int]]]:
    topology = folder.load_topology()
    assert topology.shape is folder.shape
    found = {}
    for relation, indptr, indices in zip(
        topology.shape.relations, topology.indptr, topology.indices, strict=True
    ):
        parts = np.split(indices, indptr[1:-1].astype(np.intp))
        lists = [part.tolist() for part in parts]
        assert len(indices) == relation.edge_count
        assert relation.largest_degree == max(map(len, lists))
        found[topology.shape.title(relation)] = lists
    return found


def by_hand(edges: list[tuple[int, int]], count: int) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(count)]
    for source, destination in edges:
        lists[destination].append(source)
    return lists


def cites_with_loops() -> list[list[int]]:
    kept = [(a, b) for a, b in CITES if a != b]
    return by_hand([*kept, *((paper, paper) for paper in range(PAPERS))], PAPERS)


@pytest.mark.parametrize("is_raw", [False, True])
def test_papers_and_their_citations(tmp_path: Path, *, is_raw: bool) -> None:
    """Raw: features and labels without a header, as in the sizes large and full."""
    folder = IgbFolder(make(tmp_path, is_raw=is_raw))
    before = {path: hashlib.sha256(path.read_bytes()) for path in tmp_path.rglob("*.npy")}
    (file,) = folder.feature_files
    assert (file.row_count, file.first_row, file.step) == (PAPERS, 0, 1)
    assert file.offset_bytes == (0 if is_raw else 128)
    content = file.path.read_bytes()[file.offset_bytes :]
    assert content == features("paper").tobytes()
    assert lists_of(folder) == {"paper-cites-paper": cites_with_loops()}
    assert folder.shape.name == "igb"
    assert folder.topology_bytes == 8 * (PAPERS + 1) + 4 * (5 + PAPERS) + PAPERS
    assert folder.labels(np.array([8, 0, 3], dtype=np.uint32)).tolist() == [8, 0, 3]
    assert (folder.classes, folder.labelled_nodes) == (19, PAPERS)
    after = {path: hashlib.sha256(path.read_bytes()) for path in tmp_path.rglob("*.npy")}
    assert {path: each.digest() for path, each in before.items()} == {
        path: each.digest() for path, each in after.items()
    }


def test_four_types_have_their_relations_both_ways(tmp_path: Path) -> None:
    folder = IgbFolder(make(tmp_path, is_heterogeneous=True))
    shape: GraphShape = folder.shape
    assert [(each.name, each.count) for each in shape.node_types] == list(COUNTS.items())
    assert [each.first_row for each in folder.feature_files] == [0, 9, 14, 18]
    assert [each.offset_bytes for each in folder.feature_files] == [128, 0, 128, 128]

    def back(edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(second, first) for first, second in edges]

    assert lists_of(folder) == {
        "paper-cites-paper": cites_with_loops(),
        "paper-rev_cites-paper": by_hand(back([(a, b) for a, b in CITES if a != b]), PAPERS),
        "paper-written_by-author": by_hand(WROTE, AUTHORS),
        "author-rev_written_by-paper": by_hand(back(WROTE), PAPERS),
        "paper-topic-fos": by_hand(TOPIC, FOS),
        "fos-rev_topic-paper": by_hand(back(TOPIC), PAPERS),
        "author-affiliated_to-institute": by_hand(AFFILIATED, INSTITUTES),
        "institute-rev_affiliated_to-author": by_hand(back(AFFILIATED), AUTHORS),
    }
    cites, back_way = folder.shape.relations[:2]
    assert cites.largest_source_degree == back_way.largest_degree


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4)


def not_finite(path: Path) -> None:
    values = features("paper")
    values[8, 1000] = np.nan
    write(path, values)


FEATURES, EDGES = "paper/node_feat.npy", "paper__cites__paper/edge_index.npy"
LABELS = "paper/node_label_19.npy"


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (FEATURES, Path.unlink, "node_feat.npy is missing"),
        (EDGES, Path.unlink, "edge_index.npy is missing"),
        (FEATURES, truncate, "36988 bytes instead of the 36992 of float32"),
        (EDGES, truncate, "bytes instead of the 240 of int64"),
        (FEATURES, lambda p: write(p, features("paper")[:, :512]), r"shape \(9, 512\).*download"),
        (
            FEATURES,
            lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\x10\x00damaged-header.."),
            "damaged",
        ),
        (EDGES, lambda p: write(p, np.zeros((7, 3), np.int64)), r"shape \(7, 3\).*download"),
        (EDGES, lambda p: write(p, np.array(CITES, "<f8")), r"has float64.*download"),
        (EDGES, lambda p: p.write_bytes(b"12345678"), "not a file of numpy"),
        (LABELS, lambda p: write(p, np.zeros(8, np.int64)), "int64 of.* each of 9 papers"),
        (LABELS, lambda p: write(p, np.array(["a"] * PAPERS)), "<U1 of.* each of 9 papers"),
        (LABELS, lambda p: np.save(p, np.array([{}] * PAPERS)), "pickled objects"),
        (FEATURES, lambda p: os.truncate(p, 0), "has no rows; download"),
        (FEATURES, lambda p: os.truncate(p, 40), "damaged header of numpy.*download"),
        (FEATURES, lambda p: (p.unlink(), p.mkdir()), "is not a regular file"),
        (EDGES, lambda p: (p.unlink(), p.symlink_to("/dev/null")), "is not a regular file"),
        (FEATURES, lambda p: (p.unlink(), p.symlink_to(p)), "can't be read .Too many levels"),
        (EDGES, lambda p: (p.unlink(), p.symlink_to(p)), "can't be read .Too many levels"),
    ],
)
def test_incomplete_folders_are_refused_at_once(
    tmp_path: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    path = make(tmp_path) / "processed" / name
    damage(path)
    with pytest.raises(DataError, match=message) as caught:
        IgbFolder(tmp_path)
    assert str(path) in str(caught.value)


def test_all_wrong_files_are_named_at_once(tmp_path: Path) -> None:
    folder = make(tmp_path) / "processed"
    np.save(folder / FEATURES, features("paper").astype(np.float16))
    (folder / EDGES).unlink()
    truncate(folder / LABELS)
    with pytest.raises(DataError, match=r"node_feat\.npy has float16 ") as caught:
        IgbFolder(tmp_path)
    missing, short = caught.value.__notes__
    assert missing.startswith(f"  also        {folder / EDGES} is missing; ")
    assert short.startswith(f"  also        {folder / LABELS} has ")


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        (FEATURES, (features("paper") / 4).astype(np.float16), "float16 of shape (9, 1024)"),
        (FEATURES, features("paper").astype(">f4"), ">f4 of shape (9, 1024)"),
        (FEATURES, features("paper").astype(np.float64), "float64 of shape (9, 1024)"),
        (
            FEATURES,
            np.asfortranarray(features("paper")),
            "float32 of shape (9, 1024), stored by columns (Fortran order)",
        ),
        (EDGES, np.array(CITES, np.int32), "int32 of shape (7, 2)"),
        (EDGES, np.array(CITES).T.copy(), "int64 of shape (2, 7)"),
        (EDGES, np.array(CITES, np.uint16).T.copy(), "uint16 of shape (2, 7)"),
        (
            EDGES,
            np.asfortranarray(np.array(CITES)),
            "int64 of shape (7, 2), stored by columns (Fortran order)",
        ),
        (EDGES, np.array(CITES).T, "int64 of shape (2, 7), stored by columns (Fortran order)"),
    ],
)
def test_another_form_is_refused_with_the_line_that_converts_it(
    tmp_path: Path, name: str, values: NDArray[np.generic], found: str
) -> None:
    root = make(tmp_path / "a user's")
    path = root / "processed" / name
    write(path, values)
    original = path.read_bytes()
    needed = "rows of 1024 float32" if name == FEATURES else "pairs of int64"
    with pytest.raises(DataError) as caught:
        IgbFolder(root)
    stated, fix = str(caught.value).split(
        "; write a converted copy, which ends in .new, and rename it to the old name; in Python: "
    )
    assert stated == f"{path} has {found}, {needed} are needed, one row after another"
    subprocess.run([sys.executable, "-c", fix], check=True)
    assert path.read_bytes() == original
    path.with_name(f"{path.name}.new").rename(path)
    folder = IgbFolder(root)
    assert lists_of(folder) == {"paper-cites-paper": cites_with_loops()}
    if name == FEATURES:
        assert (np.load(path) == values).all()


def test_linked_features_are_those_of_the_file_that_is_read(tmp_path: Path) -> None:
    root = make(tmp_path / "root")
    path, elsewhere = root / "processed" / FEATURES, tmp_path / "elsewhere.npy"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    (tmp_path / "link").symlink_to(root)
    (file,) = IgbFolder(tmp_path / "link").feature_files
    assert file.path == elsewhere
    elsewhere.unlink()
    with pytest.raises(DataError, match=r"elsewhere.npy is missing; a folder of IGB has it"):
        IgbFolder(root)


def test_the_digest_of_a_topology_is_that_of_its_edges(tmp_path: Path) -> None:
    found = []
    for name, edges in (("a", CITES), ("b", CITES), ("c", [(2, 0), *CITES[1:]])):
        root = make(tmp_path / name, is_heterogeneous=True)
        write(root / "processed" / EDGES, np.array(edges))
        topology = IgbFolder(root).load_topology()
        pairs = zip(topology.indptr, topology.indices, strict=True)
        numbers = b"".join(each.tobytes() for pair in pairs for each in pair)
        assert topology.crc32 == zlib.crc32(numbers)
        found.append(topology.crc32)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (FEATURES, not_finite, "value 1000 of row 8 is nan"),
        (EDGES, lambda p: write(p, np.array([*CITES, (2, 9)])), "edge 7 has node 9.* only 9 nodes"),
        (EDGES, lambda p: write(p, np.array([(-1, 2), *CITES])), "edge 0 has node -1"),
        (LABELS, lambda p: write(p, np.array([0] * 8 + [19])), "paper 8 is 19, not a class"),
        (LABELS, lambda p: write(p, np.array([0, np.nan, *[1.0] * 7])), "paper 1 is nan"),
        (LABELS, lambda p: write(p, np.array([0, 1.5, *[1.0] * 7])), r"paper 1 is 1\.5"),
    ],
)
def test_wrong_values_are_refused_when_the_topology_is_loaded(
    tmp_path: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    path = make(tmp_path) / "processed" / name
    damage(path)
    folder = IgbFolder(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        folder.load_topology()
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(folder.remedy)
