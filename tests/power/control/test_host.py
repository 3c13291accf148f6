from __future__ import annotations

from wattload.power.control.host import controllers_here, holds_system_here, serial_here


def test_controllers_of_this_host_have_serials() -> None:
    for name in controllers_here():
        assert serial_here(name)
        assert holds_system_here(name) in (True, False, None)
    assert serial_here("nvme99999") == "nvme99999"
    assert holds_system_here("nvme99999") in (False, None)
