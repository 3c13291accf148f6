"""The reference conversion agrees with the definition of a row, field by field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wattload.loaders.converters import ConversionSettings
from wattload.loaders.data.criteo_day_files import COLUMNS, pack_row, parse_line
from wattload.loaders.data.criteo_synthetic import SyntheticDay
from wattload.workloads.dlrm.checks import reference_rows

SETTINGS = ConversionSettings(compression="snappy", block_bytes=1 << 20)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last_end", [True, False])
def test_it_packs_what_the_definition_packs(end: bytes, last_end: bool) -> None:
    text = SyntheticDay(3, 0, 500).readall()
    text = text.replace(b"\n", end)
    rows = reference_rows(text if last_end else text.removesuffix(end), SETTINGS)
    assert rows.packed[0].tobytes() == b"".join(map(pack_row, map(parse_line, text.splitlines())))
    fields = [line.split(b"\t") for line in text.splitlines()]
    assert rows.columns["c1"] == [row[14].decode() or None for row in fields]
    assert rows.columns["i2"] == [int(row[2]) if row[2] else None for row in fields]
    assert list(rows.columns) == list(COLUMNS)


def test_it_leaves_out_what_the_definition_refuses() -> None:
    good = SyntheticDay(3, 0, 1).readall()
    fields = good.removesuffix(b"\n").split(b"\t")
    bad = [b"", b"0\t1", b"2" + good[1:], good.replace(b"\t", b"\t\t", 1)]
    for place, field in ((2, b"2147483648"), (3, b"+1"), (14, b"0x123456"), (39, b"1234567")):
        bad.append(b"\t".join([*fields[:place], field, *fields[place + 1 :]]))
    text = b"\n".join([*bad, good.removesuffix(b"\n"), *bad]) + b"\n"
    rows = reference_rows(text, replace(SETTINGS, drops_bad_rows=True))
    assert rows.packed[0].tobytes() == pack_row(parse_line(good))
    numbers = reference_rows(good, replace(SETTINGS, numeric_ids=True)).columns["c1"]
    assert numbers == [int(fields[14], 16) % 40_000_000]


@pytest.mark.parametrize("line", [b"", b"0\t1", b"\t".join([b"0"] * 39 + [b"xyz"])])
def test_a_line_that_is_no_row_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"columns|invalid literal"):
        reference_rows(line + b"\n", SETTINGS)
