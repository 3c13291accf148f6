"""The side socket: a test asks the drive for the truth, or to misbehave. JSON, a line each way."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.virtual_ssd.server import Server

Fields = dict[str, Any]


class Control:
    """Answers ``{"do": name, ...}`` with ``{"ok": ...}`` or ``{"error": sentence}``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._drive = server.drive

    async def serve(self, path: Path) -> asyncio.Server:
        """Listen on a Unix socket."""
        return await asyncio.start_unix_server(self._session, path)

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                answer = {"ok": self._do(json.loads(line))}
            except (ValueError, TypeError, KeyError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _do(self, request: Fields) -> object:
        name = request.pop("do")
        actions: dict[str, Callable[..., object]] = {
            "energy": self._energy,
            "facts": self._facts,
            "fault": self._fault,
            "heal": self._drive.faults.heal,
            "stale": self._stale,
            "ipm_stuck": self._ipm_stuck,
            "updates": self._updates,
            "window": self._window,
            "speed": self._speed,
            "jump": self._jump,
            "lose_state": self._lose_state,
            "reset": self._reset,
            "vanish": self._vanish,
        }
        return actions[name](**request)

    def _energy(self, start_ns: int, end_ns: int) -> float:
        """Return the true joules of a window that has passed."""
        self._drive.engine.advance(time.monotonic_ns())
        return self._drive.engine.curve.between_j(start_ns, end_ns)

    def _facts(self) -> Fields:
        engine, layer = self._drive.engine, self._drive.engine.layer
        engine.advance(time.monotonic_ns())
        return {
            "now_ns": engine.now_ns,
            "state": engine.state,
            "temperature_k": engine.thermal.temperature_k,
            "throttle_level": engine.thermal.level,
            "total_j": engine.curve.total_j,
            "corner_count": engine.curve.corner_count,
            "read_bytes": engine.read_bytes,
            "written_bytes": engine.written_bytes,
            "dirty_bytes": engine.dirty_bytes,
            "translated_bytes": layer and [layer.host_bytes, layer.media_bytes],
            "used_bytes": engine.used_bytes,
            "busy_ns": engine.busy_ns,
        }

    def _fault(self, **fields: Any) -> None:
        self._drive.faults.arm(**fields)

    def _stale(self, on: bool) -> None:
        self._drive.go_stale(stale=on, now_ns=time.monotonic_ns())

    def _ipm_stuck(self, on: bool) -> None:
        self._drive.stick_ipm(stuck=on, now_ns=time.monotonic_ns())

    def _updates(self, kind: str) -> None:
        if kind not in ("sliding", "tumbling"):
            raise ValueError(f"updates are sliding or tumbling, got {kind}")
        self._drive.updates = "sliding" if kind == "sliding" else "tumbling"

    def _window(self, seconds: float) -> None:
        self._drive.window_s = seconds

    def _speed(self, factor: float) -> None:
        self._drive.engine.advance(time.monotonic_ns())
        self._drive.engine.speed = factor

    def _jump(self, seconds: int) -> None:
        self._drive.jump(seconds, time.monotonic_ns())

    def _lose_state(self) -> None:
        self._drive.lose_state(time.monotonic_ns())

    def _reset(self) -> None:
        self._server.reset()

    def _vanish(self, on: bool) -> None:
        self._server.vanish(gone=on)


def ask(path: Path, do: str, **fields: Any) -> Any:
    """Send one request to a drive's side socket and return its answer.

    Raises:
        ValueError: the drive refuses it.
    """
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(path))
        stream.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")
        with stream.makefile("rb") as lines:
            answer = json.loads(lines.readline())
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["ok"]
