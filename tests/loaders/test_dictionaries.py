"""Numbers of ids against torchrec's loop, written down plainly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tinyfs import fill, tiny_file_system
from wattload.core.errors import DataError
from wattload.loaders.converters import SPILL_COUNT, ConversionSettings, IdNumberer, NumberedColumn
from wattload.loaders.native.config import Config as NativeConfig

SETTINGS = ConversionSettings(compression="none", block_bytes=1 << 16, whole_ids=True)


def moved_nowhere(*_: int) -> None:
    pass


def torchrec_numbers(ids: Sequence[int], threshold: int) -> list[int]:
    """Number the ids of a column: frequent ones from 2 on by first appearance, others 1."""
    frequency = Counter(ids)
    numbers: dict[int, int] = {}
    following = count(2)
    for own in ids:
        if own not in numbers:
            numbers[own] = next(following) if frequency[own] >= threshold else 1
    return [numbers[own] for own in ids]


def numbered(
    folder: Path, files: Sequence[Sequence[int]], threshold: int, table_limit: int = 1000
) -> tuple[NumberedColumn, list[int]]:
    """Return what a column of these files became, and its numbers."""
    for path in folder.iterdir():
        path.unlink()
    sources = [folder / f"{index}.ids" for index in range(len(files))]
    for path, ids in zip(sources, files, strict=True):
        np.array(ids, "<u4").tofile(path)
    targets = [path.with_suffix(".numbers") for path in sources]
    numberer = NativeConfig().converter()
    assert isinstance(numberer, IdNumberer)
    row_count = sum(map(len, files))
    spills = [folder / f"spill_{index}" for index in range(SPILL_COUNT)]
    made = numberer.number_column(
        sources,
        targets,
        spills if row_count > table_limit else (),
        SETTINGS,
        threshold=threshold,
        table_limit=table_limit,
        moved=moved_nowhere,
    )
    size = 2 + made.known_count
    kind = next(each for each in (np.int8, np.int16, np.int32) if size < np.iinfo(each).max)
    found = [number for path in targets for number in np.fromfile(path, kind).tolist()]
    return made, found


@given(
    files=st.lists(st.lists(st.integers(0, 9) | st.integers(0, 2**32 - 1)), min_size=1, max_size=4),
    threshold=st.integers(1, 4),
    table_limit=st.integers(3, 8),
)
def test_numbers_are_torchrecs_whatever_fits_into_memory(
    files: list[list[int]],
    threshold: int,
    table_limit: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("ids")
    ids = [own for file in files for own in file]
    expected = torchrec_numbers(ids, threshold)
    made, found = numbered(folder, files, threshold)
    assert found == expected
    assert made.known_count == len({number for number in expected if number > 1})
    assert made.known_count + made.rare_count == len(set(ids))
    assert made.spilled_bytes == 0
    try:
        assert numbered(folder, files, threshold, table_limit)[1] == expected
    except DataError as error:
        assert "too many different ids" in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("table_limit", [8000, 20_000, 70_000, 200_000])
def test_spilled_ids_get_the_same_numbers(tmp_path: Path, table_limit: int) -> None:
    draw = np.random.default_rng(3)
    ids = (np.exp(draw.random(200_000) * 11).astype(np.uint32) * np.uint32(2654435761)).tolist()
    files = [ids[:70_000], ids[70_000:70_001], [], ids[70_001:]]
    made, found = numbered(tmp_path, files, 2, table_limit)
    assert found == torchrec_numbers(ids, 2)
    assert (made.spilled_bytes > 0) == (table_limit < len(set(ids)))


def test_too_many_ids_for_the_memory_are_one_sentence(tmp_path: Path) -> None:
    reason = r"0.ids and .* too many different ids .*; set a higher workload.worker_memory_bytes"
    with pytest.raises(DataError, match=reason):
        numbered(tmp_path, [list(range(100_000))], 1, 100)


@pytest.mark.parametrize(("known", "kind"), [(124, "i1"), (125, "i2"), (32_765, "i4")])
def test_the_type_is_the_smallest_that_nvidias_reader_takes(
    tmp_path: Path, known: int, kind: str
) -> None:
    made, found = numbered(tmp_path, [list(range(known))], 1, known)
    assert made.written[0].size_bytes == known * np.dtype(kind).itemsize
    assert found == list(range(2, 2 + known))


def test_a_full_file_system_is_an_error_of_the_kernel(tmp_path: Path) -> None:
    with tiny_file_system(tmp_path) as target:
        np.zeros(50_000, "<u4").tofile(tmp_path / "0.ids")
        fill(target)
        numberer = NativeConfig().converter()
        assert isinstance(numberer, IdNumberer)
        with pytest.raises(OSError, match="No space left on device"):
            numberer.number_column(
                [tmp_path / "0.ids"],
                [target / "0.numbers"],
                (),
                SETTINGS,
                threshold=1,
                table_limit=10,
                moved=moved_nowhere,
            )
