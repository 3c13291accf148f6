"""Leaders of several hosts that watch each other, as processes with real connections."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, environment
from wattload.core.errors import RunError
from wattload.run.watch import Offer, Watch

pytestmark = pytest.mark.slow

HOSTS = ("one", "two", "three")
PERIOD_S = 1.0
LONG_S = 20.0
"""A period in which nobody is called silent, however busy this machine is."""
SILENT = f"for {5 * PERIOD_S:g} s: the host, its network or its first process has stopped"

PROGRAM = """
import dataclasses, json, os, sys
from wattload.run.watch import Offer, Watch

def say(*words):
    print(*words, flush=True)

def end(reason):
    say("end:", reason)
    os._exit(1)

period_s, host, *hosts = sys.argv[1:]
note = lambda reason: say("note:", reason)
watch = Watch(hosts, note=note, end=end, period_s=float(period_s))
if host == hosts[0]:
    say(json.dumps(dataclasses.asdict(watch.listen())))
else:
    watch.connect(Offer(**json.loads(input())), host)
    say("connected")
for line in sys.stdin:
    word, _, reason = line.strip().partition(" ")
    if word == "fail":
        watch.say_why(reason)
        os._exit(2)
    watch.close()
    say("closed")
    break
"""


class Leader:
    """Stands for a leader's process: it prints the reasons that reach it, and why it ends."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(folder),
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def last_words(self) -> str:
        """Return what it printed until its end."""
        assert self.process.stdout is not None
        words = self.process.stdout.read()
        self.process.wait(DEADLINE_S)
        return words


Start = Callable[..., list[Leader]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Leader] = []

    def start_leaders(
        count: int = 2,
        period_s: float = PERIOD_S,
        through: Callable[[int], int] = lambda port: port,
    ) -> list[Leader]:
        """Start leaders that are connected, through a port in front of the root's."""
        hosts = HOSTS[:count]
        started.extend(Leader(tmp_path, str(period_s), host, *hosts) for host in hosts)
        root, *others = started
        offer = {**json.loads(root.hear()), "addresses": ["127.0.0.1"]}
        for other in others:
            other.say(json.dumps({**offer, "port": through(offer["port"])}))
            assert other.hear() == "connected"
        return started

    yield start_leaders
    for leader in started:
        leader.process.kill()
        leader.process.communicate()


class Network:
    """Forwards connections until it is cut, as a network is: neither side hears of it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._forward)
        self._thread.start()

    def cut(self) -> None:
        self._is_cut.set()
        self._thread.join()

    def _forward(self) -> None:
        self._near = self._listener.accept()[0]
        self._far = socket.create_connection(("127.0.0.1", self._port))
        ways = {self._near: self._far, self._far: self._near}
        while not self._is_cut.is_set():
            for source in select.select(list(ways), [], [], 0.05)[0]:
                with suppress(OSError):
                    ways[source].send(source.recv(4096))

    def close(self) -> None:
        self._is_cut.set()
        self._thread.join()
        for each in (self._listener, self._near, self._far):
            each.close()


def test_a_watch_that_is_closed_accuses_nobody(start: Start) -> None:
    leaders = start(3, LONG_S)
    for leader in leaders:
        leader.say("close")
        assert leader.last_words() == "closed\n"
        assert leader.process.returncode == 0


def test_a_stopped_leader_ends_the_run_on_all_hosts_by_its_name(start: Start) -> None:
    root, two, three = start(3)
    os.kill(two.process.pid, signal.SIGSTOP)
    reason = f"nothing was heard from two {SILENT}"
    assert root.last_words() == f"note: {reason}\nend: {reason}\n"
    assert three.last_words() == f"note: {reason}\nend: {reason}\n"
    os.kill(two.process.pid, signal.SIGCONT)
    assert "end: the first process on one has ended" in two.last_words()


def test_the_stopped_root_is_named(start: Start) -> None:
    root, two = start()
    os.kill(root.process.pid, signal.SIGSTOP)
    assert f"end: nothing was heard from one {SILENT}" in two.last_words()


def test_a_cut_network_ends_both_sides(start: Start) -> None:
    networks: list[Network] = []

    def through(port: int) -> int:
        networks.append(Network(port))
        return networks[0].port

    root, two = start(through=through)
    networks[0].cut()
    assert f"end: nothing was heard from two {SILENT}" in root.last_words()
    assert f"end: nothing was heard from one {SILENT}" in two.last_words()
    networks[0].close()


def test_hosts_that_are_stopped_together_do_not_accuse_each_other(start: Start) -> None:
    root, two = start()
    for leader in (root, two):
        os.kill(leader.process.pid, signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        root.process.wait(8 * PERIOD_S)
    for leader in (two, root):
        os.kill(leader.process.pid, signal.SIGCONT)
    with pytest.raises(subprocess.TimeoutExpired):
        root.process.wait(8 * PERIOD_S)
    for leader in (root, two):
        leader.say("close")
        assert leader.last_words() == "closed\n"


def test_a_leader_that_was_killed_is_named_on_all_hosts(start: Start) -> None:
    root, two, three = start(3)
    two.process.kill()
    reason = "the first process on two has ended"
    assert root.last_words() == f"note: {reason}\nend: {reason}\n"
    assert three.last_words().startswith(f"note: {reason}\n")


def test_a_leader_that_fails_says_why(start: Start) -> None:
    root, two = start()
    two.say("fail two: the drive is gone")
    assert root.last_words() == "note: two: the drive is gone\nend: two: the drive is gone\n"


def test_other_programs_are_turned_away(start: Start) -> None:
    silent: list[socket.socket] = []

    def through(port: int) -> int:
        with socket.create_connection(("127.0.0.1", port)) as foreign:
            foreign.sendall("GÉT / HTTP/1.1\r\nHost: one\r\n\r\n".encode("latin-1"))
            assert foreign.recv(100) == b""
        silent.append(socket.create_connection(("127.0.0.1", port)))
        return port

    for leader in start(2, LONG_S, through):
        leader.say("close")
        assert leader.last_words() == "closed\n"
    silent[0].close()


def test_an_unreachable_root_is_one_sentence_with_both_hosts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    offer = Offer(addresses=("127.0.0.1",), port=port, hello="a", answer="b")
    watch = Watch(HOSTS, note=print, end=print)
    with pytest.raises(RunError, match=f"^two can't reach one by TCP at port {port} .*127.0.0.1: "):
        watch.connect(offer, "two")
    watch.close()
