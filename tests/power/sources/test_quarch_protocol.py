from __future__ import annotations

import numpy as np
import pytest

from tests.power.sources.qis_mock import TWO_RAILS, Module, header_xml
from wattload.core.errors import ConfigError, PowerError
from wattload.power.sources.quarch_protocol import parse_block, parse_header

WITH_POWER = (*TWO_RAILS, ("5V", "power", "uW"), ("12V", "power", "uW"), ("Tot", "power", "uW"))


def xml(*channels: tuple[str, str, str], extra: str = "") -> str:
    return header_xml(Module(channels=channels, extra_header=extra))


def test_period_and_columns_are_the_headers() -> None:
    header = parse_header(xml(*TWO_RAILS))
    assert (header.period_ns, header.time_unit_ns, header.column_count) == (4_000, 1_000, 5)


def test_volts_times_amperes_make_watts_in_the_headers_units() -> None:
    (five, twelve) = parse_header(xml(*TWO_RAILS)).rails([])
    stripes = np.array([[0.0, 5_000, 200_000, 12_000, 1_000_000]])
    assert five.watts(stripes)[0] == pytest.approx(1.0)
    assert twelve.watts(stripes)[0] == pytest.approx(12.0)
    assert (five.describe(), twelve.describe()) == ("5V (mV x uA)", "12V (mV x uA)")


def test_power_channel_comes_before_volts_and_amperes() -> None:
    (five, twelve) = parse_header(xml(*WITH_POWER)).rails([])
    stripes = np.array([[0.0, 0, 0, 0, 0, 1_500_000, 2_500_000, 4_000_000]])
    assert (five.watts(stripes)[0], twelve.watts(stripes)[0]) == (1.5, 2.5)


def test_total_is_not_a_rail_unless_it_is_named() -> None:
    header = parse_header(xml(*WITH_POWER))
    assert [rail.name for rail in header.rails([])] == ["5V", "12V"]
    assert [rail.name for rail in header.rails(["Tot"])] == ["Tot"]


def test_named_rails_are_taken_alone() -> None:
    assert [rail.name for rail in parse_header(xml(*TWO_RAILS)).rails(["12V"])] == ["12V"]


def test_unknown_rail_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'3V3'; the module streams 5V, 12V"):
        parse_header(xml(*TWO_RAILS)).rails(["3V3"])


def test_volts_without_amperes_are_no_rail() -> None:
    header = parse_header(xml(("12V", "voltage", "mV"), ("5V", "power", "uW")))
    assert [rail.name for rail in header.rails([])] == ["5V"]
    with pytest.raises(PowerError, match="of 12V"):
        header.rails(["12V"])


def test_stream_of_volts_alone_is_refused() -> None:
    with pytest.raises(PowerError, match="of any rail"):
        parse_header(xml(("12V", "voltage", "mV"))).rails([])


@pytest.mark.parametrize(
    ("name", "step_w"),
    [("12V", 12e-6), ("3V3", 3.3e-6), ("5V aux", 5e-6), ("drive", None)],
)
def test_resolution_is_a_step_of_current_at_the_rails_volts(
    name: str, step_w: float | None
) -> None:
    (rail,) = parse_header(xml((name, "voltage", "mV"), (name, "current", "uA"))).rails([])
    assert rail.resolution_w() == (pytest.approx(step_w) if step_w else None)


def test_resampled_stream_has_its_main_period() -> None:
    text = xml(*TWO_RAILS).replace("<mainPeriod>4uS", "<mainPeriod>1000us")
    assert parse_header(text).period_ns == 1_000_000


@pytest.mark.parametrize("tag", ["devicePerioduS", "mainPeriod"])
def test_older_and_newer_headers_name_the_period_otherwise(tag: str) -> None:
    text = xml(*TWO_RAILS).replace("<mainPeriod>4uS</mainPeriod>", "").replace("devicePeriod", tag)
    assert parse_header(text).period_ns == 4_000


def test_times_are_nanoseconds_only_where_the_main_period_alone_is() -> None:
    text = xml(*TWO_RAILS).replace("<devicePeriod>4us</devicePeriod>", "")
    header = parse_header(text.replace("4uS", "800ns"))
    assert (header.period_ns, header.time_unit_ns) == (800, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Version: 5\r\nFormat: 15\r\nAverage: 14", "not valid XML"),
        ("<header><channels/></header>", "no channel in V, A or W"),
        (xml(("5V", "power", "uW"), ("5V", "power", "uW")), "5V W twice"),
        (xml(*TWO_RAILS).replace("4us", "?").replace("4uS", "?"), "none of mainPeriod"),
        (xml(*TWO_RAILS).replace("4us", "0us").replace("4uS", "0us"), "none of mainPeriod"),
        (
            xml(*TWO_RAILS).replace("<dataPosition>2<", "<dataPosition>two<"),
            "no valid dataPosition",
        ),
        (xml(*TWO_RAILS).replace("<units>uA</units>", ""), "no valid units"),
        (xml(*TWO_RAILS, extra="<channels></channels>"), "several rates"),
    ],
)
def test_header_that_is_none_is_refused_in_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(PowerError, match=reason) as caught:
        parse_header(text)
    assert "\n" not in str(caught.value)


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
        ("FAIL: no such device", "text instead of stripes"),
        ("0 1 2\r\n4 1\r\neof", "2 stripes with 5 numbers; its header has 3"),
        ("0 1 2\r\n4 1-2 3", "text instead of stripes|numbers; its header"),
        ("0 1.5 nan", "a stripe with an invalid number"),
        ("0 1.5 inf", "a stripe with an invalid number"),
    ],
)
def test_what_is_not_a_stripe_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PowerError, match=reason):
        parse_block(text, 3)
