"""An NVMe/TCP controller whose drive is a model: the kernel's own driver makes a real node of it.

Layouts: NVMe over TCP Transport Specification 1.0 (PDUs), NVMe over Fabrics 1.1 (Fabrics commands).
One namespace in memory.
"""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass, field

from tests.model_host.drive import INVALID_FIELD, ModelDrive
from wattload.power.nvme.admin import AdminCommand

SUBSYSTEM = "nqn.2026-11.test.wattload:model"
BLOCK_BYTES = 512
DISK_BLOCKS = 1 << 17
INVALID_OPCODE = 0x4001
LBA_OUT_OF_RANGE = 0x4080

ICREQ, ICRESP, COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T = 0, 1, 4, 5, 6, 7, 9
LAST_DATA = 4

CAP, VS, CC, CSTS = 0x00, 0x08, 0x14, 0x1C
CAP_VALUE = 127 | 1 << 16 | 40 << 24 | 1 << 37
"""Queues of 128, contiguous, 20 s to become ready, NVM command set."""

Answer = tuple[int, int, bytes]
"""Status, result and data to the host."""


@dataclass
class Subsystem:
    """The drive, its memory and the registers, shared by all queues."""

    drive: ModelDrive
    configuration: int = 0
    features: dict[int, int] = field(default_factory=dict)
    memory: bytearray = field(default_factory=lambda: bytearray(DISK_BLOCKS * BLOCK_BYTES))

    def register(self, offset: int) -> int:
        ready = self.configuration & 1
        shut_down = 8 if self.configuration >> 14 & 3 else 0
        values = {CAP: CAP_VALUE, VS: 0x10400, CC: self.configuration, CSTS: ready | shut_down}
        return values.get(offset, 0)

    def admin(self, entry: bytes) -> Answer:
        """Answer one admin command that is no Fabrics command."""
        opcode, namespace = entry[0], _u32(entry, 4)
        dwords = struct.unpack_from("<5I", entry, 40)
        if opcode == 0x06:
            return self._identify(dwords[0] & 0xFF, namespace)
        if opcode in (0x09, 0x0A) and dwords[0] & 0xFF != 0x02:
            return self._feature(opcode, dwords[0] & 0xFF, dwords[1])
        if opcode == 0x18:  # keep alive
            return 0, 0, b""
        if opcode not in (0x02, 0x09, 0x0A):
            return INVALID_OPCODE, 0, b""
        length = ((dwords[0] >> 16 | (dwords[1] & 0xFFFF) << 16) + 1) * 4 if opcode == 0x02 else 0
        return self._of_drive(opcode, namespace, dwords, length)

    def _of_drive(
        self, opcode: int, namespace: int, dwords: tuple[int, ...], length: int
    ) -> Answer:
        completion = self.drive.submit(
            AdminCommand(
                name="",
                opcode=opcode,
                namespace=namespace,
                cdw10=dwords[0],
                cdw11=dwords[1],
                data_bytes=length,
            )
        )
        return completion.status, completion.result, completion.data

    def _identify(self, cns: int, namespace: int) -> Answer:
        if cns == 0x00:
            data = bytearray(4096)
            struct.pack_into("<3Q", data, 0, *[DISK_BLOCKS] * 3)
            data[130] = BLOCK_BYTES.bit_length() - 1
            return 0, 0, bytes(data)
        if cns == 0x01:
            return 0, 0, self._identify_controller()
        if cns == 0x02:
            return 0, 0, struct.pack("<I", 1 if namespace < 1 else 0).ljust(4096, b"\0")
        if cns == 0x03:  # one descriptor: NGUID, 16 bytes
            return 0, 0, (b"\x02\x10\0\0" + b"\x5a" * 16).ljust(4096, b"\0")
        return INVALID_FIELD, 0, b""

    def _identify_controller(self) -> bytes:
        """The model's bytes with what Fabrics asks for beside them."""
        _, _, model = self._of_drive(0x06, 0, (1, 0), 4096)
        data = bytearray(model)
        data[77] = 5  # MDTS: 128 KiB
        struct.pack_into("<HI", data, 78, 1, 0x10400)  # CNTLID, VER
        data[111] = 1  # an I/O controller
        struct.pack_into("<H", data, 320, 10)  # KAS: seconds
        data[512:514] = b"\x66\x44"  # entries of 64 and 16 bytes
        struct.pack_into("<H", data, 514, 128)  # MAXCMD
        struct.pack_into("<I", data, 536, 1 | 1 << 20)  # SGLS
        data[768 : 768 + len(SUBSYSTEM)] = SUBSYSTEM.encode()
        struct.pack_into("<IIHBB", data, 1792, 4, 1, 0, 0, 1)  # 64 B capsules, no data in them
        return bytes(data)

    def _feature(self, opcode: int, feature: int, value: int) -> Answer:
        if feature == 0x07:  # one pair of I/O queues
            return 0, 0, b""
        if feature not in (0x04, 0x06, 0x0B, 0x0F):
            return INVALID_FIELD, 0, b""
        if opcode == 0x09:
            self.features[feature] = value
        return 0, self.features.get(feature, 1 if feature == 0x06 else 0), b""

    def block_io(self, entry: bytes, data: bytes) -> Answer:
        """Answer one NVM command."""
        opcode, start = entry[0], struct.unpack_from("<Q", entry, 40)[0] * BLOCK_BYTES
        end = start + (struct.unpack_from("<H", entry, 48)[0] + 1) * BLOCK_BYTES
        if opcode == 0x00:
            return 0, 0, b""
        if opcode not in (0x01, 0x02):
            return INVALID_OPCODE, 0, b""
        if end > len(self.memory):
            return LBA_OUT_OF_RANGE, 0, b""
        if opcode == 0x02:
            return 0, 0, bytes(self.memory[start:end])
        self.memory[start:end] = data
        return 0, 0, b""


class Queue(threading.Thread):
    """One connection: the admin queue or an I/O queue."""

    def __init__(self, subsystem: Subsystem, stream: socket.socket) -> None:
        super().__init__(daemon=True)
        self._subsystem = subsystem
        self._stream = stream
        self._number = 0
        self._head = 0
        self._writes: dict[int, tuple[bytes, bytearray]] = {}

    def run(self) -> None:
        self._stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._stream:
            try:
                while True:
                    self._receive()
            except (EOFError, OSError):
                return

    def _receive(self) -> None:
        kind, _, header_bytes, offset, length = struct.unpack("<BBBBI", self._take(8))
        rest = self._take(length - 8)
        header = rest[: header_bytes - 8]
        data = rest[offset - 8 :] if offset else b""
        if kind == ICREQ:
            self._send(ICRESP, 0, struct.pack("<HBBI", 0, 0, 0, 0x20000).ljust(120, b"\0"))
        elif kind == COMMAND:
            self._command(header, data)
        elif kind == H2C_DATA:
            self._data(header, data)
        else:
            raise EOFError

    def _command(self, entry: bytes, data: bytes) -> None:
        identifier = struct.unpack_from("<H", entry, 2)[0]
        length, kind = _u32(entry, 32), entry[39]
        to_controller = (entry[4] if entry[0] == 0x7F else entry[0]) & 3 == 1
        if to_controller and length and not data and kind & 0xF == 0xA:
            self._writes[identifier] = (entry, bytearray(length))
            self._send(R2T, 0, struct.pack("<HHIII", identifier, identifier, 0, length, 0))
            return
        self._answer(identifier, entry, data)

    def _data(self, header: bytes, data: bytes) -> None:
        identifier, _, offset, length = struct.unpack_from("<HHII", header)
        entry, whole = self._writes[identifier]
        whole[offset : offset + length] = data
        if offset + length == len(whole):
            del self._writes[identifier]
            self._answer(identifier, entry, bytes(whole))

    def _answer(self, identifier: int, entry: bytes, data: bytes) -> None:
        if entry[0] == 0x7F:
            status, result, reply = self._fabrics(entry)
        elif self._number:
            status, result, reply = self._subsystem.block_io(entry, data)
        elif entry[0] == 0x0C:
            return  # an asynchronous event request waits for ever
        else:
            status, result, reply = self._subsystem.admin(entry)
        if reply and not status:
            head = struct.pack("<HHIII", identifier, 0, 0, len(reply), 0)
            self._send(C2H_DATA, LAST_DATA, head, reply)
        self._head = (self._head + 1) % 128
        entry_out = struct.pack(
            "<QHHHH", result, self._head, self._number, identifier, status << 1 & 0xFFFF
        )
        self._send(RESPONSE, 0, entry_out)

    def _fabrics(self, entry: bytes) -> Answer:
        kind = entry[4]
        if kind == 0x01:  # connect
            self._number = struct.unpack_from("<H", entry, 42)[0]
            return 0, 1, b""
        offset = _u32(entry, 44)
        if kind == 0x00:  # property set
            if offset == CC:
                self._subsystem.configuration = _u32(entry, 48)
            return 0, 0, b""
        if kind == 0x04:  # property get
            return 0, self._subsystem.register(offset), b""
        return INVALID_OPCODE, 0, b""

    def _send(self, kind: int, flags: int, header: bytes, data: bytes = b"") -> None:
        header_bytes = 8 + len(header)
        offset = header_bytes if data else 0
        common = struct.pack("<BBBBI", kind, flags, header_bytes, offset, header_bytes + len(data))
        self._stream.sendall(common + header + data)

    def _take(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            received = self._stream.recv_into(view)
            if not received:
                raise EOFError
            view = view[received:]
        return bytes(data)


def _u32(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def serve(listener: socket.socket, drive: ModelDrive) -> None:
    """Serve a drive until the process is ended."""
    subsystem = Subsystem(drive=drive)
    while True:
        stream, _ = listener.accept()
        Queue(subsystem, stream).start()
