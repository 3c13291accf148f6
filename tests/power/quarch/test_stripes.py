from __future__ import annotations

import pytest

from wattload.core.errors import PowerError
from wattload.power.quarch.stripes import parse_block


def test_block_with_eof_is_all_there_is() -> None:
    block = parse_block("0 947 59\r\n4 947 57\r\neof", 3)
    assert block.stripes.tolist() == [[0, 947, 59], [4, 947, 57]]
    assert block.is_all


def test_block_without_eof_has_more_behind_it() -> None:
    assert not parse_block("0 947 59\r\n", 3).is_all


@pytest.mark.parametrize("text", ["", "eof", "\r\n", "eof\r\n"])
def test_empty_block_is_all_there_is(text: str) -> None:
    block = parse_block(text, 5)
    assert block.stripes.shape == (0, 5)
    assert block.is_all


def test_columns_may_be_aligned_by_spaces_and_values_negative_or_with_a_point() -> None:
    block = parse_block("0    947 -26\r\n4096 947.5 1e3", 3)
    assert block.stripes.tolist() == [[0, 947, -26], [4096, 947.5, 1000]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FAIL: no such device", "no stripes"),
        ("0 1 2\r\n4 1\r\neof", "2 stripes with 5 numbers; its header has 3"),
        ("0 1 2\r\n4 1-2 3", "number that is none|numbers; its header"),
    ],
)
def test_what_is_no_stripe_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PowerError, match=reason):
        parse_block(text, 3)
