"""The command of docs/meters.md for a meter of another host runs as printed; recipes print watts.

The other host is a real sshd on loopback; only the library of the meter is imitated.
"""

from __future__ import annotations

import getpass
import http.server
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.docs.commands import ROOT, commands_of
from tests.run.running import record_of, run, until

PAGE = ROOT / "docs" / "meters.md"
RECIPES = ROOT / "docs" / "recipes"
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
WATTS = 5.25
BRIEF = ("power.idle_s=2", "power.idle_after_s=0", "power.rest_max_s=1")
JOULESCOPE = f"""
import contextlib, threading, time

class Meter:
    def parameter_set(self, name, value):
        assert (name, value) == ("reduction_frequency", "10 Hz")

    def statistics_callback_register(self, function):
        found = {{"signals": {{"power": {{"µ": {{"value": {WATTS}, "units": "W"}}}}}}}}
        def call():
            while True:
                function(found)
                time.sleep(0.1)
        threading.Thread(target=call, daemon=True).start()

def scan_require_one(config):
    return contextlib.nullcontext(Meter())
"""
"""What the recipe uses of the package joulescope 1.5.0."""


@pytest.mark.slow
@pytest.mark.skipif(not Path(SSHD).exists(), reason="sshd is missing: openssh-server")
def test_a_meter_of_another_host_is_read_as_the_page_prints(tmp_path: Path) -> None:
    (printed,) = (
        each for each in commands_of(PAGE) if "run='ssh server" in each and "run w" in each
    )
    (tmp_path / "ssd").mkdir()
    words = shlex.split(printed.replace("/mnt/ssd", str(tmp_path / "ssd")))
    assert words[:2] == ["wattload", "run"]
    with other_host(tmp_path) as (tools, recipe):
        paths = f"{tools}{os.pathsep}{os.environ['PATH']}"
        done = run(tmp_path, *words[2:], *BRIEF, seconds=300, PATH=paths)
        assert done.returncode in (0, 3), done.stderr
        until(lambda: not running(recipe))
    power = record_of(tmp_path).power
    (source,) = (each.facts for each in power.sources if each.facts and each.used)
    assert "its own times" in source.detail
    (energy,) = (each for each in power.energy if each.phase == "random_write" and each.chosen)
    assert (energy.source, energy.evidence, energy.scope) == ("command", "measured", "drive")
    assert energy.mean_w == pytest.approx(WATTS, rel=1e-6)


@contextmanager
def other_host(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a folder with an ``ssh`` that knows the host ``server``, and that host's recipe."""
    tools, there = folder / "here", folder / "there"
    for each in (tools, there):
        each.mkdir()
    recipe = there / "joulescope_watts.py"
    shutil.copy(RECIPES / recipe.name, recipe)
    (there / "joulescope.py").write_text(JOULESCOPE)
    script(there / "wattload", f'exec {sys.executable} -m wattload "$@"')
    for key in ("host", "user"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(make, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
        f"SetEnv PATH={there}:{Path(sys.executable).parent}:{os.environ['PATH']} "
        f"PYTHONPATH={ROOT}:{there} WATTLOAD_STATE_DIR={there}/state\n"
    )
    (folder / "ssh_config").write_text(
        f"Host server\nHostName 127.0.0.1\nPort {port}\nUser {getpass.getuser()}\n"
        f"IdentityFile {folder}/user\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
        "UserKnownHostsFile /dev/null\n"
    )
    script(tools / "ssh", f'exec {shutil.which("ssh")} -F {folder}/ssh_config "$@"')
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # Debian's service makes it
    with subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"]) as server:
        try:
            until(lambda: answers(port))
            yield tools, recipe
        finally:
            server.terminate()


def script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def running(program: Path) -> bool:
    """Whether a process has the program in its command line."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if bytes(program) in each.read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


class Prometheus(http.server.BaseHTTPRequestHandler):
    """Answers instant queries of a range, as Prometheus's HTTP API is documented."""

    series = 1
    asked: ClassVar[set[str]]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        self.asked.add(f"{asked.path} {parse_qs(asked.query)['query'][0]}")
        now_s = time.time()
        values = [
            [round(second / 2, 3), "612.5"]
            for second in range(int(2 * now_s) - 60, int(2 * now_s) + 1)
        ]
        result = [
            {"metric": {"host": f"n{number}"}, "values": values} for number in range(self.series)
        ]
        body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None: ...


@contextmanager
def prometheus(series: int) -> Iterator[list[str]]:
    """Yield the recipe's command for a server that has so many series of watts."""

    class Handler(Prometheus):
        asked: ClassVar[set[str]] = set()

    Handler.series = series
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield [sys.executable, str(RECIPES / "prometheus_watts.py"), url, "node_power_watts"]
        assert Handler.asked == {"/api/v1/query node_power_watts[30s]"}
        server.shutdown()


def test_samples_of_prometheus_are_printed_once_with_their_own_times() -> None:
    with (
        prometheus(1) as command,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        start_s = time.time()
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(4)]
        process.kill()
    times = [float(time_s) for time_s, _ in lines]
    assert {watts for _, watts in lines} == {"612.5"}
    assert times[0] > start_s - 1
    assert [after - before for before, after in pairwise(times)] == [0.5] * 3


def test_two_series_of_prometheus_are_not_mixed() -> None:
    with prometheus(2) as command:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "matches 2 series" in done.stderr
    assert done.stdout == ""
