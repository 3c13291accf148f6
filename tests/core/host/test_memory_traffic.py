"""Meters of memory traffic, and the rate of a host's memory modules."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.data.sysfs.tree import write
from wattload.core.host.memory_traffic import NEEDS_PERMISSION, find_meter, memory_rate
from wattload.core.sysfs import Roots


@dataclass
class Counted:
    """A counter that has counted 1,000 from its opening on."""

    opened: list[tuple[int, int, int]]

    def __call__(self, kind: int, config: int, cpu: int) -> Counted:
        self.opened.append((kind, config, cpu))
        return self

    def read(self) -> float:
        return 1000.0

    def close(self) -> None:
        pass


def refuse(code: int) -> Counted:
    raise OSError(code, os.strerror(code))


def unit(folder: Path, name: str, files: dict[str, str]) -> None:
    for path, text in files.items():
        write(folder / f"bus/event_source/devices/{name}/{path}", f"{text}\n")


FORMAT = {"format/event": "config:0-7", "format/umask": "config:8-15"}


def intel(folder: Path) -> Roots:
    """Two controllers of a Xeon with two sockets; ``cas_count_read.scale`` is 64 / 2^20."""
    for number in range(2):
        files = {"type": str(20 + number), "cpumask": "0,28", **FORMAT}
        for name, umask in (("read", "0x03"), ("write", "0x0c")):
            event = f"events/cas_count_{name}"
            files |= {event: f"event=0x04,umask={umask}", f"{event}.unit": "MiB"}
            files |= {f"{event}.scale": "6.103515625e-5"}
        files["events/clockticks"] = "event=0xff"
        unit(folder, f"uncore_imc_{number}", files)
    return Roots(sys=folder, proc=folder / "proc")


def test_intels_controllers_count_lines_read_and_written(tmp_path: Path) -> None:
    counter = Counted([])
    found = find_meter(intel(tmp_path), counter)
    assert found.meter is not None
    assert found.meter.kind == "uncore"
    assert sorted(counter.opened) == [
        (kind, config, cpu) for kind in (20, 21) for config in (0x304, 0xC04) for cpu in (0, 28)
    ]
    assert found.meter.read_bytes() == 8 * 1000 * 64
    found.meter.close()


def test_amds_controllers_count_column_accesses(tmp_path: Path) -> None:
    for number in range(3):
        unit(tmp_path, f"amd_umc_{number}", {"type": str(30 + number), "cpumask": "0", **FORMAT})
    counter = Counted([])
    found = find_meter(Roots(sys=tmp_path, proc=tmp_path), counter)
    assert found.meter is not None
    assert counter.opened == [(kind, 0x0A, 0) for kind in (30, 31, 32)]
    assert found.meter.read_bytes() == 3 * 1000 * 64


@pytest.mark.parametrize(("model", "count"), [(1, 8), (17, 0)])  # Zen 3 has the events, Zen 4 not
def test_amds_fabric_counts_where_its_events_are_known(
    tmp_path: Path, model: int, count: int
) -> None:
    forms = {"format/event": "config:0-7,32-35,59-60", "format/umask": "config:8-15"}
    unit(tmp_path, "amd_df", {"type": "12", "cpumask": "0", **forms})
    write(tmp_path / "proc/cpuinfo", f"cpu family\t: 25\nmodel\t\t: {model}\n")
    counter = Counted([])
    found = find_meter(Roots(sys=tmp_path, proc=tmp_path / "proc"), counter)
    assert (found.meter is not None) == bool(count)
    assert len(counter.opened) == count
    if count:
        assert counter.opened[4] == (12, 0x3807 | 1 << 32, 0)  # event 0x107


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_refused_counters_are_a_remark(tmp_path: Path, code: int) -> None:
    found = find_meter(intel(tmp_path), lambda *_: refuse(code))
    assert (found.meter, found.remarks) == (None, (NEEDS_PERMISSION,))


def test_resctrl_takes_the_place_of_refused_counters(tmp_path: Path) -> None:
    roots = intel(tmp_path)
    top = tmp_path / "fs/resctrl"
    for place, value in (("", 1000), ("", 500), ("busy/", 7), ("mon_groups/a/", 2)):
        domain = "01" if value == 500 else "00"
        write(top / f"{place}mon_data/mon_L3_{domain}/mbm_total_bytes", f"{value}\n")
    found = find_meter(roots, lambda *_: refuse(errno.EACCES))
    assert found.meter is not None
    assert found.meter.kind == "resctrl"
    assert found.meter.read_bytes() == 1509
    assert found.remarks == (NEEDS_PERMISSION,)


def test_resctrl_that_counts_nothing_is_a_remark(tmp_path: Path) -> None:
    write(tmp_path / "fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "Unavailable\n")
    found = find_meter(Roots(sys=tmp_path, proc=tmp_path))
    assert found.meter is None
    assert "contains 'Unavailable'" in found.remarks[0]


def test_a_machine_without_counters_has_no_meter(tmp_path: Path) -> None:
    found = find_meter(Roots(sys=tmp_path, proc=tmp_path))
    assert (found.meter, found.remarks) == (None, ())


def module(locator: str, bank: str = "", *, speed: int = 3200, size: int = 0x4000) -> bytes:
    body = bytearray(0x5C)
    body[0:2] = 17, len(body)
    body[0x08:0x0C] = (72).to_bytes(2, "little") + (64).to_bytes(2, "little")
    body[0x0C:0x0E] = size.to_bytes(2, "little")
    texts = [text.encode() for text in (locator, bank) if text]
    body[0x10], body[0x11] = 1, 2 if bank else 0
    body[0x20:0x22] = speed.to_bytes(2, "little")
    return bytes(body) + b"\0".join(texts) + b"\0\0"


def roots(folder: Path, *structures: bytes) -> Roots:
    table = folder / "firmware/dmi/tables/DMI"
    table.parent.mkdir(parents=True)
    other = bytes((1, 27, *[0] * 25)) + b"Maker\0Product\0\0"
    end = bytes((127, 4, 0, 0)) + b"\0\0"
    table.write_bytes(other + b"".join(structures) + end)
    return Roots(sys=folder)


@pytest.mark.parametrize(
    "locators",
    [
        [("DIMM 0", f"P{socket} CHANNEL {letter}") for socket in "01" for letter in "ABCDEFGH"],
        [(f"CPU{socket}_DIMM_{letter}1", "") for socket in "12" for letter in "ABCDEFGH"],
        [(f"P{s}_Node0_Channel{c}_Dimm0", "") for s in "01" for c in range(8)],
    ],
)
def test_two_sockets_with_eight_channels_each(
    tmp_path: Path, locators: list[tuple[str, str]]
) -> None:
    rate, _ = memory_rate(roots(tmp_path, *(module(*names) for names in locators)))
    assert rate == 409.6e9  # 2 x 8 x 25.6 GB/s, DDR4-3200


def test_two_modules_of_a_channel_count_once_and_empty_slots_never(tmp_path: Path) -> None:
    made = roots(
        tmp_path,
        module("DIMM_A1", speed=4800),
        module("DIMM_A2", speed=4400),
        module("DIMM_B1", size=0),
    )
    assert memory_rate(made)[0] == 4400e6 * 8


def test_locators_without_channels_give_no_rate(tmp_path: Path) -> None:
    rate, reason = memory_rate(roots(tmp_path, module("RAM slot #0")))
    assert rate is None
    assert reason == "the locators of memory modules, 'RAM slot #0', name no channel"


def test_a_module_without_a_speed_gives_no_rate(tmp_path: Path) -> None:
    rate, reason = memory_rate(roots(tmp_path, module("DIMM_A1", speed=0)))
    assert rate is None
    assert "does not say how fast" in reason


@pytest.mark.parametrize("table", [b"\x11\x01", bytes((17, 40)) + b"\0" * 10, bytes((1, 2, 0, 0))])
def test_a_damaged_table_gives_no_rate(tmp_path: Path, table: bytes) -> None:
    made = roots(tmp_path)
    (tmp_path / "firmware/dmi/tables/DMI").write_bytes(table)
    assert memory_rate(made)[0] is None


def test_a_table_that_is_not_there_gives_no_rate(tmp_path: Path) -> None:
    rate, reason = memory_rate(Roots(sys=tmp_path))
    assert rate is None
    assert reason.endswith("the kernel does not show DMI")
