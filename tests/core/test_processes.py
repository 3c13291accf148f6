"""Which processes run below this one, and their end."""

from __future__ import annotations

import os
import subprocess
import sys

from wattload.core.processes import Family, running

SCRIPT = """
import ctypes, os, threading, time
def is_ended():
    with open(f"/proc/{os.getpid()}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"
def work():
    while not is_ended():
        time.sleep(0.01)
    print("ended", flush=True)
    time.sleep(600)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
"""``exit`` as a system call ends the main thread alone."""

ENDING = """
import subprocess, sys
from wattload.core.processes import end_descendants
started = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
started.stdout.readline()
try:
    end_descendants()
    print(started.wait(0))
finally:
    started.kill()
"""


def test_a_process_whose_main_thread_has_ended_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ended\n"
        try:
            assert running()[started.pid] == Family(os.getpid(), os.getsid(0))
        finally:
            started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert started.pid not in running()


def test_a_process_whose_main_thread_has_ended_is_ended() -> None:
    words = [sys.executable, "-c", ENDING, SCRIPT]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "-9\n"
