"""Graph files: layout, the same bytes by any number of workers, resumption, and damage."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.context import Context, directory_target
from tests.loaders.graph.sampling import SMALL
from wattload.core.errors import DataError, TargetError
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.graph import files
from wattload.loaders.graph.files import GraphFiles
from wattload.loaders.graph.synthetic import SHAPES, SyntheticGraph

SEED = 7


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 8192)
    monkeypatch.setattr(files, "DURABLE_CHUNKS", 4)


def on(*paths: Path) -> tuple[GraphFiles, Context]:
    for path in paths:
        path.mkdir(exist_ok=True)
    targets = tuple(directory_target(path, index=index) for index, path in enumerate(paths))
    return GraphFiles("gnn", SMALL, SEED, targets), Context(targets=targets)


def contents(*paths: Path) -> dict[str, bytes]:
    found = [each for path in paths for each in path.rglob("*.bin")]
    return {each.name: each.read_bytes() for each in found}


def test_the_files_have_the_documented_layout(tmp_path: Path) -> None:
    made, context = on(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert made.missing_bytes() == made.data_bytes == sum(made.target_bytes())
    facts = made.prepare(context, workers=2)
    graph, topology = SyntheticGraph(SMALL, SEED), made.load_topology()
    for number, relation in enumerate(SMALL.relations):
        nodes = SMALL.node_types[relation.destination].count
        degrees = graph.degrees(number, 0, nodes)
        assert np.array_equal(np.diff(topology.indptr[number].astype(int)), degrees)
        expected = graph.neighbours(number, 0, relation.edge_count)
        assert np.array_equal(topology.indices[number], expected)
    for row in (0, 1, 2, 511, 1036):
        stripe = made.feature_files[row % 3].path.read_bytes()
        place = row // 3 * 4096
        expected_row = graph.rows(np.array([row], dtype=np.uint64))
        assert stripe[place : place + 4096] == expected_row.tobytes()
    assert facts.data_bytes == sum(map(len, contents(tmp_path).values()))
    assert context.phases[0].written_bytes == facts.data_bytes
    assert made.missing_bytes() == 0
    assert made.prepare(context, workers=2).reused


def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path) -> None:
    for workers in (1, 3):
        made, context = on(tmp_path / str(workers))
        made.prepare(context, workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


KILLED = """
import os, sys
from pathlib import Path
from tests.context import RecordedPhase, context_at
from tests.loaders.graph.sampling import SMALL
from wattload.loaders.graph import files

files.CHUNK_BYTES, files.DURABLE_CHUNKS = 8192, 4
left = int(sys.argv[2])
def count(phase, moved_bytes):
    global left
    left -= 1
    if not left:
        os._exit(9)
RecordedPhase.count_written = count
context = context_at(Path(sys.argv[1]))
files.GraphFiles("gnn", SMALL, 7, context.targets).prepare(context, 1)
"""


@pytest.mark.parametrize("chunks", [3, 100, 400])
def test_a_killed_generation_is_continued(tmp_path: Path, chunks: int) -> None:
    whole, context = on(tmp_path / "whole")
    whole.prepare(context, 1)
    made, context = on(tmp_path / "killed")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(chunks)]
    assert subprocess.run(command, check=False).returncode == 9
    # The files are reserved whole before their first chunk: that space is not needed again.
    reserved_bytes = sum(each.stat().st_size for each in tmp_path.rglob("*.tmp"))
    assert reserved_bytes <= made.present_bytes() <= reserved_bytes + 4096
    assert made.missing_bytes() >= reserved_bytes - 4096
    made.prepare(context, 1)
    assert made.present_bytes() == made.missing_bytes() == 0
    assert contents(tmp_path / "whole") == contents(tmp_path / "killed")
    written = context.phases[0].written_bytes
    # At most the last 4 chunks of the file are written again; 4 files end with a shorter chunk.
    assert written <= made.data_bytes - (chunks - 8) * 8192
    assert not any(path.suffix in {".tmp", ".done"} for path in tmp_path.rglob("*"))
    for path in (tmp_path / "killed").rglob("*.bin"):
        assert recorded(path) == zlib.crc32(path.read_bytes())
    made.load_topology()


@pytest.mark.parametrize("kind", ["indptr", "indices"])
@pytest.mark.parametrize("place", [1, 500, -1])
def test_one_changed_number_is_refused(tmp_path: Path, kind: str, place: int) -> None:
    """It is a possible one: a list ends one edge later, or an edge comes from another node."""
    made, context = on(tmp_path / "t")
    made.prepare(context, 3)
    path = next(each for each in sorted(tmp_path.rglob("*.bin")) if each.name.startswith(kind))
    whole = path.read_bytes()
    numbers = np.frombuffer(whole, "<u8" if kind == "indptr" else "<u4").copy()
    numbers[place] ^= 1
    numbers.tofile(path)
    found, written = zlib.crc32(numbers.tobytes()), zlib.crc32(whole)
    assert recorded(path) == written
    reason = f"is not what was written: its CRC-32 is {found:08x} where {written:08x} was recorded"
    with pytest.raises(DataError, match=reason) as caught:
        made.load_topology()
    assert str(caught.value).startswith(f"{path} is")
    assert str(caught.value).endswith(made.remedy)
    path.write_bytes(whole)
    made.load_topology()


def recorded(path: Path) -> int:
    """Return the CRC-32 that the manifest lists for a file."""
    entry = DataFolder(path.parent, path.parent.name).entries[path.name]
    assert entry.result is not None
    return int(entry.result["crc32"])


def test_lists_that_end_elsewhere_are_refused(tmp_path: Path) -> None:
    made, context = on(tmp_path / "t")
    made.prepare(context, 1)
    path = next(tmp_path.rglob("indptr-*.bin"))
    numbers = np.fromfile(path, "<u8")
    numbers[1:-1] = numbers[:-2]  # each node has the edges of the one before
    numbers.tofile(path)
    with pytest.raises(DataError, match="is not what was written: its CRC-32"):
        made.load_topology()


def test_the_topology_of_another_seed_is_refused(tmp_path: Path) -> None:
    made, context = on(tmp_path / "t")
    made.prepare(context, 1)
    graph, relation = SyntheticGraph(SMALL, SEED + 1), SMALL.relations[0]
    (path,) = tmp_path.rglob(f"indices-{SMALL.title(relation)}.bin")
    path.write_bytes(graph.neighbours(0, 0, relation.edge_count).tobytes())
    with pytest.raises(DataError, match="is not what was written: its CRC-32"):
        made.load_topology()


def test_a_file_without_a_digest_is_refused(tmp_path: Path) -> None:
    made, context = on(tmp_path / "t")
    made.prepare(context, 1)
    path = next(tmp_path.rglob("indptr-*.bin"))
    folder = DataFolder(path.parent, made.key)
    folder.record(path.name, path.stat().st_size, None)
    folder.close()
    with pytest.raises(DataError, match=r"CRC-32 is [0-9a-f]{8} where none was recorded; delete"):
        made.load_topology()


def test_a_short_file_is_refused(tmp_path: Path) -> None:
    made, context = on(tmp_path / "t")
    made.prepare(context, 1)
    made.feature_files[0].path.write_bytes(bytes(4096))
    with pytest.raises(DataError, match=r"is a file of 4096 bytes, 4247552 are planned; delete"):
        made.missing_bytes()


def test_what_is_left_beside_a_finished_file_is_removed(tmp_path: Path) -> None:
    made, context = on(tmp_path / "t")
    made.prepare(context, 1)
    path = made.feature_files[0].path.parent
    folder = DataFolder(path, made.key)
    folder.reserve("features-0.bin.done")
    folder.close()
    (path / "features-0.bin.done").write_bytes(bytes(8))
    assert made.prepare(context, 1).reused
    assert not (path / "features-0.bin.done").exists()
    assert DataFolder(path, made.key).foreign() == ()


def test_a_full_target_is_one_sentence_and_stays_usable(tiny_file_system: Path) -> None:
    target = directory_target(tiny_file_system)
    made = GraphFiles("gnn", SHAPES["igb_tiny"], SEED, (target,))
    with pytest.raises(TargetError, match=r"features-0\.bin failed: No space left on device"):
        made.prepare(Context(targets=(target,)), 1)
    assert not list(tiny_file_system.rglob("features*"))
    assert len(list(tiny_file_system.rglob("indices*.bin"))) == 1
