"""External meters on the command line: doctor reads them, and plan names those of a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.sources.fake_bmc import METRICS, PASSWORD, SENSOR, USER, Certificate, FakeBmc
from tests.power.sources.qis_mock import QisMock
from wattload.__main__ import main
from wattload.cli.findings import Finding, Verdict
from wattload.cli.meters import limit_text, meter_findings, settings_of
from wattload.core.power import Evidence, Instant, Scope, SourceFacts
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
    assert limit_text(facts(), [600.0, 600.0]) == "its steps are unknown, as all readings are equal"
    by_readings = limit_text(facts(), [600.0, 610.0, 600.0, 600.0])
    assert by_readings == limit_text(facts(resolution_w=10.0), [600.0, 610.0, 600.0, 600.0])
    assert limit_text(facts(resolution_w=1.0), [600.0, 600.0]) == (
        "at this resolution a difference under 0.81\u00a0W can't be shown in 60 s"
    )


def test_a_plan_names_the_nodes_meter(tmp_path: Path, bmc: FakeBmc, capsys: Captured) -> None:
    bmc.close()  # nothing is contacted
    assert main(["plan", "null", f"target.path={tmp_path}", *redfish(bmc)]) == 0
    (line,) = [row for row in capsys.readouterr().out.splitlines() if row.startswith("meter")]
    assert "redfish, of the node: its steps are unknown until it is read" in line
