"""Masks for publication: each identity has one, in every field and format of a report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.records import (
    Scenario,
    cluster_of,
    make_cluster,
    make_run,
    write_made_run,
    write_run,
)
from tests.reports.conftest import render_page
from wattload.core.record.file import read_record, write_record
from wattload.core.record.run import RunRecord
from wattload.reports.render.index import render_index
from wattload.reports.render.json_export import json_report
from wattload.reports.render.output import FORMS
from wattload.reports.runs.load import load_runs
from wattload.reports.runs.redact import Masker
from wattload.reports.stats.subject import make_subject
from wattload.results.reading import judged

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
"""Fields that name what is reported elsewhere, or have words of the format."""


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
    texts["records"] = json_report(subject, full=True)
    texts["index"] = render_index(folder, output=tmp_path / "index.html", redact=True)
    for name, text in texts.items():
        for secret in SECRETS:
            assert secret not in text, (name, secret)


BOX, DRIVE, PATH = "db7.corp.example", "S4EVNX0R900001", "/mnt/secret lab/ssd"


def _scenario(run_id: str = "run-a") -> Scenario:
    return Scenario(
        run_id=run_id,
        host=BOX,
        serial=DRIVE,
        path=PATH,
        seconds=1.0,
        virtual=False,
        power="measured",
        remarks=("On db7 the log is in /home/alice/log.txt.", f"Drive nvme-{DRIVE} is warm."),
        limits=("/dev/disk/by-id/nvme-S4EVNX0R900001 can't be opened.",),
    )


@pytest.fixture
def named() -> RunRecord:
    return make_run(_scenario())[0]


def test_no_name_serial_or_path_is_left_anywhere(tmp_path: Path) -> None:
    page = render_page(load_runs([write_run(tmp_path, _scenario())], redact=True))
    for secret in (BOX, "db7", DRIVE, "secret lab", "alice", "/mnt/"):
        # Three letters may be part of a digest.
        assert not re.search(rf"\b{re.escape(secret)}", page), secret
    for mask in ("host-1", "serial-1", "path-1"):
        assert mask in page


def test_every_host_of_a_run_is_masked(tmp_path: Path) -> None:
    hosts = ("db7.corp.example", "db8.corp.example", "vault.other.example")
    record, traces = make_cluster(cluster_of(*hosts, slow=hosts[2], power="measured", seconds=1.0))
    command = (*record.command, "--hosts", "db7,db8:2,vault")
    record = judged(record.model_copy(update={"command": command}))
    folder = write_made_run(tmp_path / "run", record, traces)
    page = render_page(load_runs([folder], redact=True))
    for secret in ("db7", "db8", "vault", "corp", "S4EVNX0R90000"):
        # Three letters may be part of a digest.
        assert not re.search(rf"\b{re.escape(secret)}", page), secret
    for mask in ("host-1", "host-2", "host-3", "serial-3", "host-1,host-2:2,host-3"):
        assert mask in page
    assert "host-3 ended last, " in page


def test_without_redact_all_of_it_is_shown(tmp_path: Path) -> None:
    page = render_page(load_runs([write_run(tmp_path, _scenario())]))
    for word in (BOX, DRIVE, PATH, "/home/alice/log.txt"):
        assert word in page


def test_the_same_thing_has_the_same_mask_in_every_run(named: RunRecord) -> None:
    other = make_run(_scenario("run-b"))[0]
    third = make_run(Scenario(run_id="run-c", host="db8", path="/srv/x", virtual=False))[0]
    masker = Masker([named, other, third])
    first, second, last = (masker.record(one) for one in (named, other, third))
    assert first.hosts[0].facts.name == second.hosts[0].facts.name == "host-1"
    assert last.hosts[0].facts.name == "host-2"
    assert first.targets[0].facts.path == second.targets[0].facts.path
    assert first.targets[0].facts.path != last.targets[0].facts.path


def test_references_still_meet_after_masking(named: RunRecord) -> None:
    masked = Masker([named]).record(named)
    assert masked.controllers[0].facts.serial in masked.targets[0].facts.controllers
    assert {span.host for span in masked.spans} == {masked.hosts[0].facts.name}
    assert masked.power.energy[0].device == masked.controllers[0].facts.serial


def test_the_command_and_free_text_are_masked(named: RunRecord) -> None:
    masked = Masker([named]).record(named)
    assert re.fullmatch(r"target\.path=path-\d+", masked.command[3])
    assert re.fullmatch(r"On host-1 the log is in path-\d+\.", masked.workload.remarks[0])
    assert masked.workload.remarks[1] == "Drive nvme-serial-1 is warm."


def test_public_paths_stay_and_lose_their_serials(named: RunRecord) -> None:
    masked = Masker([named]).record(named)
    assert masked.limits == ("/dev/disk/by-id/nvme-serial-1 can't be opened.",)
    text = Masker([named]).text("read /sys/block/vda/stat and /proc/self/io")
    assert text == "read /sys/block/vda/stat and /proc/self/io"


def test_units_and_ratios_are_no_paths(named: RunRecord) -> None:
    text = "1.5 GB/s, 2.0 J/GB, B/A = 2.51, 3/4, read/write, 0.98 / 1.02, 64 kB/(s W)"
    assert Masker([named]).text(text) == text


def test_unique_ids_are_masked_as_serials(named: RunRecord) -> None:
    masker = Masker([named])
    once = masker.text("root=UUID=01234567-89ab-cdef-0123-456789abcdef")
    assert re.fullmatch(r"root=UUID=serial-\d+", once)
    assert masker.text("GPU-01234567-89ab-cdef-0123-456789abcdef") != once


@pytest.mark.parametrize("name", ["read", "complete", "pass", "host", "name", "10", "box.1"])
def test_a_host_named_like_a_word_of_the_format_is_masked_all_the_same(name: str) -> None:
    own = make_run(Scenario(host=name, seconds=1.0))[0]
    masked = Masker([own]).record(own)
    assert masked.hosts[0].facts.name == "host-1"
    assert masked.status == own.status
    assert [check.verdict for check in masked.checks] == [check.verdict for check in own.checks]


def test_masking_twice_is_masking_once(named: RunRecord) -> None:
    once = Masker([named]).record(named)
    assert Masker([once]).record(once) == once


def test_identifiers_of_what_may_be_overwritten_are_masked(named: RunRecord) -> None:
    config = {"target": {"overwrite": ["vfat:ABCD-1234", "unknown"]}}
    command = ("wattload", "run", "target.overwrite=[vfat:ABCD-1234,unknown]")
    changed = named.model_copy(update={"config": config, "command": command})
    masked = Masker([changed]).record(changed)
    text = masked.model_dump_json()
    assert "ABCD-1234" not in text
    assert masked.config["target"]["overwrite"][1] == "unknown"


def test_addresses_of_meters_are_masked_in_settings_and_sentences(record: RunRecord) -> None:
    run = "ssh -p 22 -t server3 stdbuf -oL ipmi-read bmc9 bob@bmc8"
    settings = {
        "redfish": {"url": "https://bmc7.lab.example:8443"},
        "quarch": {"host": "qishost", "module": "tcp::qtl1999-02-020"},
        "snmp": {"outlets": ["pdu-a.lab.example/7", "pdub:1161/2.3"]},
        "scpi": {"resource": "TCPIP::wt300::INSTR", "scope": "node", "device": "rack3"},
        "command": {"run": run, "scope": "drive", "device": "vda"},
    }
    words = (
        "power.redfish.url=https://bmc7.lab.example:8443",
        "power.quarch.host=qishost",
        "power.quarch.module=tcp::qtl1999-02-020",
        "power.snmp.outlets=[pdu-a.lab.example/7,pdub:1161/2.3]",
        "power.scpi.resource=TCPIP::wt300::INSTR",
        "power.scpi.device=rack3",
        f"power.command.run={run}",
    )
    sentences = (
        "bmc7.lab.example, pdu-a, pdub:1161 and wt300 did not answer on vda; "
        "ssh: connect to host server3 port 22: refused; bob@bmc8 or ipmi-read",
    )
    placed = record.model_copy(
        update={"config": {"power": settings}, "command": words, "limits": sentences}
    )
    masked = Masker([placed]).record(placed)
    texts = [json.dumps(masked.config), *masked.command, *masked.limits]
    for text in texts:
        for name in ("bmc", "pdu", "lab", "qis", "qtl", "wt300", "rack3", "server3", "8443"):
            assert name not in text
    assert " on vda; ssh: connect to host " in texts[-1]
    assert masked.command[0] == "power.redfish.url=address-1"
