"""Sampling a drive that misbehaves, by the kernel's own driver: what is reported, what goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.virtual_runs import (
    CALIBRATING,
    INTERVAL_POWER,
    SERIAL,
    UNET3D,
    VIRTUAL,
    Ran,
    controller,
    drive,
    prepare,
    run,
    wait_for_phase,
)
from tests.records import Scenario, make_run
from wattload.core.errors import PowerError
from wattload.core.power import Channel, Evidence, Sample, WindowEnergy
from wattload.core.record.energy import EnergyRecord
from wattload.power.config import PowerConfig
from wattload.power.nvme.admin import NvmeAdmin
from wattload.power.nvme.features import read_power_state, set_command
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import FinishReply
from wattload.power.sampler.samples import read_samples
from wattload.run.phases import REST_PHASE

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]

WAIT_S = 120
GET_LOG_PAGE, GET_FEATURES, THERMAL = 0x02, 0x0A, 0x10
SMART_LOG, OCP_LOG = 0x02, 0xC0
INTERNAL_ERROR, ALL_COMMANDS = 0x06, 1 << 30
WARM_K, HOT_K = 312, 316
"""Thresholds that a drive which idles at 308 K and works at 327 K passes in seconds."""
HALF_BYTES = 120_000_000
SHORT = (*UNET3D, "workload.epochs=1")
"""Some 21 s in PS0."""
SHORTER = (*SHORT, "workload.file_count=14")
"""Some 11 s, of whose energy 0.2 s at each edge are more than 1 %."""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    (folder / "run-1").mkdir(parents=True)
    record, _ = make_run(Scenario(run_id="run-1"))
    draft = record.model_copy(update={"spans": (), "checks": (), "limits": ()})
    (folder / "run-1/draft.json").write_text(draft.model_dump_json())
    return folder


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    """The drive is in its first state and well again after each test."""
    yield
    drive("vanish", on=False)
    drive("stale", on=False)
    drive("ipm_stuck", on=False)
    drive("heal")
    drive("window", seconds=1.0)
    wait_for(lambda: state_of_drive() == 0)


def state_of_drive() -> int | None:
    try:
        admin = NvmeAdmin(controller())
        try:
            return read_power_state(admin)
        finally:
            admin.close()
    except (PowerError, AssertionError):
        return None  # it is away


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def sample(runs: Path, *misbehave: Callable[[], None]) -> tuple[FinishReply, list[Sample]]:
    """Sample the drive in PS1 before and after each event; return what was reported."""
    name = controller()
    with SamplerClient.spawn(runs) as client:
        client.open(
            "run-1",
            PowerConfig(state=1, period_s=0.2, allow_system_drive=True),
            devices=[name],
            block_devices=[f"{name}n1"],
        )
        client.start()
        (samples,) = (runs / "run-1").glob("samples-*.jsonl")
        tick(samples)
        for happen in misbehave:
            happen()
            tick(samples)
        finished = client.finish()
    return finished, list(read_samples(samples))


def tick(samples: Path) -> None:
    """Wait for a few more readings of the block device, whatever the drive does."""

    def count() -> int:
        return samples.read_text().count('"read_bytes"')

    before = count()
    wait_for(lambda: count() > before + 3)


def own_measurements(finished: FinishReply) -> list[WindowEnergy]:
    """Return what the drive's own measurement came to over the sampling (log 25h)."""
    return [each for each in finished.own_energies if each.source == "nvme_25h"]


def values(samples: list[Sample], channel: Channel) -> list[float | None]:
    return [each.value for each in samples if each.channel is channel and each.device == SERIAL]


def test_state_that_is_lost_is_seen_and_told(runs: Path) -> None:
    finished, samples = sample(runs, lambda: drive("lose_state"))
    states = values(samples, Channel.POWER_STATE)
    assert (states[0], states[-1]) == (1, 0)
    (reported,) = finished.states
    assert (reported.verified, reported.after, reported.restored) == (1, 0, 0)


def test_refused_reads_are_holes_and_sampling_goes_on(runs: Path) -> None:
    _, samples = sample(
        runs, lambda: drive("fault", opcode=GET_FEATURES, subject=2, status=0x4006, count=2)
    )
    states = values(samples, Channel.POWER_STATE)
    assert None in states
    assert states[-1] == 1


def test_late_answer_is_waited_for_and_sampling_goes_on(runs: Path) -> None:
    _, samples = sample(runs, lambda: drive("fault", opcode=GET_FEATURES, subject=2, hold_s=0.5))
    reported = [each for each in samples if each.channel is Channel.POWER_STATE]
    late = [each for each in reported if each.spread_ns >= 500_000_000]
    assert [each.value for each in late] == [1]
    assert reported[-1].time_ns > late[0].time_ns
    assert reported[-1].value == 1


def test_command_that_is_never_answered_is_a_hole_until_the_kernel_gives_it_up(runs: Path) -> None:
    """The driver waits for a minute, then resets the drive, which forgets its state."""

    def fall_silent() -> None:
        drive("fault", opcode=GET_FEATURES, subject=2)

    def be_reset() -> None:
        wait_for(lambda: state_of_drive() == 0)

    finished, samples = sample(runs, fall_silent, be_reset)
    states = values(samples, Channel.POWER_STATE)
    assert states[0] == 1
    assert None in states
    assert states[-1] == 0
    (reported,) = finished.states
    assert (reported.verified, reported.after) == (1, 0)


def test_reset_loses_the_state_and_sampling_goes_on(runs: Path) -> None:
    finished, samples = sample(runs, lambda: drive("reset"))
    assert values(samples, Channel.POWER_STATE)[0] == 1
    (reported,) = finished.states
    assert reported.after in (0, None)
    wait_for(lambda: state_of_drive() == 0)


def test_drive_that_vanishes_is_a_hole_until_it_is_back(runs: Path) -> None:
    def leave() -> None:
        drive("vanish", on=True)
        wait_for(lambda: state_of_drive() is None)

    def come_back() -> None:
        drive("vanish", on=False)
        wait_for(lambda: state_of_drive() is not None)

    finished, samples = sample(runs, leave, come_back)
    states = values(samples, Channel.POWER_STATE)
    assert (states[0], states[-1]) == (1, 0)  # a drive that was reset is in its first state
    assert None in states[1:-1]
    (reported,) = finished.states
    assert (reported.verified, reported.after, reported.restored) == (1, 0, 0)
    (whole,) = own_measurements(finished)
    assert whole.energy_j is None
    assert whole.reason


def test_clock_that_jumps_costs_the_whole_run_s_figure_and_no_other(runs: Path) -> None:
    finished, samples = sample(runs, lambda: drive("jump", seconds=15))
    (whole,) = own_measurements(finished)
    assert whole.energy_j is None
    assert "its mean covers another time" in whole.reason
    watts = values(samples, Channel.POWER_W)
    assert None not in watts[-3:]
    assert values(samples, Channel.POWER_STATE)[-1] == 1


def run_with_fault(label: str, phase: str, misbehave: Callable[[], None]) -> Ran:
    """Run a short load, and misbehave once it has begun a phase."""

    def wait_and_misbehave() -> None:
        wait_for_phase(label, phase)
        misbehave()

    meanwhile = threading.Thread(target=wait_and_misbehave)
    meanwhile.start()
    try:
        return run(*SHORT, state=0, label=label)
    finally:
        meanwhile.join()


@pytest.mark.lab_long
def test_meter_that_dies_in_the_rest_costs_the_tail_and_its_end_is_uncertain() -> None:
    prepare(*SHORT)

    def die() -> None:
        for subject in (SMART_LOG, OCP_LOG):
            drive("fault", opcode=GET_LOG_PAGE, subject=subject, status=INTERNAL_ERROR,
                  count=ALL_COMMANDS)  # fmt: skip

    ran = run_with_fault("dies", REST_PHASE, die)
    assert ran.record.status == "complete"
    energy = ran.energy("read")
    assert energy.tail_j is None
    assert energy.missing["tail_j"]
    holds_the_truth_or_has_no_figure(ran, energy)


@pytest.mark.lab_long
def test_sampler_that_is_killed_in_the_rest_leaves_the_record_of_a_run_without_a_tail() -> None:
    prepare(*SHORT)

    def kill() -> None:
        for status in Path("/proc").glob("[0-9]*/cmdline"):
            words = status.read_bytes().split(b"\0")
            if b"wattload.power.sampler" in words:
                os.kill(int(status.parent.name), signal.SIGKILL)

    ran = run_with_fault("killed", REST_PHASE, kill)
    assert ran.record.status == "complete"
    assert any(host.lost for host in ran.record.power.hosts)
    for energy in ran.energies():
        assert energy.tail_j is None
        holds_the_truth_or_has_no_figure(ran, energy)


def holds_the_truth_or_has_no_figure(ran: Ran, energy: EnergyRecord) -> None:
    if energy.energy_j is None:
        assert energy.missing["energy_j"] or energy.evidence is Evidence.BOUNDS
    elif energy.uncertainty_j is not None:
        assert energy.energy_j == pytest.approx(ran.truth_j(energy), abs=energy.uncertainty_j)


@pytest.mark.lab_long
def test_logs_that_stand_still_amid_the_work_are_remarked() -> None:
    """Idle power after the job is then that of the work: it is not the idle power before."""
    prepare(*SHORT)

    def stand_still() -> None:
        begun_bytes = drive("facts")["read_bytes"]
        wait_for(lambda: drive("facts")["read_bytes"] > begun_bytes + HALF_BYTES)
        drive("stale", on=True)

    ran = run_with_fault("stale", "read", stand_still)
    energy = ran.energy("read")
    assert energy.remarks
    holds_the_truth_or_has_no_figure(ran, energy)
    (whole,) = [each for each in ran.record.power.whole_run if each.source == "nvme_25h"]
    assert (whole.energy_j, whole.evidence) == (None, Evidence.NONE)


@pytest.mark.lab_long
def test_drive_that_throttles_fails_the_run() -> None:
    prepare(*SHORT)
    set_thresholds(WARM_K, HOT_K)
    try:
        ran = run(*SHORT, state=0, label="hot")
    finally:
        set_thresholds(0, 0)
    assert "throttled" in failed(ran)
    (reported,) = [each for each in ran.record.power.throttling if each.phase == "read"]
    assert (reported.throttled_s or 0) > 1


def failed(ran: Ran) -> str:
    """Return the names of the failed checks, as one text."""
    return " ".join(each.name for each in ran.record.checks if each.verdict == "fail")


def set_thresholds(light_k: int, heavy_k: int) -> None:
    """Set TMT1 and TMT2, in kelvin; 0 switches one off."""
    admin = NvmeAdmin(controller())
    try:
        value = light_k << 16 | heavy_k
        assert admin.submit(set_command(THERMAL, "thresholds", value=value)).status == 0
    finally:
        admin.close()


@pytest.mark.lab_long
def test_interval_power_that_does_not_respond_to_the_load_fails_the_run(tmp_path: Path) -> None:
    """The drive's other meter does respond: the readings can't be of the load's drive."""
    prepare(*SHORT)
    drive("ipm_stuck", on=True)
    ran = run(*SHORT, state=0, label="stuck", power=CALIBRATING, state_folder=tmp_path)
    assert ran.sensor(INTERVAL_POWER).responds is False
    assert ran.sensor("nvme_ocp").responds is True
    assert ran.verdict(f"sensor_calibrated_{SERIAL}_{INTERVAL_POWER}") == "fail"


@pytest.mark.lab_long
def test_mean_over_another_time_than_declared_is_warned_of_and_taken_as_calibrated(
    tmp_path: Path,
) -> None:
    prepare(*SHORTER)
    drive("window", seconds=0.5)
    ran = run(*SHORTER, state=0, label="window", power=CALIBRATING, state_folder=tmp_path)
    sensor = ran.sensor(INTERVAL_POWER)
    assert sensor.basis == "calibrated", sensor.reason
    assert sensor.declared_tau_s == pytest.approx(0.5, abs=0.15)
    assert sensor.tau_s == pytest.approx(0.25, abs=max(0.03, sensor.tau_uncertainty_s))
    assert ran.verdict(f"sensor_calibrated_{SERIAL}_{INTERVAL_POWER}") == "warn"
    energy = ran.energy("read")
    assert energy.energy_j == pytest.approx(ran.truth_j(energy), rel=0.005)
