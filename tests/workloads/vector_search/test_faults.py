"""Faults that are made on purpose: each is found by the check or the error that is meant for it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import context_at, directory_target
from tests.run.running import DEADLINE_S, launched, record_of, run, run_here, until
from tests.tinyfs import fill, tiny_file_system
from tests.workloads.vector_search.making import (
    config,
    made,
    nodes_file,
    planned,
    small_runs,
    write_fvecs,
)
from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.loaders.vectors import build
from wattload.loaders.vectors.files import CODES, NODES, PIVOTS, array_bytes, read_layout
from wattload.loaders.vectors.native_search import NO_NODE, EngineSearcher
from wattload.loaders.vectors.search import SearchResult
from wattload.results.vector_search.facts import SEARCH, Metric
from wattload.workloads.vector_search import workload as module

__all__ = ["small_runs"]

SECTOR = 4096


def change(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
        os.fsync(file.fileno())


def swap_nodes(target: Path) -> None:
    """Exchange the first two nodes of every sector."""
    path = nodes_file(target)
    layout, _ = read_layout(str(path).removesuffix(NODES))
    size = layout.node_bytes
    for sector in range(SECTOR, path.stat().st_size, SECTOR):
        first, second = np.fromfile(path, np.uint8, 2 * size, offset=sector).reshape(2, size)
        change(path, sector, second.tobytes() + first.tobytes())


def stale_sector(target: Path) -> None:
    """Give one sector the content of the one before it."""
    path = nodes_file(target)
    change(path, 9 * SECTOR, np.fromfile(path, np.uint8, SECTOR, offset=8 * SECTOR).tobytes())


def change_node(target: Path) -> None:
    """Change a number of the vector of node 5 to another finite one."""
    path = nodes_file(target)
    layout, _ = read_layout(str(path).removesuffix(NODES))
    change(path, sum(layout.place(5)) + 4, np.float32(0.125).tobytes())


def test_swapped_nodes_are_found_when_they_are_delivered(tmp_path: Path) -> None:
    run = made(tmp_path, config(duration_s=0.5), between=swap_nodes)
    found = run.facts.passes[SEARCH]
    assert found.wrong > 0
    assert any("is not what was written" in remark for remark in run.outcome.remarks)
    check = run.check("stored_nodes")
    assert check.verdict == "fail"
    assert check.figures["wrong"] == 200


@pytest.mark.parametrize(("act", "wrong"), [(stale_sector, 20), (change_node, 1)])
def test_what_no_query_met_is_found_at_the_end(tmp_path: Path, act: object, wrong: int) -> None:
    assert callable(act)
    run = made(tmp_path, config(), before_verify=act)
    assert run.facts.passes[SEARCH].wrong == 0
    check = run.check("stored_nodes")
    assert check.verdict == "fail"
    assert check.figures["wrong"] == wrong


def test_another_medoid_in_the_header_is_found(tmp_path: Path) -> None:
    def other(target: Path) -> None:
        path = nodes_file(target)
        _, medoid = read_layout(str(path).removesuffix(NODES))
        change(path, 8 + 2 * 8, int((medoid + 1) % 2000).to_bytes(8, "little"))

    run = made(tmp_path, config(), between=other)
    assert run.check("medoid").verdict == "fail"
    assert run.check("stored_nodes").verdict == "pass"


def random_codes(path: Path) -> None:
    codes = np.random.default_rng(1).integers(0, 256, (2000, 16), np.uint8)
    array_bytes(codes).tofile(path)


def other_pivots(path: Path) -> None:
    content = np.fromfile(path, np.uint8)
    content[4104:][: 256 * 32 * 4].view("<f4")[:] *= 2
    content.tofile(path)


@pytest.mark.parametrize(("suffix", "act"), [(CODES, random_codes), (PIVOTS, other_pivots)])
def test_other_codes_in_the_files_are_refused(tmp_path: Path, suffix: str, act: object) -> None:
    def other(target: Path) -> None:
        assert callable(act)
        act(Path(str(nodes_file(target)).removesuffix(NODES) + suffix))

    with pytest.raises(DataError, match=r"index_pq_.*\.bin is not what was written; delete"):
        made(tmp_path, config(), between=other)


def test_codes_that_say_nothing_lower_the_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(vectors: np.ndarray, *given: object, **settings: object) -> np.ndarray:
        return np.random.default_rng(1).integers(0, 256, (len(vectors), 16), np.uint8)

    with monkeypatch.context() as patch:
        patch.setattr(build, "encode", encode)
        random = made(tmp_path, config(search_list=10))
    assert random.recall < 0.5
    shutil.rmtree(tmp_path / "wattload-data")
    assert made(tmp_path, config(search_list=10)).recall > 0.5


def test_a_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    def cut(target: Path) -> None:
        os.truncate(nodes_file(target), 4 * SECTOR)

    with pytest.raises(DataError, match=r"index_disk\.index has 16384 bytes"):
        made(tmp_path, config(), between=cut)
    assert made(tmp_path, config()).check("stored_nodes").verdict == "pass"


def test_answers_that_were_changed_are_refused(tmp_path: Path) -> None:
    def other(target: Path) -> None:
        [path] = target.rglob("queries-*.npz")
        change(path, path.stat().st_size // 2, b"12345678")

    with pytest.raises(DataError, match=r"queries-.*\.npz is not what was written"):
        made(tmp_path, config(), between=other)


@pytest.mark.parametrize("name", ["queries", "kth"])
def test_a_whole_file_of_other_answers_is_refused(tmp_path: Path, name: str) -> None:
    """Its sums fit, and with larger distances all answers would be right."""

    def other(target: Path) -> None:
        [path] = target.rglob("queries-*.npz")
        with np.load(path) as table:
            content = dict(table)
        np.savez(path, **content | {name: 2 * content[name]})

    with pytest.raises(DataError, match=r"queries-.*\.npz is not what was written"):
        made(tmp_path, config(), between=other)


def test_a_query_that_was_lost_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = EngineSearcher.search

    def lose_one(self: EngineSearcher, *given: Any, **settings: Any) -> SearchResult:
        found = search(self, *given, **settings)
        found.answers[:1] = NO_NODE
        return found

    monkeypatch.setattr(EngineSearcher, "search", lose_one)
    facts = made(tmp_path, config()).facts
    assert facts.answers is not None
    assert facts.data is not None
    assert sum(facts.answers.hits) == facts.data.queries - 1


def test_a_build_without_memory_says_what_to_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "usable_memory_bytes", lambda: 300 << 20)
    planned(context_at(tmp_path), config())
    sentence = (
        r"to build this index takes 489.* MB of memory, and 314.* MB are available; lower work"
    )
    with pytest.raises(ConfigError, match=sentence):
        planned(context_at(tmp_path), config(vectors=500_000))


def test_a_search_without_memory_says_what_to_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, config())
    monkeypatch.setattr(module, "usable_memory_bytes", lambda: 200 << 20)
    sentence = (
        r"to search this index .*; lower workload\.vectors, workload\.pq_bytes or workload\.c"
    )
    with pytest.raises(ConfigError, match=sentence):
        planned(context_at(tmp_path), config())


def test_several_targets_are_refused(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    context.targets += (directory_target(tmp_path, index=1),)
    with pytest.raises(ConfigError, match=r"names 2 folders, and an index is one file on one dri"):
        planned(context, config())


def test_a_vector_without_a_direction_is_named(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((400, 16), np.float32)
    vectors[77] = 0
    source = write_fvecs(tmp_path / "some.fvecs", vectors)
    with pytest.raises(DataError, match=r"vector 77 has length 0"):
        made(tmp_path, config(source=source, metric=Metric.cosine))


def test_a_vector_with_nan_is_named(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((400, 16), np.float32)
    vectors[77, 3] = np.nan
    source = write_fvecs(tmp_path / "some.fvecs", vectors)
    with pytest.raises(DataError, match=r"\.fvecs has NaN or a number above 1e\+15 in vector 77"):
        made(tmp_path, config(source=source))


def test_queries_of_another_form_are_refused(tmp_path: Path) -> None:
    queries = write_fvecs(tmp_path / "asked.fvecs", np.ones((100, 31), np.float32))
    with pytest.raises(ConfigError, match=r"has vectors of 31 f32 numbers, and the index has 32 f"):
        planned(context_at(tmp_path), config(queries=queries))


def test_few_queries_are_refused(tmp_path: Path) -> None:
    queries = write_fvecs(tmp_path / "asked.fvecs", np.ones((99, 32), np.float32))
    with pytest.raises(ConfigError, match=r"has 99 queries, too few for a recall; use 100 or more"):
        planned(context_at(tmp_path), config(queries=queries))


def test_vectors_whose_distances_overflow_are_refused(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).standard_normal((400, 16), np.float32) * np.float32(1e30)
    with pytest.raises(DataError, match=r"has NaN or a number above 1e\+15 in vector 0; remove"):
        made(tmp_path, config(source=write_fvecs(tmp_path / "some.fvecs", vectors)))


def test_an_index_of_ones_own_is_whole_and_of_the_metric(tmp_path: Path) -> None:
    made(tmp_path, config())
    prefix = str(nodes_file(tmp_path)).removesuffix(NODES)
    settings = {"source": prefix, "planted_noise": 0.1}
    with pytest.raises(ConfigError, match=r"metric=cosine needs an index of vectors of length 1"):
        planned(context_at(tmp_path), config(**settings, metric=Metric.cosine))
    Path(prefix + CODES).unlink()
    with pytest.raises(ConfigError, match=r"compressed\.bin does not exist; copy all files of"):
        planned(context_at(tmp_path), config(**settings))


def test_an_index_on_another_file_system_is_refused(tmp_path: Path) -> None:
    made(tmp_path, config())
    prefix = str(nodes_file(tmp_path)).removesuffix(NODES)
    with (
        tiny_file_system(tmp_path) as elsewhere,
        pytest.raises(ConfigError, match=r"is on another file system than target\.path"),
    ):
        planned(context_at(elsewhere), config(source=prefix, planted_noise=0.1))


def test_a_full_target_is_one_sentence_and_stays_usable(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as tiny:
        context = context_at(tiny)
        workload = planned(context, config(vectors=20_000))
        filler = fill(tiny)
        os.truncate(filler, filler.stat().st_size - (1 << 20))
        with pytest.raises(TargetError, match=r"writing .* failed: No space left on device; "):
            workload.prepare(context)
        left = [path for path in tiny.rglob("index*") if path.stat().st_size > 1 << 20]
        assert left == []
        filler.unlink()
        assert made(tiny, config(vectors=20_000)).check("stored_nodes").verdict == "pass"


SMALL = (
    "workload=vector_search", "scale=demo", "power=none", "workload.vectors=2000",
    "workload.dim=32", "workload.degree=16", "workload.build_list=32", "workload.pq_bytes=16",
    "workload.query_count=100", "workload.duration_s=0.3", "workload.inflight_per_thread=2",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("workload.search_list=5",), r"search_list=5 holds fewer nodes than the workload\.k=10"),
        (("workload.beam=0",), r"workload\.beam must be 1 to 128, got 0"),
        (("workload.degree=600",), r"workload\.degree must be 1 to 512, got 600"),
        (("workload.dim=5000", "workload.pq_bytes=64"), r"a node has at most 16384; lower either"),
        (("workload.pq_bytes=33",), r"pq_bytes=33 is more than the 32 numbers of a vector"),
        (("workload.dtype=u8", "workload.metric=ip"), r"metric=ip needs f32 vectors"),
        (("workload.vectors=null",), r"workload\.vectors=null is 80 % of the file system, which"),
        (("workload.inflight_per_thread=many",), r"must be auto or 1 to 256, got many"),
        (("loader=mmap",), r"inflight_per_thread=2 is more than the 1 that loader=mmap"),
        (("workload.queries=a.npy",), r"a\.npy must be a file of vectors, whose name ends in \.f"),
        (("workload.source=/nothing",), r"/nothing_disk\.index"),
        (("workload.source=/no.fvecs",), r"/no\.fvecs does not exist"),
        (("workload.cache_nodes=2000",), r"cache_nodes=2000 holds all 2000 nodes of the index, so"),
        (("workload.arrivals=open",), r"arrivals=open needs workload\.query_rate="),
        (("workload.vectors=8", "workload.search_list=64"), r"k=10 are more neighbours than"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: Sequence[str], sentence: str) -> None:
    done = run_here(tmp_path, *SMALL, *words)
    assert done.returncode == 2, done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("wattload: ")]
    assert re.search(sentence, line), line
    assert not (tmp_path / "target" / "wattload-data").exists()


def test_a_read_only_target_is_one_sentence(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as tiny:
        subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
        done = run_here(tmp_path, f"target.path={tiny}", *SMALL)
    assert done.returncode == 2
    assert "tiny is on a read-only file system" in done.stderr


@pytest.mark.thorough
def test_a_build_that_was_killed_is_made_again(tmp_path: Path) -> None:
    words = (*SMALL, "workload.vectors=30000", "workload.degree=32", "workload.build_list=64")
    with launched(tmp_path, *words) as process:
        begun = '"begin"'
        until(
            lambda: any(
                begun in line and '"build"' in line
                for journal in tmp_path.glob("runs/*/journal-*.jsonl")
                for line in journal.read_text().splitlines()
            ),
            process,
        )
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=DEADLINE_S)
    assert not [*tmp_path.rglob("digests.npy")]
    shutil.rmtree(tmp_path / "runs")
    done = run(tmp_path, *words)
    assert done.returncode in (0, 3), done.stderr
    record = record_of(tmp_path)
    assert record.status == "complete"
    assert {check.name: check.verdict for check in record.checks}["stored_nodes"] == "pass"
    assert not [*tmp_path.rglob("*.tmp")]
