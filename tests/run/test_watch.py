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
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, environment, until
from wattload.core.errors import RunError
from wattload.run.watch import Offer, Watch, say_why

pytestmark = pytest.mark.slow

HOSTS = ("one", "two", "three")
PERIOD_S = 1.0
LONG_S = 20.0
"""A period in which nobody is called silent, however busy this machine is."""
SILENT = f"for {5 * PERIOD_S:g} s: the host, its network or its first process has stopped"

PROGRAM = """
import dataclasses, json, os, sys, time
from wattload.run.watch import Offer, Watch, say_why

def say(*words):
    print(*words, flush=True)

def note(reason):
    say("note:", reason)
    if host == hanging:
        time.sleep(1000)

def end(reason):
    say("end:", reason)
    os._exit(1)

period_s, hanging, host, *hosts = sys.argv[1:]
watch = Watch(hosts, {}, note=note, end=end, period_s=float(period_s))
if host == hosts[0]:
    offer = dataclasses.replace(watch.listen(), addresses=("127.0.0.1",))
    say(json.dumps(dataclasses.asdict(offer)))
else:
    offer = watch.connect(Offer(**json.loads(input())), host)
    say("connected")
for line in sys.stdin:
    word, _, reason = line.strip().partition(" ")
    if word == "fail":
        say_why(offer, host, reason)
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
        hanging: str = "",
    ) -> list[Leader]:
        """Start leaders that are connected, through a port in front of the root's.

        The one on the ``hanging`` host can't write down why the run ends.
        """
        hosts = HOSTS[:count]
        started.extend(Leader(tmp_path, str(period_s), hanging, host, *hosts) for host in hosts)
        root, *others = started
        offer = json.loads(root.hear())
        for other in others:
            other.say(json.dumps({**offer, "port": through(offer["port"])}))
            assert other.hear() == "connected"
        return started

    yield start_leaders
    for leader in started:
        leader.process.kill()
        leader.process.communicate()


class Network:
    """Forwards a connection until it is cut, as a network is: neither side hears of it."""

    def __init__(self, port: int, *, most_bytes: int = 4096) -> None:
        self._port, self._most_bytes = port, most_bytes
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
                    ways[source].send(source.recv(self._most_bytes))

    def close(self) -> None:
        self._is_cut.set()
        self._thread.join()
        for each in (self._listener, self._near, self._far):
            each.close()


def test_a_watch_that_is_closed_accuses_nobody(start: Start) -> None:
    close(*start(3, LONG_S))


def close(*leaders: Leader) -> None:
    for leader in leaders:
        leader.say("close")
    for leader in leaders:
        assert leader.last_words() == "closed\n"
        assert leader.process.returncode == 0


@pytest.mark.thorough
def test_leaders_that_close_are_watched_until_all_do(start: Start) -> None:
    root, two, three = start(3)
    for leader in (root, two):
        leader.say("close")
    os.kill(three.process.pid, signal.SIGSTOP)
    for leader in (root, two):
        assert f"note: nothing was heard from three {SILENT}\n" in leader.last_words()


@pytest.mark.thorough
def test_a_stopped_leader_ends_the_run_on_all_hosts_by_its_name(start: Start) -> None:
    root, two, three = start(3)
    os.kill(two.process.pid, signal.SIGSTOP)
    reason = f"nothing was heard from two {SILENT}"
    assert root.last_words() == f"note: {reason}\nend: {reason}\n"
    assert three.last_words() == f"note: {reason}\nend: \n"  # the root prints why
    os.kill(two.process.pid, signal.SIGCONT)
    assert two.last_words() == f"note: {reason}\nend: \n"


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


@pytest.mark.thorough
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
    close(root, two)


def test_a_leader_that_was_killed_is_named_on_all_hosts(start: Start) -> None:
    root, two, three = start(3)
    two.process.kill()
    reason = "the first process on two has ended"
    assert root.last_words() == f"note: {reason}\nend: {reason}\n"
    assert three.last_words().startswith(f"note: {reason}\n")


def test_a_process_of_the_host_that_was_killed_is_named() -> None:
    reasons: list[str] = []
    with subprocess.Popen(["sleep", "infinity"]) as rank:
        names = {rank.pid: "rank 1 on one"}
        watch = Watch(HOSTS[:1], names, note=reasons.append, end=print, period_s=LONG_S)
        watch.start()
        assert not reasons
        rank.kill()
        until(lambda: bool(reasons))
    watch.close()
    assert reasons == ["rank 1 on one has ended"]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_leader_that_fails_says_why(start: Start, failing: int) -> None:
    leaders = start(3)
    leaders[failing].say("fail two: the drive is gone")
    for leader in leaders[:failing] + leaders[failing + 1 :]:
        assert leader.last_words().startswith("note: two: the drive is gone\n")


def test_the_reason_need_not_be_written_down(start: Start) -> None:
    """The host that was lost may have served the file system."""
    root, two = start(hanging="two")
    root.process.kill()
    reason = "the first process on one has ended"
    assert two.last_words() == f"note: {reason}\nend: {reason}\n"


def test_messages_may_come_in_parts(start: Start) -> None:
    networks: list[Network] = []

    def through(port: int) -> int:
        networks.append(Network(port, most_bytes=1))
        return networks[0].port

    close(*start(2, LONG_S, through))
    networks[0].close()


def test_each_host_of_the_run_is_let_in_once() -> None:
    reasons: list[str] = []
    watch = Watch(HOSTS[:2], {}, note=reasons.append, end=print, period_s=LONG_S)
    offer = watch.listen()

    def say(text: str) -> socket.socket:
        stream = socket.create_connection(("127.0.0.1", offer.port), DEADLINE_S)
        stream.sendall(text.encode())
        return stream

    answer = f"{offer.answer}\n".encode()
    with say(f"{offer.hello} two\n") as two:
        assert two.recv(len(answer)) == answer
        for text in (f"{offer.hello} four\n", f"{offer.hello} two\n", f"{offer.hello} one\n"):
            with say(text) as other:
                assert other.recv(1) == b""
        for host in ("four", "two"):  # only of the second one the run is to hear
            say_why(replace(offer, addresses=("127.0.0.1",)), host, f"{host} has failed")
        assert reasons == ["two has failed"]
        two.sendall(b"bye\n")
        watch.close()


def test_other_programs_are_turned_away(start: Start) -> None:
    silent: list[socket.socket] = []

    def through(port: int) -> int:
        with socket.create_connection(("127.0.0.1", port)) as foreign:
            foreign.sendall("GÉT / HTTP/1.1\r\nHost: one\r\n\r\n".encode("latin-1"))
            assert foreign.recv(100) == b""
        silent.append(socket.create_connection(("127.0.0.1", port)))
        return port

    close(*start(2, LONG_S, through))
    silent[0].close()


def test_an_unreachable_root_is_one_sentence_with_both_hosts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    offer = Offer(addresses=("127.0.0.1",), port=port, hello="a", answer="b")
    watch = Watch(HOSTS, {}, note=print, end=print)
    with pytest.raises(RunError, match=f"^two can't reach one by TCP at port {port} .*127.0.0.1: "):
        watch.connect(offer, "two")
    watch.close()
