from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.records import Scenario, make_run, write_run
from tests.reports.conftest import render_page
from wattload.core.record.run import RunRecord
from wattload.reports.runs.load import load_runs
from wattload.reports.runs.redact import Masker

HOST, SERIAL, PATH = "db7.corp.example", "S4EVNX0R900001", "/mnt/secret lab/ssd"


def _scenario(run_id: str = "run-a") -> Scenario:
    return Scenario(
        run_id=run_id,
        host=HOST,
        serial=SERIAL,
        path=PATH,
        seconds=1.0,
        virtual=False,
        power="measured",
        remarks=("On db7 the log is in /home/alice/log.txt.", f"Drive nvme-{SERIAL} is warm."),
        limits=("/dev/disk/by-id/nvme-S4EVNX0R900001 can't be opened.",),
    )


@pytest.fixture
def record() -> RunRecord:
    return make_run(_scenario())[0]


def test_no_name_serial_or_path_is_left_anywhere(tmp_path: Path) -> None:
    page = render_page(load_runs([write_run(tmp_path, _scenario())], redact=True))
    for secret in (HOST, "db7", SERIAL, "secret lab", "alice", "/mnt/"):
        # Three letters may be part of a digest.
        assert not re.search(rf"\b{re.escape(secret)}", page), secret
    for mask in ("host-1", "serial-1", "path-1"):
        assert mask in page


def test_without_redact_all_of_it_is_shown(tmp_path: Path) -> None:
    page = render_page(load_runs([write_run(tmp_path, _scenario())]))
    for word in (HOST, SERIAL, PATH, "/home/alice/log.txt"):
        assert word in page


def test_the_same_thing_has_the_same_mask_in_every_run(record: RunRecord) -> None:
    other = make_run(_scenario("run-b"))[0]
    third = make_run(Scenario(run_id="run-c", host="db8", path="/srv/x", virtual=False))[0]
    masker = Masker([record, other, third])
    first, second, last = (masker.record(one) for one in (record, other, third))
    assert first.hosts[0].facts.name == second.hosts[0].facts.name == "host-1"
    assert last.hosts[0].facts.name == "host-2"
    assert first.targets[0].facts.path == second.targets[0].facts.path
    assert first.targets[0].facts.path != last.targets[0].facts.path


def test_references_still_meet_after_masking(record: RunRecord) -> None:
    masked = Masker([record]).record(record)
    assert masked.controllers[0].facts.serial in masked.targets[0].facts.controllers
    assert {span.host for span in masked.spans} == {masked.hosts[0].facts.name}
    assert masked.power.energy[0].device == masked.controllers[0].facts.serial


def test_the_command_and_free_text_are_masked(record: RunRecord) -> None:
    masked = Masker([record]).record(record)
    assert re.fullmatch(r"target\.path=path-\d+", masked.command[3])
    assert re.fullmatch(r"On host-1 the log is in path-\d+\.", masked.workload.remarks[0])
    assert masked.workload.remarks[1] == "Drive nvme-serial-1 is warm."


def test_public_paths_stay_and_lose_their_serials(record: RunRecord) -> None:
    masked = Masker([record]).record(record)
    assert masked.limits == ("/dev/disk/by-id/nvme-serial-1 can't be opened.",)
    text = Masker([record]).text("read /sys/block/vda/stat and /proc/self/io")
    assert text == "read /sys/block/vda/stat and /proc/self/io"


def test_units_and_ratios_are_no_paths(record: RunRecord) -> None:
    text = "1.5 GB/s, 2.0 J/GB, B/A = 2.51, 3/4, read/write, 0.98 / 1.02, 64 kB/(s W)"
    assert Masker([record]).text(text) == text


def test_unique_ids_are_masked_as_serials(record: RunRecord) -> None:
    masker = Masker([record])
    once = masker.text("root=UUID=01234567-89ab-cdef-0123-456789abcdef")
    assert re.fullmatch(r"root=UUID=serial-\d+", once)
    assert masker.text("GPU-01234567-89ab-cdef-0123-456789abcdef") != once


@pytest.mark.parametrize("name", ["read", "complete", "pass", "host", "name", "10", "box.1"])
def test_a_host_named_like_a_word_of_the_format_is_masked_all_the_same(name: str) -> None:
    record = make_run(Scenario(host=name, seconds=1.0))[0]
    masked = Masker([record]).record(record)
    assert masked.hosts[0].facts.name == "host-1"
    assert masked.status == record.status
    assert [check.verdict for check in masked.checks] == [check.verdict for check in record.checks]


def test_masking_twice_is_masking_once(record: RunRecord) -> None:
    once = Masker([record]).record(record)
    assert Masker([once]).record(once) == once


def test_identifiers_of_what_may_be_overwritten_are_masked(record: RunRecord) -> None:
    config = {"target": {"overwrite": ["vfat:ABCD-1234", "unknown"]}}
    command = ("wattload", "run", "target.overwrite=[vfat:ABCD-1234,unknown]")
    changed = record.model_copy(update={"config": config, "command": command})
    masked = Masker([changed]).record(changed)
    text = masked.model_dump_json()
    assert "ABCD-1234" not in text
    assert masked.config["target"]["overwrite"][1] == "unknown"
