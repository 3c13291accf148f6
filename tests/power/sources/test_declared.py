from __future__ import annotations

import pytest

from tests.contracts.power_source import PowerSourceContract
from wattload.core.errors import ConfigError
from wattload.core.power import Bounds, Channel, Evidence, PowerSource, Scope
from wattload.power.config import DeclaredProfile, PowerConfig
from wattload.power.sources import none
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.declared import DeclaredSource, find

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
DISK = PowerDevice(key="vda", name="vda", is_nvme=False)


def profile(
    max_w: float | None = 20.0, idle_w: float | None = None, typical_w: float | None = None
) -> DeclaredProfile:
    return DeclaredProfile(
        name="Drive X",
        citation="data sheet 7, page 3",
        max_w=max_w,
        idle_w=idle_w,
        typical_w=typical_w,
        state=1,
    )


class TestDeclared(PowerSourceContract):
    channels = frozenset({Channel.POWER_W, Channel.LOWER_W, Channel.UPPER_W})

    def make(self) -> PowerSource:
        return DeclaredSource(DRIVE, profile(20, 5, 14), period_s=0.1)


def values_of(stated: DeclaredProfile) -> dict[Channel, float | None]:
    source = DeclaredSource(DRIVE, stated, period_s=0.1)
    source.open()
    return {sample.channel: sample.value for sample in source.read()}


def test_maximum_alone_is_an_upper_bound_and_nothing_else() -> None:
    assert values_of(profile()) == {Channel.UPPER_W: 20.0}


def test_maximum_and_idle_are_an_interval() -> None:
    assert values_of(profile(20, 5)) == {Channel.UPPER_W: 20.0, Channel.LOWER_W: 5.0}


def test_typical_power_is_a_figure_that_stays_labelled_declared() -> None:
    source = DeclaredSource(DISK, profile(None, None, 14), period_s=0.1)
    source.open()
    (sample,) = source.read()
    assert (sample.channel, sample.value) == (Channel.POWER_W, 14)
    assert sample.evidence is Evidence.DECLARED
    assert sample.device == "vda"


def test_facts_say_what_is_stated_and_where() -> None:
    facts = DeclaredSource(DRIVE, profile(20, 5), period_s=0.1).facts()
    assert facts.detail == (
        "Drive X, idle 5 W, maximum 20 W in power state 1 (data sheet 7, page 3)"
    )
    assert facts.evidence is Evidence.DECLARED
    assert facts.scope is Scope.DRIVE
    assert facts.sensor == Bounds()


def test_every_device_gets_the_profile() -> None:
    sources = find([DRIVE, DISK], PowerConfig(source="declared", profile=profile()))
    assert [source.facts().device for source in sources] == ["SERIAL1", "vda"]


def test_no_profile_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a profile"):
        find([DRIVE], PowerConfig(source="declared"))


def test_profile_that_states_nothing_is_refused_at_open() -> None:
    source = DeclaredSource(DRIVE, profile(None), period_s=0.1)
    with pytest.raises(ConfigError, match="neither max_w nor typical_w"):
        source.open()


class TestNone(PowerSourceContract):
    channels = frozenset()

    def make(self) -> PowerSource:
        (source,) = none.find((), PowerConfig(source="none"))
        return source


def test_nothing_is_measured_and_nothing_is_zero() -> None:
    (source,) = none.find((), PowerConfig(source="none"))
    source.open()
    source.start()
    assert source.read() == ()
    assert source.facts().evidence is Evidence.NONE
    assert source.facts().detail == "nothing is measured"
