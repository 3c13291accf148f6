"""PCI Express configuration space, decoded by hand here."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattload.core.pci import PciFunction


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
def test_aspm_is_what_link_control_says(tmp_path: Path, bits: int, text: str) -> None:
    assert function(tmp_path, link=bits).aspm() == text


def test_an_integrated_function_has_aspm_off(tmp_path: Path) -> None:
    assert function(tmp_path, link=2, flags=0x92).aspm() == "off"


def test_without_root_the_kernels_switches_tell_aspm(tmp_path: Path) -> None:
    pci = PciFunction(tmp_path)
    (tmp_path / "config").write_bytes(bytes(64))
    with pytest.raises(ValueError, match="root only"):
        pci.aspm()
    (tmp_path / "link").mkdir()
    (tmp_path / "link/l1_aspm").write_text("0\n")
    assert pci.aspm() == "off"
    (tmp_path / "link/l1_aspm").write_text("1\n")
    assert pci.aspm() == "L1"
    with pytest.raises(ValueError, match="root only"):
        pci.max_payload_bytes()


def test_a_function_without_the_capability_says_so(tmp_path: Path) -> None:
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
