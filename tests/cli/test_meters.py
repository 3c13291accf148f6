"""External meters on the command line: doctor reads them, watch prints them, plan names them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.sources.fake_bmc import METRICS, PASSWORD, SENSOR, USER, Certificate, FakeBmc
from tests.power.sources.qis_mock import QisMock
from tests.run.running import environment
from wattload.__main__ import main
from wattload.cli.findings import Finding, Verdict
from wattload.cli.meters import limit_text, meter_findings, settings_of
from wattload.cli.power import CsvLines
from wattload.core.clock import anchor
from wattload.core.power import Channel, Counter, Evidence, Instant, Sample, Scope, SourceFacts
from wattload.power.sources.redfish import PASSWORD_VARIABLE, USER_VARIABLE

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make(tmp_path_factory.mktemp("bmc"), "DNS:localhost")


@pytest.fixture
def bmc(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBmc]:
    monkeypatch.setenv(USER_VARIABLE, USER)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    served = FakeBmc(certificate)
    yield served
    served.close()


@pytest.fixture
def qis() -> Iterator[QisMock]:
    served = QisMock(real_time=True)
    yield served
    served.close()


def redfish(bmc: FakeBmc) -> list[str]:
    ca_file = bmc.certificate.certificate
    return ["power=redfish", f"power.redfish.url={bmc.url}", f"power.redfish.ca_file={ca_file}"]


def quarch(qis: QisMock) -> list[str]:
    return [
        "power=quarch",
        f"power.quarch.module={qis.module.name}",
        f"power.quarch.port={qis.port}",
    ]


def found(name: str, *words: str) -> Finding:
    findings = {each.name: each for each in meter_findings(settings_of(words))}
    assert list(findings) == sorted(findings)
    return findings[f"power={name}"]


def test_a_meter_that_is_not_configured_shows_its_settings() -> None:
    absent = found("redfish")
    assert (absent.verdict, absent.detail) == (Verdict.NO, "not configured")
    assert absent.fix == "wattload doctor power=redfish power.redfish.url=https://bmc.example"
    assert "node" in absent.needed_for


def test_a_nodes_meter_is_read_and_shows_what_it_can_not_decide(bmc: FakeBmc) -> None:
    present = found("redfish", *redfish(bmc))
    assert present.verdict is Verdict.YES
    power, energy = present.detail.split("; redfish_energy for ")
    assert power.startswith("redfish_power for chassis 1U (node, self_reported): PowerWatts of ")
    # 0.1 W steps without noise: about 2 sqrt(2) 0.1 W / sqrt(12)
    limit = "at this resolution a difference under 81\u00a0mW can't be shown in 60 s"
    assert power.endswith(f"; now 374.5 W; {limit}")
    assert "; 0 J in " in energy


def test_a_meter_that_does_not_answer_is_one_sentence(bmc: FakeBmc) -> None:
    bmc.answers[METRICS] = {"PowerWatts": None}
    broken = found("redfish", *redfish(bmc))
    assert (broken.verdict, broken.fix) == (Verdict.NO, "")
    assert broken.detail.startswith("no chassis of the BMC reports power; ")


def test_missing_credentials_are_named_and_given_ones_never_shown(
    bmc: FakeBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PASSWORD not in str(found("redfish", *redfish(bmc)))
    monkeypatch.delenv(PASSWORD_VARIABLE)
    assert found("redfish", *redfish(bmc)).detail.startswith(f"{PASSWORD_VARIABLE} is not set")
    monkeypatch.delenv(USER_VARIABLE)
    refused = found("redfish", *redfish(bmc))
    assert f"{USER_VARIABLE} and {PASSWORD_VARIABLE} must name a user" in refused.detail


def test_readings_that_get_lost_after_the_start_are_one_sentence(bmc: FakeBmc) -> None:
    bmc.answers[SENSOR] = {"Reading": 374.5, "ReadingTime": "2023-11-14T20:00:00Z"}  # too old
    stale = found("redfish", *redfish(bmc))
    assert stale.verdict is Verdict.NO
    assert stale.detail.endswith("no reading in 5 s has a value")


def test_a_module_is_read_for_the_drive_and_left_as_it_was(qis: QisMock, tmp_path: Path) -> None:
    present = found("quarch", *quarch(qis), f"target.path={tmp_path}")
    assert present.verdict is Verdict.YES
    assert present.detail.startswith("quarch for ")
    assert "can't be shown" not in present.detail
    assert qis.state.startswith("Stopped:")
    stopped = found("quarch", *quarch(qis), f"target.path={tmp_path}")
    assert stopped.verdict is Verdict.YES, stopped


def facts(**changes: object) -> SourceFacts:
    own = {
        "name": "meter", "device": "pdu", "device_name": "pdu", "scope": Scope.NODE,
        "evidence": Evidence.MEASURED, "sensor": Instant(), "period_s": 1.0,
    }  # fmt: skip
    return SourceFacts.model_validate({**own, **changes})


def test_the_steps_of_a_meter_that_states_none_are_those_of_its_readings() -> None:
    assert (
        limit_text(facts(), [600.0, 600.0], 1.0)
        == "its steps are unknown, as all readings are equal"
    )
    readings = [600.0, 610.0, 600.0, 600.0]
    by_readings = limit_text(facts(), readings, 3.0)
    assert by_readings == limit_text(facts(resolution_w=10.0), readings, 3.0)
    assert limit_text(facts(resolution_w=1.0), [600.0, 600.0], 1.0) == (
        "at this resolution a difference under 0.81\u00a0W can't be shown in 60 s"
    )


def test_readings_that_are_held_count_once() -> None:
    updates = [600.0 + 10 * (number % 3) for number in range(7)]
    held = [watts for watts in updates for _ in range(10)]
    each, all_of_them = (
        limit_text(facts(), updates, 6.0),
        limit_text(facts(period_s=0.1), held, 6.9),
    )
    assert [float(text.split()[6].split("\u00a0")[0]) for text in (each, all_of_them)] == (
        pytest.approx([3.0, 3.0], rel=0.2)
    )


METER = """
import time
while True:
    print(time.time(), 600 + int(time.time()) % 5, flush=True)
    time.sleep(0.05)
"""


def test_named_meters_come_first_decide_the_status_and_measure_the_drive(
    tmp_path: Path, capsys: Captured
) -> None:
    meter = tmp_path / "meter.py"
    meter.write_text(METER.replace("600", "6"))
    words = [
        str(tmp_path), "power=command", "power.command.scope=drive",
        "power.command.accuracy.watts=1", f"power.command.run={sys.executable} {meter}",
    ]  # fmt: skip
    assert main(["doctor", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found[0]["name"], found[0]["verdict"]) == ("power=command", "yes")
    assert [each["name"] for each in found].count("power=command") == 1
    (energy,) = [each for each in found if each["name"] == "drive energy"]
    assert energy["verdict"] == "yes"
    assert energy["detail"].startswith("power=command was requested and took command for ")
    meter.write_text("raise SystemExit('no meter')")
    assert main(["doctor", *words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "no"


def test_the_node_s_meter_is_read_for_long_enough_to_see_its_steps(tmp_path: Path) -> None:
    meter = tmp_path / "meter.py"
    meter.write_text(METER)
    seen = found(
        "command",
        "power=command",
        "power.command.scope=node",
        f"power.command.run={sys.executable} {meter}",
    )
    assert "at this resolution a difference under " in seen.detail


def test_csv_is_of_the_one_best_source_and_nothing_else(bmc: FakeBmc, capsys: Captured) -> None:
    before_s = time.time()
    words = [*redfish(bmc), "--csv", "--count", "2", "--period", "0.1"]
    assert main(["power", "watch", *words]) == 0
    lines = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert [watts for _, watts in lines] == ["374.5", "374.5"]
    assert all(before_s - 0.01 <= float(unix_s) <= time.time() for unix_s, _ in lines)


def test_csv_of_a_module_is_its_power(qis: QisMock, capsys: Captured, tmp_path: Path) -> None:
    words = [*quarch(qis), f"target.path={tmp_path}", "--csv", "--count", "20", "--period", "0.2"]
    assert main(["power", "watch", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    times_s = [float(line.partition(",")[0]) for line in lines]
    assert times_s == sorted(set(times_s))
    assert all(float(line.partition(",")[2]) > 0 for line in lines)
    assert lines
    assert qis.state.startswith("Stopped:")


def test_csv_of_a_counter_is_the_mean_since_its_last_change() -> None:
    counter = facts(sensor=Counter(quantum_j=1.0))
    now = anchor()

    def sample(seconds: float, value: float | None) -> Sample:
        return Sample(
            time_ns=now.monotonic_ns + round(seconds * 1e9), spread_ns=0, source="meter",
            device="pdu", channel=Channel.ENERGY_J, value=value, evidence=Evidence.MEASURED,
        )  # fmt: skip

    counts = [
        (0, 900.0),
        (1, 900.0),
        (2, 920.0),
        (3, None),
        (4, 920.0),
        (5, 950.0),
        (6, 5.0),
        (7, 9.0),
    ]
    lines = CsvLines()
    printed = [line for each in counts for line in lines.of(counter, [sample(*each)])]
    unix_s = [float(line.partition(",")[0]) - now.realtime_ns / 1e9 for line in printed]
    assert unix_s == pytest.approx([2, 5, 7], abs=0.5)
    assert [line.partition(",")[2] for line in printed] == ["10", "10", "4"]


def refused(capsys: Captured, *words: str) -> str:
    assert main(["power", "watch", *words]) == 2
    return capsys.readouterr().err


def test_combinations_that_watch_can_not_print_are_one_sentence(
    bmc: FakeBmc, capsys: Captured
) -> None:
    with pytest.raises(SystemExit):
        main(["power", "watch", "--csv", "--json"])
    assert "--json: not allowed with argument --csv" in capsys.readouterr().err
    both = refused(capsys, "nvme0", *redfish(bmc))
    assert both.startswith("wattload: give a device or settings, not both, got nvme0 power=redfish")
    assert "unknown option power=nothing" in refused(capsys, "power=nothing")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_watch_ends_with_its_reader_though_its_next_reading_is_far(
    bmc: FakeBmc, tmp_path: Path, unbuffered: str
) -> None:
    words = ["power", "watch", *redfish(bmc), "--csv", "--period", "60"]
    watch = subprocess.Popen(
        [sys.executable, "-m", "wattload", *words],
        stdout=subprocess.PIPE,
        env=environment(
            tmp_path,
            PYTHONUNBUFFERED=unbuffered,
            **{USER_VARIABLE: USER, PASSWORD_VARIABLE: PASSWORD},
        ),
    )
    assert watch.stdout is not None
    assert watch.stdout.readline().endswith(b",374.5\n")
    watch.stdout.close()
    assert watch.wait(40) == 0


@pytest.mark.parametrize("command", [["plan", "null"], ["run", "--plan", "workload=null"]])
def test_a_plan_says_what_the_nodes_meter_can_not_decide(
    command: list[str], tmp_path: Path, bmc: FakeBmc, capsys: Captured
) -> None:
    def meter_line() -> str:
        assert main([*command, f"target.path={tmp_path}", *redfish(bmc)]) == 0
        (line,) = [
            row for row in capsys.readouterr().out.splitlines() if row.strip().startswith("meter")
        ]
        return line

    assert re.search(r"374.5 W; at this resolution a difference under .* in 60 s", meter_line())
    bmc.close()
    assert "can't be reached" in meter_line()
