"""What a worker does, done here: results, and one sentence where the target refuses."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.tinyfs import fill, tiny_file_system
from wattload.core.errors import DataError, TargetError
from wattload.core.io import Extent
from wattload.loaders.arrow import Config as ArrowConfig
from wattload.loaders.converters import (
    ConversionSettings,
    Converter,
    IdNumberer,
    RowFiles,
    RowShuffler,
)
from wattload.loaders.data.criteo_day_files import CountedFile, cut_parts, first_lines
from wattload.loaders.data.criteo_synthetic import SyntheticDay
from wattload.loaders.data.media import DirectMedium, PageCacheMedium
from wattload.loaders.native.config import Config as NativeConfig
from wattload.workloads.dlrm.tasks import (
    CeilingTask,
    ColumnTask,
    DayTask,
    PackTask,
    PartTask,
    ScatterTask,
    ShuffleTask,
    against_memory,
    make_day,
    number_ids,
    scatter_rows,
    shuffle_rows,
    to_binary,
    to_parquet,
    to_rows,
)

SETTINGS = ConversionSettings(compression="snappy", block_bytes=1 << 20)
ARROW, NATIVE = ArrowConfig().converter(), NativeConfig().converter()


def moved_nowhere(*_: int) -> None:
    pass


def day(folder: Path, row_count: int = 10_000) -> Path:
    path = folder / "day_0"
    made = make_day(DayTask(path, DirectMedium(), 1, 0, row_count), moved_nowhere)
    assert made.size_bytes == path.stat().st_size
    return path


@pytest.mark.parametrize("medium", [DirectMedium(), PageCacheMedium()])
def test_a_day_file_is_told_as_it_is_written(medium: DirectMedium, tmp_path: Path) -> None:
    written: list[int] = []
    task = DayTask(tmp_path / "day_0", medium, 1, 0, 30_000)
    made = make_day(task, lambda _, count, __: written.append(count))
    content = (tmp_path / "day_0").read_bytes()
    assert content == SyntheticDay(1, 0, 30_000).readall()
    assert (made.size_bytes, made.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert 0 <= sum(written) - len(content) < 4096  # whole blocks, then cut


def test_a_full_target_is_one_sentence_for_every_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = cut_parts([day(tmp_path)], 1)
    columns = tmp_path / "p.parquet"
    to_parquet(PartTask(part, columns, SETTINGS, ARROW), moved_nowhere)
    full = tmp_path / "full"
    monkeypatch.setattr(
        CountedFile, "create", lambda *_: CountedFile(Path("/dev/full"), "wb", moved_nowhere)
    )
    reason = f"writing {full} failed: No space left on device; free some space, or choose"
    with pytest.raises(TargetError, match=reason):
        to_parquet(PartTask(part, full, SETTINGS, ARROW), moved_nowhere)
    with pytest.raises(TargetError, match=reason):
        to_binary(PackTask(part, columns, full, SETTINGS, ARROW), moved_nowhere)


@pytest.mark.parametrize("converter", [ARROW, NATIVE], ids=["arrow", "native"])
def test_a_full_file_system_is_one_sentence_for_every_step(
    converter: Converter, tmp_path: Path
) -> None:
    (part,) = cut_parts([day(tmp_path)], 1)
    columns = tmp_path / "p.parquet"
    to_parquet(PartTask(part, columns, SETTINGS, converter), moved_nowhere)
    with tiny_file_system(tmp_path) as target:
        fill(target)
        reason = rf"writing {target}/. failed: No space left on device; free some space, or choose"
        preallocation = reason.replace("failed:", "failed: preallocation at offset .* failed:")
        with pytest.raises(TargetError, match=preallocation):
            make_day(DayTask(target / "d", DirectMedium(), 1, 0, 50_000), moved_nowhere)
        with pytest.raises(TargetError, match=reason):
            to_parquet(PartTask(part, target / "q", SETTINGS, converter), moved_nowhere)
        with pytest.raises(TargetError, match=reason):
            to_rows(PartTask(part, target / "r", SETTINGS, converter), moved_nowhere)
        task = PackTask(part, columns, target / "s", SETTINGS, converter)
        with pytest.raises(TargetError, match=reason):
            to_binary(task, moved_nowhere)


def test_a_bad_id_that_is_no_longer_in_the_tsv_is_still_an_error(tmp_path: Path) -> None:
    path = day(tmp_path, 100)
    good = path.read_bytes()
    fields = good.splitlines()[7].split(b"\t")
    path.write_bytes(good.replace(b"\t" + fields[14] + b"\t", b"\tzzzzzzzz\t", 1))
    (part,) = cut_parts([path], 1)
    columns = tmp_path / "p.parquet"
    to_parquet(PartTask(part, columns, SETTINGS, ARROW), moved_nowhere)
    task = PackTask(part, columns, tmp_path / "p.bin", SETTINGS, ARROW)
    for named in (
        partial(to_binary, task),
        partial(against_memory, CeilingTask(part, SETTINGS, ARROW, 1)),
    ):
        with pytest.raises(DataError, match=r"day_0, line [0-9]+ .*c1 is b'zzzzzzzz'"):
            named(moved_nowhere)
    path.write_bytes(good)
    task = PackTask(part, columns, tmp_path / "q.bin", SETTINGS, ARROW)
    with pytest.raises(DataError, match=r"p.parquet, column c1: b'zzzzzzzz' is not an id"):
        to_binary(task, moved_nowhere)


@pytest.mark.parametrize("converter", [ARROW, NATIVE], ids=["arrow", "native"])
def test_a_ceiling_is_a_rate_and_writes_nothing(converter: Converter, tmp_path: Path) -> None:
    path = day(tmp_path, 500)
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))  # a last line may lack its end
    (part,) = cut_parts([path], 1)
    before = set(tmp_path.iterdir())
    assert against_memory(CeilingTask(part, SETTINGS, converter, 1), moved_nowhere) > 0
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("converter", [ARROW, NATIVE], ids=["arrow", "native"])
def test_the_ceiling_of_gz_is_measured_over_several_blocks(
    converter: Converter, tmp_path: Path
) -> None:
    text = day(tmp_path, 2000).read_bytes()
    path = tmp_path / "day_0.gz"
    path.write_bytes(gzip.compress(text))
    (part,) = cut_parts([path], 1, {path: len(text)})
    lines = first_lines(part, 300_000)
    small = replace(SETTINGS, block_bytes=1 << 16)
    assert against_memory(CeilingTask(lines, small, converter, 1), moved_nowhere) > 0


def test_a_full_file_system_is_one_sentence_for_numbers_and_the_shuffle(tmp_path: Path) -> None:
    ids, rows = tmp_path / "day_0.id_0.bin", tmp_path / "day_0.bin"
    np.zeros(50_000, "<u4").tofile(ids)
    np.zeros((5000, 40), "<i4").tofile(rows)
    numberer = shuffler = NATIVE
    assert isinstance(numberer, IdNumberer)
    assert isinstance(shuffler, RowShuffler)
    with tiny_file_system(tmp_path) as target:
        fill(target)
        reason = rf"writing {target}/. failed: No space left on device; free some space, or choose"
        column = ColumnTask(
            sources=[ids],
            targets=[target / "n"],
            spills=(),
            settings=SETTINGS,
            threshold=1,
            table_limit=10,
            numberer=numberer,
        )
        scatter = ScatterTask(
            source=RowFiles((rows,), (160,), 5000),
            path=target / "s",
            settings=SETTINGS,
            seed=1,
            first_row=0,
            bucket_count=2,
            row_limit=5000,
            shuffler=shuffler,
        )
        bucket = ShuffleTask(
            sources=[Extent(rows, 0, 800_000)],
            path=target / "b",
            targets=[target / "b"],
            widths=[160],
            settings=SETTINGS,
            seed=1,
            bucket=0,
            shuffler=shuffler,
        )
        for named in (
            partial(number_ids, column),
            partial(scatter_rows, scatter),
            partial(shuffle_rows, bucket),
        ):
            with pytest.raises(TargetError, match=reason):
                named(moved_nowhere)
