"""An instrument in a process of its own, by PyVISA over a socket, a serial line and VXI-11."""

from __future__ import annotations

import gc
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.nobody import NOBODY, needs_root
from tests.power.sources.scpi_instrument import STATE, VALUE, WT310E, Running, running
from tests.run.running import run_here
from tests.run.test_replay_run import record_of
from wattload.core.errors import ConfigError, MissingExtraError, PowerError
from wattload.core.power import Accuracy, Boxcar, Evidence, Instant, PowerSource, Scope
from wattload.power.config import AccuracyConfig, PowerConfig, ScpiConfig
from wattload.power.registry import meter
from wattload.power.scpi_profiles import PROFILES
from wattload.power.sources import scpi
from wattload.power.sources.base import PowerDevice, find_sources
from wattload.power.sources.scpi import find, parse_watts

DRIVE = PowerDevice(key="SERIAL1", name="nvme0", is_nvme=True)
OTHER = PowerDevice(key="SERIAL2", name="nvme1", is_nvme=True)
KINDS = ("socket", "serial", "vxi11")
LIMIT_S = 60.0
"""Far longer than anything here takes."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(running(kind, tmp_path_factory.mktemp(kind)))
            for kind in KINDS
        }


@pytest.fixture
def instruments(started: dict[str, Running]) -> dict[str, Running]:
    for each in started.values():
        each.set(**STATE)
    return started


@pytest.fixture
def instrument(instruments: dict[str, Running]) -> Running:
    return instruments["socket"]


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scpi, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(scpi, "NO_DATA_S", 0.3)


def config_of(resource: str, **settings: Any) -> PowerConfig:
    given = {"profile": "yokogawa_wt300", "scope": "drive"} | settings
    config = PowerConfig(source="scpi", scpi=ScpiConfig(resource=resource, **given))
    config.check()
    return config


def source_of(resource: str, *devices: PowerDevice, **settings: Any) -> PowerSource:
    (source,) = find_sources("scpi", devices or (DRIVE,), config_of(resource, **settings))
    return source


def refusal_of(resource: str, **settings: Any) -> str:
    """Return why a source can't be opened, as one sentence."""
    source = source_of(resource, **settings)
    with pytest.raises(PowerError) as caught:
        source.open()
    source.close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def next_value(source: PowerSource) -> float:
    """Read until there is a value."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        for sample in source.read():
            if sample.value is not None:
                return sample.value
    raise AssertionError("no value")


class InstrumentContract(PowerSourceContract):
    kind: str

    @pytest.fixture(autouse=True)
    def _instrument(self, instruments: dict[str, Running]) -> None:
        self.instrument = instruments[self.kind]

    def make(self) -> PowerSource:
        return source_of(self.instrument.resource)

    def break_reads(self, source: PowerSource) -> None:
        self.instrument.set(garbage=True)

    def test_value_is_the_instruments_and_a_failure_ends_with_its_cause(
        self, source: PowerSource
    ) -> None:
        assert [sample.value for sample in source.read()] == [12.5]
        self.instrument.set(garbage=True)
        assert [sample.value for sample in source.read()] == [None]
        self.instrument.set(garbage=False, watts="7.25")
        assert next_value(source) == 7.25


class TestSocket(InstrumentContract):
    kind = "socket"


class TestSerialLine(InstrumentContract):
    kind = "serial"


class TestVxi11(InstrumentContract):
    kind = "vxi11"


def test_facts_of_a_drive_are_what_the_settings_and_the_profile_say(instrument: Running) -> None:
    source = source_of(
        instrument.resource,
        DRIVE,
        OTHER,
        device="nvme1",
        accuracy=AccuracyConfig(reading_percent=0.1),
        range_w=30.0,
        window_s=0.1,
        lag_s=0.2,
    )
    source.open()
    source.close()
    facts = source.facts()
    assert (facts.device, facts.device_name, facts.scope) == ("SERIAL2", "nvme1", Scope.DRIVE)
    assert (facts.evidence, facts.meter) == (Evidence.MEASURED, instrument.resource)
    assert facts.sensor == Boxcar(window_s=0.1, lag_s=0.2)
    assert (facts.accuracy, facts.range_w) == (Accuracy(reading_percent=0.1), 30.0)
    assert facts.period_s == 0.1
    assert facts.detail == (
        "power by :NUMERIC:NORMAL:VALUE? 1; profile yokogawa_wt300 not tested on hardware; "
        "±(0.1 % of reading)"
    )


@pytest.mark.parametrize(("device", "key"), [("rack 3", "rack 3"), ("", None)])
def test_node_is_named_by_the_settings_or_the_resource(
    instrument: Running, device: str, key: str | None
) -> None:
    facts = source_of(instrument.resource, OTHER, DRIVE, scope="node", device=device).facts()
    assert (facts.scope, facts.device) == (Scope.NODE, key or instrument.resource)
    assert facts.sensor == Instant()
    assert facts.detail.endswith("no accuracy is stated")


def test_drive_has_to_be_chosen_where_there_are_several(instrument: Running) -> None:
    with pytest.raises(ConfigError, match=r"power\.scpi\.device must be .* nvme0 \(SERIAL1\)"):
        source_of(instrument.resource, DRIVE, OTHER)


def test_set_up_selects_the_element_and_changes_nothing_else(instrument: Running) -> None:
    before = len(instrument.received)
    source = source_of(instrument.resource)
    source.open()
    source.read()
    source.close()
    assert instrument.received[before:] == [
        "*IDN?",
        "*CLS",
        ":NUMERIC:FORMAT ASCII",
        ":NUMERIC:NORMAL:ITEM1 P,1",
        ":STATUS:ERROR?",
        VALUE,
        VALUE,
        VALUE,
    ]


def test_volts_are_never_read_as_watts_where_the_set_up_was_refused(instrument: Running) -> None:
    refusal = refusal_of(instrument.resource, channel=3)
    assert refusal == (
        f"{instrument.resource} refuses :NUMERIC:NORMAL:ITEM1 P,3; "
        'its error queue has 113,"Undefined header"'
    )


@pytest.mark.parametrize(
    ("profile", "identity", "query"),
    [
        ("keysight_n6700", "Keysight Technologies,N6705C,MY1,E.02", "MEAS:POW? (@2)"),
        ("keysight_n6700", "Agilent Technologies,N6700B,MY1,D.04.07", "MEAS:POW? (@2)"),
        ("rigol_dp800", "RIGOL TECHNOLOGIES,DP832A,DP8A1,00.01.14", ":MEAS:POWE? CH2"),
    ],
)
def test_profile_asks_its_model_for_the_power_of_a_channel(
    instrument: Running, profile: str, identity: str, query: str
) -> None:
    instrument.set(identity=identity, queries={query: "+1.25000E+01"})
    source = source_of(instrument.resource, profile=profile, channel=2)
    source.open()
    assert [sample.value for sample in source.read()] == [12.5]
    source.close()


@pytest.mark.parametrize(
    ("resource", "settings", "sentence"),
    [
        ("192.0.2.5", {}, "got '192.0.2.5'; write TCPIP::192.0.2.5::INSTR"),
        ("/dev/ttyUSB0", {}, "write ASRL/dev/ttyUSB0::INSTR"),
        ("ASRL1", {"query": "P?"}, "got yokogawa_wt300, which has its own"),
        ("ASRL1", {"identity": "WT"}, "identity need power.scpi.profile=custom"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(
    resource: str, settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        config_of(resource, **settings)


def test_query_of_ones_own_is_asked_of_the_instrument_with_that_identity(
    instrument: Running,
) -> None:
    instrument.set(identity="ACME,PM(1)+,7", queries={"READ:POW?": "3.5 W"})
    own = {"profile": "custom", "query": "READ:POW?", "scope": "node"}
    source = source_of(instrument.resource, identity="PM(1)+", **own)
    source.open()
    assert [sample.value for sample in source.read()] == [3.5]
    source.close()
    refusal = refusal_of(instrument.resource, identity="PM1", **own)
    assert "answers *IDN? with 'ACME,PM(1)+,7', which does not match PM1" in refusal


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "yokogawa_wt300"])
def test_another_instrument_is_refused_with_its_identity(instrument: Running, profile: str) -> None:
    refusal = refusal_of(instrument.resource, profile=profile)
    assert f"answers *IDN? with {WT310E!r}, which does not match" in refusal


@pytest.mark.parametrize("model", ["WT310", "WT310E", "WT310EH", "WT310HC", "WT332E-C2", "WT333E"])
def test_profile_of_yokogawa_fits_all_models_of_the_series(instrument: Running, model: str) -> None:
    instrument.set(identity=f"YOKOGAWA,{model},C2PH13047V,F1.03")
    source = source_of(instrument.resource)
    source.open()
    source.close()


@pytest.mark.parametrize("model", ["WT3001E", "WT3300X", "WT500"])
def test_other_models_of_the_same_maker_are_refused(instrument: Running, model: str) -> None:
    instrument.set(identity=f"YOKOGAWA,{model},C3,F1")
    assert "does not match YOKOGAWA,WT3" in refusal_of(instrument.resource)


@pytest.mark.parametrize(
    ("answer", "watts"),
    [
        ("12.5", 12.5),
        ("+1.2500E+01", 12.5),
        ("-0.3 W", -0.3),
        ("12W", 12.0),
        ("NAN", None),
        ("9.91E+37", None),
        ("+9.910000E+37", None),
        ("INF", math.inf),
        ("9.9E+37", math.inf),
        ("-9.9E+37", math.inf),
        ("1E999", math.inf),
    ],
)
def test_numbers_of_scpi(answer: str, watts: float | None) -> None:
    assert parse_watts(answer) == watts


@pytest.mark.parametrize(
    "answer", ["", "12.5,3.1", "12.5 mW", "12.5 V", "1.2.3", "P 12.5", "٣", "1_0", "\ufffd"]
)
def test_anything_else_is_quoted(answer: str) -> None:
    with pytest.raises(PowerError, match="is not one number in watts") as caught:
        parse_watts(answer)
    assert repr(answer) in str(caught.value)


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"watts": "NAN"}, "has no data; start its measurement"),
        ({"watts": "9.91E+37"}, "has no data; start its measurement"),
        ({"watts": "INF"}, "is beyond its range; choose a larger one on it"),
        ({"watts": "-9.9E+37"}, "is beyond its range; choose a larger one on it"),
        ({"watts": "-3.5"}, "reads -3.5 W, but no drive supplies power: swap its leads"),
        ({"watts": "5E+9"}, "reads 5e+09 W, but a drive draws 200 W at most"),
        ({"line_count": 2}, "more than one line came in answer to the query before"),
        ({"watts": "12.5,230.1"}, "answers '12.5,230.1', which is not one number in watts"),
        ({"late_s": 2.0}, f"{VALUE} failed: no answer within 1 s"),
        ({"hangs_up": True}, "*IDN? failed: no answer within 1 s"),
    ],
)
def test_unusable_first_reading_is_refused(
    instrument: Running, state: dict[str, Any], sentence: str
) -> None:
    instrument.set(**state)
    assert sentence in refusal_of(instrument.resource)


@pytest.mark.usefixtures("short_limits")
def test_error_of_the_instrument_explains_why_there_is_no_answer(instrument: Running) -> None:
    own = {"profile": "custom", "identity": "WT310E", "scope": "node"}
    assert refusal_of(instrument.resource, query="MEAS:POWR?", **own) == (
        f"{instrument.resource}: MEAS:POWR? failed: no answer within 1 s; "
        'its error queue has 113,"Undefined header"'
    )


@pytest.mark.parametrize(("scope", "most_w"), [("node", 20000), ("gpu", 3000)])
def test_no_scope_supplies_power_or_draws_more_than_is_plausible(
    instrument: Running, scope: str, most_w: int
) -> None:
    instrument.set(watts="-3.5")
    assert f"no {scope} supplies power" in refusal_of(instrument.resource, scope=scope)
    instrument.set(watts=str(most_w + 1))
    assert f"draws {most_w} W at most" in refusal_of(instrument.resource, scope=scope)


def test_noise_around_zero_is_no_reversal_and_no_reading(instrument: Running) -> None:
    instrument.set(watts="-0.01")
    source = source_of(instrument.resource)
    source.open()
    assert [sample.value for sample in source.read()] == [None]
    source.close()


@pytest.mark.parametrize("kind", ["socket", "serial"])
def test_further_line_is_never_the_answer_to_the_next_query(
    instruments: dict[str, Running], kind: str
) -> None:
    instrument = instruments[kind]
    source = source_of(instrument.resource)
    source.open()
    instrument.set(watts="99.5", line_count=2)
    source.read()
    time.sleep(0.5)  # As between two queries: the next line has arrived.
    instrument.set(watts="7.25", line_count=1)
    assert next_value(source) == 7.25
    source.close()


def test_data_that_comes_a_moment_later_is_waited_for(
    instrument: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scpi, "NO_DATA_S", LIMIT_S)
    instrument.set(watts="NAN")
    source = source_of(instrument.resource)
    begins = threading.Timer(0.3, instrument.set, kwargs={"watts": "12.5"})
    begins.start()
    source.open()
    begins.join()
    assert [sample.value for sample in source.read()] == [12.5]
    source.close()


@pytest.mark.parametrize("answer", ["NAN", "9.91E+37", "INF", "-9.9E+37", "-3.5", "5E+9"])
def test_no_data_and_what_no_drive_draws_are_gaps(instrument: Running, answer: str) -> None:
    source = source_of(instrument.resource)
    source.open()
    instrument.set(watts=answer)
    assert [sample.value for sample in source.read()] == [None]
    instrument.set(watts="7.25")
    assert [sample.value for sample in source.read()] == [7.25]
    source.close()


@pytest.mark.parametrize("kind", ["socket", "serial"])
def test_answer_in_pieces_is_one_answer(instruments: dict[str, Running], kind: str) -> None:
    source = source_of(instruments[kind].resource)
    source.open()
    instruments[kind].set(pause_s=0.2)
    assert [sample.value for sample in source.read()] == [12.5]
    source.close()


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("kind", ["socket", "serial"])
def test_late_answer_is_never_that_of_the_next_query(
    instruments: dict[str, Running], kind: str
) -> None:
    instrument = instruments[kind]
    source = source_of(instrument.resource)
    source.open()
    for round_number in range(2):
        instrument.set(watts="99.5", late_s=1.5)
        assert [sample.value for sample in source.read()] == [None]
        instrument.set(watts=f"{round_number}.25", late_s=0.0)
        assert next_value(source) == round_number + 0.25
        assert [sample.value for sample in source.read()] == [round_number + 0.25]
    source.close()


@pytest.mark.usefixtures("short_limits")
def test_run_goes_on_after_a_hang_up_and_after_the_instrument_was_replaced(
    instrument: Running,
) -> None:
    source = source_of(instrument.resource)
    source.open()
    instrument.set(hangs_up=True)
    assert [sample.value for sample in source.read()] == [None]
    instrument.set(hangs_up=False, identity="ACME,1,2,3")
    assert [sample.value for sample in source.read()] == [None]
    instrument.set(identity=WT310E)
    assert next_value(source) == 12.5
    source.close()


def test_invalid_resources_are_one_sentence() -> None:
    for resource, sentence in {
        "nonsense::1": r"must be TCPIP::HOST::INSTR, .*: Could not parse nonsense::1: unknown int",
        "TCPIP::": "Could not parse 'TCPIP::'.*host_address part is mandatory",
        "GPIB0::3::INSTR": "got 'GPIB0::3::INSTR', which needs other drivers; power=command can",
        "USB0::0xB21::0x25::C3::INSTR": "which needs other drivers",
    }.items():
        with pytest.raises(ConfigError, match=sentence):
            source_of(resource)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # by PyVISA-py
@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        ("TCPIP::127.0.0.1::1::SOCKET", "*IDN? failed: nothing listens there; enable LAN"),
        ("TCPIP::127.0.0.1,1::INSTR", "can't be opened: nothing listens there; enable LAN"),
        ("TCPIP::meter.invalid::5025::SOCKET", "can't be opened: "),
        ("TCPIP::meter.invalid::INSTR", "can't be opened: "),
        ("ASRL/dev/no-such-line::INSTR", "No such file or directory"),
    ],
)
def test_missing_instrument_is_one_sentence(resource: str, sentence: str) -> None:
    refusal = refusal_of(resource)
    assert refusal.startswith(resource)
    assert sentence in refusal
    assert "file descriptor" not in refusal
    gc.collect()


@needs_root
def test_serial_line_without_permission_is_one_sentence(instruments: dict[str, Running]) -> None:
    line = Path(instruments["serial"].resource[len("ASRL") : -len("::INSTR")])
    line.chmod(0o600)
    os.seteuid(NOBODY)
    try:
        refusal = refusal_of(instruments["serial"].resource)
    finally:
        os.seteuid(0)
    assert "can't be opened" in refusal
    assert "Permission denied" in refusal


@pytest.mark.parametrize("name", ["pyvisa_py", "serial"])
def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delitem(sys.modules, "pyvisa_py.serial", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"install them with: .*\[scpi\]"):
        find((DRIVE,), config_of("TCPIP::127.0.0.1::1::SOCKET"))


def test_meter_is_external_and_may_be_read_beside_others() -> None:
    own = meter("scpi")
    assert own.is_companion
    assert own.auto_rank is None
    assert "power.scpi.resource=" in own.settings


@pytest.mark.slow  # a run, with its rest
def test_energy_of_a_run_is_the_instruments(instrument: Running, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    done = run_here(
        tmp_path,
        "--json",
        "workload=kv_cache",
        "scale=demo",
        "workload.capacity_bytes=134217728",
        "workload.duration_s=2",
        "workload.warm_up_s=0",
        "workload.saturation_s=0.3",
        "power=scpi",
        f"power.scpi.resource={instrument.resource}",
        "power.scpi.profile=yokogawa_wt300",
        "power.scpi.scope=drive",
        "power.scpi.accuracy.reading_percent=0.1",
        "power.idle_s=0.1",
        "power.rest_max_s=0.25",
        "power.idle_after_s=0.5",
    )
    record = record_of(done)
    (source,) = [each for each in record.power.sources if each.used]
    assert source.facts is not None
    assert (source.facts.evidence, source.facts.meter) == ("measured", instrument.resource)
    assert "not tested on hardware" in source.sentence
    measured = [each for each in record.power.energy if each.sample_count > 1]
    assert measured
    for energy in measured:
        assert (energy.source, energy.scope, energy.evidence) == ("scpi", "drive", "measured")
        assert energy.chosen
        assert energy.energy_j == pytest.approx(12.5 * energy.seconds)
