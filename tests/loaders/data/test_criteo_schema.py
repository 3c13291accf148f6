"""The reference packing of a TSV line, value by value."""

from __future__ import annotations

import struct

import pytest

from wattload.loaders.data.criteo_day_files import (
    COLUMNS,
    ID_MODULUS,
    ROW_BYTES,
    pack_row,
    parse_line,
)

IDS = b"\t".join(b"%08x" % (number + 1) for number in range(26))


def line(label: bytes = b"0", integers: bytes = b"\t".join([b"7"] * 13), ids: bytes = IDS) -> bytes:
    return b"\t".join((label, integers, ids)) + b"\n"


def test_a_row_is_forty_little_endian_int32() -> None:
    packed = pack_row(parse_line(line(label=b"1")))
    assert len(packed) == ROW_BYTES == 160
    assert struct.unpack("<40i", packed) == (1, *[7] * 13, *range(1, 27))
    assert len(COLUMNS) == 40


def test_gaps_and_negatives_become_zero() -> None:
    integers = b"\t".join([b"", b"-2", b"-1", *[b"3"] * 10])
    ids = b"\t".join([b""] * 26)
    assert parse_line(line(integers=integers, ids=ids)) == (0, 0, 0, 0, *[3] * 10, *[0] * 26)


def test_an_id_is_its_unsigned_value_modulo_forty_million() -> None:
    ids = b"\t".join([b"ffffffff", b"FFFFFFFF", *[b"02625a00"] * 24])
    values = parse_line(line(ids=ids))
    assert values[14] == values[15] == 0xFFFFFFFF % ID_MODULUS
    assert values[16] == 0  # 0x02625a00 is 40,000,000


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_every_line_end_is_taken(end: bytes) -> None:
    assert parse_line(line().removesuffix(b"\n") + end) == parse_line(line())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (line(label=b"2"), "label is b'2'"),
        (line(label=b""), "label is b''"),
        (line(integers=b"\t".join([b"x"] * 13)), "i1 is b'x'"),
        (line(integers=b"\t".join([b"7"] * 12 + [b"0x7"])), "i13 is b'0x7'"),
        (line(integers=b"\t".join([b"7"] * 12 + [b" 7"])), "i13 is b' 7'"),
        (line(integers=b"\t".join([b"2147483648"] + [b"7"] * 12)), "32-bit"),
        (line(integers=b"7"), "28 columns where 40"),
        (line() + b"\tmore", "41 columns|c26 is"),
        (line(ids=IDS.replace(b"00000001", b"0000000g")), "c1 is b'0000000g'"),
        (line(ids=IDS.replace(b"0000001a", b"1a")), "c26 is b'1a'"),
        (b"\n", "1 column where 40"),
    ],
)
def test_a_bad_line_is_refused_with_its_reason(bad: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(bad)
