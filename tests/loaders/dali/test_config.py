"""The settings of ``loader=dali``: none of these tests needs DALI itself."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.context import directory_target
from tests.contracts.loader import make_samples
from wattload.core import workload as core_workload
from wattload.core.errors import ConfigError, MissingExtraError, TargetError
from wattload.core.storage.file_system import DirectIo
from wattload.core.workload import require_installed
from wattload.loaders.dali import config as module
from wattload.loaders.dali.config import Access, Config, Device
from wattload.loaders.dali.loader import one_line, wrong_size
from wattload.run.compose import compose


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs only to know that DALI is there is told so."""
    monkeypatch.setattr(module, "require_installed", lambda *_, **__: None)


def test_the_option_composes(tmp_path: Path) -> None:
    config, _ = compose(["loader=dali", f"target.path={tmp_path}", "loader.io=o_direct"])
    assert config.loader == Config(io=Access.o_direct)


@pytest.mark.parametrize("name", ["threads", "prefetch_queue_depth", "reader_queue_depth"])
def test_settings_below_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"loader.{name} must be 1 .*, got 0"):
        Config(**dict[str, Any]({name: 0})).check()


def test_a_way_for_the_cpu_is_refused_on_the_gpu() -> None:
    with pytest.raises(ConfigError, match=r"loader\.io must be auto"):
        Config(device=Device.gpu, io=Access.mmap).check()
    Config(device=Device.gpu).check()


@pytest.mark.parametrize("config", [Config(io=Access.o_direct), Config(device=Device.gpu)])
def test_what_needs_the_numpy_reader_refuses_npz_and_says_what_to_do(
    tmp_path: Path, config: Config, installed: None
) -> None:
    with pytest.raises(ConfigError, match=r"reads no npz; use workload\.record_format=npy"):
        config.check_samples(make_samples(tmp_path), ())


@pytest.mark.parametrize(
    ("io", "record_format", "requested"),
    [
        (Access.auto, "npy", "o_direct"),
        (Access.auto, "npz", "mmap"),
        (Access.o_direct, "npy", "o_direct"),
        (Access.mmap, "npy", "mmap"),
        (Access.plain, "npz", "page_cache"),
    ],
)
def test_the_path_is_what_was_asked_for(
    tmp_path: Path, io: Access, record_format: str, requested: str
) -> None:
    path = Config(io=io).path(make_samples(tmp_path, record_format))
    assert path.path_requested == requested
    assert path.path_effective == "unverified"
    assert bool(path.remarks) == (record_format == "npz")


def test_a_gpu_reads_through_cufile(tmp_path: Path) -> None:
    path = Config(device=Device.gpu).path(make_samples(tmp_path, "npy"))
    assert (path.path_requested, path.path_effective) == ("cufile", "unverified")


def test_o_direct_needs_a_target_that_takes_it(tmp_path: Path, installed: None) -> None:
    npy, npz = make_samples(tmp_path, "npy"), make_samples(tmp_path)
    target = directory_target(tmp_path)
    none = replace(target, direct_io=None, direct_io_missing="the test says so")
    coarse = DirectIo(memory_align_bytes=4096, offset_align_bytes=16384, found_by="test")
    Config().check_samples(npy, [target])
    with pytest.raises(TargetError, match=r"the test says so.*loader\.io=mmap"):
        Config().check_samples(npy, [none])
    with pytest.raises(TargetError, match="multiples of 16384 bytes"):
        Config(io=Access.o_direct).check_samples(npy, [replace(target, direct_io=coarse)])
    Config().check_samples(npz, [none])
    Config(io=Access.plain).check_samples(npy, [none])


def test_only_o_direct_by_name_needs_it_before_the_format_is_known() -> None:
    assert Config(io=Access.o_direct).sample_path_is_direct
    assert not Config().sample_path_is_direct


def test_without_dali_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = make_samples(tmp_path, "npy")
    with monkeypatch.context() as changed:
        changed.setattr(core_workload, "find_spec", lambda _: None)
        with pytest.raises(MissingExtraError, match=r"pip install .*\[dali\]'"):
            Config().check_samples(samples, ())
    if importlib.util.find_spec("nvidia") is None:
        with pytest.raises(MissingExtraError, match=r"pip install .*\[dali\]'"):
            Config().check_samples(samples, ())
    monkeypatch.setitem(sys.modules, "nvidia.dali.fn", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[dali\]'"):
        Config().sample_loader(samples, lambda _: None)


def test_nothing_of_nvidia_installed_is_dali_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(core_workload, "find_spec", absent)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[dali\]'"):
        require_installed([module.DALI], user="loader=dali")


def test_a_crc_is_paid_for_only_where_it_was_asked_for(tmp_path: Path) -> None:
    npz, npy = make_samples(tmp_path), make_samples(tmp_path, "npy")
    assert not Config().sample_checks_crc(npz)
    assert Config().sample_checks_crc(replace(npz, check_crc=True))
    assert not Config().sample_checks_crc(replace(npy, check_crc=True))


def test_memory_counts_whole_payloads_of_every_batch_under_way(tmp_path: Path) -> None:
    samples = make_samples(tmp_path, "npy")
    least = sum(sorted(samples.file_bytes)[-samples.batch_samples :])
    assert Config(prefetch_queue_depth=5).sample_memory_bytes(samples) > 7 * least
    one = replace(samples, paths=samples.paths[:1], file_bytes=(1000,), in_memory=True)
    of_one = Config().sample_memory_bytes(one)
    assert of_one == 5 * 3 * 1000 + 3 * one.batch_bytes + 1000


def test_the_record_says_why_decoding_is_not_timed() -> None:
    assert "reports no times" in Config().sample_decode_timed


def test_a_file_that_got_shorter_is_seen_by_its_size(tmp_path: Path) -> None:
    samples = make_samples(tmp_path, "npy")
    sources = [str(path) for path in samples.paths]
    assert wrong_size(samples, sources, [3, 4, 5]) is None
    samples.paths[4].write_bytes(samples.paths[4].read_bytes()[:-1])
    assert "4.npy is truncated: expected" in str(wrong_size(samples, sources, [3, 4, 5]))


def test_an_error_of_dali_becomes_one_line() -> None:
    error = RuntimeError(
        "Critical error in pipeline:\nError in CPU operator `nvidia.dali.fn.readers.numpy`,\n"
        'which was used ...:\n\n  File "x.py", line 14, in <module>\n\nencountered:\n\n'
        'Assert on "p != nullptr" failed: Failed to read file: /a/cut.npy\n'
        "C++ context: [/opt/dali/dali/operators/reader/loader/numpy_loader.cc:112] \n"
        "Current pipeline object is no longer valid."
    )
    assert one_line(error) == "Failed to read file: /a/cut.npy"
    assert one_line(RuntimeError("")) == "RuntimeError"
