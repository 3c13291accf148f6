"""wattload on hosts whose drive is a model, which keeps its power state in a file of its host.

``python -m tests.cluster.model_drive run ...`` is ``wattload run ...`` there.
``WATTLOAD_TEST_FREEZE`` names a host, a module of ``wattload.run`` and a function of it that never
ends there.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from tests.model_host.drive import Model, ModelDrive, load, store
from tools.cluster.hosts import DRIVE, NAMES, Cluster
from wattload.__main__ import main
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import ChangeJournal
from wattload.power.control.undo import recover_changes
from wattload.power.sampler.client import SamplerClient
from wattload.run import host, power_session, preflight

MODELS = Path("/tmp/models")
CONTROLLER = "nvme0"
MODEL = f"{MODELS}/{CONTROLLER}.json"
FROZEN = f"{DRIVE}/frozen"


def add_drives(cluster: Cluster) -> None:
    """Give each host a model of a drive in power state 0."""
    for name in NAMES:
        cluster.files(name, str(MODELS)).mkdir()
        store(cluster.files(name, MODEL), Model())


def states(cluster: Cluster) -> list[int]:
    """Return the power state of the drive of each host."""
    return [load(cluster.files(name, MODEL)).state for name in NAMES]


class Client(SamplerClient):
    """Starts a sampler that finds the model."""

    @classmethod
    def spawn(cls, *arguments: Any, **options: Any) -> Self:
        words = ("--models", str(MODELS), "--name", socket.gethostname())
        program = (sys.executable, "-P", "-m", "tests.model_host.program", *words)
        return super().spawn(*arguments, **options, program=program)


def freeze(*_: object) -> None:
    Path(FROZEN).touch()
    time.sleep(600)


def run() -> int:
    """Run the command with the model under its target."""
    recovers = PowerHost(
        journal=ChangeJournal(MODELS / "state"),
        open_device=partial(ModelDrive, MODELS),
        list_names=lambda: [CONTROLLER],
    )
    replaced: list[tuple[Any, str, object]] = [
        (power_session, "SamplerClient", Client),
        (power_session, "recover_changes", partial(recover_changes, recovers)),
        *((each, "controllers_under", lambda _: [CONTROLLER]) for each in (host, preflight)),
    ]
    where, _, frozen = os.environ.get("WATTLOAD_TEST_FREEZE", "").partition(" ")
    if where == socket.gethostname():
        module, function = frozen.split()
        replaced.append((import_module(f"wattload.run.{module}"), function, freeze))
    for owner, name, value in replaced:
        assert hasattr(owner, name)
        setattr(owner, name, value)
    return main()


if __name__ == "__main__":
    sys.exit(run())
