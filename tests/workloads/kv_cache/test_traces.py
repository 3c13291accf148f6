from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import ConfigError, DataError
from wattload.results.kv_cache.facts import Source
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.requests import BLOCK_ID_LIMIT, Request
from wattload.workloads.kv_cache.traces import Trace

Line = Mapping[str, Any]


def line(time: object, tokens: object, ids: object, output: object = 7) -> Line:
    return {"timestamp": time, "input_length": tokens, "output_length": output, "hash_ids": ids}


def written(folder: Path, lines: Iterable[Line | str]) -> Path:
    path = folder / "trace.jsonl"
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    path.write_text("".join(f"{each}\n" for each in texts))
    return path


def read(
    path: Path, *, block_tokens: int = 512, speed: float = 1.0, jitter: bool = False
) -> list[Request]:
    trace = Trace(path, block_tokens=block_tokens, speed=speed, jitter=jitter)
    (request,) = trace.first()
    requests = [request]
    while following := trace.following(requests[-1], 0.0):
        requests.append(following)
    return requests


def test_a_line_becomes_a_request(tmp_path: Path) -> None:
    path = written(tmp_path, [line(5000, 1100, [0, 1, 2]), line(8000, 512, [0], output=9)])
    assert read(path) == [
        Request(arrival_s=0.0, blocks=[0, 1], input_tokens=1100, output_tokens=7),
        Request(arrival_s=3.0, blocks=[0], input_tokens=512, output_tokens=9),
    ]
    assert [each.arrival_s for each in read(path, speed=2.0)] == [0.0, 1.5]


def test_fields_that_other_traces_add_are_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, [{**line(0, 600, [4, 5]), "type": "text", "turn": 1}])
    assert read(path)[0].blocks == [4]


@settings(max_examples=50, deadline=None)
@given(
    block_tokens=st.sampled_from([16, 32, 64, 128, 256, 512]),
    ids=st.lists(st.integers(0, (1 << 39) - 1), min_size=1, max_size=5, unique=True),
    last=st.integers(1, 512),
)
def test_blocks_are_whole_parts_of_the_hashed_ones(
    tmp_path_factory: pytest.TempPathFactory, block_tokens: int, ids: list[int], last: int
) -> None:
    tokens = 512 * (len(ids) - 1) + last
    path = written(tmp_path_factory.mktemp("trace"), [line(0, tokens, ids)])
    (request,) = read(path, block_tokens=block_tokens)
    parts = 512 // block_tokens
    assert list(request.blocks) == [
        ids[at // 512] * parts + at % 512 // block_tokens
        for at in range(0, tokens - block_tokens + 1, block_tokens)
    ]
    assert all(each < BLOCK_ID_LIMIT for each in request.blocks)


def test_jitter_spreads_a_burst_over_the_time_to_the_next(tmp_path: Path) -> None:
    times = [0, 0, 0, 3000, 9000, 9000]
    path = written(tmp_path, [line(time, 10, [n]) for n, time in enumerate(times)])
    assert [each.arrival_s for each in read(path)] == [0, 0, 0, 3, 9, 9]
    jittered = read(path, jitter=True)
    assert [each.arrival_s for each in jittered] == [0, 1, 2, 3, 9, 9]
    assert [each.arrival_s for each in read(path, jitter=True, speed=2)] == [
        0,
        0.5,
        1,
        1.5,
        4.5,
        4.5,
    ]


GOOD = line(3000, 1100, [1, 2, 3])


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (line(2999, 10, [9]), "timestamp must not be before 3000, got '2999'"),
        (line(3000, 1025, [1, 2]), "3 for input_length 1025, got '2'"),
        (line(3000, 1024, [1, 2, 7]), "2 for input_length 1024, got '3'"),
        (line(3000, 1200, [1, 2, 3]), "id 3 must have 76 tokens, as before, got '176'"),
        (line(3000, 1600, [1, 2, 3, 4]), "id 3 must have 76 tokens, as before, got '512'"),
        (line(3000, 700, [1, 2]), "id 2 must have 512 tokens, as before, got '188'"),
        (line(3000, 1000, [4, 2]), "id 2 must follow id 1, as before, got 'id 4'"),
        (line(3000, 1000, [2, 4]), "id 2 must follow id 1, as before, got 'nothing'"),
        (line(3000, 1000, [5, 1]), "id 1 must follow nothing, as before, got 'id 5'"),
        (line(3000, 1000, [6, 6]), "id 6 must follow nothing, as before, got 'id 6'"),
        (line(3000, 10, [-1]), "hash_ids.0: Input should be greater than or equal to 0, got '-1'"),
        (line(3000, 10, [1 << 39]), "hash_ids.0: Input should be less than 549755813888"),
        (line(3000, 10, [1.0]), "hash_ids.0: Input should be a valid integer, got '1.0'"),
        (line(3000, 10, ["1"]), "hash_ids.0: Input should be a valid integer, got '1'"),
        (line(3000, 10, None), "hash_ids: Input should be a valid array"),
        (line(3000, 0, []), "input_length: Input should be greater than or equal to 1, got '0'"),
        (line(True, 10, [1]), "timestamp: Input should be a valid integer, got 'True'"),
        (line(3000, 10, [9], output=-1), "output_length: Input should be greater than"),
        ({"timestamp": 3000, "input_length": 1, "output_length": 1}, "hash_ids: Field required"),
        ("", "JSON: Invalid JSON"),
        ("{]", "JSON: Invalid JSON"),
        ("[1]", "JSON: Input should be an object"),
        ("\x00\xff", "JSON: Invalid JSON"),
        ("[" * 100_000, "JSON: Invalid JSON"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number_and_value(
    tmp_path: Path, bad: Line | str, sentence: str
) -> None:
    path = written(tmp_path, [GOOD, bad])
    with pytest.raises(DataError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}, line 2: ")
    assert sentence in str(raised.value)
    assert len(str(raised.value)) < 500


def test_scattered_ids_are_checked_too(tmp_path: Path) -> None:
    ids = [n * 7919 << 17 for n in range(1, 400)]
    lines = [line(n, 512 * 4, ids[n : n + 4]) for n in range(0, 396, 4)]
    assert len(read(written(tmp_path, lines))) == 99
    with pytest.raises(DataError, match=f"line 100: hash_ids: id {ids[9]} must follow id {ids[8]}"):
        read(written(tmp_path, [*lines, line(500, 1024, [ids[0], ids[9]])]))


def test_a_line_without_an_end_is_refused_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(GOOD).encode() + b"\n[")
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="line 2: a line must be shorter than 1048576 bytes"):
            read(path)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 8 << 20


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is empty"):
        read(written(tmp_path, []))
    for path in (tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="is not a file"):
            read(path)


def test_blocks_must_divide_those_of_the_trace() -> None:
    with pytest.raises(ConfigError, match="block_tokens=48 does not divide"):
        Config(requests=Source.trace, trace="some.jsonl", block_tokens=48).check("demo")
    Config(requests=Source.trace, trace="some.jsonl", block_tokens=64).check("demo")
