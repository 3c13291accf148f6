"""The host's side of NVMe/TCP, as small as a test needs it: one socket, one command at a time."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

COMMON = struct.Struct("<BBBBI")


@dataclass(frozen=True)
class Completion:
    status: int
    result: int
    data: bytes


class Initiator:
    """One queue pair; ``queue`` 0 is the admin queue."""

    def __init__(self, port: int, queue: int = 0) -> None:
        self._stream = socket.create_connection(("127.0.0.1", port), timeout=30)
        try:
            self.connected = self._connect(queue)
        except (EOFError, OSError):
            self.close()
            raise

    def _connect(self, queue: int) -> Completion:
        self._stream.sendall(COMMON.pack(0, 0, 128, 0, 128) + bytes(120))
        kind, _, length, _, _ = self._header()
        assert (kind, length) == (1, 128)
        self._take(120)
        connect = bytearray(64)
        connect[0], connect[4] = 0x7F, 0x01
        struct.pack_into("<HHI", connect, 40, 0, queue, 31)
        return self.command(bytes(connect), send=bytes(1024), in_capsule=True)

    def close(self) -> None:
        self._stream.close()

    def register(self, offset: int) -> int:
        get = bytearray(64)
        get[0], get[4], get[40] = 0x7F, 0x04, 1
        struct.pack_into("<I", get, 44, offset)
        return self.command(bytes(get)).result

    def configure(self, value: int) -> None:
        put = bytearray(64)
        put[0] = 0x7F
        struct.pack_into("<IQ", put, 44, 0x14, value)
        assert self.command(bytes(put)).status == 0

    def admin(self, opcode: int, cdw10: int, cdw11: int = 0, *, receive: int = 0) -> Completion:
        return self.command(entry(opcode, 0, cdw10, cdw11), receive=receive)

    def write(self, block: int, data: bytes, *, in_capsule: bool = False) -> Completion:
        command = entry(0x01, 1, block, 0, len(data) // 512 - 1)
        return self.command(command, send=data, in_capsule=in_capsule)

    def read(self, block: int, size_bytes: int) -> Completion:
        return self.command(entry(0x02, 1, block, 0, size_bytes // 512 - 1), receive=size_bytes)

    def command(
        self, raw: bytes, *, send: bytes = b"", receive: int = 0, in_capsule: bool = False
    ) -> Completion:
        """Send one command with its data and wait for its completion."""
        block = bytearray(raw)
        struct.pack_into("<I", block, 32, len(send) or receive)
        block[39] = 0x01 if in_capsule else 0x5A
        capsule = bytes(send) if in_capsule else b""
        offset = 72 if capsule else 0
        head = COMMON.pack(4, 0, 72, offset, 72 + len(capsule))
        self._stream.sendall(head + bytes(block) + capsule)
        return self._completion(send)

    def _completion(self, send: bytes) -> Completion:
        data = b""
        while True:
            kind, _, header_bytes, _, length = self._header()
            header = self._take(header_bytes - 8)
            if kind == 9:
                self._send_data(header, send)
            elif kind == 7:
                data += self._take(length - header_bytes)
            else:
                assert kind == 5
                result, _, _, _, status = struct.unpack("<QHHHH", header)
                return Completion(status >> 1, result, data)

    def _send_data(self, header: bytes, send: bytes) -> None:
        """Answer an R2T in two PDUs, as a host with a small limit does."""
        identifier, tag, start, length = struct.unpack_from("<HHII", header)
        half = length // 2
        for offset, size in ((start, half), (start + half, length - half)):
            self._stream.sendall(
                COMMON.pack(6, 0, 24, 24, 24 + size)
                + struct.pack("<HHIII", identifier, tag, offset, size, 0)
                + send[offset : offset + size]
            )

    def _header(self) -> tuple[int, ...]:
        return COMMON.unpack(self._take(8))

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._stream.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data


def entry(opcode: int, namespace: int, *dwords: int) -> bytes:
    block = bytearray(64)
    block[0] = opcode
    struct.pack_into("<HI", block, 2, 17, namespace)
    struct.pack_into(f"<{len(dwords)}I", block, 40, *dwords)
    return bytes(block)
