from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.results.kv_cache.facts import Source, SourceReport
from wattload.workloads.kv_cache import sources
from wattload.workloads.kv_cache.config import Config, Spread, UserType
from wattload.workloads.kv_cache.requests import Request
from wattload.workloads.kv_cache.sources import report_of, source_of, source_report
from wattload.workloads.kv_cache.traces import Trace
from wattload.workloads.kv_cache.users import Users

CHATBOT = UserType(
    new_tokens=Spread(low=512, high=4096),
    output_tokens=Spread(low=50, high=200),
    think_s=Spread(low=0.1, high=0.5),
)


class Listed:
    """Requests a second apart, with these blocks."""

    is_closed = False

    def __init__(self, blocks: Sequence[Sequence[int]]) -> None:
        self._requests = [
            Request(arrival_s=float(n), blocks=each, input_tokens=16 * len(each), output_tokens=1)
            for n, each in enumerate(blocks)
        ]

    def first(self) -> list[Request]:
        return self._requests[:1]

    def following(self, request: Request, time_s: float) -> Request | None:
        assert time_s == request.arrival_s
        index = int(request.arrival_s) + 1
        return self._requests[index] if index < len(self._requests) else None


def counts(report: SourceReport) -> list[tuple[int | None, int, int]]:
    return [(each.blocks, each.hit_blocks, each.stored_blocks) for each in report.lru]


@st.composite
def prompts(draw: st.DrawFn) -> list[list[int]]:
    """Paths from the root of a tree: each node is the child of an earlier one, or has no parent."""
    parents = [draw(st.integers(-1, n - 1)) for n in range(draw(st.integers(1, 30)))]
    paths = []
    for node in draw(st.lists(st.integers(0, len(parents) - 1), min_size=1, max_size=40)):
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        paths.append(path)
    return paths


@settings(max_examples=100, deadline=None)
@given(paths=prompts(), capacity=st.integers(1, 12))
def test_hits_and_stores_are_those_of_a_plain_lru(paths: list[list[int]], capacity: int) -> None:
    cached: list[int] = []
    hits = stored = 0
    for path in paths:
        hits += next((n for n, each in enumerate(path) if each not in cached), len(path))
        for each in reversed(path[:capacity]):
            stored += each not in cached
            cached = [other for other in cached if other != each] + [each]
        cached = cached[-capacity:]
    seen = set().union(*paths)
    references = sum(map(len, paths))
    report = source_report(Listed(paths), [capacity])
    assert counts(report) == [
        (capacity, hits, stored),
        (None, references - len(seen), len(seen)),
    ]
    assert report.references == references
    assert report.input_tokens == 16 * references
    assert report.requests == len(paths)
    assert report.span_s == len(paths) - 1


def test_gaps_are_times_between_uses_of_a_block() -> None:
    report = source_report(Listed([[1, 2], [1], [1, 2], [3], [3]]), [])
    assert report.gap_p50_s == 1.0  # 1, 1, 2 and 1 s
    assert report.gap_p99_s == pytest.approx(1.97)
    assert source_report(Listed([[1], [2]]), []).gap_p50_s is None


def test_a_report_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_REQUESTS", 5)
    monkeypatch.setattr(sources, "MOST_REFERENCES", 10)
    assert source_report(Listed([[1]] * 9), []).requests == 5
    assert source_report(Listed([[1, 2, 3, 4]] * 9), []).requests == 3


def test_the_settings_name_the_source(tmp_path: Path) -> None:
    config = Config(user_types={"some": CHATBOT}, users=3)
    assert isinstance(source_of(config, seed=1), Users)
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 1000 * n, "input_length": 600, "output_length": 1, "hash_ids": [0, n]}
        for n in range(1, 4)
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    config = Config(
        requests=Source.trace, trace=str(path), block_tokens=128, speed=2.0, user_types={}
    )
    assert isinstance(source_of(config, seed=1), Trace)
    report = report_of(config, seed=1, capacity_blocks=8)
    assert report.span_s == 1.0
    assert [each.blocks for each in report.lru] == [1, 2, 4, 8, 16, 32, 64, None]
    assert (report.references, report.lru[-1].hit_blocks) == (12, 8), "4 of 4.7 blocks each"


def test_in_a_closed_loop_only_pauses_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_REQUESTS", 500)
    config = Config(user_types={"some": CHATBOT}, users=3, system_prompts=0, turns=1000)
    report = report_of(config, seed=1, capacity_blocks=1000)
    assert report.span_s > 0
    assert report.gap_p50_s is not None
    assert 0.08 <= report.gap_p50_s <= 0.6, "pauses alone"
    hits = [each.hit_blocks for each in report.lru]
    assert hits == sorted(hits)
    assert report == report_of(config, seed=1, capacity_blocks=1000)
    assert report != report_of(config, seed=2, capacity_blocks=1000)
