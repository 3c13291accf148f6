"""Whether the hosts of a run live: their leaders send each other a message every two seconds.

A rank in a call of MPI runs no Python, and MPI may wait for ever for a host that has failed. So a
thread in each leader has a TCP connection of its own to the root. Nothing limits how long a step of
a run takes: only a host that is not heard from ends the run, on both sides of the network.

Some launchers, such as srun, leave the other ranks alone when one is killed. So a leader watches
the ranks of its host, and they watch their leader.
"""

from __future__ import annotations

import os
import re
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from wattload.core import interrupts
from wattload.core.errors import RunError
from wattload.run.ranks import REST_S, flush_stderr

PERIOD_S = 2.0
MISSED = 5
"""A host that has sent nothing for so many periods is lost."""
LOST = 3
"""For so many periods ranks may undo what they changed once it is known why the run ends.

MPI's launcher may end it meanwhile. A sampler undoes the rest.
"""
CONNECT_S = 10.0
"""How long a leader tries to reach the root, at all of its addresses together."""
TELL_S = 2.0
"""How long a rank that fails tries to tell the root why."""
NOTE_S = 1.0
"""How long it may take to write down why the run ends: the lost host may serve the file system."""
PRINT_S = 1.0
"""How long the launcher may take to print what a rank has written."""
LAUNCHERS = ("mpirun", "mpiexec", "hydra_", "orte", "prte")
"""How the names of MPI's launchers and of their servants on each host begin."""

MOST_HELLO_BYTES = 1 << 16
"""A stranger that has sent so much without proving that it belongs to the run is dropped.

More than the longest error of a rank that fails.
"""

_BEAT, _BYE, _END = "beat", "bye", "end"
_GLOBAL = "00"
"""The scope of an IPv6 address that other hosts can reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Where the root listens, and what both sides say to prove that they belong to the run."""

    addresses: tuple[str, ...]
    port: int
    hello: str
    answer: str


@dataclass(slots=True, eq=False)
class _Peer:
    """Another host, and the time left until it is lost."""

    stream: socket.socket
    host: str
    """Empty until it has proved that it belongs to the run."""
    left_s: float
    received: bytes = b""
    is_leaving: bool = False
    """Whether it waits for all others to end the watch."""
    knows_reason: bool = False
    """Whether it has written down why the run ends."""
    answer: str = ""
    """What a rank that has told why waits for, until all hosts know."""

    def tell(self, *words: str) -> None:
        with suppress(OSError):  # whoever is silent is found by that
            self.stream.send(f"{' '.join(words)}\n".encode())


class Watch:
    """Watches the leaders of the other hosts from the root, and the root from each of them.

    Its thread counts only the time in which it ran itself: a host that was stopped or had no CPU
    must not call the others silent.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        processes: Mapping[int, str],
        *,
        note: Callable[[str], None],
        end: Callable[[str], None],
        period_s: float = PERIOD_S,
    ) -> None:
        """Prepare the watch of a run's hosts, of which the first one is the root's.

        Args:
            hosts: their names.
            processes: the names of other processes on this host, by PID, whose end ends the run.
            note: writes down why the run ends; called as soon as that is known.
            end: ends this host's ranks and does not return. It is given the reason unless the root
                prints that.
            period_s: the time between two messages.
        """
        self._hosts = hosts
        self._note, self._end = note, end
        self._period_s = period_s
        self._peers: list[_Peer] = []
        self._reason = ""
        self._left_s = LOST * period_s
        self._prints = True
        self._is_closing = False
        self._selector = selectors.DefaultSelector()
        self._waking, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, self._begin_to_close)
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._processes: list[int] = []
        for pid, name in processes.items():
            with suppress(OSError):  # an old container runtime may refuse it
                process = os.pidfd_open(pid)
                self._processes.append(process)
                ended = partial(self._mourn, process, name)
                self._selector.register(process, selectors.EVENT_READ, ended)

    def listen(self) -> Offer:
        """Wait for the other leaders in the background; return what they need to ``connect``."""
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, dualstack_ipv6=both)
        self._listener.setblocking(False)
        offer = Offer(
            addresses=_own_addresses(),
            port=self._listener.getsockname()[1],
            hello=secrets.token_hex(),
            answer=secrets.token_hex(),
        )
        accept = partial(self._accept, self._listener, offer)
        self._selector.register(self._listener, selectors.EVENT_READ, accept)
        self.start()
        return offer

    def connect(self, offer: Offer, host: str) -> Offer:
        """Connect the leader on ``host`` to the root; return the offer of the address that answers.

        Raises:
            RunError: none of the root's addresses can be reached.
        """
        failures = []
        addresses = _nearest_first(offer.addresses)
        for address in addresses:
            try:
                stream = _connected(address, offer, host, CONNECT_S / len(addresses))
            except OSError as error:
                failures.append(f"{address}: {error.strerror or error}")
            else:
                self._add(stream, self._hosts[0], offer)
                self._prints = False
                self.start()
                return replace(offer, addresses=(address,))
        raise RunError(
            f"{host} can't reach {self._hosts[0]} by TCP at port {offer.port} "
            f"({'; '.join(failures) or 'it has no address in a network'}); let the firewalls of "
            "both hosts admit connections between them"
        )

    def close(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """End the watch once all hosts do; one that is lost until then ends the run.

        ``meanwhile`` is called now and then.
        """
        if self._thread is not None:
            self._waking.send(b"\n")
            while self._thread.is_alive():
                meanwhile()
                self._thread.join(REST_S)
        for process in self._processes:
            os.close(process)
        for stream in (self._listener, self._waking, self._woken):
            if stream is not None:
                stream.close()
        for peer in self._peers:
            peer.stream.close()
        self._selector.close()

    def start(self) -> None:
        """Watch in the background, unless that goes on already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            with interrupts.blocked():
                self._thread.start()

    def _run(self) -> None:
        seen_s, beat_s = time.monotonic(), 0.0
        while not (self._is_closing and all(peer.is_leaving for peer in self._admitted())):
            for key, _ in self._selector.select(self._period_s / 4):
                key.data()
            if all(peer.knows_reason for peer in self._admitted()):
                self._answer_tellers()
            now_s = time.monotonic()
            awake_s, seen_s = min(now_s - seen_s, self._period_s / 2), now_s
            self._count_down(awake_s)
            if now_s - beat_s >= self._period_s:
                beat_s = now_s
                self._tell_all(_BEAT)
        if self._listener is not None:
            self._tell_all(_BYE)

    def _count_down(self, awake_s: float) -> None:
        for peer in tuple(self._peers):
            peer.left_s -= awake_s
            if peer.left_s <= 0 and peer.host:
                silent_s = MISSED * self._period_s
                why = "the host, its network or its first process has stopped"
                self._lose(f"nothing was heard from {peer.host} for {silent_s:g} s: {why}")
                self._end_run()
            elif peer.left_s <= 0:
                self._drop(peer)
        if self._reason:
            self._left_s -= awake_s
            if self._left_s <= 0:
                self._end_run()

    def _end_run(self) -> None:
        self._end(self._reason if self._prints else "")

    def _begin_to_close(self) -> None:
        self._woken.recv(1)
        self._is_closing = True
        if self._listener is None:
            self._tell_all(_BYE)

    def _tell_all(self, *words: str) -> None:
        for peer in self._admitted():
            peer.tell(*words)

    def _admitted(self) -> list[_Peer]:
        """Return the hosts that have proved that they belong to the run."""
        return [peer for peer in self._peers if peer.host]

    def _accept(self, listener: socket.socket, offer: Offer) -> None:
        with suppress(OSError):  # it has gone again
            self._add(listener.accept()[0], "", offer)

    def _add(self, stream: socket.socket, host: str, offer: Offer) -> None:
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(stream, host, MISSED * self._period_s)
        self._peers.append(peer)
        self._selector.register(stream, selectors.EVENT_READ, partial(self._receive, peer, offer))

    def _receive(self, peer: _Peer, offer: Offer) -> None:
        try:
            received = peer.stream.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not peer.host and (not received or len(peer.received) > MOST_HELLO_BYTES):
            self._drop(peer)
            return
        if not received:
            self._selector.unregister(peer.stream)
            self._lose(f"the first process on {peer.host} has ended")
            return
        *lines, peer.received = (peer.received + received).split(b"\n")
        if peer.host:
            peer.left_s = MISSED * self._period_s
        for line in lines:
            if peer in self._peers:
                self._take(peer, line.decode(errors="replace"), offer)

    def _take(self, peer: _Peer, line: str, offer: Offer) -> None:
        word, _, rest = line.partition(" ")
        if not peer.host:
            self._admit(peer, word, rest, offer)
        elif word == _BYE:
            peer.is_leaving = True
        elif word == _END:
            peer.knows_reason = True
            self._learn(rest)

    def _admit(self, peer: _Peer, hello: str, rest: str, offer: Offer) -> None:
        """Let a leader in that knows the run's word, or take from a rank why it ends the run."""
        host, _, reason = rest.partition(" ")
        is_ours = secrets.compare_digest(hello.encode(), offer.hello.encode())
        absent = {*self._hosts[1:]} - {each.host for each in self._peers}
        if is_ours and reason and host in self._hosts:
            peer.answer = offer.answer
            self._learn(reason)
        elif is_ours and not reason and host in absent:
            peer.host = host
            peer.tell(offer.answer)
        else:
            self._drop(peer)

    def _answer_tellers(self) -> None:
        for peer in [each for each in self._peers if each.answer]:
            peer.tell(peer.answer)
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.stream)
        peer.stream.close()
        self._peers.remove(peer)

    def _mourn(self, process: int, name: str) -> None:
        self._selector.unregister(process)
        self._learn(f"{name} has ended")

    def _lose(self, reason: str) -> None:
        """Learn why a peer is lost; if that is the root and has not said why, this host prints."""
        self._prints = self._prints or not self._reason
        self._learn(reason)

    def _learn(self, reason: str) -> None:
        """Write down why the run ends and tell it the other hosts; only the first reason counts.

        The end is left to MPI's launcher for a while: it knows the exit status of the run.
        """
        if self._reason:
            return
        self._reason = reason
        noting = threading.Thread(target=self._note, args=[reason], daemon=True)
        noting.start()
        noting.join(NOTE_S)
        self._tell_all(_END, reason)


def say_why(offer: Offer, host: str, reason: str) -> None:
    """Tell all hosts, by way of the root, why a rank on ``host`` ends the run.

    Returns once they have written it down, as the rank's end may end them, too.
    """
    text = f"{host} {' '.join(reason.split())}"
    for address in offer.addresses[:1]:
        with suppress(OSError):  # whoever is silent is found by that
            _connected(address, offer, text, TELL_S).close()


def end_ranks(pids: Iterable[int], reason: str) -> None:
    """End all ranks of this host, and their launcher here: it may wait for the lost host for ever.

    MPI is of no use for that, as its calls may wait for that host too. Without a ``reason``, a rank
    leaves it to another one to print it.
    """
    if reason:
        with suppress(OSError):  # nobody reads it any more
            flush_stderr(f"wattload: {reason}")
    launchers = _launchers()
    _kill(pids)
    time.sleep(PRINT_S)
    _kill(launchers)
    os._exit(RunError.exit_code)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _launchers() -> list[int]:
    """Return the processes on this host with which MPI has started this one, from here upwards.

    What started them, such as a script under another launcher, is none of them.
    """
    found: list[int] = []
    pid = os.getppid()
    with suppress(OSError):  # it has ended, or is hidden
        while pid > 1:
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
            name = fields[fields.index("(") + 1 : fields.rindex(")")]
            if name.startswith(LAUNCHERS):
                found.append(pid)
            elif found:
                break
            pid = int(fields[fields.rindex(")") + 1 :].split()[1])
    return found


def _connected(address: str, offer: Offer, text: str, limit_s: float) -> socket.socket:
    """Return a connection to the root, which has taken a text; each step has a limit of time.

    Raises:
        OSError: nobody answers at the address, or not the root.
    """
    stream = socket.create_connection((address, offer.port), timeout=limit_s)
    try:
        stream.sendall(f"{offer.hello} {text}\n".encode())
        answer = f"{offer.answer}\n".encode()
        with stream.makefile("rb", buffering=0) as file:
            if file.readline(len(answer)) != answer:
                raise ConnectionError("another program answers")
    except OSError:
        stream.close()
        raise
    return stream


def _nearest_first(addresses: Sequence[str]) -> list[str]:
    """Return another host's addresses in the order in which to try them.

    First come those that begin like an address of this host: the others may lead nowhere. Last
    come those that this host has too, such as a bridge's, unless both share their network.
    """
    own = [ip_address(each) for each in _own_addresses()]

    def common_bits(address: str) -> int:
        other = ip_address(address)
        apart = [int(other) ^ int(each) for each in own if each.version == other.version]
        return other.max_prefixlen - min(apart, default=(1 << other.max_prefixlen) - 1).bit_length()

    return sorted(
        {*addresses},
        key=lambda address: (ip_address(address) not in own, common_bits(address)),
        reverse=True,
    )


def _own_addresses() -> tuple[str, ...]:
    """Return this host's addresses in networks: not those of the host itself or of one link."""
    found: list[str] = []
    with suppress(OSError):
        table = Path("/proc/net/fib_trie").read_text(encoding="ascii")
        found += re.findall(r"\|-- (\S+)\n +/32 host LOCAL", table)
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            digits, _, _, scope, *_ = line.split()
            if scope == _GLOBAL:
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return tuple(dict.fromkeys(each for each in found if not each.startswith("127.")))
