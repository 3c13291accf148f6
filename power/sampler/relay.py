"""A run's side of a sampler service: pass on its commands, write the samples that come back.

The service reads the drives, and opens no file of its users. This process has the run's rights: it
writes the samples to the run's folder, and reads a trace that is to be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from wattload.core.errors import PowerError, WattloadError
from wattload.core.power import PowerSource
from wattload.core.record.energy import PowerStateRecord
from wattload.power.nvme.admin import DEVICE_NAME
from wattload.power.sampler.host import SamplerHost, power_config
from wattload.power.sampler.protocol import (
    ANSWER_TIMEOUT_S,
    AbortReply,
    FinishReply,
    Message,
    MessageStream,
    OpenReply,
    error_in,
    reply_in,
)
from wattload.power.sampler.samples import BackgroundWriter, SampleFile, SampleLines
from wattload.power.sources import replay
from wattload.power.sources.base import PowerDevice


class Relay:
    """Commands that a service executes."""

    due_ns = None

    def __init__(self, service: MessageStream, host: SamplerHost, runs: Path) -> None:
        service.settimeout(ANSWER_TIMEOUT_S)
        self._service = service
        self._host = host
        self._runs = runs
        self._is_lost = False
        self._answers: list[Message] = []
        self._lines = SampleLines()
        self._reset(None)

    def _reset(self, run_id: str | None) -> None:
        self.run_id = run_id
        self.states: Sequence[PowerStateRecord] = ()
        self._sampled_host = ""
        self._period_s = 0.0
        self._writer: BackgroundWriter | None = None
        self._trace: PowerSource | None = None

    @property
    def watched(self) -> Mapping[int, Callable[[], None]]:
        return {} if self._is_lost else {self._service.fileno(): self._receive}

    def tick(self) -> None:
        """Nothing is due here: the service samples."""

    def execute(self, message: Message) -> Mapping[str, Any]:
        match message["command"]:
            case "open":
                return self._open(message)
            case "start":
                return self._start(message)
            case "finish":
                return self._finish(message)
            case "abort":
                answer = self._ask(message)
                self.states = reply_in(answer, AbortReply).states
                self._close()
                self._writer = self._trace = None
                return answer
        return self._ask(message)

    def end(self) -> None:
        """Have the service restore everything; it does so too when the connection closes.

        Without its answer, the states stay unknown, and the run still gets its record.
        """
        if self.run_id is not None and not self._is_lost:
            with suppress(WattloadError):
                self.states = reply_in(self._ask({"command": "abort"}), AbortReply).states
        self._close()

    def _open(self, message: Message) -> Mapping[str, Any]:
        self._reset(message["run_id"])
        request = message["request"]
        self._period_s = request["period_s"]
        replayed = self._open_trace(request, message["devices"])
        answer = self._ask({**message, **replayed})
        self._sampled_host = reply_in(answer, OpenReply).host
        return answer

    def _open_trace(self, request: Message, names: Sequence[str]) -> Mapping[str, Any]:
        """Open the trace that is to be replayed, if any; return its facts."""
        if replay.NAME not in (request["source"], *request["beside"]):
            return {}
        config = power_config(request, names, self._host, is_client=True)
        devices = [
            PowerDevice(
                key=self._host.serial_of(name),
                name=name,
                is_nvme=DEVICE_NAME.fullmatch(name) is not None,
            )
            for name in names
        ]
        (self._trace,) = replay.find(devices, config)
        self._trace.open()
        return {"replayed": self._trace.facts().model_dump(mode="json")}

    def _start(self, message: Message) -> Mapping[str, Any]:
        folder = self._runs / str(self.run_id)
        file = SampleFile.create(folder, host=self._sampled_host, period_s=self._period_s)
        self._writer = BackgroundWriter(file)
        if self._trace is not None:
            self._trace.start()
        return self._ask(message)

    def _finish(self, message: Message) -> Mapping[str, Any]:
        reply = reply_in(self._ask(message), FinishReply)
        written_count, lost_count = self._close()
        self._reset(None)
        if reply.cost is not None:
            lost_count += reply.cost.lost_sample_count
        reply = reply.with_counts(written_count, lost_count)
        return {"report": reply.model_dump(mode="json")}

    def _close(self) -> tuple[int, int]:
        if self._trace is not None:
            self._trace.close()
        return (0, 0) if self._writer is None else self._writer.close()

    def _ask(self, message: Message) -> Mapping[str, Any]:
        with suppress(OSError):  # a service that has ended or hangs does not answer either
            self._service.send(message)
        while not self._answers:
            if self._is_lost:
                raise PowerError(_LOST)
            self._receive()
        answer = dict(self._answers.pop())
        if not answer.pop("ok"):
            raise error_in(answer)
        return answer

    def _receive(self) -> None:
        """Read what the service has sent: samples, and the answer to a command."""
        try:
            messages = self._service.read()
        except (EOFError, OSError):
            self._is_lost = True
            return
        for message in messages:
            if "samples" in message:
                self._write(message["samples"])
            else:
                self._answers.append(message)

    def _write(self, lines: Sequence[str]) -> None:
        if self._writer is not None:
            own = self._lines.of(self._trace.read()) if self._trace is not None else []
            self._writer.write([*lines, *own])


_LOST = (
    "the sampler service has ended or hangs; its restart restores a power state that it had set "
    "(`systemctl status wattload-sampler` shows why)"
)
