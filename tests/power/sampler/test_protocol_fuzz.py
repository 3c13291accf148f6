"""Fuzzing of the socket's protocol: random sequences of commands, and random bytes.

``WATTLOAD_FUZZ_S`` is the duration of the random bytes; 3 s by default.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests.power.sampler_bench import Bench, wait_for
from wattload.power.config import PowerConfig
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import PROTOCOL_VERSION

FUZZ_S = float(os.environ.get("WATTLOAD_FUZZ_S", "3"))


class Raw:
    """A client that sends any bytes in any number of pieces."""

    def __init__(self, path: Path) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(30)
        self.stream.connect(str(path))
        self._answers = self.stream.makefile("rb")

    def say(self, data: bytes, cut: int = 0) -> None:
        self.stream.sendall(data[:cut])
        self.stream.sendall(data[cut:])

    def ask(self, message: dict[str, Any], cut: int = 0) -> dict[str, Any]:
        data = json.dumps(message).encode() + b"\n"
        self.say(data, min(cut, len(data)))
        return self.heard()

    def heard(self) -> dict[str, Any]:
        answer = json.loads(self._answers.readline())
        assert isinstance(answer, dict)
        return answer

    def close(self) -> None:
        self._answers.close()
        self.stream.close()


CUTS = st.integers(0, 60)
STATES = st.sampled_from([None, 0, 1, 2])
WRONG = st.sampled_from(
    [
        {"state": 7},
        {"state": 3},
        {"source": "no such"},
        {"period_s": 0},
        {"replay": {"path": "/etc/shadow", "align": "start", "device": ""}},
        {"x": 1},
    ]
)
NONSENSE = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b" ") + b"\n")


def machine_of(bench: Bench, path: Path) -> type[RuleBasedStateMachine]:
    """Return the state machine of clients of one service, which is kept between examples."""
    numbers = count()

    class Clients(RuleBasedStateMachine):
        """What the protocol guarantees to several clients, whatever they send and in any order."""

        clients: Bundle[Raw] = Bundle("clients")

        def __init__(self) -> None:
            super().__init__()
            self.open_clients: list[Raw] = []
            self.holder: Raw | None = None
            self.stage = ""
            self.state: int | None = None
            self.run: Path = bench.run

        @rule(target=clients)
        def connect(self) -> Any:
            if len(self.open_clients) >= 3:
                return multiple()
            client = Raw(path)
            self.open_clients.append(client)
            return client

        @rule(client=clients, cut=CUTS)
        def hello(self, client: Raw, cut: int) -> None:
            run = bench.add_run(f"of-a-client-{next(numbers)}")
            answer = client.ask(
                {"command": "hello", "protocol": PROTOCOL_VERSION, "run_id": run.name}, cut
            )
            assert answer["ok"] is (self.holder is None), answer
            if self.holder is None:
                self.holder, self.stage, self.state, self.run = client, "greeted", None, run

        @rule(client=clients, state=STATES, cut=CUTS)
        def open(self, client: Raw, state: int | None, cut: int) -> None:
            answer = client.ask(self._opening({"state": state, "period_s": 0.01}), cut)
            assert answer["ok"] is (client is self.holder and self.stage == "greeted"), answer
            if answer["ok"]:
                self.stage, self.state = "open", state

        @rule(client=clients, wrong=WRONG)
        def open_wrongly(self, client: Raw, wrong: dict[str, Any]) -> None:
            assert client.ask(self._opening(wrong))["ok"] is False
            if client is self.holder and self.stage == "greeted":
                self.stage = "ended"

        @rule(client=clients)
        def start(self, client: Raw) -> None:
            answer = client.ask({"command": "start"})
            assert answer["ok"] is (client is self.holder and self.stage == "open"), answer
            if answer["ok"]:
                self.stage = "sampling"

        @rule(client=clients, is_on=st.booleans())
        def quiet(self, client: Raw, is_on: bool) -> None:
            answer = client.ask({"command": "quiet", "on": is_on})
            may = client is self.holder and self.stage in ("open", "sampling")
            assert answer["ok"] is may, answer

        @rule(client=clients)
        def status(self, client: Raw) -> None:
            answer = client.ask({"command": "status"})
            assert answer["ok"] is (client is self.holder), answer
            if answer["ok"]:
                assert answer["report"]["state"] == self.stage

        @rule(client=clients)
        def finish(self, client: Raw) -> None:
            answer = client.ask({"command": "finish"})
            may = client is self.holder and self.stage in ("open", "sampling")
            assert answer["ok"] is may, answer
            if may:
                self.holder = None

        @rule(client=clients, reason=st.text(max_size=20))
        def abort(self, client: Raw, reason: str) -> None:
            assume(reason.isprintable())
            answer = client.ask({"command": "abort", "status": "failed", "reason": reason})
            assert answer["ok"] is (client is self.holder), answer
            if answer["ok"]:
                assert (self.run / "record.json").exists()
                self.holder = None

        @rule(client=clients, nonsense=NONSENSE)
        def talk_nonsense(self, client: Raw, nonsense: bytes) -> None:
            client.say(nonsense)
            assert client.heard()["ok"] is False

        @rule(client=consumes(clients), word=st.binary(max_size=10))
        def leave(self, client: Raw, word: bytes) -> None:
            client.say(word.replace(b"\n", b""))
            self._forget(client)
            if client is self.holder:
                wait_for((self.run / "record.json").exists)
                self.holder = None

        @invariant()
        def drive_is_changed_while_its_run_lasts(self) -> None:
            lasts = self.holder is not None and self.stage in ("open", "sampling")
            assert bench.state() == ((self.state or 0) if lasts else 0)

        def teardown(self) -> None:
            for client in list(self.open_clients):
                self._forget(client)
            if self.holder is not None:
                wait_for((self.run / "record.json").exists)
            assert bench.state() == 0

        def _opening(self, request: dict[str, Any]) -> dict[str, Any]:
            return {
                "command": "open",
                "request": request,
                "devices": ["nvme0"],
                "block_devices": ["no-such-disk"],
            }

        def _forget(self, client: Raw) -> None:
            client.close()
            self.open_clients.remove(client)

    return Clients


def test_clients_in_any_order_get_what_is_theirs(bench: Bench) -> None:
    path = bench.service()
    machine = machine_of(bench, path)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def session(run_id: str) -> list[bytes]:
    """Return a run's messages, which the fuzzer damages."""
    messages: list[dict[str, Any]] = [
        {"command": "hello", "protocol": PROTOCOL_VERSION, "run_id": run_id},
        {
            "command": "open",
            "request": {"source": "auto", "state": 1, "period_s": 0.01},
            "devices": ["nvme0"],
            "block_devices": ["vda"],
        },
        {"command": "start"},
        {"command": "status"},
        {"command": "abort", "status": "failed", "reason": "\N{SNOWMAN} \\ud83d"},
        {"command": "finish"},
    ]
    return [json.dumps(each).encode() + b"\n" for each in messages]


PIECES = [
    b"\n", b"\x00", b"\xff", b"\xff\xfe", b'"', b"\\ud800", b"{", b"}", b"[", b"]", b"../",
    b"NaN", b"Infinity", b"-0", b"1e999", b"9" * 400, b"null", b"true", b'"\\u0000"', b"[" * 300,
    b'{"a":' * 300, b" " * 5000, b"nvme0\\n", b".", b"..", b"state", b"-1", b"4294967296",
    b"/dev/nvme0",
]  # fmt: skip


def spoil(dice: random.Random, data: bytes) -> bytes:
    """Return the bytes with a few of them flipped, cut, repeated, or others inserted."""
    spoilt = bytearray(data)
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(spoilt) + 1)
        match dice.randrange(4):
            case 0 if at < len(spoilt):
                spoilt[at] ^= 1 << dice.randrange(8)
            case 1:
                del spoilt[at : at + dice.randrange(20)]
            case 2:
                spoilt[at:at] = spoilt[at : at + dice.randrange(200)]
            case _:
                spoilt[at:at] = dice.choice(PIECES)
    return bytes(spoilt)


def attack(dice: random.Random, path: Path, run_id: str) -> None:
    """Act as one client: send damaged messages in pieces, read some answers, and disconnect."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(10)
        stream.connect(str(path))
        with suppress(OSError):  # the service closes the connection after too many errors
            for message in session(run_id):
                data = spoil(dice, message) if dice.random() < 0.4 else message
                for start in range(0, len(data), size := dice.choice([1, 7, 100, 1 << 16])):
                    stream.sendall(data[start : start + size])
                if dice.random() < 0.5:
                    stream.setblocking(False)
                    with suppress(BlockingIOError):
                        stream.recv(1 << 16)
                    stream.settimeout(10)


def open_file_count(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def whole_run(bench: Bench, path: Path, run_id: str) -> None:
    bench.add_run(run_id)
    client = SamplerClient.connect(path)
    try:
        client.hello(run_id)
        client.open(PowerConfig(state=1, period_s=0.01), devices=["nvme0"], block_devices=[])
        client.start()
        assert client.finish().states[0].restored == 0
    finally:
        client.close()


def test_no_bytes_break_the_service_or_leave_anything_behind(bench: Bench) -> None:
    path = bench.service()
    pid = bench.processes[-1].pid
    whole_run(bench, path, "before")
    files, memory_bytes = open_file_count(pid), resident_bytes(pid)
    outside = {each for each in bench.folder.rglob("*") if bench.runs not in each.parents}
    seed = time.time_ns()
    dice = random.Random(seed)
    end_s = time.monotonic() + FUZZ_S
    for number in count():
        if time.monotonic() > end_s:
            break
        bench.add_run(f"fuzz-{number}")
        attack(dice, path, f"fuzz-{number}")
    reported = f"seed {seed}: {(bench.folder / 'service.log').read_text()[-2000:]}"
    assert bench.processes[-1].poll() is None, reported
    wait_for(lambda: bench.state() == 0)
    # The processes in the folders of dropped runs count towards their user's limit.
    wait_for(lambda: not Path(f"/proc/{pid}/task/{pid}/children").read_text())
    whole_run(bench, path, "after")
    assert "Traceback" not in reported, reported
    wait_for(lambda: open_file_count(pid) <= files)
    assert resident_bytes(pid) - memory_bytes < 64 << 20, reported
    assert {each for each in bench.folder.rglob("*") if bench.runs not in each.parents} == outside
    strange = {
        each.name
        for each in bench.runs.rglob("*")
        if each.is_file() and each.name not in ("draft.json", "record.json", "samples-host-1.jsonl")
    }
    assert strange == set()
