from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contracts.loader import Counter, LoaderContract, make_samples
from tests.loaders.interrupted import loading
from wattload.core.errors import ConfigError, DataError, MissingExtraError
from wattload.loaders.torch import config as module
from wattload.loaders.torch.config import Config
from wattload.loaders.torch.loader import SampleDataset, TorchLoader, load_payload

ROOT = Path(__file__).parents[3]


def config(workers: int = 2, prefetch_factor: int = 1, start_method: str = "fork") -> Config:
    # Fork starts in milliseconds, and no test here runs beside MPI.
    return Config(workers=workers, prefetch_factor=prefetch_factor, start_method=start_method)


class TestTorchLoader(LoaderContract):
    def config(self) -> Config:
        return config()


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_workers_that_start_afresh_load_the_same(tmp_path: Path, start_method: str) -> None:
    samples = make_samples(tmp_path)
    loader = config(start_method=start_method, workers=1).sample_loader(samples, Counter())
    assert [batch.indices for batch in loader.epoch(range(9))] == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    loader.close()


def test_no_process_outlives_the_loader(tmp_path: Path) -> None:
    loader = config().sample_loader(make_samples(tmp_path), Counter())
    next(loader.epoch(list(range(9))))
    assert len(multiprocessing.active_children()) == 2
    loader.close()
    assert not multiprocessing.active_children()


def test_workers_are_counted_per_accelerator(tmp_path: Path) -> None:
    samples = make_samples(tmp_path)
    loader = config().sample_loader(replace(samples, accelerators=2), Counter())
    assert len(multiprocessing.active_children()) == 4
    loader.close()


def test_workers_say_what_they_cost(tmp_path: Path) -> None:
    loader = config(workers=1).sample_loader(make_samples(tmp_path), Counter())
    batches = list(loader.epoch(list(range(9))))
    loader.close()
    assert sum(batch.worker_cpu_s for batch in batches) > 0


def test_a_worker_count_above_the_processors_is_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = config(workers=(os.cpu_count() or 1) + 1).sample_loader(
            make_samples(tmp_path), Counter()
        )
        assert len(list(loader.epoch([1, 2, 3]))) == 1
        loader.close()


def test_without_pytorch_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.data", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[torch\]'"):
        config().sample_loader(make_samples(tmp_path), Counter())


def test_shared_memory_too_small_is_refused_before_a_worker_dies_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs_result((4096, 4096, 1, 1, 1, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(ConfigError, match=r"/dev/shm.*--shm-size"):
        config().sample_loader(make_samples(tmp_path), Counter())


def test_where_shared_memory_is_unknown_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARED_MEMORY", str(tmp_path / "missing"))
    loader = config().sample_loader(make_samples(tmp_path), Counter())
    loader.close()


@pytest.mark.parametrize("name", ["workers", "prefetch_factor", "bucket_bytes"])
def test_settings_below_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"loader.{name} must be 1 .*, got 0"):
        Config(**dict[str, Any]({name: 0})).check()


def test_an_unknown_start_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="forkserver, spawn, fork, got 'thread'"):
        config(start_method="thread").check()


def test_the_crc_of_an_npz_is_always_paid(tmp_path: Path) -> None:
    assert config().sample_checks_crc(make_samples(tmp_path))
    assert not config().sample_checks_crc(make_samples(tmp_path, "npy"))
    assert not config().sample_path_is_direct


def test_the_path_is_the_page_cache(tmp_path: Path) -> None:
    loader = config().sample_loader(make_samples(tmp_path), Counter())
    assert loader.path().path_requested == "page_cache"
    loader.close()


def test_files_missing_at_the_start_end_no_worker_in_a_traceback(tmp_path: Path) -> None:
    samples = replace(make_samples(tmp_path), in_memory=True)
    samples.paths[3].unlink()
    with pytest.raises(DataError, match=r"3\.npz"):
        config().sample_loader(samples, Counter())
    assert not multiprocessing.active_children()


def test_the_data_set_also_gives_single_samples(tmp_path: Path) -> None:
    assert SampleDataset(make_samples(tmp_path))[5].tensor.shape == (1, 5000)


def test_an_archive_without_the_record_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, z=np.zeros(3, dtype=np.uint8))
    with path.open("rb") as file, pytest.raises(DataError, match=r"np\.load"):
        load_payload(path, file)


def running(folder: Path, start_method: str) -> subprocess.Popen[str]:
    config = f"Config(workers=2, start_method={start_method!r})"
    samples = "make_samples(Path(sys.argv[1])), Counter()"
    imports = "from wattload.loaders.torch.loader import Config"
    return loading(folder, imports, f"{config}.sample_loader({samples})")


@pytest.mark.thorough
@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_ctrl_c_ends_the_workers_without_a_word_from_them(
    tmp_path: Path, start_method: str
) -> None:
    process = running(tmp_path, start_method)
    os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to every process of the group
    output, complaints = process.communicate(timeout=60)
    assert (output, complaints) == ("closed\n", "")
    assert process.returncode == 0
    for _ in range(50):  # the group is empty as soon as the kernel has reaped the last worker
        if not _group_lives(process.pid):
            break
        time.sleep(0.1)
    assert not _group_lives(process.pid)


@pytest.mark.parametrize(
    "start_method",
    ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.thorough)],
)
def test_no_worker_hears_ctrl_c_or_outlives_its_run(tmp_path: Path, start_method: str) -> None:
    process = running(tmp_path, start_method)
    others = [pid for pid in _living(process.pid) if pid != process.pid]
    assert len(others) >= 2
    for pid in others:
        status = Path(f"/proc/{pid}/status").read_text()
        masks = re.findall(r"Sig(?:Blk|Ign):\s+(\w+)", status)
        assert any(int(mask, 16) & 1 << signal.SIGINT - 1 for mask in masks), status
    process.kill()  # the run alone, not its group
    deadline_s = time.monotonic() + 10
    while (left := _living(process.pid)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert not left


def _living(session: int) -> list[int]:
    """Return the processes of a session, its leader included, that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, of = status.read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found.append(int(status.parent.name))
    return found


def test_a_worker_whose_run_has_gone_already_ends_at_once() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    code = f"from wattload.loaders.torch.loader import exit_with_run; exit_with_run({gone.pid}, 0)"
    worker = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert worker.returncode == 1


def test_what_the_loader_lacks_is_known_before_there_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = make_samples(tmp_path)
    for path in samples.paths:
        path.unlink()
    config().check_samples(samples, ())
    with monkeypatch.context() as changed:
        changed.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingExtraError, match=r"pip install .*\[torch\]'"):
            config().check_samples(samples, ())
    full = os.statvfs_result((4096, 4096, 1, 1, 1, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(ConfigError, match=r"/dev/shm.*--shm-size"):
        config().check_samples(samples, ())


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_loader_is_the_one_that_the_configuration_makes(tmp_path: Path) -> None:
    loader = config().sample_loader(make_samples(tmp_path), Counter())
    assert isinstance(loader, TorchLoader)
    loader.close()
