from __future__ import annotations

import argparse
import json
import os
import shlex
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, RawState, load, sent, store
from tests.model_host.power import Meter, centiwatts
from tests.model_host.settings import Knobs
from tests.power.sampler_bench import ROOT
from wattload.__main__ import main
from wattload.cli.power import add_arguments, run
from wattload.cli.terminal import outlive_readers
from wattload.core.errors import ConfigError, PowerError, PowerStateError
from wattload.core.power import PowerSource
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal
from wattload.power.sources import nvme
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.nvme import find as find_nvme

_folder = Path()


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    return find_nvme(devices, config, open_device=open_model)


def open_model(name: str) -> ModelDrive:
    return ModelDrive(_folder, name)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PowerHost:
    monkeypatch.setitem(globals(), "_folder", tmp_path)
    monkeypatch.setattr(nvme, "find", find)
    store(tmp_path / "nvme0.json", Model())
    return PowerHost(
        journal=ChangeJournal(tmp_path / "state"),
        open_device=open_model,
        list_names=lambda: sorted(path.stem for path in tmp_path.glob("nvme*.json")),
        serial_of=lambda name: load(tmp_path / f"{name}.json").serial,
        holds_system=lambda name: (tmp_path / f"{name}.system").exists(),
    )


def power(host: PowerHost, *words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words), host)


Captured = pytest.CaptureFixture[str]


def test_states_are_shown_with_the_current_one(host: PowerHost, capsys: Captured) -> None:
    assert power(host, "states") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "nvme0  Model drive  MODEL0001"
    assert lines[2].split() == [
        "PS0", "25", "W", "5", "W", "22", "W", "5", "us", "5", "us", "<-", "now",
    ]  # fmt: skip
    assert lines[5].split() == ["PS3", "4", "W", "-", "-", "2000", "us", "3000", "us", "no", "I/O"]
    assert [line.split(maxsplit=2)[-1] for line in lines[7:]] == [
        "PS0",
        "(the drive can't save this setting)",
        "- (the drive has no autonomous transitions)",
        "- (the drive does not list OCP's UUID)",
        "- (the drive has no power limit)",
        "- (the drive has no power measurement of its own)",
        "(the drive has no power measurement of its own)",
        "(the drive has no list of its log pages)",
    ]


def test_what_else_caps_the_power_is_shown(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    knobs = Knobs(
        limits=True,
        limit=1250 | 2 << 16,
        threshold=2000 | 2 << 16 | 1 << 31,
        ocp_index=1,
        dssd_watts=16,
        saved=1,
    )
    listed = struct.pack("<256I", *(page in (0x02, 0x25) for page in range(256)))
    meter = Meter(measures=True, setting=1 | 30 << 16, pages={"0": listed.hex()})
    drive = Model(apst=True, saveable=True, knobs=knobs, meter=meter)
    store(tmp_path / "nvme0.json", drive)
    assert power(host, "states") == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()[7:]]
    assert printed == [
        ["default", "PS0"],
        ["saved", "PS1"],
        ["APST", "rules", "on:", "PS2", "to", "PS3", "after", "0.2", "s"],
        ["OCP", "watts", "16", "W"],
        ["power", "limit", "12.5", "W"],
        ["event", "above", "20", "W"],
        ["measuring", "on,", "for", "30", "min"],
        ["logs", "02h,", "25h"],
    ]
    assert power(host, "states", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["dssd_watts"], document["limit_w"], document["power_state_saved"]) == (
        16,
        12.5,
        1,
    )
    assert document["missing"] == {}


def test_threshold_that_is_off_and_measurement_that_stands_still_are_shown(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    def shown(knobs: Knobs, meter: Meter) -> tuple[str | None, str | None]:
        store(tmp_path / "nvme0.json", Model(knobs=knobs, meter=meter))
        assert power(host, "states", "--json") == 0
        document = json.loads(capsys.readouterr().out)
        return document["threshold"] or document["missing"]["threshold"], document["measures"]

    measures = Meter(measures=True)
    assert shown(Knobs(threshold=0), measures) == ("not set", "off")
    silent, running = Knobs(threshold=2000 | 2 << 16), Meter(measures=True, setting=1)
    assert shown(silent, running) == ("20 W, event disabled", "on")


def test_old_drive_answers_for_the_current_state_alone(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    store(tmp_path / "nvme0.json", Model(selects=False, knobs=Knobs(limits=True)))
    assert power(host, "states", "--json") == 0
    missing = json.loads(capsys.readouterr().out)["missing"]
    assert "current value only" in missing["power_state_default"]
    assert missing["limit_w"] == "not set"


def test_states_as_json(host: PowerHost, capsys: Captured) -> None:
    assert power(host, "states", "/dev/nvme0", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["power_state"] == 0
    assert [state["max_w"] for state in document["power_states"]] == [25.0, 18.0, 11.0, 4.0, 0.05]


def test_states_are_shown_without_the_permission_for_the_current_one(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    store(tmp_path / "nvme0.json", Model(privileged=False))
    assert power(host, "states") == 0
    assert "current state unknown" in capsys.readouterr().out
    assert power(host, "states", "--json") == 0
    assert "CAP_SYS_ADMIN" in json.loads(capsys.readouterr().out)["missing"]["power_state"]


def test_state_is_set_and_restored(host: PowerHost, tmp_path: Path, capsys: Captured) -> None:
    assert power(host, "set", "nvme0", "1") == 0
    assert "power state 0 -> 1, verified" in capsys.readouterr().out
    assert load(tmp_path / "nvme0.json").state == 1
    assert power(host, "restore", "nvme0") == 0
    assert "restored to power state 0" in capsys.readouterr().out
    assert load(tmp_path / "nvme0.json").state == 0
    assert power(host, "restore") == 0
    assert capsys.readouterr().out == "Nothing to restore.\n"


def test_set_and_restore_as_json(host: PowerHost, capsys: Captured) -> None:
    assert power(host, "set", "nvme0", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["verified"] == 2
    assert power(host, "restore", "--json") == 0
    assert json.loads(capsys.readouterr().out)["restored"] == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--limit", "12.5"), "power limit none -> 12.5 W, verified"),
        (("--watts", "16"), "OCP power state 25 W -> 16 W, verified"),
    ],
)
def test_other_settings_are_set_and_restored(
    host: PowerHost, tmp_path: Path, capsys: Captured, words: tuple[str, ...], expected: str
) -> None:
    before = Model(knobs=Knobs(limits=True, ocp_index=1))
    store(tmp_path / "nvme0.json", before)
    assert power(host, "set", "nvme0", *words) == 0
    assert expected in capsys.readouterr().out
    assert load(tmp_path / "nvme0.json").knobs != before.knobs
    assert power(host, "restore", "nvme0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["closed"]
    assert load(tmp_path / "nvme0.json").knobs == before.knobs


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "needs one of STATE, --watts W or --limit W"),
        (("1", "--limit", "9"), r"only one of .*; got power\.state=1 and power\.limit_w=9"),
        (("--watts", "256"), "must be 1 to 255 W, got 256"),
    ],
)
def test_set_takes_one_setting(host: PowerHost, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        power(host, "set", "nvme0", *words)


def test_what_a_killed_run_has_left_is_undone_before_a_state_is_set(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    killed = PowerStateControl(ModelDrive(tmp_path, "nvme0"), host.journal, run_id="killed")
    killed.apply(PowerConfig(state=2), holds_system=lambda _: False)
    assert power(host, "set", "nvme0", "1") == 0
    captured = capsys.readouterr()
    assert "run killed had set from power state 0 to power state 2" in captured.err
    assert "power state 0 -> 1, verified" in captured.out
    assert power(host, "restore") == 0
    assert load(tmp_path / "nvme0.json").state == 0


def set_by_an_administrator(tmp_path: Path, state: int) -> None:
    model = load(tmp_path / "nvme0.json")
    model.state = state
    store(tmp_path / "nvme0.json", model)


def test_what_an_administrator_has_set_since_a_run_was_killed_is_left(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    killed = PowerStateControl(ModelDrive(tmp_path, "nvme0"), host.journal, run_id="killed")
    killed.apply(PowerConfig(state=1), holds_system=lambda _: False)
    set_by_an_administrator(tmp_path, 2)
    with pytest.raises(PowerError, match=r"nothing was set: .* left at power state 2"):
        power(host, "set", "nvme0", "0")
    assert power(host, "restore") == 1
    assert "left at power state 2, which something else has set" in capsys.readouterr().out
    assert power(host, "restore", "nvme0", "--keep") == 0
    assert "the present power state 2 is kept, as requested" in capsys.readouterr().out
    assert power(host, "restore") == 0
    assert capsys.readouterr().out == "Nothing to restore.\n"
    assert load(tmp_path / "nvme0.json").state == 2


def test_what_an_administrator_has_set_since_power_set_is_left(
    host: PowerHost, tmp_path: Path
) -> None:
    power(host, "set", "nvme0", "1")
    set_by_an_administrator(tmp_path, 2)
    assert power(host, "restore") == 1
    assert load(tmp_path / "nvme0.json").state == 2


def test_unit_restores_by_this_command_and_permits_no_more_than_that() -> None:
    unit = ROOT / "docs" / "wattload-power-restore.service"
    lines = dict(line.split("=", 1) for line in unit.read_text().splitlines() if line[:1].isalpha())
    program, command, *words = shlex.split(lines["ExecStart"])
    assert (Path(program).name, command) == ("wattload", "power")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args(words).action == "restore"
    assert lines["CapabilityBoundingSet"] == "CAP_SYS_ADMIN"
    assert lines["SystemCallFilter"].startswith("~@mount ")
    assert lines["NoNewPrivileges"] == lines["RestrictNamespaces"] == "yes"


def test_set_during_a_run_is_refused(host: PowerHost, tmp_path: Path) -> None:
    with (
        host.journal.lock("MODEL0001", needed=True, run_id="run-1"),
        pytest.raises(PowerError, match="in use by run run-1"),
    ):
        power(host, "set", "nvme0", "1")
    assert sent(tmp_path) == []


def test_what_can_not_be_restored_is_a_failure(host: PowerHost, tmp_path: Path) -> None:
    power(host, "set", "nvme0", "1")
    model = load(tmp_path / "nvme0.json")
    model.gone = True
    store(tmp_path / "nvme0.json", model)
    assert power(host, "restore") == 1


def test_set_refuses_what_a_run_would_refuse(host: PowerHost, tmp_path: Path) -> None:
    with pytest.raises(PowerStateError, match="operational states"):
        power(host, "set", "nvme0", "9")
    (tmp_path / "nvme0.system").touch()
    with pytest.raises(PowerStateError, match="--allow-system-drive"):
        power(host, "set", "nvme0", "1")
    assert power(host, "set", "nvme0", "1", "--allow-system-drive") == 0


def test_watch_prints_state_bounds_and_temperature(host: PowerHost, capsys: Captured) -> None:
    assert power(host, "watch", "nvme0", "--count", "2", "--period", "0.01") == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("nvme0  5.000 to 25.00\u00a0W (nvme, bounds)  PS0  37 °C")
    assert second.endswith("nvme0  5.000 to 25.00\u00a0W (nvme, bounds)  PS0")


def test_sources_of_one_drive_share_a_line(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    meter = Meter(ipm=centiwatts(8.31), olec=12345, interval_ms=1, ocp_watts=9)
    store(tmp_path / "nvme0.json", Model(ocp=True, meter=meter))
    assert power(host, "watch", "nvme0", "--count", "1") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "8.310\u00a0W (nvme_ipm, self_reported)  9.000\u00a0W (nvme_ocp, estimated)" in line
    assert "0 J counted (nvme_olec, self_reported)" in line
    assert line.endswith("PS0  37 °C")


def test_watch_ends_when_nobody_reads_it(host: PowerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = os.pipe()
    with os.fdopen(sink, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        outlive_readers()
        os.close(source)
        assert power(host, "watch", "--period", "0.01") == 0


def test_csv_is_of_one_device_that_has_readings(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    with pytest.raises(ConfigError, match="there is none with readings in watts or joules"):
        power(host, "watch", "--csv")
    meter = Meter(ipm=centiwatts(8.31), olec=12345, interval_ms=1, ocp_watts=9)
    for name in ("nvme0", "nvme1"):
        store(tmp_path / f"{name}.json", Model(serial=name.upper(), meter=meter))
    with pytest.raises(ConfigError, match="there is nvme0, nvme1; name one"):
        power(host, "watch", "--csv")
    capsys.readouterr()
    assert power(host, "watch", "nvme1", "--csv", "--count", "2", "--period", "0.01") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition(",")[2] for line in lines} == {"8.31"}


def test_watch_as_json(host: PowerHost, capsys: Captured) -> None:
    assert power(host, "watch", "--count", "1", "--json") == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["device"], line["upper_w"], line["evidence"]) == ("nvme0", 25.0, "bounds")


@pytest.mark.parametrize(
    ("state", "expected"),
    [(RawState(mp=2500), "≤ 25.00\u00a0W (nvme, bounds)"), (RawState(), "no power (nvme, bounds)")],
)
def test_watch_names_what_it_does_not_know(
    host: PowerHost, tmp_path: Path, capsys: Captured, state: RawState, expected: str
) -> None:
    store(tmp_path / "nvme0.json", Model(states=(state,)))
    assert power(host, "watch", "--count", "1") == 0
    assert expected in capsys.readouterr().out


def test_watch_without_permission_reports_what_is_missing(host: PowerHost, tmp_path: Path) -> None:
    store(tmp_path / "nvme0.json", Model(privileged=False))
    with pytest.raises(PowerError, match=r"nothing to watch.*CAP_SYS_ADMIN"):
        power(host, "watch")


@pytest.mark.parametrize(("option", "value"), [("--count", "0"), ("--period", "0")])
def test_watch_refuses_senseless_numbers(host: PowerHost, option: str, value: str) -> None:
    with pytest.raises(ConfigError):
        power(host, "watch", option, value)


def test_host_without_a_controller_is_one_sentence(
    host: PowerHost, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "nvme0.json").unlink()
    for action in ("watch", "states"):
        with pytest.raises(PowerError, match="this host has no NVMe controller"):
            power(host, action)


@pytest.mark.parametrize("name", ["/nope", "nvme7", "nvme0n1", "", "../nvme0"])
@pytest.mark.parametrize("words", [("watch",), ("states",), ("set", "1"), ("restore",)])
def test_name_of_no_controller_is_bad_input(
    host: PowerHost, words: Sequence[str], name: str
) -> None:
    action, *rest = words
    with pytest.raises(ConfigError, match=r"is not an NVMe controller of this host; it has nvme0$"):
        power(host, action, name, *rest)


def test_controller_may_be_named_by_its_device_node(host: PowerHost) -> None:
    assert power(host, "states", "/dev/nvme0") == 0


@pytest.mark.parametrize("name", ["/nope", "nvme99999"])
def test_absent_controller_is_one_sentence_on_the_command_line(name: str, capsys: Captured) -> None:
    assert main(["power", "states", name]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"wattload: {name!r} is not an NVMe controller of this host")
    assert len(printed.splitlines()) == 1
