from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.sources.fake_bmc import (
    DRIVE_METRICS,
    METRICS,
    PASSWORD,
    SENSOR,
    USER,
    Certificate,
    FakeBmc,
    Raw,
    link,
)
from wattload.core.errors import ConfigError, PowerError, PowerPermissionError
from wattload.core.power import Accuracy, Channel, Counter, Evidence, Instant, PowerSource, Scope
from wattload.power.config import PowerConfig, RedfishConfig
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.redfish import (
    ANSWER_MAX_BYTES,
    PASSWORD_VARIABLE,
    USER_VARIABLE,
    Bmc,
    RedfishClient,
    find,
)
from wattload.power.sources.selection import Selection, select

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
STRANGER = PowerDevice(key="SERIAL9", name="nvme9", is_nvme=True)
DISK = PowerDevice(key="vda", name="vda", is_nvme=False)
CREDENTIALS = {USER_VARIABLE: USER, PASSWORD_VARIABLE: PASSWORD}
CHASSIS = "/redfish/v1/Chassis/1U"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make(tmp_path_factory.mktemp("bmc"), "DNS:localhost")


@pytest.fixture
def bmc(certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBmc]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    served = FakeBmc(certificate)
    yield served
    served.close()


def config_of(bmc: FakeBmc, chassis: str | None = None) -> PowerConfig:
    redfish = RedfishConfig(url=bmc.url, ca_file=str(bmc.certificate.certificate), chassis=chassis)
    return PowerConfig(source="redfish", redfish=redfish)


def sources_of(bmc: FakeBmc, *devices: PowerDevice) -> Sequence[PowerSource]:
    found = find(devices, config_of(bmc))
    bmc.closing += found
    return found


def client_of(bmc: FakeBmc, timeout_s: float = 5.0) -> RedfishClient:
    client = RedfishClient(Bmc.of(config_of(bmc).redfish, CREDENTIALS), timeout_s=timeout_s)
    bmc.closing.append(client)
    return client


class TestNodePower(PowerSourceContract):
    @pytest.fixture(autouse=True)
    def _bmc(self, bmc: FakeBmc) -> None:
        self.bmc = bmc

    def make(self) -> PowerSource:
        return sources_of(self.bmc)[0]

    def break_reads(self, source: PowerSource) -> None:
        self.bmc.answers = {}


class TestDriveEnergy(PowerSourceContract):
    channels = frozenset({Channel.ENERGY_J})

    @pytest.fixture(autouse=True)
    def _bmc(self, bmc: FakeBmc) -> None:
        self.bmc = bmc

    def make(self) -> PowerSource:
        return sources_of(self.bmc, DRIVE)[3]

    def break_reads(self, source: PowerSource) -> None:
        self.bmc.answers = {}


def test_chassis_is_the_nodes_and_a_drive_is_known_by_its_serial(bmc: FakeBmc) -> None:
    facts = [source.facts() for source in sources_of(bmc, DRIVE, STRANGER, DISK)]
    assert [(each.name, each.scope, each.device, each.device_name) for each in facts] == [
        ("redfish_power", Scope.NODE, CHASSIS, "chassis 1U"),
        ("redfish_energy", Scope.NODE, CHASSIS, "chassis 1U"),
        ("redfish_power", Scope.DRIVE, "SERIAL1", "nvme0"),
        ("redfish_energy", Scope.DRIVE, "SERIAL1", "nvme0"),
    ]
    assert {each.evidence for each in facts} == {Evidence.SELF_REPORTED}
    assert {each.period_s for each in facts} == {2.0}


def test_drives_are_not_asked_for_where_the_target_has_none(bmc: FakeBmc) -> None:
    assert len(sources_of(bmc, DISK)) == 2
    assert not any("Drives" in path for path in bmc.requested)


def test_sensor_behind_the_excerpt_tells_accuracy_and_interval(bmc: FakeBmc) -> None:
    power, energy = sources_of(bmc)
    power.open()
    energy.open()
    facts = power.facts()
    assert facts.sensor == Instant(update_period_s=2.0)
    assert facts.resolution_w == pytest.approx(0.1)
    assert facts.accuracy == Accuracy(watts=3.745)
    assert facts.range_w is None
    assert facts.detail == f"PowerWatts of {METRICS} from {SENSOR}; sensed every 2 s"
    assert energy.facts().sensor == Counter(quantum_j=1.0, update_period_s=10.0)
    assert energy.facts().accuracy is None
    bmc.requested.clear()
    (sample,) = power.read()
    assert sample.value == 374.5
    assert bmc.requested == [SENSOR]


def test_kilowatt_hours_become_joules_in_the_steps_they_are_written_in(bmc: FakeBmc) -> None:
    energy = sources_of(bmc, DRIVE)[3]
    energy.open()
    (sample,) = energy.read()
    assert sample.value == pytest.approx(5.5 * 3.6e6)
    sensor = energy.facts().sensor
    assert isinstance(sensor, Counter)
    assert sensor.quantum_j == pytest.approx(3.6e5)


def test_older_statement_of_accuracy_is_in_percent(bmc: FakeBmc) -> None:
    bmc.answers[SENSOR] = {"Reading": 374.5, "Accuracy": 2.5, "ReadingRangeMax": 1600}
    power = sources_of(bmc)[0]
    power.open()
    assert power.facts().accuracy == Accuracy(reading_percent=2.5)
    assert power.facts().range_w == 1600
    assert power.facts().sensor == Instant(update_period_s=10.0)
    assert "no SensingInterval is stated, 10 s is assumed" in power.facts().detail


@pytest.mark.parametrize("most", [0, 374.5, "much", None])
def test_range_that_the_present_reading_reaches_is_not_believed(bmc: FakeBmc, most: object) -> None:
    bmc.answers[SENSOR] = {"Reading": 374.5, "Accuracy": 250, "ReadingRangeMax": most}
    power = sources_of(bmc)[0]
    power.open()
    assert (power.facts().range_w, power.facts().accuracy) == (None, None)


def test_sensor_that_is_not_shown_costs_its_facts_only(bmc: FakeBmc) -> None:
    bmc.answers[SENSOR] = Raw(403)
    power = sources_of(bmc)[0]
    power.open()
    (sample,) = power.read()
    assert (sample.value, power.facts().accuracy) == (374.5, None)
    assert bmc.requested[-1] == METRICS


@pytest.mark.parametrize("source", ["https://other.example/x", "//other.example/x", "no path", 7])
def test_data_source_elsewhere_is_not_asked(bmc: FakeBmc, source: object) -> None:
    bmc.answers[METRICS]["PowerWatts"]["DataSourceUri"] = source
    power = sources_of(bmc)[0]
    power.open()
    (sample,) = power.read()
    assert sample.value == 374.5
    assert bmc.requested[-1] == METRICS


def test_reading_that_has_grown_old_on_the_bmc_is_none(bmc: FakeBmc) -> None:
    power = sources_of(bmc)[0]
    power.open()
    bmc.answers[SENSOR]["ReadingTime"] = "2023-11-14T22:12:30+00:00"
    (sample,) = power.read()
    assert sample.value is None
    bmc.answers[SENSOR]["ReadingTime"] = "2023-11-14T17:13:00-05:00"
    (sample,) = power.read()
    assert sample.value == 374.5


@pytest.mark.parametrize(
    ("reading_time", "date"),
    [
        ("2023-11-14T22:00:00", "Tue, 14 Nov 2023 22:13:20 GMT"),
        ("yesterday", "Tue, 14 Nov 2023 22:13:20 GMT"),
        (1_600_000_000, "Tue, 14 Nov 2023 22:13:20 GMT"),
        ("2023-11-14T22:00:00Z", "some day"),
        ("2023-11-14T22:00:00Z", None),
    ],
)
def test_unknown_age_is_none(bmc: FakeBmc, reading_time: object, date: str | None) -> None:
    power = sources_of(bmc)[0]
    power.open()
    bmc.answers[SENSOR]["ReadingTime"] = reading_time
    bmc.date = date
    (sample,) = power.read()
    assert sample.value == 374.5


@pytest.mark.parametrize(
    "reading",
    ["374", None, True, [], -5, 0, math.nan, 10**400],
    ids=["text", "null", "true", "list", "negative", "zero", "not a number", "beyond a float"],
)
def test_reading_of_a_wrong_kind_is_a_gap(bmc: FakeBmc, reading: object) -> None:
    power = sources_of(bmc)[0]
    power.open()
    bmc.answers[SENSOR]["Reading"] = reading
    (sample,) = power.read()
    assert sample.value is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>busy</html>",
        b"[1, 2]",
        b'{"Reading": 37',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"Reading": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "html", "list", "cut", "bytes", "deep", "digits"],
)
def test_malformed_answer_is_a_gap_and_a_sentence(bmc: FakeBmc, body: bytes) -> None:
    power = sources_of(bmc)[0]
    power.open()
    bmc.answers[SENSOR] = Raw(pieces=(body,))
    (sample,) = power.read()
    assert sample.value is None
    with pytest.raises(
        PowerError, match=r"the BMC localhost:\d+ sent (invalid JSON|JSON that is not an object)"
    ):
        client_of(bmc).get(SENSOR)


@pytest.mark.parametrize("metrics", [{}, {"PowerWatts": 7}, {"PowerWatts": {"Reading": None}}])
def test_chassis_without_power_is_refused_by_name(bmc: FakeBmc, metrics: object) -> None:
    bmc.answers[METRICS] = metrics
    with pytest.raises(PowerError, match=r"no chassis of the BMC reports power; .* one of 1U"):
        sources_of(bmc)


def test_chassis_that_lost_its_power_since_is_refused_at_open(bmc: FakeBmc) -> None:
    power = sources_of(bmc)[0]
    bmc.answers[METRICS] = {}
    with pytest.raises(PowerError, match=f"the BMC gives no PowerWatts at {METRICS}"):
        power.open()


def test_metrics_that_turn_into_something_else_are_a_hole(bmc: FakeBmc) -> None:
    energy = sources_of(bmc)[1]
    energy.open()
    bmc.answers[METRICS] = {"EnergyJoules": 5}
    (sample,) = energy.read()
    assert sample.value is None


def test_several_chassis_have_to_be_chosen_from(bmc: FakeBmc) -> None:
    bmc.answers["/redfish/v1/Chassis"]["Members"] += [
        link("/redfish/v1/Chassis/GPU"),
        link("/redfish/v1/Chassis/Fan"),
        "nonsense",
    ]
    bmc.answers["/redfish/v1/Chassis/GPU"] = {"EnvironmentMetrics": link(METRICS)}
    bmc.answers["/redfish/v1/Chassis/Fan"] = {"Links": []}
    with pytest.raises(
        PowerError,
        match=r"several chassis of the BMC report power: 1U, GPU; .* one of 1U, GPU, Fan",
    ):
        sources_of(bmc)
    (power, _) = find((), config_of(bmc, chassis="GPU"))
    assert power.facts().device == "/redfish/v1/Chassis/GPU"
    assert find((), config_of(bmc, chassis="Fan")) == []
    with pytest.raises(
        PowerError, match=r"power\.redfish\.chassis=2U does not exist; the BMC has 1U"
    ):
        find((), config_of(bmc, chassis="2U"))


def test_certificate_of_an_unknown_authority_is_refused(bmc: FakeBmc) -> None:
    config = PowerConfig(source="redfish", redfish=RedfishConfig(url=bmc.url))
    with pytest.raises(PowerError, match=r"certificate .* is refused \(self.signed certificate\)"):
        find((), config)
    assert bmc.requested == []


def test_certificate_for_another_name_is_refused(tmp_path: Path, bmc: FakeBmc) -> None:
    other = FakeBmc(Certificate.make(tmp_path, "DNS:bmc.example"))
    with pytest.raises(PowerError, match=r"certificate .* is refused .*Hostname mismatch"):
        sources_of(other)
    assert other.authorizations == set()
    other.close()


def test_authority_that_cannot_be_read_is_refused(bmc: FakeBmc, tmp_path: Path) -> None:
    config = config_of(bmc)
    config.redfish.ca_file = str(tmp_path / "none.pem")
    with pytest.raises(PowerError, match=r"ca_file=.*none.pem can't be used: No such file"):
        find((), config)


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/redfish/v1/Chassis",
        "http://localhost/redfish/v1/Chassis",
        "https://localhost:1/redfish/v1/Chassis",
        "//evil.example/",
        "https://[evil",
        "/with space",
        "",
    ],
)
def test_redirect_to_another_host_is_refused(bmc: FakeBmc, location: str) -> None:
    headers = {"Location": location} if location else {}
    bmc.answers["/redfish/v1/Chassis"] = Raw(302, headers=headers)
    with pytest.raises(PowerError, match="redirects /redfish/v1/Chassis to another address"):
        sources_of(bmc)


def test_redirect_on_the_same_host_is_followed(bmc: FakeBmc) -> None:
    bmc.answers["/redfish/v1/Chassis/"] = bmc.answers["/redfish/v1/Chassis"]
    bmc.answers["/redfish/v1/Chassis"] = Raw(308, headers={"Location": "/redfish/v1/Chassis/"})
    assert len(sources_of(bmc)) == 2


def test_redirects_in_a_circle_end(bmc: FakeBmc) -> None:
    bmc.answers["/redfish/v1/Chassis"] = Raw(302, headers={"Location": "/redfish/v1/Chassis"})
    with pytest.raises(PowerError, match="redirects more than 3 times"):
        sources_of(bmc)


def test_silent_bmc_is_given_up(bmc: FakeBmc) -> None:
    bmc.answers["/slow"] = Raw(pieces=(b"{", b"}"), delay_s=0.5)
    with pytest.raises(PowerError, match=r"did not answer within 0\.1 s"):
        client_of(bmc, timeout_s=0.1).get("/slow")


def test_answer_in_drops_is_given_up(bmc: FakeBmc) -> None:
    bmc.answers["/slow"] = Raw(pieces=(b" ",) * 50, delay_s=0.02)
    with pytest.raises(PowerError, match=r"did not answer within 0\.2 s"):
        client_of(bmc, timeout_s=0.2).get("/slow")


def test_endless_answer_is_cut(bmc: FakeBmc) -> None:
    bmc.answers["/big"] = Raw(pieces=(b" " * (ANSWER_MAX_BYTES + 1),))
    with pytest.raises(PowerError, match=f"answers with more than {ANSWER_MAX_BYTES} bytes"):
        client_of(bmc).get("/big")


def test_other_status_is_a_sentence(bmc: FakeBmc) -> None:
    with pytest.raises(PowerError, match="answers 404 to /nowhere"):
        client_of(bmc).get("/nowhere")


def test_connection_is_kept_and_made_again_when_it_was_dropped(bmc: FakeBmc) -> None:
    client = client_of(bmc)
    client.get(METRICS)
    client.get(METRICS)
    assert bmc.connection_count == 1
    bmc.drop_connections()
    client.get(METRICS)
    assert bmc.connection_count == 2
    client.close()
    client.close()


def test_bmc_that_hangs_up_is_asked_once(bmc: FakeBmc) -> None:
    bmc.answers["/rude"] = Raw(hangs_up=True)
    with pytest.raises(PowerError, match="can't be reached: Remote end closed connection"):
        client_of(bmc).get("/rude")
    assert bmc.requested == ["/rude"]


def test_bmc_that_is_not_there_is_a_sentence(bmc: FakeBmc) -> None:
    bmc.close()
    with pytest.raises(
        PowerError, match=r"the BMC localhost:\d+ can't be reached: Connection refu"
    ):
        sources_of(bmc)


def test_wrong_credentials_name_their_variables(
    bmc: FakeBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "wrong")
    with pytest.raises(PowerPermissionError, match=f"{USER_VARIABLE} and {PASSWORD_VARIABLE} must"):
        sources_of(bmc)


def test_half_of_the_credentials_is_refused(bmc: FakeBmc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE)
    with pytest.raises(PowerError, match=f"{PASSWORD_VARIABLE} is not set"):
        sources_of(bmc)
    monkeypatch.setenv(PASSWORD_VARIABLE, "x")
    monkeypatch.delenv(USER_VARIABLE)
    with pytest.raises(PowerError, match=f"{USER_VARIABLE} is not set"):
        sources_of(bmc)


def test_bmc_that_asks_for_no_credentials_gets_none(
    bmc: FakeBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(USER_VARIABLE)
    monkeypatch.delenv(PASSWORD_VARIABLE)
    bmc.allowed = None
    assert len(sources_of(bmc)) == 2
    assert bmc.authorizations == {None}


def test_credentials_stand_nowhere(bmc: FakeBmc, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    config = config_of(bmc)
    selection = select([DRIVE], config, host="host1")
    reported = [document(selection), repr(Bmc.of(config.redfish, CREDENTIALS)), repr(config)]
    for source in selection.sources:
        source.close()
    bmc.allowed = "Basic other"
    with pytest.raises(PowerError) as caught:
        select([DRIVE], config, host="host1")
    reported += [str(caught.value), caplog.text]
    (sent,) = bmc.authorizations
    for text in reported:
        assert PASSWORD not in text
        assert sent is not None
        assert sent.removeprefix("Basic ") not in text


def document(selection: Selection) -> str:
    records: list[Any] = [record.model_dump(mode="json") for record in selection.records]
    return json.dumps([selection.choice, records])


def test_drive_that_the_bmc_does_not_know_gets_no_figure(bmc: FakeBmc) -> None:
    selection = select([STRANGER], config_of(bmc), host="host1")
    scopes = {source.facts().scope for source in selection.sources}
    for source in selection.sources:
        source.close()
    assert scopes == {Scope.NODE}


def test_drive_without_metrics_gets_no_figure(bmc: FakeBmc) -> None:
    del bmc.answers[f"{CHASSIS}/Drives/Bay1"]["EnvironmentMetrics"]
    assert len(sources_of(bmc, DRIVE)) == 2
    assert DRIVE_METRICS not in bmc.requested


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (RedfishConfig(), "must be the BMC's https address .* got ''"),
        (RedfishConfig(url="http://bmc"), "got 'http://bmc'"),
        (RedfishConfig(url="https://bmc/redfish/v1"), "https address"),
        (RedfishConfig(url="https://bmc:99999"), "invalid power.redfish.url"),
        (RedfishConfig(url="https://bmc", chassis="../x"), "a chassis Id, got '../x'"),
    ],
)
def test_address_that_cannot_be_is_one_sentence(config: RedfishConfig, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        config.check()


def test_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="must not contain a password") as caught:
        RedfishConfig(url=f"https://{USER}:{PASSWORD}@bmc").check()
    assert PASSWORD not in str(caught.value)
