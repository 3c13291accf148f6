"""What sysfs shows of a PCI Express function: link, payload sizes, ASPM, error counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from wattload.core.sysfs import read_int, read_text

_CAPABILITIES_POINTER = 0x34
_EXPRESS = 0x10
_FLAGS = 0x02
_DEVICE_CONTROL = 0x08
_LINK_CONTROL = 0x10
"""PCI Express Base 5.0, section 7.5.3: offsets in the PCI Express capability (id 10h)."""
_READABLE_BY_ALL_BYTES = 64
_SMALLEST_PAYLOAD_BYTES = 128
_WIDTH_UNKNOWN = (0, 255)
_INTEGRATED_ENDPOINT = 9
_NO_LINK = "the function has no PCI Express link"
_ASPM = ("off", "L0s", "L1", "L0s L1")
_AER_KINDS = ("correctable", "nonfatal", "fatal")


class PciFunction:
    """One PCI function by its sysfs folder. Each reader raises ``OSError`` or ``ValueError``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def vendor_id(self) -> str:
        """Return the vendor's id as the kernel writes it: ``0x144d``."""
        return read_text(self.folder / "vendor")

    def link_speed_gt_per_s(self, which: str) -> float:
        """Return the link's ``current`` or ``max`` speed in GT/s, e.g. 32.0 for PCIe 5."""
        text = read_text(self.folder / f"{which}_link_speed")
        speed, _, unit = text.partition(" ")
        if not unit.startswith("GT/s"):
            raise ValueError(_NO_LINK)
        return float(speed)

    def link_width(self, which: str) -> int:
        """Return the link's ``current`` or ``max`` number of lanes."""
        width = read_int(self.folder / f"{which}_link_width")
        if width in _WIDTH_UNKNOWN:
            raise ValueError(_NO_LINK)
        return width

    def max_payload_bytes(self) -> int:
        """Return the payload size in use (Device Control, bits 7:5)."""
        return _SMALLEST_PAYLOAD_BYTES << (self._express_u16(_DEVICE_CONTROL) >> 5 & 7)

    def max_read_request_bytes(self) -> int:
        """Return the largest read request (Device Control, bits 14:12)."""
        return _SMALLEST_PAYLOAD_BYTES << (self._express_u16(_DEVICE_CONTROL) >> 12 & 7)

    def aspm(self) -> str:
        """Return which link power states are on: ``off``, ``L0s``, ``L1`` or ``L0s L1``.

        From Link Control bits 1:0; to other users than root the kernel's own switches are shown.
        """
        try:
            if self._express_u16(_FLAGS) >> 4 & 15 == _INTEGRATED_ENDPOINT:
                return "off"
            return _ASPM[self._express_u16(_LINK_CONTROL) & 3]
        except ValueError:
            switches = [("L0s", "l0s_aspm"), ("L1", "l1_aspm")]
            shown = [(name, self.folder / "link" / file) for name, file in switches]
            if not any(path.exists() for _, path in shown):
                raise
            on = [name for name, path in shown if path.exists() and read_text(path) == "1"]
            return " ".join(on) or "off"

    def error_counts(self) -> Mapping[str, int]:
        """Return Advanced Error Reporting counts: all totals, and each kind that has occurred."""
        return dict(self._error_counts())

    def _error_counts(self) -> Iterator[tuple[str, int]]:
        for kind in _AER_KINDS:
            for line in read_text(self.folder / f"aer_dev_{kind}").splitlines():
                name, _, count = line.rpartition(" ")
                if name.startswith("TOTAL"):
                    yield f"{kind}_total", int(count)
                elif int(count):
                    yield f"{kind}_{name}", int(count)

    def _express_u16(self, offset: int) -> int:
        space = (self.folder / "config").read_bytes()
        if len(space) <= _READABLE_BY_ALL_BYTES:
            raise ValueError("PCI configuration space beyond 64 bytes is shown to root only")
        at = space[_CAPABILITIES_POINTER]
        seen: set[int] = set()
        while at and at not in seen and at + 1 < len(space):
            if space[at] == _EXPRESS and at + offset + 1 < len(space):
                return int.from_bytes(space[at + offset : at + offset + 2], "little")
            seen.add(at)
            at = space[at + 1]
        raise ValueError("the function has no PCI Express capability")
