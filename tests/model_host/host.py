"""A host with model drives, a runs folder and real sampler processes, for tests and benchmarks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.model_host.drive import Model, load, store
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord
from wattload.power.config import PowerConfig
from wattload.power.sampler.client import SamplerClient

ROOT = Path(__file__).parents[2]
RUN_ID = "run-1"
DEADLINE_S = 10.0
"""The design's limit for cleaning up after a run that was killed."""

CLIENT = """
import os, sys, time
from pathlib import Path
from tests.model_host.host import RUN_ID, ModelHost, wait_for
from wattload.power.config import PowerConfig

bench = ModelHost(Path(sys.argv[1]))
client = bench.spawn(Path(sys.argv[2]) if sys.argv[2:3] and sys.argv[2][0] == "/" else None)
limited = {"limit_w": 12.5, "apst": False} if "--limited" in sys.argv else {"state": 1}
config = PowerConfig(period_s=0.02, **limited)
client.open(RUN_ID, config, devices=["nvme0"], block_devices=[])
client.start()
wait_for(lambda: bench.round_count() >= 3)
if "--with-worker" in sys.argv and os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print(client.pid, flush=True)
time.sleep(60)
"""


@dataclass
class ModelHost:
    """Folders of one such host; every process it starts is ended by ``clean``."""

    folder: Path
    clients: list[SamplerClient] = field(default_factory=list)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def models(self) -> Path:
        return self.folder / "models"

    @property
    def run(self) -> Path:
        return self.runs / RUN_ID

    @property
    def samples(self) -> Path:
        """The samples of the first run."""
        return self.run / "samples-host-1.jsonl"

    @property
    def program(self) -> Sequence[str]:
        module = "tests.model_host.program"
        return (sys.executable, "-P", "-m", module, "--models", str(self.models))

    def set_up(self, **drives: Model) -> None:
        self.models.mkdir()
        for name, model in (drives or {"nvme0": Model()}).items():
            store(self.models / f"{name}.json", model)
        self.add_run(RUN_ID)

    def add_run(self, run_id: str) -> Path:
        """Make the folder of a run; returns it."""
        folder = self.runs / run_id
        folder.mkdir(parents=True)
        return folder

    def round_count(self, run_id: str = RUN_ID) -> int:
        """Return how often the first drive's power state was sampled in a run."""
        path = self.runs / run_id / "samples-host-1.jsonl"
        return path.read_text().count('"power_state"') if path.exists() else 0

    def spawn(self, service: Path | None = None) -> SamplerClient:
        """Start a sampler of a run, or one that uses the service on a socket."""
        client = SamplerClient.spawn(
            self.runs, self.folder / "sampler.log", service=service, program=self.program
        )
        self.clients.append(client)
        return client

    def opened(self, config: PowerConfig | None = None, *devices: str) -> SamplerClient:
        client = self.spawn()
        config = config or PowerConfig(period_s=0.02)
        client.open(RUN_ID, config, devices=devices or ["nvme0"], block_devices=[])
        return client

    def service(self, *options: str) -> Path:
        """Start a sampler service; returns its socket."""
        path = self.folder / "socket"
        command = [*self.program, "--socket", str(path), *options]
        with (
            (self.folder / "service.out").open("w") as out,
            (self.folder / "service.log").open("w") as log,
        ):
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self.processes.append(process)
        wait_for(lambda: listens(path))
        return path

    def killable_client(self, *options: str) -> subprocess.Popen[str]:
        """Start a run's process, leader of its group; returns when it samples.

        It has set power state 1, or with ``--limited`` a power limit, and switched APST off.
        """
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(self.folder), *options],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        assert self.state() == (0 if "--limited" in options else 1)
        return process

    def state(self, name: str = "nvme0") -> int:
        return load(self.models / f"{name}.json").state

    def record(self, run_id: str = RUN_ID) -> RunRecord:
        return read_record(self.runs / run_id)

    def clean(self) -> None:
        for client in self.clients:
            client.close()
        for process in self.processes:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(process.pid) == process.pid:
                    os.killpg(process.pid, signal.SIGKILL)
            process.terminate()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; it must within the design's ten seconds."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"nothing came of it in {DEADLINE_S} s")
        time.sleep(0.01)
