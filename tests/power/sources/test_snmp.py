"""PDU outlets by SNMP, asked of net-snmp's agent over loopback.

What a PDU answers is from recorded walks (``snmp_agent``), but for these: off(8), unavailable(-1),
two decimal digits and outletCount are of the MIBs alone.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.sources.snmp_agent import (
    AUTHENTICATION,
    COMMUNITY,
    LEVELS,
    PRIVACY,
    PX,
    PX3_W,
    PX4_W,
    RPDU2,
    RPDU2_COUNTS,
    RPDU2_POWER,
    USERS,
    Agent,
    px,
    user_name,
)
from tests.run.running import run_here, until
from wattload.core.errors import ConfigError, MissingExtraError, PowerError
from wattload.core.power import Evidence, Instant, PowerSource, Sample, Scope
from wattload.core.record.file import read_record
from wattload.power.config import AccuracyConfig, PowerConfig, SnmpConfig
from wattload.power.sources import snmp
from wattload.power.sources.snmp import (
    AUTHENTICATION_VARIABLE,
    COMMUNITY_VARIABLE,
    PRIVACY_VARIABLE,
    USER_VARIABLE,
    find,
)

SECRETS = {
    COMMUNITY_VARIABLE: COMMUNITY,
    AUTHENTICATION_VARIABLE: AUTHENTICATION,
    PRIVACY_VARIABLE: PRIVACY,
}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def _raritan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("raritan"))
    yield agent
    agent.close()


@pytest.fixture(scope="module")
def _apc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    agent = Agent(tmp_path_factory.mktemp("apc"), RPDU2)
    yield agent
    agent.close()


@pytest.fixture
def raritan(_raritan: Agent) -> Iterator[Agent]:
    _raritan.set({key: value for place in PX3_W.items() for key, value in px(*place).items()})
    yield _raritan
    _raritan.release()


@pytest.fixture
def apc(_apc: Agent) -> Iterator[Agent]:
    _apc.set({f"{RPDU2_POWER}.1": ("integer", str(RPDU2_COUNTS["ap8959eu3"]))})
    yield _apc
    _apc.release()


def source_of(*outlets: str, **settings: str) -> PowerSource:
    config = SnmpConfig(outlets=list(outlets), **settings)  # type: ignore[arg-type]
    (source,) = find((), PowerConfig(source="snmp", snmp=config))
    return source


def read(source: PowerSource) -> Sample:
    (sample,) = source.read()
    return sample


def opened(*outlets: str, **settings: str) -> float | None:
    """Return what one reading of the outlets gives."""
    source = source_of(*outlets, **settings)
    source.open()
    try:
        return read(source).value
    finally:
        source.close()


def refusal(*outlets: str, **settings: str) -> str:
    """Return why the outlets can't be opened."""
    with pytest.raises(PowerError) as caught:
        opened(*outlets, **settings)
    return str(caught.value)


class TestOutletsOfTwoUnits(PowerSourceContract):
    @pytest.fixture(autouse=True)
    def _agents(self, raritan: Agent) -> None:
        self.agent = raritan

    def make(self) -> PowerSource:
        return source_of(f"{self.agent.address}/13", f"{self.agent.address}/1.24")

    def break_reads(self, source: PowerSource) -> None:
        self.agent.set(px(13, 390))


def test_walked_outlets_of_raritan_are_summed(raritan: Agent) -> None:
    raritan.set(px(13, PX3_W[13]) | px(24, PX3_W[24]))
    assert opened(f"{raritan.address}/13", f"{raritan.address}/24") == 940.0
    raritan.set(px(11, PX4_W[11]) | px(23, PX4_W[23]))
    assert opened(f"{raritan.address}/11", f"{raritan.address}/23") == 109.0


@pytest.mark.parametrize("count", RPDU2_COUNTS.values())
def test_walked_unit_of_apc_is_in_hundredths_of_kilowatts(apc: Agent, count: int) -> None:
    apc.set({f"{RPDU2_POWER}.2": ("integer", str(count))})
    source = source_of(f"{apc.address}/2.0")
    source.open()
    assert read(source).value == count * 10.0
    assert source.facts().resolution_w == 10.0
    source.close()


def test_linked_units_have_outlets_of_their_own(raritan: Agent) -> None:
    raritan.set(px(7, 100, unit=1) | px(7, 30, unit=2))
    assert opened(f"{raritan.address}/2.7") == 30.0


def test_power_has_the_digits_that_the_pdu_states(raritan: Agent) -> None:
    raritan.set(px(7, 12345) | {f"{PX}.3.5.4.1.7.1.7.5": ("gauge", "2")})
    source = source_of(f"{raritan.address}/7")
    source.open()
    assert read(source).value == pytest.approx(123.45)
    assert source.facts().resolution_w == 0.01
    source.close()


def test_idle_second_supply_is_a_part_of_the_sum(raritan: Agent) -> None:
    assert opened(f"{raritan.address}/7", f"{raritan.address}/13") == 390.0


def test_facts_are_those_of_an_outer_meter(raritan: Agent) -> None:
    outlets = [f"{raritan.address}/13", f"{raritan.address}/24"]
    settings = SnmpConfig(outlets=outlets, accuracy=AccuracyConfig(reading_percent=1), range_w=3e3)
    (source,) = find((), PowerConfig(period_s=0.1, snmp=settings))
    source.open()
    facts = source.facts()
    source.close()
    assert (facts.scope, facts.evidence, facts.sensor) == (Scope.NODE, Evidence.MEASURED, Instant())
    assert facts.device == facts.meter == "+".join(outlets)
    assert (facts.resolution_w, facts.period_s, facts.range_w) == (2.0, 1.0, 3e3)
    assert facts.accuracy is not None
    assert facts.accuracy.reading_percent == 1


@pytest.mark.parametrize("version", ["1", "2c"])
def test_versions_with_a_community(
    raritan: Agent, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv(COMMUNITY_VARIABLE, f"{COMMUNITY}-v{version}")
    assert opened(f"{raritan.address}/13", version=version) == 390.0
    metered_only = px(13, 390)
    del metered_only[f"{PX}.5.4.3.1.3.1.13.14"]
    raritan.set(metered_only)
    assert opened(f"{raritan.address}/13", version=version) == 390.0


def test_community_is_public_if_it_is_not_set(
    raritan: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(COMMUNITY_VARIABLE)
    assert opened(f"{raritan.address}/13") == 390.0


@pytest.mark.parametrize("names", USERS, ids="-".join)
@pytest.mark.parametrize("level", LEVELS)
def test_version_3_with_and_without_passphrases(
    raritan: Agent, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str], level: str
) -> None:
    monkeypatch.setenv(USER_VARIABLE, user_name(*names, level))
    unset = (PRIVACY_VARIABLE, AUTHENTICATION_VARIABLE)[: LEVELS.index(level)]
    for variable in unset:
        monkeypatch.delenv(variable)
    authentication, privacy = names
    settings = {"version": "3", "authentication": authentication, "privacy": privacy}
    assert opened(f"{raritan.address}/13", **settings) == 390.0


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        (USER_VARIABLE, "nobody", f"the user is unknown to the PDU ({USER_VARIABLE})"),
        (USER_VARIABLE, None, f"power.snmp.version=3 needs a user: set {USER_VARIABLE}"),
        (
            AUTHENTICATION_VARIABLE,
            "another-s3cret",
            "the authentication passphrase or protocol is wrong "
            f"({AUTHENTICATION_VARIABLE}, power.snmp.authentication)",
        ),
        (AUTHENTICATION_VARIABLE, "short", f"{AUTHENTICATION_VARIABLE} must have 8 characters"),
        (PRIVACY_VARIABLE, "short", f"{PRIVACY_VARIABLE} must have 8 characters or more"),
        (
            AUTHENTICATION_VARIABLE,
            None,
            f"{PRIVACY_VARIABLE} is set without {AUTHENTICATION_VARIABLE}",
        ),
        (PRIVACY_VARIABLE, None, "or only with a passphrase that is not set"),
        (
            PRIVACY_VARIABLE,
            "another-s3cret",
            f"within 2 s: check address, UDP port, power.snmp.version and {PRIVACY_VARIABLE}",
        ),
    ],
)
def test_wrong_credential_of_version_3_names_the_variables(
    raritan: Agent,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str | None,
    problem: str,
) -> None:
    monkeypatch.setenv(USER_VARIABLE, user_name("sha", "aes", "priv"))
    monkeypatch.delenv(variable)
    if value is not None:
        monkeypatch.setenv(variable, value)
    sentence = refusal(f"{raritan.address}/13", version="3")
    assert problem in sentence
    assert not value or value not in sentence


def test_wrong_community_cannot_be_told_from_silence(
    raritan: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMUNITY_VARIABLE, "another")
    sentence = refusal(f"{raritan.address}/13")
    assert f"no answer from {raritan.address} within 2 s: check address, UDP port" in sentence
    assert f"{COMMUNITY_VARIABLE}, as a PDU may leave a wrong one without answer" in sentence


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("pdu.invalid", "pdu.invalid can't be resolved to an IPv4 address"),
        (":161", "no name can't be resolved to an IPv4 address"),
        ("127.0.0.1:99999", "the UDP port must be 1 to 65535"),
        ("127.0.0.1:snmp", "the UDP port must be 1 to 65535"),
    ],
)
def test_address_that_cannot_be_is_one_sentence(address: str, sentence: str) -> None:
    assert refusal(f"{address}/7") == f"{address}/7: {sentence}"


@pytest.mark.parametrize("spelling", ["{}/13", "{}/1.13", "{}/013", "localhost:{port}/13"])
def test_outlet_is_never_counted_twice(raritan: Agent, spelling: str) -> None:
    again = spelling.format(raritan.address, port=raritan.address.partition(":")[2])
    assert refusal(f"{raritan.address}/13", f"{raritan.address}/24", again) == (
        f"power.snmp.outlets has {raritan.address}/13 and {again}, which are the same outlet; "
        "list it once"
    )


def test_same_outlet_of_another_unit_is_another_one(raritan: Agent) -> None:
    raritan.set(px(13, 390) | px(13, 30, unit=2))
    assert opened(f"{raritan.address}/13", f"{raritan.address}/2.13") == 420.0


@pytest.mark.parametrize(
    ("objects", "sentence"),
    [
        ({}, r"has no such outlet, .* it has an unknown number of outlets"),
        ({f"{PX}.3.2.2.1.4.1": ("integer", "24")}, "does not measure .* it has 24 outlets"),
        (px(7, 0) | {f"{PX}.5.4.3.1.3.1.7.14": ("integer", "8")}, "/7 is off"),
        (px(7, 9) | {f"{PX}.5.4.3.1.3.1.7.5": ("integer", "-1")}, "/7 is not measured now"),
        (px(7, 9) | {f"{PX}.5.4.3.1.4.1.7.5": ("string", "n/a")}, "its power is 'n/a'"),
        (px(7, 9) | {f"{PX}.5.4.3.1.4.1.7.5": ("integer", "-1")}, "its power is -1"),
        (px(7, 9) | {f"{PX}.3.5.4.1.6.1.7.5": ("integer", "4")}, "watt.3., got 4 with 0 decimals"),
        (px(7, 9) | {f"{PX}.3.5.4.1.7.1.7.5": ("gauge", "10")}, "got 3 with 10 decimals"),
        (px(7, 9) | {f"{PX}.3.5.4.1.7.1.7.5": ("string", "x")}, "got 3 with x decimals"),
        (px(7, 0), "gives 0 W; check power.snmp.outlets"),
    ],
)
def test_outlet_that_gives_no_power_is_refused(
    raritan: Agent, objects: dict[str, tuple[str, str]], sentence: str
) -> None:
    raritan.set(objects)
    for version in ("1", "2c"):
        with pytest.raises(PowerError, match=sentence):
            opened(f"{raritan.address}/7", version=version)


def test_unit_of_apc_that_does_not_measure_is_refused(apc: Agent) -> None:
    """As the walk of an AP7900B has it."""
    apc.set({f"{RPDU2_POWER}.1": ("integer", "-1")})
    assert "/0 is not measured: its power is -1" in refusal(f"{apc.address}/0")


def test_outlet_of_apc_is_refused_rather_than_the_unit_taken_for_it(apc: Agent) -> None:
    assert "whole units of APC rPDU2" in refusal(f"{apc.address}/1")


def test_other_devices_are_refused(tmp_path: Path) -> None:
    agent = Agent(tmp_path, "1.3.6.1.4.1.13742.4")
    sentence = refusal(f"{agent.address}/1")
    agent.close()
    assert "of sysObjectID 1.3.6.1.4.1.13742.4 this can't be read, only outlets of" in sentence
    assert "use power=command with snmpget" in sentence


@pytest.mark.parametrize(
    "broken",
    [
        {f"{PX}.5.4.3.1.4.1.24.5": ("string", "n/a")},
        {f"{PX}.5.4.3.1.3.1.24.5": ("integer", "-1")},
        {f"{PX}.5.4.3.1.3.1.24.14": ("integer", "8"), f"{PX}.5.4.3.1.4.1.24.5": ("gauge", "0")},
        None,
    ],
)
@pytest.mark.parametrize("version", ["1", "2c"])
def test_bad_answer_for_one_outlet_is_a_gap(
    raritan: Agent, broken: dict[str, tuple[str, str]] | None, version: str
) -> None:
    both = px(13, 390) | px(24, 550)
    source = source_of(f"{raritan.address}/13", f"{raritan.address}/24", version=version)
    source.open()
    raritan.set(px(13, 390) if broken is None else both | broken)
    assert read(source).value is None
    raritan.set(both)
    assert read(source).value == 940.0
    source.close()


def test_node_without_power_is_a_gap(raritan: Agent) -> None:
    source = source_of(f"{raritan.address}/13")
    source.open()
    raritan.set(px(13, 0))
    assert read(source).value is None
    source.close()


def test_late_answer_is_a_gap_and_not_taken_for_the_next(raritan: Agent) -> None:
    source = source_of(f"{raritan.address}/13")
    source.open()
    raritan.hold()
    assert read(source).value is None
    raritan.set(px(13, 400))
    raritan.release()
    until(lambda: read(source).value == 400.0)
    source.close()


def test_outlets_are_asked_at_the_same_time(
    raritan: Agent, apc: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snmp, "TIMEOUT_S", 600.0)
    source = source_of(f"{raritan.address}/13", f"{apc.address}/0")
    source.open()
    for agent in (raritan, apc):
        agent.forget()
        agent.hold()
    samples: list[Sample] = []
    reading = threading.Thread(target=lambda: samples.append(read(source)), daemon=True)
    reading.start()
    until(lambda: raritan.was_asked(f"{PX}.5.4.3.1.4.1.13.5") and apc.was_asked(f"{RPDU2_POWER}.1"))
    assert not samples
    raritan.release()
    apc.release()
    reading.join()
    source.close()
    assert samples[0].value == 390.0 + 270.0


def test_secrets_stand_nowhere(
    raritan: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    monkeypatch.setenv(USER_VARIABLE, user_name("sha", "aes", "priv"))
    for version in ("2c", "3"):
        source = source_of(f"{raritan.address}/13", version=version)
        source.open()
        texts += [source.facts().model_dump_json(), repr(source), repr(vars(source))]
        source.close()
    for name, version in zip(SECRETS, ("2c", "3", "3"), strict=True):
        with monkeypatch.context() as changed:
            changed.setenv(name, f"{SECRETS[name]}-of-another")
            texts.append(refusal(f"{raritan.address}/13", version=version))
    for text in (*texts, caplog.text):
        for secret in SECRETS.values():
            assert secret not in text


def test_missing_module_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pysnmp.hlapi.v3arch.asyncio", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[snmp\]'"):
        source_of("pdu.example/7")


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="power=snmp needs the outlets"):
        source_of()


@pytest.mark.slow
def test_run_has_the_nodes_energy(raritan: Agent, tmp_path: Path) -> None:
    done = run_here(
        tmp_path,
        "--json",
        "workload=null",
        "power=snmp",
        f"power.snmp.outlets=[{raritan.address}/13,{raritan.address}/24]",
        "power.idle_s=0",
    )
    assert done.returncode in (0, 3), done.stderr
    path = Path(json.loads(done.stdout.splitlines()[-1])["record"])
    record = read_record(path)
    (energy,) = [each for each in record.power.energy if each.source == "snmp"]
    assert energy.scope is Scope.NODE
    assert energy.mean_w == pytest.approx(940.0)
    assert COMMUNITY not in path.read_text()
