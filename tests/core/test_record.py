"""The record's file: what is read back, what is refused, and what its schema promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.records import Scenario, make_run
from wattload.core.errors import RecordError
from wattload.core.record.metric import Metric
from wattload.core.record.run import RECORD_FILE, RunRecord, read_record, write_record
from wattload.core.units import Unit

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/data/records/version-1.json"
SCHEMA = ROOT / "docs/record.schema.json"


def _record() -> RunRecord:
    return make_run(Scenario(power="measured", virtual=False))[0]


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    record = _record()
    assert read_record(write_record(record, tmp_path)) == record
    assert read_record(tmp_path) == record
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_FILE]


def test_the_first_version_stays_readable() -> None:
    """This file is never written again: a later schema has to migrate it."""
    record = read_record(GOLDEN)
    assert (record.schema_version, record.label) == (1, "golden")


def test_the_published_schema_is_the_records_own() -> None:
    published = json.loads(SCHEMA.read_text("utf-8"))
    assert published == RunRecord.model_json_schema(mode="serialization"), (
        "docs/record.schema.json is out of date: write it from RunRecord.model_json_schema"
    )


def test_a_gap_without_a_reason_is_refused() -> None:
    fields = {
        "name": "rate",
        "unit": Unit.BYTES_PER_SECOND,
        "better": "higher",
        "meaning": "a rate",
    }
    with pytest.raises(ValidationError, match="no reason given"):
        Metric.model_validate({**fields, "value": None})
    with pytest.raises(ValidationError, match="both a value"):
        Metric.model_validate({**fields, "value": 1.0, "missing": {"value": "why"}})
    metric = Metric.of("rate", None, Unit.BYTES_PER_SECOND, "higher", "a rate", reason="no device")
    assert metric.missing == {"value": "no device"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_figure_is_nan_or_infinite(value: float) -> None:
    with pytest.raises(ValidationError):
        Metric(name="x", value=value, unit=Unit.COUNT, better="neither", meaning="x")


def test_a_record_is_frozen_and_takes_no_unknown_field() -> None:
    record = _record()
    with pytest.raises(ValidationError, match="frozen"):
        record.label = "B"  # type: ignore[misc]  # that is the point
    document = {**json.loads(record.model_dump_json()), "colour": "blue"}
    with pytest.raises(ValidationError, match="Extra inputs"):
        RunRecord.model_validate(document)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cut short"),
        ('{"schema_version": 1, "run_id"', "cut short"),
        ("[]", "schema version None"),
        ('{"schema_version": 2}', "schema version 2; this wattload reads version 1"),
        ('{"schema_version": 1}', "no valid record"),
        ("\x00\x01", "cut short"),
    ],
)
def test_what_is_no_record_is_refused_in_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / RECORD_FILE).write_text(text)
    with pytest.raises(RecordError, match=words):
        read_record(tmp_path)


def test_a_folder_without_a_record_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="name a run folder"):
        read_record(tmp_path)
