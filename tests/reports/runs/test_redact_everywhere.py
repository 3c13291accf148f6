"""An identifier of a machine, in any field, is in no format of a masked report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.records import Scenario, make_run, write_run
from wattload.core.record.file import read_record, write_record
from wattload.core.record.run import RunRecord
from wattload.reports.render.index import render_index
from wattload.reports.render.output import FORMS
from wattload.reports.runs.load import load_runs
from wattload.reports.runs.redact import Masker
from wattload.reports.stats.subject import make_subject

HOST, SERIAL = "secretbox.corp.example", "SN12345SECRET"
NAMES = (
    "secretbox",
    "nas7.corp.example",
    "alice@secretbox",
    "../secretproj/runs",
    "./secretproj/x",
    "/home/secretuser/x",
    "~secretuser/x",
    "C:\\secretuser\\x",
    "\\\\secretnas\\share",
    "smb://secretnas/share",
    "UUID=ABCDEF12-1111-2222-3333-444455556666",
    "partuuid 1234abcd-02",
    "PARTUUID=12345678-03",
    "UUID=AB12-CD34",
    "/dev/disk/by-uuid/fedcba98-1111-2222-3333-444455556666",
    "/dev/disk/by-label/secretlabel",
    "eui.0025388B71b0a1c2",
    "0025388b71b0a1c3",
    "nqn.2014-08.com.example:nvme:PM1:secret",
    "10.1.2.3",
    "fe80::1:feed",
    "fd00:1:2:3:4:5:6:7",
    "AA:bb:cc:dd:ee:ff",
    SERIAL,
)
SECRETS = (
    *("secret", "alice", "corp.example", SERIAL, "nas7", "ABCDEF12", "1234abcd-02", "12345678-03"),
    *("AB12-CD34", "fedcba98", "0025388B71b0a1c2", "0025388b71b0a1c3", "PM1", "10.1.2.3"),
    # With their colons: hashes on the page may hold any four hexadecimal digits.
    *(":feed", "fd00:", "dd:ee"),
)
OURS = frozenset(
    (
        "host",
        "serial",
        "controllers",
        "module",
        "path",
        "mount_point",
        "folder",
        "device",
        "devices",
        "schema_version",
        "verdict",
        "kind",
        "category",
        "status",
        "unit",
        "better",
        "evidence",
        "scope",
        "initiator",
        "source",
    )
)
"""Fields that name what is told of elsewhere, or have words of the format."""


@pytest.fixture(scope="module")
def record() -> RunRecord:
    scenario = Scenario(
        host=HOST, serial=SERIAL, path="/mnt/secret lab/x", seconds=1.0, virtual=False,
        power="measured", limits=("a limit",), remarks=("a remark",),
    )  # fmt: skip
    return make_run(scenario)[0]


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, (*place, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from leaves(part, (*place, index))
    elif isinstance(value, str):
        yield place, value


def put(document: Any, place: tuple[Any, ...], text: str) -> None:
    for step in place[:-1]:
        document = document[step]
    document[place[-1]] = text


def planted(record: RunRecord) -> tuple[RunRecord, int]:
    """Return the record with all names in every field that takes them, and in how many."""
    document = record.model_dump(mode="json")
    own = {
        place: text
        for place, text in leaves(document)
        if text != HOST and not OURS & {step for step in place[-2:] if isinstance(step, str)}
    }
    for place, text in own.items():
        put(document, place, f"{text} {', '.join(NAMES)}.")
    for _ in range(5):
        try:
            return RunRecord.model_validate(document), len(own)
        except ValidationError as error:
            for fault in error.errors():
                put(document, fault["loc"], own.pop(fault["loc"]))
    raise AssertionError(own)


def test_no_field_keeps_a_name(record: RunRecord) -> None:
    full, count = planted(record)
    assert count > 200
    masked = Masker([full]).record(full)
    text = json.dumps(masked.model_dump(mode="json"), ensure_ascii=False)
    clear = json.dumps(full.model_dump(mode="json"), ensure_ascii=False)
    for secret in SECRETS:
        assert secret in clear
        assert secret not in text, text[text.index(secret) - 100 : text.index(secret) + 60]


def test_masking_all_of_it_twice_is_masking_it_once(record: RunRecord) -> None:
    full, _ = planted(record)
    once = Masker([full]).record(full)
    assert Masker([once]).record(once) == once


@pytest.mark.parametrize(
    "setting",
    [
        "runs=../secretproj/runs",
        "runs=secretproj",
        "runs=mine/secretproj",
        "++x=C:\\secretproj",
        "target.path=secretproj/a,secretproj/b",
        "target.path=[secretproj/a,/mnt/secretproj]",
        "power.replay.path=./secretproj.csv",
        "x=secretproj/data",
    ],
)
def test_paths_without_a_root_are_masked_in_commands_and_configurations(
    record: RunRecord, setting: str
) -> None:
    key, _, value = setting.partition("=")
    full = record.model_copy(
        update={
            "command": ("wattload", "run", setting, "workload=unet3d"),
            "config": {**record.config, key.rpartition(".")[2].lstrip("+"): value},
        }
    )
    masked = Masker([full]).record(full)
    assert "secretproj" not in masked.model_dump_json()
    assert masked.command[2].startswith(f"{key}=")
    assert masked.command[3] == "workload=unet3d"


def test_a_path_that_a_command_names_is_masked_in_sentences_too(record: RunRecord) -> None:
    full = record.model_copy(
        update={
            "command": ("wattload", "run", "runs=secretproj", "target.path=ab/secretdata"),
            "limits": ("Neither secretproj/run-a nor ab/secretdata was moved.",),
        }
    )
    (limit,) = Masker([full]).record(full).limits
    assert "secret" not in limit
    assert "run-a" in limit


def test_what_names_nobody_stays(record: RunRecord) -> None:
    settings = {
        "unit": "MB/s",
        "share": "3/4",
        "runs": "runs",
        "name": "h100 x 1",
        "engine": "liburing 2.5",
        "file": "img_01_of_28.npz",
    }
    software = record.software.model_copy(update={"libraries": {"opencv": "4.10.0.84"}})
    full = record.model_copy(
        update={
            "config": {**record.config, "values": settings},
            "command": ("wattload", "run", "runs=runs", "workload.workers=8"),
            "software": software,
            "limits": ("At 23:00:05 on 0000:01:00.0 of 2026-11-20T23:00:05, 1234567890123456 B.",),
        }
    )
    masked = Masker([full]).record(full)
    assert masked.config["values"] == settings
    assert masked.command == full.command
    assert masked.software == full.software
    assert masked.limits == full.limits
    assert masked.started_utc == full.started_utc


def test_no_form_of_a_masked_report_names_anything(tmp_path: Path, record: RunRecord) -> None:
    folder = tmp_path / "runs"
    for index, label in enumerate("AB"):
        scenario = Scenario(
            run_id=f"run-{label}-{index}", label=label, order=index, seconds=1.0, host=HOST,
            serial=SERIAL, virtual=False, power="measured",
        )  # fmt: skip
        written = write_run(folder, scenario)
        full, _ = planted(read_record(written))
        write_record(full, written)
        written.rename(folder / f"run-on-secretbox-{SERIAL}-{index}")
    subject = make_subject(load_runs([folder], redact=True))
    texts = {name: form(subject) for name, form in FORMS.items()}
    texts["index"] = render_index(folder, output=tmp_path / "index.html", redact=True)
    for name, text in texts.items():
        for secret in SECRETS:
            assert secret not in text, (name, secret)
