"""The controller on its sockets: registers, memory, the clock that drives the drive on."""

from __future__ import annotations

import asyncio
import mmap
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from tests.lab.virtual_ssd import pdu
from tests.lab.virtual_ssd.connection import Connection
from tests.lab.virtual_ssd.design import BLOCK_BYTES
from tests.lab.virtual_ssd.drive import VirtualSsd
from tests.lab.virtual_ssd.engine import Operation
from tests.lab.virtual_ssd.identify import CONTROLLER_ID
from tests.lab.virtual_ssd.pdu import Entry
from tests.lab.virtual_ssd.reply import (
    INVALID_OPCODE,
    LBA_OUT_OF_RANGE,
    Command,
    Reply,
)
from tests.lab.virtual_ssd.translation import TranslationLayer
from tests.lab.virtual_ssd.truth import Truth

_CAP, _VS, _CC, _CSTS = 0x00, 0x08, 0x14, 0x1C
_CAP_VALUE = 127 | 1 << 16 | 40 << 24 | 1 << 37
"""Queues of 128, contiguous, 20 s to become ready, NVM command set."""
_PROPERTY_SET, _CONNECT, _PROPERTY_GET = 0x00, 0x01, 0x04
_FLUSH, _WRITE, _READ, _DATASET_MANAGEMENT = 0x00, 0x01, 0x02, 0x09
_DEALLOCATE = 1 << 2
_SOCKET_BUFFER_BYTES = 4 << 20


class Server:
    """Serves one drive to one host, and lives on with it when nobody asks."""

    def __init__(self, drive: VirtualSsd, truth: Truth) -> None:
        self.drive = drive
        self._truth = truth
        self._memory = memoryview(mmap.mmap(-1, drive.design.capacity_bytes))
        self._configuration = 0
        self._is_gone = False
        self._timer: asyncio.TimerHandle | None = None
        self._connections: dict[asyncio.Task[None], socket.socket] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections for ever."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        keeping = asyncio.create_task(self._keep_truth())
        try:
            while True:
                stream, _ = await loop.sock_accept(listener)
                if self._is_gone:
                    stream.close()
                    continue
                self._accept(stream)
        finally:
            keeping.cancel()
            self.disconnect()

    def disconnect(self) -> None:
        """Break all connections, as a controller that fails does."""
        for stream in self._connections.values():
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Reset the controller by itself: the host finds its connections broken."""
        self.drive.reset(time.monotonic_ns())
        self._configuration = 0
        self.disconnect()

    def vanish(self, *, gone: bool) -> None:
        """Be unplugged, or come back."""
        self._is_gone = gone
        if gone:
            self.reset()

    def fabrics(self, entry: Entry) -> Reply:
        """Answer a Fabrics command: connect, or one of the controller's registers."""
        kind, offset = entry.raw[4], struct.unpack_from("<I", entry.raw, 44)[0]
        if kind == _CONNECT:
            return Reply(result=CONTROLLER_ID)
        if kind == _PROPERTY_GET:
            return Reply(result=self._register(offset))
        if kind == _PROPERTY_SET:
            if offset == _CC:
                self._configure(struct.unpack_from("<I", entry.raw, 48)[0])
            return Reply()
        return Reply(status=INVALID_OPCODE)

    def admin(self, command: Command) -> Reply:
        """Answer an admin command."""
        reply = self.drive.admin(command, time.monotonic_ns())
        self._set_timer()
        return reply

    def place(self, entry: Entry) -> memoryview | None:
        """Return the memory that a read or write is about; ``None``: other command, or outside."""
        if entry.opcode not in (_WRITE, _READ):
            return None
        start = _start_bytes(entry)
        end = start + ((entry.dwords[2] & 0xFFFF) + 1) * BLOCK_BYTES
        return self._memory[start:end] if end <= len(self._memory) else None

    def block_io(self, entry: Entry, data: bytes, done: Callable[[], None]) -> int | None:
        """Begin a read or write; a flush has nothing to wait for, as the cache loses nothing."""
        if entry.opcode == _FLUSH:
            return 0
        if entry.opcode == _DATASET_MANAGEMENT and self.drive.engine.layer is not None:
            return self._manage(self.drive.engine.layer, entry, data)
        if entry.opcode not in (_WRITE, _READ):
            return INVALID_OPCODE
        place = self.place(entry)
        if place is None:
            return LBA_OUT_OF_RANGE
        operation = Operation(
            is_write=entry.opcode == _WRITE,
            start_bytes=_start_bytes(entry),
            size_bytes=len(place),
            done=done,
        )
        self.drive.submit(operation, time.monotonic_ns())
        self._set_timer()
        return None

    def _manage(self, layer: TranslationLayer, entry: Entry, data: bytes) -> int:
        """Deallocate ranges at once, without time or energy; other hints change nothing."""
        ranges = [
            (first * BLOCK_BYTES, count * BLOCK_BYTES)
            for first, count in pdu.parse_ranges(data, (entry.dwords[0] & 0xFF) + 1)
        ]
        if any(start + size > len(self._memory) for start, size in ranges):
            return LBA_OUT_OF_RANGE
        if entry.dwords[1] & _DEALLOCATE:
            for start, size in ranges:
                layer.deallocate(start, size)
                self._memory[start : start + size] = bytes(size)
        return 0

    def _accept(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            stream.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        task = asyncio.create_task(Connection(self, stream).run())
        self._connections[task] = stream
        task.add_done_callback(self._connections.pop)

    def _register(self, offset: int) -> int:
        ready = self._configuration & 1
        shut_down = 8 if self._configuration >> 14 & 3 else 0
        values = {
            _CAP: _CAP_VALUE,
            _VS: 0x00020300,
            _CC: self._configuration,
            _CSTS: ready | shut_down,
        }
        return values.get(offset, 0)

    def _configure(self, value: int) -> None:
        """Take a new CC; clearing its first bit is a controller reset."""
        if self._configuration & 1 and not value & 1:
            self.drive.reset(time.monotonic_ns())
        self._configuration = value

    def _set_timer(self) -> None:
        """Come back when the drive has finished what it is at."""
        if self._timer is not None:
            self._timer.cancel()
        wake_ns = self.drive.engine.wake_ns
        loop = asyncio.get_running_loop()
        self._timer = None if wake_ns is None else loop.call_at(wake_ns / 1e9, self._go_on)

    def _go_on(self) -> None:
        self.drive.engine.advance(time.monotonic_ns())
        self._set_timer()

    async def _keep_truth(self) -> None:
        """Write the truth of every second that has passed."""
        while True:
            await asyncio.sleep(1)
            self._go_on()
            self._truth.write()


def _start_bytes(entry: Entry) -> int:
    """Return where a read or write begins."""
    return (entry.dwords[0] | entry.dwords[1] << 32) * BLOCK_BYTES
