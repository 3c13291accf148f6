"""Gathers by the kernels: their own source on an emulated GPU, and on a GPU where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.feature_rows import COUNT, LAYOUTS, ROW
from tests.loaders.gpu_queue.clock_cache import RowCache
from tests.loaders.gpu_queue.test_gpu import on_a_gpu

ROOT = Path(__file__).parents[3]
EVERY = list(range(COUNT))

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", params=["emulated", pytest.param("gpu", marks=on_a_gpu)])
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """The process that has an emulated GPU, or a real one."""
    environment = dict(os.environ)
    if request.param == "emulated":
        folder = request.getfixturevalue("emulated")
        environment |= {"LD_LIBRARY_PATH": str(folder), "EMULATED_CUDA": "1"}
    command = [sys.executable, "-m", "tests.loaders.gpu_queue.rows_process"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        yield started
        assert started.stdin is not None
        started.stdin.close()
        assert started.wait(20) == 0


@pytest.fixture
def run(process: subprocess.Popen[str], tmp_path: Path) -> Run:
    """Gathers rows into the memory of that GPU."""

    def ask(
        *steps: tuple[str, list[int]], setup: dict[str, Any] | None = None, **plan: Any
    ) -> dict[str, Any]:
        whole = {"files": 1, "folder": str(tmp_path)} | plan
        options = {"setup": setup or {}, "steps": steps, "plan": whole}
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(options) + "\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    return ask


@pytest.mark.parametrize("layout", ["three files", "by type, behind headers"])
def test_every_row_comes_once_from_one_place(run: Run, layout: str) -> None:
    generator = np.random.default_rng(len(layout))
    many = generator.integers(0, COUNT, 400).tolist()
    kept = generator.permutation(COUNT)[:20].tolist()
    found = run(
        ("gather", many), ("gather", []), ("gather", EVERY), ("gather", EVERY[::-1]),
        setup={"cache_rows": 32}, kept=kept, **LAYOUTS[layout],
    )  # fmt: skip
    assert found["error"] is None
    read_bytes = 2 * ROW if LAYOUTS[layout].get("offset", 0) % ROW else ROW
    for each, rows in zip(found["gathers"], (many, [], EVERY, EVERY), strict=True):
        assert each["right"]
        host, cache, merged, storage = each["counts"]
        assert host == sum(row in kept for row in rows)
        assert host + cache + merged + storage == len(rows)
        assert each["storage_bytes"] == storage * read_bytes
    assert found["word"] == "gpu_pull"
    assert found["pull"] > 0


def test_without_a_cache_each_row_is_read(run: Run) -> None:
    found = run(("gather", EVERY * 5), ("gather", EVERY), outstanding=96, files=3)
    assert [each["right"] for each in found["gathers"]] == [True, True]
    assert [each["counts"] for each in found["gathers"]] == [[0, 0, 0, 505], [0, 0, 0, 101]]


def test_all_rows_that_fit_stay_in_the_cache(run: Run) -> None:
    found = run(("gather", EVERY * 2), ("gather", EVERY), setup={"cache_rows": 64 * COUNT})
    twice, again = (each["counts"] for each in found["gathers"])
    assert twice[3] == COUNT
    assert twice[1] + twice[2] == COUNT
    assert again == [0, COUNT, 0, 0]


@pytest.mark.parametrize("window", [0, 3])
def test_hits_are_those_of_the_model(run: Run, window: int) -> None:
    """A row at a time, no page is in use when another row needs one."""
    sets, rows = 3, np.random.default_rng(7).zipf(1.3, 200) % COUNT
    steps: list[tuple[str, list[int]]] = []
    model, expected = RowCache(sets), []
    for number, row in enumerate(rows.tolist()):
        coming = rows[number : number + window] if number == 0 else rows[number + window - 1 :][:1]
        for each in coming.tolist() if window else ():
            steps.append(("expect", [each]))
            model.expected[each] += 1
        steps.append(("gather", [row]))
        expected.append(model.gather(row, was_expected=bool(window)))
    found = run(*steps, setup={"cache_rows": sets * 16})
    assert all(each["right"] for each in found["gathers"])
    assert [each["counts"][1] == 1 for each in found["gathers"]] == expected
    assert 0 < sum(expected) < len(expected)


def test_rows_of_coming_batches_are_not_evicted(run: Run) -> None:
    """A set of 16 pages: without the window, the gather between would empty it."""
    first, other = EVERY[:16], EVERY[16:64]
    lost = run(("gather", first), ("gather", other), ("gather", first), setup={"cache_rows": 16})
    assert lost["gathers"][2]["counts"][1] == 0
    kept = run(
        *(("expect", rows) for rows in (first, other, first)),
        *(("gather", rows) for rows in (first, other, first, other)),
        setup={"cache_rows": 16},
    )
    assert [each["right"] for each in kept["gathers"]] == [True] * 4
    assert [each["counts"] for each in kept["gathers"]][1:3] == [[0, 0, 0, 48], [0, 16, 0, 0]]
    assert kept["gathers"][3]["counts"][3] == 48, "their pages may be evicted afterwards"


def test_a_lost_answer_ends_the_gather(run: Run) -> None:
    found = run(("gather", (EVERY * 10)[:1000]), setup={"fault": "lost", "hang_s": 0.3})
    assert found["error"][0] == "RunError"
    assert " requests unanswered for 0.3 s on" in found["error"][1]


def test_memory_that_the_gpu_does_not_have(run: Run) -> None:
    found = run(setup={"cache_rows": 1 << 28})
    assert found["error"][0] == "ConfigError"
    assert "1.10 TB free for the cache: use a smaller loader.cache_share" in found["error"][1]


def test_a_gather_is_the_one_that_was_expected(run: Run) -> None:
    found = run(("expect", [1, 2]), ("gather", [1]), setup={"cache_rows": 16})
    assert found["error"] == ["ValueError", "1 rows, but 2 were expected in the next gather"]


def test_pages_of_failed_reads_hold_nothing(run: Run) -> None:
    """Who joins such a read fails too; the gather after it is right again."""
    there = EVERY[:50]
    found = run(
        ("truncate", [50]),
        ("gather", EVERY * 3),
        ("gather", there),
        setup={"cache_rows": 64 * COUNT},
    )
    assert found["error"][0] == "DataError"
    assert "features-0.bin is truncated: it ends before the row at offset" in found["error"][1]
    (again,) = found["gathers"]
    assert again["right"]
    assert again["counts"] == [0, 50, 0, 0]
