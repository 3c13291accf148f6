"""Meters of memory traffic on made-up machines; the files' contents are those of real ones."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.data.sysfs.tree import write
from wattload.core.host.memory_traffic import NEEDS_PERMISSION, find_meter
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
