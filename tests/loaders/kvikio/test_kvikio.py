"""loader=kvikio: its reads, its counters and its refusals, against a small KvikIO."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.block_reads import BlockReadsContract
from tests.loaders.gpu.plans import BLOCK, GPU, plan_of, read, stamped_file
from tests.loaders.kvikio.conftest import FAKES
from wattload.core import workload as core_workload
from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.histogram import bucket_of
from wattload.loaders.block_reads import BlockReadConfig
from wattload.loaders.kvikio import Config, buckets_of
from wattload.run.compose import compose

Fakes = Callable[..., None]


class TestReads(BlockReadsContract):
    block_bytes, gpu = BLOCK, GPU

    @pytest.fixture(autouse=True)
    def _installed(self, fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(FAKES)

    def config(self) -> BlockReadConfig:
        return Config()


def test_its_yaml_composes_to_its_own_settings() -> None:
    run, _ = compose(["loader=kvikio", "target.path=/tmp", "loader.call=raw_read"])
    assert run.loader == Config(call="raw_read")
    assert isinstance(run.loader, BlockReadConfig)
    with pytest.raises(ConfigError, match=r"loader\.call must be one of read, raw_read"):
        Config(call="pread").check()


def test_without_kvikio_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_workload, "find_spec", lambda name: None)
    plan = plan_of(stamped_file(tmp_path / "file"))
    with pytest.raises(MissingExtraError, match=r"needs KvikIO and CuPy.*\[kvikio\]"):
        Config().check_block_reads(plan, [])


@pytest.mark.parametrize("backend", ["POSIX", "GDS"])
@pytest.mark.parametrize("call", ["read", "raw_read"])
def test_every_call_delivers_the_files_and_counts_exactly(
    call: str, backend: str, tmp_path: Path, fakes: Fakes
) -> None:
    fakes(FAKE_KVIKIO_BACKEND=backend, FAKE_KVIKIO_SETTINGS=str(tmp_path / "settings"))
    files = [stamped_file(tmp_path / f"{number}", word=number) for number in range(2)]
    result = read(Config(call=call), plan_of(*files), tmp_path)
    assert result.operations > 0
    assert result.counts is not None
    assert result.latency is not None
    assert result.latency.count == sum(result.file_operations) == result.operations
    assert (result.bad_blocks, result.failures) == (0, ())
    # Each of 4 threads compares a read before, one after, and its last timed read, if it got a core
    # in that time.
    assert 8 * BLOCK <= result.compared_bytes <= 12 * BLOCK
    assert result.counts.library_reads == result.counts.posix_reads == result.counts.reads
    assert result.counts.word == "posix_bounce"
    assert result.software["kvikio"] == "26.10.00"
    settings = json.loads((tmp_path / "settings").read_text())
    assert (settings["gds_threshold"], settings["auto_direct_io_read"]) == (0, True)
    assert (settings["num_threads"], settings["task_size"]) == (4, BLOCK)
    kept = json.loads((tmp_path / "cufile.json").read_text())
    assert kept["properties"] == {"max_direct_io_size_kb": 1024}


@pytest.mark.parametrize(
    ("path", "word"), [("p2p", "p2p_pci"), ("peer", "p2p_via_peer_gpu"), ("none", "unverified")]
)
def test_its_path_is_what_cufile_counted(
    path: str, word: str, tmp_path: Path, fakes: Fakes
) -> None:
    fakes(FAKE_KVIKIO_BACKEND="GDS", STUB_CUFILE_PATH=path)
    result = read(Config(), plan_of(stamped_file(tmp_path / "file")), tmp_path)
    assert result.counts is not None
    assert result.counts.word == word


def test_wrong_bytes_are_found(tmp_path: Path, fakes: Fakes) -> None:
    fakes(FAKE_KVIKIO_BACKEND="GDS", STUB_CUFILE_ZEROS="1")
    result = read(Config(), plan_of(stamped_file(tmp_path / "file")), tmp_path)
    assert result.bad_blocks == 12 * 8


def test_failed_reads_are_counted_and_in_no_other_figure(tmp_path: Path, fakes: Fakes) -> None:
    fakes(FAKE_KVIKIO_FAIL_EVERY="5")
    result = read(Config(), plan_of(stamped_file(tmp_path / "file")), tmp_path)
    failed = result.failed
    assert result.counts is not None
    assert failed == pytest.approx(result.counts.reads / 4, rel=0.1)
    assert result.counts.library_reads == result.counts.reads


def test_latencies_are_sorted_into_the_buckets_of_the_histogram() -> None:
    values = np.array([0, 1, 63, 64, 127, 128, 129, 4095, 4096, 10**9, 1 << 45], dtype=np.uint64)
    assert list(buckets_of(values)) == [bucket_of(int(value)) for value in values]
    random = np.random.default_rng(0).integers(0, 1 << 40, 1000).astype(np.uint64)
    assert list(buckets_of(random)) == [bucket_of(int(value)) for value in random]
