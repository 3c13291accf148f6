"""Which GPU reads from which target, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu_machine import divide, gpu_address, machine, on_drives
from wattload.core.errors import ConfigError
from wattload.core.host.gpus import connect, gpu_of_process
from wattload.core.sysfs import Roots

TARGETS = [on_drives(Path(f"/mnt/n{number}"), number, index=number) for number in range(8)]


@pytest.fixture
def dgx(tmp_path: Path) -> Roots:
    """A made-up machine with eight GPUs."""
    return machine(tmp_path / "machine")


def addresses(named: list[str], roots: Roots, targets: int = 8) -> list[str]:
    return [each.gpu.address for each in connect(TARGETS[:targets], named, roots)]


def test_eight_drives_over_eight_gpus(dgx: Roots) -> None:
    assert sorted(addresses([], dgx)) == [gpu_address(number) for number in range(8)]


def test_one_gpu_for_all_and_one_for_each(dgx: Roots) -> None:
    assert addresses(["3"], dgx) == [gpu_address(3)] * 8
    assert addresses(["1", f"0000{gpu_address(0)}"], dgx, targets=2) == [
        gpu_address(1),
        gpu_address(0),
    ]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["8"], r"GPU 8 does not exist; workload.gpus can be 0 \(0000:07:00.0\), 1 "),
        (["0000:65:00.0"], "GPU 0000:65:00.0 does not exist"),
        (["0", "1"], "one GPU for each of the 8 targets, or one for all, got 2"),
    ],
)
def test_gpus_that_do_not_fit_are_refused(dgx: Roots, named: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        connect(TARGETS, named, dgx)


def test_no_gpu_is_one_sentence_with_the_next_step(tmp_path: Path) -> None:
    roots = machine(tmp_path / "plain", gpus=0)
    with pytest.raises(ConfigError, match=r"no NVIDIA GPU in .*/bus/pci; use a host with one"):
        connect(TARGETS, [], roots)
    with pytest.raises(ConfigError, match=r"GPU 0 does not exist; there is no NVIDIA GPU in"):
        connect(TARGETS, ["0"], roots)


def test_an_address_is_left_to_cuda_where_the_host_shows_no_gpu(tmp_path: Path) -> None:
    hidden = Roots(sys=tmp_path / "no", proc=tmp_path / "no")
    [found] = connect(TARGETS[:1], ["65:00.0"], hidden)
    assert (found.gpu.address, found.link) == ("0000:65:00.0", "unknown")
    assert found.text() == "/mnt/n0 into GPU 0000:65:00.0, link unknown"


def test_mig_is_not_supported(dgx: Roots) -> None:
    divide(dgx, 2)
    with pytest.raises(ConfigError, match=r"divided into MIG instances.*nvidia-smi -mig 0"):
        connect(TARGETS, ["2"], dgx)
    assert gpu_address(2) not in addresses([], dgx)


def test_a_host_with_divided_gpus_only_says_so(dgx: Roots) -> None:
    for number in range(8):
        divide(dgx, number)
    with pytest.raises(ConfigError, match="divided into MIG instances"):
        connect(TARGETS, [], dgx)


def test_each_process_has_the_gpu_at_its_place(dgx: Roots) -> None:
    own = [gpu_of_process(number, 3, (), dgx) for number in range(3)]
    assert [gpu.address for gpu in own if gpu] == [gpu_address(number) for number in range(3)]
    named = gpu_of_process(1, 2, ("0", gpu_address(5)), dgx)
    assert named is not None
    assert named.address == gpu_address(5)
    divide(dgx, 0)
    first = gpu_of_process(0, 7, (), dgx)
    assert first is not None
    assert first.address == gpu_address(1)


def test_more_processes_than_gpus_are_refused(dgx: Roots, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"9 processes on this host, but it has 8 GPUs: .*most 8"):
        gpu_of_process(0, 9, (), dgx)
    with pytest.raises(ConfigError, match=r"3 processes .* workload.gpus names 2: .* at most 2"):
        gpu_of_process(0, 3, ("0", "1"), dgx)
    assert gpu_of_process(0, 1, (), machine(tmp_path / "plain", gpus=0)) is None
