"""The loader with DALI itself; without a GPU, on the CPU."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.loader import Counter, LoaderContract, make_samples, payload_of
from tests.loaders.interrupted import loading
from wattload.core.errors import ConfigError, DataError
from wattload.loaders.dali import loader as dalifiles
from wattload.loaders.dali import loader as daliloader
from wattload.loaders.dali.config import Access, Config, Device
from wattload.loaders.dali.pipeline import Pipeline
from wattload.loaders.samples import SampleSet

pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed", exc_type=ImportError)

ROOT = Path(__file__).parents[3]


def config(io: Access = Access.auto) -> Config:
    return Config(io=io, threads=2)


class TestDaliLoader(LoaderContract):
    def config(self) -> Config:
        return config()


class TestDaliLoaderThroughMappings(LoaderContract):
    def config(self) -> Config:
        return config(Access.mmap)


class TestDaliLoaderByPlainReads(LoaderContract):
    def config(self) -> Config:
        return config(Access.plain)


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def threads_end(before: int) -> bool:
    """Wait until there are no more threads than before: a joined one shows for a moment yet."""
    deadline_s = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return threads() <= before


def read_by_this_process() -> int:
    """Return the bytes that this process has got from ``read`` and its kin, O_DIRECT included."""
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


@pytest.mark.parametrize("record_format", ["npy", "npz"])
def test_no_thread_outlives_the_loader(tmp_path: Path, record_format: str) -> None:
    before = threads()
    loader = config().sample_loader(make_samples(tmp_path, record_format), Counter())
    next(loader.epoch(list(range(9))))
    assert threads() > before
    loader.close()
    assert threads_end(before)


def test_no_thread_outlives_a_failure(tmp_path: Path) -> None:
    samples, before = make_samples(tmp_path, "npy"), threads()
    samples.paths[1].write_bytes(b"no record")
    loader = config().sample_loader(samples, Counter())
    with pytest.raises(DataError) as caught:
        list(loader.epoch(list(range(9))))
    loader.close()
    assert caught.value is not None  # the error is still held, and with it what it holds
    assert threads_end(before)


def test_threads_are_counted_per_accelerator(tmp_path: Path) -> None:
    samples, counts = make_samples(tmp_path, "npy"), []
    for accelerators in (1, 3):
        loader = config().sample_loader(replace(samples, accelerators=accelerators), Counter())
        assert len(list(loader.epoch(list(range(9))))) == 3
        counts.append(threads())
        loader.close()
    assert counts[1] >= counts[0] + 4


@pytest.mark.parametrize("io", [Access.o_direct, Access.plain])
@pytest.mark.parametrize("count", [3, 9])
def test_nothing_is_read_beyond_the_end_of_an_epoch(tmp_path: Path, io: Access, count: int) -> None:
    samples, order = large_samples(tmp_path), list(range(count))
    loader = config(io).sample_loader(samples, Counter())
    before = read_by_this_process()
    assert len(list(loader.epoch(order))) == count // 3
    loader.close()
    asked = sum(samples.file_bytes[index] for index in order)
    assert asked <= read_by_this_process() - before < asked + samples.file_bytes[0] // 2


def large_samples(folder: Path) -> SampleSet:
    """Return records of 1 MiB, beside which headers are nothing."""
    paths = tuple(folder / f"{index}.npy" for index in range(9))
    for path in paths:
        np.save(path, np.ones((1 << 10, 1 << 10, 1), dtype=np.uint8))
    return SampleSet(
        paths=paths,
        file_bytes=tuple(path.stat().st_size for path in paths),
        record_format="npy",
        batch_samples=3,
        resize_bytes=5000,
    )


def test_before_linux_6_6_the_padding_lies_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "missing"))
    files = dalifiles.SideFiles()
    path = files.padding(lambda path: "/proc/" not in path)
    assert path is not None
    assert Path(path).parent == Path("/var/tmp")
    assert np.load(path).shape == (1, 1, 1)
    files.close()
    assert not Path(path).exists()


def test_without_any_padding_the_smallest_record_is_read_on_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daliloader, "takes_direct", lambda _: False)
    samples = make_samples(tmp_path, "npy")
    loader = config(Access.o_direct).sample_loader(samples, Counter())
    seen = [batch.indices for batch in loader.epoch([5, 4, 3, 2, 1, 0])]
    assert seen == [(5, 4, 3), (2, 1, 0)]
    assert "smallest record" in loader.path().remarks[0]
    loader.close()


def test_padding_for_cufile_lies_on_a_block_device_under_its_own_name(tmp_path: Path) -> None:
    files = dalifiles.SideFiles()
    memory = files.in_memory(BytesIO(b"1"))
    assert not dalifiles.on_block_device(memory)
    path = files.padding(lambda path: path != memory and "/proc/" not in path)
    assert path is not None
    assert Path(path).resolve() == Path(path)
    assert np.load(path).shape == (1, 1, 1)
    files.close()
    assert not Path(path).exists()


def test_what_dali_can_not_do_at_all_is_said_before_a_sample_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dalifiles.SideFiles, "padding", lambda *_, **__: str(tmp_path))
    with pytest.raises(ConfigError, match="DALI failed to read a test record") as caught:
        config().sample_loader(make_samples(tmp_path, "npy"), Counter())
    assert "\n" not in str(caught.value)


def test_files_in_memory_that_refuse_o_direct_are_read_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daliloader, "takes_direct", lambda _: False)
    samples = replace(make_samples(tmp_path, "npy"), in_memory=True)
    loader = config(Access.o_direct).sample_loader(samples, Counter())
    (batch,) = loader.epoch([5, 1, 4])
    assert batch.tensor[0].tobytes() == payload_of(5)[:5000].tobytes()
    loader.close()


@pytest.mark.parametrize("io", list(Access))
@pytest.mark.parametrize("record_format", ["npy", "npz"])
def test_a_missing_file_is_one_sentence(tmp_path: Path, io: Access, record_format: str) -> None:
    if (io, record_format) == (Access.o_direct, "npz"):
        pytest.skip("DALI reads no npz by O_DIRECT")
    samples = make_samples(tmp_path, record_format)
    samples.paths[4].unlink()
    loader = config(io).sample_loader(samples, Counter())
    with pytest.raises(DataError, match=rf"^{samples.paths[4]} can't be read: No such file"):
        list(loader.epoch(list(range(9))))
    loader.close()


def test_an_error_whose_words_are_no_text_is_one_sentence_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Pipeline) -> None:
        b"it has \xc1\xff in its header".decode()

    samples = make_samples(tmp_path, "npy")
    samples.paths[4].write_bytes(b"")
    loader = config(Access.plain).sample_loader(samples, Counter())
    monkeypatch.setattr(Pipeline, "next_output", fail)
    with pytest.raises(DataError, match=rf"^{samples.paths[4]} is not npy"):
        list(loader.epoch(list(range(9))))
    loader.close()


@pytest.mark.parametrize("io", [Access.o_direct, Access.mmap, Access.plain])
def test_an_empty_file_is_one_sentence(tmp_path: Path, io: Access) -> None:
    samples = make_samples(tmp_path, "npy")
    samples.paths[4].write_bytes(b"")
    loader = config(io).sample_loader(samples, Counter())
    with pytest.raises(DataError, match=rf"^{samples.paths[4]} is not npy"):
        list(loader.epoch(list(range(9))))
    loader.close()


def test_arrays_of_another_type_throughout_are_no_records(tmp_path: Path) -> None:
    samples = make_samples(tmp_path, "npy")
    for path in samples.paths:
        np.save(path, np.zeros((10, 7, 1)))
    loader = config().sample_loader(samples, Counter())
    with pytest.raises(DataError, match=rf"^{samples.paths[2]} holds '<f8'"):
        list(loader.epoch([2, 3, 4]))
    loader.close()


def test_what_dali_alone_objects_to_is_said_in_its_words(tmp_path: Path) -> None:
    samples = make_samples(tmp_path, "npy")
    np.save(samples.paths[4], payload_of(4))
    loader = config().sample_loader(samples, Counter())
    with pytest.raises(DataError, match="same number of dimensions") as caught:
        list(loader.epoch([3, 4, 5]))
    assert "\n" not in str(caught.value)
    loader.close()


def test_files_missing_at_the_start_are_one_sentence(tmp_path: Path) -> None:
    samples = replace(make_samples(tmp_path, "npy"), in_memory=True)
    samples.paths[3].unlink()
    with pytest.raises(DataError, match=r"3\.npy can't be read: No such file"):
        config().sample_loader(samples, Counter())


def test_an_earlier_epoch_ends_when_the_next_begins(tmp_path: Path) -> None:
    loader = config().sample_loader(make_samples(tmp_path, "npy"), Counter())
    earlier = loader.epoch(list(range(9)))
    next(earlier)
    loader.epoch([1, 2, 3])
    with pytest.raises(RuntimeError, match="ended before its last batch"):
        next(earlier)
    loader.close()


def test_decoding_is_timed(tmp_path: Path) -> None:
    loader = config().sample_loader(make_samples(tmp_path), Counter())
    assert all(batch.decode_s for batch in loader.epoch(list(range(9))))
    loader.close()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this host has a GPU")
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"loader\.device=gpu needs a GPU"):
        Config(device=Device.gpu).check_samples(make_samples(tmp_path, "npy"), ())


@pytest.mark.slow
@pytest.mark.parametrize("close", ["loader.close()", "pass"])
def test_ctrl_c_ends_it_without_a_word_of_dali_closed_or_not(tmp_path: Path, close: str) -> None:
    imports = "from wattload.loaders.dali.config import Config"
    loader = 'Config(threads=2).sample_loader(make_samples(Path(sys.argv[1]), "npy"), Counter())'
    process = loading(tmp_path, imports, loader, close=close)
    os.killpg(process.pid, signal.SIGINT)
    output, complaints = process.communicate(timeout=60)
    assert (output, complaints) == ("closed\n", "")
    assert process.returncode == 0
