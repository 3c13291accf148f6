from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import directory_target
from tests.loaders.dlio.job import BATCH, FILES, RESIZE, make_training
from wattload.core import workload as core_workload
from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.storage.file_system import DirectIo
from wattload.loaders.dlio import config
from wattload.loaders.dlio.config import Config
from wattload.loaders.dlio.harness import command_line, workload_settings
from wattload.run.compose import compose


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_workload, "find_spec", lambda name: object())


def test_its_yaml_composes_to_its_own_settings() -> None:
    run, _ = compose(["loader=dlio", "target.path=/tmp", "loader.reader=wattload"])
    assert run.loader == Config(reader="wattload")
    assert type(run.loader).__module__ == "wattload.loaders.dlio.config"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("workers", 0, "loader.workers must be 1 to 1024, got 0"),
        ("prefetch_factor", 0, "loader.prefetch_factor must be 1 to 1024"),
        ("reader", "ours", "loader.reader must be one of dlio, wattload, got 'ours'"),
        ("start_method", "thread", "loader.start_method must be one of fork"),
        ("reader_block_bytes", 100, "loader.reader_block_bytes must be a multiple of 4096"),
        ("reader_queue_depth", 0, "loader.reader_queue_depth must be 1 to"),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config(**dict[str, Any]({name: value})).check()


def test_a_program_that_is_not_installed_is_named_with_both_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        core_workload, "find_spec", lambda name: None if "dlio" in name else object()
    )
    with pytest.raises(MissingExtraError, match="dlio-benchmark, which is not installed") as raised:
        Config().check_samples(make_training(tmp_path).samples, [])
    commands = ["[dlio]", "pip install --no-deps dlio-benchmark==2.0.0"]
    assert all(command in str(raised.value) for command in commands)


@pytest.mark.usefixtures("installed")
def test_several_accelerators_need_a_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    Config().check_samples(make_training(tmp_path).samples, [])
    samples = make_training(tmp_path, accelerators=2).samples
    with pytest.raises(MissingExtraError, match="by mpirun, which is not installed"):
        Config().check_samples(samples, [])
    beside = tmp_path / "mpirun"
    beside.touch(mode=0o755)
    Config().check_samples(samples, [])
    assert config.mpirun() == str(beside)


@pytest.mark.usefixtures("installed")
def test_blocks_that_a_target_refuses_are_refused_for_our_reader_alone(tmp_path: Path) -> None:
    samples = make_training(tmp_path).samples
    coarse = replace(
        directory_target(tmp_path),
        direct_io=DirectIo(memory_align_bytes=512, offset_align_bytes=65536, found_by="statx"),
    )
    own = Config(reader_block_bytes=4096)
    own.check_samples(samples, [coarse])
    ours = Config(reader="wattload", reader_block_bytes=4096)
    ours.check_samples(samples, [directory_target(tmp_path)])
    with pytest.raises(ConfigError, match=r"65536 bytes; loader\.reader_block_bytes must be"):
        ours.check_samples(samples, [coarse])


def test_what_it_pays_and_needs_depends_on_who_reads(tmp_path: Path) -> None:
    samples = make_training(tmp_path).samples
    own, ours = Config(), Config(reader="wattload")
    assert own.sample_checks_crc(samples)
    assert not ours.sample_checks_crc(samples)
    assert ours.sample_checks_crc(replace(samples, check_crc=True))
    assert not own.sample_checks_crc(replace(samples, record_format="npy"))
    assert (own.sample_path_is_direct, ours.sample_path_is_direct) == (False, True)
    workers_bytes = 4 * max(samples.file_bytes)
    assert own.sample_memory_bytes(samples) == workers_bytes + 9 * samples.batch_bytes


@pytest.mark.parametrize(
    ("reader", "epochs", "remark"),
    [
        ("dlio", 1, "one epoch at a time"),
        ("dlio", 2, "all epochs in one call"),
        ("dlio", 1, "synthetic image of 64 x 64 bytes"),
        ("wattload", 1, "first 4096 bytes"),
    ],
)
def test_differences_from_our_own_loop(
    tmp_path: Path, reader: str, epochs: int, remark: str
) -> None:
    found = Config(reader=reader).differences(make_training(tmp_path, epochs=epochs))
    assert remark in " ".join(found)


def test_its_configuration_is_the_job(tmp_path: Path) -> None:
    training = make_training(tmp_path, accelerators=2, step_s=0.25)
    settings = workload_settings(Config(workers=3, prefetch_factor=2), training, tmp_path)
    assert settings["dataset"]["data_folder"] == tmp_path.name
    assert settings["dataset"]["num_files_train"] == FILES
    assert settings["dataset"]["record_length_resize"] == RESIZE
    assert settings["train"] == {"epochs": 1, "computation_time": 0.25}
    reader = settings["reader"]
    assert (reader["batch_size"], reader["read_threads"]) == (BATCH, 3)
    assert reader["prefetch_size"] == 6
    assert reader["sample_shuffle"] == reader["file_shuffle"] == "off"
    assert "reader_classname" not in reader
    ours = workload_settings(Config(reader="wattload"), training, tmp_path)["reader"]
    assert ours["reader_classname"] == "wattload.loaders.dlio.plugin.DirectRecordReader"
    assert json.loads(json.dumps(settings)) == settings


def test_one_process_needs_no_launcher() -> None:
    program = ["-P", "-m", "mpi4py", "-m", "wattload.loaders.dlio.held"]
    assert command_line("job", 1)[:6] == [sys.executable, *program]
    assert command_line("job", 2)[1:4] == ["-n", "2", sys.executable]


def test_our_process_never_imports_the_program(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from wattload.loaders.dlio import config, harness, record_files\n"
        "print(sorted(n for n in sys.modules if n.split('.')[0] in "
        "('dlio_benchmark', 'torch', 'mpi4py', 'pandas', 'PIL', 'psutil')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
