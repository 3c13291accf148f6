"""The record's file: what is read back, what is refused, and what its schema promises."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.records import Scenario, make_run
from wattload.core.errors import RecordError
from wattload.core.record.metric import Metric
from wattload.core.record.run import (
    RECORD_FILE,
    RunRecord,
    read_record,
    read_stored,
    write_record,
)
from wattload.core.record.seal import SEAL_COMMAND
from wattload.core.record.versions import MIGRATIONS, SCHEMA_VERSION
from wattload.core.units import Unit

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/data/records/version-1.json"
SCHEMA = ROOT / "docs/record.schema.json"


def _record() -> RunRecord:
    return make_run(Scenario(power="measured", virtual=False))[0]


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    record = _record()
    read = read_record(write_record(record, tmp_path))
    assert read.model_copy(update={"seal": None}) == record
    assert read_record(tmp_path) == read
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_FILE]


def test_the_first_version_is_migrated() -> None:
    """This file is never written again: a later schema has to migrate it."""
    stored = read_stored(GOLDEN)
    assert (stored.schema_version, stored.record.schema_version) == (1, SCHEMA_VERSION)
    assert (stored.record.label, stored.seal) == ("golden", "none")


def test_the_second_version_stays_readable_and_sealed() -> None:
    stored = read_stored(GOLDEN.with_name("version-2.json"))
    assert (stored.schema_version, stored.record.label, stored.seal) == (2, "golden", "holds")


def test_every_older_version_has_a_step_to_the_next() -> None:
    assert sorted(MIGRATIONS) == list(range(1, SCHEMA_VERSION))


def test_a_record_is_sealed_as_it_is_written(tmp_path: Path) -> None:
    file = write_record(_record(), tmp_path)
    stored = read_stored(file)
    assert stored.seal == "holds"
    assert stored.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert read_stored(write_record(stored.record, tmp_path)).seal == "holds"


def test_a_seal_is_checked_with_two_common_tools(tmp_path: Path) -> None:
    stored = read_stored(write_record(_record(), tmp_path))
    said = subprocess.run(["sh", "-c", SEAL_COMMAND], cwd=tmp_path, capture_output=True, check=True)
    assert said.stdout.decode().split()[0] == stored.record.seal


@pytest.mark.parametrize(
    "change",
    [
        {"label": "other"},
        {"command": []},
        {"seal": None},
        {"seal": "0" * 64},
    ],
)
def test_an_edit_breaks_the_seal(tmp_path: Path, change: dict[str, object]) -> None:
    file = write_record(_record(), tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | change, indent=1))
    assert read_stored(file).seal == "broken"


def test_a_seal_taken_out_is_an_edit(tmp_path: Path) -> None:
    file = write_record(_record(), tmp_path)
    document = json.loads(file.read_text("utf-8"))
    del document["seal"]
    file.write_text(json.dumps(document))
    assert read_stored(file).seal == "broken"


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
        ('{"schema_version": 3}', "schema version 3, written by a newer .* versions 1 to 2"),
        ('{"schema_version": 0}', "schema version 0; this wattload reads versions 1 to 2"),
        ('{"schema_version": true}', "schema version True; this wattload reads"),
        ('{"schema_version": 1}', "no valid record"),
        ('{"schema_version": 2}', "no valid record"),
        ("\x00\x01", "cut short"),
        ("[" * 2000, "cut short"),
        ('{"label": "\\ud800"}', "cut short"),
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
