from __future__ import annotations

import ctypes
import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contracts.power_source import PowerSourceContract
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import Evidence, Instant, PowerSource, Scope
from wattload.power.config import PowerConfig
from wattload.power.sources import ipmi
from wattload.power.sources.ipmi import (
    DEVICE,
    IpmiDevice,
    IpmiSource,
    decode_power_reading,
    find,
)

ACTIVE = 0x40


def answer(watts: int = 212, *, state: int = ACTIVE, code: int = 0, group: int = 0xDC) -> bytes:
    """Return DCMI 1.5 table 6-16: current, minimum, maximum, average, timestamp, period, state."""
    body = struct.pack("<BHHHHIIB", group, watts, 150, 400, 230, 1_700_000_000, 1000, state)
    return bytes((code,)) + body


class FakeBmc:
    """Answers with given bytes; raises ``trouble`` instead if set."""

    def __init__(self, reply: bytes | None = None) -> None:
        self.reply = answer() if reply is None else reply
        self.trouble: PowerError | None = None
        self.requested: list[tuple[int, int, bytes]] = []
        self.open_count = 0

    def __call__(self) -> FakeBmc:
        self.open_count += 1
        return self

    def command(self, netfn: int, command: int, data: bytes) -> bytes:
        self.requested.append((netfn, command, data))
        if self.trouble is not None:
            raise self.trouble
        return self.reply

    def close(self) -> None:
        self.open_count -= 1


class TestIpmi(PowerSourceContract):
    def make(self) -> PowerSource:
        self.bmc = FakeBmc()
        return IpmiSource(period_s=0.1, open_link=self.bmc)

    def break_reads(self, source: PowerSource) -> None:
        self.bmc.trouble = PowerError("the BMC did not answer within 5 s")


def test_node_is_asked_as_dcmi_says() -> None:
    bmc = FakeBmc()
    source = IpmiSource(period_s=0.1, open_link=bmc)
    source.open()
    (sample,) = source.read()
    source.close()
    assert sample.value == 212.0
    assert set(bmc.requested) == {(0x2C, 0x02, b"\xdc\x01\x00\x00")}
    assert bmc.open_count == 0


def test_it_is_the_nodes_in_steps_of_a_watt_and_no_more_often_than_a_second() -> None:
    facts = IpmiSource(period_s=0.1, open_link=FakeBmc()).facts()
    assert (facts.scope, facts.evidence) == (Scope.NODE, Evidence.SELF_REPORTED)
    assert (facts.sensor, facts.resolution_w, facts.period_s) == (Instant(), 1.0, 1.0)


def test_answer_is_decoded() -> None:
    assert decode_power_reading(answer(65535)) == 65535
    assert decode_power_reading(answer(state=0xBF)) is None


@pytest.mark.parametrize("reply", [answer(0), answer(212, state=0)])
def test_bmc_that_does_not_measure_is_not_a_reading(reply: bytes) -> None:
    bmc = FakeBmc()
    source = IpmiSource(period_s=1.0, open_link=bmc)
    source.open()
    bmc.reply = reply
    (sample,) = source.read()
    source.close()
    assert sample.value is None
    bmc.reply = reply
    with pytest.raises(PowerError, match="its BMC reports that it is not measuring"):
        source.open()
    assert bmc.open_count == 0


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (b"\xc1", "its BMC offers no DCMI power reading"),
        (b"\xd4", "its BMC denies the privilege"),
        (b"\xff", "completion code 0xff"),
        (b"", "with no completion code"),
        (b"\x00", "its BMC answers nothing, which is not a DCMI power reading"),
        (answer()[:-1], "which is not a DCMI power reading"),
        (answer(group=0xDD), "answers dd d4 00"),
    ],
)
def test_answer_that_is_none_says_what_came(reply: bytes, sentence: str) -> None:
    with pytest.raises(PowerError, match=f"can't be read by IPMI: .*{sentence}"):
        decode_power_reading(reply)


def test_host_without_bmc_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmi, "DEVICE", tmp_path / "ipmi0")
    with pytest.raises(PowerError, match=r"ipmi0 is missing: .* `sudo modprobe -a ipmi_si"):
        find((), PowerConfig())
    (tmp_path / "ipmi0").touch()
    assert len(find((), PowerConfig())) == 1


def test_this_machines_own_bmc_is_read_where_it_has_one() -> None:
    if not DEVICE.exists():
        pytest.skip(f"this machine has no {DEVICE}")
    (source,) = find((), PowerConfig())
    source.open()
    (sample,) = source.read()
    source.close()
    assert sample.value is None or sample.value > 0


class FakeKernel:
    """The kernel's side of the two ioctls, over a pipe that becomes readable with each answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader, self.writer = os.pipe()
        self.answers: list[tuple[int, bytes]] = []
        self.answering: Callable[[int], list[tuple[int, bytes]]] = lambda number: [
            (number, answer())
        ]
        self.sent: list[tuple[int, int, int, int, bytes]] = []
        monkeypatch.setattr("os.open", lambda path, flags: self.reader)
        monkeypatch.setattr("fcntl.ioctl", self.ioctl)

    def ioctl(self, descriptor: int, operation: int, argument: ctypes.Structure) -> int:
        if operation == ipmi.SEND_COMMAND:
            assert isinstance(argument, ipmi.Request)
            self.send(argument)
        else:
            assert operation == ipmi.RECEIVE
            assert isinstance(argument, ipmi.Received)
            self.receive(argument)
        return 0

    def send(self, request: ipmi.Request) -> None:
        address = ctypes.string_at(request.addr, request.addr_len)
        kind, channel, lun = struct.unpack_from("<ihB", address)
        message = request.msg
        data = ctypes.string_at(message.data, message.data_len)
        self.sent.append((kind, channel, message.netfn, message.cmd, data))
        assert lun == 0
        self.answers += self.answering(request.msgid)
        os.write(self.writer, b"." * len(self.answers))

    def receive(self, received: ipmi.Received) -> None:
        os.read(self.reader, 1)
        number, data = self.answers.pop(0)
        data = data[: received.msg.data_len]
        ctypes.memmove(received.msg.data, data, len(data))
        received.msg.data_len = len(data)
        received.msgid = number
        received.recv_type = 1


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    return FakeKernel(monkeypatch)


def test_command_goes_to_the_hosts_own_bmc(kernel: FakeKernel) -> None:
    device = IpmiDevice()
    assert device.command(0x2C, 0x02, b"\xdc\x01\x00\x00") == answer()
    assert kernel.sent == [(0x0C, 0x0F, 0x2C, 0x02, b"\xdc\x01\x00\x00")]
    device.close()
    device.close()
    os.close(kernel.writer)


def test_answer_to_an_earlier_command_is_passed_over(kernel: FakeKernel) -> None:
    kernel.answering = lambda number: [(number - 1, b"late"), (number, b"\x00now")]
    device = IpmiDevice()
    assert device.command(6, 1, b"") == b"\x00now"
    device.close()


def test_bmc_that_hangs_is_given_up(kernel: FakeKernel) -> None:
    kernel.answering = lambda number: []
    device = IpmiDevice(timeout_s=0.01)
    with pytest.raises(PowerError, match=r"the BMC did not answer within 0\.01 s"):
        device.command(6, 1, b"")
    device.close()


def test_refusal_of_the_kernel_is_reported(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("fcntl.ioctl", refuse)
    device = IpmiDevice()
    with pytest.raises(PowerError, match="/dev/ipmi0: Invalid argument"):
        device.command(6, 1, b"")
    device.close()


def test_node_that_does_not_open_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PowerError, match="ipmi0 can't be opened: No such file"):
        IpmiDevice(tmp_path / "ipmi0")

    def refuse(path: object, flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(PowerPermissionError, match="start the sampler as root"):
        IpmiDevice(tmp_path / "ipmi0")


def test_layouts_and_numbers_are_the_kernel_headers(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/usr/include/linux/ipmi.h").exists():
        pytest.skip("no C compiler, or no kernel headers")
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <stdio.h>\n#include <stddef.h>\n#include <sys/ioctl.h>\n"
        "#include <linux/ipmi.h>\n"
        "int main(void) {\n"
        '  printf("%lx %lx %zu %zu %zu %zu %zu\\n", (long)IPMICTL_SEND_COMMAND,\n'
        "    (long)IPMICTL_RECEIVE_MSG_TRUNC, sizeof(struct ipmi_system_interface_addr),\n"
        "    sizeof(struct ipmi_msg), sizeof(struct ipmi_req), sizeof(struct ipmi_recv),\n"
        "    offsetof(struct ipmi_recv, msg));\n}\n"
    )
    program = tmp_path / "layout"
    subprocess.run([compiler, str(source), "-o", str(program)], check=True)
    reported = subprocess.run(
        [str(program)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [int(each, 16) for each in reported[:2]] == [ipmi.SEND_COMMAND, ipmi.RECEIVE]
    structures = (
        ipmi.Address,
        ipmi.Message,
        ipmi.Request,
        ipmi.Received,
    )
    assert [int(each) for each in reported[2:6]] == [ctypes.sizeof(each) for each in structures]
    assert int(reported[6]) == ipmi.Received.msg.offset
