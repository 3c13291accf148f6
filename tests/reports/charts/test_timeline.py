"""Charts over time: means by the second with their extremes, arms from their timed start."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.record_power import PowerKind
from tests.records import Scenario, cluster_of, make_cluster, of_windows, write_made_run
from tests.reports.conftest import arm, one
from wattload.core.record.energy import SensorRecord
from wattload.reports.charts.themes import light
from wattload.reports.charts.timeline import energy_figure, hosts_figure, power_figure, rate_figure
from wattload.reports.charts.tracks import make_track
from wattload.reports.runs.energy import phase_energies
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.timeline import Strip
from wattload.reports.runs.traces import ThroughputTrace


def lines(svg: str) -> dict[str, list[tuple[float, float]]]:
    """Return the corners of each line that can be read off, by its name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for path, name in re.findall(r'<path d="([^"]*)"[^>]*data-name="([^"]*)"', svg):
        corners: list[tuple[float, float]] = []
        x = y = 0.0
        for kind, first, second in re.findall(r"([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?", path):
            if kind == "V":
                y = float(first)
            else:
                x = float(first)
                y = float(second) if second else y
            corners.append((x, y))
        found[name] = corners
    return found


def axis(svg: str, name: str) -> tuple[float, float]:
    low, high, *_ = re.findall(rf'data-{name}="([^"]*)"', svg)[0].split()
    return float(low), float(high)


def read(svg: str, name: str, seconds: float, height: float = 150) -> float:
    """Return a line's value at a time, as the page's script reads it."""
    x0, x1 = axis(svg, "x")
    y0, y1 = axis(svg, "y")
    at = (seconds - x0) / (x1 - x0) * 1000
    corners = lines(svg)[name]
    y = next(b[1] for a, b in pairwise(corners) if a[0] <= at <= b[0])
    return y0 + (y1 - y0) * (1 - y / height)


def cluster(
    folder: Path, label: str, names: Sequence[str] = ("ada", "bob", "cyd"), **scenario: Any
) -> Run:
    values = {"power": "measured", "seconds": 10.0, "run_id": label, "label": label, **scenario}
    record, traces = make_cluster(cluster_of(*names, **values))
    (run,) = load_runs([write_made_run(folder / label, record, traces)])
    return run


@pytest.fixture
def pair(tmp_path: Path) -> list[Run]:
    return [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, rate=0.6e9, busy_w=25.0))]


def test_power_shows_the_rest_and_the_ends_of_idle_times(pair: list[Run]) -> None:
    resting = []
    for track in (make_track("A", "A", run) for run in pair):
        end_s = track.zero_s + track.end_s
        rest = Strip(name="rest", timed=False, start_s=end_s, end_s=end_s + 30, lane=0)
        idle = replace(rest, name="idle", start_s=track.zero_s - 60, end_s=track.zero_s)
        strips = (*track.timeline.strips, rest, idle)
        resting.append(replace(track, timeline=replace(track.timeline, strips=strips)))
    for drawn in (resting[:1], resting):
        found = power_figure("c", "x", drawn)
        assert found is not None
        low, high = axis(found.svg, "x")
        assert high == pytest.approx(max(track.end_s for track in drawn) + 30)
        assert -5 < low < 0
        assert ">rest</text>" in found.svg
        assert (">idle</text>" in found.svg) == (len(drawn) == 1)
    rates = rate_figure("c", "x", resting)
    assert rates is not None
    assert axis(rates.svg, "x")[0] == 0


def test_power_above_that_of_the_job_is_not_cut_off(pair: list[Run]) -> None:
    """As that of a drive that collects garbage in the rest, faster than it worked before."""
    raised = []
    for track in (make_track("A", "A", run) for run in pair):
        end_s = track.zero_s + track.end_s
        (line,) = track.timeline.watts
        time_s = np.concatenate((line.time_s, end_s + np.arange(1, 30, 0.5)))
        value = np.concatenate((line.value, np.full(58, 90.0)))
        order = np.argsort(time_s, kind="stable")
        line = replace(line, time_s=time_s[order], value=value[order])
        rest = Strip(name="rest", timed=False, start_s=end_s, end_s=end_s + 30, lane=0)
        strips = (*track.timeline.strips, rest)
        raised.append(
            replace(track, timeline=replace(track.timeline, watts=(line,), strips=strips))
        )
    found = power_figure("c", "x", raised)
    assert found is not None
    assert axis(found.svg, "y")[1] > 90
    assert all(0 <= y <= 150 for corners in lines(found.svg).values() for _, y in corners)


@pytest.mark.parametrize(("tau_s", "words"), [(0.81, "0.81 ± 0.02 s late"), (0.1, "")])
def test_a_chart_of_power_says_how_late_readings_appear(
    pair: list[Run], tau_s: float, words: str
) -> None:
    run = pair[0]
    power = run.record.power
    sensor = SensorRecord(
        basis="calibrated", tau_s=tau_s, tau_uncertainty_s=0.02, kappa_s=tau_s / 2,
        kappa_uncertainty_s=0.02, settle_s=2 * tau_s, update_s=0.1, noise_w=0.01,
    )  # fmt: skip
    sources = [each.model_copy(update={"sensor": sensor}) for each in power.sources]
    record = run.record.model_copy(update={"power": power.model_copy(update={"sources": sources})})
    found = power_figure("c", "x", [make_track("A", "A", replace(run, record=record))])
    assert found is not None
    assert ("late" in found.caption) == bool(words)
    assert words in found.caption


def test_arms_lie_over_each_other_from_their_timed_start(pair: list[Run]) -> None:
    tracks = [make_track(letter, letter, run) for letter, run in zip("AB", pair, strict=True)]
    found = power_figure("c", "x", tracks)
    assert found is not None
    assert set(lines(found.svg)) == {"A", "B"}
    low, high = axis(found.svg, "x")
    assert 0 == low < tracks[0].end_s < tracks[1].end_s <= high
    (energy,) = phase_energies(pair[0].record)
    assert energy.mean_w is not None
    middles = [read(found.svg, "A", at) for at in np.arange(0.1, 4.0, 0.2)]
    assert np.mean(middles) == pytest.approx(energy.mean_w, rel=0.15)


def test_a_line_is_the_mean_of_each_second_and_the_band_has_the_extremes(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=20.0, rate_bytes_per_s=1e9))
    trace = run.traces.throughput
    assert isinstance(trace, ThroughputTrace)
    own = trace.phase.are("read")
    burst = np.where(np.arange(own.sum()) % 2 == 0, 200_000_000, 0)
    read_bytes = trace.read_bytes.copy()
    read_bytes[own] = burst
    traces = replace(run.traces, throughput=replace(trace, read_bytes=read_bytes), power=None)
    found = rate_figure("c", "x", [make_track("A", "A", replace(run, traces=traces))])
    assert found is not None
    for seconds in (3.5, 10.5, 17.5):  # in every other tenth of a second
        assert read(found.svg, "read", seconds) == pytest.approx(1.0, rel=0.01)
    assert f'fill="{light("read")}" opacity="0.14"' in found.svg


def test_batches_that_a_loader_counts_whole_do_not_look_like_stalls(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=60.0, rate_bytes_per_s=1e9))
    trace = run.traces.throughput
    assert isinstance(trace, ThroughputTrace)
    own = trace.phase.are("read")
    read_bytes = trace.read_bytes.copy()
    read_bytes[own] = np.where(np.arange(own.sum()) % 14 == 0, 1_400_000_000, 0)
    traces = replace(run.traces, throughput=replace(trace, read_bytes=read_bytes), power=None)
    found = rate_figure("c", "x", [make_track("A", "A", replace(run, traces=traces))])
    assert found is not None
    for seconds in np.arange(6.0, 54.0, 0.5).tolist():
        assert read(found.svg, "read", seconds) == pytest.approx(1.0, rel=0.02)


def test_phases_shorter_than_the_bins_of_the_trace_have_their_mean_rates(tmp_path: Path) -> None:
    run = one(tmp_path, arm("A", 0, workload="checkpoint", seconds=0.3))
    track = make_track("A", "A", run)
    found = rate_figure("c", "x", [track])
    assert found is not None
    assert "Lines are means of each phase." in found.caption
    for phase, name in zip(track.phases, ("written", "read"), strict=True):
        middle_s = phase.start_s + phase.active_s / 2 - track.zero_s
        unit = {"GB/s": 1e9, "MB/s": 1e6}[re.findall(r'data-y="[^"]* (\S+)"', found.svg)[0]]
        rate = phase.moved_bytes / phase.active_s / unit
        assert read(found.svg, name, middle_s) == pytest.approx(rate, rel=0.01)


def test_what_else_a_device_moved_does_not_flatten_the_rate(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=60.0, rate_bytes_per_s=1e9))
    track = make_track("A", "A", run)
    rates = tuple(
        replace(line, value=line.value * 50) if line.role == "device" else line
        for line in track.timeline.rates
    )
    busy = replace(track, timeline=replace(track.timeline, rates=rates))
    plain, found = rate_figure("c", "x", [track]), rate_figure("c", "x", [busy])
    assert plain is not None
    assert found is not None
    assert axis(found.svg, "y") == axis(plain.svg, "y")


def test_phases_without_a_duration_are_drawn(tmp_path: Path) -> None:
    run = one(tmp_path, arm("A", 0, workload="checkpoint", seconds=0.3))
    for empty in (("write",), ("write", "read")):
        windows = [
            window.model_copy(update={"intervals": ((window.start_ns, window.start_ns),)})
            if window.name in empty
            else window
            for window in run.record.windows
        ]
        record = run.record.model_copy(update=of_windows(tuple(windows)))
        assert rate_figure("c", "x", [make_track("A", "A", replace(run, record=record))])


def test_cumulative_energy_ends_at_the_energy_of_the_record(pair: list[Run]) -> None:
    found = energy_figure("c", "x", [make_track("A", "A", pair[0]), make_track("B", "B", pair[1])])
    assert found is not None
    for name, run in zip("AB", pair, strict=True):
        (energy,) = phase_energies(run.record)
        assert energy.energy_j is not None
        y0, y1 = axis(found.svg, "y")
        end = y0 + (y1 - y0) * (1 - lines(found.svg)[name][-1][1] / 150)
        unit = re.findall(r'data-y="[^"]* (\S+)"', found.svg)[0]
        joules = end * {"Wh": 3600, "J": 1}[unit]
        assert joules == pytest.approx(energy.energy_j, rel=0.02)


@pytest.mark.parametrize(
    ("power", "words"),
    [("declared", "Watts declared"), ("bounds", "Bounds of the drive's power")],
)
def test_what_was_not_measured_says_so(tmp_path: Path, power: PowerKind, words: str) -> None:
    found = power_figure("c", "x", [make_track("A", "A", one(tmp_path, arm("A", 0, power=power)))])
    assert found is not None
    assert found.caption.startswith(words)
    assert "stroke-dasharray" in found.svg


def test_a_day_at_ten_hertz_is_a_line_of_hundreds_of_points(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=4.0, power="measured", virtual=False))
    power = run.traces.power
    assert power is not None
    long = [
        replace(signal, time_ns=signal.time_ns[0] + np.arange(864_000) * 100_000_000,
                value=np.full(864_000, 7.0))
        for signal in power.signals
    ]  # fmt: skip
    traces = replace(run.traces, power=replace(power, signals=tuple(long)))
    found = power_figure("c", "x", [make_track("A", "A", replace(run, traces=traces))])
    assert found is not None
    assert len(found.svg) < 60_000


def test_each_drive_of_a_run_of_several_hosts_has_a_line_of_its_colour(tmp_path: Path) -> None:
    run = cluster(tmp_path, "A")
    figure = power_figure("c", "Power", [make_track("A", "A", run)])
    assert figure is not None
    drives = [f"{host}: S4EVNX0R90000{n} by meter" for n, host in enumerate(("ada", "bob", "cyd"))]
    assert figure.legend == [("a", drives[0]), ("b", drives[1]), ("c", drives[2])]
    assert [*lines(figure.svg)] == drives


def test_beside_another_run_the_drives_of_several_hosts_are_one_line(tmp_path: Path) -> None:
    tracks = [make_track(letter, letter, cluster(tmp_path, letter)) for letter in "AB"]
    figure = power_figure("c", "Power", tracks)
    assert figure is not None
    assert [*lines(figure.svg)] == ["A", "B"]
    (energy,) = phase_energies(tracks[0].run.record)
    assert energy.mean_w is not None
    mean_w = np.mean([read(figure.svg, "A", at + 0.5) for at in range(9)])
    assert mean_w == pytest.approx(energy.mean_w, rel=0.05)


def test_the_energy_of_a_drive_ends_with_the_phase_of_its_own_host(tmp_path: Path) -> None:
    run = cluster(tmp_path, "A", slow="cyd")
    figure = energy_figure("c", "Energy", [make_track("A", "A", run)])
    assert figure is not None
    (energy,) = phase_energies(run.record)
    last = figure.table.rows[-1][-1].text
    scale = 3600.0 if figure.table.columns[-1].title.endswith("Wh") else 1.0
    assert float(last) * scale == pytest.approx(energy.energy_j, rel=0.01)


def test_hosts_have_a_line_each_and_too_many_have_no_chart(tmp_path: Path) -> None:
    figure = hosts_figure("c", "Rate by host", make_track("A", "A", cluster(tmp_path, "A")))
    assert figure is not None
    assert [*lines(figure.svg)] == ["ada", "bob", "cyd"]
    many = cluster(tmp_path, "B", names=[f"node{number}" for number in range(7)])
    assert hosts_figure("c", "Rate by host", make_track("B", "B", many)) is None
