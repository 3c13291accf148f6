"""The GPUs of recorded hosts: which is the nearest, and which one a target or a process gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu_machine import device, divide, gpu_address, machine, on_disk, on_drives, virtio_disk
from wattload.core.errors import ConfigError
from wattload.core.host.gpus import (
    connect,
    drive_node,
    drive_places,
    find_gpu,
    gpu_of_process,
    link_between,
    list_gpus,
    nearest_gpus,
    normal_address,
)
from wattload.core.sysfs import Roots


@pytest.fixture
def dgx(tmp_path: Path) -> Roots:
    """A made-up machine with eight GPUs."""
    return machine(tmp_path / "machine")


def test_gpus_are_numbered_in_pci_order_and_switches_are_none(dgx: Roots) -> None:
    found = list_gpus(dgx)
    assert [gpu.address for gpu in found] == [gpu_address(number) for number in range(8)]
    assert {gpu.name for gpu in found} == {"NVIDIA A100-SXM4-40GB"}
    assert [(gpu.node, gpu.cpus) for gpu in found[3:5]] == [(0, "0-63"), (1, "64-127")]


def test_gpus_are_found_without_a_driver(tmp_path: Path) -> None:
    found = list_gpus(machine(tmp_path, has_driver=False))
    assert len(found) == 8
    assert {gpu.name for gpu in found} == {None}


def test_a_container_counts_its_own_gpus_only(dgx: Roots) -> None:
    for number in (0, 1, 2):
        folder = dgx.proc / "driver/nvidia/gpus" / gpu_address(number)
        (folder / "information").unlink()
        folder.rmdir()
    assert list_gpus(dgx)[0].address == gpu_address(3)


def test_a_host_without_gpus_has_none(tmp_path: Path) -> None:
    assert list_gpus(machine(tmp_path, gpus=0)) == ()
    assert list_gpus(Roots(sys=tmp_path / "no", proc=tmp_path / "no")) == ()


def test_a_gpu_that_is_not_shown_has_an_address_only(tmp_path: Path) -> None:
    gpu = find_gpu("0000:65:00.0", Roots(sys=tmp_path / "no", proc=tmp_path / "no"))
    assert (gpu.name, gpu.node, gpu.pci_path) == (None, None, ())


def test_eight_drives_use_eight_gpus_each_below_its_own_switch(dgx: Roots) -> None:
    gpus = list_gpus(dgx)
    places = [drive_places(on_drives(Path("/mnt"), number), dgx) for number in range(8)]
    chosen = nearest_gpus(places, gpus)
    assert {gpu.address for gpu in chosen} == {gpu.address for gpu in gpus}
    links = {link_between(gpu, place) for gpu, place in zip(chosen, places, strict=True)}
    assert links == {"same switch"}


@pytest.mark.parametrize(
    ("gpu", "drive", "link"),
    [(1, 0, "same switch"), (2, 0, "same node"), (7, 0, "another node"), (4, 4, "same switch")],
)
def test_links_by_distance(dgx: Roots, gpu: int, drive: int, link: str) -> None:
    places = drive_places(on_drives(Path("/mnt"), drive), dgx)
    assert link_between(list_gpus(dgx)[gpu], places) == link


def test_a_gpu_on_another_port_of_the_same_root_complex(dgx: Roots) -> None:
    device(dgx, "pci0000:40/0000:40:03.1/0000:60:00.0", "0x10de", "0x030200", 0)
    places = drive_places(on_drives(Path("/mnt"), 2), dgx)
    assert link_between(find_gpu("0000:60:00.0", dgx), places) == "same root complex"


def test_an_array_is_as_far_as_its_farthest_drive(dgx: Roots) -> None:
    places = drive_places(on_drives(Path("/mnt"), 0, 7), dgx)
    assert link_between(list_gpus(dgx)[0], places) == "another node"
    assert drive_node(places) is None


def test_other_disks_are_near_by_node(dgx: Roots) -> None:
    virtio_disk(dgx, "vda", node=1)
    places = drive_places(on_disk(Path("/mnt"), "vda"), dgx)
    (gpu,) = nearest_gpus([places], list_gpus(dgx))
    assert (gpu.address, gpu.node) == (gpu_address(4), 1)
    assert link_between(gpu, places) == "same node"


def test_a_platform_without_nodes_leaves_links_unknown(dgx: Roots) -> None:
    virtio_disk(dgx, "vda", node=-1)
    places = drive_places(on_disk(Path("/mnt"), "vda"), dgx)
    assert link_between(list_gpus(dgx)[0], places) == "unknown"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:65:00.0", "0000:65:00.0"),
        ("0000:E1:00.0", "0000:e1:00.0"),
        ("65:00.0", "0000:65:00.0"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("3", None),
        ("gpu0", None),
    ],
)
def test_addresses_as_nvidia_smi_writes_them(text: str, address: str | None) -> None:
    assert normal_address(text) == address


TARGETS = [on_drives(Path(f"/mnt/n{number}"), number, index=number) for number in range(8)]


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
