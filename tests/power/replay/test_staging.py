from __future__ import annotations

from pathlib import Path

import pytest

from wattload.core.errors import DataError, PowerError
from wattload.power.config import PowerConfig
from wattload.power.replay.config import ReplayConfig
from wattload.power.replay.files import read_trace
from wattload.power.replay.staging import STAGED_NAME, stage, stage_again, unstage

HEAD = "# evidence: measured\n"


def asked(path: Path, align: str = "start") -> PowerConfig:
    return PowerConfig(source="replay", replay=ReplayConfig(path=str(path), align=align))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-1"
    folder.mkdir()
    return folder


def test_trace_lies_in_the_runs_folder_and_no_path_is_sent(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "meter.csv"
    path.write_text(HEAD + "time_s,power_w\n0,5\n")
    sent = stage(asked(path), run)
    assert sent.replay is not None
    assert sent.replay.path == STAGED_NAME
    found = unstage(sent, run)
    assert found.replay is not None
    trace = read_trace(Path(found.replay.path))
    assert trace.head.origin.startswith("meter.csv (sha256 ")


def test_link_to_a_trace_is_the_users_to_follow(tmp_path: Path, run: Path) -> None:
    (tmp_path / "meter.csv").write_text(HEAD + "time_s,power_w\n0,5\n")
    (tmp_path / "link.csv").symlink_to("meter.csv")
    stage(asked(tmp_path / "link.csv"), run)
    assert (run / STAGED_NAME).is_file()


def test_other_sources_have_nothing_to_stage(run: Path) -> None:
    config = PowerConfig(source="none")
    assert stage(config, run) is config
    assert unstage(config, run) is config
    stage_again(config, run)
    assert list(run.iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/shadow", "../replay.csv", "replay.parquet", ""])
def test_sampler_reads_no_file_of_a_clients_choosing(run: Path, path: str) -> None:
    with pytest.raises(PowerError, match=r"replays replay\.csv in the run's folder"):
        unstage(asked(Path(path)), run)


def test_log_that_has_grown_is_brought_over(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HEAD + "unix_s,power_w\n")
    stage(asked(path, "wall"), run)
    with path.open("a") as file:
        file.write("1700000000.5,5\n")
    stage_again(asked(path, "wall"), run)
    assert list(read_trace(run / STAGED_NAME).time_ns) == [1_700_000_000_500_000_000]


def test_recording_of_another_run_is_brought_over_once(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "meter.csv"
    path.write_text(HEAD + "time_s,power_w\n0,5\n")
    stage(asked(path), run)
    path.unlink()
    stage_again(asked(path), run)


def test_malformed_trace_is_refused_before_the_sampler_hears_of_it(
    tmp_path: Path, run: Path
) -> None:
    path = tmp_path / "meter.csv"
    path.write_text("amps\n")
    with pytest.raises(DataError, match=r"meter\.csv"):
        stage(asked(path), run)
    assert list(run.iterdir()) == []
