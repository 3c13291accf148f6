from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from importlib import import_module
from importlib.resources import files

import pytest
from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import OmegaConf
from pydantic import TypeAdapter

from wattload.core.errors import ConfigError
from wattload.power.config import (
    AccuracyConfig,
    DeclaredProfile,
    HwmonConfig,
    PowerConfig,
    QuarchConfig,
)
from wattload.power.registry import (
    AUTO,
    auto_meters,
    companions,
    meter,
    meter_module,
    meter_names,
)
from wattload.power.sources.base import find_sources

OPTIONS = sorted(
    entry.name.removesuffix(".yaml")
    for entry in files("wattload.configs").joinpath("power").iterdir()
    if entry.name.endswith(".yaml")
)
PROFILES = sorted(
    entry.name.removesuffix(".yaml")
    for entry in files("wattload.configs").joinpath("power", "profile").iterdir()
)


def composed(*overrides: str) -> PowerConfig:
    store = ConfigStore.instance()
    store.store(name="only_power", node={"defaults": [{"power": "auto"}, "_self_"]})
    store.store(group="power", name="schema_power", node=PowerConfig)
    with initialize_config_module("wattload.configs", version_base="1.3"):
        config = OmegaConf.to_object(compose("only_power", list(overrides)).power)
    assert isinstance(config, PowerConfig)
    return config


def test_every_option_has_a_meter_and_every_meter_an_option() -> None:
    assert set(OPTIONS) == {AUTO, *meter_names()}
    folder = files("wattload.power").joinpath("sources")
    modules = {entry.name.removesuffix(".py") for entry in folder.iterdir()}
    declared = {
        name
        for name in modules
        if hasattr(import_module(f"wattload.power.sources.{name}"), "METER")
    }
    assert declared == set(meter_names())
    assert all(callable(meter_module(name).find) for name in declared)


def test_auto_tries_the_drives_own_first_and_no_meter_that_needs_a_choice() -> None:
    assert auto_meters() == ("nvme", "nvml", "hwmon", "rapl")
    assert companions() == (
        "command",
        "hwmon",
        "ipmi",
        "nvme",
        "nvml",
        "rapl",
        "redfish",
        "scpi",
        "snmp",
    )


def test_meters_that_are_not_used_load_no_large_library() -> None:
    code = "import sys, wattload.power.registry as r; r.auto_meters(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pyarrow", "pynvml", "pysnmp", "pyvisa", "asyncio", "hydra"} & set(
        done.stdout.split()
    )


NEEDS = {
    "command": "power.command.run=meter",
    "replay": "power.replay.path=trace.csv",
    "redfish": "power.redfish.url=https://bmc.example",
    "quarch": "power.quarch.module=usb::qtl1847-01-016",
    "snmp": "power.snmp.outlets=[pdu.example/7]",
    "scpi": meter("scpi").settings,
}
"""Options that can't do without settings of the user's."""


@pytest.mark.parametrize("option", sorted(set(OPTIONS) - {"declared"}))
def test_every_option_composes(option: str) -> None:
    config = composed(f"power={option}", *NEEDS.get(option, "").split())
    config.check()
    assert config.source == option
    assert config.period_s == 0.1
    assert config.idle_s is None
    assert config.rest_max_s == 30


@pytest.mark.parametrize("name", sorted(set(PROFILES) - {"custom"}))
def test_every_profile_composes(name: str) -> None:
    config = composed("power=declared", f"power/profile={name}")
    config.check()
    assert config.profile is not None
    assert config.profile.citation
    assert config.profile.max_w is not None


def test_profile_of_the_users_own() -> None:
    config = composed(
        "power=declared",
        "power/profile=custom",
        "power.profile.max_w=12",
        "power.profile.idle_w=3.5",
        "power.profile.citation='our meter, 2026'",
    )
    config.check()
    assert config.profile == DeclaredProfile(
        name="custom", citation="our meter, 2026", max_w=12, idle_w=3.5
    )


def test_declared_without_a_profile_names_what_there_is() -> None:
    with pytest.raises(HydraException, match="power/profile=<OPTION>") as caught:
        composed("power=declared")
    assert "micron_6550_ion" in str(caught.value)


@pytest.mark.parametrize("override", ["power.perod_s=1", "power.state=one", "power.period_s=[]"])
def test_unknown_key_and_wrong_type_fail_while_composing(override: str) -> None:
    with pytest.raises(HydraException):
        composed(override)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            PowerConfig(source="meter"),
            "power.source must be one of auto, command, decl.*, got 'meter'",
        ),
        (PowerConfig(state=32), "power.state must be 0 to 31, got 32"),
        (PowerConfig(state=-1), "power.state must be 0 to 31, got -1"),
        (PowerConfig(dssd_watts=0), "power.dssd_watts must be 1 to 255 W, got 0"),
        (PowerConfig(limit_w=0), "power.limit_w must be more than 0 and at most 655.35 W, got 0"),
        (PowerConfig(limit_w=700), "power.limit_w must be more than 0 .*, got 700"),
        (
            PowerConfig(state=1, limit_w=9.5),
            r"only one of .*; got power\.state=1 and power\.limit_w=9\.5",
        ),
        (
            PowerConfig(period_s=0),
            "power.period_s must be 0.01 to 60 s, got 0",
        ),
        (
            PowerConfig(period_s=float("inf")),
            "power.period_s must be 0.01 to 60 s, got inf",
        ),
        (PowerConfig(idle_s=-1), "power.idle_s must be 0 to 1000000 s, got -1"),
        (PowerConfig(rest_max_s=-1), "power.rest_max_s must be 0 to 1000000 s, got -1"),
        (
            PowerConfig(rest_max_s=5.0, idle_after_s=5.0),
            r"power.idle_after_s=5 includes the rest of 5 s, so .* at least 10, or 0 for none",
        ),
        (PowerConfig(source="declared"), "power=declared needs a profile"),
        (
            PowerConfig(profile=DeclaredProfile(name="x", citation="y", idle_w=5)),
            "power.profile x has neither max_w nor typical_w",
        ),
        (
            PowerConfig(profile=DeclaredProfile(name="x", citation="y", max_w=0)),
            "power.profile.max_w must be more than 0 and at most 1000000 W, got 0",
        ),
        (
            PowerConfig(profile=DeclaredProfile(name="x", citation="y", max_w=5, typical_w=9)),
            "must have idle_w <= typical_w <= max_w, got typical_w=9, max_w=5",
        ),
    ],
)
def test_value_out_of_range_is_one_sentence(config: PowerConfig, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        config.check()


@pytest.mark.parametrize(
    "config",
    [
        PowerConfig(idle_after_s=0.0),
        PowerConfig(idle_after_s=60.0),
        PowerConfig(source="none", idle_after_s=5.0),
    ],
)
def test_an_idle_time_after_the_job_is_longer_than_the_rest_or_none(config: PowerConfig) -> None:
    config.check()


def test_power_state_zero_is_a_state() -> None:
    PowerConfig(state=0).check()


def test_unknown_source_names_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match="unknown power source 'meter'; available: command, declared, hwmon, ipmi"
    ):
        find_sources("meter", (), PowerConfig())


def test_apst_and_the_clock_go_with_any_knob() -> None:
    for config in (PowerConfig(state=1), PowerConfig(dssd_watts=9), PowerConfig(limit_w=9)):
        config.apst, config.set_timestamp = False, True
        config.check()
        assert config.settings_text.endswith("power.apst=false power.set_timestamp=true")
        assert config.first_setting == config.settings_text.partition("=")[0]


def test_run_that_asks_for_nothing_changes_nothing() -> None:
    assert PowerConfig().settings_text == ""
    assert PowerConfig().first_setting is None
    assert PowerConfig(apst=False).first_setting == "power.apst"


def test_rails_are_named_on_the_command_line() -> None:
    config = composed(
        "power=hwmon",
        "power.hwmon.rails=[ina226@1-0040/power1:nvme0,ina3221/curr2:SERIAL1]",
        "power.hwmon.accuracy.reading_percent=0.5",
        "power.hwmon.range_w=50",
    )
    config.check()
    assert config.hwmon == HwmonConfig(
        rails=["ina226@1-0040/power1:nvme0", "ina3221/curr2:SERIAL1"],
        accuracy=AccuracyConfig(reading_percent=0.5),
        range_w=50,
    )


def test_accuracy_of_a_module_is_given_as_a_whole() -> None:
    config = composed(
        "power=quarch",
        "power.quarch.module=tcp::qtl1999-02-020",
        "power.quarch.accuracy={reading_percent: 0.5, range_percent: 0.1, watts: 0.01}",
        "power.quarch.range_w=25",
    )
    config.check()
    stated = config.quarch.accuracy.stated
    assert stated is not None
    assert stated.text == "0.5 % of reading + 0.1 % of range + 0.01 W"
    assert QuarchConfig().accuracy.stated is None


def test_nodes_meters_are_named_beside_any_source() -> None:
    config = composed(
        "power=nvme",
        "power.beside=[rapl,redfish]",
        "power.redfish.url=https://bmc.example",
        "power.redfish.ca_file=/etc/bmc.pem",
    )
    config.check()
    assert config.beside == ["rapl", "redfish"]
    assert config.redfish.address() == ("bmc.example", 443)


def test_settings_survive_the_way_to_the_sampler() -> None:
    config = PowerConfig(
        source="hwmon", beside=["rapl"], hwmon=HwmonConfig(rails=["ina226/power1:nvme0"])
    )
    sent = json.dumps(dataclasses.asdict(config))
    assert TypeAdapter(PowerConfig).validate_json(sent, strict=True) == config


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            PowerConfig(beside=["declared"]),
            r"power\.beside must be any of command, hw.* got 'declared'",
        ),
        (PowerConfig(source="none", beside=["rapl"]), "must be empty with power=none; got 'rapl'"),
        (PowerConfig(source="rapl", beside=["rapl"]), "lists rapl, which is read already"),
        (PowerConfig(beside=["ipmi", "ipmi"]), "lists ipmi, which is read already"),
        (PowerConfig(beside=["redfish"]), "must be the BMC's https address"),
        (PowerConfig(source="redfish"), "must be the BMC's https address"),
        (PowerConfig(hwmon=HwmonConfig(rails=["x:nvme0"])), "must be chip/channel"),
    ],
)
def test_meter_that_can_not_be_is_one_sentence(config: PowerConfig, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        config.check()


def test_knobs_compose_with_their_types() -> None:
    config = composed("power.limit_w=12", "power.apst=false", "power.set_timestamp=true")
    config.check()
    assert (config.limit_w, config.apst, config.set_timestamp) == (12.0, False, True)
    assert composed("power.dssd_watts=16").dssd_watts == 16
    with pytest.raises(HydraException):
        composed("power.dssd_watts=12.5")
