"""Synthetic day files: repeatable, well-formed, and in the shape they claim."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from wattload.loaders.data import criteo_day_files
from wattload.loaders.data.criteo_day_files import parse_line


def text(seed: int, day: int, row_count: int) -> bytes:
    return b"".join(
        block.tobytes() for block in criteo_day_files.synthetic_blocks(seed, day, row_count)
    )


@pytest.fixture(scope="module")
def rows() -> list[list[bytes]]:
    return [line.split(b"\t") for line in text(1, 0, 20_000).splitlines()]


def test_same_seed_and_day_give_the_same_bytes() -> None:
    assert text(3, 1, 5000) == text(3, 1, 5000)
    assert len({text(3, 1, 100), text(4, 1, 100), text(3, 2, 100)}) == 3


@pytest.mark.parametrize("row_count", [1, 2047, 2048, 2049, 5000])
def test_there_are_as_many_lines_as_asked_for(row_count: int) -> None:
    lines = text(1, 0, row_count)
    assert lines.count(b"\n") == row_count
    assert lines.endswith(b"\n")


def test_every_line_is_a_criteo_row(rows: list[list[bytes]]) -> None:
    for fields in rows:
        parse_line(b"\t".join(fields))


def test_gaps_have_their_shares(rows: list[list[bytes]]) -> None:
    shares = criteo_day_files.INTEGER_GAPS + criteo_day_files.CATEGORICAL_GAPS
    for column, share in enumerate(shares, 1):
        found = sum(not fields[column] for fields in rows) / len(rows)
        assert found == pytest.approx(share, abs=5 * math.sqrt(0.25 / len(rows)))


def test_only_the_second_integer_goes_below_zero_and_to_minus_two(rows: list[list[bytes]]) -> None:
    lowest = [min(int(fields[c]) for fields in rows if fields[c]) for c in range(1, 14)]
    assert lowest == [0, -2, *[0] * 11]


def test_ids_are_zipf_distributed_over_their_cardinality(rows: list[list[bytes]]) -> None:
    column = 14 + criteo_day_files.CARDINALITIES.index(7114)
    counts = Counter(fields[column] for fields in rows)
    assert len(counts) <= 7114
    share = math.log(2) / math.log(7115)  # of rank 1, by the module's formula
    most = counts.most_common(1)[0][1] / len(rows)
    assert most == pytest.approx(share, abs=5 * math.sqrt(share / len(rows)))


def test_small_cardinalities_are_met_exactly(rows: list[list[bytes]]) -> None:
    for cardinality in (3, 4, 10, 14):
        column = 14 + criteo_day_files.CARDINALITIES.index(cardinality)
        assert len({fields[column] for fields in rows} - {b""}) == cardinality


def test_the_mean_row_is_as_long_as_said(rows: list[list[bytes]]) -> None:
    mean_bytes = sum(len(b"\t".join(fields)) + 1 for fields in rows) / len(rows)
    assert mean_bytes == pytest.approx(criteo_day_files.MEAN_ROW_BYTES, rel=0.01)
