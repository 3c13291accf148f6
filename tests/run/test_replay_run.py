"""A run whose watts come from a file says so in its record, from the source to the page."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.running import call_here, environment, run_here
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord

COMMAND = (sys.executable, "-m", "wattload", "run")


def places(folder: Path) -> list[str]:
    (folder / "target").mkdir(exist_ok=True)
    return [f"target.path={folder / 'target'}", f"runs={folder / 'runs'}"]


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return run_here(folder, "--json", "workload=null", *overrides)


def trace(folder: Path) -> Path:
    rows = "".join(f"{row / 100},12.5\n" for row in range(6000))
    path = folder / "meter.csv"
    path.write_text(f"# evidence: estimated\n# device: OTHER\ntime_s,power_w\n{rows}")
    return path


def record_of(done: subprocess.CompletedProcess[str]) -> RunRecord:
    assert done.returncode in (0, 3), done.stderr
    return read_record(Path(json.loads(done.stdout.splitlines()[-1])["record"]))


@pytest.mark.slow
def test_replayed_watts_are_labelled_from_the_file_to_the_page(tmp_path: Path) -> None:
    options = ["power=replay", f"power.replay.path={trace(tmp_path)}", "power.idle_s=0"]
    done = run(tmp_path, *options)
    record = record_of(done)
    (source,) = [each for each in record.power.sources if each.used]
    assert source.facts is not None
    assert source.facts.evidence == "estimated"
    assert source.facts.detail.startswith("replay, recorded in another run and played from")
    assert "meter.csv (sha256 " in source.facts.detail
    assert {energy.source for energy in record.power.energy} == {"replay"}
    barred = [each for each in record.checks if each.name.startswith("power_of_this_run")]
    assert [(each.verdict, each.mandatory) for each in barred] == [("not_checked", True)]
    (cost,) = record.power.samplers
    assert cost.tick_count > 0
    assert cost.lost_sample_count == 0
    folder = next((tmp_path / "runs").glob("*/record.json")).parent
    page = tmp_path / "page.html"
    assert call_here(tmp_path, "report", str(folder), "-o", str(page)).returncode == 0
    assert "replay, recorded in another run and played from the start of sampling" in (
        page.read_text()
    )
    assert "replayed from another run" in page.read_text()


@pytest.mark.slow
def test_malformed_trace_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "meter.csv"
    path.write_text("# evidence: measured\ntime_s,power_w\n0,5\n1,much\n")
    done = run(tmp_path, "power=replay", f"power.replay.path={path}")
    assert done.returncode == 2
    assert "power_w must be a number: Failed to parse string: 'much'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_trace_that_is_missing_is_one_sentence_and_leaves_no_run(tmp_path: Path) -> None:
    done = run(tmp_path, "power=replay", f"power.replay.path={tmp_path / 'none.csv'}")
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("wattload: ")]
    assert len(said) == 1, done.stderr
    assert "none.csv" in said[0]
    assert list((tmp_path / "runs").glob("*/record.json")) == []


@pytest.mark.slow
def test_a_terminal_shows_rate_power_and_temperature_at_once(tmp_path: Path) -> None:
    path = tmp_path / "meter.csv"
    rows = "".join(f"{second},12.5,314.15\n" for second in range(600))
    path.write_text(f"# evidence: measured\ntime_s,power_w,temperature_k\n{rows}")
    options = ["workload=unet3d", "scale=demo", "power=replay", f"power.replay.path={path}"]
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 100))
    command = [*COMMAND, *options, "power.idle_s=0", *places(tmp_path)]
    with subprocess.Popen(
        command, env={**environment(tmp_path), "TERM": "xterm"}, cwd=tmp_path, stderr=follower
    ) as process:
        os.close(follower)
        shown = b"".join(_output(leader)).decode()
    assert process.returncode in (0, 3), shown
    frames = [line for line in re.split(r"[\r\n]", shown) if "read " in line and "/s" in line]
    assert frames, shown
    assert any("12.5 W" in line.replace("\u00a0", " ") and "41 °C" in line for line in frames), (
        shown
    )


def _output(leader: int) -> Iterator[bytes]:
    """Yield what a process writes to its terminal until it ends."""
    try:
        while data := os.read(leader, 65_536):
            yield data
    except OSError:  # Linux: EIO once the last writer has closed the terminal
        return
    finally:
        os.close(leader)
