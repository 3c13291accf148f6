from __future__ import annotations

import pytest

from wattload.core.units import Unit
from wattload.results.labels import label
from wattload.results.quantity import (
    MISSING,
    UNIT_SPACE,
    Scale,
    block_text,
    cpu_per_byte,
    number,
    one_unit,
    out_of_range,
    percent,
    percentages,
    quantity,
    ratio_ends,
    ratio_text,
    scale_for,
    scaled,
    whole,
    with_uncertainty,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5e9, Unit.BYTES_PER_SECOND, "1.500 GB/s"),
        (999.0, Unit.BYTES, "999.0 B"),
        (3600.0, Unit.JOULES, "1.000 Wh"),
        (35.9, Unit.JOULES, "35.90 J"),
        (999.0, Unit.JOULES, "999.0 J"),
        (7.2e6, Unit.JOULES, "2.000 kWh"),
        (0.00032, Unit.SECONDS, "0.3200 ms"),
        (2.5e-8, Unit.SECONDS, "25.00 ns"),
        (0.7143, Unit.FRACTION, "71.43 %"),
        (128e6, Unit.BYTES_PER_JOULE, "128.0 MB/s per W"),
        (1e-9, Unit.JOULES_PER_BYTE, "1.000 J/GB"),
        (494_000.0, Unit.PER_JOULE, "494.0 k/J"),
        (96.01e6, Unit.SAMPLES_PER_SECOND, "96.01 M/s"),
        (1234567.0, Unit.COUNT, "1\u202f234\u202f567"),
        (0.0, Unit.BYTES, "0 B"),
        (0.0, Unit.FRACTION, "0 %"),
        (-2.0, Unit.WATTS, "-2.000 W"),
    ],
)
def test_quantities_are_scaled_to_decimal_units(value: float, unit: Unit, text: str) -> None:
    assert quantity(value, unit).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("value_j", "uncertainty_j", "text"),
    [
        (219.34, 4.96, "219.3 ± 5.0 J"),
        (153.4, 14.2, "153 ± 14 J"),
        (-0.02, 1.5, "0.0 ± 1.5 J"),
        (1100.0, 11.0, "0.3056 ± 0.0031 Wh"),
        (35.9, None, "35.90 J"),
    ],
)
def test_a_value_has_the_decimals_of_its_uncertainty(
    value_j: float, uncertainty_j: float | None, text: str
) -> None:
    assert with_uncertainty(value_j, uncertainty_j, Unit.JOULES).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(512, "512 B"), (1024, "1 KiB"), (4096, "4 KiB"), (1 << 20, "1 MiB"), (1500, "1.500 kB")],
)
def test_block_sizes_are_powers_of_two(size_bytes: int, text: str) -> None:
    assert block_text(size_bytes).replace("\u00a0", " ") == text


def test_a_missing_figure_is_a_dash_and_never_a_zero() -> None:
    assert quantity(None, Unit.JOULES) == number(None) == whole(None) == percent(None) == MISSING


@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("value", [1.7e308, -1e308, 1e200, 1e-200, 5e-324, -5e-324])
def test_what_no_run_can_have_is_told_to_be_out_of_range(value: float, unit: Unit) -> None:
    assert quantity(value, unit) == scaled(value, Scale(1e-9, "ns")) == "out of range"
    assert out_of_range(value).endswith("which is out of range")


@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("value", [0.0, -0.0, 1e-30, -1e-30, 1e30])
def test_all_others_have_a_short_number(value: float, unit: Unit) -> None:
    text = quantity(value, unit)
    assert out_of_range(value) == ""
    assert text.split("\u00a0")[0] == "0" or float(text.split("\u00a0")[0]) != 0
    assert len(text) < 30


def test_a_value_out_of_range_leaves_the_scale_of_others_alone() -> None:
    assert scale_for(Unit.BYTES, 1e308, 2e9, 5e-324).unit == "GB"
    assert scale_for(Unit.BYTES, 1e308).unit == "B"


@pytest.mark.parametrize("value", [0.0, -0.0, -0.4])
def test_nothing_is_minus_nought(value: float) -> None:
    assert whole(value) == "0"
    assert number(-0.0) == "0"


@pytest.mark.parametrize(
    ("name", "unit", "words"),
    [
        ("throughput_bytes_per_s", Unit.BYTES_PER_SECOND, "throughput"),
        ("write_bytes_per_s", Unit.BYTES_PER_SECOND, "write rate"),
        ("train_s", Unit.SECONDS, "train time"),
        ("batch_latency_p99_s", Unit.SECONDS, "batch latency p99"),
        ("au_nominal", Unit.FRACTION, "AU by nominal step time"),
        ("au_dlio", Unit.FRACTION, "AU in MLPerf's form"),
    ],
)
def test_metric_names_are_read_as_words(name: str, unit: Unit, words: str) -> None:
    assert label(name, unit) == words


def test_one_unit_is_used_for_every_energy_and_for_nothing_else() -> None:
    with one_unit(Unit.JOULES, Scale(3600.0, "Wh")):
        assert quantity(8.595, Unit.JOULES) == "0.002388\u00a0Wh"
        assert quantity(8.595, Unit.SECONDS) == "8.595\u00a0s"
    assert quantity(8.595, Unit.JOULES) == "8.595\u00a0J"


def test_a_ratio_beyond_a_thousand_is_only_a_bound() -> None:
    assert (ratio_text(2.404), ratio_text(1000.4)) == ("2.40", "over 1\u202f000")
    assert ratio_text(1e-24) == "under 0.001"
    assert ratio_ends(2.4, 1e12) == "2.40 to over 1\u202f000"
    assert ratio_ends(1e12, 2e12) == "over 1\u202f000"
    assert ratio_ends(2.4001, 2.4002) == "2.4001 to 2.4002"


def test_a_figure_is_not_printed_outside_of_its_interval() -> None:
    assert ratio_text(1.708, within=(1.707, 1.709)) == "1.708"
    assert ratio_text(1.708, within=(1.69, 1.72)) == "1.71"
    assert ratio_text(1.7065, within=(1.7042, 1.7088), end_digits=4) == "1.706"
    assert percentages(0.6232, within=(0.6231, 0.6233)) == "62.32\u00a0%"
    assert percentages(0.6232, within=(0.61, 0.63)) == "62\u00a0%"


def test_a_percentage_never_reads_a_hundred() -> None:
    assert percentages(0.66) == "66\u00a0%"
    assert percentages(0.9987) == "99.9\u00a0%"
    assert percentages(1 - 1e-12) == "over 99.9\u00a0%"
    assert percentages(0.42, 1 - 1e-12) == "42 to over 99.9\u00a0%"
    assert percentages(-1e9, 0.5) == "under \u22121\u202f000 to 50\u00a0%"


def test_cpu_time_per_byte_needs_a_megabyte() -> None:
    assert cpu_per_byte(2.0, 999_999) == MISSING
    assert cpu_per_byte(0.01, 10**6) == f"10{UNIT_SPACE}s/GB"
