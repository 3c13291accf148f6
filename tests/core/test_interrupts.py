from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from wattload.core import interrupts
from wattload.core.interrupts import ENDING_SIGNALS, interruptible, interruption


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    # A terminal's handlers, even where these tests were started by nohup or in the background.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING_SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    """Send a signal to this thread, not to one that libraries started: its handler runs at once."""
    signal.pthread_kill(threading.get_ident(), number)
    signal.getsignal(number)


@pytest.mark.parametrize("number", ENDING_SIGNALS)
def test_each_ending_signal_is_an_exception_that_names_it(number: signal.Signals) -> None:
    with interruptible():
        assert interruption() is None
        with pytest.raises(KeyboardInterrupt) as raised:
            send(number)
        name = "" if number == signal.SIGINT else f" by {number.name}"
        assert str(raised.value) == interruption() == f"interrupted{name}"
    assert interruption() is None


def test_further_signals_do_not_cut_off_what_the_first_one_ends() -> None:
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        for number in ENDING_SIGNALS:
            send(number)
        assert interruption() == "interrupted"


def test_a_swallowed_signal_can_be_repeated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "SILENCE_S", 0.0)
    with interruptible():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGINT)


def test_a_signal_in_a_callback_is_raised_after_it(capfd: pytest.CaptureFixture[str]) -> None:
    class Referent:
        pass

    referents = [Referent()]
    _reference = weakref.ref(referents[0], lambda _: send(signal.SIGTERM))
    with interruptible():
        referents.clear()  # no exception leaves the callback
        with pytest.raises(KeyboardInterrupt, match="by SIGTERM"):
            time.sleep(10)
    assert capfd.readouterr().err == ""


def test_a_held_signal_is_raised_at_the_end() -> None:
    with interruptible():
        interrupts.hold()
        with interrupts.held():
            send(signal.SIGTERM)
        assert interruption() == "interrupted by SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            interrupts.release()


def test_a_clean_up_ignores_signals() -> None:
    with interruptible():
        with interrupts.ignored():
            send(signal.SIGTERM)
        assert interruption() == "interrupted by SIGTERM"


def test_a_blocked_signal_comes_at_the_end() -> None:
    with interruptible(), pytest.raises(KeyboardInterrupt), interrupts.blocked():
        send(signal.SIGHUP)


def test_a_signal_that_was_ignored_before_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            send(signal.SIGHUP)
            assert interruption() is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupted_process_ends_in_peace() -> None:
    with interruptible(), pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)
    assert {signal.getsignal(number) for number in ENDING_SIGNALS} == {signal.SIG_IGN}


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in ENDING_SIGNALS]
    with interruptible():
        pass
    assert [signal.getsignal(number) for number in ENDING_SIGNALS] == before


FORKED = """
import os, signal, time
from wattload.core.interrupts import interruptible
with interruptible():
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, b"up")
        time.sleep(60)
    os.read(ready, 2)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_worker_is_ended_by_a_signal_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == (str(-signal.SIGTERM), "")


def test_another_thread_can_break_the_main_thread_off() -> None:
    with interruptible():
        other = threading.Timer(0.05, interrupts.break_off)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)
        other.join()
        assert interruption() is None


def test_a_break_is_held_back_like_a_signal() -> None:
    with interruptible():
        interrupts.hold()
        interrupts.break_off()
        time.sleep(0)
        with pytest.raises(KeyboardInterrupt):
            interrupts.release()


def test_where_signals_are_not_heeded_nothing_is_broken_off() -> None:
    interrupts.break_off()
    time.sleep(0)


def test_a_signal_that_nobody_here_sent_breaks_nothing_off() -> None:
    with interruptible():
        send(signal.SIGUSR1)
