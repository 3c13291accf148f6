"""What of ours runs inside the program's processes, looked at without the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.loader import make_samples, sealed_samples
from tests.damage import flip_bit
from tests.loaders.dlio.job import make_training
from wattload.core.errors import DataError
from wattload.loaders.data.cold_cache import evict, resident_fraction
from wattload.loaders.dlio import launch
from wattload.loaders.dlio.config import ChildSettings
from wattload.loaders.dlio.record_files import RecordFiles, read_summary

ORPHAN = """
import multiprocessing, os, sys, time
from wattload.loaders.dlio.launch import Tracer

class TorchDataset:
    @Tracer().log
    def worker_init(self, number):
        return number

def work(parent):
    while os.getppid() == parent:
        time.sleep(0.01)
    assert TorchDataset().worker_init(1) == 1
    time.sleep(600)

multiprocessing.get_context("fork").Process(target=work, args=(os.getpid(),)).start()
os._exit(0)
"""


def settings(folder: Path, *, check_crc: bool = False, nonce: int | None = None) -> ChildSettings:
    return ChildSettings(
        socket="",
        journal=str(folder / "reads.jsonl"),
        largest_bytes=400_000,
        record_format="npz",
        block_bytes=64 << 10,
        queue_depth=3,
        check_crc=check_crc,
        nonce=nonce,
    )


def test_records_are_read_whole_past_the_page_cache_through_links(tmp_path: Path) -> None:
    samples = make_training(tmp_path).samples
    evict(samples.paths)
    files = RecordFiles(settings(tmp_path))
    for number, path in enumerate(samples.paths):
        link = tmp_path / f"link{number}"
        link.symlink_to(path)
        read = files.payload(str(link)).copy()
        drawn = np.random.default_rng(number).integers(0, 255, (300, 1000 + number, 1), np.uint8)
        assert np.array_equal(read, drawn.reshape(-1))
    files.close()
    said = (tmp_path / "reads.jsonl").read_text().splitlines()
    opened, *lines = [json.loads(line) for line in said]
    assert opened["engine"]
    assert [line["path"] for line in lines] == [str(path) for path in samples.paths]
    assert [line["read_bytes"] for line in lines] == list(samples.file_bytes)
    assert resident_fraction(samples.paths) == 0


def test_every_file_is_verified_and_damage_is_noted_by_its_name(tmp_path: Path) -> None:
    samples = sealed_samples(make_samples(tmp_path))
    flip_bit(samples.paths[5], 70_000, 2)
    flip_bit(samples.paths[6], 12, 0)  # the date in the archive, which no reader looks at
    files = RecordFiles(settings(tmp_path, nonce=samples.nonce))
    for path in samples.paths[3:8]:
        files.payload(str(path))
    files.close()
    summary = read_summary(tmp_path / "reads.jsonl")
    assert summary.verified_bytes == summary.read_bytes == sum(samples.file_bytes[3:8])
    assert summary.bad_blocks == {"5.npz": 1, "6.npz": 1}


def test_a_damaged_record_is_refused_where_the_crc_was_asked_for(tmp_path: Path) -> None:
    path = make_training(tmp_path).samples.paths[0]
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"\0" * 8)
    loose = RecordFiles(settings(tmp_path))
    assert len(loose.payload(str(path))) == 300_000
    loose.close()
    strict = RecordFiles(settings(tmp_path, check_crc=True))
    with pytest.raises(DataError, match="CRC-32"):
        strict.payload(str(path))
    strict.close()


def test_usage_counts_this_process_and_its_children(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(5 << 20))
    before = launch.usage()
    code = f"import time; sum(range(3_000_000)); len(open({str(tmp_path / 'data')!r}, 'rb').read())"
    child = subprocess.Popen(
        [sys.executable, "-c", code + "; print('done', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    alive = launch.usage().since(before)
    assert alive.cpu_s > 0.02
    assert alive.called_bytes is not None
    assert alive.called_bytes >= 5 << 20
    assert alive.storage_bytes is not None
    memory = launch.peak_memory_bytes()
    assert memory is not None
    assert memory > 10 << 20
    child.communicate(b"\n")
    assert launch.usage().since(before).cpu_s >= alive.cpu_s


def test_usage_of_a_process_that_has_ended_is_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert launch._cpu_s(ended.pid) == 0
    assert launch._io_counts(ended.pid) == {}
    assert launch._peak_bytes(ended.pid) is None
    assert list(launch._members(ended.pid)) == [ended.pid]
    assert launch._difference(None, 1) is None
    assert launch._total([{}], "rchar") is None


def test_a_cpu_clock_reads_another_process() -> None:
    mine = launch._cpu_s(os.getpid())
    assert mine == pytest.approx(time.process_time(), abs=0.05)


def test_a_worker_whose_parent_had_ended_before_it_began_ends_too() -> None:
    # The worker holds standard output open: this returns when it has gone.
    command = [sys.executable, "-c", ORPHAN]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_stand_ins_are_what_the_program_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["dftracer", "dftracer.logger", "dlio_benchmark.profiler.tf_profiler"]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    launch.install_stubs()
    logger = sys.modules["dftracer.logger"]
    assert {"dftracer", "dft_fn", "DFTRACER_ENABLE"} <= set(vars(logger))
    assert logger.DFTRACER_ENABLE is False
    profiler = sys.modules["dlio_benchmark.profiler.tf_profiler"].TFProfiler
    with pytest.raises(RuntimeError, match="needs TensorFlow"):
        profiler.get_instance()
    for name in names:
        monkeypatch.delitem(sys.modules, name)
