"""Power settings with real sampler processes: recorded, undone after SIGKILL, one run per drive."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.model_host.drive import Model, load, store
from tests.model_host.settings import Knobs
from tests.power.sampler_bench import RUN_ID, Bench, is_running, wait_for
from wattload.core.checks.evaluation import evaluate
from wattload.core.errors import PowerStateError
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.power.config import PowerConfig

ALL_KNOBS = Model(
    apst=True,
    saveable=True,
    knobs=Knobs(limits=True, limit_dword=13, ocp_index=2, clock=True, saved=1),
)


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(nvme0=ALL_KNOBS)


def model(bench: Bench) -> Model:
    return load(bench.models / "nvme0.json")


def assert_untouched(bench: Bench) -> None:
    now = model(bench)
    assert (now.state, now.knobs) == (ALL_KNOBS.state, ALL_KNOBS.knobs)


@pytest.mark.parametrize(
    ("config", "option", "unit", "figures"),
    [
        (PowerConfig(dssd_watts=16), "power.dssd_watts", "W", (25, 16)),
        (PowerConfig(apst=False), "power.apst", "", (1, 0)),
        (PowerConfig(limit_w=12.5), "power.limit_w", "W", (None, 12.5)),
    ],
)
def test_setting_is_set_held_recorded_and_undone(
    bench: Bench,
    config: PowerConfig,
    option: str,
    unit: str,
    figures: tuple[float | None, float],
) -> None:
    before, wanted = figures
    client = bench.opened(config)
    (reported,) = client.finish().states
    assert (reported.knob, reported.requested, reported.before) == (option, None, 0)
    (setting,) = reported.settings
    assert (setting.option, setting.unit, setting.requested) == (option, unit, wanted)
    assert (setting.before, setting.verified, setting.after) == (before, wanted, wanted)
    assert setting.restored == before
    assert (reported.saved, reported.saved_after) == (1, 1)
    assert "was set from" in reported.sentence
    assert "restored to" in reported.sentence
    assert_untouched(bench)


def test_state_of_a_run_has_its_saved_value(bench: Bench) -> None:
    client = bench.opened(PowerConfig(state=2, apst=False))
    (state,) = client.finish().states
    assert (state.knob, state.verified, state.restored) == ("power.state", 2, 0)
    assert (state.saved, state.saved_after) == (1, 1)
    assert [each.option for each in state.settings] == ["power.apst"]


def test_clock_is_set_on_request_alone(bench: Bench) -> None:
    started = model(bench)
    started.knobs.clock_offset_ms = -10_000_000
    store(bench.models / "nvme0.json", started)
    bench.opened().finish()
    assert model(bench).knobs.clock_offset_ms == -10_000_000
    bench.add_run("run-2")
    client = bench.spawn()
    client.open("run-2", PowerConfig(set_timestamp=True), devices=["nvme0"], block_devices=[])
    (state,) = client.finish().states
    (setting,) = state.settings
    assert (setting.option, setting.unit) == ("power.set_timestamp", "ms")
    assert setting.missing["restored"] == "a clock that was set to the host's is not reset"
    assert abs(model(bench).knobs.clock_offset_ms) < 1000
    assert "its clock was set to the host's" in state.sentence.lower()


def test_killed_run_leaves_no_setting_changed(bench: Bench) -> None:
    process = bench.killable_client("--limited")
    assert model(bench).knobs.limit == 1250 | 2 << 16
    assert model(bench).knobs.apste == 0
    os.killpg(process.pid, signal.SIGKILL)
    wait_for((bench.run / RECORD_FILE).exists)
    assert_untouched(bench)
    record = bench.record()
    (state,) = [each for each in record.power.states if each.serial == "MODEL0001"]
    assert {each.option for each in state.settings} == {"power.limit_w", "power.apst"}
    assert record.status_reason == (
        "the run's process was killed or crashed; run the same command again. "
        "nvme0: it ran in its initial power state, 0; "
        "its APST was set from on to off and restored to on; "
        "its power limit was set from none to 12.5 W and restored to none."
    )


def test_killed_sampler_s_settings_are_undone_by_the_next_run(bench: Bench) -> None:
    client = bench.opened(PowerConfig(limit_w=12.5, apst=False))
    os.kill(client.pid, signal.SIGKILL)
    wait_for(lambda: not is_running(client))
    assert model(bench).knobs.limit == 1250 | 2 << 16
    bench.add_run("run-2")
    second = bench.spawn()
    opened = second.open("run-2", PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    reported = " ".join(opened.recovered)
    assert "restored to power limit none" in reported
    assert "restored to APST on" in reported
    second.finish()
    assert_untouched(bench)


def test_refusal_is_reported_in_the_run_s_record(bench: Bench) -> None:
    client = bench.spawn()
    with pytest.raises(PowerStateError, match=r"12\.345 W can't be encoded"):
        client.open(RUN_ID, PowerConfig(limit_w=12.345), devices=["nvme0"], block_devices=[])
    (state,) = client.abort()
    assert (state.knob, state.settings) == ("power.limit_w", ())
    assert_untouched(bench)


def test_drive_that_does_not_report_its_state_is_restored_anyway(bench: Bench) -> None:
    client = bench.opened(PowerConfig(state=1))
    failing = model(bench)
    failing.failing = (0x02,)
    store(bench.models / "nvme0.json", failing)
    (state,) = client.finish().states
    assert state.restored == 0


def test_drive_that_vanishes_is_reported_and_undone_when_it_is_back(bench: Bench) -> None:
    client = bench.opened(PowerConfig(limit_w=12.5))
    away = model(bench)
    away.gone = True
    store(bench.models / "nvme0.json", away)
    (state,) = client.finish().states
    (setting,) = state.settings
    assert (setting.restored, setting.after) == (None, None)
    assert "No such device" in setting.missing["restored"]
    assert "not restored: " in state.sentence
    away.gone = False
    store(bench.models / "nvme0.json", away)
    bench.add_run("run-2")
    second = bench.spawn()
    opened = second.open("run-2", PowerConfig(), devices=["nvme0"], block_devices=[])
    assert "restored to power limit none" in opened.recovered[0]
    assert_untouched(bench)
    second.finish()


def test_record_of_the_sampler_passes_its_checks(bench: Bench) -> None:
    client = bench.opened(PowerConfig(dssd_watts=16))
    state = client.finish().states[0]
    record = read_record(bench.run / "draft.json")
    judged = evaluate(
        record.model_copy(update={"power": record.power.model_copy(update={"states": (state,)})})
    )
    verdicts = {check.name: check.verdict for check in judged}
    assert verdicts["power_setting_held_dssd_watts_MODEL0001"] == "pass"
    assert verdicts["saved_settings_kept_MODEL0001"] == "pass"
