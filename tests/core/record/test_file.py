"""The record's file: what is read back, what is refused, and what its schema promises."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.record_power import PowerKind
from tests.records import Scenario, make_run
from wattload.core.errors import RecordError
from wattload.core.record.file import (
    RECORD_FILE,
    SEAL_COMMAND,
    read_record,
    read_stored,
    write_record,
)
from wattload.core.record.results import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.results.reading import read_judged

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "docs/record.schema.json"


def _record() -> RunRecord:
    return make_run(Scenario(power="measured", virtual=False))[0]


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    record = _record()
    read = read_record(write_record(record, tmp_path))
    assert read.model_copy(update={"seal": None, "metrics": record.metrics}) == record
    assert read_record(tmp_path) == read
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_FILE]


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


SEAL_LINE = re.compile(r'"seal": "[0-9a-f]{64}"')


@pytest.mark.parametrize("beside", ["", ', "label": "FORGED"'])
def test_nothing_shares_the_line_of_the_seal(tmp_path: Path, beside: str) -> None:
    """What stood there would not be digested."""
    file = write_record(_record(), tmp_path)
    text = file.read_text("utf-8")
    (seal,) = SEAL_LINE.findall(text)
    own = ' "label": "A",\n' if beside else ""
    file.write_text(text.replace(own, "").replace(seal, f"{seal}{beside} "), "utf-8")
    stored = read_stored(file)
    assert (stored.seal, stored.record.label) == ("broken", "FORGED" if beside else "A")
    said = subprocess.run(["sh", "-c", SEAL_COMMAND], cwd=tmp_path, capture_output=True, check=True)
    assert said.stdout.decode().split()[0] not in seal


def test_a_second_line_like_a_seal_breaks_it(tmp_path: Path) -> None:
    file = write_record(_record(), tmp_path)
    nested = '"config": {\n "seal": "' + "1" * 64 + '",'
    file.write_text(file.read_text("utf-8").replace('"config": {', nested, 1), "utf-8")
    assert read_stored(file).seal == "broken"


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        (r' "label": "A",', ' "label": "A",\n "label": "B",'),
        (r'"values": \{', '"values": {"x": 1, "x": 2, '),
        (r"( \"seal\": \"[0-9a-f]+\")", r'\1, "label": "FORGED"'),
        (r"( \"seal\": \"[0-9a-f]+\")", r"\1,\n\1"),
    ],
)
def test_a_key_that_stands_twice_breaks_the_seal(tmp_path: Path, once: str, twice: str) -> None:
    """Of two equal keys readers keep the later one, or the first."""
    record = _record().model_copy(update={"config": {"values": {"y": 1}}})
    file = write_record(record, tmp_path)
    text, count = re.subn(once, twice, file.read_text("utf-8"))
    file.write_text(text, "utf-8")
    assert count == 1
    assert read_stored(file).seal == "broken"


def test_a_record_laid_out_otherwise_is_read(tmp_path: Path) -> None:
    file = write_record(_record(), tmp_path)
    record = read_record(file)
    file.write_text(json.dumps(json.loads(file.read_text("utf-8"))), "utf-8")
    assert read_record(file) == record
    assert read_stored(file).seal == "broken"


def test_the_published_schema_is_the_records_own() -> None:
    published = json.loads(SCHEMA.read_text("utf-8"))
    assert published == RunRecord.model_json_schema(mode="serialization"), (
        "docs/record.schema.json is out of date: make docs"
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
        ("", "truncated"),
        ('{"schema_version": 1, "run_id"', "truncated"),
        ("[]", "is not a record: it has no schema_version"),
        ('{"schema_version": 4}', "version 4, and .* reads version 1; read it with the version"),
        (
            '{"schema_version": 4, "software": {"wattload": "9.1"}}',
            "read it with wattload 9.1, which wrote it",
        ),
        ('{"schema_version": true}', "schema version True, and this wattload reads version 1"),
        ('{"schema_version": 1}', "not a valid record"),
        ("\x00\x01", "truncated"),
        ("[" * 2000, "truncated"),
        ('{"label": "\\ud800"}', "truncated"),
    ],
)
def test_what_is_no_record_is_refused_in_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / RECORD_FILE).write_text(text)
    with pytest.raises(RecordError, match=words):
        read_record(tmp_path)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (5, "has energies of version 5 of the energy model, .* reads version 6; repeat the run$"),
        (None, "an unknown version of the energy model, .* reads version 6; repeat the run$"),
        (7, "version 7 of the energy model, .* reads version 6; update wattload$"),
    ],
)
@pytest.mark.parametrize("power", ["measured", "none"])
def test_energies_of_another_model_are_refused_in_one_sentence(
    tmp_path: Path, power: PowerKind, model: int | None, words: str
) -> None:
    """Records of the old model have other fields, too, which are not what is said of them."""
    file = write_record(make_run(Scenario(power=power))[0], tmp_path)
    document = json.loads(file.read_text("utf-8"))
    document["power"] |= {"tail_s": None, "energy_model": model}
    if model is None:
        del document["power"]["energy_model"]
    file.write_text(json.dumps(document))
    with pytest.raises(RecordError, match=words):
        read_record(file)


def test_a_folder_without_a_record_reports_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="name a run folder"):
        read_record(tmp_path)


def test_the_summary_is_for_people_and_no_input(tmp_path: Path) -> None:
    file = write_record(_record(), tmp_path)
    document = json.loads(file.read_text("utf-8"))
    rate = document["summary"]["metrics"]["read_bytes_per_s"]["value"]
    assert document["summary"]["phases"][-1]["bytes_per_s"] == pytest.approx(rate)
    assert document["summary"]["drive_energy"]["energy_for_work_j"] > 0
    assert read_stored(file).summary == document["summary"]
    assert read_record(file).summary == {}
    document["summary"]["metrics"]["read_bytes_per_s"]["value"] = 1.0
    file.write_text(json.dumps(document))
    read = read_judged(file).record
    assert read.windows == _record().windows
    assert read.workload.remarks[-1].startswith("The summary in the record was computed by version")
