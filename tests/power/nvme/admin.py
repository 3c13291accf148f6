"""A drive of fixed answers: what each command returns, by opcode and identifier."""

from __future__ import annotations

from dataclasses import dataclass, field

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import AdminCommand, Completion

INVALID_FIELD = 0x4002


@dataclass
class Answers:
    """An ``AdminDevice``; ``logs`` are cut to the length that is asked for.

    ``identify`` is keyed by CNS, ``features`` by identifier and SEL, ``broken`` has opcodes that
    can't be sent.
    """

    name: str = "nvme0"
    identify: dict[int, bytes] = field(default_factory=dict)
    logs: dict[int, bytes] = field(default_factory=dict)
    features: dict[tuple[int, int], tuple[int, bytes]] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    sent: list[AdminCommand] = field(default_factory=list)
    closed: bool = False

    def submit(self, command: AdminCommand) -> Completion:
        """Answer one command, or refuse it with Invalid Field."""
        self.sent.append(command)
        if command.opcode in self.broken:
            raise PowerError(f"{self.name}: {command.name} could not be sent: No such device")
        number = command.cdw10 & 0xFF
        if command.opcode == 0x0A:
            answer = self.features.get((number, command.cdw10 >> 8 & 7))
            if answer is not None:
                return Completion(status=0, result=answer[0], data=answer[1])
        answers = {0x06: self.identify, 0x02: self.logs}.get(command.opcode, {})
        if number in answers:
            size = command.data_bytes
            return Completion(status=0, result=0, data=answers[number][:size].ljust(size, b"\0"))
        return Completion(status=INVALID_FIELD, result=0, data=bytes(command.data_bytes))

    def close(self) -> None:
        """Note that it was given back."""
        self.closed = True
