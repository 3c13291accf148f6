"""Both ways of a comparison do the same work: searches and replayed reads, look-ups of codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import vector_job, vector_parts
from benchmarks.measure import NotMeasuredError
from benchmarks.vector_job import ENGINE, PEER, PYTHON, Job, run
from tests.loaders.vectors.test_files import Made, layout_of

ASKED, TIMES = 7, 3


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Made(tmp_path, layout_of(103, 32))
    np.save(tmp_path / vector_job.QUERIES, made.vectors[:ASKED])
    return Job(index=tmp_path, folder=tmp_path, search_list=20, times=TIMES)


def test_the_engine_reads_what_a_search_does(job: Job) -> None:
    found, replayed = run(job), run(replace(job, tool=ENGINE))
    assert replayed["read_bytes"] == found["read_bytes"] > 4096 * ASKED * TIMES
    assert np.load(job.folder / vector_job.ANSWERS).shape == (ASKED, job.k)


def test_figures_are_those_of_a_query(job: Job) -> None:
    found = job()
    queries = ASKED * TIMES
    assert found["read_bytes_per_query"] == pytest.approx(found["read_bytes"] / queries)
    assert found["queries_per_s"] == pytest.approx(queries / found["seconds"])


def test_a_missing_environment_of_diskannpy_is_named(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PYTHON, raising=False)
    with pytest.raises(NotMeasuredError, match=PYTHON):
        replace(job, tool=PEER)()


def test_look_ups_of_both_add_up_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_parts, "CODES", 1000)
    monkeypatch.setattr(vector_parts, "BATCHES", 10)
    ours, theirs = (way() for way in vector_parts.look_ups(tmp_path).ways.values())
    assert ours["distance"] == pytest.approx(theirs["distance"])
