"""NVMe controllers of recorded machines: facts, PCIe links, and the change during a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.data.sysfs.tree import expand, write
from wattload.core.record.target import ControllerState, SmartState
from wattload.core.storage.controllers import (
    NEEDS_ADMIN_QUEUE,
    PciFunction,
    controller_facts,
    controller_state,
    difference,
    link_warning,
    list_controllers,
)
from wattload.core.sysfs import Roots, with_values


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
    assert "the drive that holds root is unknown" in facts.missing["holds_system"]


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
    merged = with_values(
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
    merged = with_values(facts, {"nvme_version": "2.0.0"}, {"power_states": "refused"})
    assert merged.nvme_version == "2.0.0"
    assert merged.missing == {"power_states": "refused", "power": "needs the admin queue"}


def test_controllers_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        (tmp_path / f"sys/class/nvme/nvme{number}").mkdir(parents=True)
    assert list_controllers(Roots(sys=tmp_path / "sys")) == ("nvme0", "nvme2", "nvme10")


def test_a_host_without_nvme_has_no_controllers(tmp_path: Path) -> None:
    assert list_controllers(Roots(sys=tmp_path)) == ()


def function(folder: Path, *, control: int = 0, link: int = 0, flags: int = 2) -> PciFunction:
    """Return a function whose PCI Express capability stands behind another one."""
    space = bytearray(256)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes([0x01, 0x60])
    space[0x60:0x62] = bytes([0x10, 0x00])
    space[0x62:0x64] = flags.to_bytes(2, "little")
    space[0x68:0x6A] = control.to_bytes(2, "little")
    space[0x70:0x72] = link.to_bytes(2, "little")
    (folder / "config").write_bytes(space)
    return PciFunction(folder)


@pytest.mark.parametrize(
    ("control", "payload", "read_request"),
    [(0x0000, 128, 128), (0x2810, 128, 512), (0x5050, 512, 4096), (0x2020, 256, 512)],
)
def test_payload_and_read_request_sizes(
    tmp_path: Path, control: int, payload: int, read_request: int
) -> None:
    pci = function(tmp_path, control=control)
    assert (pci.max_payload_bytes(), pci.max_read_request_bytes()) == (payload, read_request)


@pytest.mark.parametrize(("bits", "text"), [(0, "off"), (1, "L0s"), (2, "L1"), (0x43, "L0s L1")])
def test_aspm_is_read_from_link_control(tmp_path: Path, bits: int, text: str) -> None:
    assert function(tmp_path, link=bits).aspm() == text


def test_an_integrated_function_has_aspm_off(tmp_path: Path) -> None:
    assert function(tmp_path, link=2, flags=0x92).aspm() == "off"


def test_without_root_aspm_comes_from_the_kernels_switches(tmp_path: Path) -> None:
    pci = PciFunction(tmp_path)
    (tmp_path / "config").write_bytes(bytes(64))
    with pytest.raises(ValueError, match="only root can read"):
        pci.aspm()
    (tmp_path / "link").mkdir()
    (tmp_path / "link/l1_aspm").write_text("0\n")
    assert pci.aspm() == "off"
    (tmp_path / "link/l1_aspm").write_text("1\n")
    assert pci.aspm() == "L1"
    with pytest.raises(ValueError, match="only root can read"):
        pci.max_payload_bytes()


def test_a_function_without_the_capability_reports_it(tmp_path: Path) -> None:
    space = bytearray(256)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes([0x01, 0x40])  # a list that bites its tail
    (tmp_path / "config").write_bytes(space)
    with pytest.raises(ValueError, match="no PCI Express capability"):
        PciFunction(tmp_path).max_payload_bytes()


def test_a_link_speed_without_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "max_link_speed").write_text("Unknown\n")
    with pytest.raises(ValueError, match="the function has no PCI Express link"):
        PciFunction(tmp_path).link_speed_gt_per_s("max")


@pytest.mark.parametrize("generation", [2.5, 8.0, 16.0, 32.0, 64.0])
def test_link_speeds_are_in_gt_per_s(tmp_path: Path, generation: float) -> None:
    (tmp_path / "current_link_speed").write_text(f"{generation} GT/s PCIe\n")
    assert PciFunction(tmp_path).link_speed_gt_per_s("current") == generation


def smart(**values: int) -> SmartState:
    names = [name for name in SmartState.model_fields if name != "missing"]
    return SmartState(
        **{name: values.get(name) for name in names},
        missing={name: "not read" for name in names if name not in values},
    )


def state(**values: Any) -> ControllerState:
    names = [name for name in ControllerState.model_fields if name != "missing"]
    return ControllerState(
        **{name: values.get(name) for name in names},
        missing={name: "not read" for name in names if name not in values},
    )


def test_counters_grow_by_what_the_run_did() -> None:
    before = state(
        smart=smart(
            read_bytes=10, written_bytes=100, media_errors=0, unsafe_shutdowns=4,
            thermal_transitions_1=1, thermal_transitions_2=0,
        ),
        media_written_bytes=1000,
        aer_counts={"correctable_total": 1, "correctable_RxErr": 1, "fatal_total": 0},
    )  # fmt: skip
    after = state(
        smart=smart(
            read_bytes=30, written_bytes=300, media_errors=1, unsafe_shutdowns=4,
            thermal_transitions_1=3, thermal_transitions_2=1,
        ),
        media_written_bytes=1500,
        aer_counts={"correctable_total": 3, "correctable_RxErr": 3, "fatal_total": 1},
    )  # fmt: skip
    found = difference(before, after)
    assert found.model_dump(exclude={"missing"}) == {
        "changed": (),
        "read_bytes": 20,
        "written_bytes": 200,
        "media_written_bytes": 500,
        "write_amplification": 2.5,
        "thermal_transitions": 3,
        "media_errors": 1,
        "unsafe_shutdowns": 0,
        "aer_count": 3,
    }


def test_settings_that_moved_are_named() -> None:
    before = state(power_state=0, firmware="A1", link_width=4, aspm="off")
    after = state(power_state=1, firmware="A2", link_width=4, link_speed_gt_per_s=8.0, aspm="off")
    assert difference(before, after).changed == ("firmware", "power_state")


def test_what_was_not_read_has_no_figure() -> None:
    found = difference(state(), state(smart=smart(read_bytes=5)))
    assert found.read_bytes is None
    assert found.missing["read_bytes"] == "it could not be read before the run"
    assert found.missing["thermal_transitions"] == "it could not be read before the run"
    assert "host and media byte counters" in found.missing["write_amplification"]


def test_a_counter_that_fell_has_no_figure() -> None:
    found = difference(state(media_written_bytes=9), state(media_written_bytes=3))
    assert found.missing["media_written_bytes"].startswith("the counter fell from 9 to 3")


@pytest.mark.parametrize("media", [0, 7])
def test_without_writes_there_is_no_amplification(media: int) -> None:
    before = state(smart=smart(written_bytes=5), media_written_bytes=1)
    after = state(smart=smart(written_bytes=5), media_written_bytes=1 + media)
    assert difference(before, after).missing["write_amplification"] == "nothing was written"
