"""NVMe controllers as recorded machines show them, and what the admin queue adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.sysfs.tree import expand, write
from wattload.core.nvme_sysfs import (
    NEEDS_ADMIN_QUEUE,
    controller_facts,
    controller_state,
    link_warning,
    list_controllers,
    merge_controller_facts,
    merge_controller_state,
)
from wattload.core.record.controller import ControllerState
from wattload.core.sysfs import Roots


@pytest.fixture
def gen5(tmp_path: Path) -> Roots:
    return expand("gen5_in_gen4_slot", tmp_path / "machine", tmp_path / "target")


def test_identity_comes_without_padding(gen5: Roots) -> None:
    facts = controller_facts("nvme0", host="box", roots=gen5)
    assert facts.model_dump(exclude={"missing", "nvme_version", "power_states", "power"}) == {
        "host": "box",
        "serial": "S7ABCD0X000001",
        "name": "nvme0",
        "model": "SAMSUNG MZWLO3T8HCLS-00A07",
        "vendor_id": "0x144d",
        "transport": "pcie",
        "address": "0000:c1:00.0",
        "numa_node": 1,
        "link_speed_max_gt_per_s": 32.0,
        "link_width_max": 4,
        "holds_system": False,
    }
    assert set(facts.missing.values()) == {NEEDS_ADMIN_QUEUE}


def test_a_gen5_drive_in_a_gen4_slot_shows(gen5: Roots) -> None:
    facts = controller_facts("nvme0", host="box", roots=gen5)
    state = controller_state("nvme0", gen5)
    assert (state.link_speed_gt_per_s, state.link_width) == (16.0, 4)
    warning = link_warning(facts, state)
    assert warning is not None
    assert "16 of 32 GT/s" in warning
    assert "lanes" not in warning


def test_a_narrow_link_shows(gen5: Roots) -> None:
    pci = (gen5.sys / "class/nvme/nvme0/device").resolve()
    write(pci / "current_link_width", "2\n")
    write(pci / "current_link_speed", "32.0 GT/s PCIe\n")
    facts = controller_facts("nvme0", host="box", roots=gen5)
    warning = link_warning(facts, controller_state("nvme0", gen5))
    assert warning is not None
    assert warning.endswith("2 of 4 lanes")


def test_a_link_at_its_best_is_no_warning(tmp_path: Path) -> None:
    roots = expand("lvm_md_nvme", tmp_path / "machine", tmp_path)
    facts = controller_facts("nvme3", host="box", roots=roots)
    assert link_warning(facts, controller_state("nvme3", roots)) is None


def test_the_state_holds_what_sysfs_knows(gen5: Roots) -> None:
    state = controller_state("nvme0", gen5)
    known = state.model_dump(exclude_none=True, exclude={"missing"})
    assert known == {
        "firmware": "OPPA4B5Q",
        "lba_bytes": 512,
        "namespace_size_bytes": 7_501_476_528 * 512,
        "namespace_used_bytes": 468_842_283 * 512,
        "pm_qos_latency_us": "100000",
        "aspm": "L1",
        "link_speed_gt_per_s": 16.0,
        "link_width": 4,
        "max_payload_bytes": 512,
        "max_read_request_bytes": 512,
        "aer_counts": {
            "correctable_RxErr": 3,
            "correctable_total": 3,
            "nonfatal_total": 0,
            "fatal_total": 0,
        },
    }
    assert state.missing["power_state"] == NEEDS_ADMIN_QUEUE


def test_the_kernels_sensor_gives_the_temperature_to_every_user(tmp_path: Path) -> None:
    roots = expand("nvme_partition", tmp_path / "machine", tmp_path)
    smart = controller_state("nvme0", roots).smart
    assert smart is not None
    assert smart.temperature_k == 323  # QEMU's constant; the sensor showed 49850
    assert smart.missing["read_bytes"] == NEEDS_ADMIN_QUEUE


def test_an_integrated_function_has_no_link(tmp_path: Path) -> None:
    roots = expand("nvme_partition", tmp_path / "machine", tmp_path)
    facts = controller_facts("nvme0", host="box", roots=roots)
    state = controller_state("nvme0", roots)
    assert "no PCI Express link" in facts.missing["link_speed_max_gt_per_s"]
    assert "no PCI Express link" in state.missing["link_width"]
    assert state.missing["aer_counts"] == "the kernel does not show aer_dev_correctable"
    assert link_warning(facts, state) is None


def test_swap_makes_a_drive_the_systems(tmp_path: Path) -> None:
    roots = expand("nvme_partition", tmp_path / "machine", tmp_path)
    assert controller_facts("nvme0", host="box", roots=roots).holds_system is True


def test_an_unknown_root_leaves_it_open(tmp_path: Path) -> None:
    roots = expand("lvm_md_nvme", tmp_path / "machine", tmp_path)
    facts = controller_facts("nvme3", host="box", roots=roots)
    assert facts.holds_system is None
    assert "what holds root is not known" in facts.missing["holds_system"]


def test_namespaces_of_different_blocks_have_no_common_one(gen5: Roots) -> None:
    folder = (gen5.sys / "class/nvme/nvme0").resolve()
    write(folder / "nvme0n2/size", "8000\n")
    write(folder / "nvme0n2/nuse", "10\n")
    write(folder / "nvme0n2/queue/logical_block_size", "4096\n")
    state = controller_state("nvme0", gen5)
    assert state.missing["lba_bytes"] == "its namespaces have different block sizes"
    assert state.namespace_size_bytes == (7_501_476_528 + 8000) * 512
    assert state.namespace_used_bytes == 468_842_283 * 512 + 10 * 4096


def test_a_controller_without_namespace_has_reasons(tmp_path: Path) -> None:
    (tmp_path / "sys/class/nvme/nvme0").mkdir(parents=True)
    state = controller_state("nvme0", Roots(sys=tmp_path / "sys"))
    assert state.missing["lba_bytes"] == "the controller shows no namespace"
    assert state.missing["firmware"] == "the kernel does not show firmware_rev"


def test_the_admin_queue_fills_gaps_and_its_refusal_keeps_sysfs(gen5: Roots) -> None:
    state = controller_state("nvme0", gen5)
    merged = merge_controller_state(
        state,
        {"power_state": 2, "firmware_slot": None},
        {"firmware_slot": "needs CAP_SYS_ADMIN", "firmware": "needs CAP_SYS_ADMIN"},
    )
    assert merged.power_state == 2
    assert merged.firmware == "OPPA4B5Q"
    assert merged.missing["firmware_slot"] == "needs CAP_SYS_ADMIN"
    assert merged.missing["apst_table"] == NEEDS_ADMIN_QUEUE
    assert isinstance(merged, ControllerState)


def test_facts_take_the_version(gen5: Roots) -> None:
    facts = controller_facts("nvme0", host="box", roots=gen5)
    merged = merge_controller_facts(facts, {"nvme_version": "2.0.0"}, {"power_states": "refused"})
    assert merged.nvme_version == "2.0.0"
    assert merged.missing == {"power_states": "refused", "power": "needs the admin queue"}


def test_controllers_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        (tmp_path / f"sys/class/nvme/nvme{number}").mkdir(parents=True)
    assert list_controllers(Roots(sys=tmp_path / "sys")) == ("nvme0", "nvme2", "nvme10")


def test_a_host_without_nvme_has_no_controllers(tmp_path: Path) -> None:
    assert list_controllers(Roots(sys=tmp_path)) == ()
