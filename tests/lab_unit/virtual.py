"""A virtual drive on a clock that the test moves, and the admin queue to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.lab.virtual_ssd.design import Design
from tests.lab.virtual_ssd.drive import VirtualSsd
from tests.lab.virtual_ssd.engine import Operation
from tests.lab.virtual_ssd.meters import Updates
from tests.lab.virtual_ssd.reply import Command
from wattload.power.nvme.admin import AdminCommand, Completion

NS = 1_000_000_000
START_NS = 7 * NS + 123_456_789
"""No whole second, so that nothing is in step with the clock by chance."""
CHUNK_BYTES = 1 << 20


@dataclass
class Bench:
    """A drive at ``now_ns``; ``finished_ns`` are the ends of the operations it was given."""

    design: Design = field(default_factory=Design)
    updates: Updates = "sliding"
    now_ns: int = START_NS
    finished_ns: list[int] = field(default_factory=list)
    given: int = 0

    def __post_init__(self) -> None:
        self.drive = VirtualSsd(self.design, self.now_ns, self.updates)
        self.engine = self.drive.engine

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * NS)
        self.engine.advance(self.now_ns)

    def give(self, *, is_write: bool, size_bytes: int = CHUNK_BYTES, start_bytes: int = 0) -> None:
        def done() -> None:
            self.finished_ns.append(self.engine.now_ns)

        self.given += 1
        self.drive.submit(
            Operation(is_write=is_write, start_bytes=start_bytes, size_bytes=size_bytes, done=done),
            self.now_ns,
        )

    @property
    def outstanding(self) -> int:
        return self.given - len(self.finished_ns)

    def drain(self) -> float:
        """Wait until all operations are done and return for how many seconds it took."""
        start_ns = self.now_ns
        while (wake_ns := self.engine.wake_ns) is not None:
            self.now_ns = wake_ns
            self.engine.advance(wake_ns)
        return (self.now_ns - start_ns) / NS

    def energy_j(self, start_ns: int, end_ns: int) -> float:
        return self.engine.curve.between_j(start_ns, end_ns)


@dataclass
class VirtualAdmin:
    """An ``AdminDevice`` whose commands take no time."""

    bench: Bench
    name: str = "nvme7"
    sent_data: bytes = b""

    def submit(self, command: AdminCommand) -> Completion:
        reply = self.bench.drive.admin(
            Command(
                opcode=command.opcode,
                namespace=command.namespace,
                cdw10=command.cdw10,
                cdw11=command.cdw11,
                cdw12=command.cdw12,
                data=self.sent_data,
            ),
            self.bench.now_ns,
        )
        if reply.delay_ns is None:
            raise TimeoutError
        self.bench.wait(reply.delay_ns / NS)
        data = reply.data[: command.data_bytes].ljust(command.data_bytes, b"\0")
        return Completion(status=reply.status, result=reply.result, data=data)

    def close(self) -> None:
        """Nothing is held open."""
