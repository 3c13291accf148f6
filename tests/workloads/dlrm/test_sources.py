"""Day files of users: both loaders accept the same ones, and refuse others in the same words."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.context import context_at
from tests.workloads.dlrm.facts import facts_of
from tests.workloads.dlrm.test_workload import dlrm, each_loader, lived, outputs
from wattload.core.errors import DataError
from wattload.loaders.converters import ConverterConfig
from wattload.loaders.data.criteo_day_files import ID_MODULUS, pack_row, parse_line
from wattload.loaders.data.criteo_synthetic import SyntheticDay
from wattload.loaders.data.target_folder import clean
from wattload.loaders.native.config import Config as NativeConfig
from wattload.results.quantity import counted
from wattload.workloads.dlrm.config import BadRows, Dense, Pack

MARK = b"\xef\xbb\xbf"
DAYS = [SyntheticDay(7, day, 400).readall() for day in range(3)]
PACKED = gzip.compress(DAYS[1])
BAD_LABEL = r"label is b'\\xef\\xbb\\xbf[01]'; it must be 0 or 1"

Files = Mapping[str, bytes]


def source_of(folder: Path, files: Files) -> str:
    """Write day files into a folder for the workload's setting."""
    (folder / "real").mkdir()
    for name, content in files.items():
        (folder / "real" / name).write_bytes(content)
    return str(folder / "real")


def rows_of(*texts: bytes) -> bytes:
    return b"".join(pack_row(parse_line(line)) for text in texts for line in text.splitlines())


ACCEPTED = {
    "day_6": MARK + DAYS[0],
    "day_7": DAYS[1].replace(b"\n", b"\r\n"),
    "day_8.gz": gzip.compress(MARK + DAYS[2][:-1]) + bytes(70_000),
    "day_9.gz": PACKED + gzip.compress(b""),
}
"""A byte order mark, carriage returns, no last line end, a padded gz file, and one of two members;
the first days are left out."""


@each_loader
@pytest.mark.parametrize(("columnar", "bad_rows"), [(True, BadRows.drop), (False, BadRows.refuse)])
def test_all_of_these_become_the_rows_of_their_lines(
    loader: ConverterConfig, bad_rows: BadRows, tmp_path: Path, *, columnar: bool
) -> None:
    workload = dlrm(
        loader, source=source_of(tmp_path, ACCEPTED), rounds=1, workers=1, keep_output=True,
        columnar=columnar, bad_rows=bad_rows, block_bytes=1 << 16, sample_row_groups=99,
    )  # fmt: skip
    outcome, checks = lived(workload, context_at(tmp_path))
    assert {name for name, check in checks.items() if check.verdict != "pass"} == set()
    assert facts_of(outcome).dropped_count == 0
    packed = [path for path in outputs(tmp_path) if path.suffix == ".bin"]
    assert b"".join(path.read_bytes() for path in packed) == rows_of(*DAYS, DAYS[1])
    skipped = [
        "2 day files begin with a UTF-8 byte order mark, which belongs to no row and was skipped.",
        f"{tmp_path}/real/day_8.gz has 70000 zero bytes after its gz data, which were ignored.",
    ]
    assert [each for each in outcome.remarks if each.endswith(("skipped.", "ignored."))] == skipped


@each_loader
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"day_0": DAYS[0], "day_2": DAYS[2]},
            r"/real: day_1 is missing between day_0 and day_2; add it, or link the days to read ",
        ),
        (
            {"day_0": DAYS[0], "day_1": DAYS[1], "day_1.gz": PACKED},
            r"/real has day 1 twice, as day_1 and day_1\.gz; move one of them out of the folder",
        ),
        ({"day_0": DAYS[0], "day_00": DAYS[0]}, r"/real has day 0 twice, as day_0 and day_00; "),
        ({"day_0": DAYS[0], "day_1": b""}, r"/day_1 is empty; a day file has a line for each "),
        ({"day_0": MARK}, r"/day_0 is empty; "),
        ({"day_0.gz": gzip.compress(b""), "day_1": DAYS[1]}, r"/day_0\.gz is empty; "),
        ({"day_0": DAYS[0], "day_1.gz": gzip.compress(MARK)}, r"/day_1\.gz is empty; "),
        ({"day_0.gz": PACKED[:30]}, r"day_0\.gz is cut short: its gz data ends at byte 30, before"),
        (
            {"day_0.gz": PACKED[:-9]},
            rf"day_0\.gz is cut short: its gz data ends at byte {len(PACKED) - 9}, before the end",
        ),
        (
            {"day_0.gz": PACKED + b"garbage"},
            rf"day_0\.gz, byte {len(PACKED)}: garbage after the end of the gz data; copy the file "
            rf"again, or cut it off there with `truncate -s {len(PACKED)}`",
        ),
        (
            {"day_0.gz": PACKED + bytes(70_000) + PACKED},
            rf"day_0\.gz, byte {len(PACKED)}: garbage after the end of the gz data; ",
        ),
        ({"day_0": PACKED}, r"/day_0 is gz data; its name has to end in \.gz"),
        ({"day_0.gz": DAYS[0]}, r"/day_0\.gz is not gz data, as its name says; rename it"),
        ({"day_0": DAYS[0] + MARK + DAYS[1]}, rf"/day_0, line 401 \(byte [0-9]+\): {BAD_LABEL}"),
        (
            {"day_0.gz": gzip.compress(DAYS[0]) + gzip.compress(MARK + DAYS[1])},
            rf"/day_0\.gz, line 401 \(byte of the text [0-9]+\): {BAD_LABEL}",
        ),
        ({"day_0": MARK + MARK + DAYS[0]}, rf"/day_0, line 1 \(byte 3\): {BAD_LABEL}"),
        (
            {"day_0": DAYS[0] + bytes(5_000) + DAYS[1]},
            rf"line 401 \(byte {len(DAYS[0])}\): label is b'(\\x00){{32}}' and 4969 bytes more",
        ),
        ({"day_0": DAYS[0][:-90]}, r"/day_0, line 400 .* columns where 40 are needed"),
    ],
)
def test_these_are_refused_in_one_sentence(
    loader: ConverterConfig, files: Files, reason: str, tmp_path: Path
) -> None:
    workload = dlrm(loader, source=source_of(tmp_path, files), rounds=1)
    with pytest.raises(DataError, match=reason) as caught:
        lived(workload, context_at(tmp_path))
    assert "\n" not in str(caught.value)
    assert outputs(tmp_path) == []


@each_loader
@pytest.mark.parametrize(
    ("name", "text", "lines", "columnar"),
    [
        ("day_1", DAYS[1].decode().encode("utf-16"), 401, True),
        ("day_1", b"not one row", 1, False),
        # Its bytes name the test, so they must not hold the time.
        ("day_1.gz", gzip.compress(DAYS[1].replace(b"\t", b",") * 9, mtime=0), 3600, True),
    ],
)
def test_a_file_of_which_every_line_would_be_dropped_is_refused(
    loader: ConverterConfig, name: str, text: bytes, lines: int, tmp_path: Path, *, columnar: bool
) -> None:
    source = source_of(tmp_path, {"day_0": DAYS[0], name: text})
    workload = dlrm(
        loader, source=source, bad_rows=BadRows.drop, columnar=columnar, block_bytes=1 << 16
    )
    with pytest.raises(DataError) as caught:
        lived(workload, context_at(tmp_path))
    assert str(caught.value) == (
        f"{source}/{name} has no row in {counted(lines, 'line')}, so "
        "workload.bad_rows=drop would leave nothing of it; a row is a label, 13 "
        "integers and 26 hex ids in ASCII, separated by tabs; convert the file, "
        "or take it out of workload.source"
    )
    assert outputs(tmp_path) == []


@each_loader
@pytest.mark.parametrize("block_bytes", [1 << 16, 1 << 20])
def test_a_mark_within_a_file_drops_its_line_wherever_blocks_begin(
    loader: ConverterConfig, block_bytes: int, tmp_path: Path
) -> None:
    """A parser that skips the mark at the start of each block would keep some of these lines."""
    lines = DAYS[0].splitlines(keepends=True)
    text = b"".join(MARK + line for line in lines * 4)
    workload = dlrm(
        loader, source=source_of(tmp_path, {"day_0": text + DAYS[1]}), rounds=1, workers=1,
        bad_rows=BadRows.drop, keep_output=True, block_bytes=block_bytes, sample_row_groups=99,
    )  # fmt: skip
    outcome, checks = lived(workload, context_at(tmp_path))
    assert {name for name, check in checks.items() if check.verdict != "pass"} == set()
    assert facts_of(outcome).dropped_count == 4 * 400 - 1
    (packed,) = [path for path in outputs(tmp_path) if path.suffix == ".bin"]
    assert packed.read_bytes() == rows_of(lines[0], DAYS[1])


def nvidia_sizes(folder: Path) -> list[int]:
    """Return what NVIDIA's ``split_dataset.py`` makes of ``model_size.json``: each value and 1."""
    (path,) = folder.rglob("model_size.json")
    found = json.loads(path.read_text())
    assert list(found) == [f"_c{column}" for column in range(14, 40)]
    return [int(value) + 1 for value in found.values()]


def facebook_counts(folder: Path) -> list[int]:
    """Return what ``CriteoBinDataset`` of facebookresearch/dlrm finds in its file of counts."""
    (path,) = folder.rglob("day_fea_count.npz")
    with np.load(path) as data:
        assert data["counts"].dtype == np.int32
        return [int(count) for count in data["counts"]]


@each_loader
def test_the_sizes_of_tables_are_beside_kept_rows(loader: ConverterConfig, tmp_path: Path) -> None:
    lived(dlrm(loader, rounds=1, row_count=600, keep_output=True), context_at(tmp_path))
    assert nvidia_sizes(tmp_path) == facebook_counts(tmp_path) == [ID_MODULUS] * 26
    rows = np.concatenate([np.fromfile(path, "<i4") for path in tmp_path.rglob("*.bin")])
    assert (rows.reshape(-1, 40)[:, 14:].max(axis=0) < facebook_counts(tmp_path)).all()
    clean(tmp_path)
    assert not list(tmp_path.rglob("model_size.json"))


def test_numbered_ids_have_tables_of_their_own_size(tmp_path: Path) -> None:
    workload = dlrm(
        NativeConfig(), rounds=1, row_count=600, keep_output=True, frequency_threshold=3,
        pack=Pack.split_binary, dense=Dense.log,
    )  # fmt: skip
    outcome, _ = lived(workload, context_at(tmp_path))
    sizes = nvidia_sizes(tmp_path)
    assert sizes == facebook_counts(tmp_path) == list(facts_of(outcome).category_sizes)
    for number, size in enumerate(sizes):
        kind = next(each for each in (np.int8, np.int16, np.int32) if size < np.iinfo(each).max)
        files = tmp_path.rglob(f"*.cat_{number}.bin")
        assert max(int(np.fromfile(path, kind).max()) for path in files) == size - 1


def test_no_sizes_are_left_without_rows(tmp_path: Path) -> None:
    lived(dlrm(rounds=1, row_count=600), context_at(tmp_path))
    assert not list(tmp_path.rglob("model_size.json"))
    assert not list(tmp_path.rglob("day_fea_count.npz"))
