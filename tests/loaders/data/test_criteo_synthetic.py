"""Synthetic day files: repeatable, well-formed, and in the shape they claim."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.loaders.data.criteo_day_files import parse_line
from wattload.loaders.data.criteo_synthetic import (
    CARDINALITIES,
    CATEGORICAL_GAPS,
    INTEGER_GAPS,
    INTEGER_RANGES,
    LABEL_SHARE,
    MEAN_ROW_BYTES,
    VERSION,
    SyntheticDay,
)


def text(seed: int, day: int, row_count: int) -> bytes:
    return SyntheticDay(seed, day, row_count).readall()


@pytest.fixture(scope="module")
def rows() -> list[list[bytes]]:
    return [line.split(b"\t") for line in text(1, 0, 20_000).splitlines()]


def test_same_seed_and_day_give_the_same_bytes() -> None:
    assert text(3, 1, 5000) == text(3, 1, 5000)
    assert len({text(3, 1, 100), text(4, 1, 100), text(3, 2, 100)}) == 3


def test_other_bytes_need_another_version() -> None:
    digest = hashlib.sha256(text(3, 1, 5000)).hexdigest()
    assert (VERSION, digest) == (
        2,
        "ea604e604edf57327a4cf488f5cf25a1b1e4ac364385fceb66cb7d1e87f163ba",
    )


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=20))
@settings(max_examples=25, deadline=None)
def test_the_bytes_do_not_depend_on_how_they_are_read(sizes: list[int]) -> None:
    whole, day = text(5, 0, 300), SyntheticDay(5, 0, 300)
    assert b"".join(day.read(size) or b"" for size in sizes) == whole[: sum(sizes)]


@pytest.mark.parametrize("row_count", [1, 63, 64, 65, 5000])
def test_there_are_as_many_lines_as_asked_for(row_count: int) -> None:
    lines = text(1, 0, row_count)
    assert lines.count(b"\n") == row_count
    assert lines.endswith(b"\n")


def test_every_line_is_a_criteo_row(rows: list[list[bytes]]) -> None:
    for fields in rows:
        parse_line(b"\t".join(fields))


def test_gaps_have_their_shares(rows: list[list[bytes]]) -> None:
    shares = INTEGER_GAPS + CATEGORICAL_GAPS
    for column, share in enumerate(shares, 1):
        found = sum(not fields[column] for fields in rows) / len(rows)
        assert found == pytest.approx(share, abs=5 * math.sqrt(0.25 / len(rows)))


def test_only_the_second_integer_goes_below_zero_and_to_minus_two(rows: list[list[bytes]]) -> None:
    lowest = [min(int(fields[c]) for fields in rows if fields[c]) for c in range(1, 14)]
    assert lowest == [0, -2, *[0] * 11]


def test_labels_have_their_share(rows: list[list[bytes]]) -> None:
    found = sum(fields[0] == b"1" for fields in rows) / len(rows)
    assert found == pytest.approx(LABEL_SHARE, abs=5 * math.sqrt(LABEL_SHARE / len(rows)))


@pytest.mark.parametrize("column", range(1, 14))
def test_integers_are_zipf_distributed(rows: list[list[bytes]], column: int) -> None:
    values = [int(fields[column]) for fields in rows if fields[column]]
    lowest, count = min(values), INTEGER_RANGES[column - 1]
    for up_to in {1, 2, count // 2}:
        share = math.log(up_to + 1) / math.log(count + 1)
        found = sum(value - lowest < up_to for value in values) / len(values)
        assert found == pytest.approx(share, abs=5 * math.sqrt(0.25 / len(values)))


def test_columns_are_independent(rows: list[list[bytes]]) -> None:
    values = np.array([[not fields[1], *map(len, fields)] for fields in rows], float)
    values = values[:, values.std(axis=0) > 0]
    correlations = np.corrcoef(values[1:, 2:], values[:-1, 2:], rowvar=False)
    np.fill_diagonal(correlations, 0)
    assert abs(correlations).max() < 6 / math.sqrt(len(rows))


def test_ids_are_zipf_distributed_over_their_cardinality(rows: list[list[bytes]]) -> None:
    column = 14 + CARDINALITIES.index(7114)
    counts = Counter(fields[column] for fields in rows)
    assert len(counts) <= 7114
    share = math.log(2) / math.log(7115)  # of rank 1, by the module's formula
    most = counts.most_common(1)[0][1] / len(rows)
    assert most == pytest.approx(share, abs=5 * math.sqrt(share / len(rows)))


def test_small_cardinalities_are_met_exactly(rows: list[list[bytes]]) -> None:
    for cardinality in (3, 4, 10, 14):
        column = 14 + CARDINALITIES.index(cardinality)
        assert len({fields[column] for fields in rows} - {b""}) == cardinality


def test_the_mean_row_is_as_long_as_said(rows: list[list[bytes]]) -> None:
    mean_bytes = sum(len(b"\t".join(fields)) + 1 for fields in rows) / len(rows)
    assert mean_bytes == pytest.approx(MEAN_ROW_BYTES, rel=0.01)
