"""bmc.py SOCKET: the guest's management controller, at the other end of QEMU's ``ipmi-bmc-extern``.

Speaks the line of OpenIPMI's simulator for virtual machines, knows Get Device ID and DCMI's Get
Power Reading, and refuses all else. Each reading is 1 W more than the last, from 201 W on; the OEM
command 30h/01h has it hang before its next answer, for the seconds in its data.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator

END, HARDWARE, ESCAPE, ESCAPED = 0xA0, 0xA1, 0xAA, 0x10
"""Ends of a message and of a hardware command; what comes behind an escape is written or-ed."""

DEVICE_ID = bytes((0, 0x20, 1, 2, 0, 2, 0xBF, 0x57, 1, 0, 0, 0, 0, 0, 0, 0))
"""IPMI 2.0, 20.1: version 2.0, and no device behind it."""
REFUSED = b"\xc1"


def messages(connection: socket.socket) -> Iterator[bytes]:
    """Yield what the guest sends, unescaped; QEMU's own commands are passed over."""
    message, is_escaped = bytearray(), False
    while data := connection.recv(4096):
        for byte in data:
            if byte == ESCAPE:
                is_escaped = True
            elif byte == END:
                yield bytes(message)
                message.clear()
            elif byte == HARDWARE:
                message.clear()
            else:
                message.append(byte & ~ESCAPED if is_escaped else byte)
                is_escaped = False


def packed(message: bytes) -> bytes:
    """Return a message with its checksum, escaped, and its end."""
    summed = message + bytes((-sum(message) & 0xFF,))
    special = (END, HARDWARE, ESCAPE)
    parts = (bytes((ESCAPE, b | ESCAPED)) if b in special else bytes((b,)) for b in summed)
    return b"".join(parts) + bytes((END,))


class Bmc:
    """What it answers."""

    def __init__(self) -> None:
        self.watts = 200
        self.hang_s = 0

    def answer(self, netfn: int, command: int, data: bytes) -> bytes:
        """Return completion code and data."""
        if (netfn, command) == (0x06, 0x01):
            return DEVICE_ID
        if (netfn, command) == (0x30, 0x01):
            self.hang_s = data[0]
            return b"\0"
        if (netfn, command, data) != (0x2C, 0x02, b"\xdc\x01\x00\x00"):
            return REFUSED
        time.sleep(self.hang_s)
        self.hang_s = 0
        self.watts += 1
        return b"\0" + struct.pack("<BHHHHIIB", 0xDC, self.watts, 150, 400, 230, 0, 1000, 0x40)


def main() -> None:
    """Serve the one guest that connects, until it goes."""
    bmc = Bmc()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(1)
        connection, _ = listener.accept()
    for message in messages(connection):
        sequence, netfn_lun, command = message[:3]
        netfn, lun = netfn_lun >> 2, netfn_lun & 3
        head = bytes((sequence, (netfn | 1) << 2 | lun, command))
        connection.sendall(packed(head + bmc.answer(netfn, command, message[3:-1])))


if __name__ == "__main__":
    main()
