"""One NVMe/TCP connection: a queue pair of the host, its commands taken in and answered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.lab.virtual_ssd import pdu
from tests.lab.virtual_ssd.pdu import Entry
from tests.lab.virtual_ssd.reply import Command, Reply

_EVENT_REQUEST = 0x0C
_QUEUE_ENTRIES = 128
_CONNECT = 0x01


class Controller(Protocol):
    """What a connection hands its commands to."""

    def fabrics(self, entry: Entry) -> Reply: ...

    def admin(self, command: Command) -> Reply: ...

    def place(self, entry: Entry) -> memoryview | None:
        """Return where the data of a read or write lies; ``None`` for any other command.

        Also ``None`` outside of the namespace.
        """
        ...

    def block_io(self, entry: Entry, data: bytes, done: Callable[[], None]) -> int | None:
        """Begin a read or write whose data is in place; a status where there is nothing to do.

        ``data`` is what the host sent with a command that is neither.
        """
        ...


@dataclass
class _Incoming:
    """A command whose data is on its way."""

    entry: Entry
    data: memoryview
    left: int


class Connection:
    """One queue pair; number 0 is the admin queue."""

    def __init__(self, controller: Controller, stream: socket.socket) -> None:
        self._controller = controller
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._outgoing: asyncio.Queue[tuple[bytes | memoryview, ...]] = asyncio.Queue()
        self._queue = self._head = 0
        self._incoming: dict[int, _Incoming] = {}

    async def run(self) -> None:
        """Serve until the host leaves or ``stop`` is called."""
        sender = asyncio.create_task(self._send_all())
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    await self._receive()
        finally:
            sender.cancel()
            self._stream.close()

    async def _receive(self) -> None:
        kind, _, header_bytes, offset, length = pdu.COMMON.unpack(await self._take(pdu.COMMON.size))
        header = bytes(await self._take(header_bytes - pdu.COMMON.size))
        await self._take(max(0, offset - header_bytes))
        data_bytes = length - max(offset, header_bytes)
        if kind == pdu.INITIALIZE_REQUEST:
            self._send(pdu.initialize_response())
        elif kind == pdu.COMMAND:
            await self._command(pdu.parse_entry(header), data_bytes)
        elif kind == pdu.HOST_DATA:
            await self._data(header, data_bytes)
        else:
            raise EOFError

    async def _command(self, entry: Entry, data_bytes: int) -> None:
        if not entry.sends_data:
            self._act(entry, memoryview(b""))
            return
        is_write = self._queue and entry.opcode != pdu.FABRICS
        place = self._controller.place(entry) if is_write else None
        buffer = memoryview(bytearray(entry.length)) if place is None else place
        if data_bytes:
            await self._fill(buffer[:data_bytes])
            self._act(entry, buffer)
        else:
            self._incoming[entry.identifier] = _Incoming(entry, buffer, entry.length)
            self._send(pdu.ready(entry.identifier, entry.length))

    async def _data(self, header: bytes, data_bytes: int) -> None:
        identifier, _, offset, _ = struct.unpack_from("<HHII", header)
        incoming = self._incoming[identifier]
        await self._fill(incoming.data[offset : offset + data_bytes])
        incoming.left -= data_bytes
        if incoming.left <= 0:
            del self._incoming[identifier]
            self._act(incoming.entry, incoming.data)

    def _act(self, entry: Entry, data: memoryview) -> None:
        """Answer a command whose data, if any, is here."""
        if entry.opcode == pdu.FABRICS:
            if entry.raw[4] == _CONNECT:
                self._queue = struct.unpack_from("<H", entry.raw, 42)[0]
            self._answer(entry, self._controller.fabrics(entry))
        elif self._queue:
            self._block_io(entry, data)
        elif entry.opcode != _EVENT_REQUEST:  # which waits for ever: there are no events
            self._admin(entry, bytes(data))

    def _admin(self, entry: Entry, data: bytes) -> None:
        reply = self._controller.admin(
            Command(
                opcode=entry.opcode,
                namespace=entry.namespace,
                cdw10=entry.dwords[0],
                cdw11=entry.dwords[1],
                cdw12=entry.dwords[2],
                data=data,
            )
        )
        if reply.delay_ns is None:
            return
        if reply.delay_ns:
            self._loop.call_later(reply.delay_ns / 1e9, self._answer, entry, reply)
        else:
            self._answer(entry, reply)

    def _block_io(self, entry: Entry, data: memoryview) -> None:
        sent = b"" if self._controller.place(entry) is not None else bytes(data)
        status = self._controller.block_io(entry, sent, lambda: self._finish(entry))
        if status is not None:
            self._answer(entry, Reply(status=status))

    def _finish(self, entry: Entry) -> None:
        """Tell the host that a read or write is done, with what was read."""
        place = None if entry.sends_data else self._controller.place(entry)
        if place is None:
            self._send(self._response(entry, Reply()))
        else:
            header = pdu.data_header(entry.identifier, len(place))
            self._send(header, place, self._response(entry, Reply()))

    def _answer(self, entry: Entry, reply: Reply) -> None:
        if reply.data and not reply.status:
            data = reply.data[: entry.length]
            header = pdu.data_header(entry.identifier, len(data))
            self._send(header + data + self._response(entry, reply))
        else:
            self._send(self._response(entry, reply))

    def _response(self, entry: Entry, reply: Reply) -> bytes:
        self._head = (self._head + 1) % _QUEUE_ENTRIES
        return pdu.response(entry.identifier, reply.status, reply.result, self._head, self._queue)

    def _send(self, *parts: bytes | memoryview) -> None:
        self._outgoing.put_nowait(parts)

    async def _send_all(self) -> None:
        """Send what was handed to ``_send``, one PDU after another."""
        with contextlib.suppress(OSError):
            while True:
                for part in await self._outgoing.get():
                    await self._loop.sock_sendall(self._stream, part)

    async def _take(self, count: int) -> memoryview:
        data = memoryview(bytearray(count))
        await self._fill(data)
        return data

    async def _fill(self, view: memoryview) -> None:
        while view:
            received = await self._loop.sock_recv_into(self._stream, view)
            if not received:
                raise EOFError
            view = view[received:]
