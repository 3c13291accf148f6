from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.power.nvme.dumps import DUMPS, Dump
from wattload.core.errors import PowerError
from wattload.power.nvme.features import read_power_state, read_transitions
from wattload.power.nvme.identify import decode_namespace, identify_controller
from wattload.power.nvme.logs import (
    decode_freezing_commands,
    decode_ocp_smart,
    decode_supported_pages,
    read_group_media_bytes,
    read_smart,
)
from wattload.power.nvme.measurement import read_power_measurement
from wattload.power.nvme.state import read_state
from wattload.power.nvme.vendor import find_vendor_page, read_vendor_power

BY_NAME = {dump.name: dump for dump in DUMPS}


def vendor_power(dump: Dump) -> object:
    device = dump.device()
    controller = identify_controller(device)
    page = find_vendor_page(device, controller)
    return None if page is None else read_vendor_power(device, controller, page)


DECODERS: Mapping[str, Callable[[Dump], object]] = {
    "controller": lambda dump: identify_controller(dump.device()),
    "namespace": lambda dump: decode_namespace(dump.identify[0x00]),
    "smart": lambda dump: read_smart(dump.device()),
    "power_state": lambda dump: read_power_state(dump.device()),
    "transitions": lambda dump: read_transitions(dump.device()),
    "measurement": lambda dump: read_power_measurement(dump.device()),
    "ocp": lambda dump: decode_ocp_smart(dump.logs[0xC0]),
    "media_written_bytes": lambda dump: read_group_media_bytes(dump.device(), 1),
    "freezing": lambda dump: sorted(decode_freezing_commands(dump.logs[0x05])),
    "pages": lambda dump: sorted(decode_supported_pages(dump.logs[0x00])),
    "vendor": vendor_power,
}


def compare(found: object, expected: object, place: str) -> None:
    """Check every field that the dump states; a list is checked element by element."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            compare(getattr(found, name), value, f"{place}.{name}")
    elif isinstance(expected, list):
        assert isinstance(found, (tuple, list)), place
        assert len(found) == len(expected), place
        for index, value in enumerate(expected):
            compare(found[index], value, f"{place}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected), place
    else:
        assert found == expected, place


def cases() -> list[tuple[str, str]]:
    return [(dump.name, part) for dump in DUMPS for part in dump.expect]


@pytest.mark.parametrize(("name", "part"), cases())
def test_dump_means_what_it_is_known_to_mean(name: str, part: str) -> None:
    dump = BY_NAME[name]
    expected: Any = dump.expect[part]
    if isinstance(expected, str):
        with pytest.raises(PowerError, match=expected):
            DECODERS[part](dump)
    else:
        compare(DECODERS[part](dump), expected, part)


def test_every_dump_says_whether_a_drive_or_a_person_made_its_bytes() -> None:
    origins = [dump.origin for dump in DUMPS]
    assert len(origins) >= 4
    assert all(origin.startswith(("synthetic: ", "read from ")) for origin in origins)
    assert any(origin.startswith("read from ") for origin in origins)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_drive_of_the_corpus_gives_a_record(name: str) -> None:
    fields, missing = read_state(BY_NAME[name].device())
    assert not set(fields) & set(missing)
    assert "smart" in {**fields, **missing}
