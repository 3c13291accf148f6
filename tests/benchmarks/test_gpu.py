"""The group gpu: what its programs read, what is compared, and what is said without a GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.measure import NotMeasuredError, Verdict
from benchmarks.taken import Taken
from tests.loaders.gpu.conftest import stub_environment, stub_libraries, stubs
from tests.loaders.gpu.plans import BLOCK, plan_of, stamped_file
from wattload.loaders.bounce.config import Config as Bounce

__all__ = ["stub_environment", "stub_libraries", "stubs"]

Stubs = Callable[..., None]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the peers, built."""
    return gpu.build_peers(tmp_path_factory.mktemp("peers"))


def taken(moved_bytes: int, cpu_s: float) -> Taken:
    return Taken(
        moved_bytes=moved_bytes,
        operation_count=1,
        seconds=1.0,
        cpu_s=cpu_s,
        process_cpu_s=cpu_s,
    )


def test_a_machine_without_a_gpu_says_so_and_writes_nothing(tmp_path: Path, stubs: Stubs) -> None:
    stubs(STUB_CUDA_NO_DEVICE="1")
    (result,) = gpu.measure(tmp_path, 7)
    assert result.verdict is Verdict.MISSING
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("stubs")
def test_the_peers_read_as_many_bytes_as_they_say(
    tmp_path: Path, programs: dict[str, Path]
) -> None:
    files = [stamped_file(tmp_path / f"{number}") for number in range(2)]
    plan = plan_of(*files, duration_s=0.2)
    by_copy = gpu.peers(programs["bounce"], plan)
    by_cufile = gpu.cufile_peer(programs["cufile"], plan, 3)
    for read in (by_copy, by_cufile):
        assert read.operation_count > 0
        assert read.moved_bytes == read.operation_count * BLOCK
        assert read.seconds == pytest.approx(0.2, abs=0.1)
        assert 0 < read.cpu_s <= read.process_cpu_s
    assert gpu.ours(Bounce(), plan).operation_count > 0


def test_a_peer_whose_reads_fail_is_not_measured(
    tmp_path: Path, programs: dict[str, Path], stubs: Stubs
) -> None:
    stubs(STUB_CUFILE_FAIL_EVERY="10")
    plan = plan_of(stamped_file(tmp_path / "file"), duration_s=0.1)
    with pytest.raises(NotMeasuredError, match=r"the peer cufile: \d+ reads failed"):
        gpu.cufile_peer(programs["cufile"], plan, 0)
    stubs(STUB_CUFILE_REGISTER_ERROR="5027")
    with pytest.raises(NotMeasuredError, match="cuFileHandleRegister: 5027"):
        gpu.cufile_peer(programs["cufile"], plan, 0)


def test_rates_and_costs_are_judged_against_the_peer() -> None:
    speed, cost = gpu.compare(
        "bounce ÷ peer, 4 KiB", lambda: taken(99, 0.9), lambda: taken(100, 1.0), 7
    )
    assert (speed.median, speed.verdict) == (0.99, Verdict.MET)
    assert cost.median == pytest.approx(0.9 / 0.99)
    assert cost.verdict is Verdict.MET
    assert set(speed.figures) == {"bounce", "peer", "peer again"}

    def refuse() -> Taken:
        raise NotMeasuredError("KvikIO is not installed")

    for result in gpu.compare("bounce ÷ kvikio", lambda: taken(1, 1.0), refuse, 7):
        assert result.missing == "KvikIO is not installed"


def test_copying_counts_what_is_read_and_written(programs: dict[str, Path]) -> None:
    command = [str(programs["copy"]), str(16 << 20), "0.1", "2"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert said["bytes_per_s"] > 1e8
