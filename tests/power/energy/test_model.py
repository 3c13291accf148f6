"""Simulated drives and sensors whose true energy is known, through the ledger.

Each case is a load, a sensor and what the sensor declares. The phase of the load, of the reads and
of the sensor's updates, the noise and the gain are drawn for each seed. Expected are a bias and a
scatter within limits, an uncertainty that holds the truth in 93 to 98 % of the seeds without being
too wide, and the sensor's lag and window. Every limit is wider by three standard errors of what is
compared at the number of seeds, so that ten seeds can only show a gross defect.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import Floats, ns, samples_of
from tests.records import Scenario, make_run
from wattload.core.checks.sensors import sensor_model
from wattload.core.power import Boxcar, Channel, Counter, Instant, Sensor, SourceFacts
from wattload.core.record.energy import EnergyRecord, PowerSourceRecord, SensorRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.ledger import EnergyLedger

SEEDS, THOROUGH_SEEDS = 2, 10
BIAS_MAX, SHORT_BIAS_MAX = 0.005, 0.01
"""Of windows of at least 5 s, and of saves of 1 to 2 s."""
HELD_MIN, HELD_MAX = 0.93, 0.98
U_MAX_RMS = 4.0
"""The greatest uncertainty at k = 2, in root mean square errors, without the gain."""
LAG_ERROR_MAX_S = 0.05
ERRORS = 3.0
"""Standard errors by which every limit is wider."""
GAIN_PERCENT = 0.1
IDLE_W, BUSY_W = 5.0, 20.0
STEP_S = 0.001
BEFORE_S, LEAD_S, TAIL_S = 12.0, 6.0, 6.0
"""Simulated before the first read, then read before the first and after the last save."""
DESTAGE_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A load of ``saves`` (length and following pause), and a sensor.

    ``shape`` is the sensor's, with its window or time constant ``window_s``. It is updated every
    ``update_s`` (0: at each read). ``pink_w`` is the standard deviation of 1/f noise of the power,
    ``work_pink_w`` of such noise during work alone, ``bursts_hz`` the frequency of full modulation
    of the work, ``destage_w`` the power above idle after each save, or after those ``destaged``
    alone, ``edge_w`` the power that is missing in the first and last 0.1 s of a save.
    ``host_s`` and ``drive_s`` are about how long host and drive work in turns within a save and
    once more after it; the drive's bytes are counted, with ``flush`` also a burst of 1 ms.
    ``is_short`` saves may be off by more, ``is_undersampled`` loads by any amount that is stated.
    """

    name: str
    saves: tuple[tuple[float, float], ...]
    declared: Sensor = field(default_factory=lambda: Boxcar(window_s=1.0))
    shape: str = "boxcar"
    window_s: float = 1.0
    lag_s: float = 0.0
    update_s: float = 0.0
    rate_hz: float = 10.0
    resolution_w: float = 0.01
    pink_w: float = 0.0
    work_pink_w: float = 0.0
    bursts_hz: float = 0.0
    destage_w: float = 0.0
    destaged: tuple[int, ...] | None = None
    edge_w: float = 0.0
    host_s: float = 0.0
    drive_s: float = 0.0
    flush: bool = False
    level_sd_w: float = 0.0
    failed: float = 0.0
    clock_ppm: float = 0.0
    is_short: bool = False
    is_undersampled: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the ledger found of one run, and the truth."""

    record: EnergyRecord
    sensor: SensorRecord | None
    true_j: float

    @property
    def error(self) -> float:
        """Return the error as a share of the true energy, NaN without a figure."""
        return math.nan if self.record.energy_j is None else self.record.energy_j / self.true_j - 1

    @property
    def u(self) -> float:
        """Return the stated uncertainty as a share of the true energy, NaN without a figure."""
        uncertainty_j = self.record.uncertainty_j
        return math.nan if uncertainty_j is None else uncertainty_j / self.true_j


def pink_noise(count: int, rng: np.random.Generator) -> Floats:
    """Return noise with a spectrum of 1/f and a standard deviation of 1."""
    frequency = np.fft.rfftfreq(count, STEP_S)
    frequency[0] = frequency[1]
    spectrum = rng.normal(size=frequency.size) + 1j * rng.normal(size=frequency.size)
    noise: Floats = np.fft.irfft(spectrum / np.sqrt(frequency), count)
    scaled: Floats = noise / noise.std()
    return scaled


class Drive:
    """The power of a simulated drive on steps of ``STEP_S``."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.intervals: list[tuple[float, float]] = []
        self.reads: list[tuple[float, float]] = []
        start_s = LEAD_S + rng.uniform(0, 1)
        for length_s, pause_s in case.saves:
            self.intervals.append((start_s, start_s + length_s))
            start_s += length_s + pause_s
        self.end_s = self.intervals[-1][1] + TAIL_S
        count = round((self.end_s + BEFORE_S) / STEP_S)
        self.middle_s = (np.arange(count) + 0.5) * STEP_S - BEFORE_S
        # Not on a step of the resolution: there, rounding would have no error.
        idle_w, busy_w = IDLE_W + rng.uniform(-0.5, 0.5), BUSY_W + rng.uniform(-0.5, 0.5)
        self.watts = np.full(count, idle_w)
        nexts_s = [start_s for start_s, _ in self.intervals[1:]] + [math.inf]
        for save, ((start_s, end_s), next_s) in enumerate(
            zip(self.intervals, nexts_s, strict=True)
        ):
            inside = (self.middle_s >= start_s) & (self.middle_s < end_s)
            self.watts[inside] = busy_w + case.level_sd_w * rng.normal()
            since_s = np.minimum(self.middle_s - start_s, end_s - self.middle_s)
            self.watts[inside & (since_s < 0.1)] -= case.edge_w
            if case.host_s:
                self.watts[inside] = idle_w
                moment_s = start_s
                while moment_s < end_s:
                    moment_s += case.host_s * rng.uniform(0.5, 1.5)
                    self.reads.append((moment_s, moment_s + case.drive_s * rng.uniform(0.5, 1.5)))
                    moment_s = self.reads[-1][1]
            for from_s, to_s in self.reads:
                self.watts[(self.middle_s >= from_s) & (self.middle_s < to_s)] = busy_w
            if case.bursts_hz:
                cycle = (self.middle_s[inside] * case.bursts_hz + rng.uniform(0, 1)) % 1
                self.watts[inside] = np.where(cycle < 0.5, 2 * busy_w - idle_w, idle_w)
            if case.destage_w and (case.destaged is None or save in case.destaged):
                until_s = min(end_s + DESTAGE_S, next_s)
                after = (self.middle_s >= end_s) & (self.middle_s < until_s)
                share = (self.middle_s[after] - end_s) / DESTAGE_S
                self.watts[after] = idle_w + case.destage_w * (1 - share / 2)
        if case.work_pink_w:
            noise_w = case.work_pink_w * pink_noise(count, rng)
            self.watts[self.watts > IDLE_W + 1] += noise_w[self.watts > IDLE_W + 1]
        if case.pink_w:
            self.watts = np.maximum(self.watts + case.pink_w * pink_noise(count, rng), 0)
        self._joules = np.concatenate(([0.0], np.cumsum(self.watts) * STEP_S))
        self._edge_s = np.arange(count + 1) * STEP_S - BEFORE_S

    def read_bytes(self, time_s: Floats) -> Floats:
        """Return the bytes that the drive counted up to each time."""
        moved_s = [np.clip(time_s, *each) - each[0] for each in self.reads]
        moved: Floats = 1e8 * np.sum(moved_s, axis=0)
        return moved

    def energy_j(self, time_s: Floats) -> Floats:
        """Return joules from the start of the simulation up to each time."""
        return np.interp(time_s, self._edge_s, self._joules)

    @property
    def true_j(self) -> float:
        return float(sum(np.diff(self.energy_j(np.array(each)))[0] for each in self.intervals))

    def seen_w(self, case: Case, time_s: Floats) -> Floats:
        """Return what the sensor shows at each time, without noise."""
        late_s = time_s - case.lag_s
        if case.shape == "boxcar":
            from_s = late_s - case.window_s
            return (self.energy_j(late_s) - self.energy_j(from_s)) / case.window_s
        if case.shape == "rc":
            filtered_w: Floats = np.interp(late_s, self.middle_s, self._filtered_w(case.window_s))
            return filtered_w
        at = np.clip(((late_s + BEFORE_S) / STEP_S).astype(int), 0, self.watts.size - 1)
        of_moment_w: Floats = self.watts[at]
        return of_moment_w

    def _filtered_w(self, constant_s: float) -> Floats:
        from scipy.signal import lfilter

        share = 1 - math.exp(-STEP_S / constant_s)
        settled = [self.watts[0] * (1 - share)]
        found: Floats = lfilter([share], [1, share - 1], self.watts, zi=settled)[0]
        return found


def reads_of(case: Case, end_s: float, rng: np.random.Generator) -> Floats:
    """Return the times of reads, with a random phase and 1 ms of jitter."""
    count = int(end_s * case.rate_hz)
    reads_s = np.arange(count) / case.rate_hz + rng.uniform(0, 1 / case.rate_hz)
    return np.sort(reads_s + rng.normal(0, 0.001, count))


def readings(case: Case, drive: Drive, reads_s: Floats, rng: np.random.Generator) -> Floats:
    """Return a reading for each time, NaN where the read failed."""
    gain = 1 + rng.normal() * GAIN_PERCENT / 100 / 2
    if isinstance(case.declared, Counter):
        counts_j = gain * drive.energy_j(reads_s - case.lag_s) + rng.uniform(0, 100)
        counts_j = np.floor(counts_j / case.declared.quantum_j) * case.declared.quantum_j
        return counts_j % case.declared.wrap_j if case.declared.wrap_j else counts_j
    updates_s, at = reads_s, np.arange(reads_s.size)
    if case.update_s:
        period_s = case.update_s * (1 + case.clock_ppm * 1e-6)
        updates_s = np.arange(-8, drive.end_s + 1, period_s) + rng.uniform(0, case.update_s)
        at = np.searchsorted(updates_s, reads_s, "right") - 1
    watts = gain * (drive.seen_w(case, updates_s) + rng.normal(0, 0.02, updates_s.size))[at]
    watts = np.maximum(np.round(watts / case.resolution_w) * case.resolution_w, 0)
    watts[rng.uniform(size=watts.size) < case.failed] = np.nan
    return watts


def source_of(case: Case) -> SourceFacts:
    resolution_w = None if isinstance(case.declared, Counter) else case.resolution_w
    stated = facts(
        "meter", sensor=case.declared, accuracy_percent=GAIN_PERCENT, resolution_w=resolution_w
    )
    return stated.model_copy(update={"period_s": 1 / case.rate_hz})


def phase_of(intervals: list[tuple[float, float]]) -> PhaseWindow:
    whole = window("write", intervals[0][0], intervals[-1][1])
    each = tuple((ns(start_s), ns(end_s)) for start_s, end_s in intervals)
    return whole.model_copy(update={"intervals": each})


def outcome(case: Case, seed: int) -> Outcome:
    rng = np.random.default_rng(seed)
    drive = Drive(case, rng)
    reads_s = reads_of(case, drive.end_s, rng)
    values = readings(case, drive, reads_s, rng)
    source, phase = source_of(case), phase_of(drive.intervals)
    samples = samples_of(
        reads_s,
        [None if math.isnan(value) else value for value in values.tolist()],
        channel=source.figure_channel,
    )
    if drive.reads:
        counts_s, counts = reads_s, drive.read_bytes(reads_s)
        if case.flush:
            at = reads_s.size // 3
            counts_s = np.insert(counts_s, at + 1, counts_s[at] + 0.001)
            counts = np.insert(counts, at + 1, counts[at])
            counts[at + 1 :] += 5e8
        samples += samples_of(
            counts_s,
            counts,
            channel=Channel.READ_BYTES,
            source="block",
            device="nvme0n1",
        )
    ledger = EnergyLedger(samples, [source], host="host1", activity=activity_of(phase))
    (record,) = ledger.phase_records([phase])
    return Outcome(record=record, sensor=ledger.sensor(source), true_j=drive.true_j)


ONCE = ((5.0, 0.0),)
SAVES = ((5.0, 3.0),) * 4
MINUTE = ((60.0, 0.0),)
TURNS = ((11.0, 0.1), (10.0, 0.0))
SENSED = Instant()


def short(length_s: float) -> tuple[tuple[float, float], ...]:
    return ((length_s, 3.0),) * 6


CASES = [
    Case(name="sliding mean", saves=ONCE),
    Case(name="saves, sliding", saves=SAVES),
    Case(name="saves, tumbling", saves=SAVES, update_s=1.0),
    *[
        Case(name=f"saves of {length_s} s, sliding", saves=short(length_s), is_short=True)
        for length_s in (1.1, 1.5, 1.9)
    ],
    Case(name="pauses of 0.4 s, tumbling", saves=((2.3, 0.4),) * 12, update_s=1.0, is_short=True),
    *[
        Case(name=f"lag of {lag_s} s, sliding", saves=ONCE, lag_s=lag_s)
        for lag_s in (0.25, 0.5, 1.0, 3.0)
    ],
    *[
        Case(name=f"lag of {lag_s} s, tumbling", saves=SAVES, lag_s=lag_s, update_s=1.0)
        for lag_s in (0.25, 0.5, 1.0, 3.0)
    ],
    *[
        Case(
            name=f"lag of {lag_s} s, instant",
            saves=ONCE,
            shape="instant",
            window_s=0.0,
            lag_s=lag_s,
            declared=SENSED,
        )
        for lag_s in (0.25, 1.0, 3.0)
    ],
    Case(name="mean of 2 s declared as 1 s", saves=ONCE, window_s=2.0),
    Case(name="RC of 1 s declared as mean", saves=ONCE, shape="rc"),
    Case(
        name="held reading declared instant",
        saves=SAVES,
        shape="instant",
        window_s=0.0,
        update_s=1.0,
        declared=SENSED,
    ),
    Case(name="sliding mean declared instant", saves=ONCE, declared=SENSED),
    Case(name="tumbling mean declared instant", saves=SAVES, update_s=1.0, declared=SENSED),
    *[
        Case(
            name=f"1/f noise of {pink_w} W",
            saves=MINUTE,
            shape="instant",
            window_s=0.0,
            pink_w=pink_w,
            declared=SENSED,
        )
        for pink_w in (2.0, 4.0)
    ],
    *[
        Case(
            name=f"bursts of {bursts_hz} Hz read at 1 Hz",
            saves=MINUTE,
            shape="instant",
            window_s=0.0,
            rate_hz=1.0,
            bursts_hz=bursts_hz,
            declared=SENSED,
            is_undersampled=True,
        )
        for bursts_hz in (5.3, 39.7)
    ],
    Case(name="failed reads", saves=MINUTE, failed=0.03),
    Case(name="destaging, sliding", saves=SAVES, destage_w=8.0),
    Case(name="destaging and lag, tumbling", saves=SAVES, destage_w=8.0, lag_s=0.5, update_s=1.0),
    Case(
        name="destaging after some saves",
        saves=((10.0, 4.0),) * 12,
        destage_w=8.0,
        destaged=(2, 5, 9),
    ),
    Case(name="failed reads of 1 W steps", saves=SAVES, failed=0.05, resolution_w=1.0),
    Case(name="clock 50 ppm fast", saves=MINUTE, update_s=1.0, clock_ppm=50.0),
    Case(name="saves of different power", saves=SAVES, level_sd_w=1.0),
    Case(name="slow starts and ends", saves=((1.1, 0.5),) * 12, edge_w=8.0),
    Case(name="slow starts and ends, tumbling", saves=SAVES * 3, edge_w=8.0, update_s=1.0),
    Case(name="host and drive in turns", saves=TURNS, host_s=1.5, drive_s=2.0, rate_hz=4.0),
    Case(name="turns and a flush", saves=TURNS, host_s=1.5, drive_s=2.0, rate_hz=4.0, flush=True),
    Case(
        name="turns of half a second",
        saves=TURNS,
        host_s=0.5,
        drive_s=0.5,
        rate_hz=4.0,
        is_undersampled=True,
    ),
    Case(name="turns of a second", saves=TURNS, host_s=1.0, drive_s=1.0),
    Case(name="turns and lag", saves=TURNS, host_s=1.5, drive_s=2.0, lag_s=1.0),
    Case(name="turns, tumbling", saves=TURNS, host_s=3.0, drive_s=4.0, update_s=1.0),
    Case(name="unsteady saves", saves=SAVES, work_pink_w=1.0),
    Case(name="unsteady saves of 1.1 s", saves=short(1.1), work_pink_w=1.0),
    Case(
        name="counter that wraps",
        saves=SAVES,
        declared=Counter(quantum_j=0.001, wrap_j=64.0),
    ),
]
"""Every sensor and load for which the limits were set, and mixtures of them."""
FEW = (
    "saves, tumbling",
    "saves of 1.1 s, sliding",
    "lag of 0.5 s, sliding",
    "mean of 2 s declared as 1 s",
    "counter that wraps",
    "slow starts and ends",
    "unsteady saves",
)
"""Cases that ordinary runs of the tests include."""


def check_limits(case: Case, seeds: int) -> None:
    """Compare a case's outcomes with all limits.

    * The mean error: the limit plus three standard errors of that mean.
    * The share of seeds whose uncertainty holds the truth: 93 to 98 %, each limit moved by three
      binomial standard errors. Below 440 seeds, all may hold.
    * The uncertainty: four times the root mean square error plus the gain. The true scatter may be
      larger than the observed one by the factor of three standard errors, 1 / sqrt(2 n) each. Below
      five seeds that factor is unlimited.
    """
    found = [outcome(case, seed) for seed in range(seeds)]
    errors = np.array([each.error for each in found])
    u = np.array([each.u for each in found])
    known = ~np.isnan(errors) & ~np.isnan(u)
    found_text = f"errors {np.round(100 * errors, 3)} %, U {np.round(100 * u, 3)} %"
    assert known.all(), [dict(each.record.missing) for each in found]
    held = float(np.mean(np.abs(errors) <= u))
    least = HELD_MIN - ERRORS * math.sqrt(HELD_MIN * (1 - HELD_MIN) / seeds)
    most = HELD_MAX + ERRORS * math.sqrt(HELD_MAX * (1 - HELD_MAX) / seeds)
    assert least <= held <= most, found_text
    if case.is_undersampled:
        return
    scatter = float(errors.std(ddof=1)) / math.sqrt(seeds)
    limit = SHORT_BIAS_MAX if case.is_short else BIAS_MAX
    assert abs(errors.mean()) <= limit + ERRORS * scatter, found_text
    surely = 1 - ERRORS / math.sqrt(2 * seeds)
    if surely > 0:
        rms = float(np.sqrt(np.mean(errors**2))) / surely
        assert float(np.sqrt(np.mean(u**2))) <= U_MAX_RMS * rms + GAIN_PERCENT / 100, found_text


@pytest.mark.parametrize("name", FEW)
def test_error_is_small_and_stated(name: str) -> None:
    (case,) = [each for each in CASES if each.name == name]
    check_limits(case, SEEDS)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_of_many_runs_is_small_and_stated(case: Case) -> None:
    check_limits(case, THOROUGH_SEEDS)


UNGUESSED = [
    *[Case(name=f"lag of {lag_s} s", saves=SAVES, lag_s=lag_s) for lag_s in (0.63, 1.38, 2.63)],
    *[
        Case(name=f"lag of {lag_s} s, tumbling", saves=SAVES, lag_s=lag_s, update_s=1.0)
        for lag_s in (0.87, 2.37)
    ],
    *[
        Case(name=f"mean of {window_s} s", saves=SAVES, window_s=window_s)
        for window_s in (1.4, 1.7, 2.6, 3.5, 4.4)
    ],
    Case(name="mean of 1.7 s, lag of 1.15 s", saves=SAVES, window_s=1.7, lag_s=1.15),
    Case(name="RC of 0.6 s, lag of 0.9 s", saves=SAVES, shape="rc", window_s=0.6, lag_s=0.9),
    Case(name="destaging", saves=SAVES, destage_w=8.0),
]
"""Sensors far from the first guesses of the search, and a late end without a lag."""


@pytest.mark.parametrize(
    "case",
    [
        *[
            case
            for case in CASES
            if not case.destage_w and (case.lag_s or case.window_s == 2 or case.shape == "rc")
        ],
        *UNGUESSED,
    ],
    ids=lambda case: case.name,
)
def test_lag_and_window_are_found(case: Case) -> None:
    found = outcome(case, 0)
    sensor = found.sensor
    assert sensor is not None
    assert sensor.is_known
    assert sensor.shape == case.shape
    assert sensor.lag_s == pytest.approx(case.lag_s, abs=LAG_ERROR_MAX_S)
    assert sensor.window_s == pytest.approx(case.window_s, abs=LAG_ERROR_MAX_S)
    assert sensor.is_declared == (case.window_s in {0.0, 1.0} and case.shape != "rc")
    if case in UNGUESSED:
        assert abs(found.error) <= 2 * found.u
        assert found.u <= 0.005


def test_window_longer_than_searched_explains_nothing() -> None:
    sensor = outcome(Case(name="mean of 8 s", saves=SAVES, window_s=8.0), 0).sensor
    assert sensor is not None
    assert not sensor.is_explained


def seen_by(
    drive: Drive, cases: Sequence[Case], rng: np.random.Generator
) -> dict[str, EnergyRecord]:
    """Return the energy of one run of a drive by the sensors of some cases, by their names."""
    phase = phase_of(drive.intervals)
    sources, samples = [], []
    for case in cases:
        reads_s = reads_of(case, drive.end_s, rng)
        source = source_of(case).model_copy(update={"name": case.name})
        values = [None if math.isnan(w) else w for w in readings(case, drive, reads_s, rng)]
        sources.append(source)
        samples += samples_of(reads_s, values, source=case.name, channel=source.figure_channel)
    ledger = EnergyLedger(samples, sources, host="host1", activity=activity_of(phase))
    return {record.source: record for record in ledger.phase_records([phase])}


FINE_CASE = Case(name="fine", saves=SAVES, update_s=1.0)
ROUGH = (
    Case(
        name="held",
        saves=SAVES,
        shape="instant",
        window_s=0.0,
        update_s=2.3,
        resolution_w=0.5,
        declared=SENSED,
    ),
    Case(name="late", saves=SAVES, lag_s=0.7, resolution_w=2.0, failed=0.05, declared=SENSED),
)


@pytest.mark.parametrize("rough", ROUGH, ids=lambda case: case.name)
def test_source_with_the_smaller_error_is_chosen(rough: Case) -> None:
    right = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        drive = Drive(FINE_CASE, rng)
        found = seen_by(drive, [FINE_CASE, rough], rng)
        errors = {
            name: abs((record.energy_j or 0) - drive.true_j) for name, record in found.items()
        }
        (chosen,) = [name for name, record in found.items() if record.chosen]
        right += errors[chosen] == min(errors.values())
    assert right >= 5


def test_swapped_declarations_change_neither_energies_nor_choice() -> None:
    sliding = Case(name="sliding", saves=SAVES, resolution_w=1.0)
    instant = Case(name="instant", saves=SAVES, shape="instant", window_s=0.0, declared=SENSED)
    swapped = (
        dataclasses.replace(sliding, declared=instant.declared),
        dataclasses.replace(instant, declared=sliding.declared),
    )
    runs = []
    for cases in ((sliding, instant), swapped):
        rng = np.random.default_rng(3)
        runs.append(seen_by(Drive(sliding, rng), cases, rng))
    for name in ("sliding", "instant"):
        before, after = (run[name] for run in runs)
        assert before.energy_j is not None
        assert after.energy_j == pytest.approx(before.energy_j, rel=0.002)
        assert before.chosen == after.chosen


@pytest.mark.parametrize(
    ("tampered_s", "is_chosen", "verdict"),
    [(0.0, True, "pass"), (1.0, True, "fail"), (1.0, False, "warn")],
)
def test_check_finds_readings_that_were_made_late_without_failing_the_run(
    tampered_s: float, is_chosen: bool, verdict: str
) -> None:
    case = Case(name="meter", saves=ONCE, lag_s=tampered_s)
    made = outcome(case, 0)
    source = PowerSourceRecord(
        name="meter",
        host="host1",
        device="SERIAL1",
        used=True,
        sentence="",
        facts=source_of(case),
        found=made.sensor,
    )
    energy = made.record.model_copy(update={"chosen": is_chosen})
    record, _ = make_run(Scenario(power="measured", virtual=False))
    power = record.power.model_copy(update={"sources": (source,), "energy": (energy,)})
    (check,) = sensor_model(record.model_copy(update={"power": power}))
    assert (check.verdict, check.fails_run, check.bars_energy) == (verdict, False, False)
